# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of an inventory whose metrics a server asks for: by what each wishes, not by what was done there."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import load_rules
from ...wish.fleet import Exporters
from ...wish.reading import Variables, as_list
from . import wish as monitoring_exporters

_CARDS = "gpuwright_gpus_expected"
#: The variables of a host that its exporters are known by.
VARIABLES = (*monitoring_exporters.WORDS.variables, "gpuwright_want", "gpuwright_wish", "ansible_host", _CARDS)


def exporters(hosts: Mapping[str, Variables], server: str) -> tuple[Exporters, ...]:
    """Return the exporters of all hosts that wish some, sorted by name; server: the host that asks them.

    Raises BadInput for settings that cannot be read.
    """
    found = (_of_host(name, variables, server) for name, variables in sorted(hosts.items()))
    return tuple(each for each in found if each is not None)


def _of_host(name: str, variables: Variables, server: str) -> Exporters | None:
    asked = variables.get("gpuwright_wish")
    known = {**variables, **(asked if isinstance(asked, Mapping) else {})}
    values: Values = {}
    try:
        monitoring_exporters.WORDS.read(values, known, load_rules())
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}", error.suggestions) from None
    if not (values.get("monitoring_exporters") or _named(known)):
        return None
    settings = values.get("monitoring_exporters_settings") or monitoring_exporters.MonitoringSettings()
    return Exporters(
        host=name,
        address=_asked_at(name, known, settings.address, server),
        gpu_port=None if str(known.get(_CARDS)) == "0" else settings.gpu_port,
        node_port=settings.node_port,
        tls=settings.certificate is not None,
        users=bool(settings.users),
    )


def _named(known: Variables) -> bool:
    """Say whether a host wishes exporters by name, as --want takes it."""
    wants = as_list(known.get("gpuwright_want") or [], "gpuwright_want")
    names = {str(want).partition("=")[0].strip().lower() for want in wants}
    return bool(names & monitoring_exporters.WORDS.readers.keys())


def _asked_at(name: str, known: Variables, address: str, server: str) -> str | None:
    listens = ipaddress.ip_address(address)
    if listens.is_loopback and name != server:
        return None
    asked = str(known.get("ansible_host") or name) if listens.is_unspecified else address
    return addresses.bracketed(asked)
