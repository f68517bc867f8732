# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is known of the distributions that people use beside the frameworks (compat/companions.yaml), by the name of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from . import Row, Rules, remembered


@dataclass(frozen=True)
class Need:
    """A requirement of another distribution that a release goes with; ``unsaid``: its metadata does not say so. ``row``: what is cited."""

    text: str
    unsaid: bool
    row: Row = field(compare=False)


@remembered
def of(name: str, rules: Rules) -> Row | None:
    """Return what is known of a distribution, None where it is not known. ``name``: in lower case, with hyphens."""
    rows: list[Row] = rules["companions"]["packages"]
    own = next((row for row in rows if row["name"] == name), None)
    return own or next((row for row in rows if any(re.fullmatch(each, name) for each in row.get("names", ()))), None)


@remembered
def versions(name: str, rules: Rules) -> tuple[str, ...]:
    """Return the releases that stand for all that are known of a distribution, the newest first: the last one of each span."""
    ends = {row["to_version"] for row in _rows("spans", name, rules)}
    ends |= {each for row in _rows("pairs", name, rules) for each in row["releases"]}
    return tuple(sorted(ends, key=key, reverse=True))


@remembered
def spans(name: str, version: str, rules: Rules) -> tuple[Row, ...]:
    """Return what holds for one release, by itself."""
    return tuple(
        row for row in _rows("spans", name, rules) if key(row["from_version"]) <= key(version) <= key(row["to_version"])
    )


@remembered
def needs(name: str, version: str, rules: Rules) -> tuple[Need, ...]:
    """Return what one release goes with."""
    return tuple(_needs(name, version, rules))


def builds(name: str, rules: Rules) -> Mapping[str, str]:
    """Return for which torch the makers of what the index has as a source built it: by the last release of each span."""
    row = of(name, rules)
    if row is None or row["there"] != "source":
        return {}
    pair = next((each for each in _rows("pairs", name, rules) if each["other"] == "torch"), None)
    found: Mapping[str, str] = row.get("makers", {}).get("builds") or (pair["releases"] if pair else {})
    return found


def spanned(version: str, releases: Iterable[str]) -> str | None:
    """Return the release that stands for a version: the first that is not older; None where it is newer than all."""
    return min((each for each in releases if key(version) <= key(each)), key=key, default=None)


def _needs(name: str, version: str, rules: Rules) -> Iterator[Need]:
    for row in _rows("pairs", name, rules):
        ends = sorted(row["releases"], key=key)
        if key(row["from_version"]) <= key(version) <= key(ends[-1]):
            last = spanned(version, ends) or ends[-1]
            yield Need(f"{row['other']}{row['releases'][last]}", bool(row.get("unsaid")), row)
    minor = ".".join(version.split(".")[:2])
    for row in spans(name, version, rules):
        yield from (Need(each.replace("{minor}", minor), bool(row.get("unsaid")), row) for each in row.get("needs", ()))


def _rows(table: str, name: str, rules: Rules) -> Iterator[Row]:
    yield from (row for row in rules["companions"][table] if re.fullmatch(row["package"], name))


def key(version: str) -> tuple[tuple[int, ...], int]:
    """Return what orders versions: a post release stands behind its release."""
    release, _post, number = version.partition(".post")
    return numeric_version.key(release), int(number or 0)
