# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refusals right before the first change: what may have changed since the plan was made, which waited for a person's yes.

Whatever can be known before a change and would stop a role in the middle belongs here or among the plan's own refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from ...module_utils.base import paths
from ...module_utils.observe import environment_builds
from ..components.frameworks import apply as frameworks
from ..components.registry import COMPONENTS
from ..model import sections
from ..model.errors import StepRefused
from ..model.shortfalls import MIB, Need, on_disks
from . import space, use

if TYPE_CHECKING:
    from ..components.base import Context, Step
    from ..model.plan import Plan

#: Package managers that the roles know.
MANAGERS = ("apt", "dnf")
_FREE = (
    "What to do: free space there (apt-get clean or dnf clean all; apt-get autoremove or dnf remove --oldinstallonly for old kernels), or "
    "give the file system more, and run again."
)


class Given(TypedDict):
    """The role's variables, in MiB: what stays free, what /boot takes, what an environment takes."""

    reserve: int
    boot: int
    framework: int


class Begin(TypedDict):
    """What the role does before it looks: whether it waits for a program that installs packages, and what has to be root's alone."""

    wait: bool
    paths: list[str]


def begin(context: Context, plan: Plan) -> Begin:
    """What is waited for, and what has to be root's alone, or the user's who works without root: the records, and the environments, whose
    interpreter is run.
    """
    taken_back = plan["remove"]
    sealed = [plan["manages"][name] for name in plan["components"] if name in plan["manages"]]
    environments = [path for each in sealed for path in each["environments"]]
    environments += taken_back["environments"] if taken_back else ()
    user = sections.user(context.facts)
    return {
        "wait": user is None and bool(taken_back or touching(plan, "packages")),
        "paths": [
            *(user["records"] if user else (paths.STATE, paths.RUN)),
            *environments,
            *map(environment_builds.directory, environments),
        ],
    }


def look(context: Context, plan: Plan) -> Mapping[str, object]:
    """Refuse what cannot end well, from the node as it is now.

    ``plan["given"]`` has the role's variables in MiB: ``reserve``, ``boot`` and ``framework``.
    """
    for refuse in (_plan, _machine, _services, _disks, _components):
        refuse(context, plan)
    return {}


def _plan(_context: Context, plan: Plan) -> None:
    if plan["error"]:
        raise StepRefused(plan["error"])
    refusals = [*plan["refusals"], *plan["conflicts"]]
    if refusals:
        told = " ".join(
            f"[{row['rule']}] {row['text']} What to do: {row.get('remedy') or 'change the wish'}." for row in refusals
        )
        raise StepRefused(f"Expected a plan without refusals, found {len(refusals)}: {told}")


def _machine(context: Context, plan: Plan) -> None:
    facts = context.facts
    if sections.user(facts) is not None:
        return  # what is the user's own needs neither
    if not facts["privileged"]:
        raise StepRefused(
            f"Expected to work as root on {plan['host']}, found an ordinary user. "
            "What to do: run with become (gpuwright up -K asks for the sudo password), or as root."
        )
    if facts["packages"]["manager"] not in MANAGERS:
        raise StepRefused(
            f"Expected one of these package managers: {', '.join(MANAGERS)}. "
            f"Found {facts['packages']['manager'] or 'none'} on {facts['os']['name'] or 'an unknown system'}. What to do: use a supported "
            "system, or install the driver by its own means; gpuwright validate and doctor then still work."
        )


def _services(context: Context, plan: Plan) -> None:
    names = touching(plan, "services")
    if names and not plan["provision_only"] and not context.facts["environment"]["systemd"]:
        raise StepRefused(
            f"Expected systemd as service manager, because the plan has {' and '.join(names)}. Found no running systemd. "
            "What to do: run on a machine that was booted with systemd (in WSL: systemd=true in /etc/wsl.conf)."
        )


def needs(context: Context, plan: Plan) -> list[Need]:
    """What is needed, and where. The path may not be there yet: the file system that holds its nearest parent counts."""
    given = cast("Given", plan["given"])
    cache = "/var/cache/dnf" if context.facts["packages"]["manager"] == "dnf" else "/var/cache/apt/archives"
    download, installed = space.of_packages(plan), plan["disk_bytes"] or 0
    boot = int(given["boot"]) * MIB if touching(plan, "initramfs") else 0
    return [
        {"what": "downloaded packages", "path": cache, "bytes": download, "files": 1},
        # No index tells how many files a package has: a driver and CUDA have more than one for each MiB.
        {"what": "installed packages", "path": "/usr", "bytes": installed, "files": installed // MIB},
        *frameworks.needs(context, plan, int(given["framework"]) * MIB),
        {"what": "the initramfs", "path": "/boot", "bytes": boot, "files": 1},
    ]


def _disks(context: Context, plan: Plan) -> None:
    reserve = int(cast("Given", plan["given"])["reserve"]) * MIB
    found = on_disks(needs(context, plan), list(context.facts["disks"] or ()), reserve)
    if found:
        raise StepRefused(f"{' '.join(found)} {_FREE}")


def _components(context: Context, plan: Plan) -> None:
    """What each component of the plan must not be begun with, and what it would end."""
    use.refuse(context, plan)
    for name in plan["components"]:
        if name in COMPONENTS:
            COMPONENTS[name].refuse(context, plan)


def touching(plan: Plan, what: str) -> list[str]:
    """The components of a plan that change something of this kind, see Component.touches."""
    return [name for name, each in COMPONENTS.items() if name in plan["components"] and what in each.touches]


STEPS: Mapping[str, Step] = {"begin": begin, "look": look}
