"""The networks for which the firewall is opened: the wish, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

from .test_monitoring import exporters, listener, made, seen, why

ADDRESS = "10.0.0.5"


def tool(name: str, *rules: Any, active: bool = True, ipv6: bool = True) -> Any:
    return {"name": name, "active": active, "ipv6": ipv6, "rules": list(rules)}


def node(*tools: Any, others: Any = ()) -> Any:
    return seen(firewall={"tools": list(tools), "others": list(others)})


def said(facts: Any, *networks: str, rule: str = "firewall", **variables: Any) -> list[str]:
    return why(made(facts, monitoring_address=ADDRESS, monitoring_firewall=list(networks), **variables), rule)


@pytest.mark.parametrize(
    ("value", "networks"),
    [
        (None, ()),
        ("", ()),
        ([], ()),
        (["10.0.0.0/8", "10.0.0.0/8", "FD00::/8"], ("10.0.0.0/8", "fd00::/8")),
        (["10.1.2.3"], ("10.1.2.3/32",)),
        (["0.0.0.0/0", "::/0"], ("0.0.0.0/0", "::/0")),
    ],
)
def test_networks_are_read(value: Any, networks: tuple[str, ...]) -> None:
    wish = Wish.from_variables({"gpuwright_want": ["monitoring"], "monitoring_firewall": value})
    assert wish.monitoring_exporters_settings.firewall == networks


@pytest.mark.parametrize(
    "value",
    [
        "10.0.0.0/8",
        {"10.0.0.0/8": 1},
        ["10.0.0.5/8"],
        ["10.0.0.0/33"],
        ["10.0.0.0/0"],
        ["0.0.0.0"],  # noqa: S104 - refused
        ["::"],
        ["0.0.0.0/0.0.0.0"],
        ["0/0"],
        ["any"],
        [""],
        [0],
        [True],
        [None],
        ["10.0.0.0/8\n"],
        ["10.0.0.0/8; reboot"],
        ["fe80::1%eth0"],
        [f"10.0.{each}.0/24" for each in range(51)],
    ],
)
def test_what_is_no_network_is_bad_input(value: Any) -> None:
    with pytest.raises(BadInput, match="monitoring_firewall: expected"):
        Wish.from_variables({"gpuwright_want": ["monitoring"], "monitoring_firewall": value})


def test_nothing_is_told_and_nothing_opened_where_nobody_wished_it() -> None:
    assert said(node(tool("ufw"))) == []
    assert exporters(node(tool("ufw")))["firewall"] == []


def test_it_is_told_for_whom_which_port_is_opened() -> None:
    facts = node(tool("firewalld", active=False), tool("ufw"))
    assert said(facts, "10.0.0.0/8", "fd00::/8") == ["TCP 9400 and 9100 opened in ufw for 10.0.0.0/8, fd00::/8 alone"]
    assert exporters(facts, monitoring_firewall=["10.0.0.0/8"])["firewall"] == ["10.0.0.0/8"]
    theirs = seen(listener(9400, tells="gpu", address=ADDRESS), firewall={"tools": [tool("ufw")], "others": []})
    assert said(theirs, "10.0.0.0/8") == ["TCP 9100 opened in ufw for 10.0.0.0/8 alone"]


def test_without_an_active_firewall_there_is_nothing_to_open() -> None:
    nothing = "nothing to open for 10.0.0.0/8 (TCP 9400 and 9100): neither firewalld nor ufw is active"
    assert said(node(tool("ufw", active=False)), "10.0.0.0/8") == [nothing]
    assert said(node(others=["nftables"]), "10.0.0.0/8") == [
        f"{nothing}; the rules of nftables are left as they are, and may have to let 10.0.0.0/8 in"
    ]
    assert said(seen(firewall=None), "10.0.0.0/8") == [
        "it is not known which firewall to open for 10.0.0.0/8 (TCP 9400 and 9100)"
    ]


def test_everybody_and_nobody_are_warned_of() -> None:
    assert said(node(tool("ufw")), "0.0.0.0/0", rule="everybody") == [
        "the firewall is opened for everybody (0.0.0.0/0), as wished"
    ]
    assert said(node(tool("ufw")), "10.0.0.0/8", rule="everybody") == []
    loopback = made(node(tool("ufw")), monitoring_firewall=["10.0.0.0/8"])
    assert why(loopback, "unreachable") == [
        "the exporters listen on 127.0.0.1 alone: no network of monitoring_firewall reaches them"
    ]


def test_a_ufw_without_ipv6_is_refused_such_a_network() -> None:
    facts = node(tool("ufw", ipv6=False))
    (found,) = made(facts, monitoring_firewall=["fd00::/8"])["conflicts"]
    assert "ufw takes no rules for IPv6" in found["text"]
    assert exporters(facts, monitoring_firewall=["10.0.0.0/8"])["firewall"] == ["10.0.0.0/8"]
    assert exporters(node(tool("ufw", active=False, ipv6=False)), monitoring_firewall=["fd00::/8"])
