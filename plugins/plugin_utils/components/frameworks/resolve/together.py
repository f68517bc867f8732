# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Several frameworks in one environment, and what a project requires beside them.

They are chosen one after the other, each so that it fits what is there: first in the order of the wish, so that what is named first is the
newest, then in other orders, because a release that has little choice has to come before one that has much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, permutations
from typing import Protocol, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.wish import FrameworkWish, Project, Requirement
from ....resolver.log import Entry, Unresolved, conflict
from ..model import FrameworkEnvironment, Install
from . import required
from .offer import Offer
from .required import Limits

#: A framework as it was chosen.
Chosen = tuple[FrameworkEnvironment, Offer]


class Choose(Protocol):
    """How one framework is chosen."""

    def __call__(self, framework: FrameworkWish, python: str, limits: Limits, *, trial: bool) -> Chosen:
        """Return it for a Python beside what is there; ``trial``: it only matters whether there is an answer. Raises Unresolved."""


JUPYTER = Requirement("ipykernel", "the wish for a Jupyter kernel")

# Orders that are tried: of four frameworks all of them.
_ORDERS = 24
_INSTALL = ("index_url", "dependencies_url", "from_source")


def choose(
    frameworks: Sequence[FrameworkWish],
    project: Project | None,
    pythons: Sequence[str],
    arch: str,
    one: Choose,
) -> list[FrameworkEnvironment]:
    """Return the rows of one environment, in the order of the wish. Raises Unresolved with the reasons of what came nearest."""
    allowed = [each for each in pythons if project is None or _runs_on(project, each)]
    if not allowed:
        raise Unresolved(_no_python(project, pythons))
    for python in allowed:
        there = [each for each in frameworks if required.applies(each.marker, python, arch)]
        for order in islice(permutations(there), _ORDERS):
            try:
                rows = _in_turn(order, project, python, arch, one, trial=True)
            except Unresolved:
                continue
            # Once more, for the reasons of each decision.
            rows = _in_turn(order, project, python, arch, one, trial=False)
            return _merged(sorted(rows, key=lambda chosen: _place(chosen[0], there)), project, python, arch)
    first = allowed[0]
    there = [each for each in frameworks if required.applies(each.marker, first, arch)]
    if not there:
        raise Unresolved(_nothing_left(frameworks, first, arch))
    _in_turn(there, project, first, arch, one, trial=False)
    raise AssertionError("an order that failed succeeds")


def _in_turn(
    order: Sequence[FrameworkWish], project: Project | None, python: str, arch: str, one: Choose, *, trial: bool
) -> list[Chosen]:
    if not order:
        raise Unresolved
    asked = [*project.requirements, *project.constraints] if project else []
    limits = Limits(required.applying(asked, python, arch))
    found: list[Chosen] = []
    for framework in order:
        found.append(one(framework, python, limits, trial=trial))
        limits = _beside(limits, *found[-1])
    _constraints(found)
    return found


def _beside(limits: Limits, row: FrameworkEnvironment, offer: Offer) -> Limits:
    """Return what the next framework has to fit."""
    title = f"{row['name']} {row['version']}"
    held = [Requirement(text, title) for text in required.held(offer, row)]
    cuda = numeric_version.major(row["cuda"]) if row["cuda"] else None
    return Limits((*limits.required, *held), limits.cuda or cuda, limits.cuda_of or title)


def _place(row: FrameworkEnvironment, order: Sequence[FrameworkWish]) -> int:
    return next(place for place, each in enumerate(order) if each.name == row["name"])


def _merged(chosen: Sequence[Chosen], project: Project | None, python: str, arch: str) -> list[FrameworkEnvironment]:
    """Return the rows of an environment: of each framework its own release, of all of them what is installed together."""
    rows = [row for row, _offer in chosen]
    pins = list(dict.fromkeys(pin for row in rows for pin in row["requirements"]))
    own = required.applying(project.requirements, python, arch) if project else []
    limits = required.applying(project.constraints, python, arch) if project else []
    named = {required.name(pin) for pin in pins}
    others = list(dict.fromkeys(each.text for each in own if required.name(each.text) not in named))
    constraints = _constraints(chosen)
    constraints += [each for each in (required.as_constraint(row.text) for row in limits) if each not in constraints]
    together: dict[str, object] = {"requirements": pins, "constraints": constraints}
    if len(rows) > 1:
        together["installs"] = [_install(row) for row in rows]
    if others:
        together["others"] = others
    return [cast("FrameworkEnvironment", {**row, **together, "cudnn": _cudnn(row, constraints)}) for row in rows]


def _cudnn(row: FrameworkEnvironment, constraints: Iterable[str]) -> str | None:
    """Return the cuDNN of an environment that several may have chosen."""
    held = (required.exact(each) for each in constraints if required.name(each).startswith("nvidia-cudnn-cu"))
    return next(held, row["cudnn"]) if row["cudnn"] else None


def _constraints(chosen: Iterable[Chosen]) -> list[str]:
    """Return each limit of several frameworks once. Of two pins of one distribution the one holds that both allow. Raises Unresolved."""
    several = list(chosen)
    limits = dict.fromkeys(limit for row, _offer in several for limit in row["constraints"])
    found = []
    for limit in limits:
        same = [each for each in limits if required.exact(each) and required.name(each) == required.name(limit)]
        if limit not in same or len(same) == 1:
            found.append(limit)
        elif limit == same[0]:
            found.append(_allowed_by_all(same, several))
    return found


def _allowed_by_all(pins: Sequence[str], chosen: Sequence[Chosen]) -> str:
    """Return the pin of a distribution that all frameworks allow. Raises Unresolved where there is none."""
    distribution = required.name(pins[0])
    held = [
        (row, text)
        for row, offer in chosen
        for text in required.held(offer, row)
        if required.name(text) == distribution
    ]
    found = next((pin for pin in pins if all(required.agree(pin, text) for _row, text in held)), None)
    if found is None:
        told = ", ".join(f"{row['name']} {row['version']} with {text}" for row, text in held)
        remedy = "give each an environment of its own"
        raise Unresolved(
            conflict(required.RULE, f"no {distribution} serves them all: {told}", "the wheels of both", remedy)
        )
    return found


def _install(row: FrameworkEnvironment) -> Install:
    given = {key: row[key] for key in _INSTALL if row.get(key)}  # type: ignore[literal-required] # keys of Origin
    return cast(
        "Install", {"name": row["name"], "variant": row["variant"], "requirements": row["requirements"], **given}
    )


def _runs_on(project: Project, python: str) -> bool:
    from packaging.specifiers import SpecifierSet

    # Of a Python the table has no patch level: the range has to have some of its releases.
    asked = SpecifierSet(project.python.text) if project.python else SpecifierSet()
    return any(asked.contains(f"{python}.{patch}") for patch in (0, 99))


def _no_python(project: Project | None, pythons: Sequence[str]) -> Entry:
    asked = project.python if project and project.python else Requirement("", "the project")
    text = f"{asked.origin} asks for Python {asked.text}, this machine has {', '.join(pythons) or 'none'}"
    remedy = "install such a Python with its venv module, or widen requires-python"
    return conflict("frameworks.project-python", text, asked.origin, remedy)


def _nothing_left(frameworks: Sequence[FrameworkWish], python: str, arch: str) -> Entry:
    told = "; ".join(f"{each.origin}: {each.marker}" for each in frameworks)
    text = f"no marker of a framework holds for Python {python} on {arch} ({told})"
    return conflict("frameworks.project", text, frameworks[0].origin, "ask for a framework by name, such as pytorch")
