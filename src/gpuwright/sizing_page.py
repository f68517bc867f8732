"""The answers of `size` and `cost` as one page to forward: no script, no network, readable on a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from gpuwright import __version__, braille, console, paths, show, show_cost, show_size
from gpuwright.errors import BadInput
from gpuwright.show_size import spread
from gpuwright.sizing.cost_answer import period

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import jinja2

    from gpuwright.sizing.answer import Answer
    from gpuwright.sizing.cost_answer import CostAnswer, Line
    from gpuwright.sizing.figures import Figure

#: The drawings, in units of their own: the page stretches them, and writes beside them what people read.
_WIDTH, _HEIGHT = 1000, 400
#: From this share of the bar on the name of the card stands left of its end.
_ROOM_FOR_A_NAME = 0.5
#: Ways to rent that the page has.
_FEW = 12


class Table(TypedDict):
    """Rows under a title; `numbers`: the columns that are not broken, of which a narrow page has the first beside the name."""

    title: str
    head: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    numbers: tuple[int, ...]


def write(name: str, page: str) -> None:
    """Write a page where a person wants it.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        paths.written(name).write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the page {name} cannot be written: {error.strerror}") from error
    console.note(f"page: {name}")


def size(found: Answer) -> str:
    """The page of an answer of `size`."""
    tables = [
        _figures("Memory, part by part", found["memory"]),
        {
            "title": "The smallest number that fits",
            "head": ("cards", *show_size.OFFERS),
            "rows": show_size.options(found["options"], found["gpu"]),
            "numbers": (1, 2, 3),
        },
        _figures("Speed", found["speed"]),
        _figures("The machine", found["machine"]),
        {
            "title": "What would change it",
            "head": ("", "a card", "then it", "option"),
            "rows": [show_size.change(each) for each in found["changes"]],
            "numbers": (1,),
        },
    ]
    return _render(
        title=f"size {found['model']['name']}",
        heading=f"{found['model']['name']}: {show_size.job(found)}",
        verdict=show_size.first(found),
        tone="no" if found["one"] and found["one"]["fits"] == "no" else found["fits"],
        recommended=_recommended(found),
        notes=[*map(show_size.refusal, found.get("conflicts", ())), *(row["text"] for row in found["warnings"])],
        bar=_bar(found),
        plot=None,
        tables=[table for table in tables if table["rows"]],
        sources=[row["source"] for row in found["machine"] if "source" in row],
        updated=found["updated"],
    )


def cost(found: CostAnswer) -> str:
    """The page of an answer of `cost`."""
    tables: list[Table] = [
        {
            "title": f"Every way, {period(found['months'])}",
            "head": show_cost.headings(found),
            "rows": show_cost.ways(found, _FEW),
            "numbers": (1, 2, 3) if found["hours"] or found["tokens_second"] else (1, 2),
        }
    ]
    tables += [
        {
            "title": f"Owning {each['count']} × {each['what']}",
            "head": (),
            "rows": show_cost.parts(each),
            "numbers": (1,),
        }
        for each in found["own"][:1]
    ]
    return _render(
        title=f"cost {found['cards']} × {found['gpu']}",
        heading=f"What {found['cards']} × {found['gpu']} cost",
        verdict=found["verdict"],
        recommended=None,
        tone="no" if found["pays"] is False and found["size"] is None else "yes",
        notes=[*show_cost.counted(found), *(row["text"] for row in found["warnings"])],
        bar=None,
        plot=_plot(show_cost.drawn(found)),
        tables=tables,
        sources=[each["source"] for each in [*found["rent"][:_FEW], *found["own"]]],
        updated=found["updated"],
    )


def _recommended(found: Answer) -> dict[str, str] | None:
    """The one card to take, in large letters."""
    cards = found["recommended"]
    return {"cards": show_size.counted(cards), "text": show_size.recommended(cards)} if cards else None


def _figures(title: str, rows: Iterable[Figure]) -> Table:
    cells = [
        (row["name"], show_size.gib(row["value"]) if row["unit"] == "bytes" else spread(row), row["text"])
        for row in rows
    ]
    return {"title": title, "head": (), "rows": list(cells), "numbers": (1,)}


def _bar(found: Answer) -> dict[str, object]:
    """The parts beside each other; the line is where the card ends."""
    most = max(found["room"], found["needed"]["value"])
    at, parts = 0.0, []
    for part in found["memory"]:
        width = part["value"] / most * _WIDTH
        parts.append(
            {"name": part["name"], "text": show_size.gib(part["value"]), "x": f"{at:.1f}", "width": f"{width:.1f}"}
        )
        at += width
    room = found["room"] / most
    return {
        "parts": parts,
        "room": f"{room * _WIDTH:.1f}",
        "share": f"{room:.1%}",
        "side": "left" if room > _ROOM_FOR_A_NAME else "right",
        "text": f"{found['gpu']}: {show_size.gib(found['room'])}",
    }


def _plot(lines: Sequence[Line]) -> dict[str, object] | None:
    """USD over months, with round numbers on its axes."""
    drawn = [line for line in lines if len(line["points"]) > 1]
    if not drawn:
        return None
    top = braille.scale_end(max(max(paid for _month, paid in line["points"]) for line in drawn))
    months = max(line["points"][-1][0] for line in drawn)

    def place(month: float, paid: float) -> tuple[float, float]:
        return month / months * _WIDTH, _HEIGHT - paid / top * _HEIGHT

    return {
        "title": "What has been paid after so many months",
        "rows": [{"at": f"{1 - step / 5:.0%}", "text": _money(top * step / 5)} for step in range(6)],
        "columns": [{"at": f"{step / 6:.2%}", "text": f"{months * step / 6:.0f}"} for step in range(7)],
        "lines": [
            {
                "name": line["name"],
                "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line["points"])),
            }
            for line in drawn
        ],
    }


def _money(value: float) -> str:
    scale, unit = next((each for each in ((1e6, "M"), (1e3, "k")) if value >= each[0]), (1, ""))
    return f"{value / scale:g} {unit} USD".replace("  ", " ")


def _render(*, updated: str, sources: Iterable[str], **what: object) -> str:
    sources = list(dict.fromkeys(map(show.without_addresses, sources)))
    text: Mapping[str, object] = {**what, "sources": sources, "foot": f"gpuwright {__version__}, tables of {updated}"}
    return _template().render(text)


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("sizing_page.html.j2")
