# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Taking everything back: what gpuwright brought to a node and what that leaves to do.

From the record on the node alone (records/history.py and the seals): no wish and no rules decide what goes, and nothing goes that
is not named there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ...module_utils.base import checks, paths, words
from ...module_utils.records.history import file_of
from ..components.base import Context, Finding
from ..components.frameworks import apply as frameworks
from ..components.frameworks.resolve import FRAMEWORKS
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import rollback, runfile
from ..components.reboot import apply as reboot
from ..components.registry import COMPONENTS
from ..model import index_answer, sections
from ..model.errors import StepRefused
from ..wish.users import OF_USERS
from . import document, engines, refusals, removal_work, space, taking, use
from .request import APPLYING, Request
from .work import of_plan

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState, History

    from ..model.plan import Plan, Removal, Removes, Restore
    from ..model.stack import Refusal, Why


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

#: Problems of the package index by which a version is not there, and not only not seen.
_NOT_THERE = ("no-such-package", "unsolvable")
#: The rule of what a plan says that stays.
STAYS = "removal-stays"
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
    r"((nvidia|gpuwright)-[\w-]+[.](service|path|timer|socket)|(docker|containerd|prometheus(-node-exporter|-alertmanager)?|grafana-server)[.]service)",
    re.ASCII,
)
#: A word of the package managers, and never an option of theirs or a pattern.
NAME = re.compile(r"\w[\w.+:~^()-]*", re.ASCII)


#: The work where nothing is taken back: of a user who works without root only the environments are.
_NOTHING: Removal = {
    "kept": [],
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
    if history.get("recorded"):
        return {}
    sources = sorted({row["file"] for row in facts["packages"]["sources"] or () if WRITTEN.fullmatch(row["file"])})
    # That of an engine may have stayed with it, and says nothing of the others.
    sources = [path for path in sources if path not in engines.sources(engines.SOURCES, sources)]
    if not (sources or history.get("components")):
        return {}
    there = {*(facts["packages"]["installed"] or {}), *(facts["driver"]["packages"] or {})}
    names = sorted(name for name in there if _NVIDIA.search(name))
    holds = sorted(set(facts["packages"]["holds"] or ()) & set(names))
    return {"packages": names, "holds": holds, "files": sources} if names else {}


def unrecorded_text(found: Mapping[str, list[str]]) -> str:
    """What stays for want of a record, for a person."""
    names = f"{words.count(len(found['packages']), 'packages')} ({', '.join(found['packages'])})"
    holds = f", {len(found['holds'])} of them held" if found["holds"] else ""
    sources = f" and their package sources ({', '.join(found['files'])})" if found["files"] else ""
    return f"the record of what gpuwright brought is gone, so that nobody knows whose these are, and they stay: {names}{holds}{sources}"


def unproven(facts: Facts) -> list[Why]:
    """What stays because nobody can say whether gpuwright brought it, as a sentence for a person."""
    names = sections.history(facts).get("unproven") or ()
    text = (
        f"{words.count(len(names), 'packages')} came with gpuwright or while it was at work, and the package manager's "
        f"log does not say that it brought them; they stay: {', '.join(names)}"
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


def question(facts: Facts, request: Request) -> dict[str, object] | None:
    """What the node's package index is asked before all: for the driver that is to come back, as module package_index takes it."""
    original = _to_restore(facts, request)
    if original is None or "history" in facts["unknown"] or not facts["privileged"]:
        return None
    copies = rollback.copies(original, facts)
    wanted = {name: version for name, version in original["packages"].items() if name not in copies}
    return {"packages": list(wanted), "keep": wanted} if wanted else None


def take_back(
    facts: Facts,
    request: Request,
    index: PackageIndex | None = None,
    kept: Sequence[str] = (),
    told: Sequence[str] = (),
) -> Plan:
    """The plan of a node from which everything goes that gpuwright brought.

    ``index``: what the package index said of :func:`question`, None where it was not asked. ``kept``: packages that stay all the same, by
    what the node answered; ``told``: what stays, as sentences.
    """
    lost = _lost(facts, request, index)
    restores = _to_restore(facts, request) is not None and not lost
    stays = [*kept, *(_driver_that_stays(facts) if not restores else ())]
    found = findings(facts, stays, restores=restores)
    reason = reboot_reason(facts, restores=restores)
    plan = document.of_nothing(facts, request)
    plan["changes"] = [document.change(name, each, {}, {}) for name, rows in found.items() for each in rows]
    plan["components"] = ["remove", *([reboot.NAME] if reason else [])] if found else []
    plan["remove"] = to_do = work(facts, stays, restores=restores)
    plan["restore"] = to_do["restore"]
    ours = taking.of_records(facts) | taking.of_driver(facts, changes=True)
    ours |= set(to_do["restore"]["packages"] if to_do["restore"] else ())
    plan["may_take"] = sorted({*ours, *request.allow_remove})
    plan["reboot"], plan["reboot_reason"] = reason is not None and bool(found), reason
    plan["warnings"] = [
        *unproven(facts),
        *([_stays(text) for text in (*lost, *told)] if found else []),
        *(_half_done(facts) if found else []),
    ]
    if index and restores:
        plan["install"] = list(index["install"])
        plan |= {"download_bytes": index["download_bytes"] or 0, "disk_bytes": index["disk_bytes"] or 0}
    unread = refusals.unread(facts)
    if unread or not found:
        plan["checks"] = [check(facts, [])]
    context = Context(facts=facts, stack={}, variables=request.inputs)
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
    plan["refusals"] += (
        space.refusals(plan, context) + _silent(restores=restores, index=index) + use.refusals(plan, context)
    )
    plan["ok"] = not plan["refusals"]
    return document.judged(plan, request)


def _half_done(facts: Facts) -> list[Why]:
    """That a transaction was cut off, and what becomes of it."""
    if not removal_work.half_done(facts):
        return []
    detail = facts["packages"].get("interrupted_detail") or "unfinished packages"
    text = f"the package manager was interrupted ({detail}): dpkg removes what is gpuwright's, and finishes the rest"
    return [{"rule": "removal-half-done", "text": text, "source": "gpuwright"}]


def _stays(text: str) -> Why:
    return {"rule": STAYS, "text": text, "source": "gpuwright"}


def answered(
    facts: Facts,
    request: Request,
    index: PackageIndex | None,
    ask: Callable[[removal_work.Questions], removal_work.Answers],
) -> Plan:
    """The plan, with what the node answers to it (``ask``): what is in use stays, and what the role would refuse is refused before the
    first change. The role asks the same again, and decides by the same functions.
    """
    kept: list[str] = []
    told: list[str] = []
    also = cast("list[str]", request.inputs.get("remove", {}).get("remove_also") or [])
    while True:
        plan = take_back(facts, request, index, kept, told)
        if not plan["ok"] or not plan["components"]:
            return plan
        first = cast("removal_work.RemovalWork", plan["work"]["remove"])
        given: removal_work.Given = {**ask(first["ask"]), "also": also, "kept": []}
        try:
            # What a step is given stands in the plan that it gets.
            found = removal_work.goes(Context(facts=facts, stack={}), {**plan, "given": given})
        except StepRefused as error:
            text, _said, remedy = str(error).partition(" What to do: ")
            refusal = document.refusal("removal-refused", text, remedy or None)
            return document.judged({**plan, "refusals": [refusal], "ok": False}, request)
        told = [*told, *found["told"]]
        if not found["again"]:
            return take_back(facts, request, index, kept, told)
        kept = [*kept, *found["kept"]]


def _to_restore(facts: Facts, request: Request) -> DriverState | None:
    """The driver that somebody else had installed, where another one is there, and it is not left out (``remove_restore``)."""
    original = sections.history(facts).get("original")
    asked = request.inputs.get("remove", {}).get("remove_restore", True)
    return original if original and asked and sections.user(facts) is None and _replaced(original, facts) else None


def _lost(facts: Facts, request: Request, index: PackageIndex | None) -> list[str]:
    """Why the driver that somebody else had installed does not come back, as sentences."""
    original = _to_restore(facts, request)
    if original is None or _silent(restores=True, index=index):
        return []
    versions = index_answer.candidates(index) if index else original["packages"]
    holds = [name for name in facts["packages"]["holds"] or () if name in _driver_that_stays(facts)]
    held = f", held (apt-mark unhold {' '.join(holds)})" if holds else ""
    left = (
        f"driver {facts['driver']['user_version']} stays{held}"
        if _driver_that_stays(facts)
        else "this node is without a driver of NVIDIA's after the removal"
    )
    return [
        f"driver {original['version']}, which somebody else had installed, cannot come back: {row['text']}; {left}."
        f" To have it back: {row['remedy']}"
        for row in rollback.refusals(original, facts, versions)
    ]


def _silent(*, restores: bool, index: PackageIndex | None) -> list[Refusal]:
    """That nobody knows whether the driver can come back: an index that does not answer has lost nothing."""
    problems = index["problems"] if index else ()
    rows = [row for row in problems if row["kind"] not in _NOT_THERE and row.get("needed", True)]
    if not rows or not restores:
        return []
    remedy = "have it answer and run again; or go without the driver that somebody else had installed: -e remove_restore=false"
    return [
        document.refusal(
            "restore-unknown", f"whether the driver before can come back is not known: {rows[0]['text']}", remedy
        )
    ]


def _driver_that_stays(facts: Facts) -> list[str]:
    """The present driver's packages, where the driver before does not come back and both have packages of one name: without those of ours
    the rest would be no driver.
    """
    original = sections.history(facts).get("original")
    present = facts["driver"]["packages"] or {}
    both = original is not None and _replaced(original, facts) and set(original["packages"]) & set(present)
    return list(present) if both else []


def _records(facts: Facts) -> str:
    user = sections.user(facts)
    return user["records"][0] if user else paths.STATE


def findings(facts: Facts, kept: Collection[str] = (), *, restores: bool = True) -> dict[str, list[Finding]]:
    """What there is to take back, by component; nothing where gpuwright never was. ``kept``: packages that stay all the same;
    ``restores``: whether the driver comes back that somebody else had installed.
    """
    history = sections.history(facts)
    found: dict[str, list[Finding]] = {}
    for name, component in COMPONENTS.items():
        if sections.user(facts) is not None and name not in OF_USERS:
            continue
        by_its_role = component.take_back(facts) if component.take_back else ()
        if by_its_role:
            found[name] = list(by_its_role)
    original = history.get("original")
    if restores and original and _replaced(original, facts):
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
        reason = f"{words.count(len(drivers), 'packages')} of the driver that came with gpuwright"
        found.setdefault(nvidia_driver.NAME, []).append(Finding("remove", reason, before, packages=drivers))
    if others:
        reason = f"{words.count(len(others), 'packages')} that came with gpuwright"
        found["packages"] = [Finding("remove", reason, packages=others)]
    files = _files(facts, kept)
    if files or history.get("components"):
        found["files"] = [Finding("remove", "files that gpuwright wrote, and its records", files=files)]
    return found


def _files(facts: Facts, kept: Collection[str] = ()) -> list[str]:
    """The files that go: those of the record and the seals, without the sources of packages that stay, and without what keeps another
    driver from the cards where ours stays.
    """
    there = sections.history(facts).get("files") or ()
    drives = set(kept) & set(facts["driver"]["packages"] or {})
    stays = {*MERGED, *unrecorded(facts).get("files", ()), *(removal_work.OF_THE_DRIVER if drives else ())}
    of_engines = engines.sources(kept, there)
    return [path for path in there if path not in {*stays, *of_engines} and not _is_key(path, stays)]


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


def work(facts: Facts, kept: Collection[str] = (), *, restores: bool = True) -> Removal:
    """What the role `remove` does, see :func:`findings`."""
    history = sections.history(facts)
    if sections.user(facts) is not None:
        return {**_NOTHING, "environments": list(history.get("environments") or ())}
    original = history.get("original")
    files = _files(facts, kept)
    going = [name for name in packages(facts) if name not in kept]
    of_components: Removes = {}
    for component in COMPONENTS.values():
        of_components |= component.removes(facts, files)
    return {
        **of_components,
        "packages": going,
        "kept": list(kept),
        "runfile": runfile_of_ours(facts),
        "files": files,
        "environments": list(history.get("environments") or ()),
        "services": _services(history, going),
        "streams": rollback.streams(facts, history.get("streams") or {}),
        "restore": rollback.work(original, facts) if restores and original and _replaced(original, facts) else None,
    }


def _services(history: History, going: Collection[str]) -> list[str]:
    """The units to switch off: those that the seals name, and those that go with a package."""
    with_packages = [pair for component in COMPONENTS.values() for pair in component.package_units.items()]
    of_packages = [unit for package, units in with_packages if package in going for unit in units]
    return [*(history.get("services") or ()), *of_packages]


def reboot_reason(facts: Facts, *, restores: bool = True) -> str | None:
    """Why the node has to boot again: a module without its packages runs on."""
    if not restores and _driver_that_stays(facts):
        return None
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


def left(facts: Facts, kept: Collection[str], *, restores: bool = True) -> str:
    """What is still there after a removal, as a sentence; nothing where all is gone. The records go after this look."""
    found = findings(facts, kept, restores=restores)
    files = found.pop("files", None)
    told = [row.reason for rows in found.values() for row in rows]
    told += [f"the file {path}" for path in (files[0].files if files else ())]
    told += refusals.unread(facts).values()
    return f"still there: {'; '.join(told)}" if told else ""


def check(facts: Facts, told: Sequence[str]) -> Check:
    """The judgement of a node from which all went that gpuwright is known to have brought. ``told``: what stays by the plan."""
    unread = refusals.unread(facts)
    if unread:
        return checks.incomplete("removal.left", "; ".join(unread.values()))
    stays = unrecorded(facts)
    unsure = unrecorded_text(stays) if stays else "; ".join(row["text"] for row in unproven(facts))
    if not unsure:
        told = [*told, *_unfinished(facts)]
        reason = f"all is gone that may go; {' '.join(told)}" if told else "nothing of gpuwright is on this node"
        return checks.passed("removal.left", reason=reason)
    manager = "dnf remove" if facts["packages"]["manager"] == "dnf" else "apt-get purge"
    remedy = f"take away what you do not want with {manager}, and the sources with rm"
    return checks.incomplete("removal.left", unsure, action="configure", remedy=remedy)


def _unfinished(facts: Facts) -> list[str]:
    """What dpkg could not finish of somebody else's, as a sentence: ours is gone."""
    if not removal_work.half_done(facts):
        return []
    detail = facts["packages"]["interrupted_detail"]
    return [
        f"packages of somebody else's are not finished ({detail}). To see why, and to have it done: dpkg --configure -a"
    ]


def check_of_driver(facts: Facts, restored: Restore, *, pending: bool) -> Check:
    """The judgement of the driver that came back: the one that the cards have now, not the one that went."""
    version, loaded, there = restored["version"], facts["driver"]["loaded_version"], facts["driver"]["packages"] or {}
    remedy = (
        "read the kernel log (dmesg | grep -iE 'nvidia|nouveau'), boot, or install a driver: gpuwright up --want driver"
    )
    if there != restored["packages"]:
        reason = f"driver {version} is not back as it was: {facts['driver']['user_version'] or 'none'} is there"
        return checks.failed("removal.driver", reason=reason, remedy=remedy)
    if not facts["pci"]["gpus"] or (pending and loaded != version):
        return checks.skipped(
            "removal.driver", f"driver {version} is back, and there is no card, or the boot is still to come"
        )
    if loaded != version:
        reason = f"driver {version} is back, and the kernel has {loaded or 'none'}"
        return checks.failed("removal.driver", reason=reason, remedy=remedy)
    return checks.passed("removal.driver", reason=f"driver {version}, which was there before, is back and loaded")
