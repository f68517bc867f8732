# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a driver can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import systems
from ....rules import Row, Rules, remembered

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack


@dataclass(frozen=True)
class CudaSupport:
    """A driver as far as CUDA is concerned.

    version is its build; None where the newest of its branch will be installed. cuda is the newest CUDA version that
    it brings in full: of the branch, or what a foreign driver (Windows', the container host's) reports.
    newest is the build to compare floors with; None where only the reported CUDA version may be used, because
    Windows numbers its drivers otherwise. forward are the CUDA versions (13.0) that cuda-compat, where it is wished, adds.
    """

    cuda: str
    version: str | None
    newest: str | None
    forward: tuple[str, ...] = ()

    def mode(self, cuda: str, rules: Rules) -> str | None:
        """Return how a CUDA version (12.8) runs: "native", "minor-version", "forward", or None where it does not."""
        if self._native(cuda, rules):
            return "native"
        if self._of_the_family(cuda, rules):
            return "minor-version"
        return "forward" if cuda in self.forward else None

    def _of_the_family(self, cuda: str, rules: Rules) -> bool:
        family = family_floor(numeric_version.major(cuda), rules)
        if family is None:
            return False
        if self.newest is None:
            return numeric_version.major(cuda) == numeric_version.major(self.cuda)
        return numeric_version.at_least(self.newest, family["driver"])

    def _native(self, cuda: str, rules: Rules) -> bool:
        floor = native_floor(cuda, rules)
        if self.version and floor:
            return numeric_version.at_least(self.version, floor)
        return numeric_version.at_least(self.cuda, cuda)


def of_branch(row: Row, version: str | None = None, build: str | None = None) -> CudaSupport:
    """Return the power of a branch; of an exact version where that is known, or of the build a distribution carries."""
    return CudaSupport(cuda=row["max_cuda"], version=version or build, newest=version or build or row["latest"])


def of_stack(driver: DriverStack, system: Row, rules: Rules) -> CudaSupport:
    """Return the power of a driver that was chosen, or that is there and stays."""
    carried = systems.distro_driver(system, driver["branch"], rules) if driver["source"] == "distro" else None
    return of_branch(near_branch(driver["branch"], rules), driver["version"], carried["build"] if carried else None)


def near_branch(branch: str, rules: Rules) -> Row:
    """Return the row of a branch; of one that the rules do not know, the row of the newest older one."""
    rows: list[Row] = rules["driver_branches"]["rows"]
    older = [row for row in rows if int(row["branch"]) <= int(branch)]
    return max(older, key=lambda row: int(row["branch"]), default=rows[0])


def reported(cuda: str) -> CudaSupport:
    """Return the power of a driver of which only the CUDA version is known."""
    return CudaSupport(cuda=cuda, version=None, newest=None)


@remembered
def family_floor(major: str, rules: Rules) -> Row | None:
    """Return the row with the lowest driver for a CUDA major version."""
    rows: list[Row] = rules["cuda"]["families"]
    return next((row for row in rows if row["major"] == major), None)


@remembered
def native_floor(cuda: str, rules: Rules) -> str | None:
    """Return the lowest driver that brings the first release of a CUDA version (12.8) in full."""
    builds = [row["native_driver"] for row in rules["cuda"]["rows"] if row["cuda"] == cuda and row["native_driver"]]
    return min(builds, key=numeric_version.key) if builds else None
