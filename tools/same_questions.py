# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The questions of tools/same_answers.py, made in the tree that knows the answers.

The unit tests of that tree are run, and what they hand to the planner, the judges and the resolver is written down: the observation, the
wish by the variables it came from, the request, the answers of the package index. What was made otherwise (rules of a test's own, a wish
that was changed by hand) cannot be asked again in another tree and is counted only. What a test leaves out of an answer of a node is
filled in, see tools/same_shape.py.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

Entry = Callable[[str], Any]
#: Where each function of a name is in this tree: modules and the name there.
Places = Callable[[str], list[tuple[Any, str]]]
#: A value with all that the definition of a name requires, after a model.
Filled = Callable[[str, Any, Any], Any]

#: Tests that are run for what they ask; those of the gate, of secrets and of observing ask nothing else.
TESTS = ("plan", "resolve", "prove")
VERBS = ("plan", "up", "upgrade", "rollback", "remove", "doctor", "status")
TODAY = date(2026, 11, 20)
_DEFAULTS: tuple[tuple[Any, ...], ...] = (("variables", {}), ("with_defaults",))
#: Wishes that each scenario is asked with, beside the one by default.
WISHES: tuple[tuple[str, ...], ...] = (
    ("driver",),
    ("driver=580", "cuda=12.8", "cudnn", "container-toolkit"),
    ("driver-source=distro",),
    ("driver-source=runfile",),
    ("pytorch", "tensorflow", "jax", "python=3.13"),
)
_BUILD = {"version": "580.178.04", "open": True}
#: What of a node that is provisioned is not in the files of its tree.
_PROVISIONED = ("driver", "containers", "environments", "services", "packages")


def digest(value: Any) -> str:
    """A short name for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


class Recorder:
    """Writes down what is asked, at the outermost of the functions that are watched."""

    def __init__(
        self,
        entry: Entry,
        wish_of: Callable[..., Any],
        request_of: Callable[..., Any],
        filled: Filled = lambda _name, value, _model: value,
    ) -> None:
        self.entry, self.wish_of, self.request_of, self.filled = entry, wish_of, request_of, filled
        self.facts: dict[str, Any] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.wishes: dict[int, tuple[Any, list[Any]]] = {}
        self.machines: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.drafts: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.passed: dict[str, int] = {}
        self.depth = 0
        self.rules = entry("rules")()
        self.blank = entry("wish")()
        self.seen: dict[str, dict[str, Any]] = {}

    # what was asked

    def add(self, kind: str, row: dict[str, Any], facts: Any = None) -> dict[str, Any] | None:
        """The row, which is there once; None where it is no JSON."""
        try:
            if facts is not None:
                text = json.dumps(facts, sort_keys=True)
                row["facts"] = digest(json.loads(text))
                self.facts.setdefault(row["facts"], json.loads(text))
            row = json.loads(json.dumps({"kind": kind, **row}))
        except (TypeError, ValueError):
            self.pass_over("no JSON")
            return None
        mark = digest(row)
        if mark in self.seen:
            return self.seen[mark]
        self.seen[mark] = row
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" (")[0].removeprefix("tests/unit/")
        self.rows[f"{kind} {mark} {test}".rstrip()] = row
        return row

    def observation(self, facts: Any) -> Any:
        """The whole observation of which a test says a part."""
        from tests.unit.plan import nodes

        return self.filled("facts", facts, nodes.bare())

    def answered(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A question with whole answers of the node in it."""
        full = dict(row)
        if "indexes" in row:
            indexes = [self.filled("package_index", index, None) for index in row["indexes"]]
            full["indexes"] = [index for place, index in enumerate(indexes) if index not in indexes[:place]]
        if "seen" in row:
            full["seen"] = self.filled("kernel_log", row["seen"], None)
        if row.get("judge") == "judge_smi" and row["arguments"]:
            full["arguments"] = [self.filled("smi_data", row["arguments"][0], None), *row["arguments"][1:]]
        if isinstance(row.get("stack"), dict) and row["stack"].get("driver"):
            full["stack"] = {**row["stack"], "driver": self.filled("driver_stack", row["stack"]["driver"], None)}
        return full

    def questions(self) -> dict[str, Any]:
        """All that was asked, each once, with whole observations and answers: rows by name, and observations by digest.

        They are filled here and not when they are asked, because there are tests that measure time.
        """
        observed = {name: self.observation(facts) for name, facts in self.facts.items()}
        rows: dict[str, Any] = {}
        there: dict[str, str] = {}
        for name, row in self.rows.items():
            full = self.answered(row)
            if "facts" in row:
                full["facts"] = digest(observed[row["facts"]])
            rows[there.setdefault(digest(full), name)] = full
        return {"facts": {digest(facts): facts for facts in observed.values()}, "rows": rows}

    def pass_over(self, why: str) -> None:
        """Count what cannot be asked again."""
        self.passed[why] = self.passed.get(why, 0) + 1

    def known(self, wish: Any) -> list[Any] | None:
        """How a wish was made; None where that is not known."""
        made = self.wishes.get(id(wish))
        if made is not None:
            return made[1]
        return [["variables", {}]] if wish == self.blank else None

    def wish(self, wish: Any) -> list[Any] | None:
        """How a wish that is asked with was made; where that is not known, it is counted."""
        made = self.known(wish)
        if made is None:
            self.pass_over("a wish made by hand")
        return made

    def draft(self, facts: Mapping[str, Any], steps: Sequence[Any], fields: Mapping[str, Any]) -> Any:
        """What the planner drafts of an observation."""
        return self.entry("draft")(copy.deepcopy(facts), self.wish_of(steps), self.rules, self.request_of(fields))

    # what is watched

    def outermost(self, function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        """The function, and NOTE of its result and arguments where it was not called by another one of those that are watched."""

        def watched(*arguments: Any, **named: Any) -> Any:
            outer = self.depth == 0
            kept = (
                copy.deepcopy(arguments) if outer and note in {self.drafted, self.judged, self.took_back} else arguments
            )
            self.depth += 1
            try:
                result = function(*arguments, **named)
            finally:
                self.depth -= 1
            if outer:
                try:
                    # The deep copy is for what may be changed later; wishes and machines are known by what they are.
                    note(result, arguments, named, kept)
                except (TypeError, ValueError, LookupError, AttributeError) as error:
                    self.pass_over(f"{note.__name__}: {type(error).__name__}: {error}"[:100])
            return result

        return watched

    def made_wish(self, result: Any, arguments: Any, named: Any, _kept: Any) -> None:
        """from_variables(variables) and from_wants(wants)."""
        if not self.ours([*arguments[1:], *named.values()]):
            return
        given = arguments[0] if isinstance(arguments[0], Mapping) else {"gpuwright_want": list(arguments[0])}
        self.wishes[id(result)] = (result, [["variables", json.loads(json.dumps(given))]])

    def locked_wish(self, result: Any, arguments: Any, _named: Any, _kept: Any) -> None:
        """lock.as_wish(document, variables)."""
        self.wishes[id(result)] = (result, [["lock", *json.loads(json.dumps(arguments[:2]))]])

    def stepped(self, step: str) -> Callable[..., None]:
        """A method of a wish that makes another one."""

        def note(result: Any, arguments: Any, _named: Any, _kept: Any) -> None:
            made = self.known(arguments[0])
            if made is not None and result is not arguments[0]:
                more = [list(arguments[1])] if len(arguments) > 1 and arguments[1] is not None else []
                self.wishes[id(result)] = (result, [*made, [step, *more]])

        return note

    def overlaid(self, result: Any, arguments: Any, _named: Any, _kept: Any) -> None:
        """wish.overlaid(other)."""
        one, other = self.known(arguments[0]), self.known(arguments[1])
        if one is not None and other is not None:
            self.wishes[id(result)] = (result, [*one, ["overlaid", other]])

    def ours(self, rules: Sequence[Any]) -> bool:
        """Whether these are the rules of the tree, and not a test's own."""
        if all(each is None or each is self.rules or each == self.rules for each in rules):
            return True
        self.pass_over("rules of a test's own")
        return False

    def described(self, result: Any, arguments: Any, named: Any, _kept: Any) -> None:
        """machine_from_options(gpus, os, arch, assume, rules, today=)."""
        gpus, system, arch, assume, rules = arguments
        if self.ours([rules]) and named.get("today"):
            said = dict(assume) if isinstance(assume, Mapping) else list(assume or [])
            row = {"gpus": list(gpus), "os": system, "arch": arch, "assume": said, "today": named["today"].isoformat()}
            self.machines[id(result)] = (result, row)

    def observed(self, result: Any, arguments: Any, named: Any, _kept: Any) -> None:
        """machine_from_facts(facts, wish, rules, today=, ...)."""
        if self.ours([arguments[2]]) and named.get("today"):
            options = {key: value for key, value in named.items() if key != "today"}
            options = {key: list(value) if isinstance(value, (set, tuple)) else value for key, value in options.items()}
            row = {"seen": copy.deepcopy(arguments[0]), "options": options, "today": named["today"].isoformat()}
            self.machines[id(result)] = (result, row)

    def resolved(self, _result: Any, arguments: Sequence[Any], named: Mapping[str, Any], _kept: Any) -> None:
        """resolve(machine, wish, rules)."""
        where, wish, rules = (*arguments, *named.values())
        machine, made = self.machines.get(id(where)), self.wish(wish)
        if machine is None:
            self.pass_over("a machine made by hand")
        elif made is not None and self.ours([rules]):
            row = dict(machine[1])
            self.add("resolve", {**row, "wish": made}, row.pop("seen", None))

    def drafted(self, result: Any, arguments: Any, _named: Any, kept: Any) -> None:
        """draft(facts, wish, rules, request)."""
        made = self.wish(arguments[1])
        if made is None or not self.ours([arguments[2]]):
            return
        row = self.add("plan", {"wish": made, "request": fields_of(arguments[3]), "indexes": []}, kept[0])
        if row is not None:
            self.drafts[id(result)] = (result, row)

    def finished(self, _result: Any, arguments: Sequence[Any], named: Mapping[str, Any], _kept: Any) -> None:
        """finish(drafted, index)."""
        drafted, index, *wheels = (*arguments, *named.values())
        if any(wheels):
            self.pass_over("an answer of the Python index")
            return
        if id(drafted) not in self.drafts:
            self.pass_over("a draft that was made by hand or changed")
            return
        row = self.drafts[id(drafted)][1]
        answer = json.loads(json.dumps(index))
        if answer not in row["indexes"]:
            row["indexes"].append(answer)

    def floored(self, result: Any, arguments: Any, _named: Any, _kept: Any) -> None:
        """to_the_floor(drafted, index, rules)."""
        if id(arguments[0]) in self.drafts and self.ours([arguments[2]]):
            self.drafts[id(result)] = (result, self.drafts[id(arguments[0])][1])

    def took_back(self, _result: Any, arguments: Any, _named: Any, kept: Any) -> None:
        """take_back(facts, request)."""
        self.add("plan", {"remove": True, "request": fields_of(arguments[1])}, kept[0])

    def judged(self, _result: Any, _arguments: Any, named: Any, kept: Any) -> None:
        """judge(facts, stack, expected)."""
        given = dict(zip(("stack", "expected"), kept[1:], strict=False))
        self.add("judge", {"stack": None, "expected": None, **given, **named}, kept[0])

    def measured(self, judge: str) -> Callable[..., None]:
        """A judge of what was measured; what is no plain JSON cannot be asked again."""

        def note(_result: Any, arguments: Any, named: Any, _kept: Any) -> None:
            given = {"arguments": list(arguments), "named": dict(named)}
            if json.loads(json.dumps(given)) == given:
                self.add("judge", {"judge": judge, **given})
            else:
                self.pass_over("measured, and no JSON")

        return note

    def read_log(self, _result: Any, arguments: Any, _named: Any, _kept: Any) -> None:
        """judge_kernel_log.judge(seen, rules)."""
        if self.ours([arguments[1]]):
            self.add("judge", {"seen": arguments[0]})

    def watch(self, there: Places) -> None:
        """Put a watched function in the place of each, before a test imports it."""
        notes = {
            "lock_as_wish": self.locked_wish,
            "described": self.described,
            "observed": self.observed,
            "resolve": self.resolved,
            "draft": self.drafted,
            "finish": self.finished,
            "take_back": self.took_back,
            "to_the_floor": self.floored,
            "judge": self.judged,
            "judge_kernel_log": self.read_log,
            "judge_smi": self.measured("judge_smi"),
            "judge_fio": self.measured("judge_fio"),
        }
        for name, note in notes.items():
            function = self.entry(name)
            for module, attribute in there(name):
                if getattr(module, attribute) is function:
                    setattr(module, attribute, self.outermost(function, note))
        wish = self.entry("wish")
        for step in ("with_defaults", "with_roles"):
            setattr(wish, step, self.outermost(getattr(wish, step), self.stepped(step)))
        wish.overlaid = self.outermost(wish.overlaid, self.overlaid)
        for maker in ("from_variables", "from_wants"):
            setattr(wish, maker, staticmethod(self.outermost(getattr(wish, maker), self.made_wish)))


def fields_of(request: Any) -> dict[str, Any]:
    """The fields of a request, as JSON has them."""
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    blank = type(request)(host="", today=TODAY)
    said = {name: value for name, value in fields.items() if name in {"host", "verb"} or value != getattr(blank, name)}
    return json.loads(json.dumps({**said, "today": request.today.isoformat()}))


def index_for(drafted: Any, every: str = "/./") -> dict[str, Any]:
    """What a package index answers that has every package as the draft wants it; ``every``: the key of what goes for all of them."""
    keep: dict[str, str] = dict(drafted.keep)
    rows = [
        {
            "name": name,
            "version": _whole(keep.get(name, keep.get(every, ""))),
            "download_bytes": 1000,
            "installed_bytes": 5000,
        }
        for name in drafted.packages
    ]
    comes = {row["name"]: row["version"] for row in rows}
    leaves = sorted(set(drafted.replaced) - set(comes))
    return {
        "exchange": {"comes": comes, "leaves": leaves} if drafted.replaced else None,
        "packages": {name: {"candidate": version, "versions": [version]} for name, version in comes.items()},
        "install": rows,
        "download_bytes": 1000 * len(rows),
        "disk_bytes": 5000 * len(rows),
        "problems": [],
        "enabled": [],
        "others": {},
        "removes": [],
        "downgrades": [],
    }


def _whole(start: str) -> str:
    """A version that begins so."""
    if not start:
        return f"{_BUILD['version']}-1"
    return start + {"-": "1", ".": "99-1"}.get(start[-1], "")


# --- beside what the tests ask ---------------------------------------------------------------------------------------------------


def with_every_verb(recorder: Recorder, facts: Mapping[str, Any], wishes: Sequence[Sequence[Any]], **more: Any) -> None:
    """An observation with every verb, and with an index that has all that is asked for."""
    facts = recorder.observation(facts)
    for verb in VERBS:
        fields = {"host": "node", "today": TODAY.isoformat(), "verb": verb, **more}
        if verb == "remove":
            recorder.add("plan", {"remove": True, "request": fields}, facts)
            continue
        for steps in wishes:
            row = recorder.add("plan", {"wish": list(steps), "request": fields, "indexes": [None]}, facts)
            if row is None or row["indexes"] != [None]:
                continue
            try:
                drafted = recorder.draft(facts, steps, fields)
            except Exception as error:  # noqa: BLE001 - an observation that a test broke on purpose; the question stays
                recorder.pass_over(f"no index: {type(error).__name__}")
                continue
            if not isinstance(drafted, dict) and drafted.packages:
                row["indexes"].append(json.loads(json.dumps(index_for(drafted))))


def scenarios(recorder: Recorder) -> None:
    """Every scenario of the simulated node: as it comes, with a driver, and provisioned and sealed."""
    import yaml

    from tests.sim import scenario, settings, tree
    from tests.unit.plan import nodes

    entry = recorder.entry
    wishes = [_DEFAULTS, *([("variables", {"gpuwright_want": list(wants)})] for wants in WISHES)]
    systems = {row["os"]: row for row in recorder.rules["systems"]["rows"]}
    for path in sorted((settings.HERE / "scenarios").glob("*.yaml")):
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        named = scenario.expand(given, path.stem)
        # A tree of files is Debian's or Ubuntu's; of another system it has the cards and the kernels.
        other = named["os"] if not named["os"].startswith(("debian", "ubuntu")) else None
        node = {**named, "os": "debian-13"} if other else named
        for driver in (None, _BUILD):
            with tempfile.TemporaryDirectory(prefix="same-answers-") as place:
                root = Path(place)
                tree.make_root(root, node, driver)
                seen = entry("observe")(entry("host")(place, machine="x86_64", euid=0), history=True)
            seen = json.loads(json.dumps(seen).replace(place, "")) | {
                "root": "/",
                "time": f"{TODAY.isoformat()}T12:00:00Z",
            }
            if other:
                row = systems[other]
                seen["os"] |= {key: row[key] for key in ("id", "version", "codename", "name", "family", "glibc")}
                seen["packages"] |= {"manager": "dnf", "sources": []}
            with_every_verb(recorder, seen, wishes)
            if driver:
                made = nodes.provisioned()
                done = nodes.merged(seen, {key: made[key] for key in _PROVISIONED})
                with_every_verb(recorder, done, wishes)
                with_every_verb(recorder, sealed(recorder, done), wishes)


def sealed(recorder: Recorder, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same node with good seals of what is wished by default, and a fresh proof."""
    entry = recorder.entry
    facts = recorder.observation(facts)
    drafted = recorder.draft(facts, _DEFAULTS, {"host": "node", "today": TODAY.isoformat(), "verb": "up"})
    plan = (
        drafted
        if isinstance(drafted, dict)
        else entry("finish")(
            drafted, recorder.filled("package_index", index_for(drafted), None) if drafted.packages else None
        )
    )
    gpus = [f"10de:{card['device']}" for card in facts["pci"]["gpus"] or ()]
    seals = {
        name: {
            "state": "good",
            "reason": None,
            "digest": value,
            "gpuwright": "0.1.0",
            "stack": entry("stack_part")(name, plan["stack"]),
            "gpus": gpus,
            "packages": {},
        }
        for name, value in plan["digests"].items()
    }
    proof = {
        "verdict": "pass",
        "time": f"{TODAY.isoformat()}T11:00:00+00:00",
        "boot_id": facts["boot"]["id"],
        "driver": facts["driver"]["loaded_version"],
        "stack_digest": plan["stack_digest"],
        "gpus": [],
    }
    return json.loads(json.dumps({**facts, "seals": seals, "proof": proof}))


def drawn(recorder: Recorder, number: int, seed: int) -> None:
    """Machines and wishes by chance, the same ones for the same seed."""
    import hypothesis

    from tests.property import machines

    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(machines.questions)
    def draw(question: Any) -> None:
        found.append(question)

    draw()
    for question in found:
        machine = dict(question.machine)
        wish = [
            ["variables", {"gpuwright_want": list(question.wants), "gpuwright_repository_keys": machine.pop("keys")}]
        ]
        facts = machine.pop("facts", None)
        options = {"options": {"absent": machine.pop("absent", [])}} if facts is not None else {}
        recorder.add("resolve", {**machine, **options, "wish": wish}, facts)


def make(
    entry: Entry,
    makers: tuple[Callable[..., Any], Callable[..., Any], Filled],
    places: Places,
    *,
    machines: int,
    seed: int,
) -> dict[str, Any]:
    """All questions: rows by name, and the observations that they are about by digest. ``makers``: of a wish,
    of a request, and of a whole answer.
    """
    import pytest

    recorder = Recorder(entry, *makers)
    recorder.watch(places)
    tests = [f"tests/unit/{name}" for name in TESTS if Path("tests/unit", name).is_dir()]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(
            ["-q", "-p", "no:cacheprovider", "-m", "not slow and not sim", "--no-header", "--tb=line", *tests]
        )
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    lines = said.getvalue().strip().splitlines() or ["nothing"]
    print(f"tests of the old state (pytest {int(code)}): {lines[-1]}", file=sys.stderr)
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(line, file=sys.stderr)
    of_tests = len(recorder.rows)
    recorder.depth = 1  # what is asked from here on is added by name
    observed = [facts for facts in recorder.facts.values() if whole(facts)]
    for facts in observed:
        with_every_verb(recorder, facts, [_DEFAULTS])
    of_verbs = len(recorder.rows)
    scenarios(recorder)
    of_scenarios = len(recorder.rows)
    drawn(recorder, machines, seed)
    counts = [of_tests, of_verbs - of_tests, of_scenarios - of_verbs, len(recorder.rows) - of_scenarios]
    print(
        "questions: {} of the tests, {} of their {} observations with every verb, {} of scenarios, {} drawn".format(
            counts[0], counts[1], len(observed), *counts[2:]
        ),
        file=sys.stderr,
    )
    print(f"passed over: {recorder.passed}", file=sys.stderr)
    return recorder.questions()


def whole(facts: Mapping[str, Any]) -> bool:
    """Whether it is an observation of a node, and not a part that one judge is shown."""
    return {"os", "pci", "kernel", "driver", "packages", "seals", "proof", "environment"} <= set(facts)
