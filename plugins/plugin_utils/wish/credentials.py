# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Credentials that the addresses of a wish carry: no part of the wish itself, so that neither plan nor seal ever has them.

Who fetches something takes them from the variables again, for the addresses that it fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils.base import redact


def of(addresses: Iterable[str], *given: Any) -> list[dict[str, str]]:
    """Return the credentials (machine, login, password) that some of the addresses need.

    given: addresses with credentials, mappings that have such as values (gpuwright_mirrors), or lists of both. Of two for one
    machine the first counts. Raises redact.CredentialsError.
    """
    asked = list(addresses)
    found: dict[str, redact.Credentials] = {}
    for url in _texts(given):
        each = redact.credentials(url.rstrip("/"))
        if each and any(redact.covers(each.machine, address) for address in asked):
            found.setdefault(each.machine, each)
    return [each._asdict() for each in found.values()]


def of_variables(addresses: Iterable[str], variables: Mapping[str, object]) -> list[dict[str, str]]:
    """Return the same from the variables of a wish; those of the wish file go first."""
    asked = variables.get("gpuwright_wish") or {}
    names = ("gpuwright_mirrors", "nvidia_driver_runfile", "cuda_runfile")
    places = [place for place in (asked, variables) if isinstance(place, Mapping)]
    return of(addresses, *[place.get(name) for place in places for name in names])


def _texts(given: Iterable[Any]) -> Iterator[str]:
    for each in given:
        if isinstance(each, Mapping):
            yield from _texts(each.values())
        elif isinstance(each, str):
            yield each
        elif isinstance(each, Sequence):
            yield from _texts(each)
