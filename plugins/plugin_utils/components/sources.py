# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sources as the roles add them: the files of each, and what of the host is in their way.

What a mirror asks for (user, password) is known to neither a plan nor a log: who writes it takes it from the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from . import base

if TYPE_CHECKING:
    from .base import Context, Step

_WRITTEN = "# Written by gpuwright for {}. A change here is overwritten by the next run.\n"
_OF_ANOTHER = (
    "# Two repositories offer packages of one name. The driver comes from the other one; from here come only these:\n"
)
_NO_DRIVER = (
    "# The driver of this machine is not its own: one for Linux is installed from no source. These are no drivers:\n"
)


class Key(TypedDict):
    """The key of a source. ``form``: binary for apt, armoured for rpm."""

    url: str
    fingerprint: str
    path: str
    form: str


class Source(TypedDict):
    """A package source as the module package_sources takes it.

    ``access``: files for what the mirror asks for, by path; ``form`` is auth.conf, login or password. ``preferences``: content by path,
    empty where the file goes. ``index``: whether its index is fetched now (dnf reads it when it next installs).
    """

    name: str
    addresses: list[str]
    key: Key | None
    access: dict[str, dict[str, str]]
    file: str
    content: str
    preferences: dict[str, str]
    index: bool


def names(context: Context) -> list[str]:
    """The package sources that a component has added before it installs: all of the stack. Each is compared with what it has to be, so that
    one which a cut left half done is finished, and one that bars packages of another is there before these are installed.
    """
    return [row["name"] for row in context.stack.get("repositories") or ()]


def begin(context: Context, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which sources are left out, because the host has them by its own."""
    del plan
    every = names(context)
    return {"covered": sorted(set(every) - {row["name"] for row in base.wanted_repositories(context, every)})}


def displaced(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Files of the host that are in the way of these sources of a stack."""
    return [
        {"file": entry["file"], "whole": entry["whole"], "uris": list(entry["uris"])}
        for row in rows
        for entry in row.get("displaces") or ()
    ]


def addresses(row: Mapping[str, Any]) -> list[str]:
    """What is fetched of a source: its index and packages, and its key."""
    return [*row["uris"], *filter(None, [(row.get("key") or {}).get("url")])]


def source(row: Mapping[str, Any], manager: str, *, with_access: bool) -> Source:
    """A source of a stack as it is written. ``with_access``: whether its mirror asks for a user and a password."""
    return _dnf(row, with_access=with_access) if manager == "dnf" else _apt(row)


def _apt(row: Mapping[str, Any]) -> Source:
    name, key = row["name"], row.get("key") or {}
    signed_by = key.get("path") or row.get("signed_by")
    fields = {
        "Types": "deb",
        "URIs": " ".join(row["uris"]),
        "Suites": " ".join(row["suites"]),
        "Components": " ".join(row.get("components") or ()),
        "Signed-By": signed_by,
    }
    begin_with = _WRITTEN.format(name)
    return {
        "name": name,
        "addresses": addresses(row),
        "key": _key(key, "binary") if key else None,
        "access": {f"/etc/apt/auth.conf.d/gpuwright-{name}.conf": {"form": "auth.conf", "begin": begin_with}},
        "file": row["file"],
        "content": begin_with + "".join(f"{field}: {value}\n" for field, value in fields.items() if value),
        "preferences": {f"/etc/apt/preferences.d/gpuwright-{name}": _preferences(name, row.get("exclude") or {})},
        "index": True,
    }


def _key(key: Mapping[str, Any], form: str) -> Key:
    return {"url": key["url"], "fingerprint": key["fingerprint"], "path": key["path"], "form": form}


def _preferences(name: str, exclude: Mapping[str, Any]) -> str:
    """What keeps packages out that come from another repository (apt_preferences(5)); empty where nothing does."""
    if not exclude:
        return ""
    release = exclude["release"]
    form = "Package: {}\n" + (f"Pin: release {release}\n" if release else "Pin: version *\n") + "Pin-Priority: {}\n\n"
    let_in = "".join(form.format(pattern, 500) for pattern in exclude["except"])
    kept_out = "".join(form.format(pattern, -1) for pattern in exclude["packages"])
    return _WRITTEN.format(name) + (_OF_ANOTHER if release else _NO_DRIVER) + let_in + kept_out


def _dnf(row: Mapping[str, Any], *, with_access: bool) -> Source:
    """A variable of dnf is a file of its name (letters, digits and underscores): everybody may read the source file."""
    name, key = row["name"], row["key"]
    variable = "gpuwright_" + re.sub(r"[^A-Za-z0-9]", "_", name)
    of_index = row["signed"] == "index"
    lines = [
        f"[gpuwright-{name}]",
        f"name={name} (gpuwright)",
        f"baseurl={' '.join(row['uris'])}",
        *((f"username=${variable}_login", f"password=${variable}_password") if with_access else ()),
        "enabled=1",
        f"gpgcheck={0 if of_index else 1}",
        f"repo_gpgcheck={1 if of_index else 0}",
        f"gpgkey=file://{key['path']}",
    ]
    return {
        "name": name,
        "addresses": addresses(row),
        "key": _key(key, "armoured"),
        "access": {f"/etc/dnf/vars/{variable}_{part}": {"form": part} for part in ("login", "password")},
        "file": row["file"],
        "content": _WRITTEN.format(name) + "\n".join(lines) + "\n",
        "preferences": {},
        "index": False,
    }


def of_names(
    plan: Mapping[str, Any], wanted: Sequence[str] | None
) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]]]:
    """The named sources of a plan (without names all) that are added, and what of the host is in their way."""
    rows = [row for row in plan["stack"].get("repositories") or () if wanted is None or row["name"] in wanted]
    covered = plan["work"].get("repositories", {}).get("covered", ())
    return [row for row in rows if row["name"] not in covered], displaced(rows)


STEPS: Mapping[str, Step] = {"begin": begin}
