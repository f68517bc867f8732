# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The links of NVLink, by `nvidia-smi nvlink -s`: how many of each card are up.

https://docs.nvidia.com/deploy/nvidia-smi/ (nvlink); what it says where no link is up: NVIDIA/open-gpu-kernel-modules issue 1150.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, NamedTuple

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts


class Links(NamedTuple):
    """The links of one card."""

    active: int
    inactive: int


_CARD = re.compile(r"^GPU (\d{1,3}): ", re.ASCII)
_ACTIVE = re.compile(r"^[ \t]+Link \d{1,3}: \d[\d.]{0,9} GB/s", re.ASCII)
_INACTIVE = re.compile(r"^[ \t]+Link \d{1,3}: <inactive>", re.ASCII)
#: In place of all links of a card; how it is spelled differs between drivers. How many links it has is not said.
_ALL_INACTIVE = "all links are inactive"


def parse(text: str) -> Dict[int, Links]:
    """The links by the card's index; a card without NVLink is not there."""
    found: Dict[int, Links] = {}
    index = None
    for line in text.splitlines():
        card = _CARD.match(line)
        if card:
            index = int(card.group(1))
        if card or index is None:
            continue
        active, inactive = bool(_ACTIVE.match(line)), bool(_INACTIVE.match(line))
        if active or inactive or _ALL_INACTIVE in line.lower():
            known = found.get(index, Links(0, 0))
            found[index] = Links(known.active + active, known.inactive + inactive)
    return found


def look(host: Host, facts: Facts) -> Dict[int, Links]:
    """The links of this machine's cards. Nothing where nvidia-smi did not answer in the look, and of a card that is parted: by MIG its
    links are off.
    """
    smi, program = facts["smi"], facts["driver"]["nvidia_smi"]
    if smi is None or smi["data"] is None or program is None:
        return {}
    whole = {card["index"] for card in smi["data"]["gpus"] if not card["mig"]["current"]}
    said = host.run([program, "nvlink", "-s"])
    return {index: links for index, links in parse(said.out).items() if index in whole} if said.ok else {}
