"""A second opinion on every answer: slow, dumb, written from the tables alone.

Nothing here is shared with the resolver; versions are compared, tables searched and wishes read in its own way. Every function says in
sentences what is wrong with an answer; an empty list is praise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from tests.property.naive import companions, cuda, driver, engines, exporters, images, wheels
from tests.property.naive.asked import component, leaves_out, unmet
from tests.property.naive.cuda import between
from tests.property.naive.driver import better_branches
from tests.property.naive.tables import COMPAT, Row, row, rows, tables, within, yanked

__all__ = [
    "Row",
    "better_branches",
    "between",
    "companions",
    "component",
    "exporters",
    "faults",
    "images",
    "leaves_out",
    "row",
    "rows",
    "unmet",
    "within",
    "yanked",
]

Stack = Mapping[str, Any]


def faults(machine: Any, wants: Sequence[str], answer: Mapping[str, Any], lines: Sequence[str] = ()) -> list[str]:
    """Everything that is wrong with an answer that is ok; ``lines``: what its project asks for."""
    stack = answer["stack"]
    warned = {entry["rule"] for entry in answer["warnings"]}
    found = [*unmet(wants, stack, leaves_out(machine))]
    if machine.cards:
        found += driver.faults(machine, stack, warned)
        found += cuda.toolkits(machine, stack, warned)
        found += cuda.cudnn(machine, stack)
        found += cuda.nccl(machine, stack)
        found += cuda.tensorrt(machine, stack, warned)
        found += cuda.compat(machine, stack, warned)
        found += cuda.container_toolkit(stack, warned)
        found += engines.faults(machine, stack)
    found += exporters.faults(machine, wants, stack)
    for each in stack.get("frameworks", ()):
        found += wheels.faults(machine, each, stack, warned)
    found += companions.faults(machine, stack, lines) if stack.get("frameworks") else []
    found += _repositories(machine, stack)
    found += _age_of_rules(machine, warned)
    # A Jetson's system is its image's; only frameworks are put on it, and then its age counts.
    found += _age_of_system(machine, warned) if machine.environment != "jetson" or stack else []
    for entry in [*answer["why"], *answer["warnings"]]:
        found += [f"{entry['rule']} gives no {key}" for key in ("text", "source") if not entry[key]]
    return found


def _age_of_rules(machine: Any, warned: set[str]) -> Iterator[str]:
    updated = max(tables(path)["updated"] for path in COMPAT.glob("*.yaml"))
    old = (machine.today - date.fromisoformat(updated)).days > 90
    if old != ("rules.age" in warned):
        yield f"the rules are of {updated}, and it is said that they are old: {not old}"


def _age_of_system(machine: Any, warned: set[str]) -> Iterator[str]:
    system = row("systems", "rows", os=machine.os)
    ending = (date.fromisoformat(system["support_end"]) - machine.today).days <= 180
    if ending != ("os.end-of-life" in warned):
        yield f"the support of {machine.os} ends on {system['support_end']}, and it is said so: {not ending}"


def _repositories(machine: Any, stack: Stack) -> Iterator[str]:
    found = {each["name"]: each for each in stack.get("repositories", ())}
    for each in found.values():
        if each.get("from_host"):
            continue
        texts = [
            f"text-sha256:{key['text_sha256']}:{key['id']}" for key in rows("upstreams", "keys") if "text_sha256" in key
        ]
        if (
            not re.fullmatch(r"[0-9A-F]{40}", each["key"]["fingerprint"] or "")
            and each["key"]["fingerprint"] not in texts
        ):
            yield f"{each['name']} has no full fingerprint"
        known = [key for key in rows("upstreams", "keys") if key["fingerprint"] == each["key"]["fingerprint"]]
        if known and known[0]["sha1"] and row("systems", "rows", os=machine.os)["verifier"] == "sqv":
            yield f"{each['name']} is signed by a key that {machine.os} rejects"
    driver = stack.get("driver")
    installs = driver and not driver["adopted"] and driver["source"] == "nvidia"
    toolkits = any(each.get("source", "nvidia") == "nvidia" for each in stack.get("cuda", ()))
    libraries = any(part in stack and not stack[part].get("archives") for part in ("cudnn", "nccl", "tensorrt"))
    dcgm = ((stack.get("monitoring_exporters") or {}).get("gpu") or {}).get("dcgm")
    if (installs or toolkits or libraries or dcgm or stack.get("cuda_compat")) and "nvidia-cuda" not in found:
        yield "NVIDIA's repository is needed and is not there"
