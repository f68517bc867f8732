"""The resolver and its rules, as the commands use them. Imported late: `--help` and `--version` need none of it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwright import paths
from gpuwright.errors import BadInput, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# What a lock file may name; anything else was written by a version that knows more.
_LOCKABLE = {"driver", "cuda", "cudnn", "container_toolkit", "frameworks", "repositories"}


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
    wish: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None


def resolve(question: Question) -> dict[str, Any]:
    """Ask the resolver; the answer is the contract's JSON of `resolve --json`.

    Raises:
        BadInput: a card, component, operating system or assumption is not known.
    """
    with _their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import resolver, rules, situation, wish

        table = rules.load_rules()
        wished = wish.Wish.from_variables(
            {"gpuwright_want": list(question.wants), "gpuwright_wish": dict(question.wish)}
        )
        if question.facts is not None:
            where = situation.situation_from_facts(question.facts, wished, table)
        else:
            where = situation.situation_from_options(
                question.gpus, question.os_name, question.arch, question.assume, table
            )
        answer: dict[str, Any] = resolver.resolve(where, wished, table)
        return answer


def find_cards(pattern: str | None) -> list[dict[str, Any]]:
    """The cards the rules know whose name or PCI id matches.

    Raises:
        BadInput: none does.
    """
    with _their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import catalogue, rules

        found: list[dict[str, Any]] = catalogue.find(pattern, rules.load_rules())
        return found


def check_wish(wants: Sequence[str], variables: Mapping[str, Any]) -> None:
    """Refuse a wish that cannot be understood before any host is asked.

    Raises:
        BadInput: with what is near.
    """
    with _their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import wish

        wish.Wish.from_variables({"gpuwright_want": list(wants), "gpuwright_wish": dict(variables)})


def check_cards(names: Iterable[str]) -> None:
    """Refuse the name of a card that does not exist, before any host is asked.

    Raises:
        BadInput: with the names that are near.
    """
    with _their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils import gpus, rules

        for name in names:
            gpus.identify(name, rules.load_rules())


def aggregate(
    run_dir: Path, verb: str, unreachable: Mapping[str, str], failed: Mapping[str, str], not_reached: Sequence[str] = ()
) -> None:
    """Make the report of a run: the records of its hosts, and what only the controller knows of the others.

    Args:
        run_dir: the run's directory.
        verb: what was run.
        unreachable: host → why it could not be reached.
        failed: host → why what it left behind is not its result.
        not_reached: hosts that the run did not come to.

    Raises:
        Failed: it cannot be written.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils import report

    try:
        report.aggregate(
            run_dir, verb=verb, unreachable=dict(unreachable), failed=dict(failed), not_reached=list(not_reached)
        )
    except OSError as error:
        raise Failed(f"the report in {run_dir} cannot be written: {error.strerror or error}") from error


def read_variables(name: str) -> dict[str, Any]:
    """The variables of a `--wish` file.

    Raises:
        BadInput: it is not there, not YAML, or not a mapping.
    """
    import yaml

    text = _read(name, "the wish file")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"the wish file {name} is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadInput(
            f"the wish file {name} must hold variables, one `name: value` a line",
            ['for example `nvidia_driver_branch: "580"`'],
        )
    return document


def read_facts(name: str) -> dict[str, Any]:
    """An observation that a run wrote.

    Raises:
        BadInput: it is not there or not an observation.
    """
    document = _read_json(name, "the facts file")
    facts = document.get("facts", document)
    if not isinstance(facts, dict) or not {"os", "pci"} <= facts.keys():
        raise BadInput(
            f"the facts file {name} is not an observation of gpuwright", ["a run writes it as facts/HOST.json"]
        )
    return facts


def read_lock(name: str) -> dict[str, Any]:
    """The wish, as variables, that asks for exactly what a lock file names.

    Raises:
        BadInput: it is not an answer of `resolve`, or names what this version cannot hold a host to.
    """
    document = _read_json(name, "the lock file")
    stack = document.get("stack")
    if document.get("ok") is not True or not isinstance(stack, dict):
        raise BadInput(f"the lock file {name} is not an answer of `gpuwright resolve --lock`")
    unknown = sorted(stack.keys() - _LOCKABLE)
    if unknown:
        raise BadInput(
            f"the lock file {name} names {', '.join(unknown)}: taking that from a lock comes in a later version",
            ["write the versions as --want instead"],
        )
    return dict(_locked(stack))


def write_lock(name: str, answer: Mapping[str, Any]) -> None:
    """Write an answer as a lock file.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        Path(name).write_text(json.dumps(answer, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the lock file {name} cannot be written: {error.strerror}") from error


def _locked(stack: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    driver = stack.get("driver")
    if driver:
        yield "nvidia_driver_branch", driver["branch"]
        yield "nvidia_driver_modules", driver["modules"]
        yield "nvidia_driver_set", driver["set"]
        if driver["source"] in {"nvidia", "distro"}:
            yield "nvidia_driver_source", driver["source"]
        if driver.get("version"):
            yield "nvidia_driver_version", driver["version"]
    if stack.get("cuda"):
        yield "cuda_versions", [toolkit["version"] for toolkit in stack["cuda"]]
    if stack.get("cudnn"):
        yield "cuda_cudnn", stack["cudnn"].get("version") or True
    if stack.get("container_toolkit"):
        yield "container_toolkit_wanted", True
        spec = stack["container_toolkit"]["version_spec"]
        if spec.startswith("=="):  # a floor is the rules' own and holds without being asked for
            yield "container_toolkit_version", spec.removeprefix("==")
    if stack.get("frameworks"):
        yield "frameworks_wanted", [framework["requirements"][0] for framework in stack["frameworks"]]


def _read(name: str, what: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{what} {name} is not there") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadInput(f"{what} {name} cannot be read: {reason}") from error


def _read_json(name: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(_read(name, what))
    except json.JSONDecodeError as error:
        raise BadInput(f"{what} {name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadInput(f"{what} {name} is not a JSON object")
    return document


@contextmanager
def _their_bad_input() -> Iterator[None]:
    """The collection's complaints about input, as ours."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.errors import BadInput as TheirBadInput

    try:
        yield
    except TheirBadInput as error:
        raise BadInput(str(error), getattr(error, "suggestions", ())) from error
