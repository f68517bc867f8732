"""The pictures of the documentation show what the command line draws today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import build_pictures


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the pictures of today."""
    monkeypatch.setattr(build_pictures, "PICTURES", tmp_path)
    assert build_pictures.main([]) == 0
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_the_pictures_are_those_of_today() -> None:
    assert build_pictures.main(["--check"]) == 0


@pytest.mark.parametrize(("name", "word"), [("top", "throttle"), ("day", "utilization"), ("size", "activations")])
def test_a_picture_that_says_something_else_is_told(
    drawn: Path, name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(drawn / f"{name}.svg", word, "other")
    assert build_pictures.main(["--check"]) == 1
    assert f"{name}.svg is out of date: run `make rules`" in capsys.readouterr().err


def test_another_taste_of_rich_makes_no_picture_out_of_date(drawn: Path) -> None:
    for path in drawn.glob("*.svg"):
        change(path, "font-size: 20px", "font-size: 21px")
    assert build_pictures.main(["--check"]) == 0
