# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sources of the host that are in the way of one of the stack's: which files, and why.

What is in the way is moved to a backup by the role `repositories`, never silently: each file is a change of the plan. A source of the
host at the very address, with a key of its own, is not in the way: it is used as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.stack import Displaced, Repository
from .log import Unresolved, conflict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource as Source

#: The stack's name of NVIDIA's repository: other places of the driver or the toolkits are in its way only.
CUDA = "nvidia-cuda"
#: Packages of NVIDIA unpacked to a directory of the machine: apt takes it for a repository (cuda-repo-…-local, nvidia-driver-local-repo-…).
_LOCAL = lazy(r"^file:/+var/(?:cuda-repo-|nvidia-driver-local-repo-|cudnn-local-repo-)")
_PPA = lazy(r"^https?://ppa\.launchpad(?:content)?\.net/graphics-drivers/ppa(?:/|$)")
_OF_CUDA = lazy(r"developer\.download\.nvidia\.(?:com|cn)/compute/(?:cuda|machine-learning)/repos/")


def in_the_way(repository: Repository, sources: Sequence[Source] | None, *, driver: bool) -> list[Displaced]:
    """Return the files that are in the way of a repository of the stack: file, reason, uris, and whole (nothing else is in it).

    driver: the driver comes from this repository, so that nobody else may offer one. Raises Unresolved for a file that has
    other sources too and whose format does not allow to part them.
    """
    # dnf gives each repository its keys apart: only apt stops at two for one place.
    apt = [each for each in sources or () if {"deb", "deb-src"} & set(each["types"])]
    others = [each for each in apt if each["enabled"] and each["file"] != repository["file"]]
    same = [each for each in others if _same_place(each, repository)]
    ours = any(source["file"] == repository["file"] for source in sources or ())
    found: dict[str, list[tuple[Source, str]]] = {}
    for each in others:
        if each in same:
            reason = _of_same_place(each, same, ours=ours)
        else:
            reason = _of_other_place(each, driver=driver) if repository["name"] == CUDA else None
        if reason:
            found.setdefault(each["file"], []).append((each, reason))
    return [_entry(file, bad, others) for file, bad in found.items()]


def _same_place(source: Source, repository: Repository) -> bool:
    return bool({_plain(uri) for uri in source["uris"]} & {_plain(uri) for uri in repository["uris"]})


def _plain(uri: str) -> str:
    return uri.rstrip("/")


def _of_same_place(each: Source, same: Sequence[Source], *, ours: bool) -> str | None:
    """Why a source at the very address is in the way: several with different keys stop all of apt, one without a key trusts any, and
    of one whose key is not there nothing is taken (NVIDIA's local repository, before somebody copied its key).
    """
    if each["signed_by"] is None:
        return (
            "it names the same repository without Signed-By, so that every key of the machine may sign for it (apt-key)"
        )
    if each.get("key_missing"):
        return f"it names the same repository with a key that is not there ({each['signed_by']}), so that apt takes nothing from it"
    if ours:
        return "it names the same repository as gpuwright's own file with another Signed-By, which stops all of apt"
    if len({source["signed_by"] for source in same}) > 1:
        return "several files name the same repository with different Signed-By, which stops all of apt"
    return None


def _of_other_place(each: Source, *, driver: bool) -> str | None:
    for uri in each["uris"]:
        if _LOCAL.match(uri):
            return "it is an unpacked copy of NVIDIA's repository with versions of its own beside the one that is used"
        if driver and _PPA.match(uri):
            return "the graphics-drivers PPA offers a driver under the names of the one that is used"
        if _OF_CUDA.search(uri) and each["signed_by"] is None:
            return "it names a repository of NVIDIA without Signed-By, whose old key was revoked (apt-key)"
    return None


def _entry(file: str, bad: Sequence[tuple[Source, str]], others: Sequence[Source]) -> Displaced:
    whole = len(bad) == sum(each["file"] == file for each in others)
    reason = bad[0][1]
    if not whole and not file.endswith(".list"):
        text = f"{file} is in the way ({reason}), and it has other package sources too"
        remedy = f"move the other sources out of {file}, or disable that one"
        raise Unresolved(conflict("repository.mixed-file", text, "the machine's facts", remedy))
    uris = list(dict.fromkeys(uri for each, _reason in bad for uri in each["uris"]))
    return {"file": file, "reason": reason, "uris": uris, "whole": whole}
