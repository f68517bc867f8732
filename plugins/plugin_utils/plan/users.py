# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a user who works without root: what is refused, and how checks of what is root's count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...module_utils.base import numeric_version
from ..components.base import Context
from ..components.frameworks import apply as frameworks
from ..components.frameworks import contents
from ..model import sections
from ..model.errors import BadInput
from ..model.lock import LockStack
from ..wish import users
from .document import refusal

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..components.frameworks.model import FrameworkEnvironment
    from ..model.lock import Lock
    from ..model.plan import Plan
    from ..model.stack import Refusal
    from ..wish.reading import Variables

#: The first parts of the ids of checks that speak of what is the user's own.
_OWN = ("framework", "proof", "removal", "seals")
#: Without these no program of the user's computes on a card.
_NEEDED = ("driver.loaded", "driver.version_match")


def of_wish(variables: Variables) -> list[Refusal]:
    """What of a wish only root can bring."""
    return [
        refusal(
            "needs-root",
            f"{each.text} needs root: --user is for environments of your own",
            f"leave it out{f' ({each.instead})' if each.instead else ''}, or ask root of this machine to bring it by gpuwright up",
        )
        for each in users.needing_root(variables)
    ]


def of_caller(facts: Facts) -> list[Refusal]:
    """Why this is no run of a user's."""
    if not facts["privileged"]:
        return []
    text = "--user is for what belongs to one user, and this run is root's"
    return [
        refusal(
            "user-is-root",
            text,
            "run it as that user, without sudo; or leave --user out, for environments that everybody may use",
        )
    ]


def of_place(facts: Facts) -> list[Refusal]:
    """Why no environment can be made where the wish, or the usual place of the user, has them."""
    user = sections.user(facts)
    if user is None or user["obstacle"] is None:
        return []
    text = f"your environments cannot be made there: {user['obstacle']}"
    return [refusal("user-place", text, "name a directory of your own: -e frameworks_path=DIRECTORY")]


def nowhere() -> Refusal:
    """Why there is no way back to an environment."""
    text = "no build of the wished environments is kept that was in use before"
    return refusal(
        "rollback-nowhere",
        text,
        "name the environment that you mean with --want; or a release of it: gpuwright up --user --want NAME=VERSION",
    )


def of_lock(lock: Lock) -> Lock:
    """The part of a lock that takes no root: it says nothing of the driver that the machine has. Raises BadInput where nothing is left."""
    environments = lock["stack"].get("frameworks")
    if not environments:
        raise BadInput(
            "the lock has no environment, and --user is for environments of your own",
            ["gpuwright resolve --want pytorch --lock FILE makes one that has"],
        )
    return {**lock, "stack": LockStack(repositories=[], frameworks=environments)}


def of_plan(plan: Plan, context: Context) -> list[Refusal]:
    """What is missing on the machine that only root can bring, for what the plan changes."""
    changed = {path for change in plan["changes"] if change["component"] == frameworks.NAME for path in change["files"]}
    waiting = [each for each in context.stack.get("frameworks") or () if each["path"] in changed]
    found = of_place(context.facts) if waiting else []
    found += [row for each in waiting for row in _of_interpreter(each, context.facts)]
    if any(each["cuda"] for each in waiting):
        found += _of_driver(plan["checks"])
    return [row for place, row in enumerate(found) if row not in found[:place]]


def _of_interpreter(framework: FrameworkEnvironment, facts: Facts) -> list[Refusal]:
    """An environment is made by a Python that is there. One without ensurepip gets its pip by uv."""
    wished = str(framework["interpreter"])
    versions = [str(each["version"]) for each in facts["python"]["interpreters"]]
    if any(numeric_version.belongs(each, wished) for each in versions):
        return []
    lacking = f"there is no Python {wished} here"
    package = contents.maker(wished, facts["os"]["family"])
    minor = ".".join(map(str, numeric_version.key(versions[-1])[:2])) if versions else ""
    instead = f"; or use one that is there: --want python={minor}" if minor else ""
    remedy = f"ask root of this machine to install {package}{instead}"
    return [refusal("user-python", f"{lacking}, which {framework['path']} needs", remedy)]


def _of_driver(checks: Sequence[Check]) -> list[Refusal]:
    """A driver that does not work now: the environment could not be proven."""
    return [
        refusal(
            "user-driver",
            f"the driver of this machine does not work now: {check['reason']}",
            f"ask root of this machine: {check['remedy']}; until then ask for a build for the processor",
        )
        for check in checks
        if check["id"] in _NEEDED and check["status"] in ("fail", "incomplete", "warn")
    ]


def judged(checks: Sequence[Check], facts: Facts) -> list[Check]:
    """The checks as they count for a user: what is wrong with the machine is a warning, and what only root can see is left out. What is the
    user's own counts as ever.
    """
    return list(checks) if sections.user(facts) is None else [_judged(check) for check in checks]


def _judged(check: Check) -> Check:
    if check["id"].partition(".")[0] in _OWN:
        return check
    if check["status"] == "incomplete":
        return {**check, "status": "skip", "remedy": None, "action": None}
    if check["status"] in ("fail", "warn"):
        remedy = f"for root of this machine: {check['remedy']}" if check["remedy"] else check["remedy"]
        return {
            **check,
            "status": "warn",
            "severity": "warning" if check["status"] == "fail" else check["severity"],
            "remedy": remedy,
        }
    return check
