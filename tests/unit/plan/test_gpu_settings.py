"""The component gpu_settings: what is not as wished, what the role does, and what is taken back."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.gpu_settings import apply as gpu_settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.sim import scenario
from tests.sim.onnode.gpuwright_sim import smi as stand_in
from tests.unit.plan import nodes

#: A card as it was delivered.
ROW: Any = parse_xml(stand_in.xml(scenario.expand({"gpus": [{"card": "h100"}]}, "x")["gpus"], nodes.DRIVER, {}, "now"))[
    "gpus"
][0]
PLACE = "00000000:18:00.0"


def host(**changes: Any) -> Any:
    """A host with two cards as they were delivered, and the service enabled; ``changes`` of the first card."""
    facts = nodes.provisioned(services={gpu_settings.SERVICE: {"active": "active", "enabled": "enabled"}})
    rows = [
        {**nodes.merged(ROW, {}), "pci_bus_id": card["bus_id"], "persistence_mode": True}
        for card in facts["pci"]["gpus"]
    ]
    facts["smi"] = nodes.smi(nodes.merged(rows[0], changes), *rows[1:])
    return facts


def made(facts: Any, verb: str = "up", **settings: Any) -> Any:
    wish = Wish.from_variables({"gpuwright_want": ["driver=580"], "gpu_settings_cards": {"0": settings}})
    request = Request(
        host="node", today=date(2026, 11, 20), only=() if verb == "validate" else ("gpu_settings",), verb=verb
    )
    draft = make_draft(facts, wish, load_rules(), request)
    assert isinstance(draft, Draft), draft
    return finish(draft, None)


def reasons(facts: Any, **settings: Any) -> list[str]:
    return [change["reason"] for change in made(facts, **settings)["changes"] if change["component"] == "gpu_settings"]


@pytest.mark.parametrize(
    ("settings", "state", "words"),
    [
        ({"power_limit": 350}, {}, "the power limit of the card 00000000:18:00.0 is 700 W, wished is 350 W"),
        (
            {"power_limit": "default"},
            {"power_limit_w": 350.0},
            "the power limit of the card 00000000:18:00.0 is 350 W, wished is 700 W",
        ),
        (
            {"compute_mode": "prohibited"},
            {},
            "the compute mode of the card 00000000:18:00.0 is Default, wished is Prohibited",
        ),
        ({"compute_mode": "default"}, {"compute_mode": "Prohibited"}, "is Prohibited, wished is Default"),
        ({"application_clocks": "2619,1500"}, {}, "is 2619 and 1980 MHz, wished is 2619 and 1500 MHz"),
        ({"ecc": False}, {}, "the ECC of the card 00000000:18:00.0 is on, wished is off"),
        (
            {"persistence": True},
            {"persistence_mode": False},
            "the persistence mode of the card 00000000:18:00.0 is off, wished is on",
        ),
    ],
)
def test_what_is_not_as_wished_is_named_and_nothing_where_it_is(settings: Any, state: Any, words: str) -> None:
    (reason,) = reasons(host(**state), **settings)
    assert words in reason


@pytest.mark.parametrize(
    "settings",
    [
        {"power_limit": 700.3},
        {"power_limit": "default", "compute_mode": "default", "ecc": "default", "persistence": "default"},
        {"application_clocks": "2619,1980"},
        {"ecc": True, "persistence": True},
        # Which nvidia-smi does not show.
        {"clocks": "210,1410"},
    ],
)
def test_cards_that_are_as_wished_have_nothing_to_say(settings: Any) -> None:
    limits = {"power_max_limit_w": 701.0}
    assert reasons(host(**limits), **settings) == []


def test_ecc_that_waits_for_a_boot_is_no_change_to_make_and_is_told() -> None:
    facts = host(ecc={"mode": True, "pending": False})
    plan = made(facts, ecc=False)
    assert [row for row in plan["changes"] if row["component"] == "gpu_settings"] == []
    checks = {check["id"]: check for check in judge.judge(facts, plan["stack"])}
    assert (checks["gpu.settings"]["status"], checks["gpu.ecc_pending"]["status"]) == ("pass", "warn")


@pytest.mark.parametrize(
    ("settings", "state", "check"),
    [
        ({"compute_mode": "exclusive_process"}, {"compute_mode": "Exclusive_Process"}, "gpu.mode.compute"),
        ({"compute_mode": "prohibited"}, {"compute_mode": "Prohibited"}, "gpu.mode.compute"),
        ({"ecc": False}, {"ecc": {"mode": False, "pending": False}}, "ecc.mode"),
        ({"persistence": False}, {"persistence_mode": False}, "persistence"),
        ({"power_limit": 350}, {"power_limit_w": 350.0}, "gpu.power_limit"),
    ],
)
def test_the_proof_does_not_warn_of_what_is_wished_of_a_card(settings: Any, state: Any, check: str) -> None:
    facts = host(**state)
    planned = made(facts, verb="validate", **settings)
    expected = {"settings": planned["work"]["validate"]["smi"]["settings"]}

    def status(found: Any) -> str:
        return next(str(each["status"]) for each in found if each["id"] == check)

    assert status(smi_judge.judge(facts["smi"]["data"], cast("Any", expected))) in ("pass", "skip")
    assert status(judge.judge(facts, planned["stack"])) in ("pass", "skip")
    if check != "gpu.power_limit":  # which is told where nobody wished it, and no fault
        assert status(smi_judge.judge(facts["smi"]["data"], {})) in ("warn", "fail")


def test_the_proof_holds_a_card_to_what_is_wished_of_it() -> None:
    facts = host()
    expected = made(facts, verb="validate", power_limit=350, ecc=False)["work"]["validate"]["smi"]["settings"]
    wrong = {
        (each["id"], each["gpu"])
        for each in smi_judge.judge(facts["smi"]["data"], {"settings": expected})
        if each["status"] == "warn"
    }
    assert {name for name, gpu in wrong if gpu} >= {"gpu.power_limit", "ecc.mode"}
    assert len({gpu for name, gpu in wrong if name in ("gpu.power_limit", "ecc.mode")}) == 1


def test_without_the_service_the_settings_would_be_gone_after_a_boot() -> None:
    facts = host()
    facts["services"][gpu_settings.SERVICE] = {"active": "inactive", "enabled": "not-found"}
    assert reasons(facts, clocks="210,1410") == ["no service brings the settings of the cards back after a boot"]


def test_the_doctor_names_what_is_not_as_it_was_set() -> None:
    facts = host()
    checks = {check["id"]: check for check in judge.judge(facts, made(facts, power_limit=350)["stack"])}
    assert checks["gpu.settings"]["status"] == "fail"
    assert "is 700 W, wished is 350 W" in str(checks["gpu.settings"]["reason"])
    facts["smi"] = None
    unseen = {check["id"]: check for check in judge.judge(facts, made(host(), power_limit=350)["stack"])}
    assert unseen["gpu.settings"]["status"] == "incomplete"
    assert "gpu.settings" not in {check["id"] for check in judge.judge(host(), {})}


def test_the_settings_and_the_service_are_files_of_the_plan() -> None:
    settings, unit = made(host(), power_limit=350, clocks="default")["work"]["gpu_settings"]["files"]
    assert json.loads(settings["content"]) == {"cards": [{"bus_id": PLACE, "power_limit": 350.0, "clocks": None}]}
    assert (settings["path"], unit["path"]) == (gpu_settings.SETTINGS, gpu_settings.UNIT)
    assert f"ExecStart=/usr/bin/python3 {gpu_settings.PROGRAM} {gpu_settings.SETTINGS}\n" in unit["content"]
    assert "SuccessExitStatus=3\n" in unit["content"]
    assert "gpuwright-mig.service" in unit["content"]


def test_the_service_is_enabled_where_the_cards_are() -> None:
    plan = made(host(), power_limit=350)
    assert plan["work"]["gpu_settings"]["units"] == [{"name": gpu_settings.SERVICE, "enabled": True}]
    later = Context(facts=host(), stack=plan["stack"], provision_only=True)
    assert gpu_settings.begin(later, plan)["units"] == []


@pytest.mark.parametrize(
    ("state", "components", "persistence", "refused"),
    [
        ("active", ["gpu_settings"], True, True),
        ("active", ["gpu_settings"], False, True),
        ("inactive", ["gpu_settings"], True, False),
        # The driver's role switches it on before the cards are set.
        ("inactive", ["nvidia_driver", "gpu_settings"], True, True),
        ("inactive", ["nvidia_driver", "gpu_settings"], False, False),
    ],
)
def test_the_drivers_daemon_is_not_fought(state: str, components: Any, persistence: bool, refused: bool) -> None:
    facts = host()
    facts["services"]["nvidia-persistenced.service"] = {"active": state, "enabled": "enabled"}
    variables = {"nvidia_driver": {"nvidia_driver_persistence": persistence}}

    def begun(*, wished: bool) -> None:
        plan: Any = {**made(facts, persistence=wished), "components": components}
        gpu_settings.refuse(Context(facts=facts, stack=plan["stack"], variables=variables), plan)

    begun(wished=True)
    if refused:
        with pytest.raises(StepRefused, match=r"Expected nobody to hold.*What to do: set nvidia_driver_persistence"):
            begun(wished=False)
    else:
        begun(wished=False)


def test_remove_brings_back_the_defaults_of_what_was_set() -> None:
    facts = host()
    stack = made(facts, power_limit=350, ecc=False)["stack"]["gpu_settings"]
    facts["seals"] = {"gpu_settings": {"state": "good", "stack": stack}}
    assert removal.work(facts)["gpu_settings"] == [{"bus_id": PLACE, "power_limit": None, "ecc": None}]
    assert removal.findings(facts)["gpu_settings"][0].reason == f"settings of {PLACE}"
    facts["services"][gpu_settings.SERVICE] = {"active": "inactive", "enabled": "not-found"}
    assert "gpu_settings" not in removal.findings(facts), "the look after the removal"
    facts["seals"] = {}
    assert removal.work(facts)["gpu_settings"] == []
    assert "gpu_settings" not in removal.findings(facts)


def test_a_stack_and_its_seal_survive_json() -> None:
    stack = made(host(), power_limit=350, clocks="210,1410", ecc="default")["stack"]["gpu_settings"]
    assert json.loads(json.dumps(stack)) == stack
