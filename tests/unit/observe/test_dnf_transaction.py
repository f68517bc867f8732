"""One transaction of exactly what was named: what is refused, and how the system's Python is asked; dnf itself works in test_rocky.py."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_exactly, dnf_python

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
    python = Python(DONE)
    assert dnf_python.carry_out({"install": {"x": "1-1"}}, 5, python) == DONE
    assert python.question == {"install": {"x": "1-1"}}


def test_without_bindings_nothing_is_changed_and_a_program_that_dies_is_told() -> None:
    assert "dnf's bindings" in dnf_python.carry_out({}, 5, Python(bindings=False))["refused"]
    assert dnf_python.carry_out({}, 5, Python(error="Segmentation fault")) == {"failed": "Segmentation fault"}


def test_the_program_runs_under_the_python_of_rhel_8() -> None:
    python = Python(DONE)
    dnf_python.carry_out({}, 5, python)
    tree = ast.parse(python.program, feature_version=(3, 6))
    modules = {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert modules == {"dnf", "json", "os", "sys", "typing"}


def package(name: str, version: str = "1", epoch: int = 0) -> SimpleNamespace:
    return SimpleNamespace(name=name, epoch=epoch, version=version, release="1.el9", arch="x86_64")


def resolved(remove: list[str], install: list[Any], gone: list[Any]) -> dict[str, Any]:
    asked = dnf_exactly.Transaction({"remove": remove})
    transaction = SimpleNamespace(install_set=install, remove_set=gone)
    asked.base = SimpleNamespace(resolve=lambda **_options: True, transaction=transaction)
    return dict(asked.resolve())


@pytest.fixture(autouse=True)
def _dnf(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = SimpleNamespace(DepsolveError=OSError)
    monkeypatch.setitem(__import__("sys").modules, "dnf", SimpleNamespace(exceptions=errors))


def test_what_gives_way_to_another_version_is_not_removed() -> None:
    found = resolved(
        ["nvidia-new"], [package("libnvidia-ml", "1")], [package("libnvidia-ml", "2"), package("nvidia-new")]
    )
    assert found == {"installed": ["libnvidia-ml-1-1.el9.x86_64"], "removed": ["nvidia-new-1-1.el9.x86_64"]}


def test_headers_of_one_kernel_are_named_with_their_version() -> None:
    assert resolved(["kernel-devel-1-1.el9.x86_64"], [], [package("kernel-devel")])["removed"]


def test_others_that_would_go_too_are_named() -> None:
    with pytest.raises(dnf_exactly.Refused) as refused:
        resolved(["gcc"], [], [package("gcc"), package("somebody-elses")])
    assert refused.value.others == ["somebody-elses"]
    assert "somebody-elses" in str(refused.value)


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
    asked = dnf_exactly.Transaction({"install": {"x": "1-1"}, "files": {}, "streams": {}, "comment": ""})
    asked.open()
    with pytest.raises(
        dnf_exactly.Refused, match="no repository offers x in version 1-1; these do not answer: foreign"
    ):
        asked.find("x", "1-1")


class Substitutions(dict[str, str]):
    """dnf's variables."""

    def update_from_etc(self, _root: str) -> None:
        """Read nothing."""
