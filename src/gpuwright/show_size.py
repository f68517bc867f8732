"""The answer of `size` for people: the verdict, what the memory is made of, what else fits, how fast it is, the machine around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, show
from gpuwright.sizing.cost_answer import usd
from gpuwright.sizing.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuwright.size_there import Fleet
    from gpuwright.sizing.answer import Answer, Change, Option, Price
    from gpuwright.sizing.figures import Figure

_FITS = {"yes": ("fits", "green"), "tight": ("fits only just", "yellow"), "no": ("does not fit", "red")}
_BAR = 30
#: Other cards that are shown; the answer of `--json` has all.
_FEW = 10


def page(found: Answer) -> None:
    """A page for a ticket: no wider than one, the verdict first."""
    width, sources = console.page_width(), show.Sources()
    _verdict(found, width)
    _memory(found, width)
    other_cards("the smallest number that fits", found["options"], found["gpu"], width)
    for title, figures in (("speed", found["speed"]), ("machine", found["machine"])):
        rows = [(row["name"], spread(row), row["text"] + _mark(row, sources)) for row in figures]
        if rows:
            console.out(console.table(rows, (title, "", ""), width=width))
    if found["changes"]:
        cells = [change(each) for each in found["changes"]]
        console.out(console.table(cells, ("what would change it", "a card", "then it", "option"), width=width))
    sources.show(width)
    console.out(f"tables of {found['updated']}")


def fleet(found: Fleet) -> None:
    """A line for each kind of card of a host, and for those that several hosts have together."""
    width = console.page_width()
    answers = [(host, each) for host, fit in found["hosts"].items() for each in fit["answers"]]
    answers += [("together", each) for each in found["together"]]
    if answers:
        console.out(
            console.paragraph(
                f"{console.colour(str(answers[0][1]['model']['name']), 'bold')}: {job(answers[0][1])}",
                indent=0,
                width=width,
            )
        )
        rows = [_there(host, each) for host, each in answers]
        console.out(console.table(rows, ("host", "", "on", "a card", "layout"), width=width))
    for host, fit in found["hosts"].items():
        for text in fit["short"]:
            console.out(console.paragraph(f"{host}: {text}", bullet="warning: ", width=width))
        for each in fit["answers"]:
            for row in each.get("conflicts", ()):
                console.out(console.paragraph(f"{host}: {row['text']}; remedy: {row['remedy']}", width=width))
    for each in found["together"]:
        for row in each["warnings"]:
            if row["rule"] == "network":
                console.out(console.paragraph(f"together: {row['text']}", bullet="warning: ", width=width))
    problems = {host: fit["problem"] for host, fit in found["hosts"].items() if fit["problem"]}
    show.hosts_not_worked_on(found["unreachable"], problems)


def _there(host: str, each: Answer) -> tuple[str, ...]:
    where = f"{each['cards']} × {each['gpu']}"
    return (
        host,
        _FITS[each["fits"]][0],
        where,
        f"{gib(each['needed']['value'])} of {gib(each['room'])}",
        each["layout"],
    )


def _verdict(found: Answer, width: int) -> None:
    """The first line is the answer: yes or no, on what, for how much."""
    word, colour = _FITS[found["fits"]]
    text = first(found).replace(word, console.colour(word, colour), 1)
    console.out(console.paragraph(text, indent=0, width=width))
    if cards := found["recommended"]:
        console.out(console.paragraph(f"{counted(cards)}, {recommended(cards)}", bullet="recommended: ", width=width))
    name = console.colour(str(found["model"]["name"]), "bold")
    console.out(console.paragraph(f"{name}: {job(found)}", width=width))
    console.out(console.paragraph(f"a card holds {_between(found['needed'])}{_most(found)}", width=width))
    for row in found.get("conflicts", ()):
        console.out(console.paragraph(refusal(row), width=width))
    if found["one"] and found["one"]["helps"]:
        console.out(console.paragraph(f"on one: {' or '.join(found['one']['helps'])}", width=width))
    for row in found["warnings"]:
        console.out(console.paragraph(row["text"], bullet="warning: ", width=width))


def refusal(row: Mapping[str, str]) -> str:
    """Why it does not fit, and what would help."""
    return f"{row['text']}; remedy: {row['remedy']}"


def first(found: Answer) -> str:
    """The answer in a line: of one card first, where one is named, then of the smallest number that does, then what to take instead."""
    cost = f"; {price(found['price'])}" if found["ok"] and found["price"] else ""
    if instead := other(found):
        cost += f"; recommended: {counted(instead)}, {price(instead['price'])}"
    one = found["one"]
    if one is None:
        return f"{'yes' if found['ok'] else 'no'}: {verdict(found)}{cost}"
    alone = f"{gib(one['bytes_per_card'])} of {gib(one['room'])}"
    word = "yes, only just" if one["fits"] == "tight" else one["fits"]
    return f"{word} on one {found['gpu']} ({alone}); {verdict(found)}{cost}"


def verdict(found: Answer) -> str:
    """Whether it fits, on what, and how much of it."""
    # Cards of several kinds are named one by one.
    alone = found["cards"] == 1 or " + " in found["gpu"]
    cards = found["gpu"] if alone else f"{found['cards']} × {found['gpu']}"
    layout = f" ({found['layout']})" if found["cards"] > 1 else ""
    return (
        f"{_FITS[found['fits']][0]} on {cards}{layout}: {gib(found['needed']['value'])} of {gib(found['room'])} a card"
    )


def other(found: Answer) -> Option | None:
    """The cards that are recommended, where the answer is about other ones."""
    instead = found["recommended"]
    here = (found["gpu"], found["cards"])
    return instead if instead and (not found["ok"] or (instead["gpu"], instead["cards"]) != here) else None


def counted(cards: Option) -> str:
    """Cards in words: how many of which."""
    return cards["gpu"] if cards["cards"] == 1 else f"{cards['cards']} × {cards['gpu']}"


def price(known: Price | None) -> str:
    """What cards cost, in short."""
    return f"from ${known['usd_hour']:,.2f} an hour" if known else "nobody says a price"


def recommended(cards: Option) -> str:
    """How much of the recommended cards the job takes, what they cost, and where that is had."""
    room = f"{gib(cards['bytes_per_card'])} of {gib(cards['room_per_card'])} a card"
    known = cards["price"]
    if known is None:
        return f"{room}; nobody says a price"
    tokens = f", {usd(known['usd_million'])} a million tokens" if known["usd_million"] else ""
    return f"{room}; {usd(known['usd_hour'])} an hour{tokens} ({known['how']})"


def _most(found: Answer) -> str:
    """The most that fits there, in words; nothing where not even this does."""
    most = found["most"]
    if not most["batch"] or not found["ok"]:
        return ""
    context = found["job"]["context"]
    users = f", about {most['users']:,} users with half of it" if most["users"] > most["batch"] else ""
    at_once = f"{most['batch']:,} sequence{'s' if most['batch'] > 1 else ''} of {context:,} tokens{users}"
    return f"; at most {at_once}, or {most['context']:,} tokens of context"


def job(found: Answer) -> str:
    """The job in a line."""
    asked, model = found["job"], found["model"]
    size = f"{_count(model['parameters'])} parameters"
    if model["active_parameters"] < 0.5 * model["parameters"]:
        size += f" ({_count(model['active_parameters'])} a token)"
    sequences = f"{asked['batch']} × {asked['context']} tokens"
    if model["kind"] == "diffusion":
        side, images = model["image"], console.counted(asked["batch"], "images")
        made = f"{images} of {side} × {side}" if side else console.counted(asked["batch"], "videos")
        return f"{size}, {made} with weights in {asked['weights']}"
    if asked["kind"] == "inference":
        why = f" ({asked['weights_text']})" if asked.get("weights_text") else ""
        return f"{size}, inference in {asked['weights']}{why} by {asked['engine']}, {sequences}"
    kind = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA"}[asked["kind"]]
    return f"{size}, {kind} in {asked['precision']} with {asked['optimizer']}, {sequences} a step"


def _memory(found: Answer, width: int) -> None:
    """Its parts with bars: the room of the card is the whole width."""
    most = max(found["room"], found["needed"]["value"])
    rows = []
    for part in [*found["memory"], found["needed"]]:
        bar = "█" * round(_BAR * part["value"] / most)
        text = "" if part is found["needed"] else part["text"]
        rows.append((part["name"], gib(part["value"]), f"{bar:<{_BAR}}", text))
    console.out(console.table(rows, ("memory of a card", "", "", ""), width=width))


def other_cards(heading: str, offers: Sequence[Option], gpu: str, width: int) -> None:
    """What else the job fits on, and for how much."""
    if len(offers) < 2:
        return
    rows = options(offers, gpu)
    console.out(console.table(rows, (heading, *OFFERS), width=width))
    if (left := len(offers) - len(rows)) > 0:
        console.out(f"  and {console.counted(left, 'more cards')} (--json shows them)")


#: The headings of other cards, behind their names: USD an hour, and for a million tokens.
OFFERS = ("a card", "USD/h", "M tokens", "layout")


def options(offers: Sequence[Option], gpu: str) -> list[tuple[str, ...]]:
    """The cells of cards that the job fits on: the chosen ones, and those with the cheapest tokens."""
    chosen = [each for each in offers if each["gpu"] == gpu]
    return [option(each) for each in [*chosen, *(each for each in offers if each["gpu"] != gpu)][:_FEW]]


def option(each: Option) -> tuple[str, ...]:
    """The cells of cards that the job fits on."""
    room = f"{each['bytes_per_card'] / GIB:,.1f} of {gib(each['room_per_card'])}"
    price = each["price"]
    hour = f"{price['usd_hour']:,.2f}" if price else ""
    tokens = usd(price["usd_million"]) if price and price["usd_million"] else ""
    tight = "" if each["fits"] == "yes" else f", {_FITS[each['fits']][0]}"
    return f"{each['cards']} × {each['gpu']}", room, hour, tokens, each["layout"] + tight


def change(each: Change) -> tuple[str, ...]:
    """The cells of another choice, with whether the job fits then."""
    return each["change"], gib(each["bytes_per_card"]), _FITS[each["fits"]][0], each["option"]


def spread(row: Figure) -> str:
    """A figure with its unit, and what it may be as well."""
    low, value, high = (_short(row[key]) for key in ("low", "value", "high"))
    return f"{value} {row['unit']}" if low == high else f"{value} {row['unit']} ({low} to {high})"


def _short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _count(parameters: float) -> str:
    unit, name = next((each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if parameters >= each[0]), (1, ""))
    return f"{parameters / unit:.3g} {name}".rstrip()


def _between(row: Figure) -> str:
    return f"between {gib(row['low'])} and {gib(row['high'])}"


def gib(count: float) -> str:
    """Bytes in powers of two, as cards have them."""
    return f"{count / 2**20:.3g} MiB" if 0 < count < 0.05 * GIB else f"{count / GIB:,.1f} GiB"


def _mark(row: Figure, sources: show.Sources) -> str:
    return sources.mark({"rule": row["name"], "text": "", "source": row["source"]}) if "source" in row else ""
