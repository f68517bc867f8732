"""Every remedy can be followed: its commands, checks and units exist, and one that names `up` is said where a plan has a change for it."""

from __future__ import annotations

import ast
import copy
import json
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import containers, framework
from ansible_collections.gpuwright.node.plugins.module_utils.observe.services import UNITS
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.view import View
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish, words_of
from gpuwright import parser
from tests import tables
from tests.unit.plan.test_planner import plan, wish
from tests.unit.prove.test_staying import EVERYTHING, everything
from tests.unit.resolve.test_dcgm import of_ubuntu

ROOT = Path(__file__).resolve().parents[3]
_UP = re.compile(r"gpuwright up\b(?!grade)")
_WRONG = ("fail", "warn", "incomplete")


# --- what a text names exists ----------------------------------------------------------------------------------------


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every text of the collection, the command line and the rules that is no docstring, with its place; {} for what is put in."""
    found = []
    for path in sorted([*(ROOT / "plugins").rglob("*.py"), *(ROOT / "src/gpuwright").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | plain:
                text = node.value
            else:
                continue
            found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))
    for path in sorted((ROOT / "compat").rglob("*.yaml")):
        found += [(str(path.relative_to(ROOT)), text) for text in _inside(tables.read(path))]
    return tuple(found)


def _inside(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _inside(each)


def _verbs() -> dict[str, ArgumentParser]:
    (verbs,) = [each for each in parser.build_parser()._actions if isinstance(each.choices, dict)]
    return dict(cast("dict[str, ArgumentParser]", verbs.choices))


_COMMAND = re.compile(r"\bgpuwright ([a-z]+)((?: -{1,2}[A-Za-z][\w-]*(?:[ =](?!-)(?:'[^']*'|[^\s,;:)'`]+))?)*)")
_OPTION = re.compile(r" (-{1,2}[A-Za-z][\w-]*)(?:[ =](?!-)('[^']*'|[^\s,;:)'`]+))?")


def test_each_option_of_a_command_that_a_text_names_is_one_that_the_command_takes() -> None:
    wrong, read = [], 0
    verbs = _verbs()
    for place, text in texts():
        for command in _COMMAND.finditer(text):
            options = _OPTION.findall(command[2])
            known = verbs[command[1]]._option_string_actions if command[1] in verbs else {}
            read += len(options)
            wrong += [f"{place}: {command[0]!r} has no {name}" for name, _ in options if name not in known]
            wrong += [
                f"{place}: {command[0]!r}: nothing is wished by {value!r}"
                for name, value in options
                if name == "--want" and not _is_want(value.strip("'"))
            ]
    assert read > 20
    assert not wrong, "\n".join(wrong)


def _is_want(value: str) -> bool:
    try:
        return bool(words_of(value.removesuffix("{}").replace("…", "driver") or "driver"))
    except ValueError:
        return value == "NAME=VERSION"


_CHECKS = re.compile(r"\bchecks? ((?:[a-z_0-9]+\.(?:[a-z_0-9]+|\*)(?:, | and )?)+)")
_ID = re.compile(r"[a-z_0-9]+\.(?:[a-z_0-9]+|\*)")


def test_each_check_that_a_text_sends_to_is_there() -> None:
    every = {text for _, text in texts()}
    starts = {text.partition("{")[0] for text in every if re.match(r"[a-z_]+\.\{", text)}
    named = [(place, each) for place, text in texts() for told in _CHECKS.findall(text) for each in _ID.findall(told)]
    assert len(named) > 10
    wrong = [
        f"{place}: {each}"
        for place, each in named
        if not (
            each in every
            or each.partition(".")[0] + "." in starts
            or (each.endswith(".*") and any(re.fullmatch(re.escape(each[:-1]) + r"[a-z_0-9]+", text) for text in every))
        )
    ]
    assert not wrong, "\n".join(wrong)


#: Of others, which nobody has to look at.
_OF_OTHERS = {"docker", "containerd", "nv-hostengine"}


def test_each_unit_that_a_remedy_starts_or_reads_is_one_that_is_known() -> None:
    ours = {unit for each in COMPONENTS.values() for unit in (*each.units, *chain(*each.package_units.values()))}
    known = {each.rpartition(".")[0] for each in {*UNITS, *ours}} | _OF_OTHERS
    found = [
        (place, unit.removesuffix(".service"))
        for place, text in texts()
        for verb, unit in re.findall(r"\b(systemctl (?:re)?start|journalctl -u) ([a-z][\w@.-]*\w)", text)
    ]
    assert len(found) > 5
    assert [row for row in found if row[1] not in known] == []


# --- what `up` mends, it has a change for ----------------------------------------------------------------------------


def spoilt(facts: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The node with one fact otherwise, as one that fails would have it; each with the place of the fact."""
    for path, value in _facts(facts):
        for other in _others(path, value):
            yield path, _with(facts, path, other)
        if (path[0] in ("services", "environments") and len(path) == 2) or path[-2:-1] == ("installed",):
            yield path, _with(facts, path, _GONE)


_GONE = object()
#: What no remedy speaks of, or where another value is no fault; and what is many times the same.
_LEFT_OUT = {"history", "os", "python", "proof"}
_FEW = 4
_STATES = {
    "active": ["inactive", "failed"],
    "enabled": ["disabled", "not-found"],
    "state": ["broken", "alone", "begun"],
    "loaded_modules": ["open", "proprietary"],
}


def _facts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if path:
        yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    every = [(key, each) for key, each in inner if path or key not in _LEFT_OUT]
    for key, each in every if len(path) < 2 else every[:_FEW] + every[_FEW:][-_FEW:]:
        yield from _facts(each, (*path, key))


def _others(path: tuple[Any, ...], value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        versions = [re.sub(r"\d+$", "1", value)] if re.match(r"\d+\.\d+", value) else []
        return [each for each in [*_STATES.get(path[-1], ()), *versions] if each != value] or [None]
    if isinstance(value, list):
        return [["/dev/nvidia0"]] if path[-1] == "unlinked" else [[]]
    return [None] if value is not None and not isinstance(value, dict) else []


def _with(facts: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy in which this is otherwise; what nvidia-smi says of the driver is what is loaded."""
    made = copy.deepcopy(facts)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    if value is _GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return made


def _mended_by(check_id: str, view: View, stack: Any) -> set[str]:
    """The components whose change mends what a check tells: that of its judge, or those of the driver."""
    if check_id.startswith("seals."):
        return {check_id.removeprefix("seals.")}
    own = {name for name, each in COMPONENTS.items() if check_id in [check["id"] for check in each.judge(view, stack)]}
    return own | {"reboot"} if own else {"nvidia_driver", "nouveau_blacklist", "repair", "reboot"}


def _is_answer(facts: Any) -> bool:
    """Whether the gate lets it in: what no node can answer has no remedy."""
    try:
        gate.admit("node_facts", json.dumps({"changed": False, "facts": facts}))
    except gate.Refused:
        return False
    return True


def _with_wish_of(remedy: str, asked: Wish) -> Wish:
    """The wish with what a remedy says to wish besides; without a name for it, with all that was wished before."""
    wants = re.findall(r"gpuwright up --want (\S+)", remedy)
    return Wish.from_wants(["driver", *wants]) if wants else EVERYTHING if "gpuwright up with" in remedy else asked


@pytest.mark.parametrize("asked", [EVERYTHING, wish(gpuwright_want=["driver"])], ids=["everything", "driver"])
def test_a_check_names_up_only_where_the_plan_has_a_change_for_it(asked: Wish) -> None:
    facts, _ = everything()
    facts["proof"] = None
    assert _is_answer(facts)
    stack = plan(facts, asked)["stack"]
    said: dict[tuple[str, str], int] = {}
    empty = []
    for path, node in spoilt(facts):
        if not _is_answer(node):
            continue
        for check in judge.judge(node, stack, {"proof": False}):
            remedy = str(check["remedy"])
            if check["status"] not in _WRONG or not _UP.search(remedy) or said.get((check["id"], remedy), 0) >= _FEW:
                continue
            said[check["id"], remedy] = said.get((check["id"], remedy), 0) + 1
            made = plan(node, _with_wish_of(remedy, asked))
            have = {change["component"] for change in made["changes"]}
            if made["ok"] and not have & _mended_by(check["id"], View(node), stack):
                empty.append(f"{check['id']}: {check['reason']} -> {remedy} ({path})")
    assert len({name for name, _ in said}) > 12
    assert not empty, "\n".join(empty)


def _without(*path: Any) -> Any:
    return lambda facts: _with(facts, path, _GONE)


def _put(value: Any, *path: Any) -> Any:
    return lambda facts: _with(facts, path, value)


def _no_environments(facts: Any) -> Any:
    return {
        **facts,
        "environments": {path: {**row, "python": None, "packages": {}} for path, row in facts["environments"].items()},
    }


def _condemned(facts: Any) -> Any:
    path = next(iter(facts["environments"]))
    failed = checks.failed("framework.import", expected=path, reason="it does not", action="install")
    return {**facts, "proof": {**facts["proof"], "checks": [failed, framework.judge_files(path, ["a file is gone"])]}}


def _no_module(facts: Any) -> Any:
    return _put(None, "kernel", "available", "nvidia")(_put(None, "kernel", "available", "nvidia")(facts))


#: What is measured is measured of a node that looks right. So each text that names `up` has here what a plan sees of the fault, after the
#: steps that stand before it, and the component that mends it.
_MEASURED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "which pulls them": (lambda facts: facts, {"container_toolkit_images": ["auto"]}, "container_toolkit"),
    "which makes the links": (_put(["/dev/nvidia0"], "containers", "cdi", "unlinked"), {}, "container_toolkit"),
    "gpuwright up --want fabric=NETWORK": (lambda facts: facts, {"fabric_firewall": ["10.9.0.0/24"]}, "fabric"),
    "move the environment away": (_no_environments, {}, "frameworks"),
    "move {} away": (_no_environments, {}, "frameworks"),
    "gpuwright up builds the environment": (_no_environments, {}, "frameworks"),
    "builds the environment anew": (_condemned, {}, "frameworks"),
    "run gpuwright up, which builds it anew": (_condemned, {}, "frameworks"),
    "gpuwright up, which builds it again": (_no_module, {}, "nvidia_driver"),
    "for the kernel that boots next": (_no_module, {}, "nvidia_driver"),
    "and reboot if it says so": (_put("580.65.06", "driver", "loaded_version"), {}, "reboot"),
    "gpuwright up --want monitoring=dcgm": (
        lambda _facts: of_ubuntu(),
        {"monitoring_source": "dcgm"},
        "monitoring_exporters",
    ),
    "install the package fio": (_without("packages", "installed", "fio"), {}, "validate"),
    "gpuwright up --user": (_no_environments, {}, "frameworks"),
    "gpuwright up --want pytorch": (_no_environments, {}, "frameworks"),
    "reboot the machine when it suits, then run gpuwright up again": (_put("another", "boot", "id"), {}, "validate"),
}


def _of_measurements() -> list[str]:
    places = ("plugins/module_utils/measure/", "plugins/modules/", "plugins/plugin_utils/plan/measurements.py")
    return [text for place, text in texts() if place.startswith(places) and _UP.search(text)]


def test_a_measurement_names_up_only_where_the_plan_has_a_change_for_what_it_found() -> None:
    measured = set(_of_measurements())
    assert measured
    assert [text for text in sorted(measured) if not _has_a_change(text)] == []


def _has_a_change(text: str) -> bool:
    """Whether the plan has a change of the component that the row of this text names, in the state that the row makes."""
    state, variables, component = next(row for words, row in _MEASURED.items() if words in text)
    facts, _ = everything()
    asked = wish(
        gpuwright_want=["cuda", "container-toolkit", "pytorch", "tensorflow", "jax"],
        **{"monitoring_source": "smi", "fabric_firewall": ["10.2.0.0/24"], **variables},
    )
    return component in {change["component"] for change in plan(state(facts), asked)["changes"]}


def test_every_state_of_a_measurement_is_that_of_a_text() -> None:
    assert [words for words in _MEASURED if not any(words in text for text in _of_measurements())] == []


@pytest.mark.parametrize(("pattern", "remedy"), containers._TROUBLES)
def test_an_engine_that_hands_out_no_cards_though_all_looks_right_is_not_left_to_up(pattern: str, remedy: str) -> None:
    facts, _ = everything()
    assert plan(facts, EVERYTHING)["changes"] == []
    assert pattern
    assert not _UP.search(remedy)
