# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that runs now, as one archive: what goes on after a boot is a copy of it that only root can change.

Where it runs from (an environment in a home, a clone) is its user's to change until that boot, and the boot gives root away. So it is
packed while it runs, by the process that runs it: whoever could slip something in at that moment had this run already, which the user
started as root. From here on a checksum holds the archive; the module resume_program takes nothing else.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

#: What gpuwright requires, see pyproject.toml.
REQUIREMENTS = ("ansible-core", "ansible-runner", "jinja2", "packaging", "PyYAML", "plotille", "rich")
#: The programs of the copy, each with the module whose `main` it calls.
PROGRAMS = {"gpuwright": "gpuwright.cli", "bin/ansible-playbook": "ansible.cli.playbook"}
LIBRARY = "lib"

_COLLECTION = Path(__file__).resolve().parents[3]
_PARTS = ("galaxy.yml", "MANIFEST.json", "meta", "playbooks", "plugins", "roles", "compat")
# Isolated from the environment's variables and the user's packages (-I), and from what lies in the system's site-packages (-S).
_START = """#!{interpreter} -IS
# Written by gpuwright. What goes on after the boot is run by root, from here alone.
import sys
sys.path.insert(0, {library!r})
sys.path += {places!r}
from {module} import main
sys.exit(main())
"""


def pack(package: Path, interpreter: str, directory: str) -> tuple[bytes, list[str]]:
    """An archive (zip) of the program and all that it needs.

    Args:
        package: the directory of the package gpuwright that runs.
        interpreter: the Python of the copy.
        directory: where the copy will lie.

    Returns:
        The archive, and the directories that the copy needs besides: those of distributions without a list of their files (the
        package manager's).

    Raises:
        OSError, metadata.PackageNotFoundError: part of the program cannot be read or found.
    """
    places: list[str] = []
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, path in _files(package, places):
            archive.writestr(f"{LIBRARY}/{name}", _content(path))
        for name, module in PROGRAMS.items():
            library = f"{directory}/{LIBRARY}"
            text = _START.format(interpreter=interpreter, library=library, places=places, module=module)
            archive.writestr(name, text)
    return stream.getvalue(), places


def _files(package: Path, places: list[str]) -> Iterator[tuple[str, Path]]:
    """Each file with its name in the library; `places` takes what is not copied."""
    yield from _below(package, "gpuwright")
    for part in _PARTS:
        path = _COLLECTION / part
        name = f"ansible_collections/gpuwright/node/{part}"
        if path.is_dir():
            yield from _below(path, name)
        elif path.is_file():
            yield name, path
    for found in distributions():
        if found.read_text("RECORD") is None:
            place = os.path.realpath(str(found.locate_file("")))
            places += [] if place in places else [place]
            continue
        for file in found.files or ():
            # Programs lie outside the library; what was compiled is compiled anew.
            if ".." not in file.parts and not file.is_absolute() and file.suffix != ".pyc":
                path = Path(str(file.locate()))
                if path.is_file():
                    yield str(file), path


def distributions() -> list[metadata.Distribution]:
    """The distributions that gpuwright needs, directly and by way of others."""
    # Comes with ansible-core; ansible-test imports each plugin without it.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, metadata.Distribution] = {}
    waiting = list(REQUIREMENTS)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        needs = [Requirement(line) for line in found[name].requires or ()]
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return list(found.values())


def _below(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for file in sorted(files):
            path = Path(where, file)
            yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _content(path: Path) -> bytes:
    """A regular file's content: a pipe would hold the run for ever, and a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        return stream.read()
