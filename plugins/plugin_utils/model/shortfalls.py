# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is missing: on the disks before a change, in a Python environment before and after one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Disk

MIB = 1024**2


class Need(TypedDict):
    """What is written below a path, in bytes and files."""

    what: str
    path: str
    bytes: int
    files: int


def on_disks(needs: Sequence[Need], disks: Sequence[Disk], reserve: int) -> list[str]:
    """One sentence for each file system that cannot take what will be written to it.

    ``needs``: rows of ``what``, ``path``, ``bytes`` and ``files`` (how many, where that is known, else one); several on one file
    system add up.
    ``disks``: as node_facts gives them. ``reserve``: bytes that stay free besides, but not on a /boot of its own, which is small and
    written by nothing else.
    """
    wanted: dict[str, list[Need]] = {}
    sentences = []
    for need in needs:
        if not int(need["bytes"]):
            continue
        disk = holding(str(need["path"]), disks)
        if disk is None:
            sentences.append(
                f"Expected to know the file system of {need['path']} for {need['what']}, found none that holds it."
            )
        else:
            wanted.setdefault(disk["mount"], []).append(need)
    for disk in disks:
        if disk["mount"] in wanted:
            sentences += _judge(disk, wanted[disk["mount"]], 0 if disk["mount"] == "/boot" else reserve)
    return sentences


def holding(path: str, disks: Iterable[Disk]) -> Disk | None:
    """The file system that holds the path, or will: the one that says so, since links may lead elsewhere; else the one with the longest
    mount point above it.
    """
    disks = list(disks)
    named = next((disk for disk in disks if path in (disk.get("places") or ())), None)
    if named is not None:
        return named
    above = [disk for disk in disks if path == disk["mount"] or path.startswith(disk["mount"].rstrip("/") + "/")]
    return max(above, key=lambda disk: len(disk["mount"]), default=None)


def room(disk: Disk) -> int | None:
    """The bytes that a run has on a disk: what is free, and what it takes away that an earlier one left; None where that is not known."""
    free = disk.get("free_bytes")
    return None if free is None else free + (disk.get("reclaimed_bytes") or 0)


def _judge(disk: Disk, needs: Sequence[Need], reserve: int) -> list[str]:
    things = " and ".join(dict.fromkeys(str(need["what"]) for need in needs))
    if disk.get("read_only"):
        return [f"Expected to write {things} to {disk['mount']}, found it read-only."]
    free_bytes, free_files = room(disk), disk.get("free_files")
    if free_bytes is None:
        return [f"Expected to know the free space of {disk['mount']} for {things}, found it unknown."]
    files_needed = sum(int(need.get("files") or 1) for need in needs)
    if free_files is not None and free_files < files_needed:
        return [
            f"Expected room for {words.count(files_needed, 'more files')} (inodes) on {disk['mount']} for {things}, found {free_files}."
        ]
    bytes_needed = sum(int(need["bytes"]) for need in needs) + reserve
    if free_bytes >= bytes_needed:
        return []
    free, needed = free_bytes // MIB, -(-bytes_needed // MIB)
    return [f"Expected {needed} MiB free on {disk['mount']} for {things}, found {free} MiB."]


def in_environment(requirements: Iterable[str], packages: Mapping[str, str], constraints: Iterable[str]) -> list[str]:
    """The requirements that are not met, then the constraints that an installed package breaks. As they were given.

    Raises ValueError for one that is not a requirement at all.
    """
    # Here and below inside the function: a filter must load where only ansible-core's modules are (ansible-test's import check).
    from packaging.utils import canonicalize_name

    installed: dict[str, str] = {canonicalize_name(name): version for name, version in packages.items()}
    unmet = [text for text in requirements if not _met(_parse(text), installed, absent=False)]
    return unmet + [text for text in constraints if not _met(_parse(text), installed, absent=True)]


def _parse(text: str) -> Requirement:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement as error:
        message = f"{text!r} is not a Python requirement: {error}"
        raise ValueError(message) from error


def _met(requirement: Requirement, installed: Mapping[str, str], *, absent: bool) -> bool:
    """Whether what is installed satisfies the requirement; ``absent`` is the answer for a package that is not there.

    PEP 440 has the rule for local versions: ==2.1 takes 2.1+cpu, ==2.1+cu130 takes only itself.
    """
    from packaging.utils import canonicalize_name

    version = installed.get(canonicalize_name(requirement.name))
    if version is None:
        return absent
    return requirement.specifier.contains(version, prereleases=True)
