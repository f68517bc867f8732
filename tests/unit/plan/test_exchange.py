"""The plan of a driver whose packages come from another source: what gives way, what leaves, and what stops it before the first change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.module_utils.records import sealing
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import exchange, rollback
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request, wish

_BUILD, _UBUNTU = "580.173.02", "580.173.02-0ubuntu0.24.04.1"
#: Ubuntu's server set with prebuilt modules, as dpkg has it; one library of another architecture.
OLD = {
    "libnvidia-cfg1-580-server": _UBUNTU,
    "libnvidia-compute-580-server": _UBUNTU,
    "libnvidia-compute-580-server:i386": _UBUNTU,
    "linux-modules-nvidia-580-server-open-6.8.0-134-generic": "6.8.0-134.134",
    "linux-modules-nvidia-580-server-open-generic": "6.8.0-134.134",
    "nvidia-firmware-580-server-580.173.02": _UBUNTU,
    "nvidia-headless-no-dkms-580-server-open": _UBUNTU,
    "nvidia-kernel-common-580-server": _UBUNTU,
    "nvidia-utils-580-server": _UBUNTU,
}
#: Versioned by themselves: they serve a driver of any source.
BESIDE = {"libnvidia-egl-wayland1": "1:1.1.13-1", "nvidia-settings": "510.47.03-0ubuntu4.24.04.1"}
NEW = dict.fromkeys(
    ("nvidia-driver-pinning-595", "libnvidia-compute", "nvidia-utils", "libnvidia-cfg1", "nvidia-dkms-open"),
    "595.112.07-1ubuntu1",
)


def ubuntu(packages: dict[str, str], source: str | None = "distro", mark: Any = None) -> Any:
    """A server with Ubuntu 24.04 and these packages of a driver. ``mark``: the stack in a mark that a run left."""
    facts = nodes.provisioned(
        os={"id": "ubuntu", "version": "24.04", "codename": "noble", "name": "Ubuntu 24.04", "glibc": "2.39"},
        driver={"source": source, "user_version": _BUILD, "loaded_version": _BUILD},
    )
    facts["driver"]["packages"] = dict(packages)
    facts["driver"]["lock"] |= {
        "set": [name for name in packages if not name.startswith("linux")],
        "held": [],
        "pins": {},
    }
    kernel = "6.8.0-134-generic"
    facts["kernel"] |= {"running": kernel, "next": kernel, "installed": [kernel]}
    installed = {name: each for name, each in facts["packages"]["installed"].items() if "nvidia" not in name}
    facts["packages"]["installed"] = {**installed, **packages, "linux-image-generic": "6.8.0-134.134"}
    archive = {"uris": ["http://archive.ubuntu.com/ubuntu"], "suites": ["noble"], "components": ["main", "restricted"]}
    facts["packages"]["sources"].append(facts["packages"]["sources"][0] | archive)
    if mark:
        facts["seals"] = {
            "nvidia_driver": {"state": "begun", "reason": "cut off", "stack": mark, "packages": {}, "gpus": []}
        }
    return facts


def drafted(facts: Any, verb: str = "up", **variables: Any) -> Draft:
    variables = {"nvidia_driver_source": "nvidia", "nvidia_driver_branch": "595", **variables}
    found = make_draft(facts, wish(**variables), load_rules(), request(verb=verb))
    assert isinstance(found, Draft), document.why_not(found)
    return found


def answered(draft: Draft, comes: dict[str, str], *more: str) -> Any:
    """What the index answers where these come; ``more`` are packages that apt would remove besides."""
    leaves = sorted(set(draft.replaced) - set(comes))
    versions = {name.replace("-", "_"): "595.112.07-1ubuntu1" for name in draft.packages}
    gone = [{"name": name, "version": "1"} for name in (*leaves, *more)]
    return index_of(draft, **versions) | {"exchange": {"comes": comes, "leaves": leaves}, "removes": gone}


def test_the_whole_old_set_gives_way_and_what_serves_any_driver_stays() -> None:
    draft = drafted(ubuntu({**OLD, **BESIDE}))
    assert draft.replaced == OLD
    planned = finish(draft, answered(draft, NEW))
    assert planned["ok"], document.why_not(planned)
    (change,) = [each for each in planned["changes"] if each["leaves"]]
    assert change["leaves"] == sorted(OLD)
    assert "leaves branch 580 for 595" in change["reason"]
    assert "leaves libnvidia-compute-580-server:i386" in document.describe(planned)
    assert planned["exchange"] == {"comes": NEW, "leaves": sorted(OLD)}


def test_packages_of_the_same_names_are_exchanged_though_their_branch_is_the_wished_one() -> None:
    same = {name.replace("-server", ""): version for name, version in OLD.items() if not name.startswith("linux")}
    draft = drafted(ubuntu(same), nvidia_driver_branch="580")
    assert set(draft.replaced) == set(same)
    assert draft.keep[EVERY_PACKAGE] == "580."
    assert exchange.addresses(draft.context.stack)


def test_versions_that_were_sealed_of_anexchange_are_not_kept() -> None:
    facts = ubuntu(OLD)
    seal = {"state": "good", "digest": "0" * 64, "stack": {}, "packages": dict.fromkeys(NEW, _UBUNTU)}
    facts["seals"] = {"nvidia_driver": seal}
    assert _UBUNTU not in drafted(facts, nvidia_driver_branch="580").keep.values()


def test_a_branch_whose_packages_have_other_names_takes_the_place_of_another_one() -> None:
    """Else the firmware of the branch that is left stays behind."""
    draft = drafted(ubuntu(OLD), "upgrade", nvidia_driver_source="distro", nvidia_driver_branch="595")
    assert "nvidia-firmware-580-server-580.173.02" in draft.replaced


def test_a_branch_whose_packages_have_the_same_names_does_not() -> None:
    names = ("nvidia-driver-pinning-580", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1")
    facts = nodes.provisioned(driver={"packages": dict.fromkeys(names, f"{nodes.DRIVER}-1")})
    assert drafted(facts, "upgrade", nvidia_driver_branch="595").replaced == {}


def test_the_same_source_is_no_exchange() -> None:
    assert drafted(ubuntu(OLD), nvidia_driver_source="distro", nvidia_driver_branch="580").replaced == {}
    assert exchange.addresses({"driver": nodes.driver_stack(source="distro"), "repositories": []}) == []


def test_a_package_whose_version_is_a_date_is_of_no_other_branch() -> None:
    """Debian's nvidia-kernel-common, beside a set of which a part is missing yet."""
    wished: Any = {
        "adopted": False,
        "source": "distro",
        "branch": "580",
        "packages": [*OLD, "libnvidia-encode1-580-server"],
    }
    there = {**OLD, "nvidia-kernel-common": "20240109+1"}
    assert exchange.replaced(ubuntu(there), wished) == {}
    wished["branch"] = "550"
    assert exchange.replaced(ubuntu(there), wished)


def test_packages_of_others_that_would_go_too_stop_it() -> None:
    draft = drafted(ubuntu(OLD))
    planned = finish(draft, answered(draft, NEW, "ollama"))
    (refusal,) = planned["refusals"]
    assert refusal["rule"] == "takes-away"
    assert refusal["text"].endswith("it removes ollama 1")
    assert "--allow-remove ollama" in (refusal["remedy"] or "")


def test_what_dpkgs_journal_has_out_already_is_nobody_elses() -> None:
    mark: Any = drafted(ubuntu(OLD)).context.stack["driver"] | {"replaces": OLD}
    gone = "libnvidia-cfg1-580-server"
    draft = drafted(ubuntu({name: each for name, each in OLD.items() if name != gone}, "distro", mark))
    planned = finish(draft, answered(draft, NEW, gone))
    assert planned["ok"], document.why_not(planned)


def test_nothing_is_taken_out_where_the_index_does_not_say_what_comes() -> None:
    draft = drafted(ubuntu(OLD))
    planned = finish(draft, index_of(draft) | {"exchange": None})
    assert "driver.exchange" in {each["rule"] for each in planned["refusals"]}


@pytest.mark.parametrize("verb", ["doctor", "validate"])
def test_who_only_looks_is_not_refused_an_exchange(verb: str) -> None:
    """The index is not asked for it either."""
    draft = drafted(ubuntu(OLD), verb)
    assert draft.replaced == OLD
    assert "driver.exchange" not in {each["rule"] for each in finish(draft, None)["refusals"]}


def test_a_run_leaves_the_old_set_in_its_mark_and_no_version_to_return_to(tmp_path: Path) -> None:
    draft = drafted(ubuntu(OLD))
    begin: Any = finish(draft, answered(draft, NEW))["begin"]["nvidia_driver"]
    assert begin["stack"]["replaces"] == OLD
    node = Host(root=str(tmp_path))
    assert sealing.begun(node, "nvidia_driver", begin, {"packages": OLD})["packages"] == {}
    assert sealing.begun(node, "nvidia_driver", begin | {"stack": {}}, {"packages": OLD})["packages"] == OLD


@pytest.mark.parametrize("left", [{}, {"libnvidia-cfg1-580-server": _UBUNTU}])
def test_what_was_cut_off_goes_on_until_nothing_of_the_old_set_is_left(left: dict[str, str]) -> None:
    """NVIDIA's pinning package is there already: the observation takes the driver for NVIDIA's."""
    mark: Any = drafted(ubuntu(OLD)).context.stack["driver"] | {"replaces": OLD}
    draft = drafted(ubuntu({**NEW, **left}, "nvidia", mark))
    assert draft.replaced == ({**NEW, **left} if left else {})


def test_what_is_left_of_an_old_set_gives_way_though_its_core_is_gone() -> None:
    """Else apt would take away what nobody said would go."""
    mark: Any = drafted(ubuntu(OLD)).context.stack["driver"] | {"replaces": OLD}
    left = {name: version for name, version in OLD.items() if "compute" not in name and "kernel-common" not in name}
    assert drafted(ubuntu(left, "distro", mark)).replaced == left


def test_a_wish_that_was_taken_back_in_the_middle_leads_back() -> None:
    mark: Any = drafted(ubuntu(OLD)).context.stack["driver"] | {"replaces": OLD}
    half = ubuntu({**OLD, "libnvidia-compute": NEW["libnvidia-compute"]}, "distro", mark)
    assert "libnvidia-compute" in drafted(half, nvidia_driver_source="distro", nvidia_driver_branch="580").replaced
    assert (
        drafted(ubuntu(OLD, "distro", mark), nvidia_driver_source="distro", nvidia_driver_branch="580").replaced == {}
    )


def test_an_interrupted_exchange_is_finished_by_the_exchange_and_not_by_the_repair() -> None:
    facts = ubuntu(OLD)
    facts["packages"] |= {"interrupted": True, "interrupted_detail": "packages left unfinished: unpacked: nvidia-utils"}
    assert "repair" not in drafted(facts).findings
    assert "repair" in drafted(facts, nvidia_driver_source="distro", nvidia_driver_branch="580").findings


def test_the_way_back_does_not_remember_what_a_run_replaced() -> None:
    facts = ubuntu(OLD, mark={"source": "nvidia", "replaces": OLD}) | {"smi": nodes.smi()}
    remembered = rollback.working(facts)
    assert remembered is not None
    assert "replaces" not in remembered["stack"]
