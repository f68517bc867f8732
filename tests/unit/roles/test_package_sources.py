"""What the role repositories writes of each package source, and what it does with files of the host that are in its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import sources as on_node
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import base, sources
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work

KEY: Any = {"url": "https://a.example/k.pub", "fingerprint": "A" * 40, "path": "/usr/share/keyrings/x.gpg"}
APT: Any = {
    "name": "x",
    "uris": ["https://a.example/debian13/"],
    "suites": ["/"],
    "components": [],
    "key": KEY,
    "file": "/etc/apt/sources.list.d/gpuwright-x.sources",
}
ARCHIVE: Any = {
    "name": "distro-non-free",
    "uris": ["http://deb.example/debian"],
    "suites": ["trixie", "trixie-updates"],
    "components": ["contrib", "non-free"],
    "signed_by": "/usr/share/keyrings/debian.gpg",
    "file": "/etc/apt/sources.list.d/gpuwright-distro-non-free.sources",
}
WRITTEN = "# Written by gpuwright for x. A change here is overwritten by the next run.\n"


class Apt:
    """apt-get, which fails as often as it was told to."""

    def __init__(self, *failures: Result) -> None:
        self.failures = list(failures)
        self.called: list[list[str]] = []
        self.waited = 0.0

    def __call__(self, argv: list[str], timeout: float) -> Result:
        assert timeout > 0
        self.called.append(argv)
        return self.failures.pop(0) if self.failures else Result(0, "", "", 0.0, None)

    def sleep(self, seconds: float) -> None:
        self.waited += seconds


def machine(root: Path, apt: Apt | None = None, **more: Any) -> on_node.Machine:
    there = apt or Apt()
    return on_node.Machine(root=str(root), runner=there, sleep=there.sleep, **more)


def source(row: Any, manager: str = "apt") -> Any:
    """As a role adds it; its key is tested elsewhere."""
    return {**sources.source(row, manager, with_access=False), "key": None}


def test_a_source_of_apt_names_its_key_and_only_fields_with_a_value() -> None:
    anybodys: Any = {**ARCHIVE, "signed_by": None}
    assert sources.source(APT, "apt", with_access=False)["content"] == (
        f"{WRITTEN}Types: deb\nURIs: https://a.example/debian13/\nSuites: /\nSigned-By: {KEY['path']}\n"
    )
    assert sources.source(ARCHIVE, "apt", with_access=False)["content"].splitlines()[1:] == [
        "Types: deb",
        "URIs: http://deb.example/debian",
        "Suites: trixie trixie-updates",
        "Components: contrib non-free",
        "Signed-By: /usr/share/keyrings/debian.gpg",
    ]
    assert sources.source(anybodys, "apt", with_access=False)["content"].count("\n") == 5


@pytest.mark.parametrize(("signed", "packages", "index"), [("packages", 1, 0), ("index", 0, 1)])
def test_a_repository_of_dnf_checks_what_its_key_signs(signed: str, packages: int, index: int) -> None:
    row: Any = {**APT, "name": "a-b.c", "signed": signed, "key": {**KEY, "path": "/etc/pki/rpm-gpg/k"}}
    found: Any = sources.source(row, "dnf", with_access=False)
    assert found["content"].splitlines()[1:] == [
        "[gpuwright-a-b.c]",
        "name=a-b.c (gpuwright)",
        "baseurl=https://a.example/debian13/",
        "enabled=1",
        f"gpgcheck={packages}",
        f"repo_gpgcheck={index}",
        "gpgkey=file:///etc/pki/rpm-gpg/k",
    ]
    assert (found["index"], found["preferences"]) == (False, {})
    assert found["key"] is not None
    assert found["key"]["form"] == "armoured"
    assert list(found["access"]) == ["/etc/dnf/vars/gpuwright_a_b_c_login", "/etc/dnf/vars/gpuwright_a_b_c_password"]


@pytest.mark.parametrize(("release", "pin"), [("l=NVIDIA CUDA", "release l=NVIDIA CUDA"), (None, "version *")])
def test_packages_that_come_from_elsewhere_are_kept_out_and_let_in_again(
    tmp_path: Path, release: str | None, pin: str
) -> None:
    barred = {**APT, "exclude": {"release": release, "packages": ["nvidia-*"], "except": ["nvidia-container*"]}}
    on_node.add(machine(tmp_path), source(barred), [], 0)
    path = tmp_path / "etc/apt/preferences.d/gpuwright-x"
    assert path.read_text().splitlines()[2:] == [
        *("Package: nvidia-container*", f"Pin: {pin}", "Pin-Priority: 500", ""),
        *("Package: nvidia-*", f"Pin: {pin}", "Pin-Priority: -1", ""),
    ]
    done = on_node.add(machine(tmp_path), source(APT), [], 0)
    assert done == on_node.Changes([], ["/etc/apt/preferences.d/gpuwright-x"])
    assert not path.exists()


def test_what_is_as_it_has_to_be_is_not_written_again_and_a_strange_mode_is_mended(tmp_path: Path) -> None:
    file = tmp_path / APT["file"][1:]
    assert on_node.add(machine(tmp_path), source(APT), [], 0).written == [APT["file"]]
    assert file.stat().st_mode & 0o7777 == 0o644
    assert on_node.add(machine(tmp_path), source(APT), [], 0) == on_node.Changes([], [])
    file.chmod(0o600)
    assert on_node.add(machine(tmp_path), source(APT), [], 0).written == [APT["file"]]
    file.write_text("other")
    assert on_node.add(machine(tmp_path, check=True), source(APT), [], 0).written == [APT["file"]]
    assert file.read_text() == "other"


def test_the_index_of_this_source_alone_is_fetched_also_where_nothing_was_written(tmp_path: Path) -> None:
    apt = Apt()
    without_index: Any = {**source(APT), "index": False}
    for _ in range(2):  # a cut may have come between the file and its index
        on_node.add(machine(tmp_path, apt), source(APT), [], 0)
    assert len(apt.called) == 2
    assert apt.called[0][:2] == ["apt-get", "update"]
    assert f"Dir::Etc::SourceList={tmp_path}{APT['file']}" in apt.called[0]
    assert {"Dir::Etc::SourceParts=/dev/null", "APT::Get::List-Cleanup=false"} <= set(apt.called[0])
    on_node.add(machine(tmp_path, apt, check=True), source(APT), [], 0)
    on_node.add(machine(tmp_path, apt), without_index, [], 0)
    assert len(apt.called) == 2


FAILED = Result(100, "", "E: The repository is not there", 0.0, None)
ONLY_WARNED = Result(0, "", "W: Failed to fetch https://me:s3cr3t@a.example/debian13/InRelease", 0.0, None)


@pytest.mark.parametrize("failure", [FAILED, ONLY_WARNED])
def test_an_index_is_asked_for_again_before_the_run_stops(tmp_path: Path, failure: Result) -> None:
    apt = Apt(failure, failure, failure)
    on_node.add(machine(tmp_path, apt), source(APT), [], 3)
    assert (len(apt.called), apt.waited) == (4, 15.0)
    with pytest.raises(on_node.NotFetched, match=r"Expected the index of x .* Found: .* What to do: ") as stopped:
        on_node.add(machine(tmp_path, Apt(failure, failure)), source(APT), [], 1)
    assert "s3cr3t" not in str(stopped.value)


# What is in the way ---------------------------------------------------------------------------------------------------


def _in_the_way(root: Path, text: str, mode: int = 0o640) -> Path:
    path = root / "etc/apt/sources.list.d/cuda.list"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_in_the_way_is_kept_in_the_backup_and_goes(tmp_path: Path) -> None:
    path = _in_the_way(tmp_path, "deb https://a.example/ /\n")
    row: Any = {"file": "/etc/apt/sources.list.d/cuda.list", "whole": True, "uris": ["https://a.example/"]}
    assert on_node.displace(machine(tmp_path, check=True), [row]).gone == [row["file"]]
    assert path.exists()
    assert on_node.displace(machine(tmp_path), [row]) == on_node.Changes([], [row["file"]])
    kept = Path(f"{tmp_path}{paths.BACKUP}{row['file']}")
    assert kept.read_text() == "deb https://a.example/ /\n"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not path.exists()
    assert on_node.displace(machine(tmp_path), [row]) == on_node.Changes([], [])
    assert kept.exists()


def test_of_a_file_with_other_sources_only_the_lines_in_the_way_are_disabled(tmp_path: Path) -> None:
    text = (
        "deb http://deb.example/debian trixie main\n"
        "deb [signed-by=/k] https://me:s3cr3t@a.example/debian13/ /\n"
        "deb-src https://a.example/debian13/ /\n"
        "deb https://a.example/debian13/sub /\n"
    )
    path = _in_the_way(tmp_path, text)
    row: Any = {
        "file": "/etc/apt/sources.list.d/cuda.list",
        "whole": False,
        "uris": ["https://a.example/debian13/"],
    }
    assert on_node.displace(machine(tmp_path), [row]) == on_node.Changes([row["file"]], [])
    lines = path.read_text().splitlines()
    assert [line.startswith("# Disabled by gpuwright, ") for line in lines] == [False, True, True, False]
    assert lines[1].endswith(f"{paths.BACKUP}: " + text.splitlines()[1])
    kept = Path(f"{tmp_path}{paths.BACKUP}{row['file']}")
    assert kept.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o640
    assert on_node.displace(machine(tmp_path), [row]) == on_node.Changes([], [])
    assert kept.read_text() == text, "the backup is what was there, not what was left"


def test_an_older_backup_stays_beside_the_new_one(tmp_path: Path) -> None:
    path = _in_the_way(tmp_path, "first")
    row: Any = {"file": "/etc/apt/sources.list.d/cuda.list", "whole": True, "uris": []}
    on_node.displace(machine(tmp_path), [row])
    for text in ("second", "third"):
        path.write_text(text)
        on_node.displace(machine(tmp_path), [row])
    folder = Path(f"{tmp_path}{paths.BACKUP}{row['file']}").parent
    there = {file.name: file.read_text() for file in folder.iterdir()}
    assert there == {"cuda.list": "third", "cuda.list.1~": "first", "cuda.list.2~": "second"}


# What is added --------------------------------------------------------------------------------------------------------


def _context(*rows: Any, there: list[dict[str, Any]] | None = None) -> base.Context:
    facts: Any = {"packages": {"sources": there or []}}
    stack: Any = {"repositories": list(rows)}
    return base.Context(facts=facts, stack=stack)


HOST = {"file": "/etc/apt/sources.list.d/site.list", "enabled": True, "uris": ["https://a.example/debian13"]}


@pytest.mark.parametrize(
    ("row", "there", "covered"),
    [
        (APT, [HOST], ["x"]),
        (APT, [{**HOST, "enabled": False}], []),
        (APT, [{**HOST, "file": APT["file"]}], []),
        (
            {**APT, "displaces": [{"file": HOST["file"], "whole": True, "uris": HOST["uris"], "reason": "r"}]},
            [HOST],
            [],
        ),
        ({**ARCHIVE, "uris": ["https://a.example/debian13/"]}, [HOST], []),
    ],
)
def test_a_source_that_the_host_has_by_its_own_is_used_as_it_is(
    row: Any, there: list[dict[str, Any]], covered: list[str]
) -> None:
    context = _context(row, there=there)
    plan: Any = {"stack": context.stack}
    plan["work"] = {"repositories": sources.begin(context, plan)}
    assert plan["work"]["repositories"] == {"covered": covered}
    rows, displaced = sources.of_names(plan, [row["name"]])
    assert [each["name"] for each in rows] == [name for name in [row["name"]] if name not in covered]
    assert [each["file"] for each in displaced] == [each["file"] for each in row.get("displaces") or ()]
    assert sources.of_names(plan, []) == ([], [])
    assert sources.of_names(plan, None) == sources.of_names(plan, [row["name"]])


def test_a_source_is_added_by_the_first_component_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def component(*names: str) -> Any:
        steps = {"begin": lambda *_: {"repositories": list(names)}} if names else {}
        return type("Room", (), {"steps": steps, "program": None, "outgrown": ()})

    rooms = {"one": component("a", "b"), "two": component("b", "c"), "three": component()}
    monkeypatch.setattr(work, "COMPONENTS", rooms)
    plan: Any = {"components": ["one", "two", "three"], "remove": None, "manages": {}}
    found = work.of_plan(plan, _context())
    assert {name: found[name] for name in ("one", "two")} == {
        "one": {"repositories": ["a", "b"]},
        "two": {"repositories": ["c"]},
    }
    plan["components"] = []
    assert work.of_plan(plan, _context()) == {}
