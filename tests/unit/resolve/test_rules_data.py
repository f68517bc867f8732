"""The tables: the same as the JSON that is shipped, well formed, each row with its source, and agreeing with each other."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import compilers
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import targets
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus
from tests.tables import read
from tools import build_rules

ROOT = Path(__file__).resolve().parents[3]
COMPAT = ROOT / "compat"
FILES = [*sorted(COMPAT.glob("*.yaml")), *sorted(COMPAT.glob("sizing/*.yaml"))]
PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")


def tables(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = read(path)
    return content


def schema_of(path: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(
        (COMPAT / "schema" / path.relative_to(COMPAT).with_suffix(".json")).read_text(encoding="utf-8")
    )
    return schema


def faults(path: Path, content: dict[str, Any]) -> list[str]:
    validator = Draft202012Validator(schema_of(path))
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in validator.iter_errors(content)]


def rows(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, table in content.items():
        if name not in ("updated", "sources"):
            yield from ((name, row) for row in table)


def test_every_framework_that_a_table_names_is_one() -> None:
    named = {row["framework"] for path in FILES for _name, row in rows(tables(path)) if "framework" in row}
    assert named <= set(ABOUT)


# the file that is shipped ------------------------------------------------------------------------------


def test_rules_json_is_what_the_tables_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_rules.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_table_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("updated: '2026-01-01'\nrows: []\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("updated: '2026-02-01'\nrows: []\n", encoding="utf-8")
    one = build_rules.build(tmp_path)
    assert one["generated"] == "2026-02-01"
    assert one == build_rules.build(tmp_path)
    (tmp_path / "a.yaml").write_text("updated: '2026-01-01'\nrows: [1]\n", encoding="utf-8")
    assert build_rules.build(tmp_path)["digest"] != one["digest"]


def test_what_only_readers_of_the_tables_need_is_not_shipped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "updated: '2026-01-01'\nrows: [{name: one, confirmed: true, confirmed_fields: [name]}]\nexceptions: [{table: rows}]\n",
        encoding="utf-8",
    )
    assert build_rules.build(tmp_path)["a"] == {"updated": "2026-01-01", "rows": [{"name": "one", "confirmed": True}]}
    (tmp_path / "gpus.yaml").write_text(
        "updated: '2026-01-01'\nrows: [{name: one, source: [a]}]\nboards: [{source: [a]}]\n", encoding="utf-8"
    )
    assert build_rules.build(tmp_path)["gpus"] == {
        "updated": "2026-01-01",
        "rows": [{"name": "one"}],
        "boards": [{"source": ["a"]}],
    }
    (tmp_path / "traps.yaml").write_text("updated: '2026-01-01'\nrows: []\n", encoding="utf-8")
    assert "traps" not in build_rules.build(tmp_path)


def test_rules_json_is_small_enough_to_be_read_by_every_host(rules: dict[str, Any]) -> None:
    shipped = ROOT / "plugins" / "plugin_utils" / "rules" / "rules.json"
    # Each fork of a run reads it. Raise it for rows that answers are made of, after what only readers need was left out.
    assert shipped.stat().st_size < 600_000
    assert json.loads(shipped.read_text(encoding="utf-8"))["digest"] == rules["digest"]


# each table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_table_is_what_its_schema_says(path: Path) -> None:
    Draft202012Validator.check_schema(schema_of(path))
    assert faults(path, tables(path)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_schema_refuses_a_column_that_nobody_knows_and_a_row_without_its_source(path: Path) -> None:
    whole = tables(path)
    names = [key for key in whole if key not in ("updated", "sources")]
    content = {**whole, **{name: whole[name][:1] for name in names}}
    assert faults(path, content) == []
    for name in names:
        unknown, unsourced, unread = (copy.deepcopy(content) for _ in range(3))
        unknown[name][0]["colour"] = "green"
        unsourced[name][0]["source"] = []
        del unread[name][0]["confirmed"]
        assert all(faults(path, each) for each in (unknown, unsourced, unread)), name


def test_no_schema_is_left_of_a_table_that_is_gone() -> None:
    schemas = COMPAT / "schema"
    assert {path.relative_to(schemas).with_suffix("") for path in schemas.rglob("*.json")} == {
        path.relative_to(COMPAT).with_suffix("") for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_of_a_row_is_explained_and_says_what_where_and_when(path: Path) -> None:
    content = tables(path)
    for name, row in rows(content):
        assert set(row["source"]) <= set(content["sources"]), (name, row)
    for key, source in content["sources"].items():
        assert set(source) == {"title", "ref", "date"}, key
        if source["ref"].startswith("compat/"):
            assert (ROOT / source["ref"]).is_file(), key


def test_no_model_is_confirmed_by_general_knowledge_alone() -> None:
    for name in ("models", "members"):
        content = tables(COMPAT / f"sizing/{name}.yaml")
        known = {key for key, source in content["sources"].items() if "general knowledge" in str(source)}
        assert [row for row in content["rows"] if row["confirmed"] and set(row["source"]) <= known] == []


def test_only_the_upstreams_name_addresses_to_load_from() -> None:
    hosts = ("developer.download.nvidia", "download.pytorch.org", "nvidia.github.io")
    for path in FILES:
        if path.stem != "upstreams":
            text = path.read_text(encoding="utf-8")
            assert not [host for host in hosts if host in text], path


def test_every_trap_has_a_name_of_its_own() -> None:
    names = [row["id"] for row in tables(COMPAT / "traps.yaml")["rows"]]
    assert len(set(names)) == len(names)


# names that one table takes from another ---------------------------------------------------------------


def test_every_branch_that_is_named_anywhere_exists(rules: dict[str, Any]) -> None:
    known = {row["branch"] for row in rules["driver_branches"]["rows"]}
    named = {row["branch"] for table in ("kernels", "security") for row in rules[table]["rows"] if row["branch"]}
    named |= {row["branch"] for row in rules["systems"]["distro_drivers"]}
    named |= {row["nvidia_first_branch"] for row in rules["systems"]["rows"]}
    named |= {row["branch"] for row in rules["cuda"]["forward"]}
    for _name, row in rows(rules["packages"]):
        named |= {row[key] for key in ("first_branch", "last_branch") if row.get(key)}
    for row in rules["driver_branches"]["first_builds"]:
        named |= {numeric_version.major(build) for build in row["first"]} | set(row.get("absent", ()))
    first = [numeric_version.major(row["first_driver"]) for row in rules["gpus"]["rows"] if row["first_driver"]]
    first += [row["first_branch"] for row in rules["gpus"]["architectures"]]
    # Of the branches before 450 the table has those that lived long; old cards began with others.
    named |= {branch for branch in first if int(branch) >= 450}
    named |= {branch for row in rules["gpus"]["rows"] for branch in row.get("absent", ())}
    assert named <= known, named - known


def test_every_build_is_of_a_branch_that_exists_or_came_with_a_toolkit_only(rules: dict[str, Any]) -> None:
    known = {row["branch"] for row in rules["driver_branches"]["rows"]} | {"410"}
    builds = {row["native_driver"] for row in rules["cuda"]["rows"] if row["native_driver"]}
    builds |= {row["minor_version_driver"] for row in rules["cuda"]["rows"]}
    builds |= {row["driver"] for row in rules["cuda"]["families"]}
    assert {numeric_version.major(build) for build in builds} <= known
    for row in rules["driver_branches"]["rows"]:
        assert row["latest"] is None or numeric_version.major(row["latest"]) == row["branch"], row
    for table in ("kernels", "security"):
        for row in rules[table]["rows"]:
            build = row.get("builds_below") or row.get("floor")
            assert not row["branch"] or not build or numeric_version.major(build) == row["branch"], row


def test_every_cuda_that_is_named_anywhere_exists_or_is_known_never_to_have(rules: dict[str, Any]) -> None:
    table = rules["cuda"]
    known = [row["cuda"] for row in table["rows"]]
    never = {row["cuda"] for row in table["never"]}
    assert not never & set(known)
    assert all(set(row["instead"]) <= set(known) for row in table["never"])
    named = {row["cuda"] for name in ("targets", "compilers") for row in table[name]}
    named |= {row[key] for row in table["forward"] for key in ("first", "last")}
    named |= {row["cuda_first"] for row in rules["systems"]["rows"]}
    named |= {row["toolkit_up_to"] for row in rules["systems"]["glibc"]}
    named |= {row["version"] for row in rules["systems"]["doubts"] if row["what"] == "cuda"}
    named |= {row["cuda"] for row in rules["pytorch"]["variants"]}
    named |= {row["cuda"] for row in rules["tensorflow"]["releases"] if row["cuda"]}
    named |= {row["cuda"] for row in rules["jax"]["requirements"]}
    # A driver reports the CUDA it was made for: 565 that of a toolkit that never came, 390 one from before this table.
    named |= {
        row["max_cuda"]
        for row in rules["driver_branches"]["rows"]
        if numeric_version.at_least(row["max_cuda"], known[0])
    }
    assert named <= set(known) | never, named - set(known) - never


def test_releases_are_of_the_toolkit_they_are_listed_under(rules: dict[str, Any]) -> None:
    for row in rules["cuda"]["rows"]:
        assert numeric_version.belongs(row["release"], row["cuda"]), row


def test_every_key_and_every_repository_that_is_named_exists(rules: dict[str, Any]) -> None:
    upstreams = rules["upstreams"]
    keys = {row["id"] for row in upstreams["keys"]}
    assert {row["key"] for row in upstreams["repositories"] if row["key"]} <= keys
    distros = [row["distro"] for row in upstreams["repositories"]]
    assert len(set(distros)) == len(distros)
    assert {row["nvidia_repository"] for row in rules["systems"]["rows"]} <= set(distros)
    assert {row["upstream"] for row in upstreams["mirrors"]} <= {"pypi", *(row["name"] for row in upstreams["rows"])}
    places = [(row["region"], row["upstream"]) for row in upstreams["mirrors"]]
    assert len(set(places)) == len(places)
    # DKMS of Red Hat's family is EPEL's.
    assert {row.get("epel", "").upper() for row in rules["systems"]["rows"] if row["family"] == "rhel"} <= keys


def test_every_system_that_is_named_is_served(rules: dict[str, Any]) -> None:
    served = {row["os"] for row in rules["systems"]["rows"]}
    named = {
        row["os"] for name in ("distro_drivers", "signed_repositories", "doubts") for row in rules["systems"][name]
    }
    named |= {row["os"] for row in rules["container_toolkit"]["absent"]}
    named |= {row["follows"] for row in rules["systems"]["derivatives"] if row["follows"]}
    assert named <= served
    derived = {f"{row['id']}-{row['version']}" for row in rules["systems"]["derivatives"]}
    assert {row["os"] for row in rules["systems"]["builders"]} <= served | derived


def test_package_names_are_such_as_apt_takes(rules: dict[str, Any]) -> None:
    fill = {"branch": "580", "series": "generic-hwe-24.04", "major": "13", "minor": "0", "version": "580.95.05"}
    seen = 0
    for _name, row in rows(rules["packages"]):
        for name in [*row.get("packages", ()), *([row["package"]] if "package" in row else [])]:
            assert PACKAGE.match(name.format(**fill)), name
            seen += 1
    assert seen > 60


# what has to agree -------------------------------------------------------------------------------------


def test_every_card_of_the_tables_is_there() -> None:
    found = tables(ROOT / "compat" / "gpus.yaml")["rows"]
    assert len(found) >= 139
    assert len({row["name"] for row in found}) == len(found)


def test_device_ranges_agree_with_the_cards_that_are_named(rules: dict[str, Any]) -> None:
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
    carried_by = {row["cuda"]: row["targets"] for row in rules["cuda"]["targets"]}
    for row in rules["pytorch"]["variants"]:
        for carried in row["targets"].values():
            assert {each.removesuffix("+PTX") for each in carried} <= set(carried_by[row["cuda"]]), (
                row["release"],
                row["variant"],
            )


def test_every_cudnn_that_a_confirmed_variant_pins_was_published(rules: dict[str, Any]) -> None:
    published = {row["version"] for row in rules["cudnn"]["versions"]}
    pinned = {row["cudnn"] for row in rules["pytorch"]["variants"] if row["confirmed"] and row["cudnn"]}
    assert pinned <= published


def test_every_toolkit_from_10_0_on_has_its_driver_its_targets_and_its_compilers(rules: dict[str, Any]) -> None:
    confirmed = {row["cuda"] for row in rules["cuda"]["rows"]} - {"13.5"}
    assert {"10.0", "10.1", "10.2", "11.0", "11.8", "12.0", "12.9", "13.0", "13.4"} <= confirmed
    assert confirmed == {row["cuda"] for row in rules["cuda"]["targets"]}
    assert confirmed == {row["cuda"] for row in rules["cuda"]["compilers"]}
    for row in rules["cuda"]["rows"]:
        assert row["native_driver"] is None or numeric_version.at_least(
            row["native_driver"], row["minor_version_driver"]
        ), row


@pytest.mark.parametrize(("table", "column"), [("rows", "release"), ("targets", "cuda"), ("compilers", "cuda")])
def test_toolkits_stand_oldest_first_as_the_resolver_reads_them(table: str, column: str, rules: dict[str, Any]) -> None:
    order = [numeric_version.key(row[column]) for row in rules["cuda"][table]]
    assert order == sorted(order)


def test_branches_stand_oldest_first_as_the_resolver_reads_them(rules: dict[str, Any]) -> None:
    order = [int(row["branch"]) for row in rules["driver_branches"]["rows"]]
    assert order == sorted(order)


def test_a_table_the_other_way_round_would_answer_wrongly(rules: dict[str, Any]) -> None:
    # What the two tests before this one hold: a toolkit that was not read is answered for by the one before it.
    assert targets.toolkit_targets("13.9", rules) == rules["cuda"]["targets"][-1]
    assert compilers.limits("13.9", rules) == rules["cuda"]["compilers"][-1]
    turned = {**rules, "cuda": {**rules["cuda"]}}
    for name in ("targets", "compilers"):
        turned["cuda"][name] = list(reversed(rules["cuda"][name]))
    assert targets.toolkit_targets("13.9", turned) == rules["cuda"]["targets"][0]
    assert compilers.limits("13.9", turned) == rules["cuda"]["compilers"][0]


def test_newer_toolkits_take_compilers_at_least_as_new(rules: dict[str, Any]) -> None:
    for column in ("gcc", "clang", "glibc"):
        limits = [numeric_version.key(row[column]) for row in rules["cuda"]["compilers"] if row[column]]
        assert limits == sorted(limits), column


def test_the_limits_of_the_c_library_are_the_same_in_both_tables(rules: dict[str, Any]) -> None:
    for limit in rules["systems"]["glibc"]:
        for row in rules["cuda"]["compilers"]:
            fails = row["glibc"] is not None and not numeric_version.at_least(row["glibc"], limit["glibc"])
            assert fails == numeric_version.at_least(limit["toolkit_up_to"], row["cuda"]), (limit["glibc"], row["cuda"])


def test_forward_compatibility_begins_above_what_the_branch_brings_itself(rules: dict[str, Any]) -> None:
    branches = {row["branch"]: row for row in rules["driver_branches"]["rows"]}
    for row in rules["cuda"]["forward"]:
        assert not numeric_version.at_least(branches[row["branch"]]["max_cuda"], row["first"]), row
        assert numeric_version.at_least(row["last"], row["first"]), row
        # A new-feature branch is no base that NVIDIA supports.
        assert not (row["supported"] and branches[row["branch"]]["type"] == "new-feature"), row


def test_the_names_around_nvswitches_lose_their_branch_at_580(rules: dict[str, Any]) -> None:
    for table in ("fabric_manager", "nscq", "imex"):
        old, new = (row for row in rules["packages"][table] if row["from"] == "nvidia" and "family" not in row)
        assert (old["last_branch"], new["first_branch"]) == ("575", "580")
        assert old["packages"] == [f"{name}-{{branch}}" for name in new["packages"]]


def test_the_drivers_names_lose_their_branch_at_590_on_ubuntu_and_never_have_one_on_debian(
    rules: dict[str, Any],
) -> None:
    for row in rules["packages"]["driver"]:
        if row["from"] == "nvidia":
            old = row["family"] == "ubuntu" and int(row["first_branch"]) < 590
            assert all(("{branch}" in name) == old for name in row["packages"]), row
            assert not old or row["last_branch"] in ("575", "580")


def test_support_of_a_system_ends_before_its_extended_support(rules: dict[str, Any]) -> None:
    for row in rules["systems"]["rows"]:
        # Rocky and AlmaLinux have nothing after it.
        extended = row["family"] != "rhel" or row["id"] == "rhel"
        assert (row["support_end"] < row["extended_end"]) == extended, row["os"]
        assert row["gcc"] not in row["gcc_also"], row["os"]


def test_the_toolkit_that_every_driver_runs_is_not_in_every_repository(rules: dict[str, Any]) -> None:
    first = {row["os"]: row["cuda_first"] for row in rules["systems"]["rows"]}
    assert numeric_version.at_least("11.8", first["ubuntu-22.04"])
    assert not any(numeric_version.at_least("11.8", first[os]) for os in ("ubuntu-24.04", "debian-12", "debian-13"))


def test_the_versions_of_the_container_toolkit_stand_oldest_first(rules: dict[str, Any]) -> None:
    order = [numeric_version.key(row["version"]) for row in rules["container_toolkit"]["rows"]]
    assert order == sorted(order)
    bad = {row["version"] for row in rules["container_toolkit"]["rows"] if row.get("bad")}
    assert bad == {"1.17.4", "1.17.7"}
