"""What dnf would install of the stand-in packages of tests/sim/packages-rpm.yaml: enough of a solver to name every package that comes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.module_utils.packages.dnf_question import continues
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft
from tests.sim import rpm

_PLAN = Path(rpm.__file__).parent / "packages-rpm.yaml"
_RELATION = re.compile(r"^(?P<name>\S+?)(?:\(x86-64\))?(?: (?P<sign><=|>=|=|<|>) (?P<version>\S+))?$")
_RICH = re.compile(r"^\((?P<then>\S+) if (?P<given>\S+)\)$")
_SIGNS = {"=": (0,), "<=": (-1, 0), ">=": (0, 1), "<": (-1,), ">": (1,)}


@dataclass(frozen=True)
class Package:
    """A package of a repository, with the relations of its spec."""

    name: str
    version: str
    architecture: str
    requires: tuple[str, ...]
    provides: tuple[str, ...]

    @property
    def full(self) -> str:
        """The name with the version, as of headers."""
        return f"{self.name}-{self.version.rpartition(':')[2]}.{self.architecture}"

    def gives(self, wanted: str) -> bool:
        """Whether it satisfies a requirement."""
        asked = _RELATION.match(wanted)
        assert asked, wanted
        for offer in (f"{self.name} = {self.version}", *self.provides):
            given = _RELATION.match(offer)
            assert given, offer
            if given["name"] != asked["name"]:
                continue
            if not asked["sign"] or (
                given["version"] and _compared(given["version"], asked["version"]) in _SIGNS[asked["sign"]]
            ):
                return True
        return False


def _compared(mine: str, other: str) -> int:
    """-1, 0 or 1. A version without a release is compared without one."""
    if "-" not in other:
        mine = mine.partition("-")[0]
    return (versions.key(mine) > versions.key(other)) - (versions.key(mine) < versions.key(other))


def packages(release: str) -> list[Package]:
    """Every stand-in as the repositories of a release have it. Release 10 has those of 9 under its own names: its specs were not read."""
    text = _PLAN.read_text()
    if release != "9":
        text = text.replace("el9", f"el{release}").replace("5.14.0-", "6.12.0-")
    found = []
    for group in yaml.safe_load(text)["groups"]:
        for build in group["builds"]:
            words = rpm._words(build, group)
            for row in group["packages"]:
                fields = {key: tuple(_each(row.get(key, ""), words)) for key in ("requires", "provides")}
                found.append(
                    Package(row["name"].format(**words), words["evr"], row.get("architecture", "x86_64"), **fields)
                )
    return found


def _each(text: str, words: Mapping[str, str]) -> Iterator[str]:
    for part in text.split(","):
        if part.strip():
            yield part.strip().format(**words)


def installed(every: Sequence[Package], names: Sequence[str], kernel: str) -> list[Package]:
    """The packages of a fresh installation: those names, and the whole kernel of this release, which the repositories need not have."""
    version = kernel.rpartition(".")[0]
    provides = (f"kernel = {version}", f"kernel-uname-r = {kernel}")
    parts = [
        Package(name, version, "x86_64", (), provides)
        for name in ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core")
    ]
    return [*(package for package in every if package.name in names), *parts]


class Transaction:
    """What comes when packages are installed, each in the newest version that the kept versions leave."""

    def __init__(self, every: Sequence[Package], there: Sequence[Package], keep: Mapping[str, str]) -> None:
        self.there, self.coming = list(there), list[Package]()
        self.offered = [package for package in every if self._is_kept(package, keep, every)]

    @staticmethod
    def _is_kept(package: Package, keep: Mapping[str, str], every: Sequence[Package]) -> bool:
        start = keep.get(package.name) or keep.get(EVERY_PACKAGE)
        others = [other for other in every if other.name == package.name]
        return (
            not start
            or continues(package.version, start)
            or not any(continues(other.version, start) for other in others)
        )

    def candidates(self, name: str) -> list[Package]:
        """The packages of this name, or name with version, the newest first."""
        found = [package for package in self.offered if name in (package.name, package.full)]
        return sorted(found, key=lambda package: versions.key(package.version), reverse=True)

    def install(self, names: Sequence[str]) -> list[Package]:
        """The packages that come: those that are named and all that they require."""
        for name in names:
            self.coming += self.candidates(name)[:1]
        while missing := self._missing():
            givers = [package for package in self.offered if package.gives(missing)]
            assert givers, f"nothing provides {missing}"
            named = _RELATION.match(missing)
            assert named
            self.coming.append(
                max(givers, key=lambda package: (package.name == named["name"], versions.key(package.version)))
            )
        return self.coming

    def _missing(self) -> str | None:
        present = [*self.there, *self.coming]
        for package in self.coming:
            for wanted in package.requires:
                rich = _RICH.match(wanted)
                if rich and not any(each.name == rich["given"] for each in present):
                    continue
                asked = rich["then"] if rich else wanted
                if not any(each.gives(asked) for each in present):
                    return asked
        return None


def answer(drafted: Draft, every: Sequence[Package], there: Sequence[Package]) -> Any:
    """What the module package_index answers for a draft."""
    transaction = Transaction(every, there, drafted.keep)
    names = [item.partition("=")[0] for item in drafted.packages]
    known = {name: [package.version for package in transaction.candidates(name)] for name in names}
    coming = transaction.install(names)
    return {
        "packages": {name: {"candidate": found[0], "versions": found} for name, found in known.items() if found},
        "others": {},
        "exchange": None,
        "install": [
            {
                "name": package.full if package.full in names else package.name,
                "version": package.version,
                "from": None,
                "download_bytes": 1000,
                "installed_bytes": 5000,
            }
            for package in coming
        ],
        "removes": [],
        "downgrades": [],
        "enabled": [],
        "download_bytes": 1000 * len(coming),
        "disk_bytes": 5000 * len(coming),
        "problems": [
            {
                "kind": "no-such-package",
                "package": name,
                "text": f"no repository offers {name}",
                "repository": None,
                "remedy": None,
            }
            for name, found in known.items()
            if not found
        ],
    }
