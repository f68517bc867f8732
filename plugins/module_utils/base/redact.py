# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Credentials in addresses: taken out of every record and message, and parted from an address for who needs them.

Whatever is written or shown goes through `text` or `document`. Where it is not clear what a character belongs to, too much is taken out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Iterable, Mapping, NamedTuple, Pattern
from urllib.parse import unquote, urlsplit, urlunsplit

MARK = "***"
"""What stands in the place of a secret."""

_NAMES = (
    r"(?:access|auth|bearer|id|refresh|session|api|private|security|x-amz-security)?[-_]?token|api[-_]?key|key|auth|authorization"
    r"|sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|googleaccessid|client[-_]secret|secret"
    r"|pass|passwd|password|passphrase|pwd"
)


@lru_cache(maxsize=None)
def _patterns() -> tuple[tuple[Pattern[str], str], ...]:
    """What is taken out, and what stands there instead. Compiled at first use: a look at a node needs none of it."""
    # Lengths have ends where a search would begin anew at each of many beginnings: a node chooses what it says.
    return (
        # A password with a raw slash, question mark or number sign, up to the last @ before the next address of the web. Where none is, a
        # port is behind the colon.
        (
            re.compile(
                r"(:\\*/\\*/)[^\s/?#@:\[\]]*:(?!\d{0,5}(?![^\s\\/?#\"'<>,;)\]}]))(?:(?!https?:\\*/\\*/)[^\s\"<>]){0,300}@",
                re.IGNORECASE,
            ),
            rf"\1{MARK}@",
        ),
        # scheme://user:password@host: up to the last @ before the path; JSON may write \/ for a slash.
        (re.compile(r"(:\\*/\\*/)[^\s/?#]*@"), rf"\1{MARK}@"),
        # The same inside another address.
        (re.compile(r"(%(?:25)*3A(?:%(?:25)*2F){2})[^\s&\"'<>]{0,500}%(?:25)*40", re.IGNORECASE), rf"\1{MARK}%40"),
        # user:password@host:3128, as a proxy is written too.
        (
            re.compile(
                r"(proxy\w{0,20}[\"']?\s{0,9}[=:]\s{0,9}[\"']?)(?![\w+.-]{1,20}://)[^\s/\"'<>]{0,500}@", re.IGNORECASE
            ),
            rf"\1{MARK}@",
        ),
        # ?token=…&X-Amz-Signature=…
        (re.compile(rf"([?&;](?:amp;)?(?:{_NAMES})=)[^\s&\"'<>#`)\]}},]+", re.IGNORECASE), rf"\1{MARK}"),
        # A header is a secret to the end of its line.
        (
            re.compile(
                r"(\b(?:(?:proxy-)?authorization|(?:set-)?cookie|private-token|x-[\w-]{0,40}(?:token|api-?key|auth)[\w-]{0,20})[\"']?\s{0,9}[:=]\s{0,9}[\"']?)"
                r"[^\s\"'\\][^\r\n\"'\\]*",
                re.IGNORECASE,
            ),
            rf"\1{MARK}",
        ),
        # The value of such a key in JSON or in what Python prints of a mapping.
        (
            re.compile(
                r"([\"']\w{0,40}(?:password|passwd|passphrase|secret|token)[\"']\s{0,9}:\s{0,9}([\"']))(?:\\.|(?!\2)[^\\\r\n])+",
                re.IGNORECASE,
            ),
            rf"\1{MARK}",
        ),
        # A hash of a password: who has it can try words. crypt(5), bcrypt.
        (re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"), MARK),
        # Lines of apt's auth.conf, of a netrc, and of a repository of dnf.
        (re.compile(r"(\blogin\s{1,40})\S{1,500}(\s{1,40}password\s{1,40})\S+"), rf"\1{MARK}\2{MARK}"),
        (
            re.compile(
                r"^([ \t]{0,40}(?:proxy_)?(?:username|password)[ \t]{0,40}=[ \t]{0,40})\S[^\r\n]*", re.MULTILINE
            ),
            rf"\1{MARK}",
        ),
    )


# What every pattern needs one of: most texts have none, and are not searched seven times.
_SUSPECT = re.compile(
    r"@|%(?:25)*40|[?&;][\w-]+=|authorization|cookie|token|api-?key|auth|login|username|passw|passphrase|secret|\$2[abxy]\$",
    re.IGNORECASE,
)
_SECRET_KEY = (
    rf"^(?:(?!key$|auth$|sig$|pass$|signature$)(?:{_NAMES})"
    r"|\w+_(?:password|passphrase|secret|token|webhook)|proxy-authorization)$"
)
#: What tells people of alerts by an address that is itself the secret, in a wish.
_HOOKS = ("webhook", "slack")
_PROXY_KEY = re.compile("proxy", re.IGNORECASE)
_OF_PROXY = re.compile(r"^(?![\w+.-]+://)[^/]*@")
# What RFC 3986 allows in a user or a password, and an @ that many write there.
_WRITTEN = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*$")
# Everything else goes as it is into apt's auth.conf and a variable of dnf: tried with apt 2.6 and 3.0 and dnf 4.23.
_UNWRITABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Credentials(NamedTuple):
    """How to get in at an address: `machine` is the address without them."""

    machine: str
    login: str
    password: str


class CredentialsError(ValueError):
    """Credentials that cannot be written to the files that take them. The text has nothing of them."""


def text(value: str) -> str:
    """The text without users and passwords of addresses, secrets of queries, and headers that let somebody in."""
    if _SUSPECT.search(value):
        for pattern, instead in _patterns():
            value = pattern.sub(instead, value)
    return value


def document(value: Any) -> Any:
    """A copy of a JSON-like object in which every text, keys too, is without secrets; of a key such as `password` the whole value is."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (dict, Mapping)):  # a dict is known sooner
        return {_key(key): _of_key(key, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [document(inner) for inner in value]
    return value


def _key(key: Any) -> Any:
    return _named(key).shown if isinstance(key, str) else key


def _of_key(key: Any, value: Any) -> Any:
    if isinstance(key, str) and isinstance(value, str):
        of = _named(key)
        if value and of.is_secret:
            return MARK
        if of.is_proxy:
            return text(_OF_PROXY.sub(MARK + "@", value))
    if key in _HOOKS and isinstance(value, Mapping) and value.get("url"):
        return {**document(value), "url": MARK}
    return document(value)


class _Named(NamedTuple):
    shown: str
    is_secret: bool
    is_proxy: bool


@lru_cache(maxsize=4096)
def _named(key: str) -> _Named:
    """What a key says of its value. A document has the same keys again and again."""
    return _Named(text(key), re.search(_SECRET_KEY, key, re.IGNORECASE) is not None, bool(_PROXY_KEY.search(key)))


def without_credentials(url: str) -> str:
    """The address without user and password; any other text as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all
        return text(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def credentials(url: str) -> Credentials | None:
    """User and password of an address, decoded; None where it has none, and of what is no address. Raises CredentialsError."""
    if "://" not in url:
        return None
    try:
        written, at, _host = urlsplit(url).netloc.rpartition("@")
    except ValueError as error:
        raise CredentialsError(f"Expected an address. Found {text(url)}. What to do: correct it.") from error
    machine = without_credentials(url)
    if text(machine) != machine or re.search(r"\s", url):
        told = text("".join(url.split()))
        raise CredentialsError(
            f"Expected an address whose only secrets are a percent-encoded user and password before the host. Found {told}. "
            "What to do: percent-encode what is neither letter nor digit, and leave signatures and tokens out of the query."
        )
    if not at:
        return None
    login, _colon, password = (unquote(part) for part in written.partition(":"))
    if not _WRITTEN.match(written) or _UNWRITABLE.search(login + password) or ":" in login:
        raise CredentialsError(
            f"Expected before {machine} a user and a password without white space and control characters, in the user no colon. "
            "Found one with some. What to do: choose another password for the mirror."
        )
    return Credentials(machine, login, password)


def covers(machine: str, url: str) -> bool:
    """Whether credentials of a machine are for an address: the very one, or one below it. Never another host, port or scheme, nor one that
    leads up again.
    """
    begin = machine.rstrip("/") + "/"
    below = (url.rstrip("/") + "/")[len(begin) :]
    return (url.rstrip("/") + "/").startswith(begin) and ".." not in re.split(r"[/\\?#]", unquote(below))


def access(url: str, known: Iterable[Mapping[str, str]]) -> Credentials | None:
    """The credentials (of `known`: machine, login, password) that are for an address, those of the longest machine; None where none are."""
    found = [each for each in known if covers(each["machine"], url)]
    nearest = max(found, key=lambda each: len(each["machine"]), default=None)
    return Credentials(nearest["machine"], nearest["login"], nearest["password"]) if nearest else None


#: The option of a module that takes credentials.
OPTION: dict[str, object] = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "no_log": True,
    "options": {
        "machine": {"type": "str", "required": True},
        "login": {"type": "str", "required": True, "no_log": True},
        "password": {"type": "str", "default": "", "no_log": True},
    },
}


def taken(module: Any) -> list[dict[str, str]]:
    """The option `credentials` of an AnsibleModule, which from now on answers without it.

    Ansible would take each of its texts out of the whole answer: of a password such as `580` every version would be left in pieces.
    """
    found: list[dict[str, str]] = module.params.pop("credentials")
    module.no_log_values.clear()
    return found
