# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for a firewall that lets the nodes of a fabric in: their networks, and the ports that jobs listen on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish import networks
from ...wish.reading import AUTO, Variables, Words, equals, is_no


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the fabric: its networks, and the ports (1024-65535, or one)."""

    fabric: tuple[str, ...] = ()
    fabric_ports: str | None = None


_WANT = "fabric"
FIREWALL, PORTS = "fabric_firewall", "fabric_ports"
#: So PyTorch says of itself (SECURITY.md, "Using distributed features"); for NCCL a private network is what NVIDIA asks for
#: (github.com/NVIDIA/nccl/issues/680).
DANGER = "whoever reaches the sockets of NCCL and PyTorch may run code in a job, because they ask nobody who it is"
#: The first port that a program without root listens on (net.ipv4.ip_unprivileged_port_start), and the last one.
LOWEST, HIGHEST = 1024, 65535
_RANGE = lazy(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)


def _read_want(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read fabric=10.0.0.0/24, or several networks with commas between them."""
    del rules
    written = equals(spec, want)
    if written in AUTO:
        text = f"{want!r}: name the networks of the fabric, which alone are let in"
        raise BadInput(text, [f"{_WANT}=10.0.0.0/24", f"{_WANT}=10.0.0.0/24,fd00:1::/64"])
    values.update(fabric=networks.read([each.strip() for each in str(written).split(",")], _WANT, DANGER))


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    del rules
    wished = networks.read(variables.get(FIREWALL), FIREWALL, DANGER)
    if wished:
        values.update(fabric=wished)
    ports = variables.get(PORTS)
    # A number that is no port is a mistake, also one that counts as false.
    if not is_no(ports) or isinstance(ports, int):
        values.update(fabric_ports=_ports(ports))


def _ports(value: object) -> str:
    match = None if isinstance(value, bool) else _RANGE.fullmatch(str(value).strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not LOWEST <= first <= last <= HIGHEST:
        text = f"{PORTS}: expected a port or a range of them from {LOWEST} to {HIGHEST}, found {value!r}"
        raise BadInput(text, [f"{PORTS}: {LOWEST}-{HIGHEST}", f"{PORTS}: 50000-51000"])
    return str(first) if first == last else f"{first}-{last}"


_VARIABLES = (FIREWALL, PORTS)
WORDS = Words(
    "fabric",
    brings=("fabric",),
    readers={_WANT: _read_want},
    variables=_VARIABLES,
    of_host=_VARIABLES,
    read=_read_variables,
)
