# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for the light log of the cards: for how many days it is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish.reading import ANY, AUTO, Variables, Words, equals, is_no


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The log's field of a wish."""

    gpu_log: int | str | None = None
    """Days; ANY where no number is said"""


VARIABLE = "gpu_log_days"
_WANT = "gpu-log"
#: What is kept where nobody says a number.
DAYS = 30
_NUMBER = lazy(r"[1-9]\d{0,3}", re.ASCII)


def _days(value: object, name: str) -> int:
    written = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(written):
        raise BadInput(f"{name}: expected a number of days from 1 to 9999, found {value!r}", [f"{_WANT}={DAYS}"])
    return int(written)


def _read_want(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read gpu-log, or gpu-log=7 for a week."""
    del rules
    days = equals(spec, want)
    if days not in AUTO:
        values.update(gpu_log=_days(days, _WANT))
    elif "gpu_log" not in values:
        values.update(gpu_log=ANY)


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    del rules
    days = variables.get(VARIABLE)
    if not is_no(days):
        values.update(gpu_log=_days(days, VARIABLE))


WORDS = Words(
    "gpu_log",
    _WANT,
    brings=("gpu_log",),
    readers={_WANT: _read_want},
    variables=(VARIABLE,),
    of_host=(VARIABLE,),
    read=_read_variables,
)
