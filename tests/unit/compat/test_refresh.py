"""The tables brought up to what upstreams publish."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import compat_index, compat_refresh, compat_tables, compat_vendor, compat_verify
from tools.compat_facts import Facts
from tools.compat_refresh import Change
from tools.compat_tables import TableFile

from .conftest import Shelf, Write

SEEN = {"confirmed": True, "source": ["package_index"]}
PLUGIN = {
    "package": "jax-cuda12-plugin",
    "pjrt": "jax-cuda12-pjrt",
    "date": "2024-05-01",
    "arch": ["x86_64"],
    "yanked": False,
}


@pytest.fixture
def world(shelf: Shelf, compat: Write) -> Path:
    """Tables of one row each, an index that says the same, and no vendor that answers."""
    x86 = ["x86_64"]
    shelf.put("torch", "2.1.0", "cp311", requires=["nvidia-cuda-runtime-cu12==12.1.105", "nvidia-cudnn-cu12==8.9.2.26"])
    shelf.put("torchvision", "0.16.0", "cp311", requires=["torch==2.1.0"])
    shelf.put("torchaudio", "2.1.0", "cp311", requires=["torch==2.1.0"])
    shelf.put("tensorflow", "2.13.0", "cp311", requires=["numpy<=1.24.3"])
    shelf.put(
        "jax", "0.7.0", "py3-none-any", requires=["jaxlib==0.7.0"], extras={"cuda12": ["jax-cuda12-plugin==0.7.0"]}
    )
    shelf.put("jaxlib", "0.7.0", "cp312")
    shelf.put("jax-cuda12-plugin", "0.7.0", "cp312", extras={"with-cuda": ["nvidia-cudnn-cu12>=9.8"]})
    for name, version in (
        ("jax-cuda12-pjrt", "0.7.0"),
        ("nvidia-cudnn-cu12", "8.9.2.26"),
        ("nvidia-nccl-cu12", "2.18.1"),
    ):
        shelf.put(name, version)
    shelf.put("onnxruntime", "1.29.0", "cp312")
    shelf.put("cupy-cuda12x", "14.2.0", "cp312", requires=["numpy>=2.0"])
    shelf.put("vllm", "0.33.0", "cp312", requires=["torch==2.1.0"], python="<3.13,>=3.12")
    shelf.put("lmdb", "3.0.0", "cp312")
    shelf.put("beside", "1.0", requires=["torch==2.1.0"])
    shelf.put("nvidia-dali-cuda120", "2.4.0", python="<3.11,>=3.10")
    shelf.put("tensorrt", "8.6.0", "cp310")
    day = {"date": "2024-05-01"}
    upstreams = [
        {"name": name, "url": f"{shelf.server.address}/vendor/{name}", **SEEN}
        for name in (
            "nvidia",
            "pytorch",
            "nvidia-redist-cuda",
            "nvidia-redist-cudnn",
            "nvidia-redist-driver",
            "nvidia-bulletins",
        )
    ]
    torch = {
        "version": "2.1.0",
        **day,
        "python": ["3.11"],
        "torchvision": "0.16.0",
        "torchaudio": "2.1.0",
        "default_cuda": "12.1",
    }
    variant = {
        "release": "2.1",
        "variant": "cu121",
        "cuda": "12.1",
        "targets": {"x86_64": ["9.0"]},
        "cudnn": "8.9.2.26",
        "nccl": None,
    }
    tensorflow: dict[str, Any] = {
        "version": "2.13.0",
        **day,
        "python": ["3.11"],
        "extra": None,
        "requires": {},
        "numpy": "<=1.24.3",
    }
    jax = {
        "version": "0.7.0",
        **day,
        "python": ["3.12"],
        "extras": ["cuda12"],
        "plugins": {"cuda12": "0.7.0"},
        "jaxlib": "0.7.0",
    }
    plugin = {"version": "0.7.0", "variant": "cuda12", **PLUGIN, "python": ["3.12"], "requires": {"cudnn": ">=9.8"}}
    onnxruntime: dict[str, Any] = {
        "version": "1.29.0",
        "variant": "cpu",
        **day,
        "python": ["3.12"],
        "arch": x86,
        "extras": [],
        "requires": {},
    }
    cupy = {"version": "14.2.0", **day, "python": ["3.12"], "wheels": {"cuda12": x86}, "numpy": ">=2.0"}
    vllm = {"version": "0.33.0", **day, "python": ["3.12"], "arch": x86, "torch": "2.1.0"}
    dali = {
        "version": "2.4.0",
        **day,
        "variants": ["cuda120"],
        "real": True,
        "wheels": {"cuda120": x86},
        "python": ["3.10"],
    }
    bulletin = {"component": "driver", "branch": "580", "floor": "580.1", "bulletin": "5000", "date": "2026-05"}
    system = {"os": "debian-13", "nvidia_repository": "debian13", "cuda_first": "12.9", "nvidia_first_branch": "580"}
    return compat(
        pytorch={
            "releases": [{**torch, **SEEN}],
            "variants": [{**variant, **SEEN}],
            "partner_pythons": [],
            "partner_releases": [
                {"package": "torchaudio", "releases": ["2.1.0"], **SEEN},
                {"package": "torchvision", "releases": ["0.16.0"], **SEEN},
            ],
        },
        frameworks={
            "glibc": [
                {"package": name, "from_version": version, "to_version": version, "needs": {"x86_64": "2.28"}, **SEEN}
                for name, version in (("onnxruntime", "1.29.0"), ("tensorflow", "2.13.0"), ("vllm", "0.33.0"))
            ]
        },
        tensorflow={"releases": [{**tensorflow, **SEEN}]},
        jax={"releases": [{**jax, **SEEN}], "plugins": [{**plugin, **SEEN}]},
        onnxruntime={"releases": [{**onnxruntime, **SEEN}]},
        cupy={"releases": [{**cupy, **SEEN}]},
        vllm={"releases": [{**vllm, **SEEN}]},
        lmdb={"releases": [{"version": "3.0.0", **day, "python": ["3.12"], "arch": x86, **SEEN}]},
        companions={
            "packages": [{"name": "beside", "there": "wheels", "newest": "1.0", "beside": "pytorch", **SEEN}],
            "pairs": [
                {"package": "beside", "other": "torch", "from_version": "1.0", "releases": {"1.0": "==2.1.0"}, **SEEN}
            ],
        },
        cudnn={"versions": [{"version": "8.9.2.26", "cuda_majors": ["12"], "arch": x86, **day, **SEEN}]},
        libraries={
            "nccl": [{"version": "2.18.1", **day, "variants": {"cu12": x86}, **SEEN}],
            "tensorrt": [{"version": "8.6.0", **day, "cuda": ["11"], "python": ["3.10"], **SEEN}],
            "dali": [{**dali, **SEEN}],
        },
        upstreams={"rows": upstreams},
        cuda={
            "families": [{"major": "13", "driver": "580.65.06", **SEEN}],
            "rows": [
                {
                    "release": "13.0.0",
                    "cuda": "13.0",
                    "native_driver": None,
                    "minor_version_driver": "580.65.06",
                    **SEEN,
                }
            ],
        },
        driver_branches={"rows": [{"branch": "580", "latest": "580.65.06", "latest_date": "2025-08-04", **SEEN}]},
        systems={"rows": [{**system, **SEEN}]},
        security={"rows": [{**bulletin, **SEEN}]},
    )


def run(tool: Any, world: Path, shelf: Shelf, *more: str) -> int:
    index = f"{shelf.server.address}/simple/"
    status: int = tool.main(["--compat", str(world), "--index", index, "--cache", str(shelf.cache), *more])
    return status


def rows(world: Path, file: str, table: str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = yaml.safe_load((world / f"{file}.yaml").read_text())[table]
    return content


def serve(shelf: Shelf, name: str, path: str, content: Any) -> None:
    """A file of a vendor, or the page of its directory."""
    place = shelf.folder / "vendor" / name / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


# verify ----------------------------------------------------------------------------------------------------


def test_tables_that_are_right_pass(world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(compat_verify, world, shelf) == 0
    assert "pytorch.releases" in capsys.readouterr().out


def test_a_release_that_came_out_fails_and_is_shown(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.put("nvidia-nccl-cu12", "2.19.3")
    assert run(compat_verify, world, shelf) == 1
    shown = capsys.readouterr().out
    assert "2.19.3" in shown
    assert "published" in shown


def test_an_index_that_cannot_be_read_is_another_exit_status(world: Path, shelf: Shelf) -> None:
    shelf.server.ranges = False
    (shelf.folder / "files").rename(shelf.folder / "elsewhere")
    assert run(compat_verify, world, shelf) == 2


# refresh: wheels -------------------------------------------------------------------------------------------


def test_nothing_new_changes_nothing_but_the_day(world: Path, shelf: Shelf) -> None:
    before = {path.name: path.read_text().splitlines() for path in world.glob("*.yaml")}
    assert run(compat_refresh, world, shelf) == 0
    for path in world.glob("*.yaml"):
        changed = [line for line in path.read_text().splitlines() if line not in before[path.name]]
        # Vendors did not answer: what only they know is as old as before.
        wheels = path.stem in (
            "frameworks",
            "pytorch",
            "tensorflow",
            "jax",
            "onnxruntime",
            "cupy",
            "vllm",
            "lmdb",
            "companions",
            "cudnn",
            "libraries",
        )
        assert [line[:9] for line in changed] == (["updated: "] if wheels else []), path.name


def test_a_new_torch_is_added_and_not_confirmed_where_something_is_not_said(world: Path, shelf: Shelf) -> None:
    wanted = ["nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.21.5"]
    shelf.put("torch", "2.5.0", "cp311", requires=wanted)
    run(compat_refresh, world, shelf)
    release, variant = rows(world, "pytorch", "releases")[-1], rows(world, "pytorch", "variants")[-1]
    # No partner names it: the newest ones are a guess.
    assert (release["version"], release["torchvision"], release["confirmed"]) == ("2.5.0", "0.16.0", False)
    assert (variant["release"], variant["variant"], variant["cudnn"]) == ("2.5", "cu124", "9.1.0.70")
    assert (variant["targets"], variant["confirmed"]) == ({}, False)


def test_a_new_torch_that_its_partners_name_is_confirmed(world: Path, shelf: Shelf) -> None:
    shelf.put("torch", "2.1.1", "cp311", requires=["nvidia-cuda-runtime-cu12==12.1.105", "nvidia-cudnn-cu12==8.9.2.26"])
    shelf.put("torchvision", "0.16.1", "cp311", requires=["torch==2.1.1"])
    shelf.put("torchaudio", "2.1.1", "cp311", requires=["torch==2.1.1"])
    run(compat_refresh, world, shelf)
    release = rows(world, "pytorch", "releases")[-1]
    assert (release["version"], release["torchvision"], release["confirmed"]) == ("2.1.1", "0.16.1", True)
    assert run(compat_verify, world, shelf) == 0


def test_new_plugins_and_libraries_are_added_in_full(world: Path, shelf: Shelf) -> None:
    shelf.put("jax-cuda12-plugin", "0.7.1", "cp312")
    shelf.put("jax-cuda12-pjrt", "0.7.1")
    shelf.put("nvidia-nccl-cu12", "2.19.3")
    run(compat_refresh, world, shelf)
    plugin = rows(world, "jax", "plugins")[-1]
    assert (plugin["package"], plugin["pjrt"], plugin["version"]) == ("jax-cuda12-plugin", "jax-cuda12-pjrt", "0.7.1")
    assert rows(world, "libraries", "nccl")[-1] == {
        "version": "2.19.3",
        "date": "2024-05-01",
        "variants": {"cu12": ["x86_64"]},
        **SEEN,
    }


def test_a_new_release_of_what_stands_beside_is_told_with_what_it_asks_for(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.put("beside", "1.1", requires=["torch==2.1.0"])
    shelf.put("beside", "1.2", requires=["torch<3,>=2.2"])
    shelf.put("beside", "1.3rc1", requires=["torch==9.0"])
    run(compat_refresh, world, shelf)
    assert rows(world, "companions", "packages")[0]["newest"] == "1.2"
    assert rows(world, "companions", "pairs")[0]["releases"] == {"1.1": "==2.1.0", "1.2": "<3,>=2.2"}
    assert "for you: companions.packages beside: whether its spans and pairs hold" in capsys.readouterr().out
    assert run(compat_verify, world, shelf) == 0


def test_a_row_of_a_field_a_line_keeps_its_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "companions.yaml"
    path.write_text(
        "---\nupdated: '2024-01-01'\n\npairs:\n  - package: beside\n    other: torch\n    releases: {'1.0': '==2.1.0',\n"
        "               '1.1': '==2.2.0'}\n    confirmed: true\n    source: [package_index]\n\nsources: {}\n"
    )
    file = compat_tables.TableFile(path)
    many = {f"1.{number}": "==2.1.0" for number in range(20)}
    file.set("pairs", ("beside", "torch"), ("package", "other"), releases=many)
    assert file.content["pairs"] == [
        {"package": "beside", "other": "torch", "releases": many, "confirmed": True, "source": ["package_index"]}
    ]
    assert "    other: torch\n    releases: {'1.0': '==2.1.0', " in file.text
    assert max(map(len, file.text.splitlines())) <= compat_tables.WIDTH


def test_what_was_withdrawn_is_marked_and_what_is_gone_stays_for_a_person(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.projects["nvidia-nccl-cu12"].clear()
    shelf.put("nvidia-nccl-cu12", "2.19.3")
    shelf.projects["nvidia-cudnn-cu12"].clear()
    shelf.put("nvidia-cudnn-cu12", "8.9.2.26", yanked=True)
    run(compat_refresh, world, shelf)
    assert [row["version"] for row in rows(world, "libraries", "nccl")] == ["2.18.1", "2.19.3"]
    assert rows(world, "cudnn", "versions")[0]["yanked"] is True
    assert "for you: libraries.nccl 2.18.1: a row, upstream: not on the index" in capsys.readouterr().out


def test_a_dry_run_shows_the_change_and_writes_nothing(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.put("nvidia-nccl-cu12", "2.19.3")
    before = {path.name: path.read_bytes() for path in world.glob("*.yaml")}
    run(compat_refresh, world, shelf, "--dry-run")
    assert "+  - {version: '2.19.3'" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in world.glob("*.yaml")} == before


def test_what_is_written_is_what_the_schemas_want(world: Path, shelf: Shelf) -> None:
    import jsonschema

    shelf.put("torch", "2.5.0", "cp311", requires=["nvidia-cuda-runtime-cu12==12.4.127"])
    shelf.put("tensorflow", "2.14.0", "cp311", extras={"and-cuda": ["nvidia-cudnn-cu11==8.7.0.84"]})
    shelf.put("jax", "0.7.1", "py3-none-any", requires=["jaxlib==0.7.0"])
    shelf.put("onnxruntime-gpu", "1.30.0", "cp312", extras={"cudnn": ["nvidia-cudnn-cu13~=9.0"]})
    shelf.put("cupy-cuda13x", "14.3.0", "cp313", requires=["numpy>=2.0"])
    shelf.put("lmdb", "3.1.0", "cp312")
    shelf.put("vllm", "0.34.0", "cp312", requires=["torch==2.1.0"], python=">=3.12")
    shelf.put("nvidia-cudnn-cu12", "9.1.0.70")
    shelf.put("nvidia-dali-cuda120", "2.5.0")
    for name in ("tensorrt", "tensorrt-cu13"):
        shelf.put_sources(name, "10.13.2.6")
    run(compat_refresh, world, shelf)
    compared = 0
    for file in ("pytorch", "tensorflow", "jax", "onnxruntime", "cupy", "vllm", "lmdb", "cudnn", "libraries"):
        schema = json.loads((compat_tables.COMPAT / "schema" / f"{file}.json").read_text())
        for table, properties in schema["properties"].items():
            if table in ("updated", "sources") or len(written := rows_or_none(world, file, table)) < 2:
                continue
            jsonschema.Draft202012Validator({**properties["items"], "$defs": schema["$defs"]}).validate(written[-1])
            compared += 1
    assert compared >= 11


def rows_or_none(world: Path, file: str, table: str) -> list[dict[str, Any]]:
    return yaml.safe_load((world / f"{file}.yaml").read_text()).get(table) or []


# refresh: vendors ------------------------------------------------------------------------------------------


def test_each_vendor_that_could_not_be_read_is_named_with_the_reason(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(compat_refresh, world, shelf) == 0
    shown = capsys.readouterr().out
    for name in (
        "nvidia-redist-cuda",
        "nvidia-redist-driver",
        "nvidia-redist-cudnn",
        "nvidia",
        "nvidia-bulletins",
        "pytorch",
    ):
        assert f"not read: {name}: " in shown
    assert "404" in shown


def test_manifests_bring_toolkits_and_builds_of_the_driver(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    page = b"".join(f'<a href="redistrib_{each}.json">'.encode() for each in ("12.9.1", "13.0.0", "13.1.0"))
    serve(shelf, "nvidia-redist-cuda", "index.html", page)
    for release, driver in (("13.0.0", "580.65.06"), ("13.1.0", "590.44.01")):
        serve(shelf, "nvidia-redist-cuda", f"redistrib_{release}.json", {"nvidia_driver": {"version": driver}})
    serve(
        shelf,
        "nvidia-redist-driver",
        "index.html",
        b"redistrib_580.82.07.json redistrib_580.9.1.json redistrib_640.1.json",
    )
    serve(shelf, "nvidia-redist-driver", "redistrib_580.82.07.json", {"release_date": "2025-09-10"})
    run(compat_refresh, world, shelf)
    toolkits = rows(world, "cuda", "rows")
    assert [(row["release"], row["native_driver"]) for row in toolkits] == [
        ("13.0.0", "580.65.06"),
        ("13.1.0", "590.44.01"),
    ]
    assert (toolkits[1]["minor_version_driver"], toolkits[1]["source"]) == ("580.65.06", ["cuda_redist"])
    assert rows(world, "driver_branches", "rows")[0]["latest"] == "580.82.07"
    assert rows(world, "driver_branches", "rows")[0]["latest_date"] == "2025-09-10"
    sources = yaml.safe_load((world / "cuda.yaml").read_text())["sources"]
    assert set(sources["cuda_redist"]) == {"title", "ref", "date"}
    assert "driver branch 640 is new" in capsys.readouterr().out


def test_a_release_of_cudnn_without_wheels_is_only_told(
    world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(shelf, "nvidia-redist-cudnn", "index.html", b"redistrib_8.9.2.json redistrib_9.30.0.json")
    run(compat_refresh, world, shelf)
    assert "for you: cuDNN 9.30.0 is out" in capsys.readouterr().out
    assert len(rows(world, "cudnn", "versions")) == 1


def test_package_indexes_say_where_a_repository_begins(world: Path, shelf: Shelf) -> None:
    packages = "Package: cuda-toolkit-13-0\n\nPackage: cuda-toolkit-12-8\n\nPackage: cuda-drivers-580\n\nPackage: cuda-drivers-575\n"
    serve(shelf, "nvidia", "debian13/x86_64/Packages.gz", gzip.compress(packages.encode()))
    run(compat_refresh, world, shelf)
    row = rows(world, "systems", "rows")[0]
    assert (row["cuda_first"], row["nvidia_first_branch"]) == ("12.8", "575")


def bulletin(*pairs: tuple[str, str]) -> dict[str, Any]:
    """As NVIDIA writes them: an architecture named after the branch, products with what is vulnerable."""
    branches = [
        {
            "category": "architecture",
            "name": name,
            "branches": [{"name": "Tesla", "product": {"name": f"All driver versions prior to {build}"}}],
        }
        for name, build in pairs
    ]
    return {
        "document": {"title": "GPU Display Driver", "tracking": {"initial_release_date": "2026-08-11T00:00:00Z"}},
        "product_tree": {"branches": [{"name": "NVIDIA", "branches": branches}]},
    }


def test_builds_that_a_bulletin_calls_safe_are_those_of_linux() -> None:
    document = bulletin(
        ("Linux(R580)", "580.159.03"), ("Windows(R580)", "582.42"), ("Linux(R580 vGPU 19)", "580.200.01")
    )
    assert compat_vendor.fixed_builds(document) == {"580": "580.159.03"}


def test_a_newer_bulletin_raises_the_floor(world: Path, shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    serve(shelf, "nvidia-bulletins", "index.html", [{"name": "2025"}, {"name": "2026"}, {"name": "README.md"}])
    serve(shelf, "nvidia-bulletins", "2026/index.html", [{"name": "4999"}, {"name": "5900"}, {"name": "5901"}])
    found = bulletin(("Linux(R580)", "580.178.04"), ("Linux(R595)", "595.90.01"))
    serve(shelf, "nvidia-bulletins", "2026/5900/5900.json", found)
    serve(shelf, "nvidia-bulletins", "2026/5901/5901.json", bulletin())
    run(compat_refresh, world, shelf)
    row = rows(world, "security", "rows")[0]
    assert (row["floor"], row["bulletin"], row["date"]) == ("580.178.04", "5900", "2026-08")
    shown = capsys.readouterr().out
    assert "driver branch 595 needs 595.90.01" in shown
    assert "bulletin 5901" in shown


def test_the_wheel_indexes_of_pytorch_say_what_each_variant_pins(world: Path, shelf: Shelf) -> None:
    serve(shelf, "pytorch", "index.html", b"")
    other = Shelf(shelf.folder, shelf.server, shelf.cache, form="html")
    other.put("torch", "2.1.0+cu121", "cp311", requires=["nvidia-cudnn-cu12==8.9.7.29"])
    other.put("torch", "2.1.0+cu121.with.pypi.cudnn", "cp311", requires=["nvidia-cudnn-cu12==9.9.9.9"])
    page = (
        (shelf.folder / "simple/torch/index.html").read_text().replace("../../files", f"{shelf.server.address}/files")
    )
    (shelf.folder / "simple/torch/index.html").unlink()
    serve(shelf, "pytorch", "cu121/torch/index.html", page.encode())
    run(compat_refresh, world, shelf)
    row = rows(world, "pytorch", "variants")[0]
    assert (row["cudnn"], row["source"]) == ("8.9.7.29", ["package_index", "wheel_index"])
    assert compat_index.PythonIndex(f"{shelf.server.address}/vendor/pytorch/cu121/", shelf.cache).files("torch")


def test_a_value_that_upstream_does_not_say_is_left_as_it_is(write_cudnn: Path) -> None:
    change = Change({"cudnn": TableFile(write_cudnn / "cudnn.yaml")}, "2024-09-01")
    facts = Facts("cudnn", "versions", ("version",), {("9.3.0.75",): {"arch": None}}, complete=False)
    compat_refresh.refresh({"cudnn": change.files["cudnn"].content}, change, [facts], [])
    assert not change.done
    assert change.left == ["cudnn.versions 9.3.0.75: arch is x86_64 here, upstream does not say"]
