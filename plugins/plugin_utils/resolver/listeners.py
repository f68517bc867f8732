# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whose an address and a port are, by what listens on a machine: as the resolver asks it where something of ours shall listen."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Listener

    from .machine import Machine


def meets(listener: Listener, address: str, port: int) -> bool:
    """Say whether what listens is in the way of an address and a port."""
    theirs, ours = ipaddress.ip_address(listener["address"]), ipaddress.ip_address(address)
    theirs = getattr(theirs, "ipv4_mapped", None) or theirs
    # An IPv6 socket for all addresses takes those of IPv4 too.
    over_all = theirs.is_unspecified and theirs.version in (ours.version, 6)
    return listener["port"] == port and (theirs == ours or over_all or ours.is_unspecified)


def at(machine: Machine, address: str, port: int) -> list[Listener]:
    """Return what listens there; nothing where nobody looked."""
    seen = machine.monitoring["listeners"] if machine.monitoring else []
    return [each for each in seen if meets(each, address, port)]


def is_of(listener: Listener, unit: str, machine: Machine) -> bool:
    """Say whether it is a unit that listens."""
    # In a container root does not see whose a socket is. While the unit runs, nobody else can have its place.
    return unit in machine.running if listener["process"] is None else listener["unit"] == unit


def name(listener: Listener) -> str:
    """Return who listens, for a person."""
    process, unit = listener["process"], listener["unit"]
    if process and unit:
        return f"{process} ({unit})"
    return process or f"a program of the user {listener['user']}"


def place(address: str, port: int) -> str:
    """Return where something listens, for a person and for programs."""
    return f"{addresses.bracketed(address)}:{port}"
