# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The copy of the program that goes on after a boot: unpacked and tried by root, from what was checked and nothing else."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from typing import Any, Callable, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module

PROGRAMS = ("gpuwright", "bin/ansible-playbook")
_SECONDS = 60.0
# ansible-core does not start without it.
_UTF8 = {"LC_ALL": "C.UTF-8"}
_SEARCHED = "import sys; print(*sys.path, sep='\\n')"


class Refused(Exception):
    """There is no copy that root may run; the text is the reason."""


def keep(
    archive: str,
    sha256: str,
    interpreter: str,
    places: Sequence[str],
    directory: str,
    owners: Sequence[int] = (0,),
    runner: Callable[..., Any] = run_module.run,
) -> None:
    """Unpack the archive into `directory`, in the place of what is there. Raises Refused, OSError; then nothing is there.

    The archive lies where its maker, an ordinary user, may change it: what is compared is what is unpacked, one read of it.
    """
    shutil.rmtree(directory, ignore_errors=True)
    _judge(interpreter, places, os.path.dirname(directory), owners, runner)
    content = _read(archive)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Refused(f"{archive} is not the archive that was packed: somebody changed it")
    new = tempfile.mkdtemp(prefix=".program-", dir=os.path.dirname(directory))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            packed.extractall(new)
        for name in PROGRAMS:
            os.chmod(os.path.join(new, name), 0o700)
        os.rename(new, directory)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    for name in PROGRAMS:
        tried = runner([os.path.join(directory, name), "--version"], timeout=_SECONDS, env=_UTF8)
        if not tried.ok:
            shutil.rmtree(directory, ignore_errors=True)
            said = tried.error or tried.err.strip()[-300:] or f"exit {tried.rc}"
            raise Refused(f"its copy of {name} cannot be run by {interpreter}: {said}")


def _judge(
    interpreter: str, places: Sequence[str], parent: str, owners: Sequence[int], runner: Callable[..., Any]
) -> None:
    """Raise Refused where the interpreter, a directory that it searches, or the copy's place is not root's alone."""
    found = ownership.offence(interpreter, owners) or ownership.offence(parent, owners)
    searched = [] if found else runner([interpreter, "-IS", "-c", _SEARCHED], timeout=_SECONDS).out.splitlines()
    for path in [*searched, *places]:
        found = found or (ownership.offence_below(path, owners) if os.path.exists(path) else None)
    if found:
        raise Refused(f"root would run {found.text}")
    if not searched:
        raise Refused(f"{interpreter} cannot be run")


def _read(path: str) -> bytes:
    """A regular file that is no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused(f"{path} is no regular file")
        return stream.read()
