# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish that a node watches itself: how often, and who is told. The webhook's address is a secret, and no part of a wish."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish.reading import ANY, AUTO, Variables, Words, as_list, equals, is_no


@dataclass(frozen=True)
class WatchSettings:
    """Who is told of what a node saw in itself, where its metrics go, and how old a proof may be (seconds)."""

    mail: tuple[str, ...] = ()
    smtp: str | None = None
    textfile_directory: str | None = None
    proof_max_age: int | None = None


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the watch; ``watch``: minutes, ANY where no number is said."""

    watch: int | str | None = None
    watch_settings: WatchSettings = field(default_factory=WatchSettings)


_WANT = "watch"
INTERVAL, MAIL, SMTP = "watch_interval", "watch_mail", "watch_smtp"
DIRECTORY, MAX_AGE = "watch_textfile_directory", "watch_proof_max_age"
#: The secret: Ansible Vault has it, and the role alone reads it.
WEBHOOK = "watch_webhook"
#: Where nobody says a number.
MINUTES = 15
_MOST_MINUTES = 24 * 60
#: Each is sent a mail of its own, and a turn has to end.
_MOST_PEOPLE = 10
_EXAMPLE = f"{_WANT}={MINUTES}m"
_SPAN = lazy(r"([1-9]\d{0,3})\s*(m|min|h)?", re.ASCII)
_SECONDS = lazy(r"[1-9]\d{0,8}", re.ASCII)
# A user of the machine, or an address. Never an option of sendmail's.
_PERSON = lazy(r"\w[\w.+%-]{0,63}(@[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)?", re.ASCII)
_SERVER = lazy(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?(:[1-9]\d{0,4})?", re.ASCII)
_DIRECTORY = lazy(r"(/(?!\.{1,2}(/|$))[\w.+@-]+)+", re.ASCII)


def _minutes(value: object, name: str) -> int:
    found = None if isinstance(value, bool) else _SPAN.fullmatch(str(value).strip())
    minutes = int(found[1]) * (60 if found[2] == "h" else 1) if found else 0
    if not 0 < minutes <= _MOST_MINUTES:
        raise BadInput(f"{name}: expected minutes or hours such as 15m or 1h, at most 24h, found {value!r}", [_EXAMPLE])
    return minutes


def _read_want(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read watch, or watch=5m."""
    del rules
    span = equals(spec, want)
    if span not in AUTO:
        values.update(watch=_minutes(span, _WANT))
    elif "watch" not in values:
        values.update(watch=ANY)


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    del rules
    if not is_no(variables.get(INTERVAL)):
        values.update(watch=_minutes(variables[INTERVAL], INTERVAL))
    mail, smtp, directory, age = (variables.get(name) for name in (MAIL, SMTP, DIRECTORY, MAX_AGE))
    settings = WatchSettings(
        mail=() if is_no(mail) else _people(mail),
        smtp=None if is_no(smtp) else _text(smtp, SMTP, _SERVER, "a mail server as HOST or HOST:PORT"),
        textfile_directory=None if is_no(directory) else _directory(directory),
        proof_max_age=None if is_no(age) else int(_text(age, MAX_AGE, _SECONDS, "a number of seconds from 1")),
    )
    if settings != WatchSettings():
        values.update(watch_settings=settings)


def _people(value: object) -> tuple[str, ...]:
    people = [each.strip() for each in value.split(",")] if isinstance(value, str) else as_list(value, MAIL)
    if len(people) > _MOST_PEOPLE:
        raise BadInput(
            f"{MAIL}: expected at most {_MOST_PEOPLE} people, found {len(people)}; give a mailing list's address"
        )
    return tuple(_text(each, MAIL, _PERSON, "a mail address") for each in people)


def _directory(value: object) -> str:
    return _text(str(value).rstrip("/"), DIRECTORY, _DIRECTORY, "an absolute path without . and ..")


def _text(value: object, name: str, right: re.Pattern[str], called: str) -> str:
    written = str(value)
    if isinstance(value, bool) or not right.fullmatch(written):
        raise BadInput(f"{name}: expected {called}, found {value!r}")
    return written


def refuse_webhook(value: object) -> None:
    """Raise BadInput for what is no address of a webhook; the text has nothing of it."""
    from ansible_collections.gpuwright.node.plugins.module_utils.watch.settings import address_problem

    problem = None if is_no(value) else address_problem(str(value).strip())
    if problem:
        raise BadInput(f"{WEBHOOK}: {problem}")


WORDS = Words(
    "watch",
    _WANT,
    brings=("watch",),
    readers={_WANT: _read_want},
    variables=(INTERVAL, MAIL, SMTP, DIRECTORY, MAX_AGE),
    of_host=(INTERVAL, MAIL, SMTP, DIRECTORY, MAX_AGE),
    secrets={WEBHOOK: refuse_webhook},
    read=_read_variables,
)
