"""The answer of `cost` for people: what the job costs, what owning costs, and a plot of what has been paid by when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, show
from gpuwright.show_size import spread
from gpuwright.sizing.costing import OLD

if TYPE_CHECKING:
    from gpuwright.sizing.cost_answer import CostAnswer, Owned, Rented

#: Ways to rent that are shown; the answer of `--json` has all.
_FEW = 12
_HEIGHT = 10
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def page(found: CostAnswer) -> None:
    """A page for a ticket."""
    width, sources = console.page_width(), show.Sources()
    console.out(console.paragraph(title(found), indent=0, width=width))
    for row in found["warnings"]:
        console.out(console.paragraph(row["text"], bullet="warning: ", width=width))
    rows = [_rent(each, sources) for each in found["rent"][:_FEW]]
    if rows:
        console.out(console.table(rows, ("rent", "USD/h", "the job", ""), width=width))
    if len(found["rent"]) > _FEW:
        console.out(f"  and {len(found['rent']) - _FEW} more ways (--json shows them)")
    for each in found["own"][:2]:
        _own(each, found, width, sources)
    _plot(found, width)
    sources.show(width)
    console.out(f"tables of {found['updated']}")


def title(found: CostAnswer) -> str:
    """What is asked, in a line."""
    owned = f"owned machines compute {found['share']['value']:.0%} of {found['years']:g} years"
    return f"{found['cards']} × {found['gpu']}: the job takes {spread(found['hours'])} of all; {owned}"


def _rent(each: Rented, sources: show.Sources) -> tuple[str, ...]:
    mark = sources.mark({"rule": "price", "text": "", "source": each["source"]})
    old = f", {each['age_days']} days ago" if each["age_days"] > OLD else ""
    name = f"{each['provider']} {each['instances']} × {each['instance']}"
    return name, f"{each['usd_hour']:,.2f}", usd(each["job"]["value"]), f"{each['kind']}, {each['date']}{old}{mark}"


def _own(each: Owned, found: CostAnswer, width: int, sources: show.Sources) -> None:
    mark = sources.mark({"rule": "price", "text": "", "source": each["source"]})
    heading = f"own {each['count']} × {each['what']} for {found['years']:g} years"
    rows = [(part["name"], usd(part["value"]), part["text"]) for part in each["parts"] if part["value"]]
    total = each["total"]
    rows.append(
        (
            "total",
            usd(total["value"]),
            f"{usd(total['low'])} to {usd(total['high'])}; {each['usd_card_hour']:.2f} USD an hour of a card{mark}",
        )
    )
    rows += [("pays against", after(even["years"]), even["against"]) for even in each["break_even"]]
    console.out(console.table(rows, (heading, "", ""), width=width))


def after(years: float | None) -> str:
    """When owning has paid."""
    if years is None:
        return "never"
    return f"after {years * 12:.0f} months"


def _plot(found: CostAnswer, width: int) -> None:
    """What has been paid by each month."""
    import plotille
    from rich.text import Text

    from gpuwright.day_plot import scale_end

    lines = [line for line in found["plot"] if len(line["points"]) > 1]
    if len(lines) < 2:
        return
    most = max(point[1] for line in lines for point in line["points"])
    scale, unit = (1000, "k USD") if most >= 20_000 else (1, "USD")
    colours = console.screen().is_terminal
    figure = plotille.Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = width - 30, _HEIGHT, colours, False
    figure.x_label, figure.y_label = "months", unit
    figure.set_x_limits(0, max(line["points"][-1][0] for line in lines))
    figure.set_y_limits(0, scale_end(most / scale))
    figure.x_ticks_fkt = lambda low, _high: f"{low:.0f}"
    figure.y_ticks_fkt = lambda low, _high: f"{low:,.0f}"
    for number, line in enumerate(lines):
        months, paid = zip(*line["points"], strict=True)
        colour = _COLOURS[number % len(_COLOURS)]
        figure.plot(
            months, [each / scale for each in paid], lc=colour, marker=None if colours else chr(ord("a") + number)
        )
        mark = plotille.color(
            f"{'⠤⠤' if colours else chr(ord('a') + number)} {line['name']}", fg=colour, no_color=not colours
        )
        console.draw(Text.from_ansi(f"  {mark}"))
    console.draw(
        Text.from_ansi(
            "\n".join(row.rstrip(" \u2800") for row in figure.show().splitlines()), no_wrap=True, overflow="crop"
        )
    )


def usd(value: float) -> str:
    """An amount without false precision."""
    return f"{value:,.0f} USD" if abs(value) >= 100 else f"{value:,.2f} USD"
