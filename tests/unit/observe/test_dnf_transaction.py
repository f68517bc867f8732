"""One transaction of exactly what was named: what is refused, and how the system's Python is asked; dnf itself works in test_rocky.py."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_exactly, dnf_python
from ansible_collections.gpuwright.node.plugins.modules import dnf_transaction
from tests.unit.observe.trees import FakePrograms, Tree, answer

DONE = {"installed": ["nvidia-driver-cuda-580.126.20-1.el9.x86_64"], "removed": []}


class Python:
    """The system's Python, which answers as it is told."""

    def __init__(self, told: dict[str, Any] | None = None, error: str = "", *, bindings: bool = True) -> None:
        self.told, self.error, self.bindings = told, error, bindings
        self.program = ""
        self.question: dict[str, Any] = {}

    def __call__(self, argv: list[str], stdin: bytes = b"", **_other: Any) -> Result:
        if "-c" in argv:
            return Result(0 if self.bindings else 1, "", "", 0.0, None)
        self.program, self.question = stdin.decode(), json.loads(Path(argv[-1]).read_text())
        if self.told is None:
            return Result(1, "", self.error, 0.0, None)
        Path(argv[-1] + ".answer").write_text(json.dumps(self.told))
        return Result(0, "words of a package's script", "", 0.0, None)


def test_the_answer_is_read_beside_what_scripts_of_packages_print() -> None:
    python, last = Python(DONE), Python(DONE)
    assert dnf_python.carry_out({"install": {"x": "1-1"}}, 5, python, last) == DONE
    assert python.question == {"install": {"x": "1-1"}, "only_fetch": True}
    assert last.question == {"install": {"x": "1-1"}}


def test_only_what_may_be_cut_has_a_limit() -> None:
    limits: list[Any] = []

    def limited(argv: list[str], **options: Any) -> Result:
        limits.append(options.get("timeout"))
        return Python(DONE)(argv, **options)

    def to_its_end(argv: list[str], stdin: bytes) -> Result:
        limits.append("none")
        return Python(DONE)(argv, stdin)

    assert dnf_python.carry_out({"install": {"x": "1-1"}}, 5, limited, to_its_end) == DONE
    assert limits == [5, 5, "none"]


@pytest.mark.parametrize("told", [{"refused": "others would go", "others": ["x"]}, {"failed": "no such mirror"}])
def test_the_transaction_does_not_begin_where_fetching_ended_so(told: dict[str, Any]) -> None:
    def never(*_arguments: Any) -> Result:
        raise AssertionError

    assert dnf_python.carry_out({}, 5, Python(told), never) == told
    assert dnf_python.carry_out({"trial": True}, 5, Python(DONE), never) == DONE


def test_a_program_that_must_not_be_cut_goes_on_to_its_end(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    left = tmp_path / "left"
    child.write_text(f"import time; time.sleep(1); print('x' * 100000); open({str(left)!r}, 'w').close()")
    parent = (
        "from ansible_collections.gpuwright.node.plugins.module_utils.base import run\n"
        f"run.run_to_its_end([{sys.executable!r}, {str(child)!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], env=environment())
    time.sleep(0.5)
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while not left.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert left.exists()


def environment() -> dict[str, str]:
    """Where the collection is found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_without_bindings_nothing_is_changed_and_a_program_that_dies_is_told() -> None:
    assert "dnf's bindings" in dnf_python.carry_out({}, 5, Python(bindings=False))["refused"]
    assert dnf_python.carry_out({}, 5, Python(error="Segmentation fault")) == {"failed": "Segmentation fault"}


def test_the_program_runs_under_the_python_of_rhel_8() -> None:
    python = Python(DONE)
    dnf_python.carry_out({}, 5, python)
    tree = ast.parse(python.program, feature_version=(3, 6))
    modules = {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert modules == {"contextlib", "dnf", "json", "os", "sys", "typing"}


@dataclass(frozen=True, order=True)
class Package:
    """A package, as dnf has it."""

    name: str
    version: str = "1"
    epoch: int = 0
    release: str = "1.el9"
    arch: str = "x86_64"


package = Package


def resolved(remove: list[str], coming: list[Any], gone: list[Any], **given: Any) -> dict[str, Any]:
    asked = dnf_exactly.Transaction({"remove": remove, **given})
    transaction = SimpleNamespace(install_set=coming, remove_set=gone)
    asked.base = SimpleNamespace(resolve=lambda **_options: True, transaction=transaction)
    return dict(asked.resolve())


@pytest.fixture(autouse=True)
def _dnf(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = SimpleNamespace(DepsolveError=OSError, PackagesNotAvailableError=KeyError)
    monkeypatch.setitem(__import__("sys").modules, "dnf", SimpleNamespace(exceptions=errors))


def test_what_gives_way_to_another_version_is_not_removed() -> None:
    found = resolved(
        ["nvidia-new"],
        [package("libnvidia-ml", "1")],
        [package("libnvidia-ml", "2"), package("nvidia-new")],
        install={"libnvidia-ml": "1-1.el9"},
    )
    assert found == {"installed": ["libnvidia-ml-1-1.el9.x86_64"], "removed": ["nvidia-new-1-1.el9.x86_64"]}


def test_headers_of_one_kernel_are_named_with_their_version() -> None:
    assert resolved(["kernel-devel-1-1.el9.x86_64"], [], [package("kernel-devel")])["removed"]


def test_others_that_would_go_too_are_named() -> None:
    with pytest.raises(dnf_exactly.Refused) as refused:
        resolved(["gcc"], [], [package("gcc"), package("somebody-elses")])
    assert refused.value.others == ["somebody-elses"]
    assert "somebody-elses" in str(refused.value)


def test_what_may_be_taken_away_goes_too() -> None:
    found = resolved(["gcc"], [], [package("gcc"), package("somebody-elses")], may_take=["somebody-elses"])
    assert len(found["removed"]) == 2


def test_a_package_of_another_architecture_does_not_take_the_place_of_one() -> None:
    with pytest.raises(dnf_exactly.Refused, match="libfoo"):
        resolved([], [package("libfoo", "2")], [package("libfoo"), package("libfoo", arch="i686")])


def test_what_others_have_goes_to_no_older_version() -> None:
    older, newer = package("libfoo", "1"), package("libfoo", "2")
    with pytest.raises(dnf_exactly.Refused, match="older versions with it: libfoo"):
        resolved([], [older], [newer])
    assert resolved([], [older], [newer], specs=["libfoo-1-1.el9"])["installed"]
    assert resolved([], [older], [newer], may_take=["libfoo"])["installed"]


class Sack:
    """What is installed, as dnf asks for it."""

    def __init__(self, *packages: Package) -> None:
        self.packages = list(packages)

    def query(self) -> Sack:
        return self

    installed = query

    def filter(self, name: str) -> list[Package]:
        return [each for each in self.packages if each.name == name]


def test_of_two_versions_the_older_one_goes_in_each_architecture_and_the_newer_comes_again() -> None:
    twice = [package("libfoo", version, arch=arch) for arch in ("i686", "x86_64") for version in ("1", "2")]
    asked = dnf_exactly.Transaction({"install": {}, "remove": [], "duplicates": ["libfoo", "gone"]})
    removed: list[Package] = []
    again: list[str] = []
    asked.base = SimpleNamespace(sack=Sack(*twice), package_remove=removed.append, reinstall=again.append)
    asked.mark()
    assert [(each.arch, each.version) for each in removed] == [("i686", "1"), ("x86_64", "1")]
    assert len(again) == 2
    # What needs the older one does not go with it.
    asked.base.resolve = lambda **_options: True
    asked.base.transaction = SimpleNamespace(install_set=[], remove_set=[*removed, package("company-app")])
    with pytest.raises(dnf_exactly.Refused) as refused:
        asked.resolve()
    assert refused.value.others == ["company-app"]


def test_the_version_is_looked_for_with_its_epoch() -> None:
    assert dnf_exactly.evr(package("nvidia-driver-cuda", "580.126.20", 3)) == "3:580.126.20-1.el9"
    assert dnf_exactly.evr(package("dkms", "3.4.0")) == "3.4.0-1.el9"


def test_a_source_that_does_not_answer_is_left_out_and_named_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [SimpleNamespace(id=name, skip_if_unavailable=False) for name in ("baseos", "foreign")]
    base = SimpleNamespace(
        conf=SimpleNamespace(read=lambda: None, substitutions=Substitutions(), installroot="/", basearch="x86_64"),
        repos=SimpleNamespace(iter_enabled=lambda: iter(sources)),
        read_all_repos=lambda: None,
        fill_sack=lambda **_options: sources.pop() if all(each.skip_if_unavailable for each in sources) else None,
        sack=SimpleNamespace(query=lambda: SimpleNamespace(available=lambda: SimpleNamespace(filter=lambda **_of: []))),
    )
    monkeypatch.setattr(__import__("sys").modules["dnf"], "Base", lambda: base, raising=False)
    asked = dnf_exactly.Transaction({"install": {"x": "1-1"}, "files": {}, "streams": {}})
    asked.open()
    with pytest.raises(
        dnf_exactly.Refused, match="no repository offers x in version 1-1; these do not answer: foreign"
    ):
        asked.find("x", "1-1")


class Substitutions(dict[str, str]):
    """dnf's variables."""

    def update_from_etc(self, _root: str) -> None:
        """Read nothing."""


def test_a_transaction_bears_its_mark_in_dnfs_history_and_a_trial_none(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.directory("/var/lib/rpm")
    monkeypatch.setattr(dnf_transaction, "Host", lambda: tree.host(runner=FakePrograms({"rpm": answer("")})))
    given: list[Any] = []

    def carry_out(asked: Any, _timeout: float) -> Any:
        given.append(asked)
        return DONE

    monkeypatch.setattr(dnf_python, "carry_out", carry_out)
    dnf_transaction.carried_out(["x"], {"install": {"x": "1-1"}, "trial": True}, 5)
    dnf_transaction.carried_out(["x"], {"install": {"x": "1-1"}, "trial": False}, 5)
    trial, done = given
    assert "comment" not in trial
    assert re.fullmatch(r"gpuwright [0-9a-f]{12}", done["comment"])
