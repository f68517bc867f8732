"""The program that sets cards (gpu_settings), against the stand-in nvidia-smi."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_settings
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document as reader
from tests.sim import scenario
from tests.sim.onnode.gpuwright_sim import board, smi


class Cards:
    """Simulated cards, and nvidia-smi over them; `calls` are the commands that changed something."""

    def __init__(self, tmp_path: Path, *names: str) -> None:
        self.gpus = scenario.expand({"gpus": [{"card": name} for name in names]}, "x")["gpus"]
        self.calls: list[str] = []
        self.busy = False
        self.records = gpu_settings.Records(str(tmp_path / "run.json"), str(tmp_path / "lib" / "before.json"))

    @property
    def places(self) -> list[str]:
        return ["0000" + gpu["bus_id"].upper() for gpu in self.gpus]

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv == ["-q", "-x"]:
            text = smi.xml(self.gpus, "580.178.04", {}, "now")
            process = "<process_info><type>C</type><process_name>train</process_name></process_info>"
            return 0, text.replace(
                "<processes>\n\t\t</processes>", f"<processes>{process}</processes>"
            ) if self.busy else text
        self.calls.append(" ".join(argv[2:] if argv[0] == "-i" else argv[:1]))
        try:
            return 0, board.command(self.gpus, list(argv))
        except board.BoardError as error:
            return error.status, str(error)

    def apply(self, card: int = 0, **settings: Any) -> tuple[list[str], list[str]]:
        """What changed and what waits, and nothing else is to be done after it."""
        self.calls = []
        wish: Any = [{"bus_id": self.places[card], **settings}]
        found = gpu_settings.apply(wish, self, self.records)
        calls = [*self.calls]
        again = gpu_settings.apply(wish, self, self.records)
        assert again == ([], found[1])
        self.calls = calls
        return found

    def boot(self) -> None:
        """What /run loses."""
        board._LOST.unlink(missing_ok=True)
        Path(self.records.since_boot).unlink(missing_ok=True)


@pytest.fixture(name="make")
def _make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(board, "_LOST", tmp_path / "lost.json")
    monkeypatch.setattr(board, "_KEPT", tmp_path / "kept.json")
    return lambda *names: Cards(tmp_path, *(names or ("h100",)))


@pytest.fixture(autouse=True)
def nobody_holds_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the machine that tests run on are nobody's business here."""
    monkeypatch.setattr(processes, "holders", lambda: ([], None))


def test_each_setting_is_set_once_and_told(make: Any) -> None:
    cards = make("h100", "h100")
    place = cards.places[1]
    changed, waits = cards.apply(
        1,
        power_limit=350.0,
        clocks=[210, 1410],
        application_clocks=[2619, 1965],
        compute_mode="Exclusive_Process",
        persistence=True,
    )
    assert (changed, waits) == (
        [
            f"{place}: persistence mode is on",
            f"{place}: the power limit is 350 W",
            f"{place}: the clocks are locked to 210 to 1410 MHz",
            f"{place}: the application clocks are 2619 MHz (memory) and 1965 MHz",
            f"{place}: the compute mode is Exclusive_Process",
        ],
        [],
    )
    assert cards.calls == ["-pm 1", "-pl 350", "-lgc 210,1410", "-ac 2619,1965", "-c EXCLUSIVE_PROCESS"]
    assert board.state(cards.gpus[0]) == {
        **board.state(cards.gpus[0]),
        "power": 700.0,
        "clocks": None,
        "compute": "Default",
    }


def test_defaults_take_back_what_was_set(make: Any) -> None:
    cards = make()
    before = board.state(cards.gpus[0])
    cards.apply(power_limit=350.0, clocks=[210, 1410], application_clocks=[2619, 1965], compute_mode="Prohibited")
    names = ("power_limit", "clocks", "application_clocks", "compute_mode", "ecc", "persistence")
    changed, waits = cards.apply(**dict.fromkeys(names))
    assert (len(changed), waits) == (4, [])
    assert cards.calls == ["-pl 700", "-rgc", "-rac", "-c DEFAULT"]
    assert board.state(cards.gpus[0]) == before


def test_after_a_boot_all_is_set_again(make: Any) -> None:
    cards = make()
    wish: dict[str, Any] = {"power_limit": 350.0, "clocks": [210, 1410], "compute_mode": "Prohibited"}
    cards.apply(**wish)
    cards.boot()
    assert len(cards.apply(**wish)[0]) == 3


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("h100", {"power_limit": 900.0}, "its power limit has to be between 210 and 700 W, and not 900"),
        ("h100", {"power_limit": 100.0}, "between 210 and 700 W"),
        ("h100", {"clocks": [210, 2500]}, "its clocks end at 1980 MHz, 2500 is above"),
        ("h100", {"application_clocks": [2619, 1111]}, "none of its supported clocks"),
        ("h100", {"application_clocks": [999, 1965]}, "none of its supported clocks"),
        ("rtx4090", {"ecc": True}, "its memory has no ECC to switch"),
    ],
)
def test_what_a_card_does_not_offer_is_refused_before_the_first_change(
    make: Any, name: str, settings: Any, words: str
) -> None:
    cards = make("h100", name)
    wish: Any = [{"bus_id": cards.places[0], "power_limit": 350.0}, {"bus_id": cards.places[1], **settings}]
    with pytest.raises(gpu_settings.SettingsError, match=words):
        gpu_settings.apply(wish, cards, cards.records)
    assert cards.calls == []


def test_a_card_without_application_clocks_is_refused_with_the_way_out() -> None:
    state: Any = {"power": {}, "clocks_max": None, "application_clocks": None, "ecc": None}
    assert "clocks are locked instead" in str(gpu_settings.obstacle(state, {"application_clocks": [2619, 1965]}))


def test_a_card_that_is_not_there_is_named(make: Any) -> None:
    with pytest.raises(gpu_settings.SettingsError, match=r"expected the card 0000AAAA:00:00.0, nvidia-smi shows 0000"):
        gpu_settings.apply([{"bus_id": "0000AAAA:00:00.0"}], make(), gpu_settings.Records())


def test_ecc_of_an_idle_card_changes_with_a_reset_before_the_rest_is_set(make: Any) -> None:
    cards = make()
    changed, waits = cards.apply(ecc=False, power_limit=350.0)
    assert [text.partition(": ")[2] for text in changed] == ["ECC is off after a reset", "the power limit is 350 W"]
    assert waits == []
    assert cards.calls == ["-e 0", "--gpu-reset", "-pl 350"]
    assert (board.state(cards.gpus[0])["ecc"], board.state(cards.gpus[0])["power"]) == (False, 350.0)
    # And back to what was there.
    assert cards.apply(ecc=None)[0] == [f"{cards.places[0]}: ECC is on after a reset"]
    assert board.state(cards.gpus[0])["ecc"] is True


def test_a_card_that_somebody_holds_is_not_reset_though_nvidia_smi_names_nobody(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = make()
    found = [{"pid": 7, "name": "python3", "devices": ["nvidia0"]}]
    monkeypatch.setattr(processes, "holders", lambda: (found, None))
    waiting = cards.apply(ecc=False)[1]
    assert "changes only with a reset of the card or a boot" in waiting[0]
    assert "--gpu-reset" not in cards.calls


def test_a_card_that_somebody_uses_is_not_reset_and_its_ecc_waits_for_a_boot(make: Any) -> None:
    cards = make()
    cards.busy = True
    changed, waits = cards.apply(ecc=False, power_limit=350.0)
    assert len(changed) == 2
    assert waits == [
        f"{cards.places[0]}: ECC of the card is to be off, and changes only with a reset of the card or a boot"
    ]
    assert "--gpu-reset" not in cards.calls
    cards.boot()
    assert cards.apply(ecc=False, power_limit=350.0) == ([f"{cards.places[0]}: the power limit is 350 W"], [])


def test_the_program_ends_with_a_status_that_says_what_is_left(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = make()
    file = tmp_path / "settings.json"

    def run(**settings: Any) -> int:
        file.write_text(json.dumps({"cards": [{"bus_id": cards.places[0], **settings}]}))
        return gpu_settings.main([str(file)], cards, cards.records)

    assert run(power_limit=350) == 0
    assert capsys.readouterr().out == f"changed {cards.places[0]}: the power limit is 350 W\n"
    assert run(power_limit=900) == gpu_settings.FAILED
    assert "between 210 and 700 W" in capsys.readouterr().err
    cards.busy = True
    assert run(ecc=False) == gpu_settings.PENDING
    assert "a reset of the card or a boot" in capsys.readouterr().err
    assert gpu_settings.main([str(tmp_path / "none")], cards, cards.records) == gpu_settings.FAILED
    file.write_text("{}")
    assert gpu_settings.main([str(file)], cards, cards.records) == gpu_settings.FAILED


def test_a_record_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    records = gpu_settings.Records(str(path), str(path))
    for text in ("", "[1]", "{"):
        path.write_text(text)
        assert records.get(str(path), "x") is None
    records.put(str(path), "x", [1, 2])
    assert records.get(str(path), "x") == [1, 2]
    records.put(str(path), "x", None)
    assert path.read_text() == "{}"


def test_the_observation_reads_what_the_program_sets(make: Any) -> None:
    cards = make("h100", "rtx4090")
    cards.apply(power_limit=350.0, application_clocks=[2619, 1965], compute_mode="Prohibited")
    cards.busy = True
    cards.apply(ecc=False)
    cards.busy = False
    card, other = reader.parse_xml(smi.xml(cards.gpus, "580.178.04", {}, "now"))["gpus"]
    assert (card["power_limit_w"], card["power_min_limit_w"], card["power_max_limit_w"]) == (350.0, 210.0, 700.0)
    assert (card["clocks"]["application_memory_mhz"], card["clocks"]["application_sm_mhz"]) == (2619, 1965)
    assert (card["compute_mode"], card["ecc"]["mode"], card["ecc"]["pending"]) == ("Prohibited", True, False)
    assert (other["ecc"]["mode"], card["errors"], other["errors"]) == (None, {}, {})


def test_where_no_card_has_settings_nvidia_smi_is_not_asked() -> None:
    def smi(argv: Sequence[str]) -> tuple[int, str]:
        raise AssertionError(argv)

    assert gpu_settings.apply([], smi, gpu_settings.Records()) == ([], [])


def test_a_dead_card_keeps_no_other_from_its_settings(make: Any) -> None:
    cards = make("h100", "h100")
    wish: Any = [
        {"bus_id": "0000AAAA:00:00.0", "power_limit": 350.0},
        {"bus_id": cards.places[1], "power_limit": 350.0},
    ]
    with pytest.raises(gpu_settings.SettingsError, match="expected the card 0000AAAA") as told:
        gpu_settings.apply(wish, cards, cards.records)
    assert told.value.changed == [f"{cards.places[1]}: the power limit is 350 W"]
    assert board.state(cards.gpus[1])["power"] == 350.0


def test_a_card_without_any_value_is_dead_and_no_wrong_wish(make: Any) -> None:
    cards = make("h100", "h100")

    def silent(argv: Sequence[str]) -> tuple[int, str]:
        status, text = cards(argv)
        if argv != ["-q", "-x"]:
            return status, text
        before, first, rest = text.partition(f'<gpu id="{cards.places[0]}">')
        _lost, end, others = rest.partition("</gpu>")
        return 15, f"{before}{first}<uuid>GPU is lost</uuid>{end}{others}"

    wish: Any = [{"bus_id": place, "power_limit": 350.0} for place in cards.places]
    with pytest.raises(gpu_settings.SettingsError, match="expected the card") as told:
        gpu_settings.apply(wish, silent, cards.records)
    assert told.value.changed == [f"{cards.places[1]}: the power limit is 350 W"]


def test_clocks_are_locked_again_after_a_reset_that_nobody_told_of(make: Any) -> None:
    cards = make()
    cards.apply(clocks=[210, 1410])
    cards.calls.clear()
    assert gpu_settings.apply([{"bus_id": cards.places[0], "clocks": [210, 1410]}], cards, cards.records) == ([], [])
    assert cards.calls == ["-lgc 210,1410"]
