"""The work on an environment that has more than one framework in it: what pip is asked for, in which order, and its Jupyter kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import jupyter_kernels
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import asked, contents, kernels
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.removal_work import _of_kernels
from tests.unit.plan.nodes import bare

PATH = "/opt/gpuwright/research"
KERNEL = "/usr/local/share/jupyter/kernels/gpuwright-research"
TORCH_INDEX = "https://torch.example/cu126"
MIRROR = "https://pypi.example/simple"
PINS = ["torch==2.14.1+cu126", "tensorflow[and-cuda]==2.21.0"]
LIMITS = ["nvidia-cudnn-cu12==9.10.2.21"]


def row(name: str = "pytorch", **changes: Any) -> Any:
    return {
        "name": name, "version": "2.14.1", "variant": "cu126", "path": PATH, "interpreter": "3.12", "environment": "research",
        "requirements": PINS, "constraints": LIMITS, "cuda": "12.6",
        "installs": [
            {"name": "pytorch", "variant": "cu126", "requirements": PINS[:1], "index_url": TORCH_INDEX},
            {"name": "tensorflow", "variant": "and-cuda", "requirements": PINS[1:]},
        ],
        "others": ["pandas>=2", "requests[socks]==2.32.0", "ipykernel"], **changes,
    }  # fmt: skip


def context(*rows: Any, environments: Mapping[str, Any] | None = None) -> Context:
    return Context(facts={**bare(), "environments": environments or {}}, stack={"frameworks": list(rows)})  # type: ignore[typeddict-item] # of a test


def begin(*rows: Any) -> Any:
    plan: Any = {"packages": {}, "install": [], "rebuild": [], "builds": {}}
    begun: Any = frameworks.COMPONENT.steps["begin"](context(*rows), plan)
    return begun["environments"]


def there(*rows: Any, **changes: Any) -> dict[str, Any]:
    """The environment as it is right for a row."""
    packages = {
        "torch": "2.14.1+cu126",
        "tensorflow": "2.21.0",
        "pandas": "2.3",
        "requests": "2.32.0",
        "ipykernel": "7.1",
    }
    seen: dict[str, Any] = {"python": "3.12.3", "packages": packages, "loader_path": None, "damage": [], "kept": None}
    if rows and rows[0].get("kernel"):
        seen["kernel"] = jupyter_kernels.digest(kernels.content(rows[0]))
    return {PATH: {**seen, **changes}}


# what is installed -------------------------------------------------------------------------------------


def test_several_frameworks_are_one_environment_and_each_comes_from_its_index() -> None:
    (work,) = begin(row(), row("tensorflow", version="2.21.0")).values()
    assert work["title"] == "pytorch 2.14.1 and tensorflow 2.21.0"
    assert [(each["requirements"], each["index_url"]) for each in work["installs"]] == [
        (PINS[:1], TORCH_INDEX),
        (PINS[1:], None),
        (["pandas>=2", "requests[socks]==2.32.0", "ipykernel"], None),
    ]
    held = [*LIMITS, "torch==2.14.1+cu126", "tensorflow==2.21.0", "pandas>=2", "requests==2.32.0"]
    assert all(each["constraints"] == held for each in work["installs"])
    assert work["holds"] == [*PINS, "pandas>=2", "requests[socks]==2.32.0", "ipykernel"]


def test_one_framework_alone_is_installed_as_it_was() -> None:
    alone = row(dependencies_url=MIRROR, index_url=TORCH_INDEX, from_source=["x"], requirements=PINS[:1])
    for key in ("installs", "others", "environment"):
        del alone[key]
    (work,) = begin(alone).values()
    assert work["installs"] == [
        {
            "requirements": PINS[:1], "constraints": LIMITS, "wheels": [], "index_url": TORCH_INDEX, "dependencies_url": MIRROR,
            "from_source": ["x"],
        }
    ]  # fmt: skip
    assert work["kernel"] == {"directories": [], "files": [], "absent": [KERNEL]}


@pytest.mark.parametrize(
    ("changes", "index", "rest"),
    [
        ({}, TORCH_INDEX, ""),
        ({"installs": [], "index_url": TORCH_INDEX, "dependencies_url": MIRROR}, TORCH_INDEX, MIRROR),
        ({"installs": [], "others": [], "index_url": TORCH_INDEX}, TORCH_INDEX, None),
        ({"installs": []}, None, None),
    ],
    ids=["the host's own besides", "a mirror besides", "one index", "the host's own"],
)
def test_what_a_lock_names_comes_at_once_from_all_of_its_indexes(
    changes: Any, index: str | None, rest: str | None
) -> None:
    wheels = [{"name": "torch", "version": "2.14.1+cu126", "sha256": ["0" * 64]}]
    (work,) = begin(row(wheels=wheels, **changes)).values()
    (install,) = work["installs"]
    assert (install["wheels"], install["index_url"], install["dependencies_url"]) == (wheels, index, rest)


def test_the_python_index_is_asked_for_each_pin_where_it_comes_from() -> None:
    found = asked.wheels(context(row(), row("tensorflow")))
    assert [(each.text, list(each.urls)) for each in found] == [
        ("torch==2.14.1+cu126", [TORCH_INDEX]),
        ("tensorflow==2.21.0", []),
        ("requests==2.32.0", []),
    ]


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        ("pandas>=2", True),
        ("pandas>=3", False),
        ("Requests[socks]==2.32.0", True),
        ("torch==2.14.1", True),
        ("scipy", False),
    ],
)
def test_what_a_project_requires_is_judged_by_what_is_there(requirement: str, met: bool) -> None:
    assert contents.meets(requirement, there()[PATH]["packages"]) is met


def test_an_environment_that_lacks_what_a_project_requires_is_built_once_for_all_its_frameworks() -> None:
    rows = row(), row("tensorflow", version="2.21.0")
    assert frameworks.findings(context(*rows, environments=there(*rows))) == []
    seen = there(*rows)
    del seen[PATH]["packages"]["pandas"]
    (finding,) = frameworks.findings(context(*rows, environments=seen))
    assert finding.action == "upgrade"
    assert finding.reason == f"{PATH} lacks pandas>=2"
    assert finding.after == "pytorch 2.14.1 and tensorflow 2.21.0"


# its kernel --------------------------------------------------------------------------------------------


def test_a_kernel_starts_the_environment_by_its_own_path() -> None:
    (work,) = begin(row(kernel=KERNEL)).values()
    assert work["kernel"]["directories"] == [KERNEL]
    (file,) = work["kernel"]["files"]
    assert file["path"] == f"{KERNEL}/kernel.json"
    said = json.loads(file["content"])
    assert said["argv"] == [f"{PATH}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert said["display_name"] == "Python 3.12 (research, gpuwright)"
    assert "env" not in said


def test_a_kernel_finds_the_libraries_of_cuda_compat_first_as_the_activation_does() -> None:
    said = json.loads(kernels.content(row(loader_path="/usr/local/cuda-13.0/compat")))
    assert said["env"] == {"LD_LIBRARY_PATH": "/usr/local/cuda-13.0/compat"}


@pytest.mark.parametrize(
    ("wished", "seen", "reason"),
    [
        (KERNEL, {}, None),
        (KERNEL, {"kernel": None}, "lacks its Jupyter kernel"),
        (KERNEL, {"kernel": "0" * 64}, "has another Jupyter kernel"),
        (None, {}, None),
        (None, {"kernel": "0" * 64}, "has a Jupyter kernel that is not wished"),
    ],
)
def test_a_kernel_is_written_without_a_build(wished: str | None, seen: Any, reason: str | None) -> None:
    asked_for = row(**({"kernel": wished} if wished else {}))
    found = frameworks.findings(context(asked_for, environments=there(asked_for, **seen)))
    if reason is None:
        assert found == []
        return
    (finding,) = found
    assert (finding.action, finding.reason) == ("configure", f"{PATH} {reason}")
    assert finding.files == [PATH, f"{KERNEL}/kernel.json"]


def test_a_kernel_is_sealed_and_goes_with_the_environment_and_no_other_one() -> None:
    sealed = frameworks.manages(context(row(kernel=KERNEL), row("tensorflow", kernel=KERNEL)))
    assert list(sealed.environments) == [PATH]
    assert list(sealed.files) == [f"{KERNEL}/kernel.json"]
    assert removal.WRITTEN.fullmatch(f"{KERNEL}/kernel.json")
    assert not removal.WRITTEN.fullmatch("/usr/local/share/jupyter/kernels/python3/kernel.json")
    assert not removal.WRITTEN.fullmatch("/usr/local/share/jupyter/kernels/gpuwright-a/../x/kernel.json")
    assert _of_kernels([f"{KERNEL}/kernel.json", "/etc/gpuwright/x"]) == [KERNEL]
    assert set(kernels.DIRECTORIES) == {"/usr/local/share/jupyter/kernels", "/usr/local/share/jupyter"}


def test_an_environment_with_a_name_is_removed_and_no_directory_of_the_system() -> None:
    for path in (PATH, "/srv/envs/py3.12", "/opt/gpuwright/pytorch"):
        assert removal.ENVIRONMENT.fullmatch(path), path
    for path in (
        "/etc/research",
        "/usr/local",
        "/home/someone",
        "/opt/gpuwright/.research",
        "/research",
        "/boot/x",
        "/var/lib",
    ):
        assert not removal.ENVIRONMENT.fullmatch(path), path


def test_the_seal_of_an_environment_without_a_name_has_no_new_key() -> None:
    alone = row()
    for key in ("installs", "others", "environment"):
        del alone[key]
    inputs: Any = frameworks.inputs
    (old,) = inputs(context(alone))["frameworks"]
    assert set(old) == {
        "name", "requirements", "constraints", "index_url", "dependencies_url", "path", "loader_path", "wheels",
    }  # fmt: skip
    (new,) = inputs(context(row(kernel=KERNEL)))["frameworks"]
    assert set(new) - set(old) == {"environment", "others", "installs", "kernel"}
