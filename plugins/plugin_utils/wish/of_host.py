# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wished of a host and of no component: which cards count, where packages come from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..model.errors import BadInput
from ..model.wish import Values
from ..rules import Rules, gpus
from .reading import AUTO, Variables, as_list, bare

# What apt, dnf, pip, uv and we fetch from alike; a path alone is an address to none of them.
_ADDRESS = lazy(r"^(?:https?://[^/\s]+|file:///)", re.IGNORECASE)
# The key of gpuwright_mirrors that stands for all mirrors of a region.
_REGION = "region"
_LANES = ("1", "2", "4", "8", "16")
#: The variables that are read here.
VARIABLES = (
    "gpuwright_gpus_expected",
    "gpuwright_provision_for",
    "gpuwright_gpus_ignore",
    "gpuwright_gpus_pcie_lanes",
    "gpuwright_mirrors",
    "gpuwright_repository_keys",
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of no component."""

    gpus_ignore: tuple[str, ...] = ()
    gpus_expected: tuple[str, ...] | int | None = None
    gpus_pcie_lanes: Mapping[str, int] = field(default_factory=dict)
    provision_for: tuple[str, ...] = ()
    mirrors: Mapping[str, str] = field(default_factory=dict)
    repository_keys: Mapping[str, str] = field(default_factory=dict)


def _expected_cards(expected: object, rules: Rules) -> Values:
    """Read which cards have to be there: their number, or their names."""
    if isinstance(expected, str) and expected.strip().isdecimal():
        expected = int(expected)  # `-e name=2` and an INI inventory know only texts
    if isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0:
        return {"gpus_expected": expected}
    if expected in AUTO:
        return {}
    names = [] if expected is True else [str(item) for item in as_list(expected, "gpuwright_gpus_expected")]
    strange = next((name for name in names if not gpus.is_known(name, rules)), expected if not names else None)
    if strange is not None:
        text = f"gpuwright_gpus_expected has to be a number of cards or their names, found {strange!r}"
        raise BadInput(text, gpus.suggest(str(strange), rules))
    return {"gpus_expected": tuple(names)}


def read(values: Values, variables: Variables, rules: Rules) -> None:
    """Read ``VARIABLES`` into a wish. Raises BadInput."""
    ignored, yet_to_come = (_texts(variables, f"gpuwright_{key}") for key in ("gpus_ignore", "provision_for"))
    if ignored:
        values["gpus_ignore"] = ignored
    if yet_to_come:
        values["provision_for"] = yet_to_come
    values |= _expected_cards(variables.get("gpuwright_gpus_expected"), rules)
    values["gpus_pcie_lanes"] = _lanes(variables.get("gpuwright_gpus_pcie_lanes"))
    mirrors, keys = _mirrors(variables, rules), _of_upstreams(variables, "gpuwright_repository_keys", rules)
    if mirrors:
        values["mirrors"] = {name: bare(url, f"gpuwright_mirrors: {name}") for name, url in mirrors.items()}
    if keys:
        values["repository_keys"] = keys


def _texts(variables: Variables, name: str) -> tuple[str, ...]:
    items = variables.get(name)
    return tuple(str(item) for item in as_list(items, name)) if items else ()


def _mirrors(variables: Variables, rules: Rules) -> dict[str, str]:
    """Return the mirror of each upstream: those known for the region that is named, and before them those that are named themselves."""
    name = "gpuwright_mirrors"
    given = variables.get(name)
    if not isinstance(given, Mapping) or _REGION not in given:
        return _addresses(variables, rules)
    region, rows = given[_REGION], rules["upstreams"]["mirrors"]
    regions = sorted({row["region"] for row in rows})
    if region not in regions:
        raise BadInput(f"{name}: no mirrors are known for the region {region!r}, expected one of {', '.join(regions)}")
    named = {key: value for key, value in given.items() if key != _REGION}
    known = {row["upstream"]: row["url"] for row in rows if row["region"] == region}
    return known | _addresses({name: named}, rules)


def _addresses(variables: Variables, rules: Rules) -> dict[str, str]:
    """Return the mirrors that are named. Raises BadInput for one that is no address."""
    name = "gpuwright_mirrors"
    found = _of_upstreams(variables, name, rules)
    images = {str(row["name"]) for row in rules["upstreams"]["rows"] if row["kind"] == "images"}
    for upstream, value in found.items():
        is_file = value.lower().startswith("file:")
        if value and value != "pypi" and (not _ADDRESS.match(value) or (is_file and upstream in images)):
            kinds = "https://… or http://…" if upstream in images else "https://…, http://… or file:///…"
            # What stands before the last @ may be a password.
            bare_value = value.rpartition("@")[2]
            told = f"{name} of {upstream}: expected an address ({kinds}), found {bare_value!r}"
            raise BadInput(told, _as_address(upstream, bare_value, of_images=upstream in images))
    return found


def _as_address(upstream: str, value: str, *, of_images: bool) -> list[str]:
    """Return what was meant by what is no address, as it is written: a directory, or a host."""
    rest = value.partition("://")[2] or value
    is_path = value.lower().startswith("file:") or value.startswith(("/", "~", "."))
    if is_path and of_images:
        return []
    place = f"file:///{rest.lstrip('/~.')}" if is_path else f"https://{rest}"
    return [f"{upstream}: {place}"]


def _of_upstreams(variables: Variables, name: str, rules: Rules) -> dict[str, str]:
    """Return what a variable says of each upstream. Raises BadInput where it is no mapping, or names one that does not exist."""
    mapping = variables.get(name) or {}
    if not isinstance(mapping, Mapping):
        raise BadInput(f"{name} has to be a mapping of upstream name to value, found {type(mapping).__name__}")
    return {str(upstream): _of_upstream(name, upstream, value, rules) for upstream, value in mapping.items()}


def _of_upstream(variable: str, name: object, value: object, rules: Rules) -> str:
    """Return what a variable says of one upstream: of those that the rules name, and of the index that pip takes by itself."""
    known = [*(str(row["name"]) for row in rules["upstreams"]["rows"]), "pypi"]
    if name not in known:
        near = [f"did you mean {each}?" for each in difflib.get_close_matches(str(name), known, 1)]
        raise BadInput(f"{variable}: there is no upstream {name!r}, expected one of {', '.join(known)}", near)
    if isinstance(value, (Mapping, list, tuple)) or value is None:
        raise BadInput(f"{variable} of {name} has to be a text")
    if value == "pypi" and name not in ABOUT:
        raise BadInput(f"{variable}: the Python index has nothing of {name}, expected an address")
    return str(value).rstrip("/")


def _lanes(value: object) -> dict[str, int]:
    """Return the PCIe lanes that are right for each card's slot; a number alone speaks for all cards."""
    if value in (None, "", "auto"):
        return {}
    lanes = value if isinstance(value, Mapping) else {"all": value}
    for card, count in lanes.items():
        if str(count) not in _LANES:
            example = "gpuwright_gpus_pcie_lanes: {'0000:65:00.0': 4, all: 16}"
            raise BadInput(
                f"gpuwright_gpus_pcie_lanes of {card}: expected {', '.join(_LANES)} lanes, found {count!r}", [example]
            )
    return {str(card): int(str(count)) for card, count in lanes.items()}
