# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for exporters of metrics: what tells those of the cards, where they listen, and who may read them."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish import networks
from ...wish.reading import ANY, AUTO, Variables, Words, equals, is_no, says


@dataclass(frozen=True)
class MonitoringSettings:
    """Where exporters of metrics listen, and who may read them. ``users``: fingerprints of their hashes, by name.
    ``firewall``: networks for which the machine's firewall is opened.
    """

    address: str = "127.0.0.1"
    gpu_port: int = 9400
    node_port: int = 9100
    certificate: str | None = None
    key: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    firewall: tuple[str, ...] = ()


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the exporters; ``monitoring_exporters``: what tells of the cards."""

    monitoring_exporters: str | None = None
    monitoring_exporters_settings: MonitoringSettings = field(default_factory=MonitoringSettings)


_WANT = "monitoring"
SOURCE, ADDRESS = "monitoring_source", "monitoring_address"
GPU_PORT, NODE_PORT = "monitoring_gpu_port", "monitoring_node_port"
TLS, USERS = "monitoring_tls", "monitoring_users"
FIREWALL = "monitoring_firewall"
#: What tells the metrics of the cards.
DCGM, SMI = "dcgm", "smi"
_SOURCES = (ANY, DCGM, SMI)
_FILES = ("certificate", "key")
_PORT = lazy(r"[1-9]\d{0,4}", re.ASCII)
_HIGHEST_PORT = 65535
# They stand in units of systemd, where blanks, colons and percent signs mean something.
_PATH = lazy(r"(/(?!\.{1,2}(/|$))[\w.+@-]+)+", re.ASCII)
_USER = lazy(r"[\w.@-]{1,64}", re.ASCII)
#: Digits that tell one hash from another. Whoever has them cannot try passwords: the salt is in the hash alone.
_FINGERPRINT = 16


def _source(value: object, name: str) -> str:
    if value not in _SOURCES:
        choices = ", ".join(_SOURCES)
        raise BadInput(f"{name}: expected one of {choices}, found {value!r}", [f"{_WANT}={each}" for each in _SOURCES])
    return str(value)


def _read_want(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read monitoring, or monitoring=dcgm."""
    del rules
    source = equals(spec, want)
    if source not in AUTO:
        values.update(monitoring_exporters=_source(source, _WANT))
    elif "monitoring_exporters" not in values:
        values.update(monitoring_exporters=ANY)


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read the settings. Raises BadInput for what cannot be read; no message has anything of a hash."""
    del rules
    # Here auto is a value: exporters are wished, by whatever tells of the cards.
    if says(WORDS, SOURCE, variables.get(SOURCE)):
        values.update(monitoring_exporters=_source(variables[SOURCE], SOURCE))
    default = MonitoringSettings()
    files = _tls(variables.get(TLS))
    settings = MonitoringSettings(
        address=_address(variables.get(ADDRESS)) or default.address,
        gpu_port=_port(variables.get(GPU_PORT), GPU_PORT) or default.gpu_port,
        node_port=_port(variables.get(NODE_PORT), NODE_PORT) or default.node_port,
        certificate=files.get("certificate"),
        key=files.get("key"),
        users=_users(variables.get(USERS)),
        firewall=networks.read(variables.get(FIREWALL), FIREWALL),
    )
    if settings.gpu_port == settings.node_port:
        text = f"{GPU_PORT} and {NODE_PORT} are both {settings.gpu_port}: two programs cannot listen on one port"
        raise BadInput(text, [f"{GPU_PORT}: {default.gpu_port}", f"{NODE_PORT}: {default.node_port}"])
    if settings != default:
        values.update(monitoring_exporters_settings=settings)


def _address(value: object) -> str | None:
    if is_no(value):
        return None
    try:
        return str(ipaddress.ip_address(str(value).strip()))
    except ValueError:
        text = f"{ADDRESS}: expected an address of this machine, found {value!r}"
        raise BadInput(text, [f"{ADDRESS}: 10.0.0.5", f"{ADDRESS}: 0.0.0.0 for all of them"]) from None


def _port(value: object, name: str) -> int | None:
    # A number that is no port is a mistake, also one that counts as false.
    if is_no(value) and not isinstance(value, int):
        return None
    written = str(value).strip()
    if isinstance(value, bool) or not _PORT.fullmatch(written) or int(written) > _HIGHEST_PORT:
        raise BadInput(f"{name}: expected a port from 1 to {_HIGHEST_PORT}, found {value!r}")
    return int(written)


def _tls(value: object) -> dict[str, str]:
    """Return the two files, as paths on the node; nothing where none are named."""
    if value in (*AUTO, {}):
        return {}
    example = [f"{TLS}: {{certificate: /etc/ssl/node.pem, key: /etc/ssl/private/node.key}}"]
    if not isinstance(value, Mapping) or set(value) != set(_FILES):
        found = ", ".join(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise BadInput(f"{TLS}: expected the files {' and '.join(_FILES)}, found {found}", example)
    for name in _FILES:
        if not isinstance(value[name], str) or not _PATH.fullmatch(value[name]):
            text = f"{TLS}: expected an absolute path of letters, digits and . _ + @ - as {name}, found {value[name]!r}"
            raise BadInput(text, example)
    return {name: value[name] for name in _FILES}


def _users(value: object) -> dict[str, str]:
    """Return who may read, each with the fingerprint of a hash that is a secret all the same."""
    if value in (*AUTO, {}):
        return {}
    # Imported here: only who names users pays for it.
    from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_exporter

    example = [f"{USERS}: {{prometheus: HASH}}, with the hash that `htpasswd -nBC 10 prometheus` prints"]
    if not isinstance(value, Mapping):
        raise BadInput(f"{USERS} has to map names to hashes, found {type(value).__name__}", example)
    for name, text in value.items():
        if not isinstance(name, str) or not _USER.fullmatch(name):
            raise BadInput(f"{USERS}: expected a name of letters, digits and . _ @ -, found {name!r}", example)
        if not gpu_exporter.is_hash(text):
            raise BadInput(f"{USERS} of {name}: expected {gpu_exporter.HASH_FORM}", example)
    return {name: fingerprint(text) for name, text in value.items()}


def ports(settings: MonitoringSettings) -> list[int]:
    """Return where exporters listen."""
    return [settings.gpu_port, settings.node_port]


def pair(settings: MonitoringSettings) -> dict[str, str | None]:
    """Return the certificate that they shall have, with its key; nothing where none is wished."""
    return {"certificate": settings.certificate, "key": settings.key} if settings.certificate else {}


def fingerprint(text: str) -> str:
    """Return what tells a hash from others, and is none."""
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]


_VARIABLES = (SOURCE, ADDRESS, GPU_PORT, NODE_PORT, TLS, USERS, FIREWALL)
#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "dcgm dcgm-exporter datacenter-gpu-manager gpu-exporter nvidia-exporter",
        "metrics of the cards for Prometheus are the want monitoring, by DCGM with monitoring=dcgm",
        ("monitoring", "monitoring=dcgm"),
    ),
    ("node-exporter prometheus-node-exporter", "metrics of the machine come with those of the cards", ("monitoring",)),
)
WORDS = Words(
    "monitoring_exporters",
    _WANT,
    brings=("monitoring_exporters",),
    readers={_WANT: _read_want},
    variables=_VARIABLES,
    auto_says=(SOURCE,),
    of_host=_VARIABLES,
    read=_read_variables,
    told=_TOLD,
)
