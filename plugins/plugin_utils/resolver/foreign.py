# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines whose driver is somebody else's: what it can run, what is left out, and what there is beside NVIDIA's cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT, CPU

from ..components.cuda.resolve import toolkit as cuda
from ..components.cuda.resolve.support import CudaSupport, of_branch, reported
from ..components.frameworks import resolve as frameworks
from ..components.nvidia_driver.resolve import branch
from ..model.stack import Exclusion
from ..rules import Row, hosts
from ..wish.wish import FrameworkWish, Wish
from . import keys
from .log import Log, Unresolved, conflict
from .machine import Machine
from .parts import HOST_PARTS, PARTS

_OWNERS = {"wsl": "Windows", "jetson": "JetPack", "container": "the container's host"}
# Who has what a machine does not get from here.
_HAS: dict[str, str] = {
    "jetson": "come from the board's own package source: sudo apt install nvidia-jetpack (nvidia-container for containers)",
    "container": "belong to the container's host",
}
_FACTS = "the machine's facts"
_NOTHING = Wish()
# Beside the packages that NVIDIA's and the distribution's repositories name alike: what pulls a driver for Linux in.
_PULLS_DRIVER = ("cuda", "cuda-drivers*", "cuda-runtime-*", "linux-modules-nvidia*", "linux-objects-nvidia*")


def allowed(machine: Machine, wish: Wish, log: Log) -> Wish:
    """Return the wish without what a Jetson or a container does not get from here, and say where that comes from."""
    if machine.environment == "jetson":
        _name_jetpack(machine, log)
    left = [part for part in PARTS if machine.environment in part.left_out and getattr(wish, part.key)]
    if not left:
        return wish
    text = f"{', '.join(part.want for part in left)} left out: these {_HAS[machine.environment]}"
    rule = {"jetson": "host.jetson", "container": "host.container"}[machine.environment]
    log.warn(rule, text, _cited(machine.environment, log))
    return _without(wish, [*(part.key for part in left), *(["cuda_versions"] if cuda.PART in left else [])])


def without_useless(machine: Machine, wish: Wish, log: Log) -> Wish:
    """Return the wish without what a host of this kind can do nothing with, and say why."""
    left = [part for part in HOST_PARTS if machine.environment in part.useless and getattr(wish, part.key)]
    for part in left:
        log.warn(*part.useless[machine.environment])
    return _without(wish, [part.key for part in left])


def _without(wish: Wish, names: Sequence[str]) -> Wish:
    fields: dict[str, Any] = {name: getattr(_NOTHING, name) for name in names}
    return replace(wish, **fields)


def _name_jetpack(machine: Machine, log: Log) -> None:
    release = machine.foreign.l4t
    row = hosts.jetpack(release, log.rules)
    if row is not None:
        text = f"a Jetson with L4T {release}, JetPack {row['jetpack']}: driver and CUDA are its own"
        log.decided("host.jetson", text, log.cite("hosts", row))
        return
    text = f"a Jetson with {f'L4T {release}' if release else 'a JetPack that it does not tell'}: driver and CUDA are its own"
    log.decided("host.jetson", text, _cited("jetson", log))


def name_others(machine: Machine, log: Log) -> None:
    """Name the cards that are not managed: those of other vendors, and those that are held for virtual machines."""
    found = machine.foreign
    if found.others:
        log.decided("host.other-gpus", f"left alone: {'; '.join(found.others)}", _cited("other", log))
    if found.reserved:
        text = f"left alone, because held for virtual machines: {'; '.join(found.reserved)}"
        log.warn("host.reserved", text, _cited("passthrough", log))


def support(machine: Machine, wish: Wish, system: Row, log: Log) -> CudaSupport:
    """Return what a driver that is not ours can run. Raises Unresolved where there is none and none may be put there."""
    if machine.foreign.vgpu:
        return _of_vgpu(machine, wish, log)
    if machine.foreign.hypervisor:
        return _of_vgpu_manager(machine, wish, log)
    if machine.foreign.wsl == 1:
        text = "this is WSL 1, which has no GPU"
        remedy = "convert the distribution in Windows: wsl --set-version <name> 2"
        raise Unresolved(conflict("host.wsl-1", text, _cited("wsl", log), remedy))
    if machine.environment not in _OWNERS:
        return _of_root(machine, wish, log)
    owner = _OWNERS[machine.environment]
    source = _cited(machine.environment, log)
    log.decided("driver.not-ours", f"no driver is installed: it belongs to {owner}", source)
    _leave_out_driver(wish, owner, source, log)
    of_windows = hosts.windows_branch(machine.foreign.windows_driver, log.rules)
    if of_windows is not None:
        text = (
            f"the Windows driver {machine.foreign.windows_driver} is of branch R{of_windows['branch']}, by its number"
        )
        log.decided("host.windows-driver", text, log.cite("hosts", of_windows))
    if machine.cuda_reported:
        return reported(machine.cuda_reported)
    if of_windows is not None:
        return reported(_row(of_windows["branch"], log)["max_cuda"])
    if machine.driver and machine.environment == "container":
        return _of_version(machine.driver.version, log)
    passed = branch.candidates(machine, Wish(), "nvidia", system, log.rules)[0]
    row = passed[0].row if passed else log.rules["driver_branches"]["rows"][-1]
    text = f"what the driver of {owner} can run is not known: taken for branch {row['branch']} (CUDA {row['max_cuda']})"
    log.warn("driver.unknown", text, log.cite("driver_branches", row))
    return of_branch(row)


def _of_vgpu(machine: Machine, wish: Wish, log: Log) -> CudaSupport:
    """Return what the guest driver can run; without one nothing can be done from here: it is licensed, and no repository has it."""
    host = machine.foreign.host_driver
    release = f"the vGPU release of the hypervisor's driver {host}" if host else "the hypervisor's vGPU release"
    source = _cited("vgpu", log)
    if machine.driver is None:
        text = "the cards are virtual (vGPU) and there is no guest driver; a data-centre driver does not drive them"
        remedy = f"install the guest driver of {release} from NVIDIA's licensing portal, give it its licence token, then run again"
        raise Unresolved(conflict("host.vgpu-driver", text, source, remedy))
    text = f"the cards are virtual (vGPU): the guest driver {machine.driver.version} belongs to {release} and is left as it is"
    log.decided("driver.not-ours", text, source)
    _leave_out_driver(wish, "the vGPU release", source, log)
    return _of_version(machine.driver.version, log)


def _of_vgpu_manager(machine: Machine, wish: Wish, log: Log) -> CudaSupport:
    """Return what the driver of a host can run that shares its cards with virtual machines."""
    source = _cited("vgpu", log)
    if machine.driver is None:
        text = "the cards are shared with virtual machines, and the vGPU manager that does it does not work"
        remedy = "repair it from its own release: another driver would take the cards from the machines"
        raise Unresolved(conflict("host.vgpu-manager", text, source, remedy))
    text = f"the cards are shared with virtual machines: the vGPU manager {machine.driver.version} is left as it is"
    log.warn("host.vgpu-manager", text, source)
    _leave_out_driver(wish, "the vGPU release", source, log)
    return _of_version(machine.driver.version, log)


def _of_root(machine: Machine, wish: Wish, log: Log) -> CudaSupport:
    """Return what the driver of a machine can run on which a user works without root. It is a fact: only root brings another one.

    Raises Unresolved where there is none and something of the wish runs on cards.
    """
    installed = machine.driver
    if installed is not None:
        text = f"the driver {installed.version} is used as it is: it is root's to change"
        log.decided("driver.not-ours", text, _FACTS)
        return reported(machine.cuda_reported) if machine.cuda_reported else _of_version(installed.version, log)
    text = f"there is no driver that works for the {machine.cards[0].name}, and only root can bring one"
    on_cards = [each for each in wish.frameworks if each.variant != CPU and not ABOUT[each.name].cpu_only]
    if on_cards:
        builds = [want for each in on_cards for want in _for_processor(each, machine, wish, log)]
        until = f"; until then the build for the processor works: --want {' --want '.join(builds)}" if builds else ""
        remedy = f"ask root of this machine to run: gpuwright up --want driver{until}"
        raise Unresolved(conflict("driver.of-root", text, _FACTS, remedy))
    log.warn("driver.of-root", f"{text}: the processor is used", _FACTS)
    return of_branch(log.rules["driver_branches"]["rows"][-1])


def _for_processor(framework: FrameworkWish, machine: Machine, wish: Wish, log: Log) -> list[str]:
    """Return how the build for the processor is asked for by its name; nothing where it has none."""
    about = ABOUT[framework.name]
    if not about.local and CPU not in about.extras:
        return []
    other = replace(wish, frameworks=(replace(framework, variant=CPU),))
    try:
        found = frameworks.choose(machine, other, None, Log(log.rules, trial=True))
    except Unresolved:
        return []
    return [about.pinned(each["version"], CPU) for each in found]


def _leave_out_driver(wish: Wish, owner: str, source: str, log: Log) -> None:
    if wish.driver:
        log.warn("driver.not-ours", f"the wish for a driver is left out: the driver belongs to {owner}", source)


def _of_version(version: str, log: Log) -> CudaSupport:
    """Return the power of a build of Linux; of a branch that the rules do not know, what the newest older one could.

    Raises Unresolved where it is older than every branch that they know.
    """
    oldest = log.rules["driver_branches"]["rows"][0]
    rows = [row for row in log.rules["driver_branches"]["rows"] if int(row["branch"]) <= int(version.split(".", 1)[0])]
    if not rows:
        text = f"the driver is {version}; branch {oldest['branch']} is the oldest of which it is known what it can run"
        remedy = (
            f"a driver of branch {oldest['branch']} or newer has to come from where this one came from; then run again"
        )
        raise Unresolved(conflict("driver.too-old", text, log.cite("driver_branches", oldest), remedy))
    return CudaSupport(rows[-1]["max_cuda"], version, version)


def _row(name: str, log: Log) -> Row:
    row: Row = next(row for row in log.rules["driver_branches"]["rows"] if row["branch"] == name)
    return row


def _cited(name: str, log: Log) -> str:
    return log.cite("hosts", hosts.kind(name, log.rules))


def repository(machine: Machine, system: Row, log: Log) -> Row:
    """Return the row of the system as its repository serves it inside WSL: Ubuntu there has a directory without drivers.

    Where its key is not accepted by the system's verifier it stays the distribution's own directory, of which only toolkits are taken.
    """
    if machine.environment != "wsl" or system["family"] != "ubuntu":
        return system
    candidate = {**system, "nvidia_repository": "wsl-ubuntu"}
    row = keys.repository_of(candidate, log.rules)
    if row is None or machine.arch not in row["arch"] or keys.obstacles(machine, Wish(), candidate, log.rules):
        return system
    return candidate


def barred(driver_packages: list[str], other: list[str]) -> Exclusion:
    """Return what apt must not install where the driver is not ours, from whichever source: drivers for Linux, and what pulls them in."""
    packages = [*_PULLS_DRIVER, *(name for name in driver_packages if name not in _PULLS_DRIVER)]
    return {"release": None, "packages": packages, "except": other}
