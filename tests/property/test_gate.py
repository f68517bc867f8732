"""What a hostile node can say: honest answers with values of an attacker's, and with any value that the schemas allow.

The gate agrees with the library ``jsonschema`` on each of them; what it refuses has one sentence; and what it lets through can be planned.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import jsonschema
import pytest
from ansible.errors import AnsibleActionFail
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction
from ansible_collections.gpuwright.node.plugins.plugin_utils.gate.schema import SchemaError, compile_definitions
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import drift
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document, index_query, python_query, removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.gate import honest

DOCUMENT = json.loads(gate.ANSWERS.read_text(encoding="utf-8"))
DEFINITIONS = DOCUMENT["$defs"]
RULES = load_rules()
FACTS = (honest.bare(), honest.provisioned())
#: What an attacker puts in any place.
ATTACKS: tuple[Any, ...] = (
    *(
        "",
        " ",
        ".",
        "..",
        "/",
        "../../../../etc/shadow",
        "/etc/shadow",
        "/var/lib/../../etc/shadow",
        "a/../b",
        "-rf",
        "--option",
    ),
    *(
        "{{ lookup('pipe', 'touch /tmp/canary') }}",
        "{% for x in y %}",
        "$(reboot)",
        "`id`",
        "a;b",
        "a b",
        "%s%n",
        "{0.__class__}",
    ),
    *("\x1b[2J", "a\nb", "a\n", "\x00", "\x9b", "\u202e", "\u2028", "\ud800", "é", "x" * 5000),
    *(0, -1, 2**63, 10**30, 1.5, -1e300, True, False, None),
    *([], {}, [[]], [None], {"": None}, {"a": {}}, ["x"] * 20, {"__ansible_type": "x"}, {"../x": 1}, {"a\x1b": 1}),
)
#: Words of the field in places where others are expected.
WORDS = (
    *(
        "nvidia_driver",
        "cuda",
        "mig",
        "runfile",
        "nvidia",
        "distro",
        "preinstalled",
        "open",
        "proprietary",
        "good",
        "broken",
        "newer",
    ),
    *(
        "580",
        "999",
        "0",
        "580.178.04",
        "580.126.20",
        "1:2.3-4~x+y",
        "9" * 30,
        "2026-11-20T12:00:00Z",
        "2330",
        "00000000:18:00.0",
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from places(inner, (*path, key))


PLACES = [(number, path) for number, facts in enumerate(FACTS) for path in places(facts) if path]
#: Records of earlier runs, and what decides of the driver, are taken as often as everything else together.
RECORDS = [
    (number, path) for number, path in PLACES if path[0] in ("seals", "history", "proof", "driver", "kernel", "pci")
]


def schema_at(path: tuple[Any, ...]) -> Any:
    """The schema of a place in the facts."""
    schema: Any = DEFINITIONS["facts"]
    for key in path:
        schema = container(schema, key)
        schema = (
            schema["items"]
            if isinstance(key, int)
            else schema.get("properties", {}).get(key) or schema["additionalProperties"]
        )
    return resolved(schema)


def resolved(schema: Any) -> Any:
    while "$ref" in schema:
        schema = DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")]
    return schema


def container(schema: Any, key: Any) -> Any:
    """The schema, or the one of several, that has an entry of this name."""
    schema = resolved(schema)
    branches = [container(each, key) for each in schema["anyOf"]] if "anyOf" in schema else [schema]
    wanted = "items" if isinstance(key, int) else "properties"
    fitting = [each for each in branches if wanted in each or each.get("additionalProperties")]
    named = [each for each in fitting if isinstance(key, str) and key in each.get("properties", {})]
    return (named or fitting)[-1] if named or fitting else {}


def allowed(schema: Any, depth: int = 3) -> st.SearchStrategy[Any]:
    """Values that a schema allows, small ones and those at its edges."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of([allowed(each, depth) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([of_type(name, schema, depth) for name in types])


def of_type(name: str, schema: Any, depth: int) -> st.SearchStrategy[Any]:
    if name == "string":
        return text(schema)
    if name in ("integer", "number"):
        whole = st.integers(int(schema["minimum"]), int(schema["maximum"]))
        return whole if name == "integer" else st.one_of(whole, st.floats(schema["minimum"], schema["maximum"]))
    if name == "array":
        return (
            st.lists(allowed(schema["items"], depth - 1), max_size=min(2, schema["maxItems"])) if depth else st.just([])
        )
    if name == "object":
        return entries(schema, depth)
    return st.booleans() if name == "boolean" else st.none()


def text(schema: Any) -> st.SearchStrategy[str]:
    most = schema["maxLength"]
    if "pattern" not in schema:
        return st.one_of(st.text(max_size=min(20, most)), st.just("x" * most))
    fitting = [word for word in WORDS if len(word) <= most and re.search(schema["pattern"], word)]
    drawn = st.from_regex(schema["pattern"]).filter(lambda word: schema.get("minLength", 0) <= len(word) <= most)
    return st.one_of(st.sampled_from(fitting), drawn) if fitting else drawn


def entries(schema: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    known, required = schema.get("properties", {}), schema.get("required", [])
    fixed = {key: allowed(known[key], max(depth - 1, 0)) for key in required}
    optional = (
        {key: allowed(each, depth - 1) for key, each in known.items() if key not in required} if depth > 0 else {}
    )
    made: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(fixed, optional=optional)
    if depth <= 0 or schema["additionalProperties"] is False:
        return made
    others = st.dictionaries(
        allowed(schema["propertyNames"]), allowed(schema["additionalProperties"], depth - 1), max_size=2
    )
    return st.builds(lambda other, ours: {**other, **ours}, others, made)


def at(facts: Any, path: tuple[Any, ...]) -> Any:
    """What holds a place; None where an earlier change has taken the place away."""
    inner: Any = facts
    for key in path:
        there = (
            key < len(inner)
            if isinstance(key, int) and isinstance(inner, list)
            else isinstance(inner, dict) and key in inner
        )
        if not there:
            return None
        held, inner = inner, inner[key]
    return held


@st.composite
def hostile_facts(draw: st.DrawFn, attacks: bool = True) -> Any:
    """Facts of an honest node in which one to four places have another value, or are gone."""
    number, first = draw(st.one_of(st.sampled_from(PLACES), st.sampled_from(RECORDS)))
    others = st.sampled_from([path for each, path in RECORDS if each == number])
    chosen = [first, *draw(st.lists(others, max_size=3))]
    facts = copy.deepcopy(FACTS[number])
    for path in chosen:
        inner = at(facts, path)
        if inner is None:
            continue
        kind = draw(st.sampled_from(("allowed", "allowed", "attack", "gone") if attacks else ("allowed",)))
        if kind == "gone":
            del inner[path[-1]]
        else:
            inner[path[-1]] = draw(allowed(schema_at(path)) if kind == "allowed" else st.sampled_from(ATTACKS))
    return facts


def through(facts: Any) -> Any:
    """The facts as they come out of the gate. Raises gate.Refused."""
    admitted: Any = json.loads(gate.admit("node_facts", honest.said(facts)))["facts"]
    return admitted


def texts(value: Any) -> Iterator[str]:
    """Every text in a document, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value:
            yield from texts(each)
        if isinstance(value, dict):
            yield from texts(list(value.values()))


# --- the gate and the library ------------------------------------------------------------------------------------------


def test_the_schemas_are_of_the_standard() -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)


LIBRARY = jsonschema.Draft202012Validator({"$ref": "#/$defs/facts", "$defs": DEFINITIONS})


@given(hostile_facts())
def test_the_gate_allows_what_the_library_allows_and_refuses_the_rest_with_one_sentence(facts: Any) -> None:
    allows = LIBRARY.is_valid(copy.deepcopy(facts))
    told, admitted = "", {}
    try:
        admitted = through(facts)
    except gate.Refused as error:
        told = str(error)
    assert allows == (not told)
    assert told.isprintable()
    assert len(told) < 600
    assert all(each.replace("\n", "").replace("\t", "").isprintable() for each in texts(admitted))


@pytest.mark.parametrize("name", ["package_index", "python_index", "nvidia_smi", "fio", "failure"])
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_so_it_does_for_the_other_modules(name: str, data: st.DataObject) -> None:
    answer = data.draw(allowed(DEFINITIONS[name]))
    chosen = data.draw(st.sampled_from([path for path in places(answer) if path] or [()]))
    if chosen:
        inner: Any = answer
        for key in chosen[:-1]:
            inner = inner[key]
        inner[chosen[-1]] = data.draw(st.sampled_from((inner[chosen[-1]], *ATTACKS)))
    answer["failed"] = name == "failure"
    library = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": DEFINITIONS})
    allows = library.is_valid(copy.deepcopy(answer))
    try:
        gate.admit(name, json.dumps(answer))
    except gate.Refused:
        assert not allows
    else:
        assert allows


#: On what Ansible acts in a result, of whatever module that is.
ACTS = ("ansible_facts", "add_host", "add_group", "ansible_stats", "include", "_ansible_notify", "_ansible_no_log")
#: What it takes for blank, or for the end of a line, and letters, which are neither.
AROUND = (
    "",
    " ",
    "\t",
    "\n",
    "\r",
    "\v",
    "\f",
    "\x00",
    "\x1c",
    "\x85",
    "\xa0",
    "\u2028",
    "\u2029",
    "\u3000",
    "\ufeff",
    "x",
    "{",
    "}",
    "| ",
)


@pytest.mark.parametrize("name", ["driver_module", "root_owned", "node_seal", "failure"])
@given(data=st.data())
def test_on_nothing_that_a_node_says_does_ansible_act(name: str, data: st.DataObject) -> None:
    answer = data.draw(allowed(DEFINITIONS[name]))
    answer |= {
        key: {"host_name": "sesame", "gpuwright_run_dir": "/"}
        for key in data.draw(st.lists(st.sampled_from(ACTS), min_size=1, max_size=2))
    }
    # As long as what is shortened in its middle, or not.
    written = json.dumps(answer).rjust(data.draw(st.sampled_from((0, gate.MOST_WORDS // 2))))
    begin, end = data.draw(st.sampled_from(("", *AROUND))), data.draw(st.sampled_from(("", "", "", *AROUND)))
    before = "x" * data.draw(st.sampled_from((0, gate.MOST_WORDS)))
    action = NodeAction.__new__(NodeAction)
    action._asked, action._used_interpreter = (name, "gpu17"), None
    heard = {"stdout": f"{before}{begin}{written}{end}", "stderr": "", "rc": 0}
    try:
        result = action._parse_returned_data(heard, "legacy")
    except AnsibleActionFail:
        return
    assert not set(ACTS) & result.keys()
    assert result["_ansible_parsed"] is False


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string", "maxLength": 1, "minimum": 1}, "keywords that are not known"),
        ({"type": "string"}, "maxLength is missing"),
        ({"type": "string", "maxLength": 1, "oneOf": []}, "keywords that are not known"),
        ({"type": "array", "items": {"type": "null"}}, "maxItems is missing"),
        ({"type": "array", "maxItems": 1}, "items is missing"),
        ({"type": "object"}, "additionalProperties is missing"),
        ({"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1}, "propertyNames is missing"),
        ({"type": "integer", "minimum": 0}, "maximum is missing"),
        ({"type": "text"}, "a type is one of"),
        ({"$ref": "#/$defs/none"}, "there is no definition none"),
        ({"$ref": "other.json#/$defs/a"}, "leads out of the file"),
        ({"enum": [1]}, "an enumeration has texts and null"),
        ({"anyOf": [], "type": "null"}, "nothing stands beside an anyOf"),
    ],
)
def test_a_schema_that_is_not_understood_or_has_no_limit_is_an_error(schema: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(told)):
        compile_definitions({"$defs": {"a": schema}})


# --- what comes of it --------------------------------------------------------------------------------------------------


#: What is wanted by default, and what a file of NVIDIA's brings.
WISHES = (
    Wish.from_variables({}).with_defaults(),
    Wish.from_variables({"gpuwright_want": ["driver-source=runfile", "cuda", "pytorch"]}, RULES),
)


@pytest.mark.parametrize("verb", ["up", "upgrade", "rollback", "remove", "status"])
@settings(max_examples=settings().max_examples // 2)
@given(facts=hostile_facts(attacks=False), number=st.sampled_from((0, 1)), index=st.booleans())
def test_what_comes_through_can_be_planned(verb: str, facts: Any, number: int, index: bool) -> None:
    try:
        admitted = through(facts)
    except gate.Refused:
        reject()
    request = Request(host="node", today=date(2026, 11, 20), verb=verb, local=bool(number))
    if verb == "remove":
        planned = removal.take_back(admitted, request)
        removal.left(admitted, ())
    else:
        drafted = make_draft(admitted, WISHES[number], RULES, request)
        planned = drafted if isinstance(drafted, dict) else finish(drafted, honest.INDEX if index else None)
    document.describe(planned)
    if verb == "status":
        drift.status(admitted, planned)
    records.ended_in_plan(planned)
    assert planned["from_controller"] is None


@given(index=allowed(DEFINITIONS["package_index"]), facts=st.sampled_from(FACTS))
def test_any_answer_of_an_index_that_comes_through_can_be_planned_with(index: Any, facts: Any) -> None:
    index["failed"] = False
    admitted = json.loads(gate.admit("package_index", json.dumps(index)))
    request = Request(host="node", today=date(2026, 11, 20), verb="up")
    drafted = make_draft(through(facts), WISHES[0], RULES, request)
    assert isinstance(drafted, Draft)
    index_query.absent(drafted, admitted)
    index_query.tightened(drafted, admitted)
    finish(drafted, admitted)


@given(index=allowed(DEFINITIONS["python_index"]), names=st.booleans())
def test_any_answer_of_a_python_index_that_comes_through_can_be_planned_with(index: Any, names: bool) -> None:
    index["failed"] = False
    request = Request(host="node", today=date(2026, 11, 20), verb="up")
    drafted = make_draft(through(FACTS[0]), Wish.from_wants(["pytorch"]), RULES, request)
    assert isinstance(drafted, Draft)
    for demand, answer in zip(python_query.demands(drafted), index["answers"] if names else (), strict=False):
        for file in answer["fits"]:
            file["version"] = demand.version
    admitted = json.loads(gate.admit("python_index", json.dumps(index)))
    plan = finish(drafted, None, python_query.judged(drafted, admitted, RULES))
    assert plan["download_bytes"] >= 0
