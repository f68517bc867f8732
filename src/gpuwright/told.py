"""Which warnings a person has read: those that did not change since the last run of a host are counted, not told again."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, TypeVar

from gpuwright import paths

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Why

    Document = TypeVar("Document", Plan, Record)


def only_new(found: Mapping[str, Document]) -> dict[str, Document]:
    """The records with those of their warnings that their host's last run did not have; `warnings_as_before` counts the others.

    What these runs have is remembered for the next one, in the user's state directory.
    """
    path = _path()
    before = _read(path)
    now = {host: sorted({_digest(row) for row in record.get("warnings") or ()}) for host, record in found.items()}
    _write(path, {host: digests for host, digests in (before | now).items() if digests})
    return {host: _without(record, before.get(host) or ()) for host, record in found.items()}


def _without(record: Document, known: Collection[str]) -> Document:
    rows = list(record.get("warnings") or ())
    new = [row for row in rows if _digest(row) not in known]
    shown = record.copy()
    shown["warnings"], shown["warnings_as_before"] = new, len(rows) - len(new)
    return shown


def _digest(row: Why) -> str:
    return hashlib.sha256(str(row.get("text")).encode()).hexdigest()[:16]


def _path() -> Path:
    return paths.state_home() / "gpuwright" / "warnings.json"


def _read(path: Path) -> dict[str, list[str]]:
    """What was remembered; nothing where it cannot be read, so that everything is told."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    rows = document.items() if isinstance(document, dict) else ()
    return {host: digests for host, digests in rows if isinstance(digests, list)}


def _write(path: Path, document: Mapping[str, list[str]]) -> None:
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

    with contextlib.suppress(OSError, run_directory.RefusedError):  # then the next run tells all of them
        run_directory.make(path.parent)
        run_directory.write(path, json.dumps(document, indent=1, sort_keys=True).encode())
