"""A lock: written with exact versions, read with care, and held to on a node or refused with the reason."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import LockStack
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import index_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock, part
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import (
    Machine,
    machine_from_facts,
    machine_from_options,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import TODAY, index_of, request

ROOT = Path(__file__).resolve().parents[3]
WANTS = ("cuda=13.0.3", "cudnn", "container-toolkit", "pytorch")


def machine(*cards: str, system: str = "debian-13", arch: str = "x86_64", **assume: Any) -> Machine:
    return machine_from_options(cards or ("H100",), system, arch, assume, load_rules(), today=TODAY)


def made(*wants: str, where: Machine | None = None) -> Any:
    """The lock of a wish, as it comes back from its file."""
    chosen = wants or WANTS
    document = lock.make(where or machine(), Wish.from_wants(chosen), load_rules(), wants=chosen, version="0.1.0")
    return dict(lock.check(json.loads(lock.text(document))))


def drafted(document: Any, facts: Any | None = None, **variables: Any) -> Draft | Plan:
    asked = lock.as_wish(document, variables)
    return make_draft(facts or nodes.bare(), asked, load_rules(), request(lock=document))


def conflicts(document: Any, facts: Any) -> dict[str, str]:
    """The reasons by rule why a node is not held to a lock."""
    plan = drafted(document, facts)
    assert isinstance(plan, dict)
    assert not plan["ok"]
    assert all(row["remedy"] for row in plan["conflicts"])
    return {row["rule"]: row["text"] for row in plan["conflicts"]}


@pytest.fixture(scope="module")
def schema() -> Any:
    loaded: Any = json.loads((ROOT / "docs" / "lock.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "wants"),
    [
        (machine(), WANTS),
        (machine(system="ubuntu-24.04"), ("driver", "cuda=12.8", "cudnn=9.10.2")),
        (machine(system="ubuntu-24.04", secure_boot=True), ("driver",)),
        (machine("RTX 4090", desktop=True), ("pytorch>=2.7",)),
        (machine("V100", system="ubuntu-22.04"), ("cuda", "cudnn")),
        (machine("A100"), ("driver", "cuda-source=distro")),
        (machine("A100", system="ubuntu-24.04"), ("driver", "cuda=11.8", "cuda=12.2", "cuda-source=runfile")),
        (machine("GH200", system="ubuntu-24.04", arch="aarch64"), ("cuda", "cuda=12.9", "container-toolkit=1.19")),
    ],
)
def test_a_lock_keeps_its_schema_and_names_every_version_exactly(
    schema: Any, where: Machine, wants: tuple[str, ...]
) -> None:
    document = made(*wants, where=where)
    jsonschema.Draft202012Validator(schema).validate(document)
    stack = document["stack"]
    versions = [stack["driver"]["version"], *(toolkit["release"] for toolkit in stack.get("cuda", ()))]
    versions += [stack[name]["version"] for name in ("cudnn", "nccl", "tensorrt") if name in stack]
    if "container_toolkit" in stack:
        versions.append(stack["container_toolkit"]["version_spec"].removeprefix("=="))
    assert all(version and len(numeric_version.key(version)) > 2 for version in versions), versions
    for framework in stack.get("frameworks", ()):
        assert all("==" in pin for pin in framework["requirements"])
        assert framework["interpreter"]


@pytest.mark.parametrize("wants", [("nccl", "tensorrt", "cuda=12.9"), ("tensorflow", "jax[cuda12]", "dali")])
def test_libraries_and_every_framework_can_be_locked(schema: Any, wants: tuple[str, ...]) -> None:
    document = made(*wants, where=machine("A100", system="ubuntu-22.04"))
    jsonschema.Draft202012Validator(schema).validate(document)
    stack = resolver.resolve(machine("A100", system="ubuntu-22.04"), lock.as_wish(document, {}), load_rules())
    assert stack["ok"], stack
    assert lock._stack(stack["stack"]) == document["stack"]


@pytest.mark.parametrize(
    ("wants", "source", "releases"),
    [
        (("cuda-source=distro",), "distro", ["12.4.1"]),
        # The newest release is not the last one whose file has a checksum.
        (("cuda=12.8", "cuda=13.0", "cuda-source=runfile"), "runfile", ["12.8.1", "13.0.2"]),
        (("cuda=13.0",), None, ["13.0.3"]),
    ],
)
def test_a_lock_has_where_toolkits_come_from_and_holds_a_node_to_it(
    wants: tuple[str, ...], source: str | None, releases: list[str]
) -> None:
    where = machine("A100")
    document = made("driver", *wants, where=where)
    toolkits = document["stack"]["cuda"]
    assert [each.get("source") for each in toolkits] == [source] * len(toolkits)
    assert [each["release"] for each in toolkits] == releases
    # A host that says another source is held to the lock's all the same.
    asked = lock.as_wish(document, {"cuda_source": "nvidia"} if source else {})
    assert asked.cuda_source == source
    answer = resolver.resolve(where, asked, load_rules())
    assert lock.differences(document, where, answer["stack"], load_rules()) == []


def test_a_lock_of_before_names_no_source_and_is_read_as_it_was() -> None:
    document = made("driver", "cuda=12.8", "cuda-source=runfile", where=machine("A100"))
    for toolkit in document["stack"]["cuda"]:
        del toolkit["source"]
    assert lock.as_wish(lock.check(document), {"cuda_source": "runfile"}).cuda_source == "runfile"
    answer = resolver.resolve(machine("A100"), lock.as_wish(document, {"cuda_source": "runfile"}), load_rules())
    assert lock.differences(document, machine("A100"), answer["stack"], load_rules()) == []


@pytest.mark.parametrize(
    ("library", "wants", "archives"),
    [
        ("cudnn", ("cuda=13.0", "cudnn-source=archive"), 1),
        # Each toolkit has the newest that serves it: no one version could be wished.
        ("cudnn", ("cuda=11.8", "cuda=13.0", "cudnn-source=archive", "cuda-source=runfile"), 2),
        ("cudnn", ("cuda=13.0", "cudnn"), 0),
        ("nccl", ("cuda=12.8", "cuda=13.0", "nccl-source=archive"), 1),
        ("nccl", ("cuda=13.0", "nccl"), 0),
        ("tensorrt", ("cuda=12.8", "cuda=13.0", "tensorrt=10.14.1", "tensorrt-source=archive"), 1),
        ("tensorrt", ("cuda=13.0", "tensorrt"), 0),
    ],
)
def test_a_lock_has_where_a_library_comes_from_and_holds_a_node_to_it(
    schema: Any, library: str, wants: tuple[str, ...], archives: int
) -> None:
    where = machine("A100", system="ubuntu-24.04")
    document = made("driver", *wants, where=where)
    jsonschema.Draft202012Validator(schema).validate(document)
    held: Any = document["stack"][library]
    assert held.get("source") == ("archive" if archives else None)
    assert len({part._version_in(name) for name in held.get("archives", ())}) == archives
    # Its wish names the version where there is one.
    wished = [want for want in lock.as_wants(document["stack"]) if want.startswith(f"{library}=")]
    assert wished == ([] if archives == 2 else [f"{library}={held['version']}"])
    # A host that says another source is held to the lock's all the same.
    asked = lock.as_wish(lock.check(document), {f"cuda_{library}_source": "packages"} if archives else {})
    assert getattr(asked, f"{library}_source") == ("archive" if archives else None)
    answer = resolver.resolve(where, asked, load_rules())
    assert lock.differences(document, where, answer["stack"], load_rules()) == []


def test_another_archive_than_the_locks_is_refused() -> None:
    where = machine("A100", system="ubuntu-24.04")
    document = made("driver", "cuda=13.0", "cudnn-source=archive", where=where)
    answer = resolver.resolve(where, lock.as_wish(document, {}), load_rules())
    document["stack"]["cudnn"]["archives"] = ["cudnn-linux-x86_64-9.1.0.70_cuda13-archive.tar.xz"]
    told = [entry["text"] for entry in lock.differences(document, where, answer["stack"], load_rules())]
    assert any(text.startswith("cuDNN archives: the lock has cudnn-linux-x86_64-9.1.0.70_cuda13") for text in told)


def test_what_a_lock_names_resolves_to_the_lock_again() -> None:
    document = made()
    again = resolver.resolve(machine(), lock.as_wish(document, {}), load_rules())
    assert lock._stack(again["stack"]) == document["stack"]
    assert made(*lock.as_wants(document["stack"]))["stack"] == document["stack"]


def test_the_same_question_gives_the_same_bytes() -> None:
    assert lock.text(made()) == lock.text(made())


def test_an_open_driver_is_locked_at_the_newest_build_that_its_source_has() -> None:
    assert made("driver")["stack"]["driver"]["version"] == "580.178.04"
    signed = made("driver", where=machine(system="ubuntu-24.04", secure_boot=True))["stack"]["driver"]
    carried = {
        row["branch"]: row["build"] for row in load_rules()["systems"]["distro_drivers"] if row["os"] == "ubuntu-24.04"
    }
    assert (signed["source"], signed["version"]) == ("distro", carried[signed["branch"]])


def test_what_limits_a_version_limits_it_in_the_lock_too() -> None:
    assert (
        made("cuda=12.6", "cudnn", where=machine("V100", system="ubuntu-24.04"))["stack"]["cudnn"]["version"]
        == "9.10.2.21"
    )


@pytest.mark.parametrize(("card", "want", "other"), [("H100", "13", "12"), ("V100", "12", "13")])
def test_a_library_without_a_toolkit_is_locked_for_the_cuda_of_its_packages(card: str, want: str, other: str) -> None:
    rules = copy.deepcopy(load_rules())
    rules["cudnn"]["ceilings"] = []
    for row, major in zip(rules["cudnn"]["versions"][-2:], (want, other), strict=True):
        row["cuda_majors"] = [major]
    where = machine(card, system="ubuntu-24.04")
    document = lock.make(where, Wish.from_wants(["cudnn"]), rules, wants=["cudnn"], version="0.1.0")
    cudnn = document["stack"]["cudnn"]
    assert cudnn["version"] == rules["cudnn"]["versions"][-2]["version"]
    assert f"libcudnn9-cuda-{want}" in cudnn["packages"]


def test_packages_of_the_kernel_follow_each_node_and_are_not_locked() -> None:
    locked = made("driver", where=machine(system="ubuntu-24.04", secure_boot=True))["stack"]["driver"]["packages"]
    assert locked
    assert not [name for name in locked if name.startswith("linux-")]
    locked = made("driver", where=machine(system="rocky-9"))["stack"]["driver"]["packages"]
    assert locked == ["python3-dnf-plugin-versionlock", "nvidia-driver-cuda", "kmod-nvidia-open-dkms"]


def test_every_part_of_a_stack_is_locked_or_known_not_to_be() -> None:
    wants = ("driver", "cuda", "cudnn", "nccl", "tensorrt", "container-toolkit", "pytorch")
    stack = resolver.resolve(machine(system="ubuntu-24.04"), Wish.from_wants(wants), load_rules())["stack"]
    assert stack.keys() <= LockStack.__annotations__.keys()


def test_nothing_is_locked_where_nothing_resolves() -> None:
    with pytest.raises(BadInput, match="no stack to lock"):
        made("driver=470", where=machine("B200"))


# --- with hashes ------------------------------------------------------------------------------------------------------


def recorded(framework: Any, **others: str) -> str:
    """The file that an environment with the wheels of a framework has; `others` are more of them."""
    pins = [
        *framework["requirements"],
        *framework["constraints"],
        *(f"{name}=={version}" for name, version in others.items()),
    ]
    rows = (f"{pin} --hash=sha256:{hashlib.sha256(pin.encode()).hexdigest()}" for pin in pins if "==" in pin)
    return "# By gpuwright\n" + "\n".join(rows) + "\n"


def hashed(*wants: str, **others: str) -> Any:
    """The lock of PyTorch with the wheels of an environment."""
    content = recorded(made(*wants or WANTS)["stack"]["frameworks"][0], **{"filelock": "4.2.11", **others})
    document = lock.make(
        machine(), Wish.from_wants(WANTS), load_rules(), wants=WANTS, version="0.1.0", hashes=[("the file", content)]
    )
    return dict(lock.check(json.loads(lock.text(document))))


def test_the_wheels_of_an_environment_are_locked_with_their_hashes(schema: Any) -> None:
    document = hashed()
    jsonschema.Draft202012Validator(schema).validate(document)
    (framework,) = document["stack"]["frameworks"]
    (filelock,) = [row for row in framework["wheels"] if row["name"] == "filelock"]
    assert filelock == {
        "name": "filelock", "version": "4.2.11", "sha256": [hashlib.sha256(b"filelock==4.2.11").hexdigest()]
    }  # fmt: skip
    assert framework.keys() - {"wheels"} == made()["stack"]["frameworks"][0].keys()


def test_a_node_is_held_to_the_wheels_of_its_lock_and_to_no_others() -> None:
    document = hashed()
    plan = drafted(document)
    assert isinstance(plan, Draft), plan
    (framework,) = plan.context.stack["frameworks"]
    assert framework["wheels"] == document["stack"]["frameworks"][0]["wheels"]
    environment = {
        "python": "3.13.5",
        "packages": {row["name"]: row["version"] for row in framework["wheels"]} | {"filelock": "4.3"},
        "loader_path": None,
    }
    facts = {**nodes.bare(), "environments": {framework["path"]: environment}}
    plan = drafted(document, facts)
    assert isinstance(plan, Draft), plan
    (finding,) = plan.findings["frameworks"]
    assert finding.reason == "/opt/gpuwright/pytorch lacks filelock==4.2.11"
    without = drafted(made(), facts)
    assert isinstance(without, Draft)
    assert not [each for each in without.findings.get("frameworks", ()) if "lacks" in each.reason]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("torch==2.14.1+cu130\n", "the file has no hash of torch==2.14.1+cu130, which was in the environment before"),
        ("--index-url http://evil.example\n", "expected NAME==VERSION --hash=sha256:…, found '--index-url http://evil"),
        ("torch @ http://evil.example/torch.whl\n", "expected NAME==VERSION"),
        (
            f"torch==1.0 --hash=sha256:{'0' * 64}\n",
            "has the wheels of no environment of this stack: it lacks torch==2.14.1",
        ),
        ("", "has the wheels of no environment of this stack"),
    ],
)
def test_a_file_that_does_not_say_which_wheels_is_bad_input(content: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        lock.make(
            machine(), Wish.from_wants(WANTS), load_rules(), wants=WANTS, version="0", hashes=[("the file", content)]
        )
    assert told in caught.value.message
    assert caught.value.suggestions


def test_wheels_that_break_a_constraint_are_those_of_another_stack() -> None:
    with pytest.raises(BadInput, match="it lacks nvidia-cudnn-cu13=="):
        hashed(**{"nvidia-cudnn-cu13": "9.28.0.42"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "torch\n--index-url=http://evil.example/"),
        ("name", "-rhttp://evil.example/x"),
        ("version", "1.0 --hash=md5:0"),
        ("version", "1.0\n"),
        ("sha256", ["0" * 63]),
        ("sha256", ["0" * 64 + "\n"]),
        ("sha256", []),
    ],
)
def test_a_locked_wheel_cannot_be_a_line_of_another_kind(schema: Any, key: str, value: Any) -> None:
    document = hashed()
    document["stack"]["frameworks"][0]["wheels"][0][key] = value
    with pytest.raises(BadInput, match=rf"stack\.frameworks\[0\]\.wheels\[0\]\.{key}.* has to (match|have 1 at least)"):
        lock.check(document)
    assert "\\n" in repr(value) or not jsonschema.Draft202012Validator(schema).is_valid(document)


# --- reading ----------------------------------------------------------------------------------------------------------


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def with_value(value: Any, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


MISTAKES = {
    "is not a lock of gpuwright": without("lock"),
    "'colour' that this version does not know": with_value("red", "colour"),
    "stack has a key 'rocm'": with_value({}, "stack", "rocm"),
    "stack.driver has a key 'rpm'": with_value("x", "stack", "driver", "rpm"),
    "stack.driver.branch is missing": without("stack", "driver", "branch"),
    "stack.driver.branch has to be a text, found 580": with_value(580, "stack", "driver", "branch"),
    "stack.cuda has to be a list": with_value({"version": "13.0"}, "stack", "cuda"),
    "stack has to be a mapping": with_value([], "stack"),
    "question.desktop has to be true or false": with_value(0, "question", "desktop"),
    "stack.driver.version has to be plain text": with_value("{{ lookup('pipe', 'id') }}", "stack", "driver", "version"),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_a_broken_lock_is_bad_input_with_the_place_of_the_mistake(told: str, schema: Any) -> None:
    document = copy.deepcopy(made())
    MISTAKES[told](document)
    with pytest.raises(BadInput) as caught:
        lock.check(document, "the lock file x")
    assert told in caught.value.message
    assert caught.value.message.startswith("the lock file x")
    assert caught.value.suggestions
    if "plain text" not in told:
        assert not jsonschema.Draft202012Validator(schema).is_valid(document)


def test_a_lock_of_a_newer_version_names_its_writer_and_is_not_guessed_at() -> None:
    newer = {"lock": lock.SCHEMA + 1, "gpuwright": "9.0", "something": "else"}
    with pytest.raises(BadInput, match=r"written by gpuwright 9\.0 in format 2, this version reads up to 1"):
        lock.check(newer)


@pytest.mark.parametrize("schema_number", [0, -1, "1", True, None, 1.5])
def test_a_format_that_never_was_is_bad_input(schema_number: object) -> None:
    with pytest.raises(BadInput, match="format"):
        lock.check({**made(), "lock": schema_number})


def test_a_version_that_the_rules_here_do_not_know_is_bad_input() -> None:
    document = made()
    document["stack"]["cuda"][0]["release"] = "12.7.0"
    with pytest.raises(BadInput, match=r"12\.7"):
        lock.check(document)


@pytest.mark.parametrize(
    ("text", "told"), [("{", "is not JSON"), ("[]", "is not a lock"), ('{"ok": true, "stack": {}}', "is not a lock")]
)
def test_a_file_that_is_no_lock_is_bad_input(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "l").write_text(text)
    with pytest.raises(BadInput, match=told):
        lock.load(str(tmp_path / "l"))


def test_a_lock_file_that_is_not_there_or_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not there"):
        lock.load(str(tmp_path / "none"))
    with pytest.raises(BadInput, match="cannot be read"):
        lock.load(str(tmp_path))
    for name in ("\x00", "a" * 5000):
        with pytest.raises(BadInput, match="cannot be read"):
            lock.load(name)
    with pytest.raises(BadInput, match="is not there"):
        lock.load("~nobody-here/lock.json")


# --- asking for it ----------------------------------------------------------------------------------------------------


def test_a_lock_speaks_alone_about_versions_and_the_host_about_itself() -> None:
    document = made()
    host = {
        "gpuwright_gpus_expected": 2,
        "frameworks_path": "/srv/ai",
        "gpuwright_mirrors": {"nvidia": "http://mirror"},
    }
    asked = lock.as_wish(document, {**host, "nvidia_driver_branch": "570", "cuda_versions": ["12.8"]})
    assert (asked.driver_version, asked.cuda_versions) == ("580.178.04", ("13.0.3",))
    assert (asked.gpus_expected, asked.frameworks_path) == (2, "/srv/ai")
    assert asked.mirrors == {"nvidia": "http://mirror"}


@pytest.mark.parametrize(
    ("beside", "field", "value"),
    [
        ({"gpuwright_want": ["driver", "cuda", "gpu-log=7", "watch"]}, "gpu_log", 7),
        ({"gpuwright_want": ["container-engine=podman"]}, "container_toolkit_engine", "podman"),
        ({"gpuwright_wish": {"gpuwright_want": ["watch=5m"], "frameworks_path": "/srv"}}, "watch", 5),
        ({"gpuwright_wish": {"cuda_versions": ["13.0"], "gpu_log_days": 3}}, "gpu_log", 3),
        ({"gpuwright_want": ["pytorch", "cuda=13"]}, "cuda_versions", ("13.0.3",)),
    ],
)
def test_what_a_lock_does_not_speak_of_is_wished_beside_it(beside: dict[str, Any], field: str, value: object) -> None:
    alone, asked = lock.as_wish(made(), {}), lock.as_wish(made(), beside)
    assert getattr(asked, field) == value
    assert (asked.driver_version, asked.cuda_versions, asked.frameworks) == (
        alone.driver_version,
        alone.cuda_versions,
        alone.frameworks,
    )


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({"gpuwright_want": ["gpu-log", "cuda=12.8"]}, r"'cuda=12\.8'"),
        ({"gpuwright_want": ["jax"]}, "'jax'"),
        ({"gpuwright_want": ["driver=570"]}, "'driver=570'"),
        ({"gpuwright_wish": {"cuda_versions": ["12.8"]}}, r"cuda_versions: \['12\.8'\]"),
        ({"gpuwright_wish": {"gpuwright_want": ["driver=570"]}}, "'driver=570'"),
    ],
)
def test_what_says_another_version_than_the_lock_is_bad_input(beside: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=f"the lock and .*{told}"):
        lock.as_wish(made(), beside)


# --- holding a node to it ---------------------------------------------------------------------------------------------


def test_a_node_is_held_to_the_versions_of_the_lock() -> None:
    draft = drafted(made())
    assert isinstance(draft, Draft), draft
    keep = draft.keep
    assert keep[EVERY_PACKAGE] == "580.178.04-"
    assert keep["cuda-toolkit-13-0"] == "13.0.3-"
    assert keep["nvidia-container-toolkit"] == "1.20.0-"
    assert {start for name, start in keep.items() if "cudnn" in name} == {made()["stack"]["cudnn"]["version"]}
    assert "nvidia-driver-pinning-580.178.04" in draft.packages


def test_a_node_of_another_card_may_be_held_to_the_lock_where_its_stack_is_the_same() -> None:
    assert isinstance(drafted(made(where=machine("A100"))), Draft)


def test_a_card_that_the_locked_versions_do_not_serve_is_named() -> None:
    document = made("driver=570.211.01", "cuda=12.8", where=machine("V100", system="ubuntu-24.04"))
    facts = nodes.bare(os={"id": "ubuntu", "version": "24.04"}, kernel={"next": "6.8.0-124-generic"})
    facts["pci"]["gpus"] = [{**facts["pci"]["gpus"][0], "device": "3182"}]
    told = conflicts(document, facts)
    assert next(iter(told)) == "lock.node"
    assert "V100" in told["lock.node"]
    assert "B300" in told["lock.node"]
    assert len(told) > 1


def test_another_system_is_named_where_the_stack_differs() -> None:
    document = made("driver", where=machine(system="ubuntu-24.04"))
    told = conflicts(document, nodes.bare())
    assert "nvidia-dkms-580-open" in told["lock.driver"]
    assert "nvidia-kernel-open-dkms" in told["lock.driver"]
    assert "system ubuntu-24.04, here debian-13" in told["lock.node"]
    assert "architecture" not in told["lock.node"]
    assert "kernel" not in told["lock.node"]


def test_the_remedy_is_a_command_that_makes_a_lock_for_the_node() -> None:
    plan = drafted(made("driver", where=machine(system="ubuntu-24.04")), nodes.bare())
    assert isinstance(plan, dict)
    remedy = str(plan["conflicts"][0]["remedy"])
    assert "gpuwright resolve --gpu 'H100" in remedy
    assert "--os debian-13 --arch x86_64 " in remedy
    assert "--want 'driver' --lock FILE" in remedy


@pytest.mark.parametrize(
    ("wants", "different", "said"),
    [
        (["driver"], {"boot": {"secure_boot": True}}, "--assume secure_boot=true"),
        (["driver", "driver-set=desktop"], {"kernel": {"next": "7.1.0-2-generic"}}, "--assume kernel=7.1.0-2-generic"),
    ],
)
def test_the_command_of_the_remedy_makes_another_lock_which_the_node_holds(
    wants: list[str], different: dict[str, Any], said: str
) -> None:
    document, facts = made(*wants), nodes.bare(**different)
    refused = lock._refused(document, machine_from_facts(facts, Wish(), load_rules(), today=TODAY), load_rules())
    command = shlex.split(re.search(r"\((gpuwright resolve .*) --lock FILE\)", refused["remedy"]).group(1))  # type: ignore[union-attr]
    options = dict.fromkeys(("--gpu", "--os", "--arch"), "")
    options |= {name: value for name, value in itertools.pairwise(command) if name in options}
    assume = [value for name, value in itertools.pairwise(command) if name == "--assume"]
    where = machine_from_options(
        [options["--gpu"]], options["--os"], options["--arch"], assume, load_rules(), today=TODAY
    )
    again = made(*wants, where=where)
    assert said in refused["remedy"]
    assert again["question"] != document["question"]
    assert isinstance(drafted(again, facts), Draft)


def test_where_nothing_that_can_be_said_differs_the_lock_is_made_of_what_was_observed() -> None:
    document = made("driver")
    where = machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY)
    (key,) = {name for name in ("--gpu", "--facts") if name in lock._refused(document, where, load_rules())["remedy"]}
    assert key == "--facts"


def test_a_part_that_only_one_side_has_is_a_difference() -> None:
    document = made()
    where = machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY)
    stack = resolver.resolve(where, lock.as_wish(document, {}), load_rules())["stack"]
    assert lock.differences(document, where, stack, load_rules()) == []
    del stack["cudnn"]
    (first, found) = lock.differences(document, where, stack, load_rules())
    assert (first["rule"], found["rule"]) == ("lock.node", "lock.cudnn")
    assert "this node resolves to none" in found["text"]


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("driver", "modules", "proprietary"),
        ("driver", "version", "580.126.20"),
        ("driver", "source", "distro"),
        ("driver", "set", "desktop"),
        ("container_toolkit", "version_spec", "==1.19.1"),
        ("frameworks", "constraints", ["nvidia-cudnn-cu13==9.1.0"]),
        ("frameworks", "variant", "cu126"),
        ("cuda", "release", "13.0.2"),
    ],
)
def test_a_value_that_differs_is_named_with_both_sides(part: str, key: str, value: Any) -> None:
    document = made()
    where = machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY)
    stack = resolver.resolve(where, lock.as_wish(document, {}), load_rules())["stack"]
    row = document["stack"][part]
    (row[0] if isinstance(row, list) else row)[key] = value
    (_first, found) = lock.differences(document, where, stack, load_rules())
    assert found["rule"] == f"lock.{part.replace('_', '-')}"
    assert (value[0] if isinstance(value, list) else value) in found["text"]


def test_the_order_of_packages_is_no_difference() -> None:
    document = made()
    for row in (document["stack"]["driver"], document["stack"]["cudnn"], *document["stack"]["frameworks"]):
        key = "requirements" if "requirements" in row else "packages"
        assert len(row[key]) > 1
        row[key] = row[key][::-1]
    assert isinstance(drafted(document), Draft)


def differing(document: Any, where: Machine) -> str:
    """Why a node differs, where the lock was changed by hand."""
    stack = resolver.resolve(where, lock.as_wish(document, {}), load_rules())["stack"]
    document["stack"]["frameworks"][0]["constraints"] = ["numpy<2"]
    first = lock.differences(document, where, stack, load_rules())[0]
    return str(first["text"]).removeprefix("the lock cannot be held on this node").removeprefix(": it was made ")


def test_where_the_machine_is_the_same_other_rules_are_named_as_the_reason() -> None:
    document = made()
    document["rules"] = {"generated": "2026-01-01", "digest": "other"}
    told = differing(document, machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY))
    rules = load_rules()
    here = f"of {rules['generated']}, {rules['digest'][:8]}"
    assert told == f"by other rules (of 2026-01-01, other, gpuwright 0.1.0; here {here})"


def test_other_rules_and_another_machine_are_both_named() -> None:
    document = made(where=machine("A100"))
    document["rules"]["digest"] = "other"
    told = differing(document, machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY))
    assert told.startswith("for another machine (cards A100")
    assert ") and by other rules (of" in told


def test_a_kernel_is_named_only_where_nothing_else_differs() -> None:
    where = replace(machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY), kernel="6.12.1")
    same = machine("H100", kernel="6.12.94")
    assert differing(made(where=same), where) == "for another machine (kernel 6.12.94, here 6.12.1)"
    assert differing(made(), where) == "", "the lock was made without a kernel"


def test_what_a_machine_has_besides_is_no_difference() -> None:
    where = machine_from_facts(nodes.bare(), Wish(), load_rules(), today=TODAY)
    richer = replace(where, environment="vm", secure_boot=None, pythons=("3.13", "3.12"), cards=where.cards * 4)
    assert differing(made(), richer) == ""


def test_mirrors_of_a_site_are_no_difference() -> None:
    mirrors = {"nvidia": "http://mirror.example/nvidia", "pytorch": "http://mirror.example/torch"}
    assert isinstance(drafted(made(), gpuwright_mirrors=mirrors), Draft)


def test_a_node_that_has_the_locked_versions_already_gets_no_packages() -> None:
    draft = drafted(made("driver", "container-toolkit"), nodes.provisioned())
    assert isinstance(draft, Draft), draft
    assert [each.action for each in draft.findings["nvidia_driver"]] == ["adopt"]
    assert [each.action for each in draft.findings["container_toolkit"]] == ["adopt"]


def test_a_driver_of_a_run_file_is_not_replaced_because_a_lock_says_packages() -> None:
    facts = nodes.provisioned()
    facts["driver"] |= {"owner": "runfile", "source": "runfile", "packages": {}}
    assert "runfile" in conflicts(made("driver"), facts)["lock.driver-owner"]


@pytest.mark.parametrize("wants", [WANTS, ("driver", "tensorflow"), ("driver", "cuda")])
def test_a_node_without_cards_is_told_only_that_the_lock_is_for_another_machine(wants: tuple[str, ...]) -> None:
    asked = made(*wants)
    plan = make_draft(
        nodes.bare(pci={"gpus": []}), lock.as_wish(asked, {}), load_rules(), request(lock=asked, local=True)
    )
    assert isinstance(plan, dict)
    (row,) = plan["conflicts"]
    assert row["rule"] == "lock.node"
    assert "made for another machine (cards H100 SXM5 80GB, here none)" in row["text"]
    assert "gpuwright resolve --os debian-13" in str(row["remedy"])


# --- where its index cannot -------------------------------------------------------------------------------------------


def refusals(document: Any, **offered: str | None) -> dict[str, Any]:
    draft = drafted(document)
    assert isinstance(draft, Draft), draft
    index = index_of(draft, **{**_exact(document, draft), **offered})
    plan = finish(draft, index)
    return {row["rule"]: row for row in plan["refusals"]}


def _exact(document: Any, draft: Draft) -> dict[str, str]:
    """An index that has all the versions of a lock."""
    stack = document["stack"]
    exact = {
        **dict.fromkeys(stack["cuda"][0]["packages"], f"{stack['cuda'][0]['release']}-1"),
        **dict.fromkeys(stack["cudnn"]["packages"], f"{stack['cudnn']['version']}-1"),
        **dict.fromkeys(
            stack["container_toolkit"]["packages"], f"{stack['container_toolkit']['version_spec'].removeprefix('==')}-1"
        ),
    }
    return {name.replace("-", "_"): version for name, version in exact.items() if name in draft.packages}


def test_an_index_that_has_the_locked_versions_is_taken() -> None:
    assert refusals(made()) == {}


@pytest.mark.parametrize(
    ("package", "offered", "told", "example"),
    [
        ("nvidia_driver_cuda", "580.126.20-1", "driver=580.178.04", "driver=580.126.20"),
        ("cuda_toolkit_13_0", "13.0.2-1", "cuda=13.0.3", "cuda=13.0.2"),
        ("libcudnn9_cuda_13", "9.24.0.43-1", "cudnn=", "cudnn=9.24.0.43"),
        ("nvidia_container_toolkit", "1.19.1-1", "container-toolkit=1.20.0", "container-toolkit=1.19.1"),
    ],
)
def test_a_locked_version_that_the_index_lacks_is_refused_with_those_that_are_there(
    package: str, offered: str, told: str, example: str
) -> None:
    (refused,) = refusals(made(), **{package: offered}).values()
    assert refused["rule"] == "index-version"
    assert f"the lock has {told}" in refused["text"]
    assert f"{package.replace('_', '-')} {offered}" in refused["text"]
    assert f"for example {example}" in str(refused["remedy"])


def test_a_locked_toolkit_of_which_the_index_has_nothing_is_refused_with_the_toolkits_there() -> None:
    draft = drafted(made())
    assert isinstance(draft, Draft)
    index = index_of(draft, **{**_exact(made(), draft), "cuda_toolkit_13_0": None})
    index["others"] = {"cuda-toolkit-13-1": ["13.1.1-1"], "cuda-toolkit-12-9": ["12.9.1-1"]}
    assert index_query.absent(draft, index) == {}
    (refused,) = finish(draft, index)["refusals"]
    assert refused["text"] == "the lock has cuda=13.0.3, the package index of this node has cuda 13.1.1, 12.9.1"
    assert "for example cuda=13.1.1" in str(refused["remedy"])


def test_a_lock_is_not_applied_where_the_index_did_not_say_what_it_has() -> None:
    draft = drafted(made())
    assert isinstance(draft, Draft)
    slow = nodes.index(problems=[{"kind": "timeout", "text": "no answer", "remedy": "-"}])
    assert [row["rule"] for row in finish(draft, slow)["refusals"]] == ["index-unverified"]
    open_wish = make_draft(nodes.bare(), Wish.from_wants(WANTS), load_rules(), request())
    assert isinstance(open_wish, Draft)
    assert finish(open_wish, slow)["refusals"] == []


def test_a_proof_does_not_need_the_index_of_a_lock() -> None:
    document = made()
    draft = make_draft(nodes.bare(), lock.as_wish(document, {}), load_rules(), request(lock=document, verb="validate"))
    assert isinstance(draft, Draft)
    assert finish(draft, None)["refusals"] == []
