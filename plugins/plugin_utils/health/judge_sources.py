# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge package sources one by one: whether the package manager can read them, whether they lead anywhere, and by which key.

What goes together of them is judged in mixed_sources. Nobody asks the network here: what is known to be gone is in compat/upstreams.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..components.view import View
from ..rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource

    from ..rules import Row

_ID = "packages.sources"
#: The upstream with a repository for each system (compat/upstreams.yaml).
_CUDA = "nvidia"
_DISC = "put a # before that line, or remove it: until then apt-get update fails where the disc is not in its drive"
_PROXY = "start it (apt-cacher-ng, squid), or take Acquire::http::Proxy out of {file}: until then apt-get update fails for every source"
_GONE = (
    "remove that file, or the package that brought it: until then apt-get update fails, and nothing comes from there"
)
#: Why apt takes no key of a file, and what helps.
_FAULTS = {
    "closed": (
        "is not for every user to read, and apt looks at keys as the user _apt",
        "sudo chmod a+r {key}, and a+rx the directories that it lies in",
    ),
    "form": (
        "has another form than its name says, and this apt leaves it out: .gpg is for a binary keyring, .asc for one with an armour",
        "sudo gpg --dearmor {key} makes {key}.gpg of one with an armour: name that one in {file}; or give it its right ending there too",
    ),
    "empty": ("is empty: its download failed", "fetch the publisher's key into {key} again, or remove {file}"),
    "none": (
        "holds no key: a page of the web, perhaps, was saved as it",
        "fetch the publisher's key into {key} again, or remove {file}",
    ),
}
#: The files with the system's own archive, which no other file replaces.
_OF_SYSTEM = ("/etc/apt/sources.list", *(f"/etc/apt/sources.list.d/{name}.sources" for name in ("debian", "ubuntu")))
_ID_OF_KEY = re.compile(r"[0-9A-F]{8}")


def judge_sources(view: View) -> list[Check]:
    """One check for each entry that the package manager cannot read, that leads nowhere, or that it has no key for."""
    packages = view.get("packages") or {}
    if "broken_sources" not in packages:
        return []
    manager = packages["manager"]
    until = "nothing can be installed" if manager == "apt" else "dnf installs nothing, or nothing from there"
    correct = f"correct that entry or remove the file: until then {until}"
    rows = [row for row in packages.get("sources") or () if row["enabled"]]
    told = [(f"{manager} cannot read {entry}", correct) for entry in packages["broken_sources"]]
    told += [(f"a package source is gone: {entry}", _GONE) for entry in packages.get("gone_sources", ())]
    told += [
        (
            f"apt goes through the proxy {row['address']} ({row['file']}), and nothing answers there",
            _PROXY.format(**row),
        )
        for row in packages.get("silent_proxies", ())
    ]
    told += [
        (f"{row['file']} has a disc as a source (cdrom:), which apt asks for at each update", _DISC)
        for row in rows
        if any(uri.startswith("cdrom:") for uri in row["uris"])
    ]
    # Of a source that is gone its key is nothing to mend.
    gone = [entry.partition(":")[0] for entry in packages.get("gone_sources", ())]
    for row in rows:
        told += list(_ended(row)) or [each for each in _of_key(row, manager) if row["file"] not in gone]
    return [
        checks.failed(_ID, "warning", reason=reason, action="configure", remedy=remedy)
        for reason, remedy in dict.fromkeys(told)
    ] or [checks.passed(_ID, "warning")]


def _ended(source: PackageSource) -> Iterator[tuple[str, str]]:
    """That an address is known to lead nowhere any more, with what there is in its place."""
    places = [f"{uri} {suite}" for uri in source["uris"] for suite in source["suites"] or [""]]
    for row in load_rules()["upstreams"]["ended"]:
        gone = next((place for place in places if re.search(row["address"], place)), None)
        if gone:
            own = source["file"] in _OF_SYSTEM
            yield (
                f"{source['file']} ({gone.strip()}): {row['text']}",
                row["remedy"] + ("" if own else f"; or remove {source['file']}"),
            )


def _of_key(source: PackageSource, manager: str) -> Iterator[tuple[str, str]]:
    """Why nothing of a source can be verified, and what helps."""
    key, file = source["signed_by"] or "", source["file"]
    where = source["uris"][0] if source["uris"] else "its repository"
    begin = f"{manager} cannot verify {where}: "
    until = "until then nothing comes from there"
    fault = _FAULTS.get(source.get("key_fault") or "")
    if source.get("key_missing") and not re.search(r"[\s,]", key):
        yield (
            f"{begin}the key that {file} names is not there ({key})",
            f"{_fetch(where, key)}, or remove {file}: {until}",
        )
    elif fault:
        yield f"{begin}the key of {file} {fault[0]} ({key})", f"{fault[1].format(key=key, file=file)}: {until}"
    else:
        yield from _of_other_key(source, begin, until)


def _fetch(where: str, key: str) -> str:
    """How a key comes to its place: NVIDIA's local repositories bring theirs (CUDA Installation Guide, Local Repo Installation)."""
    local = re.match(r"(?:file|copy):/*(/[^?#]*?)/*\Z", where)
    if local:
        return f"sudo cp {local[1]}/*-keyring.gpg {key.rpartition('/')[0]}/, where the repository brings its key"
    return f"fetch the publisher's key into {key}"


def _of_other_key(source: PackageSource, begin: str, until: str) -> Iterator[tuple[str, str]]:
    """That a repository of a known publisher is signed by another key than the source has, or by one whose time is over."""
    key, file = source["signed_by"], source["file"]
    row, address = _publishers(source)
    held = _held(source)
    place = key if key and key.startswith("/") else "/etc/apt/trusted.gpg.d"
    fetch = (
        f"fetch it ({address}) into {place}" if "rpm" not in source["types"] else f"write gpgkey={address} in its place"
    )
    if row and held and not any(found.endswith(str(row["id"]).upper()) for found in held):
        yield (
            f"{begin}it is signed by the key {row['id']}, and {file} has "
            + (f"{', '.join(each[-8:] for each in held)}" if key else "no such key in /etc/apt/trusted.gpg.d")
            + (" (NO_PUBKEY)" if "rpm" not in source["types"] else ""),
            f"{fetch}, or remove {file}: {until}",
        )
    elif source.get("key_expired"):
        yield (
            f"{begin}the key of {file} expired on {source['key_expired']} ({key})",
            f"fetch the publisher's key into {key} again, with its new end, or remove {file}: {until}",
        )


def _publishers(source: PackageSource) -> tuple[Row | None, str]:
    """The key that signs a source, as the tables have it, and where it is."""
    upstreams = load_rules()["upstreams"]
    for uri in source["uris"]:
        for upstream, directory in _below(uri, upstreams):
            of_system = [
                row["key"] for row in upstreams["repositories"] if upstream == _CUDA and row["distro"] == directory
            ]
            for row in upstreams["keys"]:
                if row["id"] in of_system or row.get("signs") == upstream:
                    return row, row.get("url") or f"{uri.rstrip('/')}/{row['file']}"
    return None, ""


def _below(uri: str, upstreams: Row) -> Iterator[tuple[str, str]]:
    """The upstreams that an address is of, mirrors too, each with the directory of it."""
    rows = [(row["name"], row["url"]) for row in upstreams["rows"]]
    rows += [(row["upstream"], row["url"]) for row in upstreams["mirrors"]]
    plain = re.sub(r"^https?://", "", uri)
    for name, url in rows:
        base = url.removeprefix("https://").rstrip("/") + "/"
        if plain.startswith(base):
            yield name, plain.removeprefix(base).partition("/")[0]


def _held(source: PackageSource) -> list[str]:
    """The keys that a source has: as they were read, or by the names of the files that dnf fetches, which NVIDIA calls by their ids."""
    if "rpm" not in source["types"]:
        return list(source.get("keys") or ())
    names = (each.rpartition("/")[2].partition(".")[0].upper() for each in (source["signed_by"] or "").split())
    return [name for name in names if _ID_OF_KEY.fullmatch(name)]
