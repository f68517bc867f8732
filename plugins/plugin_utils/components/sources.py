# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Package sources as the roles add them: the files of each, and what of the host is in their way.

What a mirror asks for (user, password) is known to neither a plan nor a log: who writes it takes it from the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from . import base

if TYPE_CHECKING:
    from ...module_utils.packages.sources import Displaced, InstalledKey, Source
    from ..model.plan import Plan
    from ..model.stack import Exclusion, Repository, RepositoryKey
    from .base import Context, Step

_WRITTEN = "# Written by gpuwright for {}. A change here is overwritten by the next run.\n"
_OF_ANOTHER = (
    "# Two repositories offer packages of one name. The driver comes from the other one; from here come only these:\n"
)
_NO_DRIVER = (
    "# The driver of this machine is not its own: one for Linux is installed from no source. These are no drivers:\n"
)


class LeftOut(TypedDict):
    """The sources that are left out."""

    covered: list[str]


def begin(context: Context, plan: Plan) -> LeftOut:
    """Which sources are left out, because the host has them by its own."""
    del plan
    every = [row["name"] for row in context.stack.get("repositories") or ()]
    return {"covered": sorted(set(every) - {row["name"] for row in base.wanted_repositories(context, every)})}


def displaced(rows: Iterable[Repository]) -> list[Displaced]:
    """Files of the host that are in the way of these sources of a stack."""
    return [
        {"file": entry["file"], "whole": entry["whole"], "uris": list(entry["uris"])}
        for row in rows
        for entry in row.get("displaces") or ()
    ]


def addresses(row: Repository) -> list[str]:
    """What is fetched of a source: its index and packages, and its key."""
    key = row.get("key")
    return [*row["uris"], *([key["url"]] if key else [])]


def source(row: Repository, manager: str | None, *, with_access: bool) -> Source:
    """A source of a stack as it is written. ``with_access``: whether its mirror asks for a user and a password."""
    return _dnf(row, with_access=with_access) if manager == "dnf" else _apt(row)


def _apt(row: Repository) -> Source:
    name, key = row["name"], row.get("key")
    fields = {
        "Types": "deb",
        "URIs": " ".join(row["uris"]),
        "Suites": " ".join(row["suites"]),
        "Components": " ".join(row.get("components") or ()),
        "Signed-By": key["path"] if key else row.get("signed_by"),
    }
    begin_with = _WRITTEN.format(name)
    return {
        "name": name,
        "addresses": addresses(row),
        "key": _key(key, "binary") if key else None,
        "access": {f"/etc/apt/auth.conf.d/gpuwright-{name}.conf": {"form": "auth.conf", "begin": begin_with}},
        "file": row["file"],
        "content": begin_with + "".join(f"{field}: {value}\n" for field, value in fields.items() if value),
        "preferences": {f"/etc/apt/preferences.d/gpuwright-{name}": _preferences(name, row.get("exclude"))},
        "index": True,
    }


def _key(key: RepositoryKey, form: str) -> InstalledKey:
    return {"url": key["url"], "fingerprint": cast("str", key["fingerprint"]), "path": key["path"], "form": form}


def _preferences(name: str, exclude: Exclusion | None) -> str:
    """What keeps packages out that come from another repository (apt_preferences(5)); empty where nothing does."""
    if not exclude:
        return ""
    release = exclude["release"]
    form = "Package: {}\n" + (f"Pin: release {release}\n" if release else "Pin: version *\n") + "Pin-Priority: {}\n\n"
    let_in = "".join(form.format(pattern, 500) for pattern in exclude["except"])
    kept_out = "".join(form.format(pattern, -1) for pattern in exclude["packages"])
    return _WRITTEN.format(name) + (_OF_ANOTHER if release else _NO_DRIVER) + let_in + kept_out


def _dnf(row: Repository, *, with_access: bool) -> Source:
    """A variable of dnf is a file of its name (letters, digits and underscores): everybody may read the source file."""
    name, key = row["name"], row.get("key")
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
        *([f"gpgkey=file://{key['path']}"] if key else ()),
    ]
    return {
        "name": name,
        "addresses": addresses(row),
        "key": _key(key, "armoured") if key else None,
        "access": {f"/etc/dnf/vars/{variable}_{part}": {"form": part} for part in ("login", "password")},
        "file": row["file"],
        "content": _WRITTEN.format(name) + "\n".join(lines) + "\n",
        "preferences": {},
        "index": False,
    }


def of_names(plan: Plan, wanted: Sequence[str] | None) -> tuple[list[Repository], list[Displaced]]:
    """The named sources of a plan (without names all) that are added, and what of the host is in their way."""
    rows = [row for row in plan["stack"].get("repositories") or () if wanted is None or row["name"] in wanted]
    left_out = cast("LeftOut", plan["work"].get("repositories") or {"covered": []})
    covered = left_out["covered"]
    return [row for row in rows if row["name"] not in covered], displaced(rows)


STEPS: Mapping[str, Step] = {"begin": begin}
