"""A cause silences what follows from it, on the terminal, in the report and in JSON alike."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import causes, judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan

ROWS = load_rules()["causes"]["rows"]


def bad(name: str, severity: str = "critical", **rest: Any) -> Any:
    return checks.failed(name, severity, **{"reason": f"{name} is bad", "remedy": f"mend {name}", **rest})


def seal(component: str, reason: str) -> Any:
    return bad(f"seals.{component}", reason=f"not as it was set up: {reason}")


def told(*found: Any) -> list[Any]:
    return causes.told(found, load_rules())


def remedies(found: list[Any]) -> list[str]:
    return [check["remedy"] for check in found if check["status"] in ("fail", "warn", "incomplete")]


def test_what_follows_has_no_remedy_of_its_own_and_names_its_cause() -> None:
    found = told(bad("smi.runs"), checks.passed("disk.space"), bad("driver.loaded"))
    assert [check["id"] for check in found] == ["driver.loaded", "disk.space", "smi.runs"]
    assert remedies(found) == ["mend driver.loaded"]
    silenced = found[-1]
    assert (silenced["status"], silenced["reason"]) == ("skip", "follows from driver.loaded: smi.runs is bad")


def test_a_chain_leads_to_its_first_cause() -> None:
    found = told(bad("smi.runs"), bad("driver.version_match"), bad("driver.next_kernel"), bad("packages.interrupted"))
    assert remedies(found) == ["mend packages.interrupted"]
    assert all("follows from packages.interrupted" in check["reason"] for check in found[1:])


def test_what_the_fabric_manager_needs_is_the_cause_where_it_failed() -> None:
    found = told(bad("fabricmanager"), bad("fabric.state"), bad("fabric.ib_umad"))
    assert remedies(found) == ["mend fabric.ib_umad"]


def test_a_linux_driver_inside_windows_hides_what_windows_has() -> None:
    found = told(bad("smi.runs"), bad("host.windows_driver"), bad("host.linux_driver"))
    assert remedies(found) == ["mend host.linux_driver"]


def test_a_card_that_has_no_handle_is_the_symptom_of_what_the_kernel_tells() -> None:
    assert remedies(told(bad("smi.runs"), bad("kernel.sxid"))) == ["mend kernel.sxid"]
    lost = bad("kernel.xid", reason="Xid 79: the card has fallen off the bus", gpu="00000000:3B:00.0")
    assert remedies(told(bad("smi.runs"), lost)) == ["mend kernel.xid"]
    program = bad("kernel.xid", "warning", reason="Xid 31: a page fault of the card's memory")
    assert remedies(told(bad("smi.runs"), program)) == ["mend smi.runs", "mend kernel.xid"]


def test_a_number_of_a_card_explains_what_nvidia_smi_cannot_read_of_it_and_of_no_other() -> None:
    silent = bad("kernel.xid", reason="Xid 119: it does not answer", gpu="00000000:3B:00.0")
    of_it, of_another = (bad("gpu.readable", gpu=label) for label in ("0 (00000000:3B:00.0)", "1 (00000000:AF:00.0)"))
    found = told(of_it, of_another, silent)
    assert [(check["id"], check["gpu"], check["status"]) for check in found] == [
        ("kernel.xid", "00000000:3B:00.0", "fail"),
        ("gpu.readable", "1 (00000000:AF:00.0)", "fail"),
        ("gpu.readable", "0 (00000000:3B:00.0)", "skip"),
    ]


def test_a_card_that_sleeps_for_good_explains_that_it_fell_off_the_bus_and_no_other_fault_does() -> None:
    off_the_bus = bad("kernel.xid", reason="Xid 79: the card has fallen off the bus")
    asleep = bad("kernel.module", reason="the card does not come out of its sleep (D3cold)")
    assert remedies(told(off_the_bus, asleep)) == ["mend kernel.module"]
    assert len(remedies(told(off_the_bus, bad("kernel.module", reason="the driver nouveau holds a card")))) == 2
    assert len(remedies(told(bad("kernel.xid", reason="Xid 48: double bit error"), asleep))) == 2


def test_a_cut_is_one_line() -> None:
    names = ("driver.version_match", "driver.next_kernel", "driver.lock", "smi.runs")
    seals = (
        seal("cuda", "a run that began 2026-11-01 has not come to its end"),
        seal("nvidia_driver", "package a is b"),
    )
    found = told(*map(bad, names), *seals, bad("packages.interrupted"))
    assert remedies(found) == ["mend packages.interrupted"]


@pytest.mark.parametrize(
    ("cause", "measured", "reason", "silent"),
    [
        ("packages.hidden", ["libnccl2"], "package libnccl2 is not installed", True),
        ("packages.hidden", ["libnccl2"], "package libcudnn9 is not installed", False),
        ("packages.hidden", ["libnccl2"], "package libnccl2 is 2.1 instead of 2.2", False),
        ("packages.hidden", ["libnccl2"], "/etc/modprobe.d/x.conf changed", False),
        ("packages.interrupted", None, "package libnccl2 is half-configured", True),
        ("packages.interrupted", None, "/etc/modprobe.d/x.conf changed", False),
        ("disk.read_only", None, "service docker.service is failed instead of active", True),
        ("disk.read_only", None, "package libnccl2 is not installed", False),
    ],
)
def test_a_seal_follows_only_from_what_can_have_broken_it(
    cause: str, measured: list[str] | None, reason: str, silent: bool
) -> None:
    found = told(bad(cause, measured=measured), seal("nccl", reason))
    assert ("mend seals.nccl" in remedies(found)) is not silent


def test_a_cause_is_as_bad_as_what_follows_from_it() -> None:
    (cause, _seal) = told(bad("seals.container_toolkit"), bad("container.daemon_json", "warning"))
    assert (cause["id"], cause["status"], cause["severity"]) == ("container.daemon_json", "fail", "critical")
    for found in ([bad("smi.runs", "fatal"), bad("driver.build", "warning"), bad("driver.loaded")], [bad("smi.runs")]):
        assert checks.verdict(told(*found)) == checks.verdict(found)


def test_what_only_could_not_be_seen_is_no_cause() -> None:
    found = told(checks.incomplete("driver.loaded", "nobody knows"), bad("smi.runs"))
    assert [check["status"] for check in found] == ["fail", "incomplete"]


def test_a_card_explains_itself_and_the_host_and_no_other_card() -> None:
    found = told(
        bad("fabric.state", gpu="0"), bad("gpu.readable", gpu="0"), bad("gpu.readable", gpu="1"), bad("cuda.init")
    )
    assert remedies(found) == ["mend fabric.state", "mend gpu.readable"]


def test_the_plain_sentence_stands_before_the_seal_and_the_proof() -> None:
    found = told(
        bad("seals.cuda", "fatal"), bad("proof.age"), bad("disk.read_only", "critical"), bad("pcie.width", gpu="0")
    )
    assert [check["id"] for check in found if check["status"] == "fail"][-1] == "proof.age"


def test_the_order_is_worst_first() -> None:
    found = told(
        bad("pcie.replays", "warning"), bad("pcie.width"), bad("gpu.on_bus", "fatal"), checks.incomplete("a.b", "?")
    )
    assert [check["id"] for check in found] == ["gpu.on_bus", "pcie.width", "a.b", "pcie.replays"]


def test_it_is_told_once_however_often_it_is_asked() -> None:
    once = told(bad("smi.runs"), bad("driver.loaded"))
    assert told(*once) == once


def test_nothing_explains_itself_in_the_end() -> None:
    below: dict[str, set[str]] = {}
    for row in ROWS:
        below.setdefault(row["check"], set()).update(row["explains"])

    def reached(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, (*path, name)
        for each in below.get(name, ()):
            reached(each, (*path, name))

    for name in below:
        reached(name, ())


@pytest.mark.parametrize("verb", ["doctor", "validate"])
def test_a_module_that_is_old_on_disk_too_is_not_mended_by_a_boot(verb: str) -> None:
    """The libraries were upgraded, and DKMS built nothing: the loaded module and the next one are both the old one."""
    mixed = nodes.provisioned(driver={"user_version": "580.200.01"})
    found = [check for check in plan(mixed, verb=verb)["checks"] if check["status"] == "fail"]
    assert "driver.next_kernel" in [check["id"] for check in found]
    assert "driver.version_match" not in [check["id"] for check in found]
    assert not [check["remedy"] for check in found if str(check["remedy"]).startswith("reboot the host")]
    (match,) = [check for check in judge.judge(mixed) if check["id"] == "driver.version_match"]
    assert str(match["reason"]).endswith(f"and the next boot loads {nodes.DRIVER}")
    assert "gpuwright up" in str(match["remedy"])


def test_a_module_that_waits_for_the_boot_is_mended_by_it() -> None:
    mixed = nodes.provisioned(
        driver={"user_version": "580.200.01"}, kernel={"available": {"nvidia": {"version": "580.200.01"}}}
    )
    (match,) = [check for check in judge.judge(mixed) if check["id"] == "driver.version_match"]
    assert str(match["remedy"]).startswith("reboot the host")
