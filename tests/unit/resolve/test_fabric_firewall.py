"""The firewall for the fabric: the wish for its networks and ports, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, wish

from .conftest import Resolve
from .test_firewall import tool

NET = "10.2.0.0/24"
UNSEEN: Any = {"firewall": None}


def seen(*tools: Any, others: Any = ()) -> Any:
    return nodes.provisioned(firewall={"tools": list(tools), "others": list(others)})


def made(facts: Any, **variables: Any) -> Any:
    return plan(facts, wish(gpuwright_want=["driver=580"], **{"fabric_firewall": [NET], **variables}))


def said(planned: Any, rule: str = "firewall") -> list[str]:
    return [row["text"] for row in planned["why"] + planned["warnings"] if row["rule"] == f"fabric.{rule}"]


@pytest.mark.parametrize(
    ("variables", "networks"),
    [
        ({"fabric_firewall": [NET, "FD00:1::/64", NET]}, (NET, "fd00:1::/64")),
        ({"gpuwright_want": [f"fabric={NET}"]}, (NET,)),
        ({"gpuwright_want": [f"fabric={NET}, fd00:1::/64"]}, (NET, "fd00:1::/64")),
        ({"gpuwright_want": [f"fabric={NET}"], "fabric_firewall": ["10.3.0.0/24"]}, (NET,)),
        ({"fabric_firewall": []}, ()),
        ({"fabric_firewall": ""}, ()),
        ({"fabric_ports": "50000-51000"}, ()),
        ({"fabric_firewall": ["10.0.0.0/8", "fc00::/7"]}, ("10.0.0.0/8", "fc00::/7")),
    ],
)
def test_the_networks_of_a_fabric_are_wished_by_name_or_by_variable(variables: Any, networks: tuple[str, ...]) -> None:
    assert Wish.from_variables(variables).fabric == networks


def test_the_ports_of_the_inventory_stay_beside_networks_of_the_command_line() -> None:
    asked = Wish.from_variables({"gpuwright_want": [f"fabric={NET}"], "fabric_ports": "50000-51000"})
    assert (asked.fabric, asked.fabric_ports) == ((NET,), "50000-51000")


def test_rules_are_looked_at_only_where_a_firewall_may_be_opened() -> None:
    opening: list[Any] = [{"fabric_firewall": [NET]}, {"gpuwright_want": ["monitoring"]}]
    assert all(Wish.from_variables(variables).opens_firewall for variables in opening)
    assert not Wish.from_variables({"gpuwright_want": ["driver"], "fabric_ports": 29500}).opens_firewall


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/7", "2000::/3"])
def test_everybody_is_refused_with_the_reason(network: str) -> None:
    for variables in ({"fabric_firewall": [NET, network]}, {"gpuwright_want": [f"fabric={network}"]}):
        with pytest.raises(BadInput, match="wider than any private network, and whoever reaches the sockets of NCCL"):
            Wish.from_variables(variables)


@pytest.mark.parametrize(
    "want", ["fabric", "fabric=", "fabric=auto", "fabric=10.0.0.5/8", "fabric>=10.0.0.0/8", "fabric=10.0.0.0/8,"]
)
def test_a_want_without_networks_is_bad_input(want: str) -> None:
    with pytest.raises(BadInput):
        Wish.from_variables({"gpuwright_want": [want]})


def test_an_address_for_everybody_is_not_proposed() -> None:
    with pytest.raises(BadInput) as raised:
        Wish.from_variables({"fabric_firewall": ["0.0.0.0"]})  # noqa: S104 - refused
    assert not [each for each in raised.value.suggestions if "/0" in each]


@pytest.mark.parametrize(
    ("value", "ports"),
    [(None, None), ("", None), ("50000-51000", "50000-51000"), (29500, "29500"), (" 1024-1024 ", "1024")],
)
def test_ports_are_read(value: Any, ports: str | None) -> None:
    assert Wish.from_variables({"fabric_firewall": [NET], "fabric_ports": value}).fabric_ports == ports


@pytest.mark.parametrize(
    "value",
    [
        0,
        22,
        "1-65535",
        "1023-2000",
        "2000-1999",
        "1024-65536",
        "1024:2000",
        "all",
        True,
        False,
        [1024],
        "-1024",
        "1024-",
        "٢٠٠٠",
    ],
)
def test_what_is_no_range_of_ports_is_bad_input(value: Any) -> None:
    with pytest.raises(BadInput, match="fabric_ports: expected a port or a range of them from 1024 to 65535"):
        Wish.from_variables({"fabric_firewall": [NET], "fabric_ports": value})


def test_it_is_told_for_whom_what_is_opened() -> None:
    planned = made(seen(tool("firewalld", active=False), tool("ufw")), fabric_firewall=[NET, "fd00:1::/64"])
    assert said(planned) == [f"TCP 1024-65535 and UDP 4791 opened in ufw for {NET}, fd00:1::/64 alone"]
    assert planned["stack"]["fabric"] == {"networks": [NET, "fd00:1::/64"], "tcp": "1024-65535", "udp": "4791"}
    assert (said(planned, "public"), said(planned, "ports")) == ([], [])


def test_a_narrow_range_is_told_with_what_it_asks_of_jobs() -> None:
    planned = made(seen(tool("ufw")), fabric_ports="50000-51000")
    assert said(planned) == [f"TCP 50000-51000 and UDP 4791 opened in ufw for {NET} alone"]
    assert "net.ipv4.ip_local_port_range" in said(planned, "ports")[0]


def test_rules_of_others_are_told_and_left() -> None:
    planned = made(seen(others=["nftables"]))
    nothing = f"nothing to open for {NET} (TCP 1024-65535 and UDP 4791): neither firewalld nor ufw is active"
    left = f"the rules of nftables are left as they are, and may have to let {NET} in"
    assert said(planned) == [f"{nothing}; {left}"]
    assert said(made(nodes.provisioned(**UNSEEN)))[0].startswith("it is not known which firewall to open")


def test_public_addresses_are_warned_of() -> None:
    planned = made(seen(tool("ufw")), fabric_firewall=["8.8.8.0/24", NET, "100.64.0.0/10"])
    assert said(planned, "public")[0].startswith("of public addresses: 8.8.8.0/24; whoever reaches")
    assert planned["ok"]


def test_a_ufw_without_ipv6_is_refused_such_a_network() -> None:
    (found,) = made(seen(tool("ufw", ipv6=False)), fabric_firewall=["fd00::/8"])["conflicts"]
    assert "ufw takes no rules for IPv6, and fabric_firewall names fd00::/8" in found["text"]


def test_without_a_card_nothing_is_opened(resolve: Resolve) -> None:
    answer = resolve([], "ubuntu-24.04", f"fabric={NET}", "lmdb")
    assert "fabric" not in answer["stack"]
    assert "no NVIDIA GPU: fabric left out" in [each["text"] for each in answer["warnings"]]
    assert "fabric" not in resolve("H100", "ubuntu-24.04", "driver")["stack"]
