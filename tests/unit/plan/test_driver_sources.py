"""The plan of a driver from a file, of one that another looks after, of package sources in the way, of modules that lag."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document, index_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request, wish

TOOLS = dict.fromkeys(("linux-headers-amd64", "dkms", "gcc", "libc6-dev", "make"), "1")
FILE = {
    "nvidia_driver_source": "runfile",
    "nvidia_driver_version": nodes.DRIVER,
    "nvidia_driver_runfile_sha256": "ab" * 32,
}
MODULE = {"version": nodes.DRIVER, "license": "Dual MIT/GPL", "signer": None, "name": "nvidia", "path": "/nvidia.ko"}


def plan(facts: Any, **variables: Any) -> Any:
    drafted = make_draft(facts, wish(**variables), load_rules(), request())
    if isinstance(drafted, dict):
        return drafted
    return finish(drafted, index_of(drafted))


def of_driver(facts: Any, **variables: Any) -> list[Any]:
    """The driver's changes."""
    planned = plan(facts, **variables)
    assert planned["ok"], document.why_not(planned)
    return [change for change in planned["changes"] if change["component"] == "nvidia_driver"]


def with_file(version: str = nodes.DRIVER, licence: str = "Dual MIT/GPL") -> Any:
    """A node on which NVIDIA's installer put a driver of this version."""
    facts = nodes.bare(
        driver={"owner": "runfile", "source": "runfile", "user_version": version, "loaded_version": version}
    )
    facts["kernel"] |= {
        "loaded": {"nvidia": {"version": version}},
        "available": {"nvidia": {**MODULE, "version": version, "license": licence}},
    }
    facts["packages"]["installed"] = dict(TOOLS)
    return facts


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_bare_node_gets_the_file_and_its_tools_and_a_boot() -> None:
    planned = plan(nodes.bare(), **FILE)
    (change,) = [entry for entry in planned["changes"] if entry["component"] == "nvidia_driver"]
    assert (change["action"], change["to"]) == ("install", f"{nodes.DRIVER} (open modules)")
    assert change["files"] == [f"NVIDIA-Linux-x86_64-{nodes.DRIVER}.run"]
    assert {row["name"] for row in change["packages"]} == set(TOOLS)
    assert planned["reboot"]


def test_a_file_that_is_there_is_only_sealed() -> None:
    facts = with_file()
    facts["seals"] = {
        "nvidia_driver": {
            "state": "good",
            "digest": None,
            "gpus": None,
            "stack": plan(nodes.bare(), **FILE)["stack"]["driver"],
        }
    }
    assert [change["action"] for change in of_driver(facts, **FILE)] == ["configure"]


@pytest.mark.parametrize(
    ("facts", "action", "reason"),
    [
        (with_file("580.126.20"), "upgrade", "the .run file installed 580.126.20"),
        (with_file(licence="NVIDIA"), "upgrade", "the proprietary modules"),
        (
            nodes.merged(with_file(), {"kernel": {"available": {"nvidia": {"version": "580.126.20"}}}}),
            "repair",
            "the libraries are",
        ),
    ],
)
def test_another_build_or_flavour_runs_the_file_again(facts: Any, action: str, reason: str) -> None:
    facts["seals"] = {
        "nvidia_driver": {
            "state": "good",
            "digest": None,
            "gpus": None,
            "stack": plan(nodes.bare(), **FILE)["stack"]["driver"],
        }
    }
    (change,) = of_driver(facts, **FILE)
    assert change["action"] == action
    assert reason in change["reason"]


def test_packages_come_after_its_own_uninstaller() -> None:
    facts = with_file("580.126.20")
    changes = of_driver(facts, nvidia_driver_source="nvidia", nvidia_driver_branch="580")
    assert [change["action"] for change in changes] == ["configure", "remove", "install"]
    assert changes[1]["files"] == ["/usr/bin/nvidia-uninstall"]
    assert changes[1]["from"] == "580.126.20"
    planned = plan(facts, nvidia_driver_source="nvidia", nvidia_driver_branch="580")
    assert planned["reboot_reason"] == "another version of the NVIDIA module is loaded than the one that is installed"


# --- preinstalled -----------------------------------------------------------------------------------------------------


def test_a_driver_that_another_looks_after_is_adopted_and_nothing_of_it_is_sealed() -> None:
    facts = nodes.merged(
        nodes.provisioned(),
        {"driver": {"image": {"kind": "dgx-os", "owner": "NVIDIA's DGX OS", "evidence": "/etc/dgx-release"}}},
    )
    facts["kernel"]["initramfs"]["blacklist_inside"] = False
    planned = plan(facts)
    assert [change["action"] for change in planned["changes"] if change["component"] == "nvidia_driver"] == ["adopt"]
    assert "nouveau_blacklist" not in planned["components"]
    assert not any(planned["manages"]["nvidia_driver"].values())
    facts["driver"]["loaded_version"] = "580.126.20"
    assert not plan(facts)["reboot"]


# --- sources in the way -----------------------------------------------------------------------------------------------


def test_a_source_in_the_way_is_a_change_with_its_backup() -> None:
    facts = nodes.bare()
    rules = load_rules()
    drafted = make_draft(facts, wish(), rules, request())
    assert not isinstance(drafted, dict)
    uri = next(row["uris"][0] for row in drafted.context.stack["repositories"] if row["name"] == "nvidia-cuda")
    old = {"types": ["deb"], "uris": [uri], "suites": ["/"], "components": [], "signed_by": None, "enabled": True}
    facts["packages"]["sources"].append({**old, "file": "/etc/apt/sources.list.d/cuda.list"})
    changes = plan(facts)["changes"]
    moved = next(change for change in changes if change["action"] == "repair")
    assert [change["component"] for change in changes if change["files"] == moved["files"]] == ["nvidia_driver"], (
        changes
    )
    assert moved["files"] == [
        "/etc/apt/sources.list.d/cuda.list",
        "/var/lib/gpuwright/backup/etc/apt/sources.list.d/cuda.list",
    ]
    assert "apt-key" in moved["reason"]
    assert any(change["reason"] == "the package source nvidia-cuda is not configured" for change in changes)


# --- signed modules that lag ------------------------------------------------------------------------------------------


def ubuntu() -> Any:
    kernel = "6.8.0-134-generic"
    facts = nodes.bare(
        os={"id": "ubuntu", "version": "24.04", "codename": "noble", "glibc": "2.39", "name": "Ubuntu 24.04"},
        boot={"secure_boot": True},
        kernel={"running": kernel, "next": kernel, "installed": [kernel], "loaded": {}},
    )
    facts["packages"]["sources"][0]["suites"] = ["noble"]
    return facts


@pytest.mark.parametrize("published", [True, False])
def test_a_kernel_whose_signed_module_is_not_there_yet_is_refused(published: bool) -> None:
    drafted = make_draft(ubuntu(), wish(nvidia_driver_branch="580"), load_rules(), request())
    assert not isinstance(drafted, dict)
    package = "linux-modules-nvidia-580-server-open-6.8.0-134-generic"
    assert package in drafted.packages
    index = index_of(drafted)
    if not published:
        index["packages"][package] = {"candidate": None, "versions": []}
        index["problems"] = [{"kind": "no-such-package", "text": f"no {package}", "remedy": "-", "package": package}]
        assert index_query.absent(drafted, index) == {}
    planned = finish(drafted, index)
    refused = [row for row in planned["refusals"] if row["rule"] == "signed-module-behind"]
    assert bool(refused) is not published
    if refused:
        assert package in refused[0]["text"]
        assert "driver-source=nvidia" in str(refused[0]["remedy"])
        assert [row["rule"] for row in planned["refusals"]] == ["signed-module-behind"]
