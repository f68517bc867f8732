# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold what compat/ and the stand-ins say of Debian's own archive against that archive, as this machine's apt reads it.

Prints each difference as a table. A row that names an older build than the archive has today is told, it has only moved on; a row that the
archive contradicts is wrong. Exit 0: no row is wrong; 1: some are; 2: the archive could not be read.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.sim import deb, repository
from tools import compat_tables
from tools.world_archive import Archive, ArchiveProblem, sources_of

#: What a stand-in has of the relations of the real package, by the fields of the index. What is only recommended is not installed on a
#: node, and what a package breaks or replaces are old releases of others.
RELATIONS = ("Pre-Depends", "Depends", "Provides", "Conflicts")
#: The repository of packages.yaml that stands for a release's own archive.
STAND_INS = {"debian-13": "distribution-debian-13"}
#: Where the packages of Debian's driver say how their module is called, by the kind of modules.
MODULE_FILES = {
    "proprietary": ("nvidia-kernel-support", "/etc/nvidia/current/nvidia-modprobe.conf"),
    "open": ("nvidia-open-kernel-support", "/etc/nvidia/current-open/nvidia-modprobe.conf"),
}
_UNIT = re.compile(r"/systemd/system/([^/]+\.(?:service|path|timer|socket))$")
#: Larger packages are not fetched for what is in them.
_FETCH_BYTES = 1_000_000


@dataclass(frozen=True)
class Difference:
    """A field of a row, and what the archive has there. ``moved``: the archive only went on since."""

    table: str
    row: str
    field: str
    ours: str
    archive: str
    moved: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, show, and say by the exit status whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    started = time.monotonic()
    tables = compat_tables.load(compat_tables.COMPAT)
    plan = yaml.safe_load(repository.PACKAGES.read_text())
    found: list[Difference] = []
    try:
        with tempfile.TemporaryDirectory(prefix="gpuwright-world-") as folder:
            for row in tables["systems"]["rows"]:
                if row["family"] == "debian":
                    archive = Archive(Path(folder) / row["os"], sources_of(row["codename"]))
                    archive.update()
                    found += differences(row["os"], tables, plan, archive)
    except ArchiveProblem as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    console = Console()
    if found:
        console.print(table_of(found))
    wrong = sum(not each.moved for each in found)
    console.print(f"{wrong} wrong, {len(found) - wrong} moved on; read in {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def table_of(differences: Sequence[Difference]) -> Table:
    """The differences, one a line."""
    table = Table(title="Where our rows and Debian's archive differ")
    for name in ("table", "row", "field", "ours", "archive", ""):
        table.add_column(name, overflow="fold")
    for each in differences:
        words = (each.table, each.row, each.field, each.ours, each.archive, "moved on" if each.moved else "WRONG")
        table.add_row(*map(escape, words))
    return table


def differences(
    system: str, tables: Mapping[str, Any], plan: Mapping[str, Any], archive: Archive
) -> Iterator[Difference]:
    """All of one release (``system``: debian-13), from the tables of compat/ and the plan of the stand-ins."""
    (row,) = (each for each in tables["systems"]["rows"] if each["os"] == system)
    yield from of_system(row, archive)
    yield from of_headers(system, tables["systems"]["headers"], archive)
    sets = [each for each in tables["packages"]["driver"] if (each["from"], each["family"]) == ("distro", "debian")]
    yield from of_sets(system, sets, archive)
    for each in tables["systems"]["distro_drivers"]:
        if each["os"] == system:
            yield from of_driver(each, sets, archive)
    if system in STAND_INS:
        yield from of_stand_ins(dict(plan), STAND_INS[system], archive)


# compat/ ---------------------------------------------------------------------------------------------------------------


def of_system(row: Mapping[str, Any], archive: Archive) -> Iterator[Difference]:
    """Versions of what the release carries, and its compilers."""
    versions = {
        "glibc": ("libc6", row["glibc"]),
        "python": ("python3", row["python"]),
        "gcc": ("gcc", row["gcc"]),
        "kernel": ("linux-image-amd64", row["kernel"]),
        "docker_version": ("docker.io", row["docker_version"]),
    }
    for field, (name, ours) in versions.items():
        real = upstream(version_of(archive, name))
        if not f"{real}.".replace("+", ".").startswith(f"{ours}."):
            yield Difference("systems", row["os"], field, ours, f"{name} {real}")
    for name in row["docker"]:
        if archive.find(name) is None:
            yield Difference("systems", row["os"], "docker", name, "no package")
    compilers = {name.removeprefix("gcc-") for name in archive.names(r"gcc-\d+")}
    ours = {row["gcc"], *row["gcc_also"]}
    if ours != compilers:
        yield Difference("systems", row["os"], "gcc_also", listed(ours), listed(compilers))


def of_headers(system: str, rows: Sequence[Mapping[str, Any]], archive: Archive) -> Iterator[Difference]:
    """The meta packages of kernel headers, for the architecture whose index is read."""
    for row in rows:
        name = row["headers"]
        if row["family"] == "debian" and row["arch"] == "x86_64" and archive.find(name) is None:
            yield Difference("systems.headers", f"{system} {row['flavour']}", "headers", name, "no package")


def of_sets(system: str, rows: Sequence[Mapping[str, Any]], archive: Archive) -> Iterator[Difference]:
    """The packages of the driver's sets, and what their modules are called."""
    for row in rows:
        called = f"{system} {row['set']} {row['modules']}"
        missing = [name for name in row["packages"] if archive.find(name) is None]
        if missing:
            yield Difference("packages.driver", called, "packages", listed(missing), "no package")
        name, path = MODULE_FILES[row["modules"]]
        loads = set(
            re.findall(r"^install nvidia modprobe (?:\S+ )*?(nvidia\S*)", archive.content(name, path), re.MULTILINE)
        )
        if loads != {row["kernel_module"]}:
            yield Difference("packages.driver", called, "kernel_module", row["kernel_module"], listed(loads))


def of_driver(row: Mapping[str, Any], sets: Sequence[Mapping[str, Any]], archive: Archive) -> Iterator[Difference]:
    """The build of the distribution's driver, which kinds of modules can be installed, and from which components."""
    system = row["os"]
    real = upstream(version_of(archive, "nvidia-smi"))
    if real != row["build"]:
        moved = real.startswith(f"{row['branch']}.") and is_newer(real, row["build"])
        yield Difference("systems.distro_drivers", system, "build", row["build"], real, moved)
    brought = {(each["set"], each["modules"]): archive.install(each["packages"]) for each in sets}
    kinds = {kind for kind in MODULE_FILES if all(found for (_set, its), found in brought.items() if its == kind)}
    ours = set(row.get("modules") or MODULE_FILES)
    if kinds != ours:
        yield Difference("systems.distro_drivers", system, "modules", listed(ours), listed(kinds))
    names = {name for (_set, kind), found in brought.items() if kind in ours for name in found or ()}
    components = {package.component for name in names if (package := archive.find(name))} - {"main"}
    if components != set(row["components"]):
        yield Difference("systems.distro_drivers", system, "components", listed(row["components"]), listed(components))


# The stand-ins ---------------------------------------------------------------------------------------------------------


def of_stand_ins(plan: dict[str, Any], name: str, archive: Archive) -> Iterator[Difference]:
    """Each package of a repository of stand-ins, in its newest version: version, relations and units."""
    newest: dict[str, tuple[dict[str, Any], deb.Package]] = {}
    for entry, package in repository.stand_ins(plan, name):
        if package.name not in newest or is_newer(package.version, newest[package.name][1].version):
            newest[package.name] = (entry, package)
    for entry, package in newest.values():
        yield from of_stand_in(entry, package, archive)


def of_stand_in(entry: Mapping[str, Any], package: deb.Package, archive: Archive) -> Iterator[Difference]:
    """One of them. What its row says it is ``without`` counts as there."""
    real = archive.find(package.name)
    if real is None:
        # A kernel's packages have its release in their names, and go when newer ones come.
        yield Difference(
            "packages.yaml", package.name, "name", package.version, "no package", moved="{build}" in entry["name"]
        )
        return
    if real.version != package.version:
        moved = is_newer(real.version, package.version)
        yield Difference("packages.yaml", package.name, "version", package.version, real.version, moved)
    without = clauses(str(entry.get("without", "")), package.version)
    for field in RELATIONS:
        ours = clauses(package.fields.get(field, ""), package.version)
        theirs = clauses(real.fields.get(field, ""), real.version)
        invented, lacking = ours - theirs, theirs - ours - without
        if invented or lacking:
            told = f"+ {listed(invented)}" if invented else "", f"+ {listed(lacking)}" if lacking else ""
            yield Difference("packages.yaml", package.name, field, *told)
    if int(real.fields.get("Size", _FETCH_BYTES)) < _FETCH_BYTES:
        there = units(archive.files(package.name))
        ours = units(package.files)
        if ours - there or there - ours - without:
            yield Difference("packages.yaml", package.name, "units", listed(ours), listed(there))


def clauses(relations: str, version: str) -> set[str]:
    """The relations of a field, with the package's own version and build left open, so that those of two builds compare."""
    build = upstream(version)
    opened = relations.replace(version, "{version}").replace(build, "{build}")
    return {" ".join(clause.split()) for clause in opened.split(",") if clause.strip()}


def units(paths: Sequence[str] | Mapping[str, Any]) -> set[str]:
    """The units of systemd among the files of a package."""
    return {found[1] for path in paths if (found := _UNIT.search(path))}


# Words -----------------------------------------------------------------------------------------------------------------


def version_of(archive: Archive, name: str) -> str:
    """The newest version of a package; empty where there is none."""
    package = archive.find(name)
    return package.version if package else ""


def upstream(version: str) -> str:
    """A version without epoch, revision and what Debian adds to it."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0]


def is_newer(version: str, than: str) -> bool:
    """As dpkg compares them."""
    return subprocess.run(["dpkg", "--compare-versions", version, "gt", than], check=False).returncode == 0


def listed(words: Iterator[str] | Sequence[str] | set[str]) -> str:
    """Words on one line, in order."""
    return ", ".join(sorted(words)) or "none"


if __name__ == "__main__":
    raise SystemExit(main())
