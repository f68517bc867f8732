# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Containers of users without root: each of them needs a range of subordinate ids of his own (subuid(5)), which no other range overlaps.

What is given is recorded before it is given, so that `remove` takes back nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model.errors import StepRefused
from ..base import Context, Finding
from .shape import Merged, RootlessWork

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, IdRange
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Rootless as Seen

    from ...model.plan import GivenRange

FILES = ("/etc/subuid", "/etc/subgid")
#: As many ids as a container has, and where useradd begins and ends (login.defs(5), SUB_UID_MIN and SUB_UID_MAX).
COUNT = 65536
_FIRST, _LAST = 100000, 600100000


def users(context: Context) -> Sequence[str]:
    """The users who are to start containers."""
    wished = context.stack["container_toolkit"].get("rootless")
    return wished["users"] if wished else ()


def packages(context: Context) -> list[str]:
    """What their containers need."""
    wished = context.stack["container_toolkit"].get("rootless")
    return list(wished["packages"]) if wished else []


def findings(context: Context) -> list[Finding]:
    """Who lacks a range."""
    lacking = _lacking(context)
    text = f"no range of subordinate ids for {', '.join(lacking)}, which containers without root need"
    return [Finding("configure", text, files=FILES)] if lacking else []


def work(context: Context) -> RootlessWork | None:
    """The record of the ranges that are given, the programs that give them, and who is to be able to use them; None where nobody is named.
    Raises StepRefused where there are no more ids.
    """
    named = users(context)
    if not named:
        return None
    seen = context.facts["containers"]["rootless"]
    given = _given(context, seen)
    return {
        "record": _record(seen, given) if given else None,
        "commands": [_add(each) for each in given],
        "users": list(named),
    }


def taken_back(facts: Facts) -> list[GivenRange]:
    """What was given, as far as it is there. Its lines go, and usermod is not asked: that refuses while a user has a process."""
    added = facts["containers"]["rootless"]["added"]
    return [
        {"path": path, "line": f"{each['owner']}:{each['first']}:{each['count']}"}
        for path, ranges in zip(FILES, (added["uids"], added["gids"]), strict=True)
        for each in ranges
    ]


def reason(seen: Seen, names: Iterable[str]) -> str | None:
    """Why one of the users cannot start containers without root, as a sentence; None where nothing is in the way."""
    if seen["max_namespaces"] == 0 or seen["clone"] is False:
        return "the kernel does not let users make user namespaces"
    if seen["apparmor"] and not seen["profile"]:
        return "AppArmor has no profile by which Podman may make user namespaces"
    for name in names:
        if name not in seen["users"]:
            return f"{name} is no user of this machine"
        if not _has_ranges(seen, name):
            return f"{name} has no range of subordinate ids in {' and '.join(FILES)}"
    return None


def _lacking(context: Context) -> list[str]:
    seen = context.facts["containers"]["rootless"]
    return [name for name in users(context) if not _has_ranges(seen, name)]


def _has_ranges(seen: Seen, name: str) -> bool:
    return all(_has(ranges, name, seen) for ranges in (seen["uids"], seen["gids"]))


def _has(ranges: Iterable[IdRange], name: str, seen: Seen) -> bool:
    """Whether one of the ranges is a user's, by his name or his id, and large enough."""
    owners = (name, str(seen["users"].get(name)))
    return any(each["owner"] in owners and each["count"] >= COUNT for each in ranges)


def _given(context: Context, seen: Seen) -> list[IdRange]:
    """A range for each user who lacks one, behind all that there are: the same ids of users and of groups."""
    ends = [each["first"] + each["count"] for each in (*seen["uids"], *seen["gids"])]
    first = max([_FIRST, *ends, *(number + 1 for number in seen["users"].values())])
    found: list[IdRange] = []
    for name in _lacking(context):
        if first + COUNT > _LAST:
            raise StepRefused(
                f"Expected {COUNT} free subordinate ids for {name} below {_LAST}. Found: {' and '.join(FILES)} have none left "
                f"behind the last range. What to do: give {name} a range by hand (usermod --add-subuids FIRST-LAST "
                f"--add-subgids FIRST-LAST {name}) and run again."
            )
        found.append({"owner": name, "first": first, "count": COUNT})
        first += COUNT
    return found


def _record(seen: Seen, given: Sequence[IdRange]) -> Merged:
    added = seen["added"]
    record = {"uids": [*added["uids"], *given], "gids": [*added["gids"], *given]}
    return {"path": paths.ROOTLESS, "content": json.dumps(record, indent=1) + "\n", "mode": "0600"}


def _add(given: IdRange) -> list[str]:
    ids = f"{given['first']}-{given['first'] + given['count'] - 1}"
    return ["usermod", "--add-subuids", ids, "--add-subgids", ids, given["owner"]]
