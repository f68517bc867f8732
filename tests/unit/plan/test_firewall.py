"""The rules of the firewall for exporters and for the fabric: which lack, which are too many, and what is done about it."""

from __future__ import annotations

from datetime import date
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.fabric import apply as fabric_room
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_monitoring_exporters import checks, host, reasons, work
from tests.unit.resolve.test_firewall import tool

NET = "10.0.0.0/8"
WISH: dict[str, Any] = {"monitoring_firewall": [NET]}
RICH = 'rule priority="9400" family="{}" source address="{}" port port="{}" protocol="tcp" accept'


def rule(network: str, ports: int | str, owner: str | None = "exporters", **changes: Any) -> Any:
    opened = {"network": network, "protocol": "tcp", "ports": str(ports), "owner": owner}
    return {**opened, "permanent": True, "runtime": True, **changes}


def behind(*tools: Any) -> Any:
    return host(firewall={"tools": list(tools), "others": []})


BOTH = (rule(NET, 9400), rule(NET, 9100))


def test_a_firewall_that_is_open_as_wished_has_nothing_to_say() -> None:
    facts = behind(tool("ufw", *BOTH))
    assert (reasons(facts, **WISH), work(facts, **WISH)["firewall"]) == ([], [])
    assert checks(facts, **WISH)["firewall"] == ("pass", None)
    # Somebody else's rule serves too, and is nobody's to take away.
    theirs = behind(tool("ufw", BOTH[0], rule(NET, 9100, owner=None), rule("192.0.2.0/24", 9100, owner=None)))
    assert reasons(theirs, **WISH) == []
    assert "firewall" not in checks(behind(tool("ufw")))


def test_ufw_is_opened_and_closed_by_its_own_command() -> None:
    facts = behind(tool("ufw", rule(NET, 9400), rule("fd00::/8", 9100)))
    lacks = f"ufw does not let {NET} to TCP 9100; ufw lets fd00::/8 to TCP 9100, which is not wished any more"
    assert reasons(facts, **WISH) == [lacks]
    assert checks(facts, **WISH)["firewall"] == ("warn", lacks)
    assert work(facts, **WISH)["firewall"] == [
        ["ufw", "delete", "allow", "proto", "tcp", "from", "fd00::/8", "to", "any", "port", "9100"],
        ["ufw", "allow", "proto", "tcp", "from", NET, "to", "any", "port", "9100", "comment", "gpuwright"],
    ]


def test_firewalld_is_opened_at_once_and_for_good() -> None:
    facts = behind(tool("firewalld", rule(NET, 9400, permanent=False), rule("fd00::/8", 9100, runtime=False), BOTH[1]))
    wrong = (
        f"firewalld does not let {NET} to TCP 9400; firewalld lets fd00::/8 to TCP 9100, which is not wished any more"
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
    assert reasons(facts, **WISH) == [f"firewalld does not let {NET} to TCP 9100"]


def test_rules_are_closed_where_the_wish_is_gone() -> None:
    facts = behind(tool("ufw", *BOTH))
    assert reasons(facts) == [
        "; ".join(f"ufw lets {NET} to TCP {port}, which is not wished any more" for port in (9400, 9100))
    ]
    assert len(work(facts)["firewall"]) == 2


def test_a_firewall_that_is_off_or_was_not_seen_is_left() -> None:
    for facts in (behind(tool("ufw", active=False)), host(firewall=None)):
        assert (reasons(facts, **WISH), work(facts, **WISH)["firewall"]) == ([], [])
    assert checks(host(firewall=None), **WISH)["firewall"][0] == "incomplete"


def test_remove_closes_what_is_ours_also_where_the_firewall_is_off() -> None:
    seen = {
        "tools": [
            tool("ufw", BOTH[0], rule(NET, 9100, owner=None), active=False),
            tool("firewalld", rule(NET, 9100, runtime=False), active=False),
        ],
        "others": [],
    }
    facts = nodes.provisioned(firewall=seen)
    (found,) = removal.findings(facts)["monitoring_exporters"]
    assert found.reason == f"rules of the firewall that let {NET} to TCP 9400, {NET} to TCP 9100"
    assert removal.work(facts)["monitoring_firewall"] == [
        ["ufw", "delete", "allow", "proto", "tcp", "from", NET, "to", "any", "port", "9400"],
        ["firewall-offline-cmd", f"--remove-rich-rule={RICH.format('ipv4', NET, 9100)}"],
    ]
    assert "monitoring_exporters" not in removal.findings(nodes.provisioned())


# The fabric


FABRIC = "10.2.0.0/24"
OPEN = (rule(FABRIC, "1024-65535", "fabric"), rule(FABRIC, "4791", "fabric", protocol="udp"))
RICH_FABRIC = 'rule priority="9401" family="ipv4" source address="{}" port port="{}" protocol="{}" accept'


def fabric(*tools: Any, networks: Any = (FABRIC,), **variables: Any) -> Any:
    """The plan of a node that has only this to do."""
    facts = behind(*tools)
    wish = Wish.from_variables({"gpuwright_want": ["driver=580"], "fabric_firewall": list(networks), **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("fabric",)))
    assert isinstance(draft, Draft), draft
    return finish(draft, None)


def told(planned: Any) -> list[str]:
    return [change["reason"] for change in planned["changes"] if change["component"] == "fabric"]


def verdict(planned: Any) -> Any:
    (found,) = [each for each in planned["checks"] if each["id"] == "fabric.firewall"]
    return found["status"], found["reason"]


def run_of(planned: Any) -> list[list[str]]:
    commands: list[list[str]] = planned["work"]["fabric"]["commands"]
    return commands


def test_a_firewall_that_is_open_for_the_fabric_has_nothing_to_say() -> None:
    planned = fabric(tool("ufw", *OPEN))
    assert (told(planned), run_of(planned), verdict(planned)) == ([], [], ("pass", None))


def test_ufw_is_opened_for_both_protocols_of_the_fabric() -> None:
    planned = fabric(tool("ufw"))
    lacks = f"ufw does not let {FABRIC} to TCP 1024-65535; ufw does not let {FABRIC} to UDP 4791"
    assert (told(planned), verdict(planned)) == ([lacks], ("warn", lacks))
    start, end = ["ufw", "allow", "proto"], ["comment", "gpuwright-fabric"]
    assert run_of(planned) == [
        [*start, "tcp", "from", FABRIC, "to", "any", "port", "1024:65535", *end],
        [*start, "udp", "from", FABRIC, "to", "any", "port", "4791", *end],
    ]


def test_what_a_run_that_was_killed_left_half_done_is_finished() -> None:
    assert run_of(fabric(tool("ufw", OPEN[0]))) == run_of(fabric(tool("ufw")))[1:]
    half = rule(FABRIC, "1024-65535", "fabric", runtime=False)
    commands = run_of(fabric(tool("firewalld", half, OPEN[1])))
    come = RICH_FABRIC.format(FABRIC, "1024-65535", "tcp")
    assert commands == [
        ["firewall-cmd", "--permanent", f"--add-rich-rule={come}"],
        ["firewall-cmd", f"--add-rich-rule={come}"],
    ]


def test_another_network_or_range_takes_the_rules_of_the_earlier_one_away_first() -> None:
    planned = fabric(tool("ufw", *OPEN), networks=["10.3.0.0/24"])
    assert [(command[1], command[-1]) for command in run_of(planned)] == [
        ("delete", "1024:65535"),
        ("delete", "4791"),
        ("allow", "gpuwright-fabric"),
        ("allow", "gpuwright-fabric"),
    ]
    narrower = fabric(tool("ufw", *OPEN), fabric_ports="50000-51000")
    assert told(narrower) == [
        f"ufw does not let {FABRIC} to TCP 50000-51000; ufw lets {FABRIC} to TCP 1024-65535, which is not wished any more"
    ]


def test_the_rules_of_the_exporters_and_of_others_are_none_of_the_fabrics() -> None:
    theirs = (*BOTH, rule("192.0.2.0/24", "22", None), rule(FABRIC, "1024-65535", None))
    planned = fabric(tool("ufw", *theirs, OPEN[1]))
    assert (told(planned), run_of(planned)) == ([], [])
    facts = behind(tool("ufw", *BOTH, *OPEN))
    assert (reasons(facts, **WISH), work(facts, **WISH)["firewall"]) == ([], [])
    assert checks(behind(tool("ufw", *OPEN))).get("firewall") is None


def test_in_an_image_that_is_being_built_nothing_is_opened() -> None:
    facts = nodes.bare(firewall={"tools": [tool("ufw")], "others": []})
    facts["pci"]["gpus"] = []
    wish = Wish.from_variables({"fabric_firewall": [FABRIC], "gpuwright_provision_for": ["H100"]})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("fabric",)))
    assert isinstance(draft, Draft), draft
    assert (COMPONENTS["fabric"].findings(draft.context), draft.context.stack["fabric"]["networks"]) == ([], [FABRIC])
    assert fabric_room.begin(draft.context, {})["commands"] == []  # type: ignore[typeddict-item] # nothing of a plan is read


def test_a_firewall_that_nobody_could_look_at_is_incomplete() -> None:
    stack = fabric(tool("ufw"))["stack"]
    (found,) = [each for each in judge.judge(host(firewall=None), stack) if each["id"] == "fabric.firewall"]
    assert found["status"] == "incomplete"


def test_remove_takes_back_exactly_the_rules_of_each() -> None:
    seen = {
        "tools": [
            tool("ufw", *OPEN, BOTH[0], rule(FABRIC, "22", None), active=False),
            tool("firewalld", OPEN[1], active=False),
        ],
        "others": [],
    }
    facts = nodes.provisioned(firewall=seen)
    (found,) = removal.findings(facts)["fabric"]
    opened = f"{FABRIC} to TCP 1024-65535, {FABRIC} to UDP 4791, {FABRIC} to UDP 4791"
    assert found.reason == f"rules of the firewall that let {opened}"
    away = ["ufw", "delete", "allow", "proto"]
    assert removal.work(facts)["fabric_firewall"] == [
        [*away, "tcp", "from", FABRIC, "to", "any", "port", "1024:65535"],
        [*away, "udp", "from", FABRIC, "to", "any", "port", "4791"],
        ["firewall-offline-cmd", f"--remove-rich-rule={RICH_FABRIC.format(FABRIC, '4791', 'udp')}"],
    ]
    assert len(removal.work(facts)["monitoring_firewall"]) == 1
    assert "fabric" not in removal.findings(nodes.provisioned())
