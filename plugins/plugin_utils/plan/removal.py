# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Taking everything back: what gpuwright brought to a node and what that leaves to do.

From the record on the node alone (records/history.py and the seals): no wish and no rules decide what goes, and nothing goes that
is not named there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ...module_utils.base import checks, paths
from ...module_utils.records.history import file_of
from ..components import COMPONENTS, Context, Finding, frameworks, nvidia_driver, reboot
from ..components.nvidia_driver import rollback, runfile
from ..model import sections
from ..resolver.frameworks import FRAMEWORKS
from ..wish.users import OF_USERS
from . import document, refusals, taking
from .request import APPLYING, Request
from .work import of_plan

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState, History

    from ..model.plan import Plan, Removal, Removes
    from ..model.stack import Why


#: Files that a seal names and that are the host's own: what was merged into them is taken out again.
MERGED = tuple(path for component in COMPONENTS.values() for path in component.merged)
#: What a machine boots from stays, whoever brought it: another program may have updated the kernel while a run was at work.
BOOTS = re.compile(
    r"(linux-(image|modules(?!-nvidia)|base)|kernel(-64k|-rt)?(-core|-modules.*)?(-\d+[.].*)?$|grub|shim|systemd-boot|initramfs-tools|dracut)"
)
_OTHERS_RECORD = (
    "nothing was removed; look who changed {records} on the node, take the name out of history.json and the seals there, "
    "and run again"
)

_KEYS = ("/usr/share/keyrings/", "/etc/apt/keyrings/", "/etc/pki/rpm-gpg/")

#: What the roles write, and nothing else is removed: files under a name of ours, the preferences that NVIDIA's pins bring (configuration
#: that outlives them), what the repair tells DKMS. A record is believed for its own node, and not with the whole tree.
WRITTEN = re.compile(
    r"/etc/apt/(sources[.]list|preferences|apt[.]conf|auth[.]conf|keyrings)([.]d)?/[\w.+-]*gpuwright[\w.+-]*"
    r"|/etc/apt/preferences[.]d/[\w.+-]*nvidia[\w.+-]*"
    r"|/etc/(modprobe|modules-load|dracut[.]conf|yum[.]repos|default/grub)[.]d/gpuwright[\w.+-]*"
    r"|/usr/share/keyrings/gpuwright-[\w.+-]+|/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuwright-[\w.+-]+"
    r"|/etc/kernel/((header_)?postinst|postrm|install)[.]d/(zz|aa|95)-gpuwright([.]install)?"
    r"|/etc/systemd/system/(gpuwright-[\w.-]+"
    r"|(nvidia-persistenced|nvidia-cdi-refresh|nvidia-dcgm(-exporter)?|prometheus(-node-exporter|-alertmanager)?|grafana-server)[.]service[.]d"
    r"/gpuwright[.]conf)"
    r"|/etc/profile[.]d/gpuwright-[\w.-]+|/etc/(modulefiles|(environment-modules|lmod)/modules)/cuda/\d+[.]\d+"
    r"|/usr/local/share/jupyter/kernels/gpuwright-[\w.-]+/kernel[.]json"
    r"|(/[\w.+@-]+)+/gpuwright[.]prom"
    r"|/etc/gpuwright/(dashboards/)?[\w.-]+|/etc/grafana/provisioning/(datasources|dashboards)/gpuwright[.]yaml|/usr/local/libexec/gpuwright/[\w.-]+"
    r"|/etc/dkms/([\w.+~-]+[.]conf|no-autoinstall)|/etc/docker/daemon[.]json"
    r"|/etc/containerd/(config|conf[.]d/99-gpuwright)[.]toml",
    re.ASCII,
)
#: An environment has its framework's name or one that a person gave it, and is no system's directory nor somebody's home. What lies
#: directly in /opt and its like may be the directory of several. The role asks for our mark in it.
ENVIRONMENT = re.compile(
    r"(?!/(etc|boot|dev|proc|sys|run|root|lib\w*|s?bin)/|/(home|usr|var)/[^/]+$)(/[\w.+@ -]+)+/"
    rf"({'|'.join(sorted(FRAMEWORKS))}|(?<!^/opt/)(?<!^/srv/)(?<!^/mnt/)[A-Za-z0-9][\w.-]*)",
    re.ASCII,
)
UNIT = re.compile(
    r"((nvidia|gpuwright)-[\w-]+[.](service|path|timer)|(docker|containerd|prometheus(-node-exporter|-alertmanager)?|grafana-server)[.]service)",
    re.ASCII,
)
#: A word of the package managers, and never an option of theirs or a pattern.
NAME = re.compile(r"\w[\w.+:~^()-]*", re.ASCII)


#: The work where nothing is taken back: of a user who works without root only the environments are.
_NOTHING: Removal = {
    "docker": False,
    "containerd": None,
    "rootless": [],
    "initramfs": False,
    "packages": [],
    "runfile": False,
    "files": [],
    "environments": [],
    "services": [],
    "streams": {},
    "restore": None,
}
#: What comes with a driver, a toolkit or a container toolkit, by name: told where nobody knows any more who brought it.
_NVIDIA = re.compile(
    r"nvidia|cuda|cudnn|nccl|tensorrt|nsight|libcu(blas|fft|file|rand|solver|sparse)|libnv|libnpp", re.ASCII
)


def unrecorded(facts: Facts) -> dict[str, list[str]]:
    """What a node without its record still has of the kind that gpuwright brings: ``packages``, those of them that are held, and
    ``files`` (the package sources of ours, which stay, since without them nobody could mend the packages). Empty where the record
    is there, or where nothing says that gpuwright ever was.
    """
    if sections.user(facts) is not None:
        return {}
    history = sections.history(facts)
    drivers = (history.get("states"), history.get("original"), history["failed"], history.get("proven"))
    if history.get("brought") or history.get("unproven") or any(drivers):
        return {}
    sources = sorted({row["file"] for row in facts["packages"]["sources"] or () if WRITTEN.fullmatch(row["file"])})
    if not (sources or history.get("components")):
        return {}
    there = {*(facts["packages"]["installed"] or {}), *(facts["driver"]["packages"] or {})}
    names = sorted(name for name in there if _NVIDIA.search(name))
    holds = sorted(set(facts["packages"]["holds"] or ()) & set(names))
    return {"packages": names, "holds": holds, "files": sources} if names else {}


def unrecorded_text(found: Mapping[str, list[str]]) -> str:
    """What stays for want of a record, for a person."""
    names = f"{len(found['packages'])} packages ({', '.join(found['packages'])})"
    holds = f", {len(found['holds'])} of them held" if found["holds"] else ""
    sources = f" and their package sources ({', '.join(found['files'])})" if found["files"] else ""
    return f"the record of what gpuwright brought is gone, so that nobody knows whose these are, and they stay: {names}{holds}{sources}"


def unproven(facts: Facts) -> list[Why]:
    """What stays because nobody can say whether gpuwright brought it, as a sentence for a person."""
    names = sections.history(facts).get("unproven") or ()
    text = (
        f"{len(names)} packages came with gpuwright or while it was at work, and the package manager's log does not say that it brought "
        f"them; they stay: {', '.join(names)}"
    )
    return [{"rule": "packages-unproven", "text": text, "source": "gpuwright"}] if names else []


def foreign(facts: Facts) -> list[str]:
    """What the record names and no role can have written, as sentences: nothing is removed by such a record."""
    history = sections.history(facts)
    kinds: tuple[tuple[Iterable[object], re.Pattern[str], str], ...] = (
        (history.get("files") or (), WRITTEN, "the file"),
        (history.get("environments") or (), ENVIRONMENT, "the environment"),
        (history.get("services") or (), UNIT, "the unit"),
        ([*(history.get("brought") or ()), *(history.get("unproven") or ())], NAME, "the package"),
        (history.get("streams") or (), NAME, "the module stream"),
    )
    return [
        f"the record on this node names {what} {str(each)[:200]!r}, which gpuwright never writes or brings"
        for named, allowed, what in kinds
        for each in named
        if not (isinstance(each, str) and allowed.fullmatch(each)) or _goes_up(str(each))
    ]


def _goes_up(path: str) -> bool:
    return any(part in (".", "..") for part in path.split("/"))


def take_back(facts: Facts, request: Request) -> Plan:
    """The plan of a node from which everything goes that gpuwright brought."""
    found = findings(facts)
    reason = reboot_reason(facts)
    plan = document.base(facts, request)
    plan["changes"] = [document.change(name, each, {}, {}) for name, rows in found.items() for each in rows]
    plan["components"] = ["remove", *([reboot.NAME] if reason else [])] if found else []
    plan["warnings"] = unproven(facts)
    plan["remove"] = to_do = work(facts)
    plan["restore"] = to_do["restore"]
    ours = taking.of_records(facts) | taking.of_driver(facts, changes=True)
    ours |= set(to_do["restore"]["packages"] if to_do["restore"] else ())
    plan["may_take"] = sorted({*ours, *request.allow_remove})
    plan["reboot"], plan["reboot_reason"] = reason is not None and bool(found), reason
    unread = refusals.unread(facts)
    if unread or not found:
        plan["checks"] = [check(facts)]
    context = Context(facts=facts, stack={})
    plan["work"] = of_plan(plan, context)
    plan["refusals"] = (
        refusals.of_privileges(context, request) or refusals.of_unread(facts)
        if (found or unread) and request.verb in APPLYING
        else []
    )
    plan["refusals"] += [
        document.refusal("record-foreign", text, _OTHERS_RECORD.format(records=_records(facts)))
        for text in foreign(facts)
    ]
    plan["ok"] = not plan["refusals"]
    return document.judged(plan, request)


def _records(facts: Facts) -> str:
    user = sections.user(facts)
    return user["records"][0] if user else paths.STATE


def findings(facts: Facts, kept: Collection[str] = ()) -> dict[str, list[Finding]]:
    """What there is to take back, by component; nothing where gpuwright never was. ``kept``: packages that stay all the same."""
    history = sections.history(facts)
    found: dict[str, list[Finding]] = {}
    for name, component in COMPONENTS.items():
        if sections.user(facts) is not None and name not in OF_USERS:
            continue
        by_its_role = component.take_back(facts) if component.take_back else ()
        if by_its_role:
            found[name] = list(by_its_role)
    original = history.get("original")
    if original and _replaced(original, facts):
        found[nvidia_driver.NAME] = [rollback.finding(original, facts)]
    if history.get("environments"):
        reason = "the environments of frameworks"
        found[frameworks.NAME] = [Finding("remove", reason, files=list(history["environments"]))]
    before = facts["driver"]["user_version"]
    if runfile_of_ours(facts):
        reason = "the driver of NVIDIA's file, by its own uninstaller"
        found.setdefault(nvidia_driver.NAME, []).append(Finding("remove", reason, before, files=[runfile.UNINSTALLER]))
    drivers, others = _sorted(facts, kept)
    if drivers:
        reason = f"{len(drivers)} packages of the driver that came with gpuwright"
        found.setdefault(nvidia_driver.NAME, []).append(Finding("remove", reason, before, packages=drivers))
    if others:
        reason = f"{len(others)} packages that came with gpuwright"
        found["packages"] = [Finding("remove", reason, packages=others)]
    files = _files(facts)
    if files or history.get("components"):
        found["files"] = [Finding("remove", "files that gpuwright wrote, and its records", files=files)]
    return found


def _files(facts: Facts) -> list[str]:
    """The files that go: those of the record and the seals, without the sources of packages that stay for want of a record."""
    stays = {*MERGED, *unrecorded(facts).get("files", ())}
    return [
        path for path in sections.history(facts).get("files") or () if path not in stays and not _is_key(path, stays)
    ]


def _is_key(path: str, stays: Collection[str]) -> bool:
    """Whether it is a key with which a source is signed that stays."""
    return path.startswith(_KEYS) and any("gpuwright" in each for each in stays)


def _replaced(original: DriverState, facts: Facts) -> bool:
    """Whether another driver is there than the one that somebody else had installed."""
    return bool(original["packages"] != (facts["driver"]["packages"] or {}))


def runfile_of_ours(facts: Facts) -> bool:
    """Whether the driver that is there came from a file of NVIDIA's that gpuwright ran: the seal says so, or what is remembered."""
    driver = facts["driver"]
    if driver["owner"] != "runfile":
        return False
    states = sections.history(facts).get("states") or ()
    stacks = [
        sections.sealed_driver(facts),
        *(each["stack"] for each in states),
    ]
    return any(file_of(each) and each["version"] == driver["user_version"] for each in stacks)


def _sorted(facts: Facts, kept: Collection[str]) -> tuple[list[str], list[str]]:
    """The packages that go: those of the driver, and the others."""
    of_driver = set(facts["driver"]["packages"] or {})
    going = [name for name in packages(facts) if name not in kept]
    return [name for name in going if name in of_driver], [name for name in going if name not in of_driver]


def packages(facts: Facts) -> list[str]:
    """What came with gpuwright, without what the driver that was there before needs again, and what the machine boots from."""
    history = sections.history(facts)
    original = history.get("original")
    keep = set(original["packages"] if original else ())
    return [name for name in history.get("brought") or () if name not in keep and not BOOTS.match(name)]


def work(facts: Facts) -> Removal:
    """What the role `remove` does."""
    history = sections.history(facts)
    if sections.user(facts) is not None:
        return {**_NOTHING, "environments": list(history.get("environments") or ())}
    original = history.get("original")
    files = _files(facts)
    of_components: Removes = {}
    for component in COMPONENTS.values():
        of_components |= component.removes(facts, files)
    return {
        **of_components,
        "packages": packages(facts),
        "runfile": runfile_of_ours(facts),
        "files": files,
        "environments": list(history.get("environments") or ()),
        "services": _services(history, packages(facts)),
        "streams": rollback.streams(facts, history.get("streams") or {}),
        "restore": rollback.work(original, facts) if original and _replaced(original, facts) else None,
    }


def _services(history: History, going: Collection[str]) -> list[str]:
    """The units to switch off: those that the seals name, and those that go with a package."""
    with_packages = [pair for component in COMPONENTS.values() for pair in component.package_units.items()]
    of_packages = [unit for package, units in with_packages if package in going for unit in units]
    return [*(history.get("services") or ()), *of_packages]


def reboot_reason(facts: Facts) -> str | None:
    """Why the node has to boot again: a module without its packages runs on."""
    loaded = facts["driver"]["loaded_version"]
    if not loaded or "nvidia" not in (facts["kernel"]["loaded"] or {}):
        return None
    history = sections.history(facts)
    original = history.get("original")
    if original and original["version"] == loaded:
        return None
    if not history.get("brought") and not runfile_of_ours(facts):
        return None
    return f"driver {loaded} stays in the kernel until the next boot, and no other driver can have the card"


def left(facts: Facts, kept: Collection[str]) -> str:
    """What is still there after a removal, as a sentence; nothing where all is gone. The records go after this look."""
    found = findings(facts, kept)
    files = found.pop("files", None)
    told = [row.reason for rows in found.values() for row in rows]
    told += [f"the file {path}" for path in (files[0].files if files else ())]
    told += refusals.unread(facts).values()
    return f"still there: {'; '.join(told)}" if told else ""


def check(facts: Facts) -> Check:
    """The judgement of a node from which all went that gpuwright is known to have brought."""
    unread = refusals.unread(facts)
    if unread:
        return checks.incomplete("removal.left", "; ".join(unread.values()))
    stays = unrecorded(facts)
    told = unrecorded_text(stays) if stays else "; ".join(row["text"] for row in unproven(facts))
    if not told:
        return checks.passed("removal.left", reason="nothing of gpuwright is on this node")
    manager = "dnf remove" if facts["packages"]["manager"] == "dnf" else "apt-get purge"
    remedy = f"take away what you do not want with {manager}, and the sources with rm"
    return checks.incomplete("removal.left", told, action="configure", remedy=remedy)
