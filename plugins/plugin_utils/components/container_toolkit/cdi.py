# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How engines find the cards: the CDI specification that the toolkit's own units keep up to date, and links to the device nodes by their
numbers, which runc needs: without them `systemctl daemon-reload` takes the cards from containers that run (NVIDIA/nvidia-docker, issue
1730).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ...model import sections
from ..base import Context, Finding
from .shape import Merged

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import CdiSpecification, Facts

    from ...model.work import Unit

SETTING = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpuwright.conf"
#: Modules that the toolkit's unit waits for. Debian's open ones have another name, and it never writes the CDI specification there
#: (NVIDIA/nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service at v1.20.0, ExecCondition).
_KNOWS = ("nvidia", "nvidia-current")
REFRESH = "nvidia-cdi-refresh.service"
#: Since 1.18 the toolkit itself keeps the CDI specification up to date; no second unit beside it.
UNITS = ("nvidia-cdi-refresh.path", REFRESH)
_UNITS_SINCE = "1.18"
#: What CUDA opens besides the cards' own nodes.
_UVM = "/dev/nvidia-uvm"
#: States of units that nobody can enable.
ABSENT = (None, "", "not-found", "masked")
LINKS = "gpuwright-device-links.service"
LINKS_UNIT = f"/etc/systemd/system/{LINKS}"
#: The toolkit's own unit comes after all others at boot, which is too late for containers that start with their engine.
_LINKS = """# Written by gpuwright (role container_toolkit); a change by hand is undone by the next run.
[Unit]
Description=Links to the device nodes of NVIDIA cards by their numbers
After=nvidia-persistenced.service gpuwright-mig.service
Before=docker.service containerd.service crio.service
ConditionPathExists=/usr/bin/nvidia-ctk

[Service]
Type=oneshot
# A card that hangs must not keep the engines, which wait for this unit, from starting; a oneshot has no limit of its own.
TimeoutStartSec=60
TimeoutStopSec=10
ExecStart=-/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all

[Install]
WantedBy=multi-user.target
"""


def files(context: Context) -> list[str]:
    """The setting that lets the toolkit's unit know the module of this driver, where it does not by itself, and the unit of the links."""
    return [file["path"] for file in written(context)]


def written(context: Context) -> list[Merged]:
    """The same, with what is in them."""
    driver = context.stack.get("driver")
    module = driver.get("kernel_module") if driver else None
    setting: list[Merged] = []
    if module is not None and module not in _KNOWS:
        setting = [{"path": SETTING, "content": text(module), "mode": "0644"}]
    links: Merged = {"path": LINKS_UNIT, "content": _LINKS, "mode": "0644"}
    return [*setting, links] if has_nodes(context) else setting


def has_nodes(context: Context) -> bool:
    """Whether cards have device nodes there: in WSL they have none."""
    return context.facts["environment"]["kind"] != "wsl"


def units(context: Context, *, check: bool = False) -> list[Unit]:
    """The units that are enabled. One is started only where what it makes is not as the cards are: systemd starts the toolkit's own ones
    when the driver changes, and without a driver they would fail. ``check``: nothing was written, so that only what is there can be asked.
    """
    there = [name for name in UNITS if _is_there(context.facts, name)]
    found: list[Unit] = [{"name": name, "enabled": True} for name in there]
    if REFRESH in there and _runs(context) and stale(context.facts):
        found = [{**unit, "state": "restarted"} if unit["name"] == REFRESH else unit for unit in found]
    if has_nodes(context) and not (check and not _is_there(context.facts, LINKS)):
        links: Unit = {"name": LINKS, "enabled": True}
        unlinked = _runs(context) and context.facts["containers"]["cdi"]["unlinked"]
        found.append({**links, "state": "restarted"} if unlinked else links)
    return found


def _is_there(facts: Facts, name: str) -> bool:
    return sections.service(facts, name)["enabled"] not in ABSENT


def findings(context: Context) -> list[Finding]:
    """What would keep a container from its cards, now or after the next `systemctl daemon-reload`. Beside a driver that does not run and
    that this plan mends too: it may run again without a boot, at which the toolkit's unit would write the specification.
    """
    if not (_runs(context) or (context.runs_here and context.driver_changes)):
        return []
    reason, unlinked = stale(context.facts), context.facts["containers"]["cdi"]["unlinked"]
    found = [Finding("configure", reason, services=[REFRESH])] if reason else []
    if unlinked and has_nodes(context):
        found.append(Finding("configure", f"no link in /dev/char leads to {', '.join(unlinked)}", services=[LINKS]))
    return found


def _runs(context: Context) -> bool:
    """Whether nvidia-smi, which the toolkit's unit asks first, can answer: between a change of the driver and the next boot it cannot."""
    driver = context.facts["driver"]
    loaded, libraries = driver["loaded_version"], driver["user_version"]
    return context.runs_here and loaded is not None and libraries in (None, loaded)


def stale(facts: Facts) -> str | None:
    """Why the specifications do not tell the cards as they are, as a sentence; None where they do, or where it is not known."""
    specifications = facts["containers"]["cdi"]["specifications"]
    if not specifications:
        return "there is no CDI specification of the cards" if is_kept(facts) else None
    return next((reason for each in specifications for reason in _differences(each, facts)), None)


def twice(specifications: Sequence[CdiSpecification]) -> Iterator[str]:
    """Devices that two files of one directory have: an engine takes neither (cncf-tags/container-device-interface, pkg/cdi/cache.go)."""
    first: dict[tuple[str, str], str] = {}
    for each in specifications:
        directory = each["path"].rpartition("/")[0]
        other = next(
            (
                path
                for name in each["devices"]
                if (path := first.setdefault((directory, name), each["path"])) != each["path"]
            ),
            None,
        )
        if other:
            yield f"{other} and {each['path']} have the same devices, and an engine takes those of neither"


def is_kept(facts: Facts) -> bool:
    """Whether there is a specification, or the toolkit is one that makes it."""
    version = facts["containers"]["toolkit"]["version"]
    makes = version is not None and numeric_version.at_least(version, _UNITS_SINCE)
    return makes or bool(facts["containers"]["cdi"]["specifications"])


def _differences(specification: CdiSpecification, facts: Facts) -> Iterator[str]:
    """What a specification says otherwise than the cards."""
    path, loaded = specification["path"], facts["driver"]["loaded_version"]
    if specification["driver"] and loaded and specification["driver"] != loaded:
        yield f"{path} is of the driver {specification['driver']}, and {loaded} is loaded"
    yield from _nodes(specification, facts)
    cards = {card["uuid"]: card for card in sections.cards(facts) if card["uuid"]}
    if not cards:
        return
    names = set(specification["devices"])
    told = {name for name in names if name.startswith("GPU-")}
    gone = sorted(told - cards.keys())
    # A card that is parted is handed out by its parts.
    whole = {uuid for uuid, card in cards.items() if not card["mig"]["current"]}
    lacking = sorted(whole - told) if told else []
    if gone:
        yield f"{path} has a card that is not there: {', '.join(gone)}"
    if lacking:
        yield f"{path} lacks a card: {', '.join(lacking)}"
    if not told and len({name for name in names if name.isdecimal()}) < len(whole):
        yield f"{path} has fewer cards than the {len(whole)} that are there"
    yield from _parts(path, names, facts)


def _nodes(specification: CdiSpecification, facts: Facts) -> Iterator[str]:
    """A node that an engine would not find, and that of unified memory, which a specification lacks that was made before it was loaded."""
    path, lost = specification["path"], specification.get("lost")
    if lost:
        yield f"{path} hands out {', '.join(lost)}, which {'is' if len(lost) == 1 else 'are'} not there: no container starts with it"
    handed, there = specification.get("nodes"), facts["driver"].get("nodes")
    if handed and there and _UVM not in handed and any(node["path"] == _UVM for node in there):
        yield f"{path} lacks {_UVM}, which is there: CUDA fails in containers"


def _parts(path: str, names: set[str], facts: Facts) -> Iterator[str]:
    """A difference in the MIG devices, which are named by the card's number and their own."""
    listed = sections.instances(facts)
    # Where nvidia-smi was not asked for them by name, its document has their numbers.
    of_document = sum(len(card["mig"].get("devices", ())) for card in sections.cards(facts))
    parts, there = sum(map(len, listed.values())) if listed else of_document, sum(":" in name for name in names)
    if (listed is not None or of_document) and there != parts:
        yield f"{path} has {there} MIG devices, and the cards have {parts}"


def text(module: str) -> str:
    """What tells the toolkit's unit how the module of this driver is called."""
    return (
        "# Written by gpuwright (role container_toolkit); a change by hand is undone by the next run.\n"
        f"# The toolkit's unit waits for a module called nvidia or nvidia-current. The one of this driver is {module}.\n"
        "[Service]\n"
        "ExecCondition=\n"
        f"ExecCondition=/bin/sh -c 'grep -qE \"/{module}[.]ko\" /lib/modules/$$(uname -r)/modules.dep'\n"
    )
