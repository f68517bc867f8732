"""Which processes make a card busy, as the role preflight reads nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLES = Path(__file__).resolve().parents[3] / "roles"


def value(role: str, name: str, **variables: Any) -> Any:
    """A variable of a role's vars/main.yml, templated as a play would."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROLES / role / "vars/main.yml"), trusted_as_template=True)
    return Templar(loader=loader, variables={**own, **variables}).template(own[name])


def seen(*kinds: str) -> dict[str, Any]:
    processes = [{"pid": number, "name": f"process-{kind}", "type": kind} for number, kind in enumerate(kinds)]
    return {"facts": {"smi": {"data": {"gpus": [{"processes": processes}, {"processes": []}, {}]}}}}


@pytest.mark.parametrize(
    ("kinds", "busy"),
    [
        (("G",), []),
        (("C+G",), []),
        (("G", "C+G"), []),
        (("C",), ["process-C"]),
        (("M+C",), ["process-M+C"]),
        (("G", "C", "C+G"), ["process-C"]),
    ],
)
def test_the_desktops_own_processes_do_not_make_a_card_busy(kinds: tuple[str, ...], busy: list[str]) -> None:
    found = value("preflight", "__preflight_compute_processes", __preflight_seen=seen(*kinds))
    assert [process["name"] for process in found] == busy


@pytest.mark.parametrize(("kind", "busy"), [("G", 0), ("C", 1), ("M+C", 1), ("C+G", 1)])
def test_a_card_is_parted_anew_only_where_nothing_computes_beside_drawing_either(kind: str, busy: int) -> None:
    assert len(value("preflight", "__preflight_mig_processes", __preflight_seen=seen(kind))) == busy


def test_a_card_that_nobody_asked_is_not_busy() -> None:
    assert value("preflight", "__preflight_compute_processes", __preflight_seen={"facts": {"smi": None}}) == []
