"""The firewall that is opened for exporters and for a fabric, by the archive's real ufw and firewalld: opened, mended, changed, closed
again.
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS

from .conftest import Node, Run
from .test_monitoring_exporters import checks, up

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

_AWAY, _AWAY6 = "198.51.100.0/24", "2001:db8::/32"
_NODES, _NODES6 = "10.99.0.0/24", "fd00:99::/64"
_KEPT = (
    "grep -h tuple /etc/ufw/user.rules /etc/ufw/user6.rules | grep -E 'comment=677075777269676874( |$)'"
    " | awk '{print $9, $6}' | sort"
)
_FABRIC = (
    "grep -h tuple /etc/ufw/user.rules /etc/ufw/user6.rules | grep comment=6770757772696768742d666162726963"
    " | awk '{print $9, $5, $6}' | sort"
)
_RICH_FABRIC = "firewall-cmd {} --list-rich-rules | grep -c priority=.9401"
_RICH = "firewall-cmd {} --list-rich-rules | grep priority=.9400 | sed -E 's/.*address=.([^\"]*).*port=.([0-9]+).*/\\1 \\2/' | sort"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("firewall", "h100-ubuntu")


def opened(*networks: str) -> tuple[str, ...]:
    # It listens on every address, so that only the firewall is in the way.
    return ("-e", json.dumps({"monitoring_address": "0.0.0.0", "monitoring_firewall": list(networks)}))  # noqa: S104


def told(run: Run, rule: str = "monitoring.firewall") -> list[str]:
    plan = run.written_plan
    return [row["text"] for row in plan["why"] + plan["warnings"] if row["rule"] == rule]


def fabric(machine: Node, *networks: str, verb: str = "up", ports: str = "") -> Run:
    """A run of who wishes the fabric and no exporters."""
    more = ("--yes",) if verb == "up" else ()
    variables = {"fabric_firewall": list(networks), "fabric_ports": ports}
    return machine.run(verb, *more, "--want=driver=580", "-e", json.dumps(variables))


def changed(run: Run) -> set[str]:
    """The components that a run changed, before it proved them. All that the role fabric does, the role firewall does for it."""
    return {change["component"] for change in run.host["changes"]} & COMPONENTS.keys()


def rules_of_fabric(*networks: str, ports: str = "1024:65535") -> list[str]:
    """As ufw keeps them."""
    return sorted(line for network in networks for line in (f"{network} tcp {ports}", f"{network} udp 4791"))


def rules(machine: Node, command: str) -> list[str]:
    return machine.shell(command, check=False).splitlines()


def reached(machine: Node, port: int) -> bool:
    """Whether this side of the node's network gets through to a port."""
    address = machine.shell("hostname -I").split()[0]
    try:
        socket.create_connection((address, port), timeout=3).close()
    except TimeoutError:
        return False
    except OSError as error:
        # What firewalld answers for a port that it holds closed.
        if error.errno != errno.EHOSTUNREACH:
            raise
        return False
    return True


def here(machine: Node) -> str:
    """This side of the node's network."""
    return machine.shell("ip -4 route show default | awk '{print $3}'").strip() + "/32"


def expected(*networks: str) -> list[str]:
    return sorted(f"{network} {port}" for network in networks for port in (9100, 9400))


def test_what_is_no_network_is_bad_input_and_without_a_firewall_there_is_nothing_to_open(machine: Node) -> None:
    wrong = up(machine, *opened("10.0.0.5/8"), verb="plan")
    assert (wrong.code, "10.0.0.5/8 has host bits set" in str(wrong)) == (2, True), str(wrong)
    fine = up(machine, *opened(_AWAY), verb="plan")
    assert fine.code == 0, str(fine)
    (text,) = told(fine)
    assert text.startswith(f"nothing to open for {_AWAY} (TCP 9400 and 9100): neither firewalld nor ufw is active"), (
        text
    )


def test_ufw_is_opened_for_these_networks_alone(machine: Node) -> None:
    machine.shell("apt-get -qy install --no-install-recommends ufw && ufw allow 22/tcp && ufw --force enable")
    # Somebody's own rule serves too, and stays somebody's.
    machine.shell(f"ufw allow proto tcp from {_AWAY} to any port 9100 comment theirs")
    run = up(machine, *opened(_AWAY, _AWAY6))
    assert run.code == 0, str(run)
    assert told(run) == [f"TCP 9400 and 9100 opened in ufw for {_AWAY}, {_AWAY6} alone"]
    assert rules(machine, _KEPT) == sorted([f"{_AWAY} 9400", *expected(_AWAY6)])
    assert (reached(machine, 9400), reached(machine, 9100)) == (False, False)
    assert checks(machine, *opened(_AWAY, _AWAY6))["firewall"] == ("pass", None)
    again = up(machine, *opened(_AWAY, _AWAY6))
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = up(machine, "--full", *opened(_AWAY, _AWAY6))
    assert (full.code, full.changed) == (0, 0), str(full)


def test_rules_of_ufw_that_lack_or_are_too_many_are_mended(machine: Node) -> None:
    machine.shell(f"ufw delete allow proto tcp from {_AWAY6} to any port 9400")
    machine.shell("ufw allow proto tcp from 203.0.113.0/24 to any port 9400 comment gpuwright")
    said = checks(machine, *opened(_AWAY, _AWAY6))["firewall"]
    assert said == (
        "warn",
        f"ufw does not let {_AWAY6} to TCP 9400; ufw lets 203.0.113.0/24 to TCP 9400, which is not wished any more",
    )
    # A network that is wished anew, and one that is not any more.
    mended = up(machine, *opened(_AWAY, here(machine)))
    assert (mended.code, mended.components) == (0, {"monitoring_exporters"}), str(mended)
    assert rules(machine, _KEPT) == sorted(
        [f"{_AWAY} 9400", *(each.replace("/32", "") for each in expected(here(machine)))]
    )
    assert (reached(machine, 9400), reached(machine, 9100)) == (True, True)


def test_ufw_lets_a_fabric_in_beside_the_exporters_and_everybody_is_refused(machine: Node) -> None:
    everybody = fabric(machine, "0.0.0.0/0", verb="plan")
    assert (everybody.code, "wider than any private network" in str(everybody)) == (2, True), str(everybody)
    before = rules(machine, _KEPT)
    planned = fabric(machine, _NODES, verb="plan")
    assert told(planned, "fabric.firewall") == [f"TCP 1024-65535 and UDP 4791 opened in ufw for {_NODES} alone"]
    assert rules(machine, _FABRIC) == []
    run = fabric(machine, _NODES, _NODES6)
    assert (run.code, changed(run)) == (0, {"fabric"}), str(run)
    assert rules(machine, _FABRIC) == rules_of_fabric(_NODES, _NODES6)
    # Whoever wishes the one leaves the rules of the other.
    assert rules(machine, _KEPT) == before
    again = fabric(machine, _NODES, _NODES6)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    both = up(machine, *opened(_AWAY, here(machine)))
    assert (both.code, changed(both)) == (0, set()), str(both)


def test_a_rule_of_the_fabric_that_is_gone_is_told_and_mended(machine: Node) -> None:
    machine.shell(f"ufw delete allow proto tcp from {_NODES} to any port 1024:65535")
    found = fabric(machine, _NODES, _NODES6, verb="doctor").host["checks"]
    (check,) = [each for each in found if each["id"] == "fabric.firewall"]
    assert (check["status"], check["reason"]) == ("warn", f"ufw does not let {_NODES} to TCP 1024-65535")
    mended = fabric(machine, _NODES, _NODES6)
    assert (mended.code, changed(mended)) == (0, {"fabric"}), str(mended)
    assert rules(machine, _FABRIC) == rules_of_fabric(_NODES, _NODES6)


def test_another_network_and_a_narrower_range_leave_nothing_of_the_earlier_ones(machine: Node) -> None:
    # As a run leaves it that was killed between two of its commands.
    machine.shell(f"ufw delete allow proto udp from {_NODES6} to any port 4791")
    run = fabric(machine, here(machine), ports="50000-51000")
    assert run.code == 0, str(run)
    mine = here(machine).removesuffix("/32")
    assert rules(machine, _FABRIC) == rules_of_fabric(mine, ports="50000:51000")
    for port, gets_through in ((50500, True), (49999, False)):
        machine.shell(f"systemd-run --unit=rank-{port} python3 -m http.server {port}")
        machine.shell(f"for i in $(seq 50); do ss -Hltn 'sport = :{port}' | grep -q . && exit; sleep 0.1; done; exit 1")
        assert reached(machine, port) is gets_through
        machine.shell(f"systemctl stop rank-{port}")


def test_firewalld_is_opened_where_it_is_the_one_that_is_active(machine: Node) -> None:
    # What ufw keeps of gpuwright's is left there, and waits for `remove`.
    machine.shell(
        "ufw --force disable && apt-get -qy install --no-install-recommends firewalld python3-gi gir1.2-glib-2.0"
    )
    machine.shell("systemctl enable --now firewalld && firewall-cmd --state")
    mine = here(machine)
    run = up(machine, *opened(mine, _AWAY6))
    assert run.code == 0, str(run)
    assert told(run) == [f"TCP 9400 and 9100 opened in firewalld for {mine}, {_AWAY6} alone"]
    for kind in ("", "--permanent"):
        assert rules(machine, _RICH.format(kind)) == expected(mine, _AWAY6)
    assert (reached(machine, 9400), reached(machine, 9100)) == (True, True)
    again = up(machine, *opened(mine, _AWAY6))
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = up(machine, "--full", *opened(mine, _AWAY6))
    assert (full.code, full.changed) == (0, 0), str(full)
    rule = f'rule priority="9400" family="ipv4" source address="{mine}" port port="9400" protocol="tcp" accept'
    machine.shell(f"firewall-cmd --remove-rich-rule='{rule}'")
    assert checks(machine, *opened(mine, _AWAY6))["firewall"] == ("warn", f"firewalld does not let {mine} to TCP 9400")
    assert reached(machine, 9400) is False
    mended = up(machine, *opened(_AWAY6))
    assert (mended.code, mended.components) == (0, {"monitoring_exporters"}), str(mended)
    for kind in ("", "--permanent"):
        assert rules(machine, _RICH.format(kind)) == expected(_AWAY6)
    both = fabric(machine, _NODES)
    assert (both.code, changed(both)) == (0, {"fabric"}), str(both)
    for kind in ("", "--permanent"):
        assert rules(machine, _RICH_FABRIC.format(kind)) == ["2"]
        assert rules(machine, _RICH.format(kind)) == expected(_AWAY6)
    assert fabric(machine, _NODES).host["changes"] == []


def test_remove_closes_both_and_leaves_what_is_somebody_elses(machine: Node) -> None:
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)
    for kind in ("", "--permanent"):
        assert rules(machine, _RICH.format(kind)) == []
        assert rules(machine, _RICH_FABRIC.format(kind)) == ["0"]
    assert (rules(machine, _KEPT), rules(machine, _FABRIC)) == ([], [])
    left = machine.shell("grep -h tuple /etc/ufw/user.rules")
    assert f"allow tcp 9100 0.0.0.0/0 any {_AWAY} in comment={b'theirs'.hex()}" in left
    assert "allow tcp 22 " in left
