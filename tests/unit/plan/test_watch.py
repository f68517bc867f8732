"""The component watch: the wish, what is not as wished, what the role does, what is told of it, and that its secret is nowhere."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import history
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import programs, utilities
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.watch import apply as watch
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import findings, removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import VARIABLES, Wish
from tests.unit.observe.trees import Tree
from tests.unit.plan import nodes
from tests.unit.plan.test_hosts import want, wsl
from tests.unit.plan.test_planner import plan

ROOT = Path(__file__).resolve().parents[3]
ON = {"active": "active", "enabled": "enabled"}
OFF = {"active": "inactive", "enabled": "not-found"}
RESTED = {"active": "inactive", "enabled": "static"}
SECRET = "https://hooks.example.com/services/T0/B0/not-to-be-seen"


def host(timer: Any = ON, service: Any = RESTED, **changes: Any) -> Any:
    return nodes.provisioned(services={watch.TIMER: timer, watch.SERVICE: service}, **changes)


def made(facts: Any, **variables: Any) -> Any:
    wish = Wish.from_variables({"gpuwright_want": ["driver=580"], "watch_interval": "15m", **variables})
    request = Request(host="node", today=date(2026, 11, 20), only=("watch",))
    draft = make_draft(facts, wish, load_rules(), request)
    assert isinstance(draft, Draft), draft
    return finish(draft, None)


def written(facts: Any, **variables: Any) -> dict[str, str]:
    return {file["path"]: file["content"] for file in made(facts, **variables)["work"]["watch"]["files"]}


def check(facts: Any) -> Any:
    found = {each["id"]: each for each in judge.judge(facts, made(host())["stack"])}
    return found.get("watch.runs")


# --- the wish -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "minutes"),
    [
        ({"gpuwright_want": ["watch"]}, "auto"),
        ({"gpuwright_want": ["watch"], "watch_interval": "5m"}, 5),
        ({"gpuwright_want": ["watch=5m"]}, 5),
        ({"gpuwright_want": ["watch=1h"]}, 60),
        ({"watch_interval": 30}, 30),
        ({"watch_interval": "24h"}, 24 * 60),
        ({"watch_interval": ""}, None),
        ({"watch_interval": False}, None),
        ({"watch_mail": ["ops@example.com"]}, None),
        ({}, None),
    ],
)
def test_how_often_a_node_looks_is_wished_by_name_or_by_variable(wish: Any, minutes: int | str | None) -> None:
    assert Wish.from_variables(wish).watch == minutes


@pytest.mark.parametrize("span", ["0", "-3m", "x", "90s", "25h", "1441", ">=3"])
def test_a_span_that_is_none_is_refused_with_an_example(span: str) -> None:
    with pytest.raises(BadInput) as refused:
        Wish.from_wants([f"watch{span}" if span.startswith(">") else f"watch={span}"])
    assert "watch=" in str(refused.value.suggestions)
    with pytest.raises(BadInput, match="watch_interval: expected minutes or hours"):
        Wish.from_variables({"watch_interval": span})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("watch_mail", ["-oQ/tmp"]),
        ("watch_mail", "ops@example.com\nBcc: eve@example.com"),
        ("watch_mail", "Ops <ops@example.com>"),
        ("watch_mail", [f"ops{number}@example.com" for number in range(11)]),
        ("watch_smtp", "mail.example.com:99x"),
        ("watch_smtp", "user:word@mail.example.com"),
        ("watch_textfile_directory", "metrics"),
        ("watch_textfile_directory", "/var/lib/../../etc"),
        ("watch_textfile_directory", "/var/lib/a b"),
        ("watch_proof_max_age", -1),
        ("watch_proof_max_age", "a week"),
    ],
)
def test_who_and_where_are_no_options_and_no_other_text(variable: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"{variable}: expected"):
        Wish.from_variables({variable: value})


def test_who_is_told_and_where_the_metrics_are_is_in_the_stack() -> None:
    variables = {
        "watch_mail": "ops@example.com, root",
        "watch_smtp": "mail.example.com:587",
        "watch_textfile_directory": "/var/lib/node_exporter/",
        "watch_proof_max_age": "86400",
        "gpuwright_gpus_expected": 8,
        "gpuwright_gpus_ignore": ["0000:02:00.0"],
    }
    stack = made(host(), **variables)["stack"]["watch"]
    assert (stack["mail"], stack["smtp"]) == (["ops@example.com", "root"], "mail.example.com:587")
    assert (stack["textfile_directory"], stack["proof_max_age"]) == ("/var/lib/node_exporter", 86400)
    assert (stack["cards"]["count"], stack["cards"]["ignore"]) == (8, ["0000:02:00.0"])


def test_who_wishes_the_watch_alone_gets_nothing_else_but_the_driver() -> None:
    assert not Wish.from_wants(["watch"]).nothing_wished
    assert "cuda" not in made(host())["stack"]


# --- the secret ---------------------------------------------------------------------------------------------------------


def test_the_address_of_the_webhook_is_no_part_of_a_wish_and_of_no_plan() -> None:
    assert "watch_webhook" not in VARIABLES
    with pytest.raises(BadInput, match="which is no variable of a wish"):
        Wish.from_variables({"gpuwright_wish": {"watch_webhook": SECRET}})
    planned = made(host(OFF), watch_webhook=SECRET)
    assert "not-to-be-seen" not in json.dumps(planned)
    assert settings.ROLES["watch"]["options"]["watch_webhook"]["no_log"] is True


@pytest.mark.parametrize(
    "address", ["http://h.example/not-to-be-seen", "https://u:not-to-be-seen@h.example/", "not-to-be-seen"]
)
def test_an_address_that_is_none_is_refused_before_the_first_host_without_being_shown(address: str) -> None:
    with pytest.raises(BadInput, match="watch_webhook: expected") as refused:
        settings.refuse({"node": {"watch_webhook": address}})
    assert "not-to-be-seen" not in str(refused.value)
    settings.refuse({"node": {"watch_webhook": SECRET}, "other": {"watch_webhook": ""}})


def test_the_role_writes_the_address_always_for_root_alone_and_logs_nothing_of_it() -> None:
    tasks = yaml.safe_load((ROOT / "roles/watch/tasks/configure.yml").read_text())
    (task,) = [each for each in tasks if "watch_webhook" in json.dumps(each)]
    assert (task["no_log"], task["diff"], task["ansible.builtin.copy"]["mode"]) == (True, False, "0600")
    assert "when" not in task
    values = yaml.safe_load((ROOT / "roles/watch/vars/main.yml").read_text())
    assert paths.WATCH_WEBHOOK not in watch.manages(Context(facts=host(), stack=made(host())["stack"])).files
    assert (values["__watch_webhook"], values["__watch_program"]) == (paths.WATCH_WEBHOOK, watch.PROGRAM)


# --- what is done -------------------------------------------------------------------------------------------------------


def test_a_timer_that_runs_has_nothing_to_say() -> None:
    assert [change for change in made(host())["changes"] if change["component"] == "watch"] == []


@pytest.mark.parametrize(
    "timer", [OFF, {"active": "inactive", "enabled": "enabled"}, {"active": "active", "enabled": "disabled"}]
)
def test_a_timer_that_does_not_run_now_and_after_a_boot_is_named(timer: Any) -> None:
    (change,) = [change for change in made(host(timer))["changes"] if change["component"] == "watch"]
    assert change["reason"] == "no timer watches the node"


def test_the_units_are_files_of_the_plan_and_the_timer_is_begun() -> None:
    files = written(host(OFF), watch_interval="1h")
    assert f"ExecStart=/usr/bin/python3 -I {watch.PROGRAM}\n" in files[watch.SERVICE_FILE]
    assert "OnUnitActiveSec=60min\n" in files[watch.TIMER_FILE]
    work = made(host(OFF))["work"]["watch"]
    assert work["units"] == [{"name": watch.TIMER, "enabled": True, "state": "started"}]
    assert work["directory"] == {"path": paths.METRICS, "ours": True}
    assert made(host(OFF), watch_textfile_directory="/srv/prom")["work"]["watch"]["directory"]["ours"] is False


def test_metrics_that_lie_where_an_earlier_wish_had_them_are_removed() -> None:
    sealed = {"state": "good", "reason": None, "digest": "d", "stack": made(host())["stack"]["watch"]}
    facts = host(seals={"watch": sealed})
    assert made(facts)["work"]["watch"]["absent"] == []
    moved = made(facts, watch_textfile_directory="/srv/prom")["work"]["watch"]
    assert moved["absent"] == [f"{paths.METRICS}/{paths.METRICS_FILE}"]


def test_the_unit_shuts_out_what_the_checks_do_not_need_and_nothing_that_they_do() -> None:
    unit = written(host())[watch.SERVICE_FILE]
    assert (
        "ProtectSystem=strict\nReadWritePaths=/var/lib/gpuwright -/var/lib/gpuwright/metrics -/var/lib/rpm -/" in unit
    )
    # Each of these takes the cards' devices or the kernel's log away; ProtectClock by the list of devices that it implies.
    assert not re.search("PrivateDevices|ProtectClock|ProtectKernelLogs|DeviceAllow|PrivateNetwork", unit)
    # The spool of a mail server is below /var, wherever it likes.
    assert "ProtectSystem=full\nKillMode=process\n" in written(host(), watch_mail="root")[watch.SERVICE_FILE]
    assert "ProtectSystem=strict\n" in written(host(), watch_mail="root", watch_smtp="m.example")[watch.SERVICE_FILE]


def test_the_settings_have_what_the_rules_say_of_drivers_and_errors() -> None:
    found = json.loads(written(host())[paths.WATCH_SETTINGS])
    rules = load_rules()
    assert {row["branch"]: row["floor"] for row in found["floors"]} == {
        row["branch"]: row["floor"] for row in rules["security"]["rows"] if row["component"] == "driver"
    }
    assert {row["branch"]: row["eol"] for row in found["branches"]} == {
        row["branch"]: row["eol"] for row in rules["driver_branches"]["rows"]
    }
    assert (found["end_is_near"], found["proof_max_age"], found["interval"]) == (180, 7 * 24 * 3600, 900)
    assert {code for row in found["xid"] for code in row["codes"]} == {
        code for row in rules["xid"]["rows"] for code in row["codes"]
    }


@pytest.mark.parametrize(
    "variables",
    [
        {"watch_interval": "5m"},
        {"watch_mail": "root"},
        {"watch_textfile_directory": "/srv/prom"},
        {"gpuwright_gpus_expected": 2},
    ],
)
def test_another_wish_makes_the_seal_stale(variables: Any) -> None:
    def digest(**given: Any) -> str:
        context = Context(facts=host(), stack=made(host(), **given)["stack"])
        return findings.digest("watch", context, Request(host="node", today=date(2026, 11, 20)))

    assert digest() == digest()
    assert digest() != digest(**variables)


def test_a_newer_program_makes_the_seal_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(facts=host(), stack=made(host())["stack"])
    before = watch.inputs(context)
    monkeypatch.setattr(programs.Program, "digest", lambda _program: "another")
    assert watch.inputs(context) != before


def test_in_an_image_no_timer_is_begun() -> None:
    planned = made(host(OFF))
    image = Context(facts=host(OFF), stack=planned["stack"], provision_only=True)
    assert watch.begin(image, planned)["units"] == []
    assert watch.findings(image) == []
    assert watch.manages(image).services == []


def test_in_wsl_it_watches_where_systemd_runs_and_is_refused_where_it_does_not() -> None:
    asked = want("watch")
    assert plan(wsl(), asked)["work"]["watch"]["units"] == [{"name": watch.TIMER, "enabled": True, "state": "started"}]
    (refusal,) = plan(wsl(systemd=False), asked)["refusals"]
    assert (refusal["rule"], "watch needs systemd" in refusal["text"]) == ("needs-systemd", True)


def test_the_doctor_tells_a_node_that_does_not_watch_itself() -> None:
    assert check(host())["status"] == "pass"
    assert (check(host(OFF))["status"], check(host(OFF))["reason"]) == ("warn", f"{watch.TIMER} does not run")
    failed = check(host(service={"active": "failed", "enabled": "static"}))
    assert (failed["status"], failed["reason"]) == ("warn", f"the last turn of {watch.SERVICE} failed")
    assert check(host(unknown={"services": "systemctl show failed"}))["status"] == "incomplete"
    assert "watch.runs" not in {each["id"] for each in judge.judge(host(), {})}


# --- the program --------------------------------------------------------------------------------------------------------


def test_the_program_has_every_utility_that_its_sources_import_and_no_types() -> None:
    """What is imported is derived from the sources, for types alone nothing is: a new import is in the next program by itself."""
    found = utilities.sources(f"{utilities.UTILITIES}.watch.program")
    names = {name.removeprefix(f"{utilities.UTILITIES}.") for name in found}
    assert {"watch.program", "watch.tell", "records.seals", "measure.smi_judge", "measure.kernel_log_judge"} <= names
    assert {"facts", "seal", "index"} & names == set()
    text = watch.SCRIPT.text()
    assert text.startswith("#!/usr/bin/python3 -I\n# Written by gpuwright (role watch).")
    # A person reads which files are in it.
    assert {"#   watch/program.py", "#   measure/smi_judge.py"} <= set(text.split("\nimport ")[0].splitlines())
    assert len(text) < 2**20  # up to there a seal compares what is in it, and not only its time


# --- taking it back -----------------------------------------------------------------------------------------------------


def test_remove_takes_the_timer_the_files_and_the_metrics_among_those_of_others(tmp_path: Path) -> None:
    metrics = f"/srv/node_exporter/{paths.METRICS_FILE}"
    files = [*watch.FILES, paths.WATCH_WEBHOOK, metrics]
    facts = host(history={"files": files, "services": [watch.TIMER], "components": ["watch"], "failed": []})
    assert removal.foreign(facts) == []
    work = removal.work(facts)
    assert (work["files"], work["services"]) == (files, [watch.TIMER])

    tree = Tree(tmp_path)
    tree.file(paths.WATCH_SETTINGS, json.dumps({"textfile_directory": "/srv/node_exporter"}))
    tree.file(metrics, "# HELP gpuwright_watch_timestamp_seconds\n")
    assert _remembered(tree.host()) == [metrics]
    tree.file(paths.WATCH_WEBHOOK, "")
    assert _remembered(tree.host()) == [paths.WATCH_WEBHOOK, metrics]
    tree.file(metrics, "# HELP node_of_another_program\n")
    assert _remembered(tree.host()) == [paths.WATCH_WEBHOOK]


def _remembered(host: Host) -> list[str]:
    found = history.observe(host, full=True)
    assert found is not None
    return found["files"]
