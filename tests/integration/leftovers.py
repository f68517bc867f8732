"""What is left of gpuwright on a node after `remove`: the file tree compared with the one before, content and all."""

from __future__ import annotations

from collections.abc import Mapping

#: Places that may differ, each with the reason. Everything else has to be as it was: there, of the same mode, owner and content.
ALLOWED: Mapping[str, str] = {
    "/boot": "the initramfs is built again, for the in-tree driver, and holds the time of that",
    "/etc/group-": "the copy of the file before its last change, by those who change it",
    "/etc/gshadow-": "the same",
    "/etc/hosts": "the container engine writes a node's address into it at each start, and another one may have the last",
    "/etc/ld.so.cache": "ldconfig writes its cache anew after each library",
    "/home": "a login leaves its own traces",
    "/root": "a login leaves its own traces",
    "/tmp": "what programs put down for a moment",
    "/var/backups": "dpkg's own copies of its records, made each day",
    "/var/cache/apt": "apt's caches of what repositories offer",
    "/var/cache/debconf": "debconf's record of what packages ask",
    "/var/cache/ldconfig": "ldconfig's own cache",
    "/var/lib/apt": "apt's record of what came as a dependency, and the indexes of the host's own sources",
    "/var/lib/dpkg": "dpkg's record of what is and was installed",
    "/var/lib/dkms/dkms_dbversion": "DKMS's own note",
    "/var/lib/dkms/mok.": "the key that DKMS made: the firmware may know it, and modules of others be signed with it",
    "/var/lib/systemd": "the record of services that a package has enabled once",
    "/var/log": "logs tell what was",
    "/var/tmp": "what programs put down for a moment",
}
#: How the modes of a directory, and of a regular file, begin.
_DIRECTORY, _FILE = "0o40", "0o100"


def leftovers(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Paths that are new, gone or changed. Directories count where something is in them, or where they carry our name: a package's
    program made them, and dpkg leaves those that are empty.
    """
    found = {}
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if "__pycache__" in path or path.startswith(tuple(ALLOWED)):
            continue
        if (one or other or "").startswith(_DIRECTORY) and "gpuwright" not in path:
            continue
        if one is None or other is None:
            found[path] = "new" if one is None else "gone"
        elif _content(one) != _content(other):
            found[path] = "changed"
    return found


def _content(told: str) -> list[str]:
    """Mode, owner, size and digest (or where a link leads), without the time."""
    words = told.split("\t")
    return words[:4] + words[5:] if told.startswith(_FILE) else words[:3] + words[4:]
