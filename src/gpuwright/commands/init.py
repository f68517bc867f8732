"""`gpuwright init`: a wish for this machine, or an inventory of hosts, with comments and ready to edit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, paths, system_python
from gpuwright.errors import BadInput
from gpuwright.request import local_inventory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_HOST = re.compile(r"^[A-Za-z0-9_\[][A-Za-z0-9_.:\[\]-]*$")
_LOCAL = "localhost"
# Groups of Ansible's own, whose names no host can have.
_GROUPS = ("all", "ungrouped")

# What stands behind a component of the default wish.
_NOTES = {
    "cuda": "one version: cuda=12.8; several side by side: a line each",
    "container-toolkit": "Docker, and NVIDIA's toolkit for it",
}
_NOTE_OF_FRAMEWORK = "an environment in /opt/gpuwright/{name}; a range: {name}>=2.7"

_WISH_HEAD = """\
---
# What is wished of this machine. What is not said here, the rules decide. Look before you change:
#
#   gpuwright plan --wish {file}
#   gpuwright up   --wish {file}
"""

_INVENTORY_HEAD = """\
---
# The machines, and what is wished of them. What is not said here, the rules decide. Look before you change:
#
#   gpuwright plan -i {file}
#   gpuwright up   -i {file} -l {first}
#   gpuwright up   -i {file}
all:
  hosts:
"""

_WISH = """
# The components, as --want takes them.
gpuwright_want:
{wanted}
  # - driver=580 # a branch, or one version: driver=580.159.03
  # - driver-source=distro # nvidia, distro, runfile or preinstalled
  # - cudnn # for the whole machine; each framework brings its own
{frameworks}
  # - pytorch@research==2.7.1 # an environment with a name of its own
  # - jupyter # each environment a kernel of Jupyter's
  # - python=3.12 # the interpreter of the environments

# The cards that have to be there, by number or by name (a list). Fewer are a failure.
# gpuwright_gpus_expected: 2

# What a project requires, solved together with its frameworks: frameworks_project names its requirements.txt or pyproject.toml.

# Where the environments are.
# frameworks_path: /opt/gpuwright

# Far from the vendors or behind an air gap: a mirror for each upstream, by the names in compat/upstreams.yaml.
# gpuwright_mirrors:
#   nvidia: http://mirror.example.com/nvidia/repos
#   pytorch: http://mirror.example.com/pytorch/whl
"""

_RUN = """
# How to log in. Root is taken with sudo; -K asks for its password.
# ansible_user: deploy

# Waves: one host first, then a quarter of the rest at a time. A host is proven before the next wave begins.
# gpuwright_serial: [1, "25%"]

# The share of a wave that may fail before the rest is left alone.
# gpuwright_max_fail_percentage: 0

# With false a host is not rebooted when its driver needs it, and the run says so.
# nvidia_driver_reboot: false
"""


def run(args: argparse.Namespace) -> int:
    """Write the file, and say what to do with it.

    Raises:
        BadInput: a name is none of a host, or the file is there already, is a link, or cannot be written.
    """
    kind = "inventory" if args.hosts else "wish"
    path = paths.written(args.output or f"{kind}.yml")
    _write(path, inventory(args.hosts, str(path)) if args.hosts else wish(str(path)), force=args.force)
    if args.json:
        console.json_document({"ok": True, "kind": kind, "file": str(path)})
        return exits.DONE
    console.note(f"{kind}: {path}")
    console.note(f"next: edit it, then gpuwright plan {'-i' if args.hosts else '--wish'} {path}")
    return exits.DONE


def wish(file: str) -> str:
    """The text of a wish, which is called `file`."""
    return _WISH_HEAD.format(file=file) + _wished()


def inventory(hosts: Sequence[str], file: str) -> str:
    """The text of an inventory of these hosts, which is called `file`.

    Raises:
        BadInput: a name is none of a host.
    """
    for host in hosts:
        if not _HOST.match(host) or host in _GROUPS:
            raise BadInput(
                f"{host!r} is no name of a host",
                ["write each by itself: gpuwright init node1 node2", "many at once as Ansible does: 'node[01:08]'"],
            )
    named = list(dict.fromkeys(hosts))
    rows = "".join(f"    {line}\n" for host in named for line in _host(host))
    head = _INVENTORY_HEAD.format(file=file, first=named[0]) + rows
    return head + "  vars:" + textwrap.indent(_RUN + _wished(), "    ")


def _wished() -> str:
    defaults = knowledge.default_wants()
    about = knowledge.frameworks()
    notes = {**_NOTES, **{name: _NOTE_OF_FRAMEWORK.format(name=name) for name in about}}
    wanted = "\n".join(f"  - {name}" + (f" # {notes[name]}" if name in notes else "") for name in defaults)
    others = [each.example or each.name for each in about.values() if each.listed and each.name not in defaults]
    return _WISH.format(wanted=wanted, frameworks="\n".join(f"  # - {each}" for each in others))


def _host(host: str) -> Iterator[str]:
    import yaml

    plain = yaml.safe_load(f"{host}:") == {host: None}
    yield f"{host if plain else json.dumps(host)}:"
    if host == _LOCAL:
        for name, value in _of_this_machine().items():
            yield f"  {name}: {json.dumps(value)}"


def _of_this_machine() -> dict[str, str | bool]:
    """As a run without an inventory takes it. Root needs no sudo, and a root shell in a container often has none."""
    entry = local_inventory(system_python.path())["all"]["hosts"][_LOCAL]
    return {**entry, "ansible_become": "{{ lookup('ansible.builtin.pipe', 'id -u') != '0' }}"}


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write the file. With `force` the name is taken by the new one: what a link leads to is never written to."""
    try:
        there = _there(path)
        if there and force:
            _replace(path, text, there)
            return
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise BadInput(
            f"{path} is there already", ["write over it: --force", "or name another file: --output FILE"]
        ) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def _there(path: Path) -> os.stat_result | None:
    """The file that has the name, if there is one.

    Raises:
        BadInput: it is a link, or no file that could be replaced.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no regular file"
        raise BadInput(f"{path} is {what} and is not written over", ["name another file: --output FILE"])
    return found


def _replace(path: Path, text: str, there: os.stat_result) -> None:
    """Put a new file in place of the one that is there, in one step and with its owner and mode."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            with contextlib.suppress(PermissionError):  # only root gives a file away
                os.fchown(stream.fileno(), there.st_uid, there.st_gid)
            os.fchmod(stream.fileno(), there.st_mode & 0o777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
