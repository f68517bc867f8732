"""The component cuda: cuDNN as an archive in toolkits, what a cut leaves of it, and how it goes again."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import archive
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import Wish
from tests.unit.plan import nodes

PATH = "/usr/local/cuda-13.0"
VERSION = "9.27.0.42"
RECORD = "/etc/gpuwright/cudnn-13.0.json"


def node(version: str | None = None, state: str = "done", **toolkit: Any) -> Any:
    """A host with CUDA 13.0 of packages; ``version``: the cuDNN that its record names."""
    facts = nodes.provisioned()
    facts["packages"]["installed"] |= {"xz-utils": "5.8.1"}
    facts["cuda"]["archives"] = [{"path": PATH, "version": version, "state": state}] if version else []
    facts["cuda"] |= toolkit
    return facts


def made(facts: Any, **variables: Any) -> Any:
    wish = Wish.from_variables({"cuda_versions": ["13.0"], "cuda_cudnn_source": "archive", **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("cuda",)))
    return finish(draft, None) if isinstance(draft, Draft) else draft


def changes(facts: Any, **variables: Any) -> list[tuple[str, str | None, str | None]]:
    found = made(facts, **variables)["changes"]
    return [(each["action"], each["from"], each["to"]) for each in found if "cudnn" in str(each["files"])]


def test_it_is_put_into_its_toolkit_once() -> None:
    assert changes(node()) == [("install", None, VERSION)]
    (placing,) = made(node())["work"]["cuda"]["archives"]
    assert placing["directory"] == f"{PATH}/cudnn-{VERSION}"
    assert [json.loads(placing[when]["content"])["state"] for when in ("begun", "done")] == ["begun", "done"]
    assert placing["begun"]["path"] == RECORD
    assert changes(node(VERSION)) == []
    assert made(node(VERSION))["work"]["cuda"]["archives"] == []


def test_another_version_takes_its_place_and_a_cut_is_made_anew() -> None:
    assert changes(node("9.8.0.87")) == [("upgrade", "9.8.0.87", VERSION)]
    assert changes(node(VERSION, "begun")) == [("repair", None, VERSION)]


def test_what_a_cut_left_goes_also_where_it_is_no_longer_wished() -> None:
    facts = node("9.10.0.56", "begun")
    facts["cuda"]["archives"][0]["path"] = other = "/usr/local/cuda-12.8"
    facts["cuda"]["archives"].append({"path": PATH, "version": VERSION, "state": "done"})
    assert changes(facts) == [("repair", None, None)]
    (gone,) = made(facts)["work"]["cuda"]["undone"]
    assert (gone["path"], gone["record"]) == (other, "/etc/gpuwright/cudnn-12.8.json")
    facts["cuda"]["archives"][0]["state"] = "done"
    assert changes(facts) == []
    assert made(facts)["work"]["cuda"]["undone"] == []


def test_what_a_cut_left_needs_no_room_to_go() -> None:
    facts = node("9.10.0.56", "begun")
    facts["cuda"]["archives"][0]["path"] = "/usr/local/cuda-12.8"
    facts["cuda"]["archives"].append({"path": PATH, "version": VERSION, "state": "done"})
    for disk in facts["disks"]:
        disk["free_bytes"] = 2 * 1024**3
    assert not [row for row in made(facts)["refusals"] if "space" in row["rule"]]


def test_what_unpacks_it_comes_with_it() -> None:
    facts = node()
    del facts["packages"]["installed"]["xz-utils"]
    (call,) = made(facts)["work"]["cuda"]["packages"]
    assert "xz-utils" in call["names"]


def test_a_toolkit_that_a_file_makes_anew_gets_it_again() -> None:
    path = "/usr/local/cuda-12.2"
    facts = node()
    facts["packages"]["installed"] |= {"libxml2": "2.12.7"}
    facts["cuda"]["toolkits"] = [{"path": path, "version": "12.2.0"}]
    facts["cuda"]["runfiles"] = [{"path": path, "release": "12.2.0", "state": "done"}]
    facts["cuda"]["archives"] = [{"path": path, "version": VERSION, "state": "done"}]
    work = made(facts, cuda_source="runfile", cuda_versions=["12.2.2"])["work"]["cuda"]
    assert [each["path"] for each in work["runfiles"]] == [path]
    assert [each["path"] for each in work["archives"]] == [path]
    assert work["displaced"][0][:2] == ["find", f"{path}/include/"]
    assert made(node(VERSION))["work"]["cuda"]["displaced"] == []


def test_the_seal_has_its_record_and_it_is_taken_back() -> None:
    assert RECORD in made(node(VERSION))["manages"]["cuda"]["files"]
    assert removal.foreign(nodes.bare(history={"files": [RECORD]})) == []
    (gone,) = cuda.COMPONENT.removes(node(VERSION), [])["cuda_archives"]
    assert (gone["path"], gone["record"]) == (PATH, RECORD)
    assert any(VERSION in str(finding.files) for finding in cuda.take_back(node(VERSION)))


def test_a_record_that_names_another_directory_is_not_believed() -> None:
    facts = node()
    facts["cuda"]["archives"] = [{"path": "/home", "version": VERSION, "state": "begun"}]
    assert archive.removals(facts) == []


def test_the_room_for_it_is_asked_for_before() -> None:
    facts = node()
    for disk in facts["disks"]:
        disk["free_bytes"] = 2 * 1024**3
    assert any("space" in row["rule"] for row in made(facts)["refusals"])


# the commands themselves -----------------------------------------------------------------------------------------------


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A toolkit with files of its own, and an archive as NVIDIA packs it."""
    place = tmp_path / "cuda-13.0"
    (place / "targets/lib").mkdir(parents=True)
    (place / "targets/include").mkdir()
    (place / "lib64").symlink_to("targets/lib")
    (place / "include").symlink_to("targets/include")
    (place / "include/cuda.h").write_text("")
    packed = tmp_path / "packed/cudnn-linux-x86_64-archive"
    for folder in ("include", "lib"):
        (packed / folder).mkdir(parents=True)
    (packed / "include/cudnn.h").write_text("")
    (packed / "lib/libcudnn.so.9.27.0").write_text("")
    (packed / "lib/libcudnn.so").symlink_to("libcudnn.so.9.27.0")
    (packed / "LICENSE").write_text("")
    subprocess.run(["tar", "-C", packed.parent, "-cJf", tmp_path / "cudnn.tar.xz", packed.name], check=True)
    return place


def test_its_commands_put_it_among_the_toolkits_files_and_take_it_out_again(toolkit: Path) -> None:
    before = sorted(str(each) for each in toolkit.rglob("*"))
    placing = archive._placing(
        {"path": str(toolkit), "version": VERSION, "name": "cudnn.tar.xz", "addresses": [], "sha256": ""}
    )
    unpack = [f"--file={toolkit.parent}/cudnn.tar.xz" if "--file" in each else each for each in placing["unpack"]]
    for _again in range(2):
        for command in placing["take_out"]:
            subprocess.run(command, check=True)
        Path(placing["directory"]).mkdir()
        for command in [unpack, *placing["link"]]:
            subprocess.run(command, check=True)
        assert (toolkit / "include/cudnn.h").exists()
        assert (toolkit / "lib64/libcudnn.so").resolve().name == "libcudnn.so.9.27.0"
        assert (toolkit / "include/cuda.h").exists()
    for command in placing["take_out"]:
        subprocess.run(command, check=True)
    assert sorted(str(each) for each in toolkit.rglob("*")) == before


def test_a_cudnn_of_somebody_elses_is_not_replaced(toolkit: Path) -> None:
    (toolkit / "include/cudnn.h").write_text("somebody else's")
    placing = archive._placing(
        {"path": str(toolkit), "version": VERSION, "name": "cudnn.tar.xz", "addresses": [], "sha256": ""}
    )
    Path(placing["directory"], "include").mkdir(parents=True)
    Path(placing["directory"], "include/cudnn.h").write_text("ours")
    assert subprocess.run(placing["link"][0], check=False, capture_output=True).returncode != 0
    for command in placing["take_out"]:
        subprocess.run(command, check=True)
    assert (toolkit / "include/cudnn.h").read_text() == "somebody else's"
