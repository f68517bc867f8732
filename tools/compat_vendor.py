# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What NVIDIA and PyTorch publish for machines to read, in the shape of the rows of compat/*.yaml.

The addresses are those of compat/upstreams.yaml: manifests of the redistributable packages (redist), the package indexes of the CUDA
repositories (apt), security bulletins (csaf), and PyTorch's own wheel indexes (wheels).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import requests
from packaging.version import Version

from tools.compat_facts import Facts, Key, Row, Tables, metadata_of, releases_of, torch_pins
from tools.compat_index import Index, IndexProblem, Progress

MANIFEST = re.compile(r"redistrib_(\d+(?:\.\d+)+)\.json")
LINUX_BRANCH = re.compile(r"^Linux\s*\(R(\d{3})\)$")
PRIOR_TO = re.compile(r"prior to (\d{3}(?:\.\d+)+)$")
TOOLKIT = re.compile(r"^Package: cuda-toolkit-(\d+)-(\d+)$", re.MULTILINE)
DRIVERS = re.compile(r"^Package: cuda-drivers-(\d{3})$", re.MULTILINE)
TIMEOUT = 60


@dataclass
class Answer:
    """What one upstream gave: rows to hold against the tables, and what a person should know."""

    name: str
    facts: list[Facts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Why it could not be read; None when it was.
    failure: str | None = None
    # What a row that is added says of its source.
    source: str = ""


class Unreachable(Exception):
    """An address that gave no usable answer."""


class Vendor:
    """Addresses by name, read with one session."""

    def __init__(self, tables: Tables, client: requests.Session) -> None:
        self._urls = {row["name"]: row["url"].rstrip("/") for row in tables["upstreams"]["rows"]}
        self._client = client

    def url(self, name: str) -> str:
        """The address of an upstream."""
        return str(self._urls[name])

    def get(self, name: str, path: str, accept: str = "*/*") -> requests.Response:
        """An answer of an upstream; whatever goes wrong is Unreachable with the reason."""
        try:
            answer = self._client.get(f"{self.url(name)}/{path}", headers={"Accept": accept}, timeout=TIMEOUT)
            answer.raise_for_status()
        except requests.ConnectionError as error:
            raise Unreachable("no connection") from error
        except requests.RequestException as error:
            raise Unreachable(str(error)) from error
        return answer

    def json(self, name: str, path: str, accept: str = "*/*") -> Any:
        """An answer that is JSON."""
        try:
            return self.get(name, path, accept).json()
        except requests.JSONDecodeError as error:
            raise Unreachable(f"{path} is no JSON") from error


def read(tables: Tables, vendor: Vendor, wheels: Callable[[str], Index], done: Progress) -> list[Answer]:
    """Ask every upstream; one that does not answer says why and stops no other."""
    readers: tuple[tuple[str, str, Callable[[Answer], None]], ...] = (
        ("nvidia-redist-cuda", "cuda_redist", lambda answer: toolkits(answer, tables, vendor)),
        ("nvidia-redist-driver", "driver_redist", lambda answer: drivers(answer, tables, vendor)),
        ("nvidia-redist-cudnn", "cudnn_redist", lambda answer: cudnn(answer, tables, vendor)),
        ("nvidia", "repositories", lambda answer: repositories(answer, tables, vendor)),
        ("nvidia-bulletins", "product_security", lambda answer: bulletins(answer, tables, vendor)),
        ("pytorch", "wheel_index", lambda answer: torch_variants(answer, tables, vendor, wheels, done)),
    )
    answers = []
    for name, source, reader in readers:
        answer = Answer(name, source=source)
        try:
            reader(answer)
        except (Unreachable, IndexProblem) as problem:
            answer.failure = str(problem)
        answers.append(answer)
    return answers


def manifests(vendor: Vendor, name: str) -> list[str]:
    """The versions that a directory of manifests lists, oldest first."""
    found = set(MANIFEST.findall(vendor.get(name, "").text))
    if not found:
        raise Unreachable("the directory lists no manifest")
    return sorted(found, key=Version)


def toolkits(answer: Answer, tables: Tables, vendor: Vendor) -> None:
    """Toolkits that the tables lack or have no native driver for; their manifests name the driver they were published with."""
    rows = {row["release"]: row for row in tables["cuda"]["rows"]}
    floors = {row["major"]: row["driver"] for row in tables["cuda"]["families"]}
    newest = max(map(Version, rows))
    found: dict[Key, Row] = {}
    for release in manifests(vendor, answer.name):
        known = rows.get(release)
        if known["native_driver"] if known else Version(release) <= newest:
            continue
        driver = vendor.json(answer.name, f"redistrib_{release}.json").get("nvidia_driver", {}).get("version")
        if driver:
            row = {"native_driver": driver}
            if not known:
                row |= {"cuda": _minor(release), "minor_version_driver": floors.get(release.split(".")[0], driver)}
            found[release,] = row
        else:
            answer.notes.append(f"CUDA {release}: its manifest names no driver; look at the release notes")
    answer.facts.append(Facts("cuda", "rows", ("release",), found, complete=False))


def drivers(answer: Answer, tables: Tables, vendor: Vendor) -> None:
    """The newest build of each branch."""
    newest: dict[str, str] = {}
    for build in manifests(vendor, answer.name):
        newest[build.split(".")[0]] = build
    found: dict[Key, Row] = {}
    known = {row["branch"]: row for row in tables["driver_branches"]["rows"]}
    for branch, build in newest.items():
        row = known.get(branch)
        if row is None:
            answer.notes.append(f"driver branch {branch} is new ({build}): add it to driver_branches.yaml by hand")
        elif row["latest"] is None or Version(build) > Version(row["latest"]):
            date = vendor.json(answer.name, f"redistrib_{build}.json").get("release_date")
            found[branch,] = {"latest": build, **({"latest_date": date} if date else {})}
    answer.facts.append(Facts("driver_branches", "rows", ("branch",), found, complete=False))


def cudnn(answer: Answer, tables: Tables, vendor: Vendor) -> None:
    """Only a word on a release that is not there as a wheel yet: the table of builds is that of the wheels."""
    newest = max(Version(row["version"]) for row in tables["cudnn"]["versions"])
    for version in manifests(vendor, answer.name):
        if Version(version).release[:3] > newest.release[:3]:
            answer.notes.append(f"cuDNN {version} is out; the Python index may have no wheel of it yet")


def repositories(answer: Answer, tables: Tables, vendor: Vendor) -> None:
    """Where the toolkits and driver branches of each served system's repository begin."""
    found: dict[Key, Row] = {}
    for row in tables["systems"]["rows"]:
        try:
            packed = vendor.get(answer.name, f"{row['nvidia_repository']}/x86_64/Packages.gz").content
            text = gzip.decompress(packed).decode("utf-8", "replace")
        except (Unreachable, OSError) as problem:
            answer.notes.append(f"{row['nvidia_repository']}: its package index could not be read ({problem})")
            continue
        carried = sorted({(int(major), int(minor)) for major, minor in TOOLKIT.findall(text)})
        branches = sorted(map(int, DRIVERS.findall(text)))
        facts: Row = {}
        if carried:
            facts["cuda_first"] = f"{carried[0][0]}.{carried[0][1]}"
        if branches:
            facts["nvidia_first_branch"] = str(branches[0])
        found[row["os"],] = facts
    if not found:
        raise Unreachable("no package index could be read")
    answer.facts.append(Facts("systems", "rows", ("os",), found, complete=False))


def bulletins(answer: Answer, tables: Tables, vendor: Vendor) -> None:
    """Builds of the driver that bulletins newer than ours name as the first that are safe."""
    rows = tables["security"]["rows"]
    newest = max(int(row["bulletin"]) for row in rows)
    year = max(row["date"] for row in rows)[:4]
    years = [each["name"] for each in vendor.json(answer.name, "") if each["name"].isdigit() and each["name"] >= year]
    floors = {row["branch"]: row for row in rows if row["component"] == "driver"}
    found: dict[Key, Row] = {}
    for each in years:
        listed = [entry["name"] for entry in vendor.json(answer.name, each) if entry["name"].isdigit()]
        for number in sorted(map(int, listed)):
            if number <= newest:
                continue
            raw = "application/vnd.github.raw+json"
            bulletin = vendor.json(answer.name, f"{each}/{number}/{number}.json", raw)
            date = bulletin["document"]["tracking"]["initial_release_date"][:7]
            fixed = fixed_builds(bulletin)
            for branch, build in fixed.items():
                row = floors.get(branch)
                if row is None:
                    answer.notes.append(f"bulletin {number}: driver branch {branch} needs {build}; add its row by hand")
                elif Version(build) > Version(found.get(("driver", branch), row)["floor"]):
                    found["driver", branch] = {"floor": build, "bulletin": str(number), "date": date}
            if not fixed:
                answer.notes.append(
                    f"bulletin {number} ({bulletin['document']['title']}): read it, it names no driver for Linux"
                )
    answer.facts.append(Facts("security", "rows", ("component", "branch"), found, complete=False))


def fixed_builds(bulletin: dict[str, Any]) -> dict[str, str]:
    """By branch: the build before which a bulletin calls the driver for Linux vulnerable."""
    found: dict[str, str] = {}
    for node in _nodes(bulletin["product_tree"].get("branches", [])):
        branch = LINUX_BRANCH.match(node.get("name", ""))
        if not branch:
            continue
        for leaf in _nodes(node.get("branches", [])):
            said = PRIOR_TO.search(leaf.get("product", {}).get("name", ""))
            if said and Version(said[1]) > Version(found.get(branch[1], "0")):
                found[branch[1]] = said[1]
    return found


def _nodes(branches: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for each in branches:
        yield each
        yield from _nodes(each.get("branches", []))


def torch_variants(
    answer: Answer, tables: Tables, vendor: Vendor, wheels: Callable[[str], Index], done: Progress
) -> None:
    """The cuDNN and NCCL that each variant's wheels pin, from PyTorch's own indexes."""
    ours = tables["pytorch"]
    oldest = min(Version(row["version"]) for row in ours["releases"])
    found: dict[Key, Row] = {}
    vendor.get(answer.name, "")
    for variant in sorted({row["variant"] for row in ours["variants"]}):
        index = wheels(f"{vendor.url(answer.name)}/{variant}/")
        # Some releases have wheels that differ only in what they bring along: their local version says more than the variant.
        plain = [each for each in index.files("torch") if each.version.local in (None, variant)]
        for version, said in metadata_of(index, releases_of(plain, oldest), done).items():
            pins = torch_pins(said)
            # Older wheels bring the libraries inside and pin nothing: that says nothing of their versions.
            known = {name: pins[name] for name in ("cudnn", "nccl") if pins[name]}
            if known:
                found[f"{version.major}.{version.minor}", variant] = {"cuda": _dotted(variant), **known}
    answer.facts.append(Facts("pytorch", "variants", ("release", "variant"), found, complete=False))


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _dotted(variant: str) -> str:
    digits = variant.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"
