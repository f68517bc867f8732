# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for what only data-centre machines have: MIG layouts, IMEX, nvidia-peermem."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.errors import BadInput
from ..model.wish import Values

#: How a person writes that a card is not partitioned.
OFF = ("off", "disabled", "false", "no")
#: 3g.40gb, 1g.10gb+me, 1g.24gb-me, 2g.48gb+me.all
_PROFILE = lazy(r"^\d+g\.\d+gb(?:[+-][a-z]+(?:\.all)?)?$", re.ASCII)
_SELECTOR = lazy(
    r"^(?:all|\d{1,3}|GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$",
    re.ASCII | re.IGNORECASE,
)
_EXAMPLE = "mig_layout: {all: '3g.40gb,3g.40gb'}"


def of_driver(variables: Mapping[str, object]) -> Values:
    """Return the fields of a wish that the driver's variables set. Raises BadInput for what cannot be read."""
    values: Values = {}
    imex = _flag(variables.get("nvidia_driver_imex"), "nvidia_driver_imex")
    if imex is not None:
        values["driver_imex"] = imex
    if _flag(variables.get("nvidia_driver_peermem"), "nvidia_driver_peermem"):
        values["driver_peermem"] = True
    return values


def mig_layout(value: Any) -> dict[str, tuple[str, ...]]:
    """Read a MIG layout: for each card, or all, the profiles that it is parted into; none of them means MIG is off.

    A card is named by its index, UUID or bus id. A text alone speaks for all cards. Raises BadInput.
    """
    if value in (None, "", "auto", {}):
        return {}
    if isinstance(value, (str, bool, list, tuple)):
        value = {"all": value}
    if not isinstance(value, Mapping):
        raise BadInput(f"mig_layout has to map cards to profiles, found {type(value).__name__}", [_EXAMPLE])
    return {_selector(str(card)): _profiles(str(card), asked) for card, asked in value.items()}


def _selector(text: str) -> str:
    if not _SELECTOR.match(text):
        raise BadInput(f"mig_layout: {text!r} is no card: write all, an index, a UUID or a bus id", [_EXAMPLE])
    return text


def _profiles(card: str, asked: Any) -> tuple[str, ...]:
    if asked is False or (isinstance(asked, str) and asked.strip().lower() in OFF):
        return ()
    parts = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(parts, Sequence) or not parts:
        raise BadInput(f"mig_layout of {card}: write profiles such as 3g.40gb,3g.40gb, or off", [_EXAMPLE])
    names = tuple(str(part).strip().removeprefix("MIG ") for part in parts)
    for name in names:
        if not _PROFILE.match(name):
            raise BadInput(f"mig_layout of {card}: {name!r} is no profile such as 3g.40gb", [_EXAMPLE])
    return names


def _flag(value: Any, name: str) -> bool | None:
    """Return a boolean, None for auto."""
    if value in (None, "", "auto"):
        return None
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "yes", "on", "1"):
        return True
    if str(value).lower() in ("false", "no", "off", "0"):
        return False
    raise BadInput(f"{name}={value}: expected true, false or auto")
