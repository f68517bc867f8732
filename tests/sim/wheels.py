"""A Python package index of stub wheels (PEP 503), with the names, versions and dependencies of the real ones."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

_EPOCH = (2026, 11, 20, 12, 0, 0)


def normalise(name: str) -> str:
    """A project's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel(
    name: str, version: str, requires: list[str], files: Mapping[str, bytes], tag: str, extras: Mapping[str, list[str]]
) -> tuple[str, bytes]:
    """File name and bytes of one wheel."""
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: stand-in of the simulated node"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    for extra, requirements in extras.items():
        metadata.append(f"Provides-Extra: {extra}")
        metadata += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
    content = dict(files)
    content[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gpuwright-sim\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = (
        "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in content.items()) + f"{info}/RECORD,,\n"
    )
    content[f"{info}/RECORD"] = record.encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data)
    return f"{stem}-{tag}.whl", stream.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_index(folder: Path, wheels: Mapping[str, list[tuple[str, bytes]]]) -> None:
    """A simple index below FOLDER: one page a project, the files beside it."""
    for project, files in wheels.items():
        place = folder / project
        place.mkdir(parents=True, exist_ok=True)
        links = []
        for name, content in files:
            (place / name).write_bytes(content)
            quoted = name.replace("+", "%2B")
            links.append(f'<a href="{quoted}#sha256={hashlib.sha256(content).hexdigest()}">{html.escape(name)}</a><br>')
        page = "<!DOCTYPE html><html><body>\n" + "\n".join(links) + "\n</body></html>\n"
        (place / "index.html").write_text(page)
    root = "\n".join(f'<a href="{project}/">{project}</a><br>' for project in sorted(wheels))
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{root}\n</body></html>\n")
