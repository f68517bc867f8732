"""What is read before a workstation boots, and what a run that may not boot leaves."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import rescue
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import resume

from .nodes import bare

SCREEN = {"display": {"nvidia_screens": ["00000000:01:00.0"]}}


def test_a_server_gets_no_lines_for_a_black_screen() -> None:
    assert rescue.lines(bare(), local=False) == rescue.lines(bare(), local=True) == []


def test_a_desktop_gets_them_where_an_nvidia_card_drives_the_screen_or_one_sits_at_it() -> None:
    assert rescue.lines(bare(**SCREEN), local=False)
    desktop = bare(display={"desktop": True})
    assert rescue.lines(desktop, local=True)
    assert rescue.lines(desktop, local=False) == []


def test_the_lines_name_ssh_a_console_the_rollback_and_the_kernels_words() -> None:
    said = " ".join(rescue.lines(bare(**SCREEN, hostname="desk"), local=True))
    for word in (
        "ssh to desk",
        "Ctrl-Alt-F3",
        "gpuwright rollback",
        "nomodeset",
        "systemd.unit=multi-user.target",
        "Ctrl-X",
    ):
        assert word in said


@pytest.mark.parametrize(
    ("system", "source", "words"),
    [
        ({"id": "debian", "family": "debian"}, "GRUB default entry '0'", "shows itself"),
        ({"id": "ubuntu", "family": "debian"}, "GRUB default entry '0'", "hold Shift (BIOS) or press Esc once (UEFI)"),
        ({"id": "rocky", "family": "redhat"}, "boot loader entry x of /boot/loader/entries", "press Esc right after"),
        ({"id": "pop", "family": "debian"}, "boot loader entry x of /boot/efi/loader/entries", "space bar"),
        ({"id": "debian", "family": "debian"}, None, "Ctrl-X"),
    ],
)
def test_the_way_to_the_menu_is_the_distributions(system: dict[str, Any], source: str | None, words: str) -> None:
    facts = bare(**SCREEN, os=system, kernel={"next_source": source})
    assert words in rescue.lines(facts, local=True)[-1]


def test_what_is_left_is_the_boot_and_the_proof() -> None:
    made: Any = {"reboot_reason": "nouveau holds the card"}
    left = resume.left(made)
    assert [row["component"] for row in left] == ["reboot", "validate"]
    assert left[0]["reason"] == "nouveau holds the card"


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, "the machine one sits at"),
        ({"gpuwright_local": True, "gpuwright_no_reboot": True, "gpuwright_resume": {"command": []}}, "--no-reboot"),
        ({"gpuwright_local": True, "gpuwright_resume": {"refused": "the variable x may hold a secret"}}, "variable x"),
        ({"gpuwright_local": True}, "command line"),
    ],
)
def test_who_does_not_go_on_by_itself_is_told_why(variables: dict[str, Any], why: str) -> None:
    told = resume.resume(variables)
    assert told["prepared"] is False
    assert why in str(told["why_not"])


def test_who_goes_on_by_itself_is_told_by_what_and_where_its_report_is() -> None:
    told = resume.resume({"gpuwright_local": True, "gpuwright_resume": {"command": ["x"]}})
    assert (told["prepared"], told["unit"]) == (True, "gpuwright-resume.service")
    assert told["report"] == "/var/lib/gpuwright/resume/report"
