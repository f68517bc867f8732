# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signing keys: a repository is used with a full fingerprint that the system's verifier accepts, or not at all."""

from __future__ import annotations

from ..rules import Row, Rules, cite
from ..wish.wish import Wish
from .log import Entry, conflict
from .machine import Machine


def of_nvidia(system: Row, rules: Rules) -> Row | None:
    """Return the row of the key that signs NVIDIA's repository of a system; None where it is not known."""
    repository = repository_of(system, rules)
    if repository is None or not repository["key"]:
        return None
    return by_id(repository["key"], rules)


def repository_of(system: Row, rules: Rules) -> Row | None:
    """Return the row of NVIDIA's repository for a system."""
    rows: list[Row] = rules["upstreams"]["repositories"]
    return next((row for row in rows if row["distro"] == system["nvidia_repository"]), None)


def by_id(identity: str, rules: Rules) -> Row:
    """Return the row of a key."""
    row: Row = next(row for row in rules["upstreams"]["keys"] if row["id"] == identity)
    return row


def obstacles(machine: Machine, wish: Wish, system: Row, rules: Rules) -> list[Entry]:
    """Return why NVIDIA's repository cannot be used on a machine; empty where it can."""
    del machine
    if wish.repository_keys.get("nvidia"):
        return []
    row = of_nvidia(system, rules)
    remedy = "set gpuwright_repository_keys: {nvidia: <full fingerprint, read from a source you trust>}"
    if row is None or not _expected(row):
        text = f"the full fingerprint of the key that signs NVIDIA's repository for {system['os']} is not known, and none is used unseen"
        repository = repository_of(system, rules)
        source = cite(rules, "upstreams", repository) if repository else "compat/upstreams.yaml"
        return [conflict("repository.key-unknown", text, source, remedy)]
    if row["sha1"] and system["verifier"] == "sqv":
        text = f"the key {row['id']} of NVIDIA's repository is bound by SHA-1, which the verifier of {system['os']} rejects"
        return [conflict("repository.key-sha1", text, cite(rules, "upstreams", row), remedy)]
    return []


def fingerprint(name: str, wish: Wish, row: Row | None) -> str | None:
    """Return what to know the key by: the fingerprint that was given for an upstream, else the rules', or the text of its file."""
    given = wish.repository_keys.get(name)
    if given:
        return given.replace(" ", "").upper()
    return _expected(row) if row else None


def _expected(row: Row) -> str | None:
    """Return a key's fingerprint; where nobody read it, the hash of its file's text, as module_utils/base/openpgp.py takes it."""
    text = row.get("text_sha256")
    return row["fingerprint"] or (f"text-sha256:{text}:{row['id']}" if text else None)
