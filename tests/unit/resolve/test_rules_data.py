"""The tables: the same as the JSON that is shipped, well formed, each row with its source."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "compat").glob("*.yaml"))
VERSION = r"^\d+(\.\d+)*$"

# What a row of a table has to hold: key to pattern of text, or a type. A key with "?" may be null.
SCHEMAS: dict[tuple[str, str], dict[str, Any]] = {
    ("gpus", "rows"): {
        "name": str,
        "class": r"^(datacenter|geforce|workstation|embedded)$",
        "architecture": str,
        "compute_capability": r"^\d+\.\d$",
        "memory_gb": int,
        "nvlink_gbs?": (int, float),
        "pci": [r"^[0-9a-f]{4}$"],
    },
    ("gpus", "architectures"): {"architecture": str, "first_branch": r"^\d{3}$", "flavours": [r"^(open|proprietary)$"]},
    ("gpus", "device_ranges"): {
        "first": r"^[0-9a-f]{4}$",
        "last": r"^[0-9a-f]{4}$",
        "compute_capability": r"^\d+\.\d$",
    },
    ("driver_branches", "rows"): {
        "branch": r"^\d{3}$",
        "type": r"^(long-term|production|new-feature)$",
        "eol?": r"^\d{4}-\d\d-\d\d$",
        "latest?": VERSION,
        "max_cuda": r"^\d+\.\d+$",
        "min_compute_capability": r"^\d+\.\d$",
        "modules": [r"^(open|proprietary)$"],
    },
    ("driver_branches", "first_builds"): {"pci": r"^[0-9a-f]{4}$", "first": [VERSION]},
    ("cuda", "families"): {"major": r"^\d+$", "driver": VERSION},
    ("cuda", "rows"): {
        "release": VERSION,
        "cuda": r"^\d+\.\d+$",
        "native_driver?": VERSION,
        "minor_version_driver": VERSION,
    },
    ("cuda", "targets"): {"cuda": r"^\d+\.\d+$", "targets": [r"^\d+\.\d$"]},
    ("cudnn", "versions"): {"version": r"^\d+\.\d+\.\d+\.\d+(\.post\d)?$", "cuda_majors": [r"^\d+$"]},
    ("cudnn", "ceilings"): {"last": VERSION},
    ("frameworks", "pytorch"): {
        "version": VERSION,
        "python": [r"^3\.\d+$"],
        "torchvision": VERSION,
        "torchaudio": VERSION,
    },
    ("frameworks", "pytorch_variants"): {
        "release": r"^\d+\.\d+$",
        "variant": r"^cu\d{3}$",
        "status": r"^(default|stable|legacy|experimental|unsupported)$",
        "targets": dict,
        "cudnn?": VERSION,
        "nccl?": VERSION,
    },
    ("systems", "rows"): {
        "os": r"^[a-z]+-\d+(\.\d+)?$",
        "family": r"^(debian|ubuntu)$",
        "glibc": VERSION,
        "python": VERSION,
        "docker": [str],
    },
    ("systems", "distro_drivers"): {
        "os": str,
        "branch": r"^\d{3}$",
        "build?": VERSION,
        "prebuilt": bool,
        "components": [str],
    },
    ("packages", "driver"): {
        "from": r"^(nvidia|distro)$",
        "set": r"^(desktop|compute)$",
        "modules": r"^(open|proprietary)$",
        "build": r"^(dkms|prebuilt-signed)$",
        "packages": [r"^[a-z0-9{][a-z0-9.+{}-]+$"],
    },
    ("kernels", "rows"): {"branch": r"^\d{3}$", "builds_below?": VERSION, "kernel_first": VERSION},
    ("security", "rows"): {"component": str, "branch?": r"^\d{3}$", "floor": VERSION, "bulletin": str},
    ("upstreams", "rows"): {"name": str, "url": r"^https://"},
    ("upstreams", "keys"): {"id": str, "fingerprint?": r"^[0-9A-F]{40}$", "sha1": bool},
    ("upstreams", "repositories"): {"distro": str, "key?": str, "arch": dict},
    ("traps", "rows"): {"id": str, "area": str, "severity": r"^(error|warning|info)$", "trap": str, "rule": str},
}


def tables(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def problem(value: Any, expected: Any) -> str | None:
    if isinstance(expected, list):
        if not isinstance(value, list):
            return f"{value!r} is no list"
        return next((found for each in value if (found := problem(each, expected[0]))), None)
    if isinstance(expected, str):
        return None if isinstance(value, str) and re.search(expected, value) else f"{value!r} does not match {expected}"
    return None if isinstance(value, expected) else f"{value!r} is no {expected}"


def test_rules_json_is_what_the_tables_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_rules.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_table_is_noticed(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import build_rules  # type: ignore[import-not-found]  # a script, not a package
    finally:
        sys.path.pop(0)
    (tmp_path / "a.yaml").write_text("updated: '2026-01-01'\nrows: []\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("updated: '2026-02-01'\nrows: []\n", encoding="utf-8")
    one = build_rules.build(tmp_path)
    assert one["generated"] == "2026-02-01"
    assert one == build_rules.build(tmp_path)
    (tmp_path / "a.yaml").write_text("updated: '2026-01-01'\nrows: [1]\n", encoding="utf-8")
    assert build_rules.build(tmp_path)["digest"] != one["digest"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_has_a_source_that_the_file_explains_and_says_whether_it_is_confirmed(path: Path) -> None:
    content = tables(path)
    for name, rows in content.items():
        if name in ("updated", "sources"):
            continue
        for row in rows:
            assert row["source"], (name, row)
            assert set(row["source"]) <= set(content["sources"]), (name, row)
            assert isinstance(row["confirmed"], bool), (name, row)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_says_what_where_and_when(path: Path) -> None:
    for key, source in tables(path)["sources"].items():
        assert set(source) == {"title", "ref", "date"}, key


@pytest.mark.parametrize(("file", "table"), SCHEMAS, ids=str)
def test_rows_have_the_shape_that_the_resolver_reads(file: str, table: str) -> None:
    schema = SCHEMAS[file, table]
    rows = tables(ROOT / "compat" / f"{file}.yaml")[table]
    assert rows
    for row in rows:
        for key, expected in schema.items():
            name = key.rstrip("?")
            assert name in row, (name, row)
            if not (key.endswith("?") and row[name] is None):
                assert problem(row[name], expected) is None, (name, row, problem(row[name], expected))


def test_every_card_of_the_tables_is_there() -> None:
    rows = tables(ROOT / "compat" / "gpus.yaml")["rows"]
    assert len(rows) >= 139
    assert len({row["name"] for row in rows}) == len(rows)


def test_device_ranges_agree_with_the_cards_that_are_named(rules: dict[str, Any]) -> None:
    from ansible_collections.gpuwright.node.plugins.plugin_utils import gpus

    for row in rules["gpus"]["rows"]:
        for device in row["pci"]:
            found = gpus.by_range(device, rules)
            if found:
                assert found["architecture"] == row["architecture"], (row["name"], device)
                assert found["compute_capability"].split(".")[0] == row["compute_capability"].split(".")[0], (
                    row["name"],
                    device,
                )


def test_every_wheel_variant_has_code_that_its_toolkit_can_make(rules: dict[str, Any]) -> None:
    targets = {row["cuda"]: row["targets"] for row in rules["cuda"]["targets"]}
    for row in rules["frameworks"]["pytorch_variants"]:
        for carried in row["targets"].values():
            assert {each.removesuffix("+PTX") for each in carried} <= set(targets[row["cuda"]]), (
                row["release"],
                row["variant"],
            )


def test_every_cudnn_that_a_confirmed_variant_pins_was_published(rules: dict[str, Any]) -> None:
    published = {row["version"] for row in rules["cudnn"]["versions"]}
    pinned = {row["cudnn"] for row in rules["frameworks"]["pytorch_variants"] if row["confirmed"] and row["cudnn"]}
    assert pinned <= published


def test_only_the_upstreams_name_addresses_to_load_from() -> None:
    hosts = ("developer.download.nvidia", "download.pytorch.org", "nvidia.github.io")
    for path in FILES:
        if path.stem != "upstreams":
            text = path.read_text(encoding="utf-8")
            assert not [host for host in hosts if host in text], path


def test_rules_json_is_small_enough_to_be_read_by_every_host(rules: dict[str, Any]) -> None:
    shipped = ROOT / "plugins" / "plugin_utils" / "rules.json"
    assert shipped.stat().st_size < 400_000
    assert json.loads(shipped.read_text(encoding="utf-8"))["digest"] == rules["digest"]
