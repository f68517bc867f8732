"""Going back to a driver that worked, and taking everything back: what is planned, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import planner, removal, way_back
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes

from .test_planner import index_of, proven, request, wish

OLD = "580.126.20"


def at(version: str) -> dict[str, str]:
    return {"nvidia-driver-cuda": f"{version}-1", "libcuda1": f"{version}-1"}


def state(version: str = OLD, **changes: Any) -> dict[str, Any]:
    stack = {**proven(nodes.provisioned())["seals"]["nvidia_driver"]["stack"]}
    return {
        "version": version, "modules": "open", "source": "nvidia", "packages": at(version), "holds": [], "stack": stack, "arch": "amd64",
        "kernel": "6.12.94+deb13-amd64", "proven": True, "time": "2026-11-01T10:00:00Z", **changes,
    }  # fmt: skip


def node(*states: dict[str, Any], copies: tuple[str, ...] = (), **history: Any) -> dict[str, Any]:
    facts = proven(nodes.provisioned())
    packages = {**at(nodes.DRIVER), "nvidia-new": f"{nodes.DRIVER}-1"}
    return nodes.merged(
        facts,
        {
            "driver": {"packages": packages},
            "smi": {"rc": 0},
            "history": {"states": list(states), "copies": list(copies), "original": None, "brought": [], **history},
        },
    )


def rolled_back(facts: dict[str, Any], **versions: str | None) -> dict[str, Any]:
    drafted = planner.draft(facts, wish(), load_rules(), request(verb="rollback"))
    if isinstance(drafted, dict):
        return drafted
    named = {name.replace("-", "_"): version for name, version in at(OLD).items()} | versions
    return planner.finish(drafted, index_of(drafted, **named) if drafted.packages else None)


def test_the_driver_that_works_is_remembered_with_all_its_packages() -> None:
    remembered = way_back.working(node())
    assert remembered is not None
    assert remembered["version"] == nodes.DRIVER
    assert remembered["packages"]["libcuda1"] == f"{nodes.DRIVER}-1"
    assert remembered["proven"] is True
    assert remembered["stack"]["branch"] == "580"


@pytest.mark.parametrize(
    "changes",
    [
        {"smi": {"rc": 9}},
        {"driver": {"user_version": "1.2"}},
        {"driver": {"loaded_version": None}},
        {"driver": {"owner": "runfile"}},
    ],
)
def test_a_driver_that_does_not_work_is_not_remembered(changes: dict[str, Any]) -> None:
    assert way_back.working(nodes.merged(node(), changes)) is None


def test_a_failing_driver_can_give_way_where_another_one_worked() -> None:
    facts = node()
    assert way_back.is_there(facts, way_back.working(facts))
    assert not way_back.is_there(facts, None)
    assert way_back.is_there(nodes.merged(facts, {"history": {"drivers": [OLD]}}), None)
    assert not way_back.is_there(nodes.merged(facts, {"history": {"drivers": [nodes.DRIVER]}}), None)


def test_rollback_leads_to_exactly_what_was_there() -> None:
    made = rolled_back(node(state()))
    assert made["ok"], planner.why_not(made)
    (change,) = [row for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert (change["from"], change["to"]) == (nodes.DRIVER, OLD)
    assert made["restore"]["install"] == [f"libcuda1={OLD}-1", f"nvidia-driver-cuda={OLD}-1"]
    assert "nvidia-new" in made["restore"]["remove"]
    assert not set(made["restore"]["remove"]) & set(at(OLD))
    assert made["stack"]["driver"]["branch"] == "580"
    assert "validate" in made["components"]


def test_a_kept_package_needs_no_index() -> None:
    made = rolled_back(node(state(), copies=(f"libcuda1_{OLD}-1_amd64.deb",)), nvidia_driver_cuda=f"{OLD}-1")
    assert made["ok"], planner.why_not(made)
    assert f"/var/lib/gpuwright/packages/libcuda1_{OLD}-1_amd64.deb" in made["restore"]["install"]


def dnf(*states: dict[str, Any], stream: str, **more: Any) -> dict[str, Any]:
    """A node with dnf, its driver of one module stream."""
    facts = node(*states, **more)
    facts["seals"]["nvidia_driver"]["stack"]["pin"] = {
        "hold": ["nvidia-driver-cuda"],
        "stream": f"nvidia-driver:{stream}",
    }
    streams = {"nvidia-driver": stream, "postgresql": "16"}
    return nodes.merged(facts, {"packages": {"manager": "dnf", "streams": streams}})


def test_on_dnf_the_module_stream_is_remembered_and_comes_back_and_no_other() -> None:
    old = dnf(stream="580-open")
    remembered = way_back.working(old)
    assert remembered is not None
    assert (remembered["manager"], remembered["arch"]) == ("dnf", "x86_64")
    now = dnf(remembered, stream="595-open")
    now["packages"]["streams"]["postgresql"] = "17"
    assert way_back.work(remembered, now)["streams"] == {"nvidia-driver": "580-open"}
    assert way_back.work(remembered, dnf(stream="580-open"))["streams"] == {}


def test_on_dnf_a_removal_leaves_the_stream_that_nobody_had_enabled() -> None:
    assert taken_back(dnf(stream="580-open", streams={}))["remove"]["streams"] == {"nvidia-driver": ""}
    before = {"nvidia-driver": "570-dkms"}
    assert taken_back(dnf(stream="580-open", streams=before))["remove"]["streams"] == before


def test_on_dnf_two_versions_of_a_package_are_repaired_before_the_return() -> None:
    now = dnf(state(manager="dnf"), stream="580-open")
    now = nodes.merged(
        now, {"packages": {"interrupted": True, "interrupted_detail": "two versions are installed of x"}}
    )
    assert rolled_back(now)["components"][0] == "repair"


def test_what_is_neither_kept_nor_in_the_index_is_refused_by_name() -> None:
    made = rolled_back(node(state()), libcuda1="999-1")
    assert not made["ok"]
    (row,) = made["refusals"]
    assert row["rule"] == "rollback-packages"
    assert f"libcuda1 {OLD}-1" in row["text"]


@pytest.mark.parametrize("states", [[], ["present"]])
def test_without_an_earlier_driver_there_is_no_way_back(states: list[str]) -> None:
    facts = node()
    facts["history"]["states"] = [state(packages=dict(facts["driver"]["packages"])) for _ in states]
    made = rolled_back(facts)
    assert not made["ok"]
    assert [row["rule"] for row in made["refusals"]] == ["rollback-nowhere"]
    assert "gpuwright remove" in made["refusals"][0]["remedy"]


def test_the_wish_for_a_driver_does_not_hold_a_rollback_back() -> None:
    asked = way_back.without_driver(wish(nvidia_driver_branch="595", nvidia_driver_modules="proprietary"))
    assert (asked.driver_branch, asked.driver_modules) == (None, None)


def test_a_driver_of_somebody_else_is_adopted_again() -> None:
    made = rolled_back(node(state(stack={})))
    assert made["stack"]["driver"]["adopted"] is True
    assert made["stack"]["driver"]["version"] == OLD


def test_an_interrupted_package_manager_is_mended_by_the_return_itself() -> None:
    facts = nodes.merged(node(state()), {"packages": {"interrupted": True, "interrupted_detail": "half-configured"}})
    assert "repair" not in rolled_back(facts)["components"]


# --- taking everything back -------------------------------------------------------------------------------------------


def taken_back(facts: dict[str, Any]) -> dict[str, Any]:
    return planner.take_back(facts, request(verb="remove"))


def test_what_gpuwright_brought_goes_by_name() -> None:
    brought = ["libcuda1", "dkms", "fio"]
    files = ["/etc/modprobe.d/gpuwright-nouveau.conf", "/etc/docker/daemon.json"]
    made = taken_back(node(brought=brought, files=files, environments=["/opt/gpuwright/pytorch"], components=["cuda"]))
    assert sorted(made["remove"]["packages"]) == sorted(brought)
    assert made["remove"]["files"] == files[:1]
    assert made["remove"]["initramfs"] is True
    assert {row["component"] for row in made["changes"]} == {"nvidia_driver", "packages", "frameworks", "files"}
    assert all(row["action"] == "remove" for row in made["changes"])
    assert made["components"] == ["remove", "reboot"]


def test_the_units_of_a_toolkit_that_goes_are_switched_off_and_those_of_one_that_stays_are_not() -> None:
    made = taken_back(node(brought=["nvidia-container-toolkit-base"], services=["docker.service"]))
    assert made["remove"]["services"] == ["docker.service", "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"]
    assert taken_back(node(services=["docker.service"]))["remove"]["services"] == ["docker.service"]


@pytest.mark.parametrize(
    "name",
    [
        "linux-image-6.12.107+deb13-amd64",
        "linux-image-amd64",
        "grub-pc",
        "kernel-core",
        "kernel-core-5.14-1.el9.x86_64",
        "shim-signed",
    ],
)
def test_what_the_machine_boots_from_stays_whoever_brought_it(name: str) -> None:
    assert removal.packages(node(brought=[name, "fio"])) == ["fio"]


def test_modules_of_the_driver_for_a_kernel_are_no_kernel() -> None:
    assert removal.packages(node(brought=["linux-modules-nvidia-580-generic"])) == ["linux-modules-nvidia-580-generic"]


def test_a_node_without_anything_of_gpuwright_is_right_as_it_is() -> None:
    made = taken_back(node())
    assert (made["components"], made["verdict"], made["why_not"]) == ([], "pass", None)


def test_the_driver_that_somebody_else_had_comes_back_and_its_packages_stay() -> None:
    made = taken_back(node(original=state(stack={}), brought=["libcuda1", "fio"], components=["nvidia_driver"]))
    assert made["restore"]["version"] == OLD
    assert made["remove"]["packages"] == ["fio"]


def test_what_is_left_after_a_removal_is_told() -> None:
    assert removal.left(node(), ()) == ""
    assert "1 packages" in removal.left(node(brought=["fio"]), ())
    assert removal.left(node(brought=["docker.io"]), ["docker.io"]) == ""
    assert "/etc/x" in removal.left(node(files=["/etc/x"]), ())
