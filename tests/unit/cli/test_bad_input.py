"""What is wrong before any host is asked is told in one message with what is near and exit code 2; no host is asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwright import paths, runner


@pytest.fixture
def nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_arguments: Any) -> Any:
        pytest.fail("a playbook was begun")

    monkeypatch.setattr(runner, "backend", run)


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The directories of runs are not left in the home of who runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """One host, which nobody may ask."""
    path = tmp_path / "one.yml"
    path.write_text("all: {hosts: {node1: {ansible_host: 192.0.2.1}}}\n")
    return path


@pytest.mark.usefixtures("nothing_is_run")
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--gpu", "H1000"], "unknown card 'H1000'", "H100 PCIe"),
        (["--want", "kuda"], "unknown component 'kuda'", "cuda"),
        (["--want", "cuda=12.10"], "no CUDA 12.10", "cuda=12.9"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate", "gpuwright up --help"),
        (["--wish", "absent.yml"], "the wish file absent.yml is not there", None),
        (["--wish", "torn.yml"], "the wish file torn.yml is not YAML", None),
        (["--wish", "deep.yml"], "the wish file deep.yml is not YAML", None),
        (["--wish", "misspelt.yml"], "names 'cuda_versionz'", "cuda_versions"),
        (
            ["--wish", "type.yml"],
            "gpuwright_gpus_expected has to be a number of cards or their names, found 'two'",
            None,
        ),
        (["--wish", "list.yml"], "must hold variables", "nvidia_driver_branch"),
        (["--wish", "template.yml"], "--wish.frameworks_path has to be plain text, found the template", "inventory"),
        (["--wish", "name.yml"], "--wish.mig_layout has to be plain text, found the template", "inventory"),
        (["--want", "driver={{ lookup('pipe', 'id') }}"], "--want[0] has to be plain text", "inventory"),
        (["--report", "{% set x = 1 %}"], "--report has to be plain text", "inventory"),
        (["--lock", "absent.json"], "the lock file absent.json is not there", None),
        (["--lock", "~nobody-here/a"], "the lock file ~nobody-here/a is not there", None),
        (["--wish", "~nobody-here/a"], "the wish file ~nobody-here/a is not there", None),
        (["--want", "project=~nobody-here/a"], "~nobody-here/a is not there", None),
        (["-e", "@~nobody-here/a"], "the variables file ~nobody-here/a is not there", None),
        (["-i", "~nobody-here/a"], "there is no inventory ~nobody-here/a", None),
        (["-i", "a" * 5000], "there is no inventory aaa", None),
        (["-i", "absent.yml"], "there is no inventory absent.yml", "-i node1,"),
    ],
)
def test_what_is_not_known_is_told_in_one_message_with_what_is_near(
    gpuwright: Callable[..., Any], inventory: Path, arguments: list[str], message: str, hint: str | None
) -> None:
    folder = inventory.parent
    (folder / "torn.yml").write_text("cuda_versions: [\n")
    (folder / "deep.yml").write_text(f"cuda_versions: {'[' * 5000}\n")
    (folder / "misspelt.yml").write_text("cuda_versionz: ['12.8']\n")
    (folder / "template.yml").write_text("frameworks_path: \"/opt/{{ lookup('pipe', 'id') }}\"\n")
    (folder / "name.yml").write_text("mig_layout: {\"{{ lookup('pipe', 'id') }}\": [1g.5gb]}\n")
    (folder / "type.yml").write_text("gpuwright_gpus_expected: two\n")
    (folder / "list.yml").write_text("- cuda\n")
    given = [] if "-i" in arguments else ["-i", str(inventory)]
    words = [str(folder / word) if word.endswith((".yml", ".json")) else word for word in arguments]
    done = gpuwright("up", "--yes", *given, *words)
    assert done.code == 2, done
    assert done.out == ""
    errors = [line for line in done.err.splitlines() if line.startswith("gpuwright: error:")]
    assert len(errors) == 1
    assert message in errors[0].replace(f"{folder}/", "")
    assert hint is None or any(hint in line for line in done.err.splitlines() if line.startswith("  hint:"))


@pytest.mark.slow
def test_a_file_of_hosts_that_is_not_there_is_bad_input(gpuwright: Callable[..., Any], inventory: Path) -> None:
    done = gpuwright("plan", "-i", str(inventory), "-l", "@/nowhere/hosts")
    assert done.code == 2, done
    assert "/nowhere/hosts" in done.err


@pytest.mark.slow
def test_a_limit_that_matches_nobody_is_bad_input(gpuwright: Callable[..., Any], inventory: Path) -> None:
    done = gpuwright("up", "--yes", "-i", str(inventory), "--limit", "nobody")
    assert done.code == 2, done
    assert "--limit nobody matches no host" in done.err
    assert "  hint: " in done.err
    assert "ansible-inventory" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [("", "has no hosts to work on"), ("all:\n  hosts: [\n", "cannot be read: YAML parsing failed")],
)
def test_an_inventory_without_hosts_is_bad_input(
    gpuwright: Callable[..., Any], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(content)
    done = gpuwright("up", "--yes", "-i", str(path), "--json")
    assert done.code == 2, done
    assert done.json.keys() == {"ok", "error", "suggestions"}
    assert str(path) in done.json["error"]
    assert message in done.json["error"]


def fleet(folder: Path) -> Path:
    """Two hosts that nobody may ask, with a mistake for each place in which a variable can stand."""
    (folder / "group_vars").mkdir()
    (folder / "host_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text("gpuwright_serial: abc\n")
    (folder / "host_vars" / "node2.yml").write_text("cuda_version: ['12.8']\nreboot_timeout: '{{ nope }}'\n")
    hosts = {"node1": {"gpuwright_gpus_expected": "two"}, "node2": {}}
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"hosts": hosts, "vars": {"ansible_host": "192.0.2.1"}}}))
    return path


MISTAKES = (
    "gpuwright_serial has to be a number of hosts, a share such as \"25%\", or a list of these, found 'abc' (all 2 hosts)",
    "gpuwright_gpus_expected has to be a number of cards or their names, found 'two' (node1)",
    "cuda_version is no variable of gpuwright (node2)",
    "reboot_timeout cannot be rendered: 'nope' is undefined (node2)",
    "nvidia_driver_reboot has to be true or false, found 'maybe' (all 2 hosts)",
)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["up", "status"])
def test_a_variable_that_cannot_be_meant_is_refused_before_the_first_host(
    gpuwright: Callable[..., Any], tmp_path: Path, verb: str
) -> None:
    done = gpuwright(
        verb, *(["--yes"] if verb == "up" else []), "-i", str(fleet(tmp_path)), "-e", "nvidia_driver_reboot=maybe"
    )
    assert done.code == 2, done
    assert done.out == ""
    (error,) = [line for line in done.err.splitlines() if "error" in line]
    assert all(mistake in error for mistake in MISTAKES), error
    assert "  hint: did you mean cuda_versions?" in done.err.splitlines()
    assert "unreachable" not in done.err
    assert "failed" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["site", "validate", "remove"])
def test_plain_ansible_refuses_it_too(tmp_path: Path, playbook: str) -> None:
    words = [str(paths.programs() / "ansible-playbook"), str(paths.playbook(playbook)), "-i", str(fleet(tmp_path))]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(paths.collections_root())}
    done = subprocess.run(
        [*words, "-e", "nvidia_driver_reboot=maybe"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done
    said = " ".join(done.stdout.replace('\\"', '"').split())
    assert all(mistake in said for mistake in MISTAKES), done.stdout
    assert "did you mean cuda_versions?" in said
    assert re.findall(r"TASK \[(.*?)\]", done.stdout) == ["Open the run"]
    assert "UNREACHABLE" not in done.stdout
