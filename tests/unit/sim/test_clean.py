"""What `clean` leaves for the other clones of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import node, settings


@pytest.mark.parametrize("others", ["", "0a1b2c3d"])
def test_packages_that_another_clone_serves_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: str) -> None:
    def answer(*arguments: str) -> str:
        asked = arguments[-1]
        return others if asked == f"label={settings.LABEL}.instance" else ""

    monkeypatch.setattr(node, "docker_text", answer)
    monkeypatch.setattr(node, "docker", lambda *_arguments, **_options: None)
    shared = [tmp_path / name for name in ("repositories", "signing")]
    for name, folder in zip(("REPOSITORIES", "SIGNING"), shared, strict=True):
        folder.mkdir()
        monkeypatch.setattr(settings, name, folder)
    monkeypatch.setattr(settings, "STATE", tmp_path / "state")
    node.clean()
    assert [folder.exists() for folder in shared] == [bool(others)] * 2
