# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The answers of the package index and of the Python index.

Written by tools/build_types.py from plugins/plugin_utils/gate/answers.json: edit that, then `make rules`.
"""

from __future__ import annotations

from typing import Literal, TypedDict

ProblemKind = Literal[
    "broken-source",
    "hidden",
    "unreachable",
    "bad-signature",
    "wrong-key",
    "timeout",
    "no-such-package",
    "unsolvable",
    "lock",
]


class PackageVersions(TypedDict):
    """Versions of a package that the index has."""

    candidate: str | None
    """Version that would be installed"""
    versions: list[str]
    """All versions"""


PackageInstall = TypedDict(
    "PackageInstall",
    {
        # Name of the package
        "name": "str",
        # Version that comes
        "version": "str",
        # Version that is installed
        "from": "str | None",
        # Download (bytes)
        "download_bytes": "int | None",
        # Size when installed (bytes)
        "installed_bytes": "int | None",
    },
)
"""Package that a transaction installs."""


class PackageRemoval(TypedDict):
    """Package that a transaction removes."""

    name: str
    """Name of the package"""
    version: str
    """Version that is installed"""


class PackageExchange(TypedDict):
    """Exchange of one driver's packages for another's."""

    comes: dict[str, str]
    """Packages that come, with their versions"""
    leaves: list[str]
    """Packages that leave"""


class _IndexProblem(TypedDict):
    """Problem that stands in the way: keys that are always there."""

    kind: ProblemKind
    """Kind of problem"""
    repository: str | None
    """Repository that it is about"""
    text: str
    """What the package manager said"""
    remedy: str | None
    """What a person does now"""
    package: str | None
    """Package that it is about"""


class IndexProblem(_IndexProblem, total=False):
    """Problem that stands in the way."""

    needed: bool
    """Whether the transaction needs the package"""
    source: str | None
    """The id of a repository"""


class PackageIndex(TypedDict):
    """Answer of the package index."""

    enabled: list[str]
    """Ids of the repositories that were enabled for the question"""
    packages: dict[str, PackageVersions]
    """Asked packages"""
    others: dict[str, list[str]]
    """Further packages, with their versions"""
    install: list[PackageInstall]
    """Packages that the transaction installs"""
    removes: list[PackageRemoval]
    """Packages that the transaction removes"""
    downgrades: list[str]
    """Packages that the transaction installs in an older version than is there"""
    download_bytes: int | None
    """Download of all (bytes)"""
    disk_bytes: int | None
    """Change of the space in use (bytes)"""
    exchange: PackageExchange | None
    """Exchange of one driver's packages for another's"""
    problems: list[IndexProblem]
    """What stands in the way"""


class PythonFile(TypedDict):
    """File of a Python index."""

    name: str
    """Name of the file"""
    version: str
    """Version, with its local part"""
    size: int | None
    """Size (bytes)"""
    sha256: str | None
    """SHA-256 of the file"""
    yanked: bool
    """Whether its makers took it back"""
    requires_python: str | None
    """The versions of Python that it is for"""


class PythonRelease(TypedDict):
    """Version that a Python index has."""

    version: str
    """Version, with its local part"""
    requires_python: str | None
    """The versions of Python that it is for"""


class PythonAnswer(TypedDict):
    """What the Python index has of a pinned requirement."""

    name: str
    """Name of the distribution"""
    version: str
    """Version that was asked for"""
    places: list[str]
    """Where it was looked for, without users and passwords"""
    fits: list[PythonFile]
    """Files of the version that the interpreter takes, best first"""
    unfit: list[str]
    """Other wheels of the version"""
    others: list[PythonRelease]
    """Other versions of which a wheel fits, newest first"""
    problems: list[str]
    """Why places did not answer"""
    denied: list[str]
    """Places that hand nothing to this machine: they ask for another user or password, or forbid it"""


class PythonSource(TypedDict):
    """Distribution that has a source and no wheel that fits."""

    name: str
    """Name of the distribution"""
    words: str
    """Why it is needed"""


class PythonTrial(TypedDict):
    """Trial of what an environment is asked for."""

    environment: str
    """Path of the environment"""
    problem: str | None
    """Why it could not be tried, null where it could"""
    clash: str | None
    """Why nothing meets all of it, null where something does"""
    sources: list[PythonSource]
    """What is there as a source only, for this Python and machine"""


class PythonIndex(TypedDict):
    """Answer of the Python index."""

    answers: list[PythonAnswer]
    """What there is, in the order of the questions"""
    trials: list[PythonTrial]
    """What came of trying the requirements of environments together"""
