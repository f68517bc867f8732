# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for settings of the cards themselves: power limit, clocks, ECC, compute mode, persistence mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish.reading import Variables, Words, equals


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The field of a wish that has the settings, by card."""

    gpu_settings: Mapping[str, Settings] = field(default_factory=dict)


VARIABLE = "gpu_settings_cards"
_EXAMPLE = "gpu_settings_cards: {all: {power_limit: 350}}"
_DEFAULT = "default"
#: As nvidia-smi calls them.
_COMPUTE_MODES = {
    "exclusive_process": "Exclusive_Process",
    "exclusive-process": "Exclusive_Process",
    "prohibited": "Prohibited",
}
_ON, _OFF = ("true", "yes", "on", "enabled", "1"), ("false", "no", "off", "disabled", "0")
_WATTS = lazy(r"(\d{1,5}(?:\.\d{1,2})?)\s*W?", re.ASCII | re.IGNORECASE)
_MEGAHERTZ = lazy(r"(\d{1,5})(?:\s*[,-]\s*(\d{1,5}))?", re.ASCII)
_LONGEST_NAME = 80


def _card(card: object) -> str:
    name = str(card).strip()
    if not name or len(name) > _LONGEST_NAME:
        raise BadInput(f"{VARIABLE}: {name!r} is no card: write all, an index, a UUID, a bus id or a name", [_EXAMPLE])
    return name


def _settings(card: str, rows: object) -> Settings:
    if not isinstance(rows, Mapping) or not rows:
        raise BadInput(f"{VARIABLE} of {card}: write settings such as power_limit: 350", [_EXAMPLE])
    unknown = [str(name) for name in rows if name not in _SETTINGS]
    if unknown:
        raise BadInput(f"{VARIABLE} of {card}: there is no setting {unknown[0]!r}", list(_SETTINGS))
    read = {str(name): _SETTINGS[name](value, f"{VARIABLE} of {card}: {name}") for name, value in rows.items()}
    return cast("Settings", read)


def _is_default(value: object) -> bool:
    return value is None or str(value).strip().lower() == _DEFAULT


def _watts(value: object, what: str) -> float | None:
    if _is_default(value):
        return None
    match = None if isinstance(value, bool) else _WATTS.fullmatch(str(value).strip())
    if not match:
        raise BadInput(f"{what}: {value!r} is no power in watts", ["350", _DEFAULT])
    return float(match[1])


def _range(value: object, what: str) -> list[int] | None:
    """Two clocks; one alone stands for both."""
    if _is_default(value):
        return None
    match = _MEGAHERTZ.fullmatch(_clocks(value))
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise BadInput(f"{what}: {value!r} is no range of clocks in MHz", ["210,1410", "1410", _DEFAULT])
    return [low, high]


def _combination(value: object, what: str) -> list[int] | None:
    if _is_default(value):
        return None
    match = _MEGAHERTZ.fullmatch(_clocks(value))
    if not match or match[2] is None:
        raise BadInput(f"{what}: {value!r} is not memory's and multiprocessors' clock in MHz", ["1593,1275", _DEFAULT])
    return [int(match[1]), int(match[2])]


def _clocks(value: object) -> str:
    """Return clocks as one text, also those that were written as a list."""
    return ",".join(str(each) for each in value) if isinstance(value, (list, tuple)) else str(value).strip()


def _flag(value: object, what: str) -> bool | None:
    word = str(value).strip().lower()
    if _is_default(value):
        return None
    if word in _ON or word in _OFF:
        return word in _ON
    raise BadInput(f"{what}: expected true, false or {_DEFAULT}, found {value!r}", ["true", "false", _DEFAULT])


def _compute_mode(value: object, what: str) -> str | None:
    if _is_default(value):
        return None
    mode = _COMPUTE_MODES.get(str(value).strip().lower())
    if mode is None:
        raise BadInput(f"{what}: there is no compute mode {value!r}", [*_COMPUTE_MODES, _DEFAULT])
    return mode


_SETTINGS: Mapping[str, Callable[[object, str], object]] = {
    "power_limit": _watts,
    "clocks": _range,
    "application_clocks": _combination,
    "ecc": _flag,
    "compute_mode": _compute_mode,
    "persistence": _flag,
}


def _read_power_limit(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read a power limit of all cards as people write it: 350, 350W, default."""
    del rules
    cards = values.get("gpu_settings") or {}
    limit = _watts(equals(spec, want) or "", "power-limit")
    values.update(gpu_settings={**cards, "all": {**cards.get("all", {}), "power_limit": limit}})


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read the settings of each card. Raises BadInput for what cannot be read."""
    del rules
    given = variables.get(VARIABLE)
    if given in (None, "", "auto", {}):
        return
    if not isinstance(given, Mapping):
        raise BadInput(f"{VARIABLE} has to map cards to their settings, found {type(given).__name__}", [_EXAMPLE])
    values.update(gpu_settings={_card(card): _settings(str(card), rows) for card, rows in given.items()})


WORDS = Words(
    "gpu_settings",
    readers={"power-limit": _read_power_limit},
    variables=(VARIABLE,),
    of_host=(VARIABLE,),
    read=_read_variables,
)
