"""The look at a node as one script: it has all that it imports, needs nothing of its surroundings, and says what the module says."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.executor import module_common
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import script
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import utilities

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
UTILITIES = "ansible_collections.gpuwright.node.plugins.module_utils"
AWKWARD = '/no """where\\ \'é\n\u2028{}'


def sources() -> dict[str, tuple[bool, str]]:
    return utilities.sources(f"{UTILITIES}.observe.machine")


def built(tmp_path: Path, options: dict[str, Any]) -> Any:
    """What Ansible makes of the script."""
    path = tmp_path / "node_session.py"
    path.write_bytes(script.look())
    return module_common.modify_module(
        module_name="gpuwright.node.node_facts",
        module_path=str(path),
        module_args=options,
        templar=Templar(DataLoader()),
        task_vars={"ansible_python_interpreter": sys.executable},
    )


def look(tmp_path: Path, options: dict[str, Any], cwd: Path | None = None) -> dict[str, Any]:
    """What the script answers as Ansible pipes it."""
    made = built(tmp_path, options)
    told = subprocess.run(
        [made.shebang.removeprefix("#!")],
        input=made.b_module_data,
        stdout=subprocess.PIPE,
        cwd=cwd or tmp_path,
        env={**os.environ},
        check=True,
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def test_it_has_every_utility_that_one_of_its_sources_imports() -> None:
    found = sources()
    for name, (_is_package, source) in found.items():
        tree = ast.parse(source)
        for_types = {
            node
            for guard in tree.body
            if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
            for node in guard.body
        }
        for node in ast.walk(tree):
            if node not in for_types and isinstance(node, ast.ImportFrom) and (node.module or "").startswith(UTILITIES):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    assert node.module in found, f"{name} imports {node.module}"
                    place = PLUGINS / "module_utils" / inner.removeprefix(UTILITIES + ".").replace(".", "/")
                    assert inner in found or not place.with_suffix(".py").exists(), f"{name} imports {inner}"


def test_it_has_no_source_that_only_the_controller_needs() -> None:
    names = {name.removeprefix(UTILITIES + ".") for name in sources()}
    assert {"observe.machine", "base.host", "smi.document"} <= names
    assert not {"packages.private_apt", "measure.fio_bench", "packages.fetch"} & names


def test_ansible_sends_it_as_it_is(tmp_path: Path) -> None:
    made = built(tmp_path, {"root": "/"})
    assert (made.module_style, made.shebang) == ("new", f"#!{sys.executable}")
    assert b"AnsiballZ" not in made.b_module_data
    assert len(made.b_module_data) < 200_000


def test_it_looks_at_a_tree(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    answer = look(tmp_path, {"root": str(tmp_path)})
    assert answer["changed"] is False
    assert (answer["facts"]["os"]["id"], answer["facts"]["root"]) == ("debian", str(tmp_path))


def test_options_arrive_as_they_are(tmp_path: Path) -> None:
    answer = look(tmp_path, {"root": AWKWARD, "environments": ['"""', "\\"]})
    assert answer["failed"] is True
    assert AWKWARD in answer["msg"]


@pytest.mark.parametrize("module", ["json", "base64", "ansible_collections"])
def test_nothing_of_the_working_directory_or_the_environment_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    planted = tmp_path / "cwd"
    planted.mkdir()
    (planted / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(planted))
    assert look(tmp_path, {"root": "/nowhere"}, cwd=planted)["failed"] is True
    assert not (tmp_path / "ran").exists()


def test_the_types_of_the_facts_are_no_part_of_it() -> None:
    assert not {f"{UTILITIES}.{name}" for name in ("facts", "check", "seal", "index")} & set(sources())
    text = "if TYPE_CHECKING:\n    from a import (\n        b,\n    )\n\n    from c import d\nfrom e import f\n"
    assert utilities._FOR_TYPES.sub("", text) == "from e import f\n"
