"""The rules of the firewall for exporters: which lack, which are too many, and what is done about it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from tests.unit.plan import nodes
from tests.unit.plan.test_monitoring_exporters import checks, host, reasons, work
from tests.unit.resolve.test_firewall import tool

NET = "10.0.0.0/8"
WISH: dict[str, Any] = {"monitoring_firewall": [NET]}
RICH = 'rule priority="9400" family="{}" source address="{}" port port="{}" protocol="tcp" accept'


def rule(network: str, port: int, **changes: Any) -> Any:
    return {"network": network, "port": port, "ours": True, "permanent": True, "runtime": True, **changes}


def behind(*tools: Any) -> Any:
    return host(firewall={"tools": list(tools), "others": []})


BOTH = (rule(NET, 9400), rule(NET, 9100))


def test_a_firewall_that_is_open_as_wished_has_nothing_to_say() -> None:
    facts = behind(tool("ufw", *BOTH))
    assert (reasons(facts, **WISH), work(facts, **WISH)["firewall"]) == ([], [])
    assert checks(facts, **WISH)["firewall"] == ("pass", None)
    # Somebody else's rule serves too, and is nobody's to take away.
    theirs = behind(tool("ufw", BOTH[0], rule(NET, 9100, ours=False), rule("192.0.2.0/24", 9100, ours=False)))
    assert reasons(theirs, **WISH) == []
    assert "firewall" not in checks(behind(tool("ufw")))


def test_ufw_is_opened_and_closed_by_its_own_command() -> None:
    facts = behind(tool("ufw", rule(NET, 9400), rule("fd00::/8", 9100)))
    lacks = f"ufw does not let {NET} to port 9100; ufw lets fd00::/8 to port 9100, which is not wished any more"
    assert reasons(facts, **WISH) == [lacks]
    assert checks(facts, **WISH)["firewall"] == ("warn", lacks)
    assert work(facts, **WISH)["firewall"] == [
        ["ufw", "delete", "allow", "proto", "tcp", "from", "fd00::/8", "to", "any", "port", "9100"],
        ["ufw", "allow", "proto", "tcp", "from", NET, "to", "any", "port", "9100", "comment", "gpuwright"],
    ]


def test_firewalld_is_opened_at_once_and_for_good() -> None:
    facts = behind(tool("firewalld", rule(NET, 9400, permanent=False), rule("fd00::/8", 9100, runtime=False), BOTH[1]))
    wrong = (
        f"firewalld does not let {NET} to port 9400; firewalld lets fd00::/8 to port 9100, which is not wished any more"
    )
    assert reasons(facts, **WISH) == [wrong]
    away, come = RICH.format("ipv6", "fd00::/8", 9100), RICH.format("ipv4", NET, 9400)
    assert work(facts, **WISH)["firewall"] == [
        ["firewall-cmd", "--permanent", f"--remove-rich-rule={away}"],
        ["firewall-cmd", f"--remove-rich-rule={away}"],
        ["firewall-cmd", "--permanent", f"--add-rich-rule={come}"],
        ["firewall-cmd", f"--add-rich-rule={come}"],
    ]


def test_a_rule_that_waits_for_the_next_boot_opens_nothing_today() -> None:
    facts = behind(tool("firewalld", BOTH[0], rule(NET, 9100, runtime=False)))
    assert reasons(facts, **WISH) == [f"firewalld does not let {NET} to port 9100"]


def test_rules_are_closed_where_the_wish_is_gone() -> None:
    facts = behind(tool("ufw", *BOTH))
    assert reasons(facts) == [
        "; ".join(f"ufw lets {NET} to port {port}, which is not wished any more" for port in (9400, 9100))
    ]
    assert len(work(facts)["firewall"]) == 2


def test_a_firewall_that_is_off_or_was_not_seen_is_left() -> None:
    for facts in (behind(tool("ufw", active=False)), host(firewall=None)):
        assert (reasons(facts, **WISH), work(facts, **WISH)["firewall"]) == ([], [])
    assert checks(host(firewall=None), **WISH)["firewall"][0] == "incomplete"


def test_remove_closes_what_is_ours_also_where_the_firewall_is_off() -> None:
    seen = {
        "tools": [
            tool("ufw", BOTH[0], rule(NET, 9100, ours=False), active=False),
            tool("firewalld", rule(NET, 9100, runtime=False), active=False),
        ],
        "others": [],
    }
    facts = nodes.provisioned(firewall=seen)
    (found,) = removal.findings(facts)["monitoring_exporters"]
    assert found.reason == f"rules of the firewall that let {NET} to port 9400, {NET} to port 9100"
    assert removal.work(facts)["monitoring_firewall"] == [
        ["ufw", "delete", "allow", "proto", "tcp", "from", NET, "to", "any", "port", "9400"],
        ["firewall-offline-cmd", f"--remove-rich-rule={RICH.format('ipv4', NET, 9100)}"],
    ]
    assert "monitoring_exporters" not in removal.findings(nodes.provisioned())
