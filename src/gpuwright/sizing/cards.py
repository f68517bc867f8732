"""A card as sizing needs it: memory, bandwidth, what its tensor cores reach, and how it is tied to others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from gpuwright.sizing import tables
from gpuwright.sizing.units import GB, GIB, TERA

#: What the driver and ECC keep of the memory that a card is sold with: of an H100's 80 GiB PyTorch has 79.1.
KEPT_BACK = 0.012
#: Bytes a second that a lane of PCIe gives, one way, by generation.
_LANE = {2: 0.5 * GB, 3: 0.985 * GB, 4: 1.969 * GB, 5: 3.938 * GB, 6: 7.5 * GB}
#: Cards of one machine, at most.
IN_A_MACHINE = 8


@dataclass(frozen=True)
class Card:
    """Attributes in bytes, bytes a second, FLOPs a second and watts; 0 where nobody says."""

    name: str
    architecture: str
    kind: str
    memory: float
    bandwidth: float
    power: float
    nvlink: float
    lanes: int = 16
    generation: int = 3
    tflops: dict[str, float] = field(default_factory=dict, hash=False)

    @property
    def room(self) -> float:
        """Bytes that a job may have."""
        return self.memory * (1 - KEPT_BACK)

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

    def link(self, cards: int) -> float:
        """Bytes a second to the next card, one way, where a job has so many: NVLink or PCIe in a machine, the network between machines."""
        if cards <= IN_A_MACHINE:
            return self.nvlink / 2 or self.pcie * 0.8
        return min(network(self)["value"] / 8 * GB, self.nvlink / 2 or self.pcie)


def network(card: Card) -> tables.Row:
    """The rule for the network between machines, in Gb/s: of each card where machines are made for it, else of the machine."""
    if card.kind != "datacenter":
        return tables.rule("network_host")
    return tables.rule("network_card_h100" if card.architecture in ("Hopper", "Blackwell") else "network_card_a100")


@lru_cache(maxsize=1)
def known() -> dict[str, Card]:
    """Every card whose memory and bandwidth are known, by its name."""
    more = {row["name"]: row for row in tables.load()["cards"]["rows"]}
    found = {}
    for row in tables.load()["gpus"]["rows"]:
        name = row["name"]
        if not row["memory_gb"] or not row["bandwidth_gbs"]:
            continue
        extra = more.get(name, {})
        slot = extra.get("pcie", {})
        found[name] = Card(
            name=name,
            architecture=row["architecture"],
            kind=row.get("form") or row["class"],
            memory=row["memory_gb"] * GIB,
            bandwidth=row["bandwidth_gbs"] * GB,
            power=row["tdp_w"] or 0.0,
            nvlink=(row["nvlink_gbs"] or 0.0) * GB,
            lanes=slot.get("lanes", 16),
            generation=slot.get("generation", 3),
            tflops=dict(extra.get("tflops", {})),
        )
    return found
