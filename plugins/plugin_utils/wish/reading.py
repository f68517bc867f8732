# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a component's part of a wish is read: its names for --want, its variables, and what several of them are read by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.errors import BadInput
from ..model.wish import Values
from ..rules import Rules

#: The variables that a wish is read from.
Variables = Mapping[str, object]
#: values, a want that a variable has, rules, the variable. Raises BadInput.
AddWant = Callable[[Values, str, Rules, str], None]
#: values, what stands behind the name, the want as it was written, rules. Raises BadInput.
Reader = Callable[[Values, str, str, Rules], None]

#: A want: name, variant, extras, environment and version.
WANT = lazy(
    r"^\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*?)\s*(?:\+(?P<variant>[A-Za-z]+\d*))?(?:\[(?P<extras>[^\]]*)\])?"
    r"\s*(?:@\s*(?P<environment>[^\s=<>!~]*))?\s*(?P<spec>(?:[=<>!~].*)?)\s*$"
)
#: A version with the environment behind it.
BEHIND = lazy(r"^(?P<spec>[^@]*?)\s*@\s*(?P<environment>[^@]*)$")
# Nine digits are more than any version has, and few enough to be made a number of.
VERSION = lazy(r"^\d{1,9}(\.\d{1,9})*$", re.ASCII)
AUTO: tuple[object, ...] = (None, "", "auto", [], (), False)
#: What is wished without saying which: it leaves that to whoever says it, else to the resolver.
ANY = "auto"
#: As YAML and Ansible say it.
_YES = ("true", "yes", "on", "y", "t", "1")


#: Rows of names with blanks between them, of what is said of each, and of what may be written instead; {variant} there is the CUDA that a
#: name or its version has, as PyTorch's builds have it: +cu121.
Told = Sequence[tuple[str, str, tuple[str, ...]]]


@dataclass(frozen=True)
class Words:
    """What a component is asked for by.

    component: its id. want: what a role that is used alone wishes, where none of the fields ``brings`` of the wish is set.
    by_default: whether that is wished where nothing is wished by name. ``besides``: those of ``brings`` that ask for nothing by name, so
    that what is wished by default comes too.
    readers: by name for --want. aliases: other names for these, or for a whole want. told: names that people ask for and that are no want.
    packages: what the name of a package of it and what follows that wish, as --want takes it; nothing for another name.
    variables: those that say what is wished of it, and ``read`` reads them into the fields of a wish; ``read_wants`` those whose
    values are wants themselves. auto_says: those of them that ask for
    something by auto, which leaves the others to the resolver. of_host: those of them that speak of the host and of no version, so that a
    lock leaves them to it.
    secrets: variables of it that are no part of a wish, so that no plan and no seal has them; each with what raises BadInput for a value
    that is wrong, without the value.
    of_users: whether it takes no root. instead: where it does, what a user has without it, for a person. of_root: names for --want and
    variables that take root all the same, each with what a user has instead.
    """

    component: str
    want: str | None = None
    brings: Sequence[str] = ()
    besides: Sequence[str] = ()
    by_default: bool = False
    readers: Mapping[str, Reader] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    told: Told = ()
    packages: Callable[[str, str], tuple[str, ...]] = lambda _name, _rest: ()
    variables: Sequence[str] = ()
    auto_says: Sequence[str] = ()
    of_host: Sequence[str] = ()
    secrets: Mapping[str, Callable[[object], None]] = field(default_factory=dict)
    of_users: bool = False
    instead: str = ""
    of_root: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Values, Variables, Rules], None] = lambda _values, _variables, _rules: None
    read_wants: Callable[[Values, Variables, Rules, AddWant], None] = lambda _values, _variables, _rules, _add_want: (
        None
    )


def is_yes(value: object) -> bool:
    """Say whether a variable is true, as people write it."""
    return value is True or str(value).lower() in _YES


def is_no(value: object) -> bool:
    """Say whether a variable leaves something to the resolver, or is false."""
    return value in AUTO or str(value).lower() in ("false", "no")


def says(words: Words, name: str, value: object) -> bool:
    """Say whether a variable of a component asks for something."""
    return not is_no(value) or (value == ANY and name in words.auto_says)


def equals(spec: str, want: str) -> str | None:
    """Return VERSION of "=VERSION" or "==VERSION", None for nothing; a range is not taken here."""
    if not spec:
        return None
    if not spec.startswith("="):
        name = want.split(spec, maxsplit=1)[0].strip()
        raise BadInput(
            f"{want!r}: only one version is taken here, written NAME=VERSION", [f"{name}={spec.lstrip('<>=!~ ')}"]
        )
    return spec.lstrip("= ") or None


def choice(key: str, choices: Sequence[str], component: str) -> Reader:
    """Make the reader of one of several words. ``key``: the field of the wish; ``component``: the field that it asks for besides."""

    def read(values: Values, spec: str, want: str, rules: Rules) -> None:
        del rules
        value = equals(spec, want)
        if value == "auto":
            return
        if value not in choices:
            name = want.split("=", 1)[0].strip()
            raise BadInput(f"{want!r}: expected one of {', '.join(choices)}", [f"{name}={each}" for each in choices])
        values.update({key: value, component: True})

    return read


def around(version: str, others: Sequence[str]) -> list[str]:
    """Return the three versions nearest to one that does not exist, an older and a newer one among them: first those of its own family, the
    numbers that it begins with, then by the first number that differs, of two as near the older one.
    """
    wanted = numeric_version.key(version)

    def away(other: str) -> tuple[int, int, bool, tuple[int, ...]]:
        numbers = numeric_version.key(other)
        pairs = list(zip_longest(wanted, numbers, fillvalue=0))
        alike = next((at for at, (one, two) in enumerate(pairs) if one != two), len(pairs) - 1)
        difference = pairs[alike][1] - pairs[alike][0]
        newer = difference > 0
        return -alike, abs(difference), newer, numbers if newer else tuple(-number for number in numbers)

    ordered = sorted(set(others), key=away)
    sides = [[each for each in ordered if (numeric_version.key(each) > wanted) is newer] for newer in (False, True)]
    nearest = {*ordered[:1], *(each for side in sides for each in side[:1])}
    rest = [each for each in ordered if each not in nearest]
    return sorted([*nearest, *rest[: 3 - len(nearest)]], key=away)


def is_outside(version: str, known: Sequence[str]) -> bool:
    """Say whether a version is older than all that the tables know, or newer: then it may well exist. Another one was never released."""
    keys = sorted(map(numeric_version.key, known))
    return (
        bool(VERSION.match(version.partition(".post")[0])) and not keys[0] <= numeric_version.key(version) <= keys[-1]
    )


def bare(url: str, name: str) -> str:
    """Return an address without its credentials: what is resolved is recorded. See credentials.py."""
    try:
        redact.credentials(url)
    except redact.CredentialsError as error:
        raise BadInput(f"{name}: {error}") from None
    return redact.without_credentials(url)


def sha256(value: object, name: str) -> str:
    """Return a checksum as it is compared. Raises BadInput for what is none."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", str(value)):
        raise BadInput(f"{name}: expected 64 hexadecimal digits, found {str(value)!r}")
    return str(value).lower()


def as_list(value: object, name: str) -> list[Any]:
    """Return a list; a single text is a list of one, written with commas a list of several."""
    if value in AUTO:
        return []
    if isinstance(value, str):
        # Not every comma parts two wishes: "pytorch>=2.7,<2.10" is one, "project=.[cli,web]" too.
        return [part.strip() for part in re.split(r",\s*(?=[A-Za-z])(?![^\[]*\])", value) if part.strip()]
    if isinstance(value, (int, float)):
        return [value]
    if isinstance(value, Sequence):
        return list(value)
    raise BadInput(f"{name} has to be a list, found {type(value).__name__}")
