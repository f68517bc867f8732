# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks of a wish, as the machine's firewall is opened for them."""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.errors import BadInput
from .reading import AUTO

_NETWORK = lazy(r"[0-9A-Fa-f.:]+(/\d{1,3})?", re.ASCII)
_MOST = 50
#: By version of IP, the bits of the widest private network: 10.0.0.0/8 (RFC 1918, chapter 3) and fc00::/7 (RFC 4193, chapter 3).
_WIDEST = {4: 8, 6: 7}


def read(value: object, name: str, danger: str = "") -> tuple[str, ...]:
    """Return the networks of a list, each once. ``name``: of the variable. ``danger``: why everybody is not let in: with it no network is
    taken that is wider than any private one. Raises BadInput for what is none.
    """
    if value in (*AUTO, []):
        return ()
    example = [f"{name}: [10.0.0.0/8, 'fd00::/8']"]
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name}: expected a list of networks, found {value!r}", example)
    if len(value) > _MOST:
        raise BadInput(f"{name}: expected at most {_MOST} networks, found {len(value)}", example)
    return tuple(dict.fromkeys(_network(each, name, danger, example) for each in value))


def _network(value: object, name: str, danger: str, example: list[str]) -> str:
    text = f"{name}: expected a network such as 10.0.0.0/8, found {value!r}"
    if not isinstance(value, str) or not _NETWORK.fullmatch(value):
        raise BadInput(text, example)
    try:
        network = ipaddress.ip_network(value)
    except ValueError as error:
        raise BadInput(f"{text} ({error})", example) from None
    # An address of every interface is no machine that asks: whoever means all of them writes their network.
    if network.network_address.is_unspecified and network.prefixlen == network.max_prefixlen:
        everybody = [] if danger else [f"{name}: ['{network.network_address}/0'] for everybody"]
        raise BadInput(text, [*example, *everybody])
    if danger and network.prefixlen < _WIDEST[network.version]:
        raise BadInput(f"{name}: {network} is wider than any private network, and {danger}", example)
    return str(network)
