"""No component takes away, or writes otherwise, a file of another one, whatever is wished of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe import own_units
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import programs
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.gpu_log import apply as gpu_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.mig import apply as mig
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tests.unit.plan import nodes
from tests.unit.plan.test_monitoring_exporters import made as made_alone
from tests.unit.plan.test_planner import plan, wish

#: What a person can choose of the components that write files, one after the other.
CHOICES: list[list[dict[str, Any]]] = [
    [{"monitoring_source": "smi"}, {"monitoring_source": "dcgm"}],
    [{"container_toolkit_engine": engine} for engine in ("docker", "podman", "containerd")],
    [{}, {"cuda_cudnn_source": "archive", "cuda_default": "keep"}, {"cuda_modulefiles": True}],
]
#: What has nothing to choose that changes its files.
BESIDE: Any = {
    "gpuwright_want": ["driver", "cuda", "cudnn", "container-toolkit", "pytorch", "monitoring-server"],
    "frameworks_jupyter": True,
    "mig_layout": "3g.40gb,3g.40gb",
    "gpu_settings_cards": {"all": {"power_limit": 350}},
    "gpu_log_days": 30,
    "watch_interval": "15m",
    "fabric_firewall": ["10.2.0.0/24"],
}
UNKNOWN: Any = {"active": None, "enabled": None}
ABSENT = {"active": "inactive", "enabled": "not-found"}


def node(**services: Any) -> Any:
    """A node of which systemd told that it has none of our units but those."""
    facts = nodes.provisioned(
        os={"id": "ubuntu", "version": "24.04", "codename": "noble", "name": "Ubuntu 24.04", "family": "debian"},
        monitoring={"listeners": [], "drop_ins": [], "certificate": None},
    )
    facts["services"] |= {**dict.fromkeys(own_units.UNITS, ABSENT), **services}
    facts["cuda"]["modulefiles"] = {"directories": ["/etc/lmod/modules"], "files": []}
    return facts


def written(component: str, planned: Any) -> dict[str, Any]:
    """What the role of a component writes, with its content and mode where the plan has them; and what its seal records."""
    its = planned["work"].get(component, {})
    found: dict[str, Any] = dict.fromkeys((planned["manages"].get(component) or {}).get("files") or ())
    found |= dict.fromkeys(its.get("programs") or (), "program")
    return found | {each["path"]: (each["content"], each["mode"]) for each in its.get("files") or ()}


def absent(component: str, planned: Any) -> set[str]:
    return set(planned["work"].get(component, {}).get("absent") or ())


@pytest.fixture(scope="module")
def everything() -> list[Any]:
    """The plan of each combination of what can be chosen; what the index lacks here has work all the same."""
    return list(_everything())


def _everything() -> Iterator[Any]:
    for choices in product(*CHOICES):
        asked: dict[str, Any] = dict(BESIDE)
        for choice in choices:
            asked |= choice
        yield plan(node(), wish(**asked), full=True)


def test_no_two_components_write_and_remove_the_same_file_whatever_is_chosen(everything: list[Any]) -> None:
    seen, wrong = set(), set()
    for planned in everything:
        seen |= set(planned["work"])
        for one, other in combinations(COMPONENTS, 2):
            for first, second in ((one, other), (other, one)):
                wrong |= {(first, second, path) for path in written(first, planned).keys() & absent(second, planned)}
            ours, theirs = written(one, planned), written(other, planned)
            both = {path for path in ours.keys() & theirs.keys() if ours[path] and theirs[path]}
            wrong |= {(one, other, path) for path in both if ours[path] != theirs[path]}
    assert wrong == set()
    with_files = {name for name, each in COMPONENTS.items() if each.units} | {"cuda", "container_toolkit", "frameworks"}
    assert with_files <= seen


@pytest.mark.parametrize(
    ("services", "stays"),
    [
        ({}, False),
        ({gpu_log.SERVICE: {"active": "inactive", "enabled": "static"}, gpu_log.TIMER: ABSENT}, True),
        ({gpu_log.SERVICE: UNKNOWN}, True),
    ],
    ids=["nobody", "who needs it", "nobody knows"],
)
def test_what_two_needed_goes_with_the_last_of_them_also_where_roles_are_used_alone(services: Any, stays: bool) -> None:
    """The exporters by DCGM, after those of our own; the log is wished by another play, and its program may be an old one."""
    gone = made_alone(node(**services), gpuwright_want=["driver=580", "monitoring=dcgm"])["work"]
    assert (programs.SAMPLER in gone["monitoring_exporters"]["absent"]) is not stays
    assert {f"{paths.PROGRAMS}/gpu_exporter.py", programs.METRICS} <= {*gone["monitoring_exporters"]["absent"]}


def test_what_the_programs_were_goes_with_the_run_that_writes_them_all_anew() -> None:
    """The layout's own program is one that the settings had a copy of: it stays."""
    units = {unit: {"active": "inactive", "enabled": "enabled"} for unit in own_units.UNITS}
    works = plan(node(**units), wish(**BESIDE, monitoring_source="smi"), full=True)["work"]
    gone = {name: absent(name, {"work": works}) for name in ("gpu_log", "mig", "gpu_settings", "monitoring_exporters")}
    assert gone["gpu_log"] == {programs.SAMPLER}
    assert gone["mig"] == gone["gpu_settings"] == {programs.PROCESSES}
    assert {programs.SAMPLER, programs.METRICS} <= gone["monitoring_exporters"]
    settings_alone = {key: value for key, value in BESIDE.items() if key != "mig_layout"}
    works = plan(node(), wish(**settings_alone), full=True)["work"]
    assert absent("gpu_settings", {"work": works}) == {mig.PROGRAM, programs.PROCESSES}


def test_no_two_seals_have_one_program(everything: list[Any]) -> None:
    for planned in everything:
        sealed = {name: written(name, planned).keys() for name in planned["manages"] or {}}
        for one, other in combinations(sealed, 2):
            assert not {path for path in sealed[one] & sealed[other] if path.startswith(paths.PROGRAMS)}, (one, other)
