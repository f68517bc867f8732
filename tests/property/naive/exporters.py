"""Exporters of metrics: DCGM where NVIDIA names it, for the driver's CUDA and with the exporter of its build; else our own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.property.naive.asked import component
from tests.property.naive.tables import Row, below, numbers, row, rows

Stack = Mapping[str, Any]


def faults(machine: Any, wants: Sequence[str], stack: Stack) -> Iterator[str]:
    """Everything that is wrong with what tells the metrics."""
    asked = [want for want in wants if component(want) == "monitoring"]
    found = stack.get("monitoring_exporters")
    if found is None or not asked:
        if found:
            yield "exporters that nobody wished"
        return
    yield from _of_machine(machine, found["node"], stack)
    if bool(found["gpu"]) != bool(machine.cards):
        yield f"{len(machine.cards)} cards, and what tells of them is {found['gpu']}"
    elif found["gpu"]:
        yield from _of_cards(machine, asked[0].partition("=")[2], found["gpu"], stack)


def _of_machine(machine: Any, node: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    system = row("systems", "rows", os=machine.os)
    (named,) = [each for each in rows("monitoring", "rows") if each["family"] == system["family"]]
    for key in ("package", "repository", "unit", "program"):
        if node[key] != named[key]:
            yield f"the {key} of node_exporter is {node[key]}, on {machine.os} it is {named[key]}"
    older = [each["flag"] for each in rows("monitoring", "flags") if machine.os in each["os"]]
    if node["flag"] not in (older or ["--web.config.file"]):
        yield f"node_exporter of {machine.os} does not know {node['flag']}"
    sources = [each["name"] for each in stack.get("repositories", ())]
    if named["repository"] and named["repository"] not in sources:
        yield f"node_exporter of {machine.os} is in {named['repository']}, which is not there"


def _of_cards(machine: Any, asked: str, cards: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    cuda = _cuda(machine, stack)
    names_it = any(machine.os in each["os"] for each in rows("monitoring", "served"))
    whole = machine.environment in ("bare", "vm")
    # Compute capability 5.0 is the first of Maxwell. Of a card that no table names nobody can say that it is older.
    new_enough = not any(below(card.compute_capability or "5.0", "5.0") for card in machine.cards)
    offered = f"dcgm={_newest()['dcgm']}" not in machine.absent
    serves = names_it and whole and new_enough and offered and cuda is not None
    if (cards["source"] == "dcgm") != (serves and asked != "smi"):
        yield (
            f"{cards['source']} tells of the cards, asked is {asked or 'nothing'}; "
            f"named for {machine.os}: {names_it}, whole cards: {whole}, from Maxwell on: {new_enough}, CUDA: {cuda}, offered: {offered}"
        )
    elif cards["source"] == "dcgm" and cuda is not None:
        yield from _pair(cards["dcgm"], cuda)


def _cuda(machine: Any, stack: Stack) -> int | None:
    """The CUDA of DCGM for the driver, a lower one where a card is too old for it."""
    loaded = machine.driver.version.split(".")[0] if machine.driver else ""
    branch = stack["driver"]["branch"] if "driver" in stack else loaded
    fitting = [
        each
        for each in rows("monitoring", "cuda")
        if re.fullmatch("[0-9]+", branch) and int(each["since"]) <= int(branch)
    ]
    fitting.sort(key=lambda each: int(each["since"]))
    while fitting and _too_old(machine, fitting[-1]):
        fitting.pop()
    return fitting[-1]["cuda"] if fitting else None


def _too_old(machine: Any, cuda: Row) -> bool:
    return any(card.architecture in cuda["without"] for card in machine.cards)


def _newest() -> Row:
    return max(rows("monitoring", "pairs"), key=lambda each: numbers(each["exporter"]))


def _pair(brought: Mapping[str, Any], cuda: int) -> Iterator[str]:
    newest = _newest()
    if (brought["version"], brought["exporter"]) != (newest["dcgm"], newest["exporter"]):
        yield f"DCGM {brought['version']} with the exporter {brought['exporter']} is not the newest pair"
    built = {number for name in brought["packages"] for number in re.findall(r"cuda(\d+)$", name)}
    if built != {str(cuda)}:
        yield f"the packages of DCGM are for CUDA {', '.join(sorted(built))}, the driver's is {cuda}"
