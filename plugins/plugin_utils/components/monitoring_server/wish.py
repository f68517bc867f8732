# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for a server of metrics: where it listens, how much it keeps, whom it tells.

Passwords and tokens are read by the role alone, into files that only root and the server read: the wish knows that there is one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...monitoring.severities import SEVERITIES
from ...rules import Rules
from ...wish.fleet import Exporters
from ...wish.reading import Variables, Words, is_no, is_yes

if TYPE_CHECKING:
    from .model import Grafana, Receiver, RemoteWrite, ScrapeAccess, ServerSettings


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the server; ``fleet``: whom it asks, known only where the whole inventory is."""

    monitoring_server: bool = False
    monitoring_server_settings: ServerSettings | None = None
    fleet: tuple[Exporters, ...] = ()


_WANT = "monitoring-server"
ADDRESS, PORT, ALERTS_PORT = "monitoring_server_address", "monitoring_server_port", "monitoring_server_alerts_port"
DAYS, SIZE = "monitoring_retention_days", "monitoring_retention_size"
REMOTE_WRITE, RECEIVERS, SCRAPE = "monitoring_remote_write", "monitoring_receivers", "monitoring_scrape"
GRAFANA, GRAFANA_PORT, GRAFANA_PASSWORD = "monitoring_grafana", "monitoring_grafana_port", "monitoring_grafana_password"

_NUMBER = lazy(r"[1-9]\d{0,4}", re.ASCII)
_HIGHEST_PORT = 65535
_MOST_DAYS = 9999
_LONGEST_CHANNEL = 100
_GRAFANAS_PORT = 3000
# In one line, without blanks at its ends: Grafana takes those away from what is in a file (pkg/setting/expanders.go).
_PASSWORD = lazy(r"\S[^\r\n\0]{6,126}\S")
# As Prometheus reads it, where a kilobyte has 1024 bytes.
_SIZE = lazy(r"[1-9]\d{0,5}(MB|GB|TB)", re.ASCII)
_NAME = lazy(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)
_MAIL = lazy(r"[^\s@,<>]{1,64}@[\w.-]{1,255}", re.ASCII)
_URL = lazy(r"(https?://[^/?#@\s\"'\\]+)[^\s\"'\\]*")
_SERVER = lazy(r"[\w.:\[\]-]{1,255}:\d{1,5}", re.ASCII)
_CA = lazy(r"(/(?!\.{1,2}(/|$))[\w.+@-]+)+", re.ASCII)
_KINDS = {
    "mail": ("to", "from", "server", "user", "password", "tls"),
    "webhook": ("url", "token"),
    "slack": ("url", "channel"),
}
_EXAMPLE = (
    "monitoring_receivers: {on-call: {severities: [page], mail: {to: [night@example.org], from: gpu@example.org, "
    "server: 'mail.example.org:587'}}}"
)


def _read_want(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    if spec:
        raise BadInput(f"{want!r}: a server of metrics has no version here, it is the archive's", [_WANT])
    values.update(monitoring_server=True)


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read the settings. Raises BadInput for what cannot be read; no message has anything of a secret."""
    del rules
    given = [name for name in VARIABLES if not _is_unset(variables.get(name))]
    if not given:
        return
    default = default_settings()
    settings: ServerSettings = {
        "address": _address(variables.get(ADDRESS), default["address"]),
        "port": _number(variables, PORT, default["port"], "a port", _HIGHEST_PORT),
        "alerts_port": _number(variables, ALERTS_PORT, default["alerts_port"], "a port", _HIGHEST_PORT),
        "days": _number(variables, DAYS, default["days"], "a number of days", _MOST_DAYS),
        "size": _size(variables.get(SIZE), default["size"]),
        "remote_write": _remote_write(variables.get(REMOTE_WRITE)),
        "receivers": _receivers(variables.get(RECEIVERS)),
        "scrape": _scrape(variables.get(SCRAPE)),
        "grafana": _grafana(variables),
    }
    _refuse_one_port_for_two(settings)
    values.update(monitoring_server_settings=settings)


def ports(wished: ServerSettings | None) -> dict[str, int]:
    """Return the ports of a server by the variables that name them. ``wished``: None where nothing is said."""
    settings = wished or default_settings()
    grafana = settings["grafana"]
    found = {PORT: settings["port"], ALERTS_PORT: settings["alerts_port"]}
    return {**found, GRAFANA_PORT: grafana["port"]} if grafana else found


def _refuse_one_port_for_two(settings: ServerSettings) -> None:
    named: dict[int, str] = {}
    for name, port in ports(settings).items():
        if port in named:
            text = f"{named[port]} and {name} are both {port}: two programs cannot listen on one port"
            raise BadInput(text, [f"{PORT}: 9090", f"{ALERTS_PORT}: 9093", f"{GRAFANA_PORT}: {_GRAFANAS_PORT}"])
        named[port] = name


def default_settings() -> ServerSettings:
    """Return what holds where nothing is said."""
    return {
        "address": "127.0.0.1",
        "port": 9090,
        "alerts_port": 9093,
        "days": 30,
        "size": "20GB",
        "remote_write": [],
        "receivers": [],
        "scrape": None,
        "grafana": None,
    }


def _is_unset(value: object) -> bool:
    return is_no(value) or value == {}


def _address(value: object, default: str) -> str:
    if is_no(value):
        return default
    try:
        return str(ipaddress.ip_address(str(value).strip()))
    except ValueError:
        text = f"{ADDRESS}: expected an address of this machine, found {value!r}"
        raise BadInput(text, [f"{ADDRESS}: 10.0.0.5", f"{ADDRESS}: 0.0.0.0 for all of them"]) from None


def _number(variables: Variables, name: str, default: int, what: str, most: int) -> int:
    value = variables.get(name)
    if is_no(value):
        return default
    written = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(written) or int(written) > most:
        raise BadInput(f"{name}: expected {what} from 1 to {most}, found {value!r}", [f"{name}: {default}"])
    return int(written)


def _size(value: object, default: str) -> str:
    written = default if is_no(value) else str(value).strip()
    if not _SIZE.fullmatch(written):
        raise BadInput(f"{SIZE}: expected a size in MB, GB or TB, found {value!r}", [f"{SIZE}: {default}"])
    return written


def _remote_write(value: object) -> list[RemoteWrite]:
    if _is_unset(value):
        return []
    rows = [value] if isinstance(value, Mapping) else value
    example = [f"{REMOTE_WRITE}: [{{url: 'https://metrics.example.org/api/v1/write', user: gpu, password: SECRET}}]"]
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise BadInput(f"{REMOTE_WRITE} has to be a list of servers, found {type(value).__name__}", example)
    found: list[RemoteWrite] = []
    for number, row in enumerate(rows, 1):
        what = f"{REMOTE_WRITE}, number {number}"
        known = _keys(row, ("url", "user", "password", "token"), what, example)
        if ("user" in known) != ("password" in known) or ("user" in known and "token" in known):
            raise BadInput(f"{what}: expected a user and a password, a token, or none of them", example)
        found.append(
            {
                "url": _url(known.get("url"), f"{what}: url"),
                "user": str(known["user"]) if "user" in known else None,
                "access": "password" if "password" in known else "token" if "token" in known else None,
            }
        )
    return found


def _receivers(value: object) -> list[Receiver]:
    if _is_unset(value):
        return []
    if not isinstance(value, Mapping):
        raise BadInput(f"{RECEIVERS} has to map names to receivers, found {type(value).__name__}", [_EXAMPLE])
    return [_receiver(str(name), row) for name, row in value.items()]


def _receiver(name: str, row: object) -> Receiver:
    what = f"{RECEIVERS}, {name}"
    if not _NAME.fullmatch(name):
        raise BadInput(f"{RECEIVERS}: expected a name of letters, digits, _ and -, found {name!r}", [_EXAMPLE])
    known = _keys(row, (*_KINDS, "severities"), what, [_EXAMPLE])
    kinds = [kind for kind in _KINDS if kind in known]
    if len(kinds) != 1:
        raise BadInput(f"{what}: expected one of {', '.join(_KINDS)}, found {', '.join(kinds) or 'none'}", [_EXAMPLE])
    (kind,) = kinds
    settings = _keys(known[kind], _KINDS[kind], f"{what}: {kind}", [_EXAMPLE])
    severities = known.get("severities", list(SEVERITIES))
    severities = [severities] if isinstance(severities, str) else severities
    if not isinstance(severities, Sequence) or not severities or not set(severities) <= set(SEVERITIES):
        text = f"{what}: severities are {', '.join(SEVERITIES)}, found {severities!r}"
        raise BadInput(text, [_EXAMPLE])
    receiver = {"mail": _mail, "webhook": _webhook, "slack": _slack}[kind](settings, what)
    return cast("Receiver", {"name": name, "kind": kind, "severities": [str(each) for each in severities], **receiver})


def _mail(row: Mapping[str, object], what: str) -> dict[str, object]:
    to = row.get("to") or ()
    addresses = [to] if isinstance(to, str) else to
    if (
        not isinstance(addresses, Sequence)
        or not addresses
        or not all(_MAIL.fullmatch(str(each)) for each in addresses)
    ):
        raise BadInput(f"{what}: expected addresses as to, found {to!r}", [_EXAMPLE])
    sender, server = str(row.get("from", "")), str(row.get("server", ""))
    if not _MAIL.fullmatch(sender):
        raise BadInput(f"{what}: expected an address as from, found {sender!r}", [_EXAMPLE])
    if not _SERVER.fullmatch(server):
        raise BadInput(f"{what}: expected a host and its port as server, found {server!r}", [_EXAMPLE])
    if ("user" in row) != ("password" in row):
        raise BadInput(f"{what}: expected a user and a password, or neither", [_EXAMPLE])
    return {
        "to": [str(each) for each in addresses],
        "sender": sender,
        "server": server,
        "user": str(row["user"]) if "user" in row else None,
        "tls": not (row.get("tls") is False or str(row.get("tls")).lower() in ("false", "no")),
        "access": "password" if "password" in row else None,
    }


def _webhook(row: Mapping[str, object], what: str) -> dict[str, object]:
    url = str(row.get("url") or "").strip()
    if not _URL.fullmatch(url):
        # It is a secret: nothing of it is told.
        raise BadInput(
            f"{what}: url: expected an address of a webhook that begins with https:// or http://", [_EXAMPLE]
        )
    if redact.text(url) != url or "@" in url:
        raise BadInput(
            f"{what}: url: expected an address without a password or token in it",
            ["put it under the key token, which is written to a file of its own"],
        )
    return {"at": _host(url), "access": "token" if "token" in row else None}


def _slack(row: Mapping[str, object], what: str) -> dict[str, object]:
    channel = str(row.get("channel", ""))
    if "url" not in row or not channel or len(channel) > _LONGEST_CHANNEL:
        raise BadInput(f"{what}: expected the url of Slack's incoming webhook, and a channel", [_EXAMPLE])
    return {"channel": channel, "access": "url", "at": _host(str(row["url"]).strip())}


def _host(address: str) -> str:
    """Scheme and host of an address that is a secret from there on; empty for what is no address."""
    found = _URL.fullmatch(address)
    return found[1] if found else ""


def _scrape(value: object) -> ScrapeAccess | None:
    if _is_unset(value):
        return None
    example = [f"{SCRAPE}: {{username: prometheus, password: SECRET, ca: /etc/ssl/certs/fleet.pem}}"]
    known = _keys(value, ("username", "password", "ca"), SCRAPE, example)
    if ("username" in known) != ("password" in known):
        raise BadInput(f"{SCRAPE}: expected a username and a password, or neither", example)
    authority = known.get("ca")
    if authority is not None and not _CA.fullmatch(str(authority)):
        raise BadInput(f"{SCRAPE}: expected an absolute path on the server as ca, found {authority!r}", example)
    return {
        "user": str(known["username"]) if "username" in known else None,
        "ca": None if authority is None else str(authority),
    }


def _grafana(variables: Variables) -> Grafana | None:
    wished, password = variables.get(GRAFANA), variables.get(GRAFANA_PASSWORD)
    if is_no(wished):
        return None
    if not is_yes(wished):
        raise BadInput(f"{GRAFANA}: expected true or false, found {wished!r}", [f"{GRAFANA}: true"])
    given = not _is_unset(password)
    if given and not _PASSWORD.fullmatch(str(password)):
        text = f"{GRAFANA_PASSWORD}: expected 8 to 128 characters in one line, without blanks at its ends"
        raise BadInput(text, [f"leave {GRAFANA_PASSWORD} out: one is made on the machine"])
    return {"port": _number(variables, GRAFANA_PORT, _GRAFANAS_PORT, "a port", _HIGHEST_PORT), "password": given}


def _keys(row: object, allowed: Sequence[str], what: str, example: Sequence[str]) -> Mapping[str, object]:
    """Return a mapping without what is not set. Raises BadInput where it is none, or has other keys."""
    if not isinstance(row, Mapping):
        raise BadInput(f"{what}: expected a mapping of {', '.join(allowed)}, found {type(row).__name__}", list(example))
    unknown = [str(key) for key in row if key not in allowed]
    if unknown:
        raise BadInput(f"{what}: there is no {unknown[0]!r}, expected {', '.join(allowed)}", list(example))
    return {str(key): each for key, each in row.items() if each is not None and each != ""}


def _url(value: object, what: str) -> str:
    """Return an address. Raises BadInput for what is none, and for one with a secret: addresses are in plans and records."""
    url = str(value or "").strip()
    if not _URL.fullmatch(url):
        raise BadInput(f"{what}: expected an address that begins with https:// or http://, found {redact.text(url)!r}")
    if redact.text(url) != url or "@" in url:
        raise BadInput(
            f"{what}: expected an address without a password or token in it, found {redact.text(url)!r}",
            ["put it under the key token or password, which is written to a file of its own"],
        )
    return url


VARIABLES = (
    ADDRESS, PORT, ALERTS_PORT, DAYS, SIZE, REMOTE_WRITE, RECEIVERS, SCRAPE, GRAFANA, GRAFANA_PORT, GRAFANA_PASSWORD
)  # fmt: skip
#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "prometheus alertmanager grafana",
        "Prometheus and Alertmanager are the want monitoring-server; for Grafana there are dashboards (docs/monitoring.md)",
        ("monitoring-server",),
    ),
)
WORDS = Words(
    "monitoring_server",
    _WANT,
    brings=("monitoring_server",),
    readers={_WANT: _read_want},
    variables=VARIABLES,
    of_host=VARIABLES,
    read=_read_variables,
    told=_TOLD,
)
