# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses that programs listen on."""

from __future__ import annotations

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not listened on


def within(address: str) -> str:
    """Where a program on the same machine asks for what listens on an address."""
    return _LOOPBACK.get(address, address)


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if ":" in address else address
