"""What `resolve` and `gpus` show to people: a page that can be pasted into a ticket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import console, show

if TYPE_CHECKING:
    from collections.abc import Callable

WANTS = ("cuda", "cudnn", "container-toolkit", "pytorch", "tensorflow", "jax")
ASKED = (
    *("--gpu", "RTX 4090", "--os", "ubuntu-24.04", "--arch", "x86_64", "--assume", "secure_boot=true"),
    *(word for want in WANTS for word in ("--want", want)),
)
REFUSED = ("--gpu", "GT 1030", "--gpu", "RTX 5090", "--os", "debian-13", "--arch", "x86_64")


def sources_of(page: str) -> dict[str, str]:
    # A long one goes on in the next line.
    listed = re.sub(r"\n {6,}", " ", page.split("\nsources\n", 1)[1])
    return dict(re.findall(r"^  \[(\d+)\] (.+)$", listed, re.MULTILINE))


@pytest.mark.parametrize(
    "words", [("resolve", *ASKED), ("resolve", *REFUSED), ("gpus", "4090"), ("gpus", "K80"), ("gpus", "NVS 315")]
)
def test_a_page_is_at_most_100_columns_without_colours(gpuwright: Callable[..., Any], words: tuple[str, ...]) -> None:
    page = gpuwright(*words).out
    assert max(len(line) for line in page.splitlines()) <= 100
    assert "\x1b" not in page


@pytest.mark.parametrize("words", [ASKED, REFUSED])
def test_every_reason_points_at_a_source_that_is_listed_once(
    gpuwright: Callable[..., Any], words: tuple[str, ...]
) -> None:
    page = gpuwright("resolve", *words).out
    listed = sources_of(page)
    pointed = set(re.findall(r"\[(\d+)\]", page.split("\nsources\n", 1)[0]))
    assert pointed == set(listed)
    assert len(set(listed.values())) == len(listed)
    assert list(listed) == [str(number) for number in range(1, len(listed) + 1)]


def test_all_of_the_stack_is_in_the_table_and_all_reasons_below(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("resolve", *ASKED, "--json").json
    page = " ".join(gpuwright("resolve", *ASKED).out.split())
    for entry in (*answer["why"], *answer["warnings"]):
        assert " ".join(entry["text"].split()) in page
    for framework in answer["stack"]["frameworks"]:
        for requirement in (*framework["requirements"], *framework["constraints"]):
            assert requirement in page
    for package in answer["stack"]["driver"]["packages"]:
        assert package in page


def test_a_refusal_names_every_reason_with_its_remedy(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("resolve", *REFUSED, "--json").json
    page = " ".join(gpuwright("resolve", *REFUSED).out.split())
    for entry in answer["conflicts"]:
        assert entry["text"] in page
        assert f"remedy: {entry['remedy']}" in page


def test_the_last_line_says_how_old_the_rules_are(gpuwright: Callable[..., Any]) -> None:
    for words in (("resolve", *ASKED), ("resolve", *REFUSED), ("gpus", "4090"), ("gpus", "ampere")):
        assert re.fullmatch(r"rules of \d{4}-\d\d-\d\d, \d+ days? old", gpuwright(*words).out.splitlines()[-1])
    assert {"generated", "age_days"} == set(gpuwright("resolve", *ASKED, "--json").json["rules"])
    assert {"generated", "age_days"} == set(gpuwright("gpus", "4090", "--json").json["rules"])


def test_a_source_is_shown_without_its_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    sources = show.Sources()
    row: Any = {"source": "compat/cuda.yaml: native drivers (https://x.example/a(b), 2026-08); two (book, 2025)"}
    nowhere: Any = {}
    assert (sources.mark(row), sources.mark(row), sources.mark(nowhere)) == (" [1]", " [1]", "")
    sources.show(100)
    assert capsys.readouterr().out == "sources\n  [1] compat/cuda.yaml: native drivers; two\n"


def test_a_few_cards_are_shown_with_what_fits_each(gpuwright: Callable[..., Any]) -> None:
    page = gpuwright("gpus", "4090").out
    assert [line for line in page.splitlines() if line.startswith("GeForce")] == [
        "GeForce RTX 4090",
        "GeForce RTX 4090 D",
        "GeForce RTX 4090 Laptop GPU",
    ]
    for word in (
        "580 preferred",
        "2028-08-04",
        "open or proprietary",
        "11.8 to",
        "cuDNN",
        "+cu130",
        "TensorFlow",
        "JAX",
    ):
        assert word in page
    assert page.count("long-term    2028-08-04") == 1  # what is the same for all of them is said once


def test_a_card_that_no_living_branch_drives_says_so(gpuwright: Callable[..., Any]) -> None:
    page = " ".join(gpuwright("gpus", "K80").out.split())
    assert "no branch that drives it gets security fixes any more" in page
    assert "none for ubuntu-24.04" in page
    assert "JetPack brings it" in gpuwright("gpus", "Orin Nano").out


def test_many_cards_are_a_table(gpuwright: Callable[..., Any]) -> None:
    lines = gpuwright("gpus", "hopper").out.splitlines()
    assert lines[0].split() == [
        "card",
        "architecture",
        "capability",
        "memory",
        "driver",
        "CUDA",
        "PyTorch",
        "PCI",
        "id",
    ]
    assert lines[-2].startswith(f"{len(lines) - 3} cards")


def test_gpus_json_keeps_its_keys(gpuwright: Callable[..., Any]) -> None:
    (card,) = gpuwright("gpus", "B200", "--json").json["gpus"]
    before = {"name", "class", "architecture", "compute_capability", "memory_gb", "nvlink_gbs", "pci", "tdp_w"}
    before |= {"bandwidth_gbs", "modules", "branches", "cuda", "pytorch", "confirmed"}
    assert before <= set(card)
    assert card["pytorch"] == "{version}+{variant}".format(**card["frameworks"]["pytorch"]["3.12"])


def test_a_width_wraps_without_a_terminal_and_never_inside_a_package_name() -> None:
    text = console.table([("driver", "linux-headers-generic " * 6)], ("component", "packages"), width=60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert text.count("linux-headers-generic") == 6
    assert console.paragraph("linux-headers-generic " * 6, width=60).count("linux-headers-generic") == 6


def test_what_is_taken_away_stands_before_the_one_question(capsys: pytest.CaptureFixture[str]) -> None:
    change = {
        "component": "cuda",
        "action": "install",
        "from": None,
        "to": "13.0",
        "reason": "it is wished",
        "leaves": ["old-set"],
    }
    rows = [("company-vpn", "remove", None, "allowed"), ("libfoo", "downgrade", "1.0", "ours"), ("old-set", "remove", None, "ours"),
            ("held", "change-held", "8", "ours")]  # fmt: skip
    takes = [
        {"name": name, "does": does, "from": "7.1", "to": to, "because": because} for name, does, to, because in rows
    ]
    found: Any = {"node": {"changes": [change], "takes": takes, "ok": True}}
    show.plans(found, {}, {})
    page = capsys.readouterr().out
    assert "removes: company-vpn 7.1 (allowed by name)" in page
    assert "downgrades: libfoo 7.1 -> 1.0" in page
    assert "changes though it is on hold: held 7.1 -> 8" in page
    assert page.count("old-set") == 1
