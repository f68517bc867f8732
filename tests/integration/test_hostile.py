"""A node that is in somebody else's hands, beside an honest one: it gets nothing of the controller, and the other goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory
from tests.sim import node
from tests.unit.gate import honest

from .conftest import Node, gpuwright

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

#: The node's Python, and what it says changed on the way out: of the node, and of its cards.
_PYTHON = "/usr/local/bin/python-evil"
_FAMILY = """#!/bin/sh
/usr/bin/python3 "$@" | sed 's#"family": "debian"#"family": "../../../../..{secret}"#; s#"problem": "no NVIDIA#"of_no_card": 1, &#'
"""


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the controller that the node would like to have."""
    path = tmp_path_factory.mktemp("controller") / "secret.yml"
    path.write_text("secret: sesame\n")
    return path


@pytest.fixture(scope="module")
def pair(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    """An honest node and one that is not, in one inventory."""
    names = {"honest": "it-honest", "evil": "it-evil"}
    for name in names.values():
        node.remove(name)
        node.create(name, "two-h100")
    path = tmp_path_factory.mktemp("inventory") / "pair.yml"
    path.write_text(node.inventory(list(names.values())))
    yield {kind: Node(name, path) for kind, name in names.items()}
    for name in names.values():
        node.remove(name)


def test_a_node_that_breaks_the_rules_fails_alone_and_the_other_is_planned(
    pair: dict[str, Node], secret: Path, tmp_path: Path
) -> None:
    evil, good = pair["evil"], pair["honest"]
    evil.shell(f"cat > {_PYTHON} <<'EOF'\n{_FAMILY.format(secret=secret)}EOF\nchmod 755 {_PYTHON}")
    inventory = yaml.safe_load(evil.inventory.read_text())
    inventory["all"]["hosts"][evil.name]["ansible_python_interpreter"] = _PYTHON
    path = tmp_path / "pair.yml"
    path.write_text(yaml.safe_dump(inventory))
    run = gpuwright("plan", "-i", path, "--json", "--report", tmp_path / "run")
    assert run.code == 1, str(run)
    assert run.json["hosts"][good.name]["changes"]
    told = str(run.json)
    assert f"{evil.name} answered node_facts as no node of gpuwright answers: facts.os.family is" in told, str(run)
    assert "sesame" not in run.stdout + run.stderr
    assert [run_directory.host_of(path) for path in run_directory.documents(tmp_path / "run/facts")] == [good.name]


#: What it is that says nothing: it is asked, and never comes to its end.
_SILENT = "/usr/local/bin/python-silent"


def test_of_three_the_third_goes_on_beside_a_hostile_one_and_one_that_says_nothing(
    pair: dict[str, Node], secret: Path, tmp_path: Path
) -> None:
    evil, good = pair["evil"], pair["honest"]
    evil.shell(f"cat > {_PYTHON} <<'EOF'\n{_FAMILY.format(secret=secret)}EOF\nchmod 755 {_PYTHON}")
    evil.shell(f"printf '#!/bin/sh\\nsleep 3600\\n' > {_SILENT}; chmod 755 {_SILENT}")
    inventory = yaml.safe_load(evil.inventory.read_text())
    hosts = inventory["all"]["hosts"]
    hosts["silent"] = {**hosts[evil.name], "ansible_python_interpreter": _SILENT}
    hosts[evil.name] = {**hosts[evil.name], "ansible_python_interpreter": _PYTHON}
    path = tmp_path / "three.yml"
    path.write_text(yaml.safe_dump(inventory))

    def done(verb: str, *options: str, asked: str = "node_facts") -> Any:
        """What is said of the third; the hostile one has failed, and the other is unreachable."""
        run = gpuwright(verb, *options, "-i", path, "-e", "gpuwright_answer_timeout=30", "--json")
        assert run.json["unreachable"]["silent"].startswith(f"no answer to {asked} within 30 seconds"), str(run)
        hostile = json.dumps(run.json["hosts"][evil.name])
        assert f"answered {asked} as no node of gpuwright answers" in hostile, str(run)
        return run.json["hosts"][good.name]

    assert done("plan", "--want", "driver")["changes"]
    assert done("up", "--yes", "--want", "driver")["verdict"] == "pass"
    assert done("status")["state"] == "ok"
    assert len(done("top", "--once", asked="card_sample")["cards"]) == 2
    assert done("validate", "--want", "driver")["verdict"] == "pass"
    # Nobody is left to measure with, and that is said.
    alone = done("validate", "--fabric", "--want", "driver")
    assert alone["verdict"] == "incomplete", alone
    assert done("remove", "--yes")["verdict"] == "pass"


def test_a_record_that_names_a_file_of_the_controller_does_not_get_it(pair: dict[str, Node], secret: Path) -> None:
    evil = pair["evil"]
    stack: dict[str, Any] = {**honest.STACK, "runfile": {**honest.STACK["runfile"], "addresses": [str(secret)]}}  # type: ignore[dict-item]
    record: dict[str, Any] = {
        "states": [{**honest.STATE, "stack": stack}],
        "original": None,
        "failed": [],
        "brought": {},
        "files": [],
    }
    evil.shell(
        f"mkdir -p /var/lib/gpuwright && cat > /var/lib/gpuwright/history.json <<'EOF'\n{json.dumps(record)}\nEOF"
    )
    run = gpuwright("rollback", "--yes", "-i", evil.inventory, "--limit", evil.name, "--json")
    assert evil.shell("grep -rl sesame /var/lib/gpuwright", check=False) == "", str(run)
    assert run.code == 3, str(run)
    (refusal,) = run.json["hosts"][evil.name]["refusals"]
    assert refusal["rule"] == "rollback-file"
    assert str(secret) not in str(run.json)
