"""The resolver and its rules, as the commands use them. Imported late: `--help` and `--version` need none of it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwright import __version__, given, paths
from gpuwright.errors import BadInput, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import About
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import Lock
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Ended
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Answer, RulesAge
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.catalogue import Description
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import Machine
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish


@dataclass(frozen=True)
class Question:
    """What `resolve` is asked: a machine in words or an observation of one, and a wish.

    Attributes:
        gpus: cards as people name them.
        os_name: `ubuntu-24.04`; none means this machine's.
        arch: `x86_64`; none means this machine's.
        assume: what decides and is not given, as `key=value`.
        wants: components, as `--want` takes them.
        wish: the variables of `--wish`.
        facts: an observation; then all but the wish is unused.
    """

    gpus: Sequence[str] = ()
    os_name: str | None = None
    arch: str | None = None
    assume: Sequence[str] = ()
    wants: Sequence[str] = ()
    wish: Mapping[str, object] = field(default_factory=dict)
    facts: Facts | None = None


def resolve(question: Question) -> Answer:
    """Ask the resolver; the answer is the contract's JSON of `resolve --json`.

    Raises:
        BadInput: a card, component, operating system or assumption is not known.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
        from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import images
        from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver

        where, wished = _asked(question)
        table = rules.load_rules()
        answer = resolver.resolve(where, wished, table)
        if answer["ok"]:
            answer["images"] = images.choose(where, wished, answer["stack"], table)
        return answer


def _asked(question: Question) -> tuple[Machine, Wish]:
    """The machine and the wish of a question, as the resolver takes them."""
    from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import wish

    table = rules.load_rules()
    wished = wish.Wish.from_variables({"gpuwright_want": list(question.wants), "gpuwright_wish": dict(question.wish)})
    if question.facts is not None:
        return machine.machine_from_facts(question.facts, wished, table), wished
    where = machine.machine_from_options(question.gpus, question.os_name, question.arch, question.assume, table)
    return where, wished


def find_cards(pattern: str | None, few: int | None = None) -> list[Description]:
    """The cards the rules know whose name or PCI id matches; of more than `few`, PyTorch alone of the frameworks.

    Raises:
        BadInput: none does.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
        from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import catalogue

        return catalogue.find(pattern, rules.load_rules(), few=few)


def fleet() -> ModuleType:
    """The collection's module for what a status shows: Ansible alone shows the same."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import fleet

    return fleet


def rules_age() -> RulesAge:
    """The date of the rules, and how many days old they are today."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import rules

    return rules.age(rules.load_rules(), date.today())  # noqa: DTZ011 - days, not moments


def check_wish(wants: Sequence[str], variables: Mapping[str, object]) -> None:
    """Refuse a wish that cannot be understood before any host is asked.

    Raises:
        BadInput: with what is near.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings, wish

        wish.Wish.from_variables({"gpuwright_want": list(wants), "gpuwright_wish": dict(variables)})
        settings.read(variables)


def refuse_templates(option: str, value: Any) -> None:
    """Refuse a template in what an option says: Ansible would run it on this machine.

    Raises:
        BadInput: there is one.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import plain

    for place, text in plain.templates({option: value}):
        raise BadInput(
            f"{place} has to be plain text, found the template {text!r}",
            ["write the value itself; what Ansible is to render belongs into the inventory"],
        )


def default_wants() -> list[str]:
    """What `plan` and `up` take where nothing is wished by name."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import wish

    return list(wish.DEFAULT_WANTS)


def frameworks() -> Mapping[str, About]:
    """What each framework is called, by the name that `--want` takes."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

    return ABOUT


def card_called(name: str) -> str:
    """The name that the rules have for the card that a person means.

    Raises:
        BadInput: it is not known, or may be any of several.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
        from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus

        return str(gpus.identify(name, rules.load_rules())["name"])


def check_cards(names: Iterable[str]) -> None:
    """Refuse the name of a card that does not exist, before any host is asked.

    Raises:
        BadInput: with the names that are near.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
        from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus

        for name in names:
            gpus.identify(name, rules.load_rules())


def note_begin(run_dir: Path, verb: str) -> None:
    """Note in the directory of a run what was begun, and when.

    Raises:
        Failed: it cannot be written.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import report

    with _written(run_dir):
        report.note_begin(run_dir, verb)


def aggregate(
    run_dir: Path,
    verb: str,
    unreachable: Mapping[str, str],
    failed: Mapping[str, str],
    not_reached: Sequence[str] = (),
    ended: Ended = "done",
) -> None:
    """Make the report of a run: the records of its hosts, and what only the controller knows of the others.

    Args:
        run_dir: the run's directory.
        verb: what was run.
        unreachable: host → why it could not be reached.
        failed: host → why what it left behind is not its result.
        not_reached: hosts that the run did not come to.
        ended: how the run ended.

    Raises:
        Failed: it cannot be written.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import report

    with _written(run_dir):
        report.aggregate(
            run_dir,
            verb=verb,
            unreachable=dict(unreachable),
            failed=dict(failed),
            not_reached=list(not_reached),
            ended=ended,
        )


@contextlib.contextmanager
def _written(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"the report in {run_dir} cannot be written: {error.strerror or error}") from error


def read_variables(name: str) -> dict[str, object]:
    """The variables of a `--wish` file.

    Raises:
        BadInput: it is not there, not YAML, or not a mapping.
    """
    return given.yaml_mapping(name, "the wish file", "variables", 'for example `nvidia_driver_branch: "580"`')


def read_prices(name: str) -> dict[str, object]:
    """A person's own prices; see sizing/prices.py.

    Raises:
        BadInput: it is not there, not YAML, or not a mapping.
    """
    return given.yaml_mapping(
        name, "the file of prices", "`cloud`, `owning` and `rates`", "docs/sizing.md has an example"
    )


def read_facts(name: str) -> Facts:
    """An observation that a run wrote. It comes through the same gate as a node's answer.

    Raises:
        BadInput: it is not there or not an observation.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import gate

    document = given.json_object(name, "the facts file")
    try:
        admitted: Facts = json.loads(gate.admit("facts", json.dumps(document.get("facts", document))))
    except (gate.Refused, gate.NoAnswer) as error:
        text = f"the facts file {name} is not an observation of this version of gpuwright: {error}"
        raise BadInput(text, ["a run writes it as facts/HOST.json or facts/HOST.json.gz"]) from None
    return admitted


def read_lock(name: str, wants: Sequence[str], variables: Mapping[str, object]) -> Lock:
    """A lock file, checked: this version can hold hosts to it.

    Args:
        name: of the file.
        wants: what `--want` says beside it.
        variables: what `--wish` says beside it.

    Raises:
        BadInput: it is not there, broken, or asks for what this version does not know, or what is wished beside it says otherwise.
    """
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock

        found = lock.load(name)
        lock.as_wish(found, {"gpuwright_want": list(wants), "gpuwright_wish": dict(variables)})
        return found


def write_lock(name: str, question: Question, hashes: Sequence[str] = ()) -> list[str]:
    """Write the answer to a question as a lock file: its stack with exact versions. Returns the parts that have none.

    `hashes` are files that say with hashes which wheels an environment is made of.

    Raises:
        BadInput: it cannot be written, there is nothing to lock, or a file is of none of its environments.
    """
    files = [(each, given.text(each, "the file of hashes")) for each in hashes]
    with given.their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import rules
        from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock

        where, wished = _asked(question)
        tables = rules.load_rules()
        document = lock.make(where, wished, tables, wants=question.wants, version=__version__, hashes=files)
    try:
        paths.written(name).write_text(lock.text(document), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the lock file {name} cannot be written: {error.strerror}") from error
    return lock.left_open(document)
