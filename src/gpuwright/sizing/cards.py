"""A card as sizing needs it: memory, bandwidth, what its tensor cores reach, and how it is tied to others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from gpuwright.errors import BadInput
from gpuwright.sizing import tables
from gpuwright.sizing.units import GB, GIB, TERA

#: What the driver and ECC keep of the memory that a card is sold with: of an H100's 80 GiB PyTorch has 79.1.
KEPT_BACK = 0.012
#: Share of GDDR memory that error correction takes where it is on (CUDA C++ Best Practices Guide, effects of ECC).
_CORRECTION = 1 / 16
#: Bytes a second that a lane of PCIe gives, one way, by generation.
_LANE = {2: 0.5 * GB, 3: 0.985 * GB, 4: 1.969 * GB, 5: 3.938 * GB, 6: 7.5 * GB}
#: Bytes from which on a card is tried where nobody names one.
SMALLEST = 12 * GIB
#: Cards of one machine, at most.
IN_A_MACHINE = 8
#: How many of a card, before its name: `2x 3090`.
_MANY = re.compile(r"^\s*(\d{1,4})\s*[x×*]\s*(?=\S)", re.IGNORECASE)
#: The memory in a name: `16gb`, `80 GB`, `80g`.
_MEMORY = re.compile(r"(?<![\w.])(\d{1,3})\s*g(?:i?b)?(?!\w)", re.IGNORECASE)
#: The memory in a name of the tables.
_SOLD = re.compile(r" \d+GB$")
#: What tells cards of one name apart, beside their memory: how they are put into a machine.
_FORM = re.compile(r"\b(?:\d+GB|SXM\d?|PCIe)\b")


@dataclass(frozen=True)
class Card:
    """Attributes in bytes, bytes a second, FLOPs a second and watts; 0 where nobody says.

    `board`: GPUs on the board that is sold. `ecc`: whether error correction takes some of the memory that it is sold with.
    """

    name: str
    architecture: str
    kind: str
    memory: float
    bandwidth: float
    power: float
    nvlink: float
    lanes: int = 16
    generation: int = 3
    board: int = 1
    ecc: bool = False
    tflops: dict[str, float] = field(default_factory=dict, hash=False)

    @property
    def room(self) -> float:
        """Bytes that a job may have."""
        return self.shown * (1 - KEPT_BACK)

    @property
    def shown(self) -> float:
        """Bytes that nvidia-smi shows, about."""
        return self.memory * (1 - _CORRECTION if self.ecc else 1)

    def peak(self, precision: str) -> float:
        """FLOPs a second of the tensor cores, dense; of the next wider precision where they have none of this one; 0 where nobody says."""
        wider = {"fp4": "fp8", "fp8": "bf16", "int8": "bf16", "bf16": "fp16", "fp16": "fp32", "tf32": "fp32"}
        name: str | None = precision
        while name and name not in self.tflops:
            name = wider.get(name)
        return self.tflops[name] * TERA if name else 0.0

    @property
    def pcie(self) -> float:
        """Bytes a second of its slot, one way."""
        return self.lanes * _LANE.get(self.generation, _LANE[3])

    def link(self, cards: int, in_host: int = IN_A_MACHINE) -> float:
        """Bytes a second to the next card, one way, where a job has so many: NVLink or PCIe in a machine, the network between machines."""
        if cards <= in_host:
            return self.nvlink / 2 or self.pcie * 0.8
        return min(network(self)["value"] / 8 * GB, self.nvlink / 2 or self.pcie)


def network(card: Card) -> tables.Row:
    """The rule for the network between machines, in Gb/s: of each card where machines are made for it, else of the machine."""
    if card.kind != "datacenter":
        return tables.rule("network_host")
    return tables.rule("network_card_h100" if card.architecture in ("Hopper", "Blackwell") else "network_card_a100")


@cache
def usual() -> tuple[str, ...]:
    """The cards that people choose from where they name none: all from 12 GB on, but for those that a laptop has inside."""
    return tuple(name for name, card in known().items() if card.memory >= SMALLEST and card.kind != "laptop")


@cache
def known() -> dict[str, Card]:
    """Every card whose memory and bandwidth are known, by its name; one that is sold with more memory too has that in its name."""
    more = {row["name"]: row for row in tables.load()["cards"]["rows"]}
    found = {}
    for row in tables.load()["gpus"]["rows"]:
        if not row["memory_gb"] or not row["bandwidth_gbs"]:
            continue
        extra = more.get(row["name"], {})
        card = _card(row, extra)
        found[card.name] = card
        for size in extra.get("memories", ()):
            if size != row["memory_gb"]:
                name = f"{_SOLD.sub('', card.name)} {size}GB"
                found[name] = replace(card, name=name, memory=size * GIB)
    return found


def _card(row: tables.Row, extra: tables.Row) -> Card:
    slot = extra.get("pcie", {})
    return Card(
        name=row["name"],
        architecture=row["architecture"],
        kind=row.get("form") or row["class"],
        memory=row["memory_gb"] * GIB,
        bandwidth=row["bandwidth_gbs"] * GB,
        power=row["tdp_w"] or 0.0,
        nvlink=(row["nvlink_gbs"] or 0.0) * GB,
        lanes=slot.get("lanes", 16),
        generation=slot.get("generation", 3),
        board=extra.get("board", 1),
        ecc=extra.get("ecc", False),
        tflops=dict(extra.get("tflops", {})),
    )


# what a person calls them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Called:
    """What a person means by the name of a card.

    Attributes:
        cards: it, and those of the same name with another memory, the smallest first.
        count: how many, where the name says it; else 0.
        text: what is odd about it; nothing where nothing is.
        mixed: whether it stands for cards of several kinds.
    """

    cards: tuple[Card, ...]
    count: int = 0
    text: str = ""
    mixed: bool = False


def called(text: str, identify: Callable[[str], str]) -> Called:
    """The card that a person writes: the memory in its name counts, and a number before it.

    Args:
        text: `4060 ti 16gb`, `a100`, `2x 3090`.
        identify: the rules' name of a card as it is written, without memories that the rules do not know.

    Raises:
        BadInput: it is not known, or nobody says how much memory it has.
    """
    many = _MANY.match(text)
    count, name = (int(many[1]), text[many.end() :]) if many else (0, text)
    size = _MEMORY.search(name)
    if size:
        name = f"{name[: size.start()].strip()} {size[1]}GB {name[size.end() :].strip()}".strip()
    alike = _alike(identify(name), name)
    if size is None:
        return Called(alike, count)
    wanted = [card for card in alike if card.memory == int(size[1]) * GIB]
    if wanted:
        return Called((wanted[0],), count)
    nearest = alike[-1]
    sold = " and ".join(f"{card.memory / GIB:.0f}" for card in alike)
    odd = f"one with {size[1]} GB is modified, or the tables do not know it; its speed is taken from this one"
    text = f"{nearest.name} is sold with {sold} GB: {odd}"
    return Called((replace(nearest, memory=int(size[1]) * GIB),), count, text)


def _alike(name: str, asked: str) -> tuple[Card, ...]:
    """The card of a name and those that differ in memory alone, the smallest first: of those with as much, the one that is asked for."""
    family = _FORM.sub("", name).split()
    named = {word.lower() for word in _FORM.findall(asked.upper().replace("PCIE", "PCIe")) if not word.endswith("GB")}
    same = [card for card in known().values() if _FORM.sub("", card.name).split() == family]
    if not same:
        # The rules know more cards than those whose memory is known: one of these may have all words of the name too.
        words = set(re.findall(r"[a-z0-9]+", _MEMORY.sub("", asked).lower()))
        same = [card for card in known().values() if words <= set(re.findall(r"[a-z0-9]+", card.name.lower()))]
    formed = [card for card in same if all(word in card.name.lower() for word in named)] or same
    found: dict[float, Card] = {}
    for card in sorted(formed, key=lambda each: (each.memory, "PCIe" in each.name)):
        found.setdefault(card.memory, card)
    if not found:
        raise BadInput(f"the tables do not know the memory and the bandwidth of {name}", ["name a card near to it"])
    return tuple(found.values())


def mixture(cards: Sequence[Card]) -> Card:
    """Cards of several kinds as so many of one: layers are laid on each by its memory, and computed one card after the other."""
    whole = sum(card.shown for card in cards)
    slowest = min(cards, key=lambda card: card.pcie)

    def one_after_the_other(rates: Iterator[float]) -> float:
        return 1 / sum(card.shown / whole / rate for card, rate in zip(cards, rates, strict=True))

    # Where nobody says what one of them computes, nobody says it of all.
    precisions = {name for card in cards for name in card.tflops if all(each.peak(name) for each in cards)}
    return replace(
        slowest,
        name=" + ".join(card.name for card in cards),
        memory=whole / len(cards),
        bandwidth=one_after_the_other(card.bandwidth for card in cards),
        power=sum(card.power for card in cards) / len(cards),
        nvlink=0.0,
        board=1,
        ecc=False,
        tflops={name: one_after_the_other(card.peak(name) for card in cards) / TERA for name in precisions},
    )
