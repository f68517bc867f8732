"""The component cuda: toolkits that come from files of NVIDIA's, what a cut leaves, and how they go again."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import archive, runfile
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

PATH = "/usr/local/cuda-12.2"
NAME = "cuda_12.2.2_535.104.05_linux.run"
STAGING = "/usr/local/.gpuwright-cuda-12.2"
RECORD = "/etc/gpuwright/cuda-12.2.json"


def node(there: str | None = None, state: str | None = None, tools: bool = True, packaged: bool | None = False) -> Any:
    """A host whose repository has no CUDA 12.2; ``there``: the release that is there, ``state``: what the record says of it."""
    facts = nodes.provisioned()
    facts["packages"]["installed"] |= {"libxml2": "2.12.7"} if tools else {}
    facts["cuda"]["toolkits"] = [{"path": PATH, "version": there}] if there else []
    record = {"path": PATH, "release": there or "12.2.2", "state": state, "packaged": packaged}
    facts["cuda"]["runfiles"] = [record] if state else []
    facts["cuda"]["default"] |= {"path": PATH if there else None, "registered": [PATH] if there else []}
    return facts


def made(facts: Any, version: str = "12.2", **variables: Any) -> Any:
    wish = Wish.from_variables({"cuda_source": "runfile", "cuda_versions": [version], **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("cuda",)))
    return finish(draft, None) if isinstance(draft, Draft) else draft


def changes(facts: Any, **variables: Any) -> list[tuple[str, str]]:
    found = made(facts, **variables)["changes"]
    return [(change["action"], change["reason"]) for change in found if change["component"] == "cuda"]


def work(facts: Any, **variables: Any) -> Any:
    return made(facts, **variables)["work"]["cuda"]


def test_a_toolkit_that_is_missing_comes_from_its_file_with_what_the_installer_needs() -> None:
    ((action, reason),) = changes(node(tools=False))
    assert (action, reason) == ("install", f"no toolkit is in {PATH}, {NAME} is wished")
    found = work(node(tools=False))
    (call,) = found["packages"]
    assert call["names"] == ["libxml2"]
    (file,) = found["runfiles"]
    assert file["command"][:3] == ["unshare", "--mount", "sh"]
    assert file["command"][-9:] == [
        PATH,
        "sh",
        f"/var/lib/gpuwright/cuda/{NAME}",
        "--silent",
        "--toolkit",
        "--override",
        "--no-man-page",
        f"--toolkitpath={PATH}",
        "--tmpdir=/var/lib/gpuwright/cuda/unpacked",
    ]
    assert "--driver" not in file["command"]
    assert (file["staging"], file["uninstall"], file["local"]) == (STAGING, [], None)
    assert [json.loads(file[when]["content"])["state"] for when in ("begun", "done")] == ["staged", "done"]
    assert {file[when]["path"] for when in ("begun", "done")} == {RECORD}


@pytest.mark.parametrize("state", ["done", None])
def test_a_toolkit_that_is_there_is_left_alone_whoever_brought_it(state: str | None) -> None:
    assert changes(node("12.2.2", state)) == []
    assert work(node("12.2.2", state))["runfiles"] == []
    assert work(node("12.2.2", state, tools=False))["packages"] == []


@pytest.mark.parametrize("source", ["runfile", "nvidia"])
def test_the_compiler_that_nvcc_works_with_comes_alone_where_the_toolkit_is_there(source: str) -> None:
    asked = {"version": "13.0", "cuda_source": source}
    facts = node()
    facts["cuda"]["toolkits"] = [{"path": "/usr/local/cuda-13.0", "version": "13.0.2"}]
    facts["cuda"]["default"] = nodes.provisioned()["cuda"]["default"]
    assert changes(facts, **asked) == []
    del facts["packages"]["installed"]["g++"]
    ((action, reason),) = changes(facts, **asked)
    assert (action, reason) == ("install", "no CUDA program compiles without g++")
    (call,) = work(facts, **asked)["packages"]
    assert "g++" in call["names"]
    assert "g++" not in made(facts, **asked)["manages"]["cuda"]["packages"]


def test_an_nvcc_that_was_taken_out_of_its_toolkit_comes_back() -> None:
    facts, asked = nodes.provisioned(), {"version": "13.0", "cuda_source": "nvidia"}
    del facts["packages"]["installed"]["cuda-nvcc-13-0"]
    assert changes(facts, **asked) == [("install", "no CUDA program compiles without cuda-nvcc-13-0")]
    del facts["packages"]["installed"]["cuda-toolkit-13-0"]
    ((_action, reason),) = changes(facts, **asked)
    assert reason == "the toolkit's packages are missing: cuda-toolkit-13-0"


def test_an_older_release_satisfies_a_version_and_not_a_release() -> None:
    assert changes(node("12.2.0", "done")) == []
    ((action, reason),) = changes(node("12.2.0", "done"), version="12.2.2")
    assert (action, reason) == ("upgrade", f"the toolkit in {PATH} is 12.2.0, wished is 12.2.2")
    (file,) = work(node("12.2.0", "done"), version="12.2.2")["runfiles"]
    assert file["uninstall"] == [f"{PATH}/bin/cuda-uninstaller", "--silent"]


def upgraded(facts: Any, **request: Any) -> Any:
    wish = Wish.from_variables({"cuda_source": "runfile", "cuda_versions": ["12.2"]})
    asked = Request(host="node", today=date(2026, 11, 20), only=("cuda",), verb="upgrade", **request)
    draft = make_draft(facts, wish, load_rules(), asked)
    return finish(draft, None) if isinstance(draft, Draft) else draft


def test_an_upgrade_moves_a_toolkit_of_ours_to_the_last_release_that_has_a_file() -> None:
    plan = upgraded(node("12.2.0", "done"))
    (change,) = [each for each in plan["changes"] if each["component"] == "cuda"]
    assert (change["action"], change["from"], change["to"]) == ("upgrade", "12.2.0", "12.2.2")
    (file,) = plan["work"]["cuda"]["runfiles"]
    assert (file["name"], file["uninstall"]) == (NAME, [f"{PATH}/bin/cuda-uninstaller", "--silent"])
    assert upgraded(node("12.2.2", "done"))["changes"] == []


@pytest.mark.parametrize(("state", "request_"), [(None, {}), ("done", {"security": True})])
def test_an_upgrade_leaves_what_is_not_ours_and_what_has_no_known_hole(state: str | None, request_: Any) -> None:
    plan = upgraded(node("12.2.0", state), **request_)
    assert [each for each in plan["changes"] if each["component"] == "cuda"] == []


@pytest.mark.parametrize("state", ["begun", "staged"])
def test_an_installation_that_was_cut_off_is_made_anew(state: str) -> None:
    ((action, reason),) = changes(node(None, state))
    assert (action, reason) == ("repair", f"the installation of the toolkit in {PATH} was cut off")
    (file,) = work(node(None, state))["runfiles"]
    assert (file["staging"], file["uninstall"]) == (STAGING, [])


def test_a_toolkit_that_came_to_its_place_meanwhile_stays_and_what_the_cut_left_goes() -> None:
    """Such as one of packages, after the file failed."""
    facts = node("12.2.2", "staged", packaged=True)
    ((action, reason),) = changes(facts)
    assert (action, reason.split(" is there")[0]) == ("repair", "the record of a toolkit")
    found = work(facts)
    assert found["runfiles"] == []
    (gone,) = found["remnants"]
    assert gone == {"path": PATH, "record": RECORD, "uninstall": [], "staging": STAGING, "registered": False}


@pytest.mark.parametrize(("there", "state"), [("12.2.0", "staged"), ("12.2.0", "begun"), ("12.2.2", "begun")])
def test_a_toolkit_of_which_it_is_not_known_that_it_is_ours_is_never_made_anew(there: str, state: str) -> None:
    """An earlier version installed in the place itself: whether the toolkit there is whole, and whose, nothing tells."""
    facts = node(there, state)
    plan = made(facts, version="12.2.2")
    with pytest.raises(StepRefused, match="which gpuwright did not bring, or not to its end"):
        cuda.refuse(Context(facts=facts, stack=plan["stack"]), plan)


def test_a_toolkit_that_packages_may_have_a_part_in_is_not_uninstalled() -> None:
    facts = node("12.2.0", "done", packaged=True)
    plan = made(facts, version="12.2.2")
    with pytest.raises(StepRefused, match="which gpuwright did not bring"):
        cuda.refuse(Context(facts=facts, stack=plan["stack"]), plan)
    unknown = node("12.2.0", "done", packaged=None)
    with pytest.raises(StepRefused, match="their manager did not tell"):
        cuda.refuse(Context(facts=unknown, stack=plan["stack"]), plan)
    assert [change for change in upgraded(facts)["changes"] if change["action"] == "upgrade"] == []


def test_the_role_takes_no_toolkit_away_but_by_its_uninstaller() -> None:
    """What is removed whole are files of ours, and the directory that only the installer saw."""
    role = Path(__file__).resolve().parents[3] / "roles/cuda/tasks"
    absent = {
        str(task["ansible.builtin.file"]["path"])
        for file in role.glob("*.yml")
        for task in _tasks(yaml.safe_load(file.read_text()))
        if task.get("ansible.builtin.file", {}).get("state") == "absent"
    }
    assert absent == {
        "{{ __cuda_archive.staging }}",
        "{{ __cuda_file.staging }}",
        "{{ __cuda_gone.record }}",
        "{{ __cuda_gone.staging }}",
        "{{ __cuda_work.fetched }}",
        # Of lists: the records of libraries, modulefiles, a file with what it unpacked.
        "{{ item }}",
    }


def _tasks(tasks: Any) -> Any:
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from _tasks(task.get(part, []))


def test_what_somebody_put_into_a_toolkit_is_known_before_it_is_uninstalled(tmp_path: Path) -> None:
    """The commands themselves, on a toolkit with archives of ours in it."""
    toolkit, state = tmp_path / "cuda-12.2", tmp_path / "state"
    for folder in (toolkit / "bin", toolkit / "targets/lib", state / "cuda"):
        folder.mkdir(parents=True)
    (toolkit / "bin/nvcc").touch()
    (toolkit / "lib64").symlink_to("targets/lib")
    archives = [f"{toolkit}/{name}-9.27.0.42" for name in paths.ARCHIVED]
    commands = runfile.contents(str(toolkit), archives, str(state))
    staging = toolkit.rename(tmp_path / ".gpuwright-cuda-12.2")
    subprocess.run(commands["note"], check=True)
    staging.rename(toolkit)
    assert sorted((state / "cuda-12.2.files").read_text().split()) == [
        "bin",
        "bin/nvcc",
        "lib64",
        "targets",
        "targets/lib",
    ]
    assert list(paths.ARCHIVED) == list(archive._KINDS)
    for name in paths.ARCHIVED:
        (toolkit / f"{name}-9.27.0.42/lib").mkdir(parents=True)
        (toolkit / f"{name}-9.27.0.42/lib/lib{name}.so").touch()
        (toolkit / f"lib64/lib{name}.so").symlink_to(toolkit / f"{name}-9.27.0.42/lib/lib{name}.so")

    def others() -> tuple[int, list[str]]:
        subprocess.run(commands["look"], check=True)
        told = subprocess.run(commands["others"], check=False, capture_output=True, text=True)
        return told.returncode, told.stdout.splitlines()

    assert others() == (1, [])
    (toolkit / "lib64/libmine.so").touch()
    (toolkit / "empty").mkdir()
    (toolkit / "nccl-mine").mkdir()
    found, names = others()
    assert (found, sorted(names)) == (0, ["empty", "nccl-mine", "targets/lib/libmine.so"])


def test_the_role_looks_for_that_before_it_changes_anything() -> None:
    role = Path(__file__).resolve().parents[3] / "roles/cuda/tasks"
    assert "include_tasks: runfile_others.yml" in (role / "runfile_fetch.yml").read_text()
    tasks = yaml.safe_load((role / "install.yml").read_text())
    steps = [
        next((word for word in ("runfile_fetch.yml", "displaced", "runfile.yml") if word in str(task)), "")
        for task in tasks
    ]
    assert [each for each in steps if each] == ["runfile_fetch.yml", "displaced", "runfile.yml"]
    assert steps[0] == "runfile_fetch.yml"


def test_it_is_held_against_what_the_installer_of_that_very_directory_brought() -> None:
    (file,) = work(node("12.2.0", "done"), version="12.2.2")["runfiles"]
    assert file["contents"]["noted"] == "/var/lib/gpuwright/cuda-12.2.files"
    assert file["contents"]["look"][:2] == ["find", f"{PATH}/"]
    assert "/var/lib/gpuwright/cuda/there" in file["contents"]["others"]


def test_what_a_cut_left_goes_also_where_that_toolkit_is_no_longer_wished() -> None:
    facts = node(None, "staged")
    assert "repair" in [action for action, _reason in changes(facts, version="12.3")]
    (gone,) = work(facts, version="12.3")["remnants"]
    assert (gone["path"], gone["staging"], gone["record"]) == (PATH, STAGING, RECORD)
    assert work(node("12.2.2", "done"), version="12.3")["remnants"] == []


def test_what_a_cut_left_needs_no_room_to_go() -> None:
    facts = node(None, "begun")
    facts["cuda"]["toolkits"] = [{"path": "/usr/local/cuda-12.3", "version": "12.3.2"}]
    for disk in facts["disks"]:
        disk["free_bytes"] = 2 * 1024**3
    assert not [row for row in made(facts, version="12.3")["refusals"] if "space" in row["rule"]]


def test_a_toolkit_of_somebody_else_is_never_replaced() -> None:
    facts = node("12.2.0")
    plan = made(facts, version="12.2.2")
    with pytest.raises(StepRefused, match="which gpuwright did not bring"):
        cuda.refuse(Context(facts=facts, stack=plan["stack"]), plan)


def test_a_record_that_names_another_directory_is_not_believed() -> None:
    facts = node()
    facts["cuda"]["runfiles"] = [
        {"path": path, "release": "12.2.2", "state": "begun", "packaged": False} for path in ("/home", "/usr/local")
    ]
    assert runfile.removals(facts) == []
    assert work(facts)["remnants"] == []


def test_a_path_on_the_node_is_copied_and_an_address_fetched() -> None:
    given = {"version": "12.2.0", "cuda_runfile_sha256": "A" * 64}
    (file,) = work(node(), cuda_runfile="/mnt/x.run", **given)["runfiles"]
    assert (file["local"], file["sha256"]) == ("/mnt/x.run", "a" * 64)
    (file,) = work(node(), cuda_runfile="https://user:word@site.example/x.run", **given)["runfiles"]
    assert (file["local"], file["addresses"]) == (None, ["https://site.example/x.run"])


def test_a_toolkit_of_a_file_is_registered_and_becomes_the_default() -> None:
    link = work(node())["link"]
    assert link["path"] == PATH
    assert [command[-2:] for command in link["register"]] == [[PATH, "122"]]


@pytest.mark.parametrize(
    ("seen", "command"),
    [
        (
            {"kind": "alternatives", "manual": True, "path": "/usr/local/cuda-11.8"},
            "update-alternatives --set cuda /usr/local/cuda-11.8",
        ),
        ({"kind": "alternatives", "manual": False, "path": "/usr/local/cuda-11.8"}, "update-alternatives --auto cuda"),
        ({"kind": "link", "path": "/opt/cuda"}, "ln --symbolic --force --no-dereference /opt/cuda /usr/local/cuda"),
        ({"kind": None, "path": None}, "rm --force /usr/local/cuda"),
    ],
)
def test_a_default_that_is_kept_is_led_back_after_the_installer(seen: Any, command: str) -> None:
    facts = node()
    facts["cuda"]["default"] |= seen
    found = work(facts, cuda_default="keep")
    assert found["link"] is None
    assert [" ".join(each) for each in found["kept"]] == [command]
    assert work(node("12.2.2", "done"), cuda_default="keep")["kept"] == []


def test_what_a_directory_in_the_way_would_lose_is_not_risked() -> None:
    facts = node()
    facts["cuda"]["default"] |= {"kind": "other", "path": None}
    plan = made(facts, cuda_default="keep")
    with pytest.raises(StepRefused, match="to be a link"):
        cuda.refuse(Context(facts=facts, stack=plan["stack"]), plan)


def test_the_seal_has_the_record_and_not_what_the_installer_needed() -> None:
    managed = made(node("12.2.2", "done"))["manages"]["cuda"]
    assert RECORD in managed["files"]
    assert managed["packages"] == []
    assert removal.foreign(nodes.bare(history={"files": managed["files"]})) == []


def test_the_room_for_file_and_toolkit_is_asked_for_before() -> None:
    facts = node()
    for disk in facts["disks"]:
        disk["free_bytes"] = 10 * 1024**3
    (refusal,) = [row for row in made(facts)["refusals"] if "space" in row["rule"]]
    assert refusal["text"] == "/ has 10240 MiB free, 23040 MiB are needed"


@pytest.mark.parametrize(
    ("there", "state", "packaged", "uninstalled"),
    [
        ("12.2.2", "done", False, True),
        (None, "done", False, False),
        (None, "begun", False, False),
        (None, "staged", False, False),
        ("12.2.2", "staged", False, False),
        ("12.2.2", "done", True, False),
    ],
)
def test_each_of_ours_is_taken_back(there: str | None, state: str, packaged: bool, uninstalled: bool) -> None:
    facts = node(there, state, packaged=packaged)
    assert len(cuda.take_back(facts)) == 1
    (gone,) = cuda.COMPONENT.removes(facts, [])["cuda_toolkits"]
    assert (bool(gone["uninstall"]), gone["staging"], gone["registered"]) == (uninstalled, STAGING, uninstalled)
    assert cuda.take_back(node("12.2.2")) == []


def test_what_nobody_tells_of_is_not_taken_back() -> None:
    """Its record stays with it, and `remove` says that it is not done."""
    facts = node("12.2.2", "done", packaged=None)
    assert cuda.COMPONENT.removes(facts, [])["cuda_toolkits"] == []
    assert len(cuda.take_back(facts)) == 1


def test_an_installer_that_is_shown_a_directory_of_its_own_fills_that_alone(tmp_path: Path) -> None:
    """The command itself; it needs the right to mount."""
    staging, place = tmp_path / ".gpuwright-cuda-12.2", tmp_path / "cuda-12.2"
    for folder in (staging, place):
        folder.mkdir()
    make = ["sh", "-c", 'mkdir "$1/bin"; touch "$1/bin/nvcc"', "sh", str(place)]
    command = [*runfile._SEEN_ELSEWHERE, str(staging), str(place), *make]
    if os.geteuid() != 0:
        command = ["unshare", "--map-root-user", *command[1:]]
    subprocess.run(command, check=True)
    assert (staging / "bin/nvcc").exists()
    assert list(place.iterdir()) == []
