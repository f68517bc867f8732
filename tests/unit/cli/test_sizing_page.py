"""The pages of `size` and `cost`: one file, nothing of which runs or is loaded, and which a browser lays out at any width."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.prove.test_report_in_a_browser import BROWSER, faults_of

SIZE = ("size", "13B", "--train", "--gpu", "h100", "--gpus", "8")
PAGES = (
    SIZE,
    ("size", "llama-3.1-70b"),
    ("size", "70B", "--train", "--gpu", "4090"),
    ("cost", "--gpu", "h100", "--gpus", "64"),
    ("cost", "--gpu", "4090"),
)


@pytest.fixture
def page(gpuwright: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    def make(*words: str) -> str:
        file = tmp_path / "page.html"
        done = gpuwright(*words, "--html", str(file))
        assert done.code in (0, 3)
        assert f"page: {file}" in done.err
        return file.read_text(encoding="utf-8")

    return make


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_nothing_on_a_page_runs_or_is_loaded(words: tuple[str, ...], page: Callable[..., str]) -> None:
    text = page(*words)
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<link|<img|\bsrc=|url\(|@import| on\w+=", text)


def test_it_shows_what_the_terminal_shows(page: Callable[..., str], gpuwright: Callable[..., Any]) -> None:
    text = page(*SIZE)
    answer = gpuwright(*SIZE, "--json").json
    assert "fits on 8 × H100 SXM5 80GB (ZeRO-2 over 8)" in text
    for row in [*answer["memory"], *answer["speed"], *answer["machine"]]:
        assert row["name"] in text
    assert text.count("<rect") == len(answer["memory"])


@pytest.mark.parametrize(
    ("words", "tone", "first", "cards"),
    [
        (("size", "llama-3.1-70b"), "yes", "yes: fits on H200 SXM: ", "H200 SXM"),
        (("size", "llama-3.1-70b", "--gpu", "4090"), "no", "no on one GeForce RTX 4090 (", "H200 SXM"),
        (("size", "llama-3.1-405b", "--gpu", "4090", "--gpus", "1"), "no", "no: does not fit on ", "4 × B300 SXM6"),
        (("size", "llama-3.1-8b", "--gpu", "4090"), "yes", "yes: fits on GeForce RTX 4090: ", None),
        (("cost", "llama-3.1-8b", "--gpu", "l4"), "yes", "yes: llama-3.1-8b fits on 1 × L4, ", None),
    ],
)
def test_a_page_begins_with_the_answer_and_the_cards_to_take(
    words: tuple[str, ...], tone: str, first: str, cards: str | None, page: Callable[..., str]
) -> None:
    text = page(*words)
    (heading,) = re.findall(r'<main>\s*<section>\s*<h1 class="(\w+)">([^<]+)</h1>', text)
    assert heading[0] == tone
    assert heading[1].startswith(first)
    assert "an hour" in heading[1]
    taken = re.findall(r"recommended</span> <b>([^<]+)</b> [^<]+ a card; [\d.]+ USD an hour, ", text)
    assert taken == ([cards] if cards else [])


def test_the_parts_of_the_bar_stand_beside_each_other_up_to_what_is_needed(
    page: Callable[..., str], gpuwright: Callable[..., Any]
) -> None:
    answer = gpuwright(*SIZE, "--json").json
    rects = [
        (float(x), float(width))
        for x, width in re.findall(r'<rect [^>]*x="([\d.]+)"[^>]*width="([\d.]+)"', page(*SIZE))
    ]
    for (left, width), (right, _width) in itertools.pairwise(rects):
        assert left + width == pytest.approx(right, abs=0.11)
    assert sum(rects[-1]) / 1000 == pytest.approx(answer["needed"]["value"] / answer["room"], abs=0.01)


def shown(answer: dict[str, Any]) -> list[Any]:
    """The lines of the ways to rent and of the cheapest to own."""
    return list(answer["plot"][: len(answer["plot"]) - len(answer["own"]) + 1])


def test_the_plot_has_a_line_for_each_way_and_stays_in_its_frame(
    page: Callable[..., str], gpuwright: Callable[..., Any]
) -> None:
    words = ("cost", "--gpu", "h100", "--gpus", "64")
    lines = re.findall(r'<polyline [^>]*points="([^"]+)"', page(*words))
    assert len(lines) == len(shown(gpuwright(*words, "--json").json)) >= 3
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.split()]
    assert all(0 <= x <= 1000 and 0 <= y <= 400 for x, y in points)


def test_a_name_with_markup_is_text(page: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)<"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}'
    )
    text = page("size", str(folder))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_page_that_cannot_be_written_is_bad_input(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright(*SIZE, "--html", "/nowhere/page.html")
    assert done.code == 2
    assert "the page /nowhere/page.html cannot be written" in done.err


needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no browser is installed (apt-get install chromium-headless-shell)"
)


def test_a_narrow_page_has_the_unit_of_each_number_beside_it(page: Callable[..., str]) -> None:
    text = page(*PAGES[3])
    assert re.search(r'<td class="number beside" data-head="USD/h">[\d.]+</td>', text)
    assert re.search(r'<td class="number also" data-head="3 years">', text)


@needs_browser
def test_no_word_breaks_inside_and_nothing_scrolls_sideways_at_any_width(
    page: Callable[..., str], tmp_path: Path
) -> None:
    assert [faults_of(page(*words), tmp_path) for words in (SIZE, PAGES[3])] == [[], []]


@needs_browser
@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_it_prints_on_two_pages(words: tuple[str, ...], page: Callable[..., str], tmp_path: Path) -> None:
    page(*words)
    printed = tmp_path / "page.pdf"
    to_pdf = ["--no-pdf-header-footer", f"--print-to-pdf={printed}", (tmp_path / "page.html").as_uri()]
    subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *to_pdf], check=True, capture_output=True
    )
    assert len(re.findall(rb"/Type */Page\b", printed.read_bytes())) in (1, 2)
