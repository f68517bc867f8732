# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What one host of an inventory says to another one that asks it for metrics."""

from __future__ import annotations

from typing import NamedTuple


class Exporters(NamedTuple):
    """What a host of the inventory tells, and where.

    address: where the server asks; None where they listen for their own host alone, and that is another one. gpu_port: None where the
    inventory says that it has no card.
    """

    host: str
    address: str | None
    gpu_port: int | None
    node_port: int
    tls: bool
    users: bool
