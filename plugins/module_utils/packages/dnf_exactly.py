# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One transaction of dnf: exactly these packages at these versions, and those away. What the module dnf_transaction runs; and the trial of
an installation (``specs``) by the module package_call.

It runs under the Python that has dnf's bindings, as dnf_question does: nothing here may be younger than Python 3.6 but the first
import, which is taken out, or come from the collection. No plugin is loaded, so no version lock is in the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any


class Refused(Exception):
    """What was asked cannot be done exactly; nothing was changed. `others`: packages that would go too."""

    def __init__(self, text: str, others: Any = ()) -> None:
        super().__init__(text)
        self.others = list(others)


def evr(package: Any) -> str:
    """Version of a package as rpm is asked for it elsewhere: an epoch of 0 is left out."""
    epoch = f"{package.epoch}:" if package.epoch else ""
    return f"{epoch}{package.version}-{package.release}"


def full(package: Any) -> str:
    """Name of a package with its version, as kernels and their headers are told."""
    return f"{package.name}-{package.version}-{package.release}.{package.arch}"


def names_of(package: Any) -> Any:
    """How a package may be named."""
    return {package.name, f"{package.name}-{evr(package)}", full(package)}


def replaces(new: Any, old: Any) -> bool:
    """Whether a package takes the place of another version of the same; one of another architecture stands beside it."""
    alike = new.arch == old.arch or "noarch" in (new.arch, old.arch)
    return bool(new.name == old.name and alike)


class Transaction:
    """What becomes of the machine's packages. `given`: the options of the module."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.base = None  # type: Any
        self.silent = []  # type: Any
        self.older = set()  # type: Any

    def open(self) -> None:
        """Read the machine's settings and, where something comes or a stream is entered, its repositories."""
        import dnf

        base = self.base = dnf.Base()
        base.conf.read()
        base.conf.install_weak_deps = False
        # What dnf's history keeps of this call.
        base.conf.comment = self.given.get("comment", "")
        base.conf.best = bool(self.given.get("specs"))
        # No kernel of anybody's goes because another one comes.
        base.conf.installonly_limit = 0
        base.conf.clean_requirements_on_remove = False
        base.conf.module_stream_switch = True
        base.conf.substitutions.update_from_etc(base.conf.installroot)
        if base.conf.substitutions.get("releasever", "") is None:
            # No package tells the release; addresses with $releasever then fail by themselves.
            del base.conf.substitutions["releasever"]
        base.read_all_repos()
        for name in self.given.get("enabled", ()):
            if name in base.repos:
                base.repos[name].enable()
        for name in self.given.get("left_out", ()):
            if name in base.repos:
                base.repos[name].disable()
        enabled = list(base.repos.iter_enabled())
        for repository in enabled:
            # A source that does not answer stops nothing: what comes has exactly its version, or the transaction is refused.
            repository.skip_if_unavailable = True
        comes = any(self.given.get(key) for key in ("install", "specs", "duplicates")) or any(
            self.given["streams"].values()
        )
        base.fill_sack(load_available_repos=bool(comes))
        self.silent = sorted(
            {repository.id for repository in enabled} - {each.id for each in base.repos.iter_enabled()}
        )

    def switch(self) -> None:
        """Leave and enter module streams; it is written with the transaction."""
        from dnf.module.module_base import ModuleBase

        modules = ModuleBase(self.base)
        for name, stream in sorted(self.given["streams"].items()):
            if stream:
                modules.enable([f"{name}:{stream}"])
            else:
                modules.reset([name])

    def mark(self) -> None:
        """Say what is to come and what is to go."""
        installed = self.base.sack.query().installed()
        wanted = sorted(self.given["install"].items())
        # All are looked for before the first is marked: dnf takes no file any more once it has something to do.
        coming = [
            self.find(name, version)
            for name, version in wanted
            if not any(evr(package) == version for package in installed.filter(name=name))
        ]
        for name in self.given["remove"]:
            for package in installed:
                if name in (package.name, full(package)):
                    self.base.package_remove(package)
        for package in coming:
            self.base.package_install(package)
        for spec in self.given.get("specs", ()):
            self.base.install(spec)
        for name in self.given.get("duplicates", ()):
            by_arch = {}  # type: Any
            for package in installed.filter(name=name):
                by_arch.setdefault(package.arch, []).append(package)
            for packages in by_arch.values():
                self.mark_duplicate(sorted(packages))

    def mark_duplicate(self, packages: Any) -> None:
        """Say that of two versions of a package the older one goes, and that the newer one comes again: its scripts may not have run."""
        import dnf

        for package in packages[:-1]:
            self.base.package_remove(package)
            self.older.add(full(package))
        with contextlib.suppress(dnf.exceptions.PackagesNotAvailableError):  # the older one goes all the same
            self.base.reinstall(str(packages[-1]))

    def find(self, name: str, version: str) -> Any:
        """The package of this version, from its file or from a repository."""
        file = self.given["files"].get(name)
        if file:
            return self.base.add_remote_rpms([file])[0]
        arches = [self.base.conf.basearch, "noarch"]
        for package in self.base.sack.query().available().filter(name=name, arch=arches):
            if evr(package) == version:
                return package
        silent = "; these do not answer: " + ", ".join(self.silent) if self.silent else ""
        raise Refused(f"no repository offers {name} in version {version}{silent}")

    def resolve(self) -> Any:
        """What comes and what goes, by name; raises Refused where others would go."""
        import dnf

        try:
            self.base.resolve(allow_erasing=True)
        except dnf.exceptions.DepsolveError as error:
            raise Refused(str(error).strip()[-1500:]) from error
        transaction = self.base.transaction
        coming = list(transaction.install_set) if transaction else []
        gone = list(transaction.remove_set) if transaction else []
        going = [package for package in gone if not any(replaces(other, package) for other in coming)]
        may = {*self.given.get("remove", ()), *self.given.get("may_take", ()), *self.older}
        others = sorted({package.name for package in going if not may & names_of(package)})
        if others:
            raise Refused("others would go with it: " + ", ".join(others), others)
        may |= {*self.given.get("install", ()), *self.given.get("specs", ())}
        before = {package.name: package for package in gone}
        older = [package for package in coming if package.name in before and package < before[package.name]]
        others = sorted({package.name for package in older if not may & names_of(package)})
        if others:
            raise Refused("others would go to older versions with it: " + ", ".join(others), others)
        return {"installed": sorted(map(full, coming)), "removed": sorted(map(full, going))}

    def carry_out(self) -> None:
        """Fetch everything, check its signatures, and only then change something: or fetch alone."""
        coming = list(self.base.transaction.install_set) if self.base.transaction else []
        self.base.download_packages([package for package in coming if not os.path.isfile(package.localPkg())])
        for package in coming:
            code, words = self.base.package_signature_check(package)
            if code == 1:
                # The key is the file that the repository names; gpuwright's own were checked by their fingerprint.
                self.base.package_import_key(package, askcb=lambda *_key: True)
            elif code != 0:
                raise Refused(words)
        if not self.given.get("only_fetch"):
            self.base.do_transaction()

    def answer(self) -> Any:
        """What was (in a trial: would be) done, or why not."""
        import dnf

        try:
            self.open()
            self.switch()
            self.mark()
            found = self.resolve()
            if not self.given["trial"]:
                self.carry_out()
        except Refused as refused:
            return {"refused": str(refused), "others": refused.others}
        except dnf.exceptions.Error as error:
            return {"failed": str(error).strip()[-1500:]}
        finally:
            self.base.close()
        return found


def main() -> None:
    """Do what the file says that the first argument names; the answer goes beside it, because scripts of packages may print."""
    with open(sys.argv[1]) as stream:
        given = json.load(stream)
    answer = Transaction(given).answer()
    with open(sys.argv[1] + ".answer", "w") as stream:
        json.dump(answer, stream)
