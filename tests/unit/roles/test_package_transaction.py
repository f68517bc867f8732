"""One command of apt or dnf that a task writes out: it is run with its mark, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.modules import package_transaction
from tests.unit.modules import run_module


@pytest.fixture(autouse=True)
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text(
        '#!/bin/sh\necho "$*"\ncase "$*" in *broken) echo no such package >&2; exit 100;; esac\n'
    )
    (tmp_path / "apt-get").chmod(0o755)
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(package_transaction, "Host", lambda: Host(root=str(tmp_path)))


def test_the_command_is_run_with_its_mark_and_its_status_is_told(tmp_path: Path) -> None:
    done = run_module(package_transaction, argv=["apt-get", "--yes", "install", "x"])
    assert done["changed"]
    assert done["rc"] == 0
    assert done["stdout"].startswith("-o gpuwright::Call=")
    assert done["stdout"].endswith(" --yes install x\n")
    assert (tmp_path / "var/lib/gpuwright/history.json").exists()
    failed = run_module(package_transaction, argv=["apt-get", "install", "broken"])
    assert (failed["failed"], failed["rc"], failed["cmd"]) == (True, 100, ["apt-get", "install", "broken"])
    assert failed["msg"] == "no such package ('apt-get install broken' failed)"


def test_nothing_is_run_in_check_mode_and_no_other_program_at_all(tmp_path: Path) -> None:
    looked = run_module(package_transaction, True, argv=["apt-get", "install", "x"])
    assert (looked["changed"], looked["rc"], looked["stdout"]) == (True, 0, "")
    other = run_module(package_transaction, argv=["sh", "-c", "exit 0"])
    assert "Expected a command of apt-get or dnf. Found:" in other["msg"]
    assert not (tmp_path / "var/lib/gpuwright").exists()


def test_where_the_record_cannot_be_read_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "var/lib/gpuwright").mkdir(parents=True)
    (tmp_path / "var/lib/gpuwright/history.json").write_text("[]")
    refused = run_module(package_transaction, argv=["apt-get", "install", "x"])
    assert "holds no object" in refused["msg"]
    assert "rc" not in refused
