"""What ufw and firewalld say of their rules, as the archive's ufw 0.36.2 and firewalld 2.3 wrote it on Debian 13."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import firewall

UFW = """### RULES ###

### tuple ### allow tcp 9400 0.0.0.0/0 any 10.0.0.0/8 in comment=677075777269676874
-A ufw-user-input -p tcp --dport 9400 -s 10.0.0.0/8 -j ACCEPT

### tuple ### allow tcp 9100 0.0.0.0/0 any 10.1.2.3 in comment=677075777269676874

### tuple ### allow tcp 9100 0.0.0.0/0 any 192.0.2.0/24 in comment=746865697273

### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in

### tuple ### deny tcp 9400 0.0.0.0/0 any 10.0.0.0/8 in
### tuple ### allow udp 9400 0.0.0.0/0 any 10.0.0.0/8 in
### tuple ### allow tcp 9400 0.0.0.0/0 any 10.0.0.0/8 in_eth0
### tuple ### allow tcp 9400:9500 0.0.0.0/0 any 10.0.0.0/8 in
### tuple ### allow tcp 1024:65535 0.0.0.0/0 any 10.2.0.0/24 in comment=6770757772696768742d666162726963
### tuple ### allow udp 4791 0.0.0.0/0 any 10.2.0.0/24 in comment=6770757772696768742d666162726963
### tuple ### allow tcp 9500:9400 0.0.0.0/0 any 10.0.0.0/8 in
### tuple ### allow tcp 70000 0.0.0.0/0 any 10.0.0.0/8 in
### tuple ### allow any any 0.0.0.0/0 any 10.0.0.0/8 in
"""
UFW6 = "### tuple ### allow tcp 9400 ::/0 any fd00::/8 in comment=677075777269676874\n"
FIREWALLD = """rule priority="9400" family="ipv4" source address="10.0.0.0/8" port port="9400" protocol="tcp" accept
rule priority="9400" family="ipv6" source address="fd00::/8" port port="9100" protocol="tcp" accept
rule family="ipv4" source address="10.0.0.0/8" port port="9400" protocol="tcp" accept
rule priority="9400" family="ipv4" source address="10.0.0.0/8" port port="9400" protocol="tcp" drop
rule priority="9402" family="ipv4" source address="10.0.0.0/8" port port="9400" protocol="tcp" accept
rule priority="9401" family="ipv4" source address="10.2.0.0/24" port port="1024-65535" protocol="tcp" accept
rule priority="9401" family="ipv4" source address="10.2.0.0/24" port port="4791" protocol="udp" accept
"""
OURS = [
    ("10.0.0.0/8", "tcp", "9400", "exporters"),
    ("fd00::/8", "tcp", "9100", "exporters"),
    ("10.2.0.0/24", "tcp", "1024-65535", "fabric"),
    ("10.2.0.0/24", "udp", "4791", "fabric"),
]


def observed(machine: Host) -> Any:
    return firewall.observe(machine)


class Machine(Host):
    """This machine with files and programs of a test's own."""

    def __init__(self, files: dict[str, str], answers: dict[str, Result], euid: int = 0) -> None:
        super().__init__("/", euid=euid)
        self.files, self.answers, self.asked = files, answers, list[str]()

    def which(self, name: str) -> str | None:
        found = f"/usr/sbin/{name}"
        return found if any(line.startswith((name, found)) for line in (*self.files, *self.answers)) else None

    def read(self, path: str, fact: str | None = None, limit: int = -1) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str, fact: str | None = None) -> list[str]:
        return [path for path in self.files if path.startswith("/etc/firewalld/zones/")]

    def run(self, argv: Any, timeout: float | None = None, takes_root: bool = False) -> Result:
        self.asked.append(" ".join(argv))
        return self.answers.get(self.asked[-1], Result(252, "", "FirewallD is not running", 0.1, None))


def told(text: str, code: int = 0) -> Result:
    return Result(code, text, "", 0.1, None)


WITH_UFW = {
    "ufw": "",
    "/etc/ufw/ufw.conf": "# comment\nENABLED=yes\nLOGLEVEL=low\n",
    "/etc/default/ufw": "IPV6=yes\n",
    "/etc/ufw/user.rules": UFW,
    "/etc/ufw/user6.rules": UFW6,
}


def test_the_rules_of_ufw_are_read_with_whose_they_are() -> None:
    assert firewall.parse_ufw(UFW) == [
        ("10.0.0.0/8", "tcp", "9400", "exporters"),
        ("10.1.2.3/32", "tcp", "9100", "exporters"),
        ("192.0.2.0/24", "tcp", "9100", None),
        ("0.0.0.0/0", "tcp", "22", None),
        ("10.0.0.0/8", "udp", "9400", None),
        ("10.0.0.0/8", "tcp", "9400-9500", None),
        ("10.2.0.0/24", "tcp", "1024-65535", "fabric"),
        ("10.2.0.0/24", "udp", "4791", "fabric"),
    ]
    assert firewall.parse_ufw(UFW6) == [("fd00::/8", "tcp", "9400", "exporters")]


def test_only_rules_of_ours_are_read_of_firewalld() -> None:
    assert firewall.parse_firewalld(FIREWALLD) == OURS


@pytest.mark.parametrize(
    ("text", "yes"),
    [("ENABLED=yes", True), ("ENABLED=no", False), ("#ENABLED=yes", False), ('ENABLED="Yes"\n', True), ("", False)],
)
def test_a_setting_of_ufw_says_yes(text: str, yes: bool) -> None:
    assert firewall.is_set(text, "ENABLED") is yes


def test_ufw_that_is_active_is_seen_with_our_rules_before_those_of_others() -> None:
    found: Any = observed(Machine(WITH_UFW, {}))
    (tool,) = found["tools"]
    assert (tool["name"], tool["active"], tool["ipv6"], found["others"]) == ("ufw", True, True, [])
    assert [(rule["network"], rule["ports"], rule["owner"]) for rule in tool["rules"]] == [
        ("10.0.0.0/8", "9400", "exporters"),
        ("10.1.2.3/32", "9100", "exporters"),
        ("10.2.0.0/24", "1024-65535", "fabric"),
        ("10.2.0.0/24", "4791", "fabric"),
        ("fd00::/8", "9400", "exporters"),
        ("192.0.2.0/24", "9100", None),
        ("0.0.0.0/0", "22", None),
        ("10.0.0.0/8", "9400", None),
        ("10.0.0.0/8", "9400-9500", None),
    ]
    off: Any = observed(Machine({**WITH_UFW, "/etc/ufw/ufw.conf": "ENABLED=no\n"}, {}))
    assert (off["tools"][0]["active"], len(off["tools"][0]["rules"])) == (False, 9)


def test_what_is_left_out_of_very_many_rules_is_none_of_ours() -> None:
    theirs = "".join(f"### tuple ### allow tcp {port} 0.0.0.0/0 any 192.0.2.0/24 in\n" for port in range(1, 2000))
    found: Any = observed(Machine({**WITH_UFW, "/etc/ufw/user.rules": theirs + UFW}, {}))
    rules = found["tools"][0]["rules"]
    assert (len(rules), len([rule for rule in rules if rule["owner"]])) == (1000, 5)


def test_firewalld_is_seen_with_what_is_loaded_and_what_is_kept() -> None:
    (first, _rest) = FIREWALLD.split("\n", 1)
    answers = {
        "firewall-cmd --list-rich-rules": told(first),
        "firewall-cmd --permanent --list-rich-rules": told(FIREWALLD),
    }
    found: Any = observed(Machine({}, answers))
    seen = [(rule["network"], rule["ports"], rule["permanent"], rule["runtime"]) for rule in found["tools"][0]["rules"]]
    assert seen == [
        ("10.0.0.0/8", "9400", True, True),
        ("10.2.0.0/24", "1024-65535", True, False),
        ("10.2.0.0/24", "4791", True, False),
        ("fd00::/8", "9100", True, False),
    ]


def test_firewalld_that_is_off_is_asked_only_where_it_keeps_a_rule_of_ours() -> None:
    answers = {
        "firewall-cmd --list-rich-rules": told("", 252),
        "firewall-offline-cmd --list-rich-rules": told(FIREWALLD),
    }
    off = Machine({}, answers)
    found: Any = observed(off)
    assert (found["tools"][0]["active"], found["tools"][0]["rules"]) == (False, [])
    assert off.asked == ["firewall-cmd --list-rich-rules"]
    for priority in (9400, 9401):
        zone = {"/etc/firewalld/zones/public.xml": f'<rule family="ipv4" priority="{priority}">'}
        found = observed(Machine(zone, answers))
        assert [rule["runtime"] for rule in found["tools"][0]["rules"]] == [False] * 4


def test_rules_of_others_are_told_where_neither_is_active() -> None:
    found: Any = observed(Machine({}, {"/usr/sbin/nft list tables": told("table inet mine\n")}))
    assert found == {"tools": [], "others": ["nftables"]}
    assert observed(Machine({}, {})) == {"tools": [], "others": []}
    old = {"/proc/net/ip_tables_names": "filter\n"}
    assert observed(Machine(old, {})) == {"tools": [], "others": ["iptables"]}
    bare = {"/usr/sbin/iptables-nft -S INPUT": told("-P INPUT ACCEPT\n")}
    assert observed(Machine({}, bare)) == {"tools": [], "others": []}
    shut = {"/usr/sbin/iptables-nft -S INPUT": told("-P INPUT DROP\n")}
    assert observed(Machine({}, shut)) == {"tools": [], "others": ["iptables"]}


def test_who_is_not_root_and_who_looks_at_a_tree_sees_nothing(tmp_path: Path) -> None:
    user = Machine(WITH_UFW, {}, euid=1000)
    assert observed(user) is None
    assert user.unknown_facts == {"firewall": "only root sees the rules of a firewall"}
    assert observed(Host(str(tmp_path), euid=0)) is None


@pytest.mark.parametrize(
    "answers",
    [
        {"firewall-cmd --list-rich-rules": Result(None, "", "", 20.0, "firewall-cmd did not answer within 20 s")},
        {"firewall-cmd --list-rich-rules": Result(1, "", "Error: DBUS_ERROR: no reply", 0.1, None)},
        {
            "firewall-cmd --list-rich-rules": told(""),
            "firewall-cmd --permanent --list-rich-rules": Result(None, "", "", 20.0, "did not answer"),
        },
        {"/usr/sbin/nft list tables": Result(None, "", "", 20.0, "nft did not answer within 20 s")},
        {"/usr/sbin/iptables-nft -S INPUT": Result(None, "", "", 20.0, "iptables-nft did not answer within 20 s")},
    ],
)
def test_a_firewall_that_does_not_answer_is_not_known_and_not_off(answers: dict[str, Result]) -> None:
    silent = Machine({}, answers)
    assert observed(silent) is None
    assert "firewall" in silent.unknown_facts
