# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Observe a machine: everything that the resolver, the planner and the doctor need to know, in one look that changes nothing."""

from __future__ import annotations

import os
import pwd
import time
from typing import TYPE_CHECKING, Iterable, Mapping, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    certificate,
    containers,
    cuda,
    disks,
    display,
    dkms,
    driver,
    driver_set,
    fabric,
    firewall,
    foreign,
    in_use,
    kernel,
    listeners,
    loader,
    monitoring_server,
    names,
    packages,
    pci,
    peers,
    python_envs,
    services,
    system,
)
from ansible_collections.gpuwright.node.plugins.module_utils.records import history as earlier
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Driver,
        Environment,
        Facts,
        Kernel,
        Monitoring,
        Pci,
        Service,
        Smi,
        User,
    )
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import RunLock, Seal

SCHEMA = 1
#: Seconds for one program of the node.
TIMEOUT = 20


def _named_in_seals(found: Mapping[str, seals.Record | seals.SealError], kind: str) -> list[str]:
    """Units or environments that readable seals name."""
    names = set()
    for seal in found.values():
        if isinstance(seal, dict) and isinstance(seal.get(kind), dict):
            names.update(seal[kind])
    return sorted(names)


def _verified(
    host: Host, found: Mapping[str, seals.Record | seals.SealError], states: Mapping[str, Service]
) -> dict[str, Seal]:
    """The part `seals`."""
    judged: dict[str, Seal] = {}
    for component, seal in found.items():
        verdict = seals.verify(host, seal, packages.installed(host), states)
        told: seals.Record = seal if isinstance(seal, dict) else {}
        judged[component] = {
            "state": verdict.state,
            "reason": verdict.reason,
            "digest": told.get("digest"),
            "gpuwright": told.get("gpuwright"),
            "stack": told.get("stack"),
            "gpus": told.get("gpus"),
            "packages": told.get("packages"),
            "written": told.get("written"),
        }
    return judged


class Options(TypedDict, total=False):
    """The options of the module node_facts."""

    root: str
    timeout: float
    full: bool
    environments: list[str]
    history: bool
    initramfs: bool
    images: bool
    ports: list[int]
    certificate: str
    key: str
    firewall: bool
    user: bool


def answer(given: Options) -> dict[str, object]:
    """What the module node_facts answers; `given`: its options, those that are not there have their defaults."""
    root = os.path.expanduser(os.path.expandvars(given.get("root") or "/"))
    places = paths.of_user() if given.get("user") else paths.ROOTS
    host = Host(root=root, timeout=given.get("timeout") or TIMEOUT, full=bool(given.get("full")), places=places)
    if not host.isdir("/"):
        text = f"The root {root} is no directory. Give the root of a mounted tree, or leave the option out."
        return {"failed": True, "msg": text}
    environments = [os.path.expanduser(os.path.expandvars(path)) for path in given.get("environments") or ()]
    asked = {
        "history": bool(given.get("history")),
        "initramfs": bool(given.get("initramfs")),
        "images": bool(given.get("images")),
    }
    facts = observe(host, environments, **asked)
    if given.get("ports"):
        facts["monitoring"] = _monitoring(host, given)
    if given.get("firewall"):
        facts["firewall"] = firewall.observe(host)
    facts["unknown"] = dict(sorted(host.unknown_facts.items()))
    return {"changed": False, "facts": facts}


def _monitoring(host: Host, given: Options) -> Monitoring:
    """What listens where exporters are wished, and whether the certificate can be served that is wished for them."""
    pem, key = given.get("certificate"), given.get("key")
    return {
        "listeners": listeners.observe(host, given.get("ports") or ()) if host.live else [],
        "drop_ins": services.changed(host, paths.DROP_IN),
        "certificate": certificate.observe(host, pem, key) if pem and key else None,
    }


def observe(
    host: Host,
    environments: Iterable[str] = (),
    *,
    history: bool = False,
    initramfs: bool = False,
    images: bool = False,
) -> Facts:
    """The whole observation. `environments`: paths of virtual environments to look at beside the known ones.

    `history`: all that the node keeps to find its way back; most runs do not need it. `initramfs`: what is inside it; a listing unpacks
    it several times, so only who decides by it asks. `images`: those of the container engines.
    """
    found = seals.read_all(host)
    shown = services.properties(host, _named_in_seals(found, "services"))
    states = services.observe(shown)
    operating_system = system.operating_system(host)
    where = system.environment(host)
    kernels = kernel.observe(host)
    bus = pci.observe(host)
    owned = driver.observe(host, operating_system["arch"], kernels["loaded"], driver_set.observe(host))
    foreign.name_owner(host, where, owned)
    _as_programs_see(host, operating_system["arch"], owned)
    smi = _smi(host, kernels, where, owned)
    if where["kind"] == "wsl" and not bus["gpus"]:
        bus["gpus"] = foreign.cards_of_windows(smi)
    between = peers.observe(host, bus["gpus"])
    if between is not None:
        bus["peers"] = between
    if where["kind"] == "vm":
        bus["vgpus"] = foreign.vgpus(host, bus["gpus"])
    judged = _verified(host, found, states)
    _initramfs_content(host, kernels, bus, judged, asked=initramfs)
    engines = containers.observe(host, shown, images=images)
    facts: Facts = {
        "schema": SCHEMA,
        "root": host.root,
        "privileged": host.euid == 0,
        "simulated": host.exists(paths.SIMULATED),
        "hostname": system.hostname(host),
        "time": seals.iso(time.time()),
        "os": operating_system,
        "environment": where,
        "boot": system.boot(host, operating_system["id"]),
        "kernel": kernels,
        "pci": bus,
        "display": display.observe(host, bus["gpus"]),
        "driver": owned,
        "dkms": dkms.observe(host, kernels["installed"]),
        "smi": smi,
        "cuda": cuda.observe(host),
        "containers": engines,
        "python": python_envs.observe(host),
        "environments": python_envs.environments(host, set(environments) | set(_named_in_seals(found, "environments"))),
        "disks": disks.observe(
            host, [*environments, host.places.environments, containers.data_root(engines["docker"])]
        ),
        "names": names.observe(host),
        "packages": packages.observe(host),
        "services": states,
        "fabric": fabric.observe(host, kernels["next"], shown),
        "in_use": in_use.observe(host, containers.data_root(engines["docker"])),
        "sessions": {"display": display.graphical_session(host)},
        "seals": None if "seals" in host.unknown_facts else judged,
        "proof": seals.read_proof(host),
        "lock": _lock(host),
        "history": earlier.observe(host, history),
        "unknown": {},
    }
    if host.of_user:
        facts["user"] = _user(host, environments)
    server = monitoring_server.observe(host)
    if server is not None:
        facts["monitoring_server"] = server
    facts["unknown"] = dict(sorted(host.unknown_facts.items()))
    return facts


def _lock(host: Host) -> RunLock | None:
    lock = seals.read_lock(host)
    if lock is not None:
        lock["living"] = run_lock.is_living(host, lock)
    return lock


def _user(host: Host, environments: Iterable[str]) -> User:
    """Who works without root, and where; `environments`: the paths that the wish names."""
    try:
        name = pwd.getpwuid(host.euid).pw_name
    except KeyError:
        name = f"user {host.euid}"
    places = {os.path.dirname(path) for path in environments} or {host.places.environments}
    return {
        "name": name,
        "environments": host.places.environments,
        "records": [host.places.state, host.places.run],
        "obstacle": next((text for text in map(_obstacle, sorted(places)) if text), None),
    }


def _obstacle(path: str) -> str | None:
    """Why this process makes nothing in a directory, which need not be there yet."""
    from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership

    if not os.path.isabs(path):
        return f"{path} is no absolute path"
    found = ownership.offence(path, ownership.trusted())
    if found:
        return f"there is {found.text}, on the way to {path}"
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        return f"{path} is no directory"
    return None if os.access(path, os.W_OK | os.X_OK) else f"{path} is not yours to write to"


def _smi(host: Host, kernels: Kernel, where: Environment, owned: Driver) -> Smi | None:
    """nvidia-smi's answer, where asking changes nothing: the module is loaded, or the driver is that of WSL's host."""
    program = owned["nvidia_smi"]
    if "nvidia" in kernels["loaded"] or (where["kind"] == "wsl" and program):
        answer = driver.ask_smi(host, program)
        data = answer["data"] if answer else None
        if answer and data and program and any(gpu["mig"]["current"] for gpu in data["gpus"]):
            from ansible_collections.gpuwright.node.plugins.module_utils.programs import mig_layout

            # What the instances are called is in no XML.
            listed = host.run([program, "-L"])
            # It ends with an error where one card is lost, and lists the others.
            answer["mig_devices"] = mig_layout.parse_list(listed.out) or None
        return answer
    return None


def _as_programs_see(host: Host, arch: str | None, owned: Driver) -> None:
    """What a program finds of the driver, where one is there."""
    if owned["libcuda"] is None and owned["loaded_version"] is None:
        return
    owned["loader"], owned["nodes"] = loader.libraries(host, arch), loader.nodes(host)
    owned["makes_nodes"] = loader.makes_nodes(host)
    keeps = driver.keeps_memory(host)
    if keeps is not None:
        owned["keeps_memory"] = keeps


def _initramfs_content(host: Host, kernels: Kernel, bus: Pci, judged: Mapping[str, Seal], *, asked: bool) -> None:
    """List the initramfs only where the answer matters and no good seal gives it."""
    fact = "kernel.initramfs.nouveau_inside"
    if kernels["initramfs"]["path"] is None:
        return
    if not asked:
        host.unknown(fact, "not looked at: nobody asked for it")
    elif not bus["gpus"] and "nouveau_blacklist" not in judged:
        host.unknown(fact, "not looked at: there is no NVIDIA GPU, and nothing was set up for one")
    elif not host.full and "nouveau_blacklist" in judged and judged["nouveau_blacklist"]["state"] == "good":
        host.unknown(fact, "not looked at: the seal of nouveau_blacklist is good")
    else:
        kernel.look_inside(host, kernels["initramfs"])
