# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a person asks of an environment beside its frameworks, tried on the node before anything changes: whether all of it can be met
together, and whether all of it has wheels. What uv says is told with the lines of the person's own files that it speaks of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..components.frameworks import apply as frameworks
from ..components.frameworks import contents
from ..components.frameworks.resolve import required
from ..wish import specifiers
from .document import refusal
from .draft import Draft

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PythonIndex, PythonTrial

    from ..components.frameworks.model import FrameworkEnvironment
    from ..model.stack import Refusal, Why

#: Environments of one call: the gate takes no more answers.
_MOST = 100

_UNTRIED = (
    "whether all that is asked of {} can be met together could not be tried: {}. The installation will tell; an environment whose wheels "
    "do not come stays as it is"
)


@dataclass(frozen=True)
class Tried:
    """What came of the trial of an environment."""

    environment: FrameworkEnvironment
    answer: PythonTrial


@dataclass(frozen=True)
class Line:
    """What somebody asks of an environment, as a person reads it. ``names``: the distributions that are meant; ``of_file``: whether a file
    of that person asks.
    """

    text: str
    names: Sequence[str]
    of_file: bool = True


def environments(drafted: Draft) -> list[FrameworkEnvironment]:
    """Return the environments to be tried: those that are built, and are asked for more than one framework. Of a lock everything is known,
    and a framework alone has what the tables say of it.
    """
    with_project = {each.environment for each in drafted.wish.projects}
    return [
        each
        for each in (frameworks.built(drafted.context) if frameworks.NAME in drafted.findings else ())
        if not each.get("wheels")
        and (each.get("others") or each.get("installs") or PurePosixPath(each["path"]).name in with_project)
    ][:_MOST]


def question(drafted: Draft) -> dict[str, object]:
    """Return the options of the module python_index that are about trials; none where there is nothing to try."""
    tried = environments(drafted)
    if not tried:
        return {}
    uv = frameworks.uv()
    return {
        "trials": [_question(each, drafted.context.facts) for each in tried],
        "uv": {"version": uv["version"], "sha256": uv["sha256"]},
    }


def _question(framework: FrameworkEnvironment, facts: Facts) -> dict[str, object]:
    return {
        "environment": framework["path"],
        "python": frameworks.whole_version(str(framework["interpreter"]), facts),
        "requirements": [*framework["requirements"], *(framework.get("others") or ())],
        "constraints": list(framework["constraints"]),
        "urls": contents.indexes(framework),
        "tools": contents.public_index(framework),
        "built": _from_tables(framework),
    }


def _from_tables(framework: FrameworkEnvironment) -> list[str]:
    return [name for each in contents.installs(framework) for name in each.get("from_source") or ()]


def judged(drafted: Draft, index: PythonIndex) -> list[Tried]:
    """Return what the node said of each environment that it was asked about."""
    answers = {each["environment"]: each for each in index["trials"]}
    return [Tried(each, answers[each["path"]]) for each in environments(drafted) if each["path"] in answers]


def builds(tried: Sequence[Tried], allowed: Sequence[str]) -> dict[str, list[str]]:
    """Return what is built from its source in each environment, because a person asked for it and no wheel is there. Where nobody knows
    that, it is all that was asked for.
    """
    names = [contents.name(each) for each in allowed]
    found = {
        each.environment["path"]: [name for name in names if each.answer["problem"] or name in _names(each.answer)]
        for each in tried
    }
    return {path: several for path, several in found.items() if several}


def _names(answer: PythonTrial) -> list[str]:
    return [contents.name(each["name"]) for each in answer["sources"]]


# in words ----------------------------------------------------------------------------------------------


def lines(drafted: Draft, framework: FrameworkEnvironment) -> Iterator[Line]:
    """Yield what is asked of an environment, each with the file and line that ask for it."""
    wish, arch = drafted.wish, drafted.context.facts["os"]["arch"] or ""
    directory = PurePosixPath(framework["path"]).name
    pins = {each["name"]: each["requirements"] for each in contents.installs(framework)}
    for wished in wish.frameworks:
        if wished.directory == directory and wished.name in pins:
            names = [contents.name(pin) for pin in pins[wished.name]]
            text = wished.text or wished.name
            pinned = specifiers.is_pin(wished.specifier)
            chosen = "" if pinned else f", for which {pins[wished.name][0]} was chosen"
            yield Line(f"{text}{chosen}", names, bool(wished.origin))
    for project in wish.projects:
        if project.environment == directory:
            asked = [*project.requirements, *project.constraints]
            for each in required.applying(asked, str(framework["interpreter"]), arch):
                yield Line(f"{each.text} ({each.origin})", [contents.name(each.text)])


def origins(drafted: Draft, path: str, name: str) -> list[str]:
    """Return the lines of a person's files that ask for a distribution in an environment."""
    rows = [each for each in contents.environments(drafted.context.stack) if each["path"] == path]
    return [each.text for row in rows for each in lines(drafted, row) if name in each.names and each.of_file]


def refusals(tried: Sequence[Tried], drafted: Draft) -> list[Refusal]:
    """Return why environments cannot be made as they are asked for."""
    return [row for each in tried for row in (*_of_clash(each, drafted), *_of_sources(each, drafted))]


def _of_clash(tried: Tried, drafted: Draft) -> list[Refusal]:
    clash, environment = tried.answer["clash"], tried.environment
    if clash is None:
        return []
    meant = [each.text for each in lines(drafted, environment) if _speaks_of(clash, each.names)]
    told = f"{'; '.join(meant)}. " if meant else ""
    where = f"{environment['path']} with Python {environment['interpreter']}"
    text = f"what is asked of {where} cannot be met together: {told}uv says: {clash}"
    what = "one of these lines" if len(meant) > 1 else "what is asked for"
    remedy = f"change or leave out {what}; or give them environments of their own (--want project@NAME=FILE)"
    return [refusal("project-clash", text, remedy)]


def _of_sources(tried: Tried, drafted: Draft) -> list[Refusal]:
    allowed = builds([tried], drafted.request.allow_source).get(tried.environment["path"], ())
    lacking = [each for each in tried.answer["sources"] if contents.name(each["name"]) not in allowed]
    if not lacking:
        return []
    words = " ".join(each["words"] for each in lacking)
    meant = [each.text for each in lines(drafted, tried.environment) if _speaks_of(words, each.names)]
    names = [each["name"] for each in lacking]
    needed = f", and {' and '.join(meant)} needs it" if meant else ""
    text = (
        f"{' and '.join(names)}: only a source is there, no wheel for Python {tried.environment['interpreter']} on this machine{needed}. "
        "A source is built only where a user asks for it in a run of the user's own, since code of its makers runs"
    )
    build = " ".join(f"--allow-source {name}" for name in names)
    asked = f"add {build}, and it is built as you" if drafted.request.user else f"gpuwright up --user … {build}"
    remedy = (
        f"ask for a release that has a wheel; or make one (pip wheel) and put it on an index that you name in gpuwright_mirrors "
        f"({{pypi: URL}}); or have it built in a run of your own: {asked}"
    )
    return [refusal("project-source", text, remedy)]


def _speaks_of(words: str, names: Sequence[str]) -> bool:
    """Say whether uv's words name one of some distributions."""
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", words, re.ASCII) for name in names)


def notices(tried: Sequence[Tried], drafted: Draft) -> list[Why]:
    """Return what a person has to know that stops nothing: what could not be tried, and what is built."""
    texts = [
        ("project-untried", _UNTRIED.format(each.environment["path"], each.answer["problem"]))
        for each in tried
        if each.answer["problem"]
    ]
    texts += [
        (
            "project-source",
            f"{', '.join(names)} for {path} is built from its source, as asked: code of its makers runs as you",
        )
        for path, names in builds(tried, drafted.request.allow_source).items()
    ]
    return [{"rule": rule, "text": text, "source": "gpuwright"} for rule, text in texts]
