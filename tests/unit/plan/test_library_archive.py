"""The component cuda: libraries as archives in toolkits, what a cut leaves of one, and how it goes again."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import archive
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.model import LibraryArchive
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

PATH = "/usr/local/cuda-13.0"
VERSION = "9.27.0.42"
RECORD = "/etc/gpuwright/cudnn-13.0.json"


def entry(version: str = VERSION, state: str = "done", path: str = PATH, library: str = "cudnn") -> dict[str, str]:
    """What a record says."""
    return {"library": library, "path": path, "version": version, "state": state}


def node(version: str | None = None, state: str = "done", library: str = "cudnn") -> Any:
    """A host with CUDA 13.0 of packages; ``version``: that of the library which its record names."""
    facts = nodes.provisioned()
    facts["packages"]["installed"] |= {"xz-utils": "5.8.1", "zstd": "1.5.7"}
    facts["cuda"]["archives"] = [entry(version, state, library=library)] if version else []
    return facts


def made(facts: Any, library: str = "cudnn", **variables: Any) -> Any:
    wish = Wish.from_variables({"cuda_versions": ["13.0"], f"cuda_{library}_source": "archive", **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("cuda",)))
    return finish(draft, None) if isinstance(draft, Draft) else draft


def changes(facts: Any, library: str = "cudnn", **variables: Any) -> list[tuple[str, str | None, str | None]]:
    found = made(facts, library, **variables)["changes"]
    return [(each["action"], each["from"], each["to"]) for each in found if f"/{library}-" in str(each["files"])]


@pytest.mark.parametrize(
    ("library", "version", "option"),
    [
        ("cudnn", VERSION, "--xz"),
        ("nccl", "2.30.7", "--xz"),
        ("tensorrt", "10.16.1.11", "--gzip"),
        ("tensorrt", "11.3.0.99", "--use-compress-program=zstd"),
    ],
)
def test_it_is_put_into_its_toolkit_once(library: str, version: str, option: str) -> None:
    wish = {f"cuda_{library}": version}
    assert changes(node(), library, **wish) == [("install", None, version)]
    (placing,) = made(node(), library, **wish)["work"]["cuda"]["archives"]
    assert placing["directory"] == f"{PATH}/{library}-{version}"
    assert option in placing["unpack"]
    assert [json.loads(placing[when]["content"])["state"] for when in ("begun", "done")] == ["begun", "done"]
    assert placing["begun"]["path"] == f"/etc/gpuwright/{library}-13.0.json"
    planned = made(node(), library, **wish)["stack"]
    assert cuda.inputs(Context(facts=node(), stack=planned))["archives"] == [placing["name"]]
    there = node(version, library=library)
    assert changes(there, library, **wish) == []
    assert made(there, library, **wish)["work"]["cuda"]["archives"] == []


def test_libraries_of_one_toolkit_are_told_from_each_other() -> None:
    every = {f"cuda_{library}_source": "archive" for library in ("nccl", "tensorrt")}
    facts = node("2.30.7", library="nccl")
    work = made(facts, **every)["work"]["cuda"]
    assert [each["title"] for each in work["archives"]] == ["cuDNN", "TensorRT"]
    assert work["undone"] == []
    facts["cuda"]["archives"] = [entry("2.28.9", "begun", library="nccl"), entry()]
    work = made(facts)["work"]["cuda"]
    assert [each["records"][0] for each in work["undone"]] == ["/etc/gpuwright/nccl-13.0.json"]
    assert "/nccl-2.28.9" in str(work["undone"][0]["take_out"])
    assert "cudnn" not in str(work["undone"][0]["take_out"])
    reasons = [each["reason"] for each in made(facts)["changes"] if each["component"] == "cuda"]
    assert reasons == ["what a cut left of NCCL is no longer wished"]


def test_another_version_takes_its_place_and_a_cut_is_made_anew() -> None:
    assert changes(node("9.8.0.87")) == [("upgrade", "9.8.0.87", VERSION)]
    assert changes(node(VERSION, "begun")) == [("repair", None, VERSION)]


def test_what_a_cut_left_goes_also_where_it_is_no_longer_wished() -> None:
    facts = node("9.10.0.56", "begun")
    facts["cuda"]["archives"][0]["path"] = other = "/usr/local/cuda-12.8"
    facts["cuda"]["archives"].append(entry())
    assert changes(facts) == [("repair", None, None)]
    (gone,) = made(facts)["work"]["cuda"]["undone"]
    assert (gone["path"], gone["records"][0]) == (other, "/etc/gpuwright/cudnn-12.8.json")
    facts["cuda"]["archives"][0]["state"] = "done"
    assert changes(facts) == []
    assert made(facts)["work"]["cuda"]["undone"] == []


def test_what_a_cut_left_needs_no_room_to_go() -> None:
    facts = node("9.10.0.56", "begun")
    facts["cuda"]["archives"][0]["path"] = "/usr/local/cuda-12.8"
    facts["cuda"]["archives"].append(entry())
    for disk in facts["disks"]:
        disk["free_bytes"] = 2 * 1024**3
    assert not [row for row in made(facts)["refusals"] if "space" in row["rule"]]


@pytest.mark.parametrize(("library", "tool"), [("cudnn", "xz-utils"), ("nccl", "xz-utils"), ("tensorrt", "zstd")])
def test_what_unpacks_it_comes_with_it(library: str, tool: str) -> None:
    facts = node()
    del facts["packages"]["installed"][tool]
    (call,) = made(facts, library)["work"]["cuda"]["packages"]
    assert tool in call["names"]


def test_a_toolkit_that_a_file_makes_anew_gets_it_again() -> None:
    path = "/usr/local/cuda-12.2"
    facts = node()
    facts["packages"]["installed"] |= {"libxml2": "2.12.7"}
    facts["cuda"]["toolkits"] = [{"path": path, "version": "12.2.0"}]
    facts["cuda"]["runfiles"] = [{"path": path, "release": "12.2.0", "state": "done", "packaged": False}]
    facts["cuda"]["archives"] = [entry(path=path)]
    work = made(facts, cuda_source="runfile", cuda_versions=["12.2.2"])["work"]["cuda"]
    assert [each["path"] for each in work["runfiles"]] == [path]
    assert [each["path"] for each in work["archives"]] == [path]
    assert work["displaced"][1][:2] == ["find", f"{path}/include/"]
    assert made(node(VERSION))["work"]["cuda"]["displaced"] == []


def test_the_seal_has_its_record_and_it_is_taken_back() -> None:
    assert RECORD in made(node(VERSION))["manages"]["cuda"]["files"]
    assert removal.foreign(nodes.bare(history={"files": [RECORD]})) == []
    (gone,) = cuda.COMPONENT.removes(node(VERSION), [])["cuda_archives"]
    assert gone["path"] == PATH
    assert gone["records"] == [RECORD, "/var/lib/gpuwright/cudnn-13.0.files"]
    assert any(VERSION in str(finding.files) for finding in cuda.take_back(node(VERSION)))


def test_a_record_that_names_another_directory_is_not_believed() -> None:
    facts = node()
    facts["cuda"]["archives"] = [entry(state="begun", path="/home")]
    assert archive.removals(facts) == []


def test_the_room_for_it_is_asked_for_before() -> None:
    facts = node()
    for disk in facts["disks"]:
        disk["free_bytes"] = 2 * 1024**3
    assert any("space" in row["rule"] for row in made(facts)["refusals"])


@pytest.mark.parametrize(
    ("library", "version", "gigabytes", "unpacked_gigabytes"),
    [("nccl", "2.30.7", 0.4, 0.9), ("tensorrt", "11.3.0.99", 3.7, 8.2)],
)
def test_it_is_as_large_as_the_table_says_and_more_when_it_is_unpacked(
    library: str, version: str, gigabytes: float, unpacked_gigabytes: float
) -> None:
    planned = made(node(), library)
    context = Context(facts=node(), stack=planned["stack"])
    (change,) = [each for each in planned["changes"] if f"/{library}-" in str(each["files"])]
    unpacked, file = archive.space(change, context)
    assert unpacked.path == f"{PATH}/{library}-{version}"
    assert [round(each.size / 10**9, 1) for each in (file, unpacked)] == [gigabytes, unpacked_gigabytes]


def test_one_archive_for_two_toolkits_is_fetched_once_counted_once_and_there_for_both() -> None:
    """Its file goes with the directory, after the last of them."""
    facts = node()
    planned = made(facts, cuda_versions=["13.0", "13.1"])
    placings = planned["work"]["cuda"]["archives"]
    assert [each["path"] for each in placings] == ["/usr/local/cuda-13.0", "/usr/local/cuda-13.1"]
    assert len({each["file"] for each in placings}) == 1
    context = Context(facts=facts, stack=planned["stack"])
    needs = [need for change in planned["changes"] for need in archive.space(change, context)]
    assert {need.size for need in needs if need.path == "/var/lib/gpuwright/cuda"} == {
        archive.of_stack(planned["stack"])[0].packed
    }
    role = Path(__file__).resolve().parents[3] / "roles/cuda/tasks"
    assert ".file }}" not in (role / "archive.yml").read_text()
    *_others, last = yaml.safe_load((role / "install.yml").read_text())
    assert last["ansible.builtin.file"] == {"path": "{{ __cuda_work.fetched }}", "state": "absent"}


# the commands themselves -----------------------------------------------------------------------------------------------


#: How NVIDIA lays the archives out: files, and links with what they lead to.
LAYOUTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "cudnn": (
        ["include/cudnn.h", "lib/libcudnn.so.9.27.0", "LICENSE"],
        {"lib/libcudnn.so": "libcudnn.so.9.27.0"},
    ),
    "nccl": (
        [
            "include/nccl.h",
            "include/nccl_device/core.h",
            "lib/libnccl.so.2.30.7",
            "lib/libnccl_static.a",
            "lib/pkgconfig/nccl.pc",
        ],
        {"lib/libnccl.so": "libnccl.so.2.30.7"},
    ),
    # Its lib is a link.
    "tensorrt": (
        [
            "include/NvInfer.h",
            "include/NvOnnxParser.h",
            "targets/x86_64-linux-gnu/lib/libnvinfer.so.10.16.1",
            "targets/x86_64-linux-gnu/lib/stubs/libnvinfer.so",
            "targets/x86_64-linux-gnu/bin/trtexec",
        ],
        {
            "lib": "targets/x86_64-linux-gnu/lib",
            "targets/x86_64-linux-gnu/lib/libnvinfer.so": "libnvinfer.so.10.16.1",
        },
    ),
}


@pytest.fixture(params=LAYOUTS)
def placing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> archive.Placing:
    """The work for a toolkit with files of its own, and an archive as NVIDIA packs it."""
    place = tmp_path / "cuda-13.0"
    (place / "targets/lib/pkgconfig").mkdir(parents=True)
    (place / "targets/include").mkdir()
    (place / "lib64").symlink_to("targets/lib")
    (place / "include").symlink_to("targets/include")
    for file in ("include/cuda.h", "lib64/libnvrtc.so"):
        (place / file).write_text("")
    files, links = LAYOUTS[request.param]
    packed = tmp_path / "packed/top"
    for name in files:
        (packed / name).parent.mkdir(parents=True, exist_ok=True)
        (packed / name).write_text("")
    for name, target in links.items():
        (packed / name).symlink_to(target)
    name, way = ("archive.tar.gz", "-czf") if request.param == "tensorrt" else ("archive.txz", "-cJf")
    subprocess.run(["tar", "-C", packed.parent, way, tmp_path / name, packed.name], check=True)
    found: LibraryArchive = {"path": str(place), "version": "9.27.0.42", "name": name, "addresses": [], "sha256": ""}
    kind = archive._KINDS[request.param]
    monkeypatch.setattr(paths, "STATE", str(tmp_path))
    before: Any = {"library": kind.key, "path": str(place), "version": found["version"], "state": "begun"}
    made = archive._placing(archive.One(kind, found), before)
    made["unpack"] = [f"--file={tmp_path}/{name}" if "--file" in each else each for each in made["unpack"]]
    return made


def everything(placing: archive.Placing) -> list[str]:
    return sorted(str(each) for each in Path(placing["path"]).rglob("*"))


def run(*commands: list[str]) -> None:
    for command in commands:
        subprocess.run(command, check=True)


def put(placing: archive.Placing) -> None:
    """What the role does."""
    run(*placing["take_out"])
    Path(placing["staging"]).mkdir()
    run(placing["unpack"], placing["note"])
    run(["mv", "--no-target-directory", placing["staging"], placing["directory"]], *placing["link"])


def others(placing: archive.Placing) -> list[str]:
    """What is somebody else's."""
    told = [subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in placing["others"]]
    return [line for text in told for line in text.splitlines()]


def test_its_commands_put_it_among_the_toolkits_files_and_take_it_out_again(placing: archive.Placing) -> None:
    before = everything(placing)
    for _again in range(2):
        put(placing)
        assert [path for path in placing["shown"] if not Path(path).is_file()] == []
        assert Path(placing["shown"][1]).resolve().name[-1].isdigit()
        assert Path(placing["path"], "include/cuda.h").exists()
        assert others(placing) == []
    # Its headers' own directory is beside them, where they look for it; the toolkit's pkgconfig stays the toolkit's.
    if placing["title"] == "NCCL":
        assert Path(placing["path"], "include/nccl_device/core.h").exists()
    assert not Path(placing["path"], "lib64/pkgconfig").is_symlink()
    run(*placing["take_out"])
    assert everything(placing) == before


def test_one_of_somebody_elses_is_seen_and_not_replaced(placing: archive.Placing) -> None:
    header = Path(placing["shown"][0])
    header.write_text("somebody else's")
    assert others(placing) == [str(header)]
    Path(placing["staging"]).mkdir()
    run(placing["unpack"], placing["note"])
    run(["mv", "--no-target-directory", placing["staging"], placing["directory"]])
    assert subprocess.run(placing["link"][0], check=False, capture_output=True).returncode != 0
    run(*placing["take_out"])
    assert header.read_text() == "somebody else's"


def test_what_somebody_else_has_beside_it_and_in_it_stays(placing: archive.Placing) -> None:
    toolkit, directory = Path(placing["path"]), Path(placing["directory"])
    foreign = toolkit / f"{directory.name.partition('-')[0]}-mine/lib/mine.so"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("somebody else's")
    link = toolkit / "lib64" / Path(placing["shown"][1]).name.replace(".so", "_mine.so")
    link.symlink_to(foreign)
    put(placing)
    inside, changed = directory / "mine.txt", Path(placing["shown"][0]).resolve()
    inside.write_text("somebody else's")
    changed.write_text("changed by somebody else")
    assert sorted(others(placing)) == sorted([str(link), "mine.txt", str(changed.relative_to(directory))])
    run(*placing["take_out"])
    assert foreign.read_text() == inside.read_text() == "somebody else's"
    assert link.resolve() == foreign
    assert sorted(path for path in directory.rglob("*") if path.is_file()) == sorted([inside, changed])
    assert not Path(placing["shown"][1]).is_symlink()


def test_without_its_list_nothing_of_a_directory_is_taken_for_ours(placing: archive.Placing) -> None:
    """Versions before this one wrote none."""
    put(placing)
    (listed,) = Path(placing["path"]).parent.glob("*.files")
    listed.unlink()
    there = sorted(Path(placing["directory"]).rglob("*"))
    assert others(placing) != []
    run(*placing["take_out"])
    assert sorted(Path(placing["directory"]).rglob("*")) == there
    assert not Path(placing["shown"][0]).exists()
