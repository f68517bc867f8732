"""The component cuda: NCCL, TensorRT and cuda-compat beside the toolkits."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.demand import continues
from tests.unit.plan.nodes import bare

NCCL: Any = {"version": None, "packages": ["libnccl2", "libnccl-dev"], "cuda": "12"}
COMPAT: Any = {"version": "13.0", "package": "cuda-compat-13-0", "path": "/usr/local/cuda-13.0/compat"}


def context(installed: dict[str, str], **stack: Any) -> Context:
    facts = bare()
    facts["packages"]["installed"] = installed
    whole: Any = {"repositories": [], **stack}
    return Context(facts=facts, stack=whole)


@pytest.mark.parametrize("part", [{"nccl": NCCL}, {"tensorrt": NCCL}, {"cuda_compat": COMPAT}])
def test_each_of_them_alone_makes_the_component_wanted(part: Any) -> None:
    assert cuda.wanted(context({}, **part))
    assert not cuda.wanted(context({}))


def test_what_is_missing_is_found_and_installed() -> None:
    found = cuda.findings(context({"libnccl2": "2.29.3-1+cuda12.9"}, nccl=NCCL, cuda_compat=COMPAT))
    assert [(each.action, list(each.packages)) for each in found] == [
        ("install", ["libnccl-dev"]),
        ("install", ["cuda-compat-13-0"]),
    ]


@pytest.mark.parametrize(
    ("there", "told"), [([], None), (["12.9.1"], "12.9.1"), (["12.8.1", "12.9.1"], "12.8.1, 12.9.1")]
)
def test_a_toolkit_that_comes_is_told_with_those_that_are_there(there: list[str], told: str | None) -> None:
    seen = context({}, cuda=[{"version": "13.0.3", "packages": ["cuda-toolkit-13-0"]}])
    seen.facts["cuda"]["toolkits"] = [{"path": "/usr/local/cuda", "version": version} for version in there]
    (finding,) = cuda.findings(seen)
    assert (finding.action, finding.before, finding.after) == ("install", told, "13.0.3")


def test_a_library_built_for_another_cuda_is_exchanged_with_all_its_packages() -> None:
    wrong = {"libnccl2": "2.30.7-1+cuda13.2", "libnccl-dev": "2.29.3-1+cuda12.9"}
    (finding,) = cuda.findings(context(wrong, nccl=NCCL))
    assert (finding.action, finding.before) == ("upgrade", "2.30.7-1+cuda13.2")
    assert list(finding.packages) == NCCL["packages"]
    assert "for CUDA 12" in finding.reason


def test_a_library_of_another_version_than_wished_is_exchanged() -> None:
    there = {"libnccl2": "2.29.3-1+cuda12.9", "libnccl-dev": "2.29.3-1+cuda12.9"}
    assert cuda.findings(context(there, nccl=NCCL)) == []
    assert cuda.findings(context(there, nccl={**NCCL, "version": "2.29.3"})) == []
    (finding,) = cuda.findings(context(there, nccl={**NCCL, "version": "2.27.7"}))
    assert (finding.action, finding.after) == ("upgrade", "2.27.7 for CUDA 12")


def test_the_seal_covers_every_package_of_them() -> None:
    seen = context({}, nccl=NCCL, cuda_compat=COMPAT)
    assert list(cuda.manages(seen).packages) == ["libnccl2", "libnccl-dev", "cuda-compat-13-0"]
    assert cuda.inputs(seen)["packages"] == ["libnccl2", "libnccl-dev", "cuda-compat-13-0"]


def test_a_sealed_library_for_the_same_cuda_goes_on_being_the_wished_one() -> None:
    (start,) = set(cuda.version_prefixes({"nccl": NCCL}).values())
    assert continues("2.29.3-1+cuda12.9", start)
    assert not continues("2.30.7-1+cuda13.2", start)


@pytest.mark.parametrize(
    ("manager", "told"),
    [
        ("apt", 'run "apt-get install --reinstall cuda-toolkit-13-0" and read what it says'),
        ("dnf", 'run "dnf reinstall cuda-toolkit-13-0" and read what it says'),
        (None, "install cuda-toolkit-13-0 again and read what that says"),
    ],
)
def test_what_to_do_where_a_compiler_is_not_what_it_has_to_be(manager: Any, told: str) -> None:
    toolkit: Any = {"version": "13.0.3", "packages": ["cuda-toolkit-13-0"], "path": "/usr/local/cuda-13.0"}
    seen = context({}, cuda=[toolkit])
    seen.facts["packages"]["manager"] = manager
    assert cuda._remedy(seen, toolkit) == told
