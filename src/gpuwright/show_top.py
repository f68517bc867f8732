"""What `gpuwright top` shows: a row a card, on a screen that is refreshed or as a page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpuwright import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from ansible_collections.gpuwright.node.plugins.module_utils.smi.csv import Sample
    from gpuwright.card_looks import HostLook, Look

#: No card is held back by doing nothing.
_NO_BRAKE = "gpu_idle"
#: Heat, and a power supply that cannot keep up.
_ALARMING = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
_BAR = 6
#: What every name begins with.
_VENDOR = "NVIDIA "
#: Columns of a name on a terminal.
_NAME = 24


def table(look: Look, note: str = "") -> RenderableType:
    """The cards in the order of their hosts; below them what has no card, and a note."""
    from rich.console import Group

    several = len(look.hosts) + len(look.unreachable) > 1
    rows = [
        *(line for host, found in look.hosts.items() for line in _rows(host, found)),
        *(_Row(host, None, f"unreachable: {why}") for host, why in look.unreachable.items()),
    ]
    # One host needs no name, and what is said of it no row.
    in_table = [row for row in rows if several or row.card]
    parts: list[RenderableType] = [_made(in_table, several=several)] if in_table else []
    parts += [console.styled(row.problem or "", "red") for row in rows if row not in in_table]
    if note:
        parts.append(console.styled(note, "dim"))
    return Group(*parts)


class _Row:
    """A line of the table: a card, or a host without one."""

    def __init__(self, host: str, card: Sample | None, problem: str | None) -> None:
        self.host = host
        self.card = card
        self.problem = problem


def _rows(host: str, found: HostLook) -> list[_Row]:
    rows = [_Row(host, card, card["problem"]) for card in found["cards"]]
    return [*rows, _Row(host, None, found["problem"])] if found["problem"] else rows


def _made(rows: list[_Row], *, several: bool) -> Table:
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    if several:
        made.add_column("host", overflow="fold")
    made.add_column("gpu", justify="right")
    made.add_column("name", overflow="ellipsis", no_wrap=True, max_width=_NAME if sys.stdout.isatty() else None)
    for heading in ("util %", "memory GiB"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    for heading in ("°C", "power W"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("throttle, problem", overflow="fold")
    for row in rows:
        cells = [console.styled(row.host)] if several else []
        cells += _cells(row.card) if row.card else [console.styled("")] * 7
        made.add_row(*cells, console.styled(row.problem, "red") if row.problem else _throttle(row.card))
    return made


def _cells(card: Sample) -> list[Text]:
    used, total = card["memory_used"], card["memory_total"]
    memory = f"{_number(used, 1024, 1)}/{_number(total, 1024, 1)}"
    return [
        console.styled(_number(card["index"])),
        console.styled((card["name"] or "–").removeprefix(_VENDOR)),
        console.styled(_number(card["utilization"])),
        console.styled(memory),
        console.styled(_bar(used, total), "cyan"),
        console.styled(_number(card["temperature"])),
        console.styled(f"{_number(card['power'])}/{_number(card['power_limit'])}"),
    ]


def _number(value: float | None, unit: int = 1, digits: int = 0) -> str:
    return "–" if value is None else f"{value / unit:.{digits}f}"


def _bar(used: float | None, total: float | None) -> str:
    """How much of the memory is used."""
    if used is None or not total:
        return ""
    filled = min(round(_BAR * used / total), _BAR)
    return "█" * filled + "░" * (_BAR - filled)


def _throttle(card: Sample | None) -> Text:
    told = [reason for reason in (card and card["throttle"]) or () if reason != _NO_BRAKE]
    return console.styled(", ".join(told), "bold yellow" if _ALARMING.intersection(told) else "")
