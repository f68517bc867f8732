# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the cards of a host are held against under load, by the tables of compat/: data sheets and floors, as framework_load takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..rules import Row, Rules, gpus

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PciGpu
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_judge import Expected, Floor

#: GB/s of one lane and direction by generation of PCIe: its rate of transfer less the encoding (8b/10b, from 3 on 128b/130b; 6 sends flits
#: of 242 of 256 bytes). PCI Express Base Specification 6.0, 1.2 and 4.2.
LANE = {1: 0.25, 2: 0.5, 3: 8 * 128 / 130 / 8, 4: 16 * 128 / 130 / 8, 5: 32 * 128 / 130 / 8, 6: 64 * 242 / 256 / 8}


def expected(cards: Iterable[PciGpu], rules: Rules) -> list[Expected]:
    """The option ``expected`` of framework_load: an entry for each card whose model is known."""
    found = []
    for card in cards:
        row = gpus.by_pci(card["device"], rules)
        if row is not None:
            found.append(_of_card(card["bus_id"], row, rules))
    return found


def _of_card(bus_id: str, row: Row, rules: Rules) -> Expected:
    name = str(row["name"])
    figures: Row = next((each for each in rules["figures"]["rows"] if each["name"] == name), {})
    slot = figures.get("pcie")
    lane = LANE.get(slot["generation"]) if slot else None
    floors: list[Floor] = [
        {
            "what": floor["what"],
            "value": floor["value"],
            "cards": floor["together"],
            "confirmed": floor["confirmed"],
            "source": ", ".join(rules["floors"]["sources"][source]["title"] for source in floor["source"]),
        }
        for floor in rules["floors"]["rows"]
        if name in floor["cards"]
    ]
    return {
        "bus_id": bus_id,
        "name": name,
        "tflops": figures.get("tflops", {}),
        "bandwidth_gbs": row["bandwidth_gbs"],
        "nvlink_gbs": row["nvlink_gbs"],
        "pcie_gbs": round(lane * slot["lanes"], 2) if lane and slot else None,
        "floors": floors,
    }
