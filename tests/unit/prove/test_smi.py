from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.facts import SmiData
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_brake, smi_judge, smi_messages
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import normalise_bus_id, parse_xml
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError
from ansible_collections.gpuwright.node.plugins.modules import nvidia_smi

#: Any: these tests change what a card says, to what no type allows, too.
Parsed = Callable[[str], Any]
ById = Callable[[list[Check]], dict[str, Check]]


def test_a_data_centre_card_of_today_is_read_whole(parsed: Parsed) -> None:
    data = parsed("h100_580.xml")
    gpu = data["gpus"][1]
    assert (data["driver_version"], data["cuda_version"], data["attached_gpus"]) == ("580.95.05", "13.0", 2)
    assert (gpu["index"], gpu["pci_bus_id"], gpu["pci_id"]) == (1, "00000000:43:00.0", "10de:2330")
    assert (gpu["memory_total_mib"], gpu["temperature_c"], gpu["temperature_margin_c"]) == (81559, 33, 54)
    assert (gpu["power_draw_w"], gpu["power_limit_w"]) == (70.55, 700.0)
    assert gpu["pcie"] == {
        "gen": 5,
        "gen_max": 5,
        "gen_device_max": 5,
        "gen_host_max": 5,
        "width": 16,
        "width_max": 16,
        "replays": 0,
    }
    assert gpu["remapped_rows"]["uncorrectable"] == 2
    assert gpu["ecc"]["aggregate_sram_uncorrected"] == 1
    assert gpu["throttle"] == ["gpu_idle"]
    assert gpu["fabric"]["state"] == "Completed"
    assert gpu["errors"] == {}


def test_not_applicable_is_no_error_on_a_geforce(parsed: Parsed) -> None:
    gpu = parsed("geforce_595.xml")["gpus"][0]
    assert gpu["ecc"]["mode"] is None
    assert gpu["remapped_rows"] is None
    assert gpu["retired_pages"] is None
    assert gpu["errors"] == {}
    assert [process["type"] for process in gpu["processes"]] == ["G", "G"]


def test_tags_of_the_years_before_2020_are_found_under_their_old_names(parsed: Parsed) -> None:
    gpu = parsed("v100_418.xml")["gpus"][0]
    assert gpu["retired_pages"] == {"single_bit": 4, "double_bit": 57, "pending": True}
    assert (gpu["ecc"]["volatile_corrected"], gpu["ecc"]["volatile_uncorrected"]) == (7, 0)
    assert (gpu["power_draw_w"], gpu["power_limit_w"]) == (43.1, 300.0)
    assert gpu["throttle"] == ["gpu_idle"]
    assert gpu["pcie"]["replays"] is None, "65535 means that nothing is counted"


def test_a_process_name_that_is_not_escaped_does_not_lose_the_document(parsed: Parsed) -> None:
    assert parsed("v100_418.xml")["gpus"][0]["processes"][0]["name"] == "python train.py --lr 1e-3 && echo <done>"


def test_the_oldest_shape_counts_memory_in_mb_and_has_short_bus_ids(parsed: Parsed) -> None:
    gpu = parsed("m2090_285.xml")["gpus"][0]
    assert (gpu["memory_total_mib"], gpu["pci_bus_id"]) == (5375, "00000000:02:00.0")


def test_mig_devices_are_listed(parsed: Parsed) -> None:
    mig = parsed("mig_580.xml")["gpus"][0]["mig"]
    assert (mig["current"], len(mig["devices"]), mig["devices"][0]["memory_total_mib"]) == (True, 7, 9984)


def test_an_error_in_place_of_a_value_is_kept_apart_from_not_applicable(parsed: Parsed) -> None:
    gpu = parsed("lost_580.xml")["gpus"][1]
    assert (gpu["name"], gpu["memory_total_mib"]) == (None, None)
    assert gpu["errors"]["product_name"] == "GPU is lost"
    assert gpu["errors"]["fb_memory_usage/total"] == "GPU is lost"


def test_recovery_action_none_is_an_answer_and_not_an_absence(parsed: Parsed) -> None:
    assert parsed("h100_580.xml")["gpus"][0]["recovery_action"] == "None"
    assert parsed("v100_418.xml")["gpus"][0]["recovery_action"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "printed nothing"),
        ("No devices were found", "No devices were found"),
        (b"\x7fELF\x02\x01\xff\xfe", "expected the XML"),
        ("<html><body>proxy</body></html>", "expected the XML"),
        ('<?xml version="1.0" ?><nvidia_smi_log><gpu id="x">', "cut off"),
        ("<nvidia_smi_log><gpu></nvidia_smi_log>", "cannot be read"),
        (
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;</nvidia_smi_log>',
            "cannot be read|entities",
        ),
    ],
)
def test_what_is_no_answer_is_told_in_a_sentence(text: str | bytes, told: str) -> None:
    with pytest.raises(SmiError, match=told):
        parse_xml(text)


def test_an_entity_is_never_expanded_nor_a_file_read() -> None:
    document = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY f SYSTEM "file:///etc/passwd">]><nvidia_smi_log><driver_version>&f;</driver_version></nvidia_smi_log>'
    try:
        version = parse_xml(document)["driver_version"]
    except SmiError:
        return
    assert version is None


def test_control_characters_in_names_do_not_lose_the_document(document: Callable[[str], str]) -> None:
    spoiled = document("geforce_595.xml").replace("gnome-shell", "gnome\x01\x1b-shell").replace("Xorg<", "X&#x1;org<")
    assert len(parse_xml("\ufeff\n" + spoiled)["gpus"][0]["processes"]) == 2


@pytest.mark.parametrize("text", ["0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", "0:3B:00.0"])
def test_bus_ids_of_all_spellings_are_one_place(text: str) -> None:
    assert normalise_bus_id(text) == "00000000:3B:00.0"


def test_every_sample_of_a_real_machine_is_read_and_judged(samples: Callable[[str], list[Path]]) -> None:
    for path in samples("nvidia-smi-xml"):
        data = parse_xml(path.read_bytes())
        assert data["gpus"], path.name
        for gpu in data["gpus"]:
            assert gpu["errors"] == {}, path.name
            assert gpu["memory_total_mib"], path.name
            assert checks.verdict(smi_judge.judge_gpu(gpu, {})) == "pass", path.name


def test_no_error_sample_of_a_real_machine_passes(samples: Callable[[str], list[Path]]) -> None:
    for path in samples("nvidia-smi-errors"):
        _, check = smi_messages.read_answer(0, path.read_bytes())
        assert check["status"] == "fail", path.name
        assert check["remedy"], path.name


# --------------------------------------------------------------------------------------------------------------------


def test_a_good_node_passes(parsed: Parsed, by_id: ById) -> None:
    found = smi_judge.judge(
        parsed("h100_580.xml"), {"count": 2, "names": ["H100"], "driver": "580", "min_driver": "525.60.13"}
    )
    assert checks.verdict(found) == "pass"
    assert {check["status"] for check in found} <= {"pass", "skip"}
    assert by_id(found)["gpu.count"]["measured"] == 2


def test_a_desktop_card_passes_and_its_desktop_does_not_make_it_busy(parsed: Parsed, by_id: ById) -> None:
    found = smi_judge.judge(parsed("geforce_595.xml"), {"idle": True})
    checked = by_id(found)
    assert checks.verdict(found) == "pass"
    assert checked["gpu.idle"]["status"] == "pass"
    assert checked["ecc.mode"]["status"] == "skip"
    assert checked["pcie.gen"]["status"] == "skip", "an idle card lowers its link"


def test_a_process_that_computes_makes_a_card_busy(parsed: Parsed, by_id: ById) -> None:
    data = parsed("v100_418.xml")
    assert by_id(smi_judge.judge(data, {"idle": True}))["gpu.idle"]["status"] == "warn"
    assert by_id(smi_judge.judge(data, {}))["gpu.idle"]["status"] == "pass"


def test_bad_memory_and_an_unready_fabric_are_found(parsed: Parsed, by_id: ById) -> None:
    checked = by_id(smi_judge.judge(parsed("h100_bad_580.xml"), {}))
    assert checked["remap.pending"]["status"] == "fail"
    assert "-i 0" in str(checked["remap.pending"]["remedy"])
    assert checked["ecc.volatile_unc"]["measured"] == 4
    assert checked["ecc.sram_agg_unc"]["severity"] == "fatal"
    assert checked["ecc.sram_agg_unc"]["evidence"] == "serial number 165302300001"
    assert checked["remap.pending"]["evidence"] is None
    assert checked["fabric.state"]["action"] == "restart_service"


def test_the_words_of_an_error_in_the_fabrics_status_are_its_value(document: Callable[[str], str], by_id: ById) -> None:
    """NVML tells by one of its errors why a card did not come into its fabric; it could be read all the same."""
    text, count = re.subn(
        r"(<fabric>\s*<state>)[^<]*(</state>\s*<status>)[^<]*",
        r"\1Completed\2Insufficient Resources",
        document("h100_580.xml"),
    )
    assert count
    checked = by_id(smi_judge.judge(parse_xml(text), {}))
    assert checked["gpu.readable"]["status"] == "pass"
    assert (checked["fabric.state"]["status"], checked["fabric.state"]["action"]) == ("fail", "restart_service")
    assert "Completed, Insufficient Resources" in str(checked["fabric.state"]["reason"])


def test_a_card_that_is_partitioned_and_has_no_instance_computes_nothing(parsed: Parsed, by_id: ById) -> None:
    data = parsed("mig_580.xml")
    assert by_id(smi_judge.judge(data, {}))["gpu.mig"]["status"] == "pass"
    data["gpus"][0]["mig"]["devices"] = []
    check = by_id(smi_judge.judge(data, {}))["gpu.mig"]
    assert (check["status"], "CUDA sees no card" in str(check["reason"])) == ("fail", True)
    # Another mode is wished: that is the cause.
    assert by_id(smi_judge.judge(data, {"mig": False}))["gpu.mig"]["reason"] == "partitioning (MIG) is on"


def test_retired_pages_are_judged_on_a_volta(parsed: Parsed, by_id: ById) -> None:
    data = parsed("v100_418.xml")
    checked = by_id(smi_judge.judge(data, {}))
    assert checked["pages.pending"]["status"] == "fail"
    assert (checked["pages.count"]["status"], checked["pages.count"]["measured"]) == ("warn", 61)
    data["gpus"][0]["retired_pages"]["single_bit"] = 20
    assert by_id(smi_judge.judge(data, {}))["pages.count"]["status"] == "fail"


def test_a_lost_card_fails_once_and_its_neighbour_is_still_judged(document: Callable[[str], str], by_id: ById) -> None:
    data, ran = smi_messages.read_answer(15, document("lost_580.xml"))
    assert data is not None
    found = smi_judge.judge(data, {"count": 2})
    assert (ran["status"], ran["severity"]) == ("fail", "fatal")
    assert [check["gpu"] for check in found if check["id"] == "gpu.lost"] == ["1 (00000000:43:00.0)"]
    assert any(check["gpu"] == "0 (00000000:1B:00.0)" and check["id"] == "ecc.mode" for check in found)
    assert not any(check["status"] == "pass" and str(check["gpu"]).startswith("1 ") for check in found)


def test_a_lost_card_is_noticed_with_exit_status_zero(document: Callable[[str], str]) -> None:
    _, ran = smi_messages.read_answer(0, document("lost_580.xml"))
    assert ran["status"] == "fail"


@pytest.mark.parametrize(
    ("expected", "status"),
    [
        ({"count": 2}, "pass"),
        ({"count": 8}, "fail"),
        ({"count": 1}, "warn"),
        ({"count": 1, "ignore": ["0000:43:00.0"]}, "pass"),
        ({"count": 1, "ignore": ["H100"]}, "fail"),
        ({}, "pass"),
        ({"bus_ids": ["0000:1b:00.0", "0000:43:00.0"]}, "pass"),
        ({"bus_ids": ["0000:1b:00.0", "0000:5e:00.0"]}, "fail"),
    ],
)
def test_missing_cards_are_found_by_number_and_by_place(
    parsed: Parsed, by_id: ById, expected: Any, status: str
) -> None:
    assert by_id(smi_judge.judge(parsed("h100_580.xml"), expected))["gpu.count"]["status"] == status


def test_a_missing_card_is_named(parsed: Parsed, by_id: ById) -> None:
    check = by_id(smi_judge.judge(parsed("h100_580.xml"), {"bus_ids": ["0000:5e:00.0"]}))["gpu.count"]
    assert "00000000:5E:00.0" in str(check["reason"])


def test_fewer_described_than_attached_fails(parsed: Parsed, by_id: ById) -> None:
    data = parsed("h100_580.xml")
    data["attached_gpus"] = 3
    assert by_id(smi_judge.judge(data, {}))["gpu.count"]["status"] == "fail"


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100", True),
        ("NVIDIA A100-SXM4-80GB", "a100 80GB", True),
        ("NVIDIA A100-SXM4-40GB", "A100 80GB", False),
        ("NVIDIA GeForce RTX 4080", "rtx-4080", True),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080", False),
        ("NVIDIA GeForce RTX 4080", "RTX 4080 SUPER", False),
        ("Tesla V100-SXM2-32GB", "V100", True),
        ("NVIDIA H100 80GB HBM3", "H100 80 GB", True),
        ("NVIDIA H200", "H100", False),
    ],
)
def test_a_model_is_recognised_as_people_write_it(found: str, wanted: str, same: bool) -> None:
    assert smi_judge.same_model(found, wanted) is same


@pytest.mark.parametrize(
    ("width", "cards", "wanted", "status"),
    [
        (16, 1, None, "pass"),
        (8, 1, None, "warn"),
        (8, 2, None, "pass"),
        (4, 1, None, "fail"),
        (4, 8, None, "fail"),
        (8, 2, 16, "fail"),
        (8, 1, 8, "pass"),
    ],
)
def test_the_width_of_the_link_is_judged_by_wish_and_company(
    parsed: Parsed, width: int, cards: int, wanted: int | None, status: str
) -> None:
    gpu = parsed("h100_580.xml")["gpus"][0]
    gpu["pcie"]["width"] = width
    expected: Any = {"pcie_lanes": {"all": wanted}} if wanted else {}
    assert smi_judge.judge_pcie_width(gpu, expected, cards)["status"] == status


def test_the_generation_of_the_link_is_judged_under_load(parsed: Parsed, by_id: ById) -> None:
    data = parsed("geforce_595.xml")
    assert by_id(smi_judge.judge(data, {"under_load": True}))["pcie.gen"]["status"] == "warn"


@pytest.mark.parametrize(
    ("state", "percent", "throttle", "status"),
    [
        ("P0", 98, ["sw_power_cap"], "warn"),
        ("P0", 98, ["sw_thermal_slowdown"], "skip"),
        ("P0", 20, [], "skip"),
        ("P8", 98, [], "skip"),
    ],
)
def test_the_generation_of_the_link_is_judged_where_somebody_else_loads_the_card(
    parsed: Parsed, by_id: ById, state: str, percent: int, throttle: list[str], status: str
) -> None:
    data = parsed("geforce_595.xml")
    data["gpus"][0].update(performance_state=state, utilization_percent=percent, throttle=throttle)
    check = by_id(smi_judge.judge(data, {}))["pcie.gen"]
    assert check["status"] == status
    assert status == "skip" or f"generation {check['measured']} of {check['expected']}" in str(check["reason"])


@pytest.mark.parametrize(
    ("change", "expected", "status"),
    [
        ({"temperature_margin_c": 4}, {}, "warn"),
        ({"temperature_margin_c": 40}, {}, "pass"),
        ({"temperature_margin_c": None, "temperature_slow_c": 90, "temperature_c": 86}, {}, "warn"),
        ({"temperature_margin_c": None, "temperature_slow_c": 90, "temperature_c": 80}, {}, "pass"),
        ({"temperature_c": 76}, {"max_temperature_c": 75}, "warn"),
        ({"temperature_c": None, "temperature_margin_c": None}, {}, "skip"),
        ({"temperature_c": None, "temperature_margin_c": 30}, {}, "skip"),
        ({"temperature_c": None, "temperature_margin_c": -8, "temperature_shutdown_margin_c": -8}, {}, "fail"),
        ({"temperature_margin_c": -20, "temperature_shutdown_margin_c": None}, {}, "fail"),
        ({"temperature_margin_c": -20, "temperature_shutdown_margin_c": None}, {"max_temperature_c": 90}, "fail"),
        ({"temperature_margin_c": -10, "temperature_shutdown_margin_c": None}, {}, "fail"),
        ({"temperature_margin_c": -9, "temperature_shutdown_margin_c": None}, {}, "warn"),
        ({"temperature_margin_c": -11, "temperature_shutdown_margin_c": -12}, {}, "warn"),
        ({"temperature_c": None, "temperature_margin_c": -20, "temperature_shutdown_margin_c": None}, {}, "fail"),
        ({"temperature_c": None, "temperature_margin_c": -9, "temperature_shutdown_margin_c": None}, {}, "warn"),
        ({"temperature_c": None, "temperature_margin_c": 5}, {}, "warn"),
    ],
)
def test_temperature_is_held_against_margin_threshold_or_wish(
    parsed: Parsed, by_id: ById, change: dict[str, int | None], expected: Any, status: str
) -> None:
    data = parsed("h100_580.xml")
    for gpu in data["gpus"]:
        gpu.update(change)
    assert by_id(smi_judge.judge(data, expected))["temp.gpu"]["status"] == status


@pytest.mark.parametrize(
    ("reasons", "hard", "soft"),
    [
        (["gpu_idle", "sw_power_cap"], "pass", "pass"),
        (["hw_slowdown"], "fail", "pass"),
        (["hw_power_brake_slowdown"], "fail", "pass"),
        (["a_reason_of_tomorrow"], "pass", "pass"),
        (None, "skip", "skip"),
    ],
)
def test_only_harmful_reasons_of_slowing_down_count(
    parsed: Parsed, by_id: ById, reasons: list[str] | None, hard: str, soft: str
) -> None:
    data = parsed("h100_580.xml")
    for gpu in data["gpus"]:
        gpu["throttle"] = reasons
    checked = by_id(smi_judge.judge(data, {}))
    assert (checked["throttle.hw"]["status"], checked["throttle.sw_thermal"]["status"]) == (hard, soft)


@pytest.mark.parametrize(
    ("reasons", "right", "wrong"),
    [
        (["hw_slowdown", "hw_thermal_slowdown"], ["air flow"], ["power supply", "BMC"]),
        (["hw_slowdown", "hw_power_brake_slowdown"], ["BMC", "power supply", "cables"], ["air flow", "fans"]),
        (["hw_thermal_slowdown", "hw_power_brake_slowdown"], ["air flow", "BMC"], []),
        (["hw_slowdown"], ["air flow", "BMC"], []),
    ],
)
def test_what_helps_a_slow_card_goes_by_what_slows_it(
    parsed: Parsed, by_id: ById, reasons: list[str], right: list[str], wrong: list[str]
) -> None:
    data = parsed("h100_580.xml")
    data["gpus"][0]["throttle"] = reasons
    remedy = str(by_id(smi_judge.judge(data, {}))["throttle.hw"]["remedy"])
    assert [word for word in right if word not in remedy] == []
    assert [word for word in wrong if word in remedy] == []


@pytest.mark.parametrize(
    ("told", "loaded", "status"),
    [
        ("[Unknown Error]", False, ("skip", "pass")),
        ("ERR!", False, ("skip", "pass")),
        ("[Unknown Error]", True, ("warn", "fail")),
        ("[GPU requires reset]", False, ("warn", "fail")),
    ],
)
def test_a_power_draw_that_cannot_be_read_once_is_no_fault(
    document: Callable[[str], str], by_id: ById, told: str, loaded: bool, status: tuple[str, str]
) -> None:
    data = parse_xml(document("h100_580.xml").replace("<instant_power_draw>70.55 W", f"<instant_power_draw>{told}"))
    judge = smi_judge.judge_under_load if loaded else smi_judge.judge_gpu
    checked = by_id(judge(data["gpus"][0], {}))
    assert (checked["power.read"]["status"], checked["gpu.readable"]["status"]) == status
    assert "gpu.lost" not in checked


def test_a_power_draw_beside_other_values_that_cannot_be_read_fails(
    document: Callable[[str], str], by_id: ById
) -> None:
    text = document("h100_580.xml").replace("<instant_power_draw>70.55 W", "<instant_power_draw>[Unknown Error]")
    data = parse_xml(text.replace("<pstate>", "<unused>").replace("<gpu_temp>", "<gpu_temp>[Unknown Error]", 1))
    checked = by_id(smi_judge.judge_gpu(data["gpus"][0], {}))
    assert (checked["power.read"]["status"], checked["gpu.readable"]["status"]) == ("warn", "fail")


@pytest.mark.parametrize(
    ("draw", "throttle", "status", "words"),
    [
        (588.4, ["sw_power_cap"], "warn", "holds the clocks down"),
        (588.4, [], "warn", "588.4 W"),
        (60.0, [], "pass", ""),
    ],
)
def test_a_power_draw_that_no_limit_allows_is_a_wrong_reading(
    parsed: Parsed, by_id: ById, draw: float, throttle: list[str], status: str, words: str
) -> None:
    card: Any = {**parsed("h100_580.xml")["gpus"][0], "power_limit_w": 35.0, "power_default_limit_w": 35.0}
    card |= {"power_draw_w": draw, "throttle": throttle}
    check = by_id(smi_judge.judge_gpu(card, {}))["power.read"]
    assert (check["status"], words in str(check["reason"])) == (status, True)


@pytest.mark.parametrize(("name", "words"), [("NVIDIA GH200 480GB", True), ("NVIDIA H200", False)])
def test_the_daemon_of_a_superchip_runs_as_root(parsed: Parsed, by_id: ById, name: str, words: bool) -> None:
    card: Any = {**parsed("h100_580.xml")["gpus"][0], "name": name, "persistence_mode": False}
    assert ("root" in str(by_id(smi_judge.judge_gpu(card, {}))["persistence"]["remedy"])) is words


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"temperature_margin_c": -8, "temperature_shutdown_margin_c": -8}, "critical"),
        ({"temperature_margin_c": -7, "temperature_shutdown_margin_c": -8}, "warning"),
        ({"temperature_margin_c": None, "temperature_slow_c": 89, "temperature_shutdown_c": 94, "temperature_c": 94}, "critical"),
        ({"temperature_margin_c": None, "temperature_slow_c": 89, "temperature_shutdown_c": 94, "temperature_c": 93}, "warning"),
        ({"temperature_margin_c": None, "temperature_c": 105}, "critical"),
    ],
)  # fmt: skip
def test_a_card_as_hot_as_where_it_shuts_down_fails(
    parsed: Parsed, by_id: ById, change: dict[str, int | None], severity: str
) -> None:
    data = parsed("h100_580.xml")
    data["gpus"][0].update(change)
    check = by_id(smi_judge.judge(data, {"max_temperature_c": 90}))["temp.gpu"]
    assert check["status"] == (
        "fail" if severity == "critical" else "warn" if change["temperature_margin_c"] is None else "pass"
    )
    assert by_id(smi_judge.judge(data, {}))["temp.gpu"]["severity"] == severity


@pytest.mark.parametrize(
    ("percent", "processes", "status"),
    [(0, 0, "fail"), (3, 1, "fail"), (98, 1, "warn"), (None, 1, "warn"), (None, 0, "fail")],
)
def test_heat_that_slows_a_card_at_rest_fails(
    parsed: Parsed, by_id: ById, percent: int | None, processes: int, status: str
) -> None:
    data = parsed("h100_580.xml")
    gpu = data["gpus"][0]
    gpu["throttle"], gpu["utilization_percent"] = ["sw_thermal_slowdown"], percent
    gpu["processes"] = [{"pid": 7, "type": "C", "name": "train"}] * processes
    assert by_id(smi_judge.judge(data, {}))["throttle.sw_thermal"]["status"] == status


@pytest.mark.parametrize(
    ("card", "memory", "held"),
    [(57, None, True), (57, 60, True), (57, 104, False), (84, None, False), (None, None, False)],
)
def test_a_card_that_slows_down_without_being_hot_is_held_to_a_limit(
    parsed: Parsed, by_id: ById, card: int | None, memory: int | None, held: bool
) -> None:
    data = parsed("geforce_595.xml")
    gpu = data["gpus"][0]
    gpu.update(
        temperature_c=card, temperature_memory_c=memory, temperature_margin_c=0, throttle=["sw_thermal_slowdown"]
    )
    found = by_id(smi_judge.judge(data, {}))
    for name in ("temp.gpu", "throttle.sw_thermal"):
        assert ("nvidia-smi -gtt" in str(found[name]["remedy"]), "fans" in str(found[name]["remedy"])) == (
            held,
            not held,
        )


@pytest.mark.parametrize(
    ("limits", "expected", "status"),
    [
        ((700, 350), {}, "warn"),
        ((350, 350), {}, "pass"),
        ((700, 700), {}, "pass"),
        ((700, 350), {"power_limit_w": 350}, "pass"),
        ((None, 350), {}, "pass"),
    ],
)
def test_a_limit_of_power_that_one_card_of_several_has_is_told(
    parsed: Parsed, limits: tuple[int | None, int], expected: Any, status: str
) -> None:
    data = parsed("h100_580.xml")
    for gpu, limit in zip(data["gpus"], limits, strict=True):
        gpu["power_limit_w"] = limit
    found = [check for check in smi_judge.judge(data, expected) if check["id"] == "gpu.power_limit"]
    assert found[-1]["status"] == status
    assert status != "warn" or "-i 1 -pl 700" in str(found[-1]["remedy"])
    data["gpus"][0]["name"] = "another"
    assert {check["status"] for check in smi_judge.judge(data, {}) if check["id"] == "gpu.power_limit"} <= {"pass"}


_BRAKES = ["sw_power_cap", "hw_slowdown", "hw_power_brake_slowdown"]


@pytest.mark.parametrize(
    ("later", "status"),
    [
        ([_BRAKES, _BRAKES], "fail"),
        ([_BRAKES, ["gpu_idle"]], "pass"),
        ([["gpu_idle"], _BRAKES], "pass"),
        ([None, None], "fail"),
    ],
)
def test_a_power_brake_counts_when_it_lasts_over_three_looks(
    parsed: Parsed, by_id: ById, later: list[list[str] | None], status: str
) -> None:
    data, answers = parsed("h100_580.xml"), iter(later)
    pauses: list[float] = []
    data["gpus"][0]["throttle"] = list(_BRAKES)

    def look() -> SmiData | None:
        reasons = next(answers)
        again = parsed("h100_580.xml")
        again["gpus"][0]["throttle"] = reasons
        return None if reasons is None else again

    smi_brake.settle(data, look, pauses.append)
    check = by_id(smi_judge.judge(data, {}))["throttle.hw"]
    assert check["status"] == status
    assert len(pauses) <= 2
    assert status == "fail" or "three looks" in str(check["reason"])


def test_heat_is_not_taken_for_a_passing_brake(parsed: Parsed, by_id: ById) -> None:
    data = parsed("h100_580.xml")
    data["gpus"][0]["throttle"] = [*_BRAKES, "hw_thermal_slowdown"]
    smi_brake.settle(data, lambda: parsed("h100_580.xml"), lambda _seconds: None)
    assert str(by_id(smi_judge.judge(data, {}))["throttle.hw"]["reason"]).endswith("hw_slowdown, hw_thermal_slowdown")


def test_the_module_looks_again_only_where_a_card_brakes(document: Callable[[str], str]) -> None:
    good = document("h100_580.xml")
    tag = "clocks_event_reason_hw_power_brake_slowdown"
    answers = [good.replace(f"<{tag}>Not Active", f"<{tag}>Active", 1), good]
    params = {**dict.fromkeys(nvidia_smi.EXPECTATIONS), "executable": "nvidia-smi", "timeout": 60}
    asked: list[str] = []

    def runner(_argv: list[str], timeout: float) -> run.Result:
        assert timeout <= 60
        asked.append(answers[len(asked)])
        return run.Result(0, asked[-1], "", 0.1, None)

    assert checks.verdict(nvidia_smi.prove(params, runner)["checks"]) == "pass"
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("brand", "name", "status"),
    [
        ("GeForce", "NVIDIA GeForce RTX 4090", "pass"),
        ("Quadro", "Quadro RTX 6000", "pass"),
        ("NVIDIA RTX", "NVIDIA RTX A6000", "pass"),
        ("NVIDIA", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "warn"),
        ("Tesla", "Tesla T4", "warn"),
        ("NVIDIA", "NVIDIA A100-SXM4-80GB", "warn"),
    ],
)
def test_error_correction_that_is_off_on_a_card_for_a_desk_costs_nobody_memory(
    parsed: Parsed, by_id: ById, brand: str, name: str, status: str
) -> None:
    data = parsed("h100_580.xml")
    data["gpus"] = data["gpus"][:1]
    data["gpus"][0].update(brand=brand, name=name)
    data["gpus"][0]["ecc"].update(mode=False, pending=False)
    check = by_id(smi_judge.judge(data, {}))["ecc.mode"]
    assert (check["status"], check["remedy"] is None) == (status, status == "pass")
    assert "off" in str(check["reason"])
    assert by_id(smi_judge.judge(data, {"ecc": True}))["ecc.mode"]["status"] == "warn", "it is wished"


@pytest.mark.parametrize(
    ("lanes", "status"),
    [
        ({}, "warn"),
        ({"all": 4}, "pass"),
        ({"all": 16, "0000:01:00.0": 4}, "pass"),
        ({"all": 4, "01:00.0": 8}, "fail"),
        ({"RTX 4080 SUPER": 1}, "pass"),
        ({"RTX 4090": 1}, "warn"),
    ],
)
def test_few_lanes_of_a_consumer_card_warn_and_an_inventory_says_what_is_right(
    parsed: Parsed, lanes: dict[str, int], status: str
) -> None:
    gpu = parsed("geforce_595.xml")["gpus"][0]
    gpu.update(name="NVIDIA GeForce RTX 4080 SUPER", pci_bus_id="00000000:01:00.0")
    gpu["pcie"].update(width=4, width_max=16)
    check = smi_judge.judge_pcie_width(gpu, {"pcie_lanes": lanes})
    assert check["status"] == status
    assert lanes or ("second slot" in str(check["reason"]) and "gpuwright_gpus_pcie_lanes" in str(check["remedy"]))


def test_fabric_without_a_summary_is_judged_by_what_it_would_sum_up(
    document: Callable[[str], str], by_id: ById
) -> None:
    text = document("h100_580.xml").replace("<summary>Healthy</summary>", "<route_unhealthy>False</route_unhealthy>")
    assert by_id(smi_judge.judge(parse_xml(text), {}))["fabric.health"]["status"] == "pass"
    ill = text.replace("<bandwidth>Full", "<bandwidth>Degraded", 1)
    check = by_id(smi_judge.judge(parse_xml(ill), {}))["fabric.health"]
    assert (check["status"], check["measured"]) == ("fail", "bandwidth: Degraded")


@pytest.mark.parametrize("tag", ["vgpu_software_licensed_product", "grid_licensed_product"])
def test_a_virtual_gpu_without_a_licence_is_told(document: Callable[[str], str], by_id: ById, tag: str) -> None:
    def status(told: str) -> str:
        licence = f"<{tag}><license_status>{told}</license_status></{tag}></gpu>"
        data = parse_xml(document("geforce_595.xml").replace("</gpu>", licence))
        return str(by_id(smi_judge.judge(data, {}))["gpu.licence"]["status"])

    assert status("Licensed (Expiry: 2026-12-22 6:57:30 GMT)") == "pass"
    assert status("Unlicensed (Restricted)") == "warn"


def test_processes_of_the_old_layout_make_a_card_busy(document: Callable[[str], str], by_id: ById) -> None:
    process = "<process_info><pid>26931</pid><process_name>/usr/bin/python</process_name></process_info>"
    listed = f"<compute_processes>{process}</compute_processes>"
    data = parse_xml(document("m2090_285.xml").replace("</gpu>", listed + "</gpu>"))
    assert by_id(smi_judge.judge(data, {"idle": True}))["gpu.idle"]["evidence"] == "/usr/bin/python (pid 26931)"
    assert data["gpus"][0]["processes"][0]["type"] == "C"


def test_a_jetsons_gpu_that_tells_only_its_name_is_not_lost(parsed: Parsed) -> None:
    gpu = parsed("geforce_595.xml")["gpus"][0]
    gpu.update(memory_total_mib=None, temperature_c=None, power_draw_w=None, name="Orin (nvgpu)")
    gpu["clocks"]["sm_mhz"] = None
    assert "gpu.lost" not in {check["id"] for check in smi_judge.judge_gpu(gpu, {})}
    gpu["name"] = "NVIDIA GeForce RTX 4080"
    assert [check["id"] for check in smi_judge.judge_gpu(gpu, {})] == ["gpu.lost"]


@pytest.mark.parametrize(
    ("action", "status", "kind"),
    [
        ("None", "pass", None),
        ("Reset", "fail", "reset_gpu"),
        ("Reboot", "fail", "reboot"),
        ("Dance {0} {gpu}", "fail", "contact_support"),
    ],
)
def test_what_the_card_asks_for_is_passed_on(
    parsed: Parsed, by_id: ById, action: str, status: str, kind: str | None
) -> None:
    data = parsed("h100_580.xml")
    data["gpus"][0]["recovery_action"] = action
    check = by_id(smi_judge.judge(data, {}))["gpu.recovery_action"]
    assert (check["status"], check["action"]) == (status, kind)


@pytest.mark.parametrize(
    ("wish", "check_id", "status"),
    [
        ({"driver": "580"}, "driver.version_expected", "pass"),
        ({"driver": "58"}, "driver.version_expected", "warn"),
        ({"driver": "580.95.05"}, "driver.version_expected", "pass"),
        ({"min_driver": "580.95.06"}, "driver.minimum", "fail"),
        ({"min_driver": "9.5"}, "driver.minimum", "pass"),
    ],
)
def test_driver_versions_are_compared_as_numbers(
    parsed: Parsed, by_id: ById, wish: Any, check_id: str, status: str
) -> None:
    assert by_id(smi_judge.judge(parsed("h100_580.xml"), wish))[check_id]["status"] == status


# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rc", "text", "status", "told"),
    [
        (
            9,
            "NVIDIA-SMI has failed because it couldn\u2019t communicate with the  NVIDIA driver.",
            "fail",
            "not loaded",
        ),
        (
            18,
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95",
            "fail",
            "different versions",
        ),
        (4, "Failed to initialize NVML: Insufficient Permissions", "fail", "may not open"),
        (6, "No devices were found", "fail", "initialised"),
        (
            15,
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system",
            "fail",
            "bus",
        ),
        (255, "Failed to initialize NVML: Unknown Error", "fail", "withheld"),
        (
            255,
            "NVIDIA-SMI has failed because it couldn\u2018t communicate with the NVIDIA driver.",
            "fail",
            "not loaded",
        ),
        (255, "Unable to detect the device handle for GPU0000:B1:00.0: Unknown Error", "fail", "does not answer"),
        (255, "", "fail", "an error that it does not name (255)"),
        (200, "", "fail", "ended with code 200"),
        (126, "", "incomplete", "may not be executed"),
        (255, "Failed to initialize NVML: GPU access blocked by the operating system", "fail", "WSL"),
        (12, "", "fail", "libnvidia-ml"),
        (14, "WARNING: infoROM is corrupted at gpu 0000:3B:00.0", "fail", "infoROM"),
        (77, "", "fail", "77"),
        (-11, "", "fail", "signal 11"),
        (137, "", "fail", "signal 9"),
        (127, "", "incomplete", "not installed"),
        (None, "", "incomplete", "not installed"),
        (0, "", "fail", "nothing"),
    ],
)
def test_every_way_of_not_answering_is_explained(rc: int | None, text: str, status: str, told: str) -> None:
    data, check = smi_messages.read_answer(rc, text)
    assert data is None
    assert check["status"] == status
    assert told in str(check["reason"])
    assert check["remedy"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Unable to determine the device handle for GPU 0000:43:00.0: Unknown Error",
            "answer the driver: 0000:43:00.0",
        ),
        ("Unable to detect the device handle for GPU0000:B1:00.0: Unknown Error", "answer the driver: 0000:B1:00.0"),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n" * 2, "is corrupted: 0000:3B:00.0"),
        (
            "GPU 00000000:02:00.0: GPU is lost\nGPU 00000000:03:00.0: GPU is lost",
            "bus: 00000000:02:00.0, 00000000:03:00.0",
        ),
        ("Unable to determine the device handle at 10:43:00.0", "does not answer the driver"),
    ],
)
def test_the_cards_that_a_sentence_names_are_told(text: str, told: str) -> None:
    _data, check = smi_messages.read_answer(255, text)
    assert str(check["reason"]).endswith(told)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        ("/usr/bin/nvidia-smi could not be run: Permission denied", "incomplete", "may not be executed"),
        ("/usr/bin/nvidia-smi could not be run: Exec format error", "incomplete", "no program of this machine"),
        ("nvidia-smi could not be run: No such file or directory", "incomplete", "not installed"),
        ("nvidia-smi could not be run: Too many open files", "incomplete", "Too many open files"),
        ("nvidia-smi did not answer within 60 s", "fail", "hangs"),
    ],
)
def test_a_program_that_did_not_run_says_why(error: str, status: str, told: str) -> None:
    data, check = smi_messages.read_answer(None, "", "", 0.1, error)
    assert (data, check["status"]) == (None, status)
    assert told in str(check["reason"])
    assert check["evidence"] == error


@pytest.mark.parametrize(("mode", "content"), [(0o644, b"#!/bin/sh\n"), (0o755, b"\x7fELF of another machine")])
def test_a_file_that_cannot_be_executed_is_not_called_missing(tmp_path: Path, mode: int, content: bytes) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(content)
    program.chmod(mode)
    params = {**dict.fromkeys(nvidia_smi.EXPECTATIONS), "executable": str(program), "timeout": 5}
    check = nvidia_smi.prove(params)["checks"][0]
    assert check["status"] == "incomplete"
    assert "not installed" not in str(check["reason"])


def test_a_hang_fails() -> None:
    told = "nvidia-smi did not answer within 60 s"
    assert smi_messages.read_answer(None, "", "", 60.0, told)[1]["status"] == "fail"


def test_a_slow_answer_warns(document: Callable[[str], str]) -> None:
    data, check = smi_messages.read_answer(0, document("h100_580.xml"), "", 25.0)
    assert data
    assert check["status"] == "warn"


def test_a_warning_about_the_inforom_beside_good_data_is_a_failure(document: Callable[[str], str]) -> None:
    data, check = smi_messages.read_answer(
        14, document("h100_580.xml") + "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n"
    )
    assert data
    assert check["status"] == "fail"
    assert "gpu.inforom" in {found["id"] for found in smi_judge.judge(data, {})}
