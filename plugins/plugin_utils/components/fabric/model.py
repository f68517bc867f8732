# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the fabric that the machine's firewall lets in."""

from __future__ import annotations

from typing import TypedDict


class Fabric(TypedDict):
    """The nodes that the machine's firewall lets in, and to which ports."""

    networks: list[str]
    tcp: str
    """Ports that jobs listen on: one, or the first and the last of a range"""
    udp: str
    """Port of RoCE v2"""


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    fabric: Fabric
