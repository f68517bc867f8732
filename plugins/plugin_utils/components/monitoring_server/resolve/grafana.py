# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Grafana beside the server of metrics: from Grafana Labs' own repository, and never in the place of somebody else's."""

from __future__ import annotations

from collections.abc import Sequence

from ....resolver import keys, upstreams
from ....resolver.log import DESIGN, Log
from ....resolver.machine import Machine
from ....resolver.part import Place
from ....wish.wish import Wish
from ..model import NAME, Grafana

#: The names of the package, of the upstream and of the package source.
GRAFANA = "grafana"
#: What it may be there as: the edition without and with what is to be paid for.
PACKAGES = (GRAFANA, "grafana-enterprise")
_KEY = "10458545"
_SUITE, _COMPONENT = "stable", "main"


def choose(machine: Machine, wished: Grafana | None, dashboards: str, log: Log) -> Grafana | None:
    """Return what is wished, None without a wish and where somebody else's Grafana is there. ``dashboards``: where their files are."""
    if wished is None:
        return None
    found = [name for name in strangers(machine) if name in PACKAGES]
    if found:
        text = (
            f"{' and '.join(found)} is here and was not set up by gpuwright: it is left as it is; import the files in {dashboards} there, "
            "or remove its packages and run again"
        )
        log.warn("monitoring-server.grafana", text, DESIGN)
        return None
    return wished


def strangers(machine: Machine) -> Sequence[str]:
    """Return the packages of a server of metrics, and of Grafana, that somebody else set up."""
    return machine.strangers.get(NAME, ())


def place(wish: Wish, log: Log) -> Place:
    """Return where its repository is."""
    key = keys.by_id(_KEY, log.rules)
    fingerprint = keys.fingerprint(GRAFANA, wish, key)
    base = upstreams.url(GRAFANA, wish, log.rules)
    log.decided("repository.grafana", f"Grafana Labs' repository, signed by {fingerprint}", log.cite("upstreams", key))
    return Place(GRAFANA, base, [_SUITE], [_COMPONENT], f"{base}/{key['file']}", fingerprint)
