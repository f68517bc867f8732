# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is measured between hosts: what each brings to it, who is measured with whom, and what each is told for that. Pure.

Hosts are measured by pairs first, all pairs of a round at the same time, and then all together that came together with somebody. A pair
tells which host is at fault, all together tell what a job over all of them would get.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..components.base import Context
from ..components.frameworks.model import FrameworkEnvironment
from ..wish.reading import is_yes

#: Where the first host of a group listens for the others, by itself: PyTorch's own (torchrun, "--master-port").
PORT = 29500
#: Rounds of pairs. Up to eight hosts all pairs are measured. Of more each host meets seven others, which is enough to tell a slow host
#: from a slow partner (assumed): all pairs of 500 hosts would take hours.
MOST_ROUNDS = 7
#: Seconds that a pair is measured, and all hosts together.
_PAIR_SECONDS = 10
_TOGETHER_SECONDS = 30
#: Seconds that a host waits for the others to come, by itself: a first import of PyTorch from a slow disk takes a minute and more (module
#: framework_load, ``startup``), and the others are asked one after the other.
PATIENCE = 180
#: Seconds that a process may take until it has imported PyTorch (module_utils/measure/fabric_load, ``STARTUP``).
_STARTUP = 180
#: Seconds in which the module surely comes to its end after all of its limits.
_AFTER = 120


class Given(TypedDict):
    """What the variables of the role `validate` say of it.

    ``port``: of the first host. ``interface``: empty for that of the route. ``patience``: seconds that a host waits for the others.
    """

    asked: bool
    port: int
    interface: str
    patience: int


class Own(TypedDict):
    """What a host brings: the interpreter of its environment, and its cards or one process on the processor."""

    python: str
    ranks: int
    expect_cuda: bool
    busy: bool
    port: int
    interface: str
    patience: int
    environment: dict[str, str]


class Member(Own):
    """The same with where the others find it."""

    address: str


class Part(TypedDict):
    """What a host is told for one group (options of fabric_load), and with whom it is."""

    python: str
    address: str
    port: int
    first_rank: int
    expected_ranks: int
    ranks: int
    seconds: int
    patience: int
    limit: int
    interface: str
    busy: bool
    expect_cuda: bool
    environment: dict[str, str]
    hosts: list[str]


class Round(TypedDict):
    """What is measured at the same time. ``parts``: by host."""

    name: str
    parts: dict[str, Part]


def asked(variables: Mapping[str, object]) -> Given:
    """What is said of the fabric, in variables of the role `validate`, which were checked by its argument specs."""
    return {
        "asked": is_yes(variables.get("validate_fabric")),
        "port": int(str(variables.get("validate_fabric_port") or PORT)),
        "interface": str(variables.get("validate_fabric_interface") or ""),
        "patience": int(str(variables.get("validate_fabric_patience") or PATIENCE)),
    }


def own(
    context: Context, given: Given, libraries: Mapping[str, dict[str, str]], *, cards: int, busy: bool
) -> Own | None:
    """What this host brings; None where it has no environment that can.

    Args:
        context: the node, with its stack.
        given: what the variables say.
        libraries: by environment, the variables of a task by which its libraries are found first.
        cards: how many of its cards compute; none on a machine of which the processor is measured.
        busy: whether cards are used on which others compute.
    """
    found = environments(context)
    environment = next((each for each in found if each.get("cuda") and cards), next(iter(found), None))
    if environment is None:
        return None
    with_cards = bool(environment.get("cuda")) and cards > 0
    return {
        "python": f"{environment['path']}/bin/python",
        "ranks": cards if with_cards else 1,
        "expect_cuda": with_cards,
        "busy": busy,
        "port": given["port"],
        "interface": given["interface"],
        "patience": given["patience"],
        "environment": libraries.get(environment["name"], {}),
    }


def environments(context: Context) -> list[FrameworkEnvironment]:
    """The environments of the node that bring what measures between hosts."""
    return [each for each in context.stack.get("frameworks") or () if ABOUT[each["name"]].loads]


def pairs(members: Mapping[str, Member]) -> list[Round]:
    """The rounds of pairs. In each of them a host is in one pair, or rests where their number is odd."""
    rounds = _rounds(sorted(members))
    return [
        {
            "name": f"pairs, {number} of {len(rounds)}",
            "parts": {
                host: part
                for pair in of_round
                for host, part in _parts(pair, members, number - 1, _PAIR_SECONDS).items()
            },
        }
        for number, of_round in enumerate(rounds, 1)
    ]


def together(members: Mapping[str, Member], able: Collection[str]) -> list[Round]:
    """The round of all hosts that are able to; none where there are only two, which are a pair already."""
    hosts = sorted(set(members) & set(able))
    if len(hosts) < 3:
        return []
    return [{"name": f"all {len(hosts)} together", "parts": _parts(hosts, members, MOST_ROUNDS, _TOGETHER_SECONDS)}]


def _rounds(hosts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Who meets whom, by the circle method of tournaments: one stays, the others go on by one place each round."""
    if len(hosts) < 2:
        return []
    ring: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    count = len(ring) - 1
    chosen = range(count) if count <= MOST_ROUNDS else [number * count // MOST_ROUNDS for number in range(MOST_ROUNDS)]
    found = []
    for turn in chosen:
        turned = [ring[0], *ring[1 + turn :], *ring[1 : 1 + turn]]
        of_round = zip(turned[: len(turned) // 2], reversed(turned[len(turned) // 2 :]), strict=True)
        found.append([(first, second) for first, second in of_round if first is not None and second is not None])
    return found


def _parts(hosts: Sequence[str], members: Mapping[str, Member], turn: int, seconds: int) -> dict[str, Part]:
    """What each host of a group is told. Each round has a port of its own: what is left of one disturbs no other."""
    first = members[hosts[0]]
    found: dict[str, Part] = {}
    before = 0
    every = sum(members[host]["ranks"] for host in hosts)
    for host in hosts:
        mine = members[host]
        found[host] = {
            "python": mine["python"],
            "address": first["address"],
            "port": first["port"] + turn,
            "first_rank": before,
            "expected_ranks": mine["ranks"],
            "ranks": every,
            "seconds": seconds,
            "patience": mine["patience"],
            # More than the module takes at most, which ends what it started by itself.
            "limit": _STARTUP + mine["patience"] + 4 * seconds + _AFTER,
            "interface": mine["interface"],
            "busy": mine["busy"],
            "expect_cuda": mine["expect_cuda"],
            "environment": mine["environment"],
            "hosts": list(hosts),
        }
        before += mine["ranks"]
    return found
