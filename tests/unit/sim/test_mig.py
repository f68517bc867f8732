"""The program that parts cards (mig_layout), against the stand-in nvidia-smi; and that one against what NVIDIA's guide shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.programs import mig_layout
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from tests.sim import scenario
from tests.sim.onnode.gpuwright_sim import mig, smi

Smi = Callable[[Sequence[str]], tuple[int, str]]


class Cards:
    """Simulated cards, and nvidia-smi over them; `calls` are the commands that changed something."""

    def __init__(self, *names: str) -> None:
        self.gpus = scenario.expand({"gpus": [{"card": name} for name in names]}, "x")["gpus"]
        self.calls: list[str] = []
        self.busy = ""
        self.pending = False
        self.resets = True

    @property
    def places(self) -> list[str]:
        return ["0000" + gpu["bus_id"].upper() for gpu in self.gpus]

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv == ["-L"]:
            return 0, "".join(
                f"GPU {i}: {gpu['name']} (UUID: {gpu['uuid']})\n{mig.listed(gpu)}" for i, gpu in enumerate(self.gpus)
            )
        if argv == ["-q", "-x"]:
            text = smi.xml(self.gpus, "580.178.04", {}, "now")
            if self.busy:
                process = f"<process_info><type>{self.busy}</type><process_name>train</process_name></process_info>"
                text = text.replace("<processes>\n\t\t</processes>", f"<processes>{process}</processes>", 1)
            return 0, text
        self.calls.append(" ".join(argv))
        if "--gpu-reset" in argv:
            self.pending = not self.resets
            return 0, ""
        if "-mig" in argv and self.pending:
            return (
                0,
                "Warning: MIG mode is in pending enable state for GPU 00000000:18:00.0:In use by another client\nAll done.\n",
            )
        try:
            return 0, mig.command(self.gpus, list(argv)) if argv[0] == "mig" else mig.switch(self.gpus, list(argv))
        except mig.MigError as error:
            return error.status, str(error)

    def wish(self, *profiles: str, card: int = 0) -> list[Any]:
        return [{"bus_id": self.places[card], "profiles": list(profiles)}]

    def there(self, card: int = 0) -> list[str]:
        return sorted(each["profile"] for each in mig.devices(self.gpus[card]))

    def reboot(self) -> None:
        mig._LOST.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's state in a directory of the test's own; nothing of a node is asked."""
    monkeypatch.setattr(mig, "_KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(mig, "_LOST", tmp_path / "lost.json")
    monkeypatch.setattr(smi, "_persistence", lambda _gpu: "Enabled")


@pytest.fixture(autouse=True)
def nobody_holds_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the machine that tests run on are nobody's business here."""
    monkeypatch.setattr(processes, "holders", lambda: ([], None))


def test_a_bare_card_is_parted_and_the_second_time_nothing_is_done() -> None:
    cards = Cards("h100")
    assert mig_layout.apply(cards.wish("3g.40gb", "2g.20gb", "1g.10gb"), cards) == [
        f"{cards.places[0]}: 3g.40gb, 2g.20gb, 1g.10gb"
    ]
    assert cards.there() == ["1g.10gb", "2g.20gb", "3g.40gb"]
    cards.calls.clear()
    assert mig_layout.apply(cards.wish("1g.10gb", "2g.20gb", "3g.40gb"), cards) == []
    assert cards.calls == []


def test_another_layout_takes_the_old_instances_away_first() -> None:
    cards = Cards("h100")
    mig_layout.apply(cards.wish(*["1g.10gb"] * 7), cards)
    cards.calls.clear()
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert cards.there() == ["7g.80gb"]
    assert [call.split()[1] for call in cards.calls] == ["-dci", "-dgi", "-cgi"]


@pytest.mark.parametrize(
    ("device", "held"),
    [("nvidia0", True), ("nvidia1", False)],
)
def test_a_card_that_somebody_holds_is_not_parted_anew_though_nvidia_smi_names_nobody(
    monkeypatch: pytest.MonkeyPatch, device: str, *, held: bool
) -> None:
    found = [{"pid": 7, "name": "python3", "devices": [device, "nvidia-uvm"]}]
    monkeypatch.setattr(processes, "holders", lambda: (found, None))
    cards = Cards("h100", "h100")
    if held:
        with pytest.raises(mig_layout.LayoutError, match=r"computes \(python3 \(pid 7\)\)") as refused:
            mig_layout.apply(cards.wish("7g.80gb"), cards)
        assert (refused.value.status, cards.calls) == (mig_layout.BUSY, [])
    else:
        mig_layout.apply(cards.wish("7g.80gb"), cards)
        assert cards.there() == ["7g.80gb"]


def test_a_card_is_not_parted_where_nobody_can_tell_who_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "holders", lambda: ([], "the open files of 2 processes could not be read"))
    cards = Cards("h100")
    with pytest.raises(mig_layout.LayoutError, match="the open files of 2 processes"):
        mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert cards.calls == []


def test_only_the_named_card_is_changed() -> None:
    cards = Cards("h100", "h100")
    mig_layout.apply(cards.wish("7g.80gb", card=1), cards)
    assert (cards.there(0), cards.there(1)) == ([], ["7g.80gb"])
    assert not mig.state(cards.gpus[0])["mode"]


def test_off_destroys_and_switches_off() -> None:
    cards = Cards("h100")
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert mig_layout.apply(cards.wish(), cards) == [f"{cards.places[0]}: MIG is off"]
    assert not mig.state(cards.gpus[0])["mode"]
    assert mig_layout.apply(cards.wish(), cards) == []


@pytest.mark.parametrize(("card", "stays"), [("h100", False), ("a100", True)])
def test_after_a_boot_the_layout_is_made_again_and_the_mode_where_it_is_gone(card: str, stays: bool) -> None:
    cards = Cards(card)
    mig_layout.apply(cards.wish("3g.40gb", "3g.40gb"), cards)
    cards.reboot()
    assert mig.state(cards.gpus[0])["mode"] is stays
    assert cards.there() == []
    cards.calls.clear()
    mig_layout.apply(cards.wish("3g.40gb", "3g.40gb"), cards)
    assert cards.there() == ["3g.40gb", "3g.40gb"]
    assert any("-mig 1" in call for call in cards.calls) is not stays


def test_instances_without_compute_instances_are_made_anew() -> None:
    cards = Cards("h100")
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    cards(["mig", "-dci"])
    assert cards.there() == []
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert cards.there() == ["7g.80gb"]


@pytest.mark.parametrize("kind", ["C", "M+C", "C+G"])
def test_a_card_that_computes_is_not_touched_and_neither_are_the_others(kind: str) -> None:
    cards = Cards("h100", "h100")
    cards.busy = kind
    with pytest.raises(mig_layout.LayoutError, match="train") as refused:
        mig_layout.apply([*cards.wish("7g.80gb"), *cards.wish("7g.80gb", card=1)], cards)
    assert refused.value.status == mig_layout.BUSY
    assert cards.calls == []


def test_the_desktops_processes_do_not_make_a_card_busy() -> None:
    cards = Cards("h100")
    cards.busy = "G"
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert cards.there() == ["7g.80gb"]


def test_warnings_around_the_document_do_not_hide_the_cards() -> None:
    cards = Cards("h100")

    def warned(argv: Sequence[str]) -> tuple[int, str]:
        status, text = cards(argv)
        warning = "WARNING: infoROM is corrupted at gpu 0000:18:00.0\n"
        return status, "\ufeff" + warning + text + warning

    mig_layout.apply(cards.wish("7g.80gb"), warned)
    assert cards.there() == ["7g.80gb"]


def test_the_name_of_a_process_does_not_hide_the_cards() -> None:
    cards = Cards("h100")
    cards.busy = "G"

    def named(argv: Sequence[str]) -> tuple[int, str]:
        status, text = cards(argv)
        return status, text.replace("train", "run a && b \x01 &amp; c")

    mig_layout.apply(cards.wish("7g.80gb"), named)
    assert cards.there() == ["7g.80gb"]


def test_what_is_no_document_is_told() -> None:
    with pytest.raises(run.SmiError, match="expected the XML of nvidia-smi and found 'nothing'"):
        mig_layout.observe(lambda argv: (0, "nothing"))
    with pytest.raises(run.SmiError, match="cannot be read: mismatched tag"):
        mig_layout.observe(lambda argv: (0, "<nvidia_smi_log><gpu></nvidia_smi_log>"))


def test_a_warning_is_never_in_the_midst_of_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"#!/bin/sh\nprintf '<nvidia'\necho W\xff >&2\nprintf '_smi_log/>\\n'\n")
    program.chmod(0o755)
    monkeypatch.setattr(run, "_PATH", f"{tmp_path}:/usr/bin:/bin")
    assert run.change(["-q", "-x"]) == (0, "<nvidia_smi_log/>\nW\ufffd\n")


def test_a_mode_that_waits_is_reset_and_else_named() -> None:
    cards = Cards("h100")
    cards.pending, cards.resets = True, False
    with pytest.raises(
        mig_layout.LayoutError, match=r"reset of the card or a boot.*In use by another client"
    ) as refused:
        mig_layout.apply(cards.wish("7g.80gb"), cards)
    assert refused.value.status == mig_layout.PENDING
    assert f"--gpu-reset -i {cards.places[0]}" in cards.calls


def test_what_nvidia_smi_refuses_is_told_in_its_words() -> None:
    cards = Cards("h100")
    with pytest.raises(mig_layout.LayoutError, match="Insufficient Resources"):
        mig_layout.apply(cards.wish("4g.40gb", "4g.40gb"), cards)
    with pytest.raises(mig_layout.LayoutError, match="cannot be parted"):
        mig_layout.apply(Cards("l40s").wish("7g.80gb"), Cards("l40s"))
    with pytest.raises(mig_layout.LayoutError, match="expected the card"):
        mig_layout.apply([{"bus_id": "00000000:FF:00.0", "profiles": []}], cards)


def test_the_program_says_what_it_changed_and_ends_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = Cards("h100")
    monkeypatch.setattr(mig_layout.apply, "__defaults__", (cards,))
    layout = tmp_path / "mig.json"
    layout.write_text(json.dumps({"cards": cards.wish("7g.80gb")}))
    assert mig_layout.main([str(layout)]) == 0
    assert capsys.readouterr().out == f"changed {cards.places[0]}: 7g.80gb\n"
    assert mig_layout.main([str(layout)]) == 0
    assert capsys.readouterr().out == ""
    cards.busy = "C"
    layout.write_text(json.dumps({"cards": cards.wish()}))
    assert mig_layout.main([str(layout)]) == mig_layout.BUSY
    layout.write_text("{")
    assert mig_layout.main([str(layout)]) == mig_layout.FAILED
    assert "could not be read" in capsys.readouterr().err


def test_a_part_of_an_instance_is_no_whole_one() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)\n"
        "  MIG 1c.3g.20gb  Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)\n"
        "  MIG 3g.20gb     Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-00000000-6756-fd30-cd4a-1e6da3caf9b0)\n"
    )
    assert mig_layout.parse_list(text) == {
        "GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0": ["1c.3g.20gb", "3g.20gb"],
        "GPU-00000000-6756-fd30-cd4a-1e6da3caf9b0": [],
    }


# --- the stand-in against NVIDIA's guide ------------------------------------------------------------------------------


def test_the_stand_in_places_instances_as_the_guide_shows() -> None:
    """Examples 1 and 2 of "Instance Geometry" in the MIG user guide, with the names of a card of 80 GB."""
    cards = Cards("a100")
    cards(["-mig", "1"])
    _, said = cards(["mig", "-cgi", "19,14,5"])
    assert said.splitlines() == [
        "Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.10gb (ID 19)",
        "Successfully created GPU instance ID  5 on GPU  0 using profile MIG 2g.20gb (ID 14)",
        "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 4g.40gb (ID  5)",
    ]
    cards(["mig", "-dgi"])
    status, said = cards(["mig", "-cgi", "19,19,14,9"])
    assert status != 0
    assert said.endswith("Failed to create GPU instances: Insufficient Resources\n")


def test_the_stand_in_says_not_found_where_there_is_nothing() -> None:
    cards = Cards("h100")
    assert cards(["mig", "-lgi"]) == (6, "No MIG-enabled devices found.\n")
    cards(["-mig", "1"])
    assert cards(["mig", "-lgi"]) == (6, "No GPU instances found: Not Found\n")
    assert cards(["mig", "-dgi"])[1] == "No GPU instances found: Not Found\n"
    _, table = cards(["mig", "-lgip"])
    assert "MIG 1g.10gb+me" in table
    assert "7/7" in table


def test_the_stand_in_lists_the_profiles_where_the_mode_is_off_too() -> None:
    cards = Cards("h200")
    status, table = cards(["mig", "-lgip"])
    assert status == 0
    assert "MIG 7g.141gb" in table


def test_the_project_reads_the_instances_that_the_stand_in_shows() -> None:
    from ansible_collections.gpuwright.node.plugins.module_utils.smi import document as reader

    cards = Cards("h100")
    mig_layout.apply(cards.wish("3g.40gb", "3g.40gb"), cards)
    (gpu,) = reader.parse_xml(cards(["-q", "-x"])[1])["gpus"]
    assert gpu["mig"]["current"] is True
    assert [device["memory_total_mib"] for device in gpu["mig"]["devices"]] == [40779, 40779]


def test_a_dead_card_keeps_no_other_from_its_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cards = Cards("h100", "h100")
    gone: Any = {"bus_id": "00000000:FF:00.0", "profiles": ["7g.80gb"]}

    def lost(argv: Sequence[str]) -> tuple[int, str]:
        """nvidia-smi as it ends where a card is lost: with an error, and a description of the others."""
        status, text = cards(argv)
        return (
            (15, f"Unable to determine the device handle for GPU0000:FF:00.0: GPU is lost\n{text}")
            if argv[0] in ("-L", "-q")
            else (status, text)
        )

    with pytest.raises(mig_layout.LayoutError, match="expected the card 00000000:FF") as told:
        mig_layout.apply([gone, *cards.wish("7g.80gb", card=1)], lost)
    assert (told.value.status, told.value.changed) == (mig_layout.FAILED, [f"{cards.places[1]}: 7g.80gb"])
    assert cards.there(1) == ["7g.80gb"]


def test_a_card_that_refuses_keeps_no_other_from_its_layout() -> None:
    cards = Cards("h100", "h100")
    with pytest.raises(mig_layout.LayoutError, match="Insufficient Resources"):
        mig_layout.apply([*cards.wish("4g.40gb", "4g.40gb"), *cards.wish("7g.80gb", card=1)], cards)
    assert cards.there(1) == ["7g.80gb"]


def test_a_card_that_the_list_leaves_out_is_not_known_and_not_changed() -> None:
    cards = Cards("h100")
    mig_layout.apply(cards.wish("7g.80gb"), cards)
    cards.calls.clear()

    def unlisted(argv: Sequence[str]) -> tuple[int, str]:
        return (0, "") if argv == ["-L"] else cards(argv)

    with pytest.raises(mig_layout.LayoutError, match="does not list it"):
        mig_layout.apply(cards.wish("3g.40gb"), unlisted)
    assert cards.calls == []
    state: Any = {"current": True, "pending": True, "profiles": None, "busy": []}
    assert not mig_layout.is_right(state, ["7g.80gb"])
