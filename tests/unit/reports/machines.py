"""A report's input as the product sees it: the facts of a machine, and what its kernel log answers."""

from __future__ import annotations

import copy
import json
import re
import shutil
import tempfile
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_faults, kernel_log
from ansible_collections.gpuwright.node.plugins.module_utils.observe.machine import observe
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.sim import scenario, tree
from tests.sim.onnode.gpuwright_sim import tree as node
from tests.unit.gate import honest
from tests.unit.observe.trees import FakePrograms, Tree, answer
from tests.unit.plan import nodes
from tests.unit.prove.conftest import FIXTURES, log_answer

DRIVER = {"version": nodes.DRIVER, "open": True}
#: Of the query of rpm one line is a package, as module_utils/observe/rpm.py asks for it.
_RPM = "{name}\t{epoch}\t{version}\tx86_64\tRocky\t{name}-{version}.src.rpm\n"
_RUNS = {"docker.service": {"active": "active", "enabled": "enabled"}}


def healthy(about: dict[str, Any]) -> Any:
    """The facts of the machine on which a report was made, before what it tells of came."""
    return copy.deepcopy(_healthy(json.dumps(about, sort_keys=True)))


@cache
def _healthy(about: str) -> Any:
    with tempfile.TemporaryDirectory() as place:
        return afflicted(Path(place), json.loads(about), {})


def afflicted(place: Path, about: dict[str, Any], change: dict[str, Any]) -> Any:
    """The facts of the same machine with what the report tells of."""
    if "smi" in about:
        facts = _of_document(about["smi"], change.get("smi"))
    elif about.get("cards"):
        facts = _of_tree(place, about, change)
    else:
        facts = nodes.merged(nodes.provisioned(), _answering())
    given = nodes.merged(about.get("facts") or {}, change.get("facts") or {})
    facts["unknown"] = {path: why for path, why in facts["unknown"].items() if not _gives(given, path.split("."))}
    return nodes.merged(facts, given)


def _gives(given: Any, path: list[str]) -> bool:
    """Whether the report itself gives a part of the facts, which then is known."""
    return not path or (isinstance(given, dict) and path[0] in given and _gives(given[path[0]], path[1:]))


def log(lines: list[str]) -> Any:
    """What the module kernel_log answers where the log has these lines."""
    told = log_answer(lines=len(lines), **kernel_log.events(lines), **kernel_faults.faults(lines))
    return json.loads(gate.admit("kernel_log", json.dumps(told)))


def _of_tree(place: Path, about: dict[str, Any], change: dict[str, Any]) -> Any:
    """What is observed of files; what only a running machine tells (services, nvidia-smi) is as on one that is well."""
    system = about.get("system", "debian-13")
    given = {"gpus": [{"card": card} for card in about["cards"]], "nouveau": False}
    if about.get("kernels"):
        given["kernels"] = about["kernels"]
    if about.get("running"):
        given["running"] = about["running"]
    own = system if system in tree._OS_RELEASE else "debian-13"
    root = Tree(place)
    root.file("/etc/resolv.conf", "nameserver 192.0.2.53\n")
    driver = about.get("driver", DRIVER)
    tree.make_root(place, scenario.expand(given, "report", own), driver)
    programs = {}
    if system.startswith("rocky"):
        shutil.rmtree(place / "var/lib/dpkg")
        root.directory("/var/lib/rpm")
        rows = [
            _RPM.format(name=name, epoch=epoch or "(none)", version=version)
            for name, full in {**_RPMS, **about.get("packages", {}), **change.get("packages", {})}.items()
            for epoch, version in [re.fullmatch(r"(?:(\d+):)?(.+)", full).groups()]  # type: ignore[union-attr]
        ]
        programs["rpm -"] = answer("".join(rows))
    else:
        _dpkg(place, {**about.get("packages", {}), **change.get("packages", {})}, change.get("states") or {})
    _write(root, {**_os_release(system), **about.get("files", {}), **change.get("files", {})}, change)
    loaded = bool(driver) and not change.get("unloaded")
    if not loaded:
        node.write_modules(place, {})
        node.write_driver(place, [], None)
    programs.update({words: answer(out) for words, out in change.get("programs", {}).items()})
    facts: Any = observe(Host(str(place), machine="x86_64", euid=0, runner=FakePrograms(programs)), history=True)
    facts = json.loads(gate.admit("node_facts", honest.said(facts)))["facts"]
    facts["root"], facts["services"], facts["environment"]["systemd"] = "/", dict(_RUNS), True
    for part in ("services", "smi"):
        facts["unknown"].pop(part, None)
    facts["containers"]["docker"]["active"] = facts["containers"]["docker"]["installed"]
    if loaded:
        facts["smi"] = _document(facts["pci"]["gpus"], driver["version"])
    return facts


def _write(root: Tree, files: dict[str, str], change: dict[str, Any]) -> None:
    """The files of a machine, and what a report does to them beside their content."""
    for path, text in files.items():
        root.file(path, text, 0o755 if "/bin/" in path else None)
    for path, mode in change.get("modes", {}).items():
        (root.root / path.lstrip("/")).chmod(mode)
    for path in change.get("absent", ()):
        gone = root.root / path.lstrip("/")
        shutil.rmtree(gone) if gone.is_dir() and not gone.is_symlink() else gone.unlink()
    for path, target in change.get("links", {}).items():
        (root.root / path.lstrip("/")).unlink(missing_ok=True)
        root.link(path, target)


_RPMS = {"glibc": "2.34-231.el9", "kernel-core": "5.14.0-611.41.1.el9_7"}


def _os_release(system: str) -> dict[str, str]:
    """Of a system that the simulated node cannot be."""
    if system in tree._OS_RELEASE:
        return {}
    identity, _, version = system.partition("-")
    codename = {"22.04": "jammy", "12": "bookworm"}.get(version, "")
    like = 'ID_LIKE="rhel centos fedora"\n' if identity == "rocky" else ""
    lines = f'NAME="{identity}"\nPRETTY_NAME="{identity} {version}"\nID={identity}\nVERSION_ID="{version}"\n{like}'
    return {"/etc/os-release": lines + f"VERSION_CODENAME={codename}\n"}


def _dpkg(place: Path, versions: dict[str, str], states: dict[str, str]) -> None:
    """Further packages, and those of the tree in another version or state."""
    status = place / "var/lib/dpkg/status"
    stanzas = {stanza.split("\n", 1)[0].split(": ")[1]: stanza for stanza in status.read_text().strip().split("\n\n")}
    for name in {**versions, **states}:
        before = re.search(r"^Version: (.*)$", stanzas.get(name, ""), re.MULTILINE)
        version = versions.get(name) or (before[1] if before else "")
        state = states.get(name, "install ok installed")
        stanzas[name] = f"Package: {name}\nStatus: {state}\nArchitecture: amd64\nVersion: {version}\n"
    status.write_text("\n\n".join(stanza.strip() for stanza in stanzas.values()) + "\n")


# nvidia-smi -----------------------------------------------------------------------------------------------------------


def _answering() -> dict[str, Any]:
    return {"smi": _document(nodes.provisioned()["pci"]["gpus"], nodes.DRIVER)}


def _document(cards: list[Any], driver: str) -> dict[str, Any]:
    """nvidia-smi's answer of a machine with these cards, all well."""
    data: Any = parse_xml((FIXTURES / "h100_580.xml").read_bytes())
    rows = [
        {**data["gpus"][0], "index": number, "pci_bus_id": card["bus_id"], "persistence_mode": True}
        for number, card in enumerate(cards)
    ]
    data = {**data, "gpus": rows, "attached_gpus": len(rows), "driver_version": driver}
    return {"rc": 0, "seconds": 0.5, "error": None, "data": data}


def _of_document(base: str, change: dict[str, str] | None = None) -> Any:
    """A machine whose nvidia-smi answers with a document of the proving tests; `change`: text by the path of an element, in all cards.
    What a card lacks of a path is made.
    """
    whole = (FIXTURES / base).read_text(encoding="utf-8")
    document = ET.fromstring(whole[whole.index("<?xml") :].strip())  # noqa: S314 - a file of our own
    for path, text in (change or {}).items():
        card, *names = path.removeprefix("./").split("/")
        found = document.findall(card)
        assert found, f"{base} has no {card}"
        for element in found:
            place = element
            for name in names:
                inner = place.find(name)
                place = ET.SubElement(place, name) if inner is None else inner
            place.text = text
    data: Any = parse_xml(ET.tostring(document))
    version = str(data["driver_version"])
    card = nodes.provisioned()["pci"]["gpus"][0]
    _vendor, device = (data["gpus"][0]["pci_id"] or "10de:2330").split(":")[-2:]
    return nodes.merged(
        nodes.provisioned(),
        {
            "kernel": {
                "loaded": {name: {"version": version} for name in ("nvidia", "nvidia_uvm")},
                "available": {"nvidia": {"version": version}},
            },
            "pci": {
                "gpus": [
                    {**card, "device": device, "bus_id": each["pci_bus_id"], "driver": "nvidia"}
                    for each in data["gpus"]
                ]
            },
            "driver": {"loaded_version": version, "user_version": version},
            "smi": {"rc": 0, "seconds": 0.5, "error": None, "data": data},
        },
    )
