"""The answer of `cost` for people: yes or no and for how much, every way over the same time, and a plot of what has been paid by when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import braille, console, show, show_size
from gpuwright.show_size import spread
from gpuwright.sizing.cost_answer import period, usd
from gpuwright.sizing.costing import OLD

if TYPE_CHECKING:
    from gpuwright.sizing.answer import Answer
    from gpuwright.sizing.cost_answer import BreakEven, CostAnswer, Line, Owned, Rented, Way

#: Ways that are shown; the answer of `--json` has all.
_FEW = 10
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def page(found: CostAnswer) -> None:
    """A page for a ticket: no wider than one, the verdict first."""
    width, sources = console.page_width(), show.Sources()
    console.out(console.paragraph(found["verdict"], indent=0, width=width))
    for text in counted(found):
        console.out(console.paragraph(text, width=width))
    for row in found["warnings"]:
        console.out(console.paragraph(row["text"], bullet="warning: ", width=width))
    _ways(found, width, sources)
    if sized := found["size"]:
        alone = sized["job"]["kind"] == "inference" and "batch" in sized["assumed"]
        heading = f"{'one sequence' if alone else 'the job'} fits on"
        show_size.other_cards(heading, sized["options"], found["gpu"], width)
    if found["own"]:
        _own(found["own"][0], width)
    _plot(found, width)
    sources.show(width)
    console.out(f"tables of {found['updated']}")


def refusal(sized: Answer) -> None:
    """That a model does not fit, most of what it needs, and what would help."""
    width = console.page_width()
    (conflict,) = sized["conflicts"]
    where = f"{sized['cards']} × {sized['gpu']}"
    console.out(console.paragraph(f"no: {sized['model']['name']} does not fit on {where}", indent=0, width=width))
    console.out(console.paragraph(f"{conflict['text']}; remedy: {conflict['remedy']}", width=width))


def counted(found: CostAnswer) -> list[str]:
    """What was counted, a sentence each: the job, its speed, its hours, and the time that every row covers."""
    texts = []
    if (sized := found["size"]) is not None:
        texts.append(show_size.job(sized))  # type: ignore[arg-type]
    if found["tokens_second"]:
        texts.append(f"{spread(found['tokens_second'])}, {found['tokens_second']['text']}")
    if found["hours"]:
        texts.append(f"the job takes {spread(found['hours'])} {found['hours']['text']}")
    texts.append(f"every row is for {period(found['months'])}, computing {found['share']['value']:.0%} of the hours")
    return texts


def headings(found: CostAnswer) -> tuple[str, ...]:
    """Those of the table of ways."""
    return ("", "USD/h", period(found["months"]), *_asked_for(found).values(), "")


def ways(found: CostAnswer, few: int) -> list[tuple[str, ...]]:
    """The cells of the ways to rent and to own, the cheapest first."""
    rows: list[tuple[Way, str, str, str]] = [
        (each, f"{each['provider']} {each['instances']} × {each['instance']}", f"{each['usd_hour']:,.2f}", rented(each))
        for each in found["rent"]
    ]
    rows += [(each, f"own {each['count']} × {each['what']}", "", f"bought, {_read(each)}") for each in found["own"]]
    rows.sort(key=lambda row: row[0]["total"]["value"])
    shown = [row for at, row in enumerate(rows) if at < few or row[1].startswith("own ")]
    keys = ("total", *_asked_for(found))
    return [(name, hour, *(usd(way[key]["value"]) for key in keys), text) for way, name, hour, text in shown]  # type: ignore[literal-required]


def _asked_for(found: CostAnswer) -> dict[str, str]:
    """The column of what is asked for beside the time, by its key: the job where one is, else a million tokens."""
    if found["hours"]:
        return {"job": "a run" if found["size"] and found["size"]["job"]["kind"] != "inference" else "the job"}
    return {"usd_million": "M tokens"} if found["tokens_second"] else {}


def rented(each: Rented) -> str:
    """How it is rented, where, on which system, and of which day the price is."""
    system = "" if each["system"] in (None, "linux") else each["system"]
    where = "" if each["region"] in (None, "all") else each["region"]
    return ", ".join(filter(None, (each["kind"], system, where, _read(each))))


def _read(each: Way) -> str:
    return f"{each['date']}, {each['age_days']} days ago" if each["age_days"] > OLD else each["date"]


def _ways(found: CostAnswer, width: int, sources: show.Sources) -> None:
    marks = {f"{each['provider']} {each['instances']} × {each['instance']}": each["source"] for each in found["rent"]}
    marks |= {f"own {each['count']} × {each['what']}": each["source"] for each in found["own"]}
    rows = [
        (*cells[:-1], cells[-1] + sources.mark({"rule": "price", "text": "", "source": marks[cells[0]]}))
        for cells in ways(found, _FEW)
    ]
    console.out(console.table(rows, headings(found), width=width))
    if (left := len(found["rent"]) + len(found["own"]) - len(rows)) > 0:
        console.out(f"  and {console.counted(left, 'more ways')} (--json shows them)")


def _own(each: Owned, width: int) -> None:
    heading = f"own {each['count']} × {each['what']}"
    console.out(console.table(parts(each), (heading, "", ""), width=width))


def parts(each: Owned) -> list[tuple[str, str, str]]:
    """The cells of what owning is made of, and of when it has paid."""
    rows = [(part["name"], usd(part["value"]), part["text"]) for part in each["parts"] if part["value"]]
    total = each["total"]
    spans = f"{usd(total['low'])} to {usd(total['high'])}; {each['usd_hour_used']:,.2f} USD an hour that computes"
    rows.append(("total", usd(total["value"]), spans))
    return rows + [("pays", after(even), f"against {even['against']}") for even in each["break_even"]]


def after(even: BreakEven) -> str:
    """When owning has paid, in words; what the machines are still worth is not counted."""
    if even["months"] is None:
        return f"never within {console.counted(even['within'], 'months')}"
    return f"after {console.counted(even['months'], 'months')}" if even["months"] else "at once"


def drawn(found: CostAnswer) -> list[Line]:
    """The lines that are drawn: each way to rent that owning is held against, and the cheapest to own."""
    renting = len(found["plot"]) - len(found["own"])
    return [line for line in found["plot"][: renting + 1] if len(line["points"]) > 1]


def _plot(found: CostAnswer, width: int) -> None:
    """What has been paid by each month."""
    lines = drawn(found)
    if len(lines) < 2:
        return
    import plotille
    from rich.text import Text

    most = max(point[1] for line in lines for point in line["points"])
    scale, unit = (1000, "k USD") if most >= 20_000 else (1, "USD")
    colours = console.screen().is_terminal
    console.out("what has been paid by the end of each month")
    shown = []
    for number, line in enumerate(lines):
        colour, mark = (_COLOURS[number % len(_COLOURS)], None) if colours else (None, chr(ord("a") + number))
        shown.append(braille.Line([(month, paid / scale) for month, paid in line["points"]], colour, mark))
        key = plotille.color(f"{mark or '⠤⠤'} {line['name']}", fg=colour, no_color=not colours)
        console.draw(Text.from_ansi(f"  {key}"))
    across = braille.Axis(found["months"], "months", lambda each: f"{each:.0f}")
    up = braille.Axis(braille.scale_end(most / scale), unit, lambda each: f"{each:,.0f}")
    rows = braille.drawn(shown, across, up, width - 30)
    console.draw(Text.from_ansi("\n".join(rows), no_wrap=True, overflow="crop"))
