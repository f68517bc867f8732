"""A root of its own for the real apt: stand-in packages in a repository of files, and a dpkg record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.sim import deb, repository

ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}


def stand_ins(plan: dict[str, Any], places: Iterable[str]) -> dict[str, list[deb.Package]]:
    """The packages of these repositories, with libraries that were not compiled."""
    with mock.patch.object(repository, "compiled", return_value=b"library"):
        return {place: [package for _row, package in repository.stand_ins(plan, place)] for place in places}


def installed(names: Iterable[str]) -> str:
    """dpkg's record of packages that are there."""
    form = (
        "Package: {}\nStatus: install ok installed\nVersion: 99\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"
    )
    return "\n".join(map(form.format, names))


def options(root: Path, archives: Path, status: Path, **more: str | Path) -> list[str]:
    """Make the places that apt needs, and give the options with which it works there alone: its source is ARCHIVES, its preferences are
    the file of that name, its record of packages is STATUS.
    """
    for name in ("lists/partial", "cache/archives/partial", "log", "etc"):
        (root / name).mkdir(parents=True)
    (root / "sources.list").write_text(f"deb [trusted=yes] file:{archives} ./\n")
    settings = {
        "Dir::State": root,
        "Dir::State::lists": root / "lists",
        "Dir::State::status": status,
        "Dir::Cache": root / "cache",
        "Dir::Etc::SourceList": root / "sources.list",
        "Dir::Etc::SourceParts": root / "etc",
        "Dir::Etc::Preferences": root / "preferences",
        "Dir::Etc::PreferencesParts": root / "etc",
        "Dir::Log": root / "log",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "Debug::NoLocking": "true",
        **more,
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
