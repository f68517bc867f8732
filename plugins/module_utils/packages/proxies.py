# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proxy for an address, as the node has it: by the variables of the task, else by its package manager's own settings.

What stands in `no_proxy` is reached without one, whoever names one. No text that is made here has a user or a password.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
from typing import Callable, Iterable, Mapping, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages

DNF_CONF = "/etc/dnf/dnf.conf"

_PORTS = {"http": 80, "https": 443}
# Seconds; it only reads files.
_TIMEOUT = 10.0
# Bytes of dnf.conf that are read.
_LONGEST = 1 << 16
_OF_APT = re.compile(r'^Acquire::(https?::Proxy(?:::[^\s":]+)?) "([^\n]*)";$', re.MULTILINE | re.IGNORECASE)
# How apt and dnf write that there is none (tried with apt 2.6).
_NONE = ("direct", "false", "_none_")
_MAIN = re.compile(r"^\[main\][^\n]*\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_OF_DNF = re.compile(r"^(proxy|proxy_username|proxy_password)[ \t]{0,20}=([^\n]*)$", re.MULTILINE)


class ProxyError(Exception):
    """A proxy that nothing can go by; the text says who names it, what was expected and what to do, and nothing of its address."""


class Proxy(NamedTuple):
    """A proxy. `scheme` says how it is spoken to: http or https; `source` who named it."""

    scheme: str
    host: str
    port: int
    login: str
    password: str
    source: str

    def __str__(self) -> str:
        """As a person is told of it."""
        return f"the proxy {self.scheme}://{self.place} ({self.source})"

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def header(self) -> str:
        """What lets in (RFC 7617); empty where it asks for nothing."""
        words = f"{self.login}:{self.password}"
        return "" if words == ":" else "Basic " + base64.b64encode(words.encode()).decode()

    @property
    def secret_url(self) -> str:
        """Its address with user and password, as a variable has it. For no text that anybody reads."""
        # requests, which pip has, reads no user without a colon behind it.
        who = f"{quote(self.login, safe='')}:{quote(self.password, safe='')}@" if self.header else ""
        return f"{self.scheme}://{who}{self.place}"


class Settings(NamedTuple):
    """What a node says of proxies: the variables of the task, and what its package manager is set to."""

    variables: Mapping[str, str]
    apt: Mapping[str, str]
    """Values by `http::proxy` or `https::proxy::HOST`, in small letters."""
    dnf: Mapping[str, str]
    """Values by the names that dnf.conf has for them."""

    def proxy(self, url: str) -> Proxy | None:
        """The proxy for an address; of `https://` alone the one that is not for a single host. None: without one. Raises ProxyError."""
        scheme, host = _target(url)
        if scheme not in _PORTS or bypassed(host, self.variable("no_proxy")):
            return None
        for name in (scheme + "_proxy", "all_proxy"):
            if self.variable(name):
                return parsed(self.variable(name), f"{name} of the environment")
        # What is said for http holds for https too, where that says nothing; what is said for the host, before all (tried with apt 2.6).
        schemes = ["https", "http"] if scheme == "https" else ["http"]
        for name in [f"{each}::proxy::{host}" for each in schemes] + [f"{each}::proxy" for each in schemes]:
            if self.apt.get(name):
                return parsed(self.apt[name], f"Acquire::{name.replace('proxy', 'Proxy', 1)} of apt")
        login, password = (self.dnf.get(name, "") for name in ("proxy_username", "proxy_password"))
        return parsed(self.dnf.get("proxy", ""), f"proxy in {DNF_CONF}", login, password)

    def variable(self, name: str) -> str:
        """A variable of the task: in small letters, else in capitals; empty where it is not set."""
        return self.variables.get(name) or self.variables.get(name.upper()) or ""

    def direct(self) -> list[str]:
        """The hosts that apt is told to reach without a proxy."""
        of_hosts = {name.split("::")[2]: value for name, value in self.apt.items() if name.count("::") > 1}
        return sorted(host for host, value in of_hosts.items() if value.lower() in _NONE)


def settings(
    variables: Mapping[str, str] | None = None, host: Host | None = None, run: Callable[..., Result] = run_module.run
) -> Settings:
    """What this node says. A package manager that does not answer, or whose settings cannot be read, says nothing."""
    host = host or Host()
    manager = packages.manager(host)
    dump = run(["apt-config", "dump"], timeout=_TIMEOUT) if manager == "apt" else None
    return Settings(
        dict(os.environ if variables is None else variables),
        parse_apt(dump.out) if dump and dump.ok else {},
        parse_dnf(host.read(DNF_CONF, limit=_LONGEST) or "") if manager == "dnf" else {},
    )


def parse_apt(text: str) -> dict[str, str]:
    """The settings of proxies in what `apt-config dump` prints, by their names in small letters."""
    return {name.lower(): value.strip() for name, value in _OF_APT.findall(text)}


def parse_dnf(text: str) -> dict[str, str]:
    """The settings of the proxy in section main of a dnf.conf; its repositories may have others."""
    return {name: value.strip() for section in _MAIN.findall(text + "\n") for name, value in _OF_DNF.findall(section)}


def parsed(value: str, source: str, login: str = "", password: str = "") -> Proxy | None:
    """A proxy as people write its address; None where they write that there is none. Raises ProxyError.

    `login`, `password`: where they stand apart from the address; those in it go before.
    """
    if not value or value.lower() in _NONE:
        return None
    written = value if "://" in value else "http://" + value
    try:
        parts = urlsplit(written)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    # A raw slash, question mark or number sign in a password ends the host for whoever reads it.
    spilt = "@" in parts.path + parts.query + parts.fragment
    if not host or spilt or parts.scheme not in _PORTS or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ProxyError(
            f"Expected {source} to be http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with each percent-encoded. Found something else. "
            "What to do: correct it on the node; another kind of proxy is not known here"
        )
    if parts.username is not None:
        login, password = unquote(parts.username), unquote(parts.password or "")
    return Proxy(parts.scheme, host, port or _PORTS[parts.scheme], login, password, source)


def bypassed(host: str, no_proxy: str) -> bool:
    """Whether a host is reached without a proxy, by the rules of curl: `*` alone is every host, a name is itself and all below it with
    or without a dot before it, an address is itself or one in its network (10.0.0.0/8). Neither knows ports.
    """
    if no_proxy.strip() == "*":
        return True
    name = host.lower().strip("[]").rstrip(".")
    return bool(name) and any(_covers(entry, name) for entry in re.split(r"[\s,]+", no_proxy.lower()) if entry)


def _covers(entry: str, name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        entry = entry.strip(".")
        return bool(entry) and (name == entry or name.endswith("." + entry))
    try:
        return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False


def variables(urls: Iterable[str], known: Settings) -> dict[str, str]:
    """The variables by which a program that reads nothing else goes the same way to `urls`, and to what they name. Raises ProxyError.

    A program has one proxy for http and one for https: the one for the first of `urls` that has any, else the general one.
    They may have a user and a password: for a program that runs as root, and for no command line.
    """
    found: dict[str, str] = {}
    direct = known.direct()
    for url in [*urls, "https://", "http://"]:
        scheme, host = _target(url)
        proxy = known.proxy(url)
        if proxy:
            found.setdefault(scheme + "_proxy", proxy.secret_url)
        elif host:
            direct.append(host)
    without = dict.fromkeys(filter(None, [known.variable("no_proxy"), *direct]))
    return {**found, "no_proxy": ",".join(without)} if found else {}


def _target(url: str) -> tuple[str, str]:
    """Scheme and host of an address, in small letters; without a host where it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.scheme, parts.hostname or ""
