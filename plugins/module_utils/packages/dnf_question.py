# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of private_dnf that runs under the Python that has dnf's bindings.

That is the system's own, on RHEL 8 a 3.6 that Ansible itself no longer runs under. So private_dnf hands it this source, and
nothing here may be younger than Python 3.6 but the first import, which is taken out, or come from the collection.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import logging
import os
import re
import shutil
import sys
from typing import Any

EVERY_PACKAGE = "/./"
NO_TRANSACTION = {"install": [], "removes": [], "downgrades": [], "freed_bytes": 0}  # type: Any
NOTHING = {**NO_TRANSACTION, "packages": {}, "others": {}, "enabled": []}  # type: Any
# Of the reasons why dnf finds no way.
_FILTERED = re.compile(r"package (\S+)(?: from \S+)? is filtered out by (?:exclude|modular) filtering")
_NAMED = 6
_SIGNATURE_WORDS = ("gpg", "signature", "openpgp", "public key", "repomd.xml.asc")


def evr(package: Any) -> str:
    """Version of a package as rpm is asked for it elsewhere: an epoch of 0 is left out."""
    epoch = f"{package.epoch}:" if package.epoch else ""
    return f"{epoch}{package.version}-{package.release}"


def continues(version: str, start: str) -> bool:
    """Say whether a version, with or without its epoch, begins so. A star in that stands for anything."""
    pattern = start if start.endswith("*") else start + "*"
    return any(fnmatch.fnmatchcase(each, pattern) for each in (version, version.split(":", 1)[-1]))


def kind_of(text: str) -> str:
    """Kind of the problem that a repository's error tells."""
    lower = text.lower()
    if any(word in lower for word in _SIGNATURE_WORDS):
        return "bad-signature"
    return "timeout" if "timed out" in lower or "timeout" in lower else "unreachable"


def unread(path: str, said: str) -> str:
    """What dnf says of a file that it cannot read, with the place of it."""
    found = re.search(r"IniParser: (.+) at line (\d+)$", said)
    return (
        f"dnf cannot read {path}, line {found.group(2)}: {found.group(1)}"
        if found
        else f"dnf cannot read {path}: {said}"
    )


def foreign_bytes(path: str) -> Any:
    """Number of the first line that is not UTF-8, which dnf dies of; None where there is none. Comments are not read."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if line != line.decode("utf-8", "replace").encode() and not line.startswith((b"#", b";")):
                return number
    return None


def is_meant(package: Any, pattern: str) -> bool:
    """Whether a line of settings means a package: by its name, with its architecture, its version or both."""
    version = f"{package.version}-{package.release}"
    forms = [
        package.name,
        f"{package.name}.{package.arch}",
        f"{package.name}-{version}",
        f"{package.name}-{version}.{package.arch}",
    ]
    return any(fnmatch.fnmatchcase(form, pattern) for form in [*forms, str(package)])


def leaving(arriving: Any, gone: Any) -> Any:
    """Of the packages that go those that no other version of the same takes the place of, in their order."""
    return sorted(package for package in gone if not any(replaces(other, package) for other in arriving))


def replaces(new: Any, old: Any) -> bool:
    """Whether a package takes the place of another version of the same; one of another architecture stands beside it."""
    alike = new.arch == old.arch or "noarch" in (new.arch, old.arch)
    return bool(new.name == old.name and alike)


class Unreadable(Exception):
    """A file that dnf cannot read, so that it does nothing at all."""


class Words(logging.Handler):
    """What dnf says of the files that it reads."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.said = []  # type: Any

    def emit(self, record: Any) -> None:
        """Keep a sentence."""
        self.said.append(record.getMessage())


class Question:
    """dnf on a state of its own. `given`: the question as private_dnf writes it."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.problems = []  # type: Any
        self.others = []  # type: Any
        self.base = None  # type: Any
        self.words = Words()

    def problem(self, kind: str, text: str, repository: Any = None, package: Any = None, source: Any = None) -> Any:
        """Remember why the answer is not complete."""
        row = {"kind": kind, "text": text, "repository": repository, "package": package}
        row.update(source=source, needed=True)
        self.problems.append(row)
        return row

    def other(self, kind: str, text: str, source: Any = None) -> None:
        """Remember a source of somebody else without which dnf can work. `source`: its id."""
        self.others.append(self.problem(kind, text, source=source))

    def read_settings(self) -> None:
        """Read dnf.conf."""
        import dnf

        logging.getLogger("dnf").addHandler(self.words)
        try:
            self.base.conf.read()
        except dnf.exceptions.ConfigError as error:
            raise Unreadable(unread(self.base.conf.config_file_path, str(error))) from error

    def files(self) -> Any:
        """The files of the machine's repositories, without those of the asked ones, which are written anew."""
        ours = {f"gpuwright-{repository['name']}.repo" for repository in self.given["repositories"]}
        found = [path for place in self.base.conf.reposdir for path in sorted(glob.glob(place + "/*.repo"))]
        return [path for path in found if os.path.basename(path) not in ours]

    def read_repositories(self) -> None:
        """Read the files of the repositories. dnf leaves one out that it cannot read, and what it cannot read of one."""
        try:
            self.base.read_all_repos()
        except (TypeError, UnicodeError) as error:
            for path in [self.base.conf.config_file_path, *self.files()]:
                line = foreign_bytes(path)
                if line:
                    raise Unreadable(f"dnf cannot read {path}, line {line}: it is not UTF-8") from error
            raise
        for path in self.files():
            self.read_file(path)
        for said in self.words.said:
            if said.startswith("Invalid configuration value"):
                self.other("broken-source", "dnf does without an entry: " + said)

    def read_file(self, path: str) -> None:
        """Name what dnf left out of a file; its own warnings name either no line or no file."""
        import dnf
        import libdnf

        parser = libdnf.conf.ConfigParser()
        try:
            parser.read(path)
        except RuntimeError as error:
            self.other("broken-source", unread(path, str(error)))
            return
        for name in parser.getData():
            if name != "main" and "$" not in name and dnf.repo.repo_id_invalid(name) is not None:
                self.other("broken-source", f"dnf cannot read {path}, [{name}]: it is no id of a repository")

    def open(self) -> None:
        """Read the machine's settings and repositories, put everything that is written elsewhere, add what is asked."""
        import dnf

        base = self.base = dnf.Base()
        self.read_settings()
        place = self.given["directory"]
        self.copy_cache(base.conf.cachedir)
        for name in ("cachedir", "persistdir", "logdir"):
            path = os.path.join(place, name)
            if not os.path.isdir(path):
                os.makedirs(path)
            setattr(base.conf, name, path)
        base.conf.timeout = 15
        base.conf.retries = 1
        base.conf.best = True
        base.conf.install_weak_deps = self.given["recommends"]
        # No kernel of anybody's goes because another one comes.
        base.conf.installonly_limit = 0
        base.conf.substitutions.update_from_etc(base.conf.installroot)
        if base.conf.substitutions.get("releasever", "") is None:
            # No package tells the release; addresses with $releasever then fail by themselves, and are named.
            del base.conf.substitutions["releasever"]
        self.read_repositories()
        for name in self.given.get("enable", ()):
            if name in self.base.repos:
                self.base.repos[name].enable()
        ids = {"gpuwright-" + repository["name"] for repository in self.given["repositories"]}
        asked = {uri.rstrip("/") for repository in self.given["repositories"] for uri in repository["uris"]}
        for repository in base.repos.iter_enabled():
            if repository.id in ids or asked & {uri.rstrip("/") for uri in repository.baseurl or ()}:
                repository.disable()
        for repository in self.given["repositories"]:
            self.add(repository)
        self.load()

    def copy_cache(self, cache: str) -> None:
        """The machine's indexes: what did not change since is not downloaded again. Packages are left where they are."""
        target = os.path.join(self.given["directory"], "cachedir")
        if os.path.isdir(cache) and not os.path.isdir(target) and os.access(cache, os.R_OK | os.X_OK):
            ignored = shutil.ignore_patterns("packages", "*_lock.pid", "*.lock")
            try:
                shutil.copytree(cache, target, symlinks=True, ignore=ignored)
            except shutil.Error as error:
                # A dnf that runs meanwhile replaces its indexes: what is gone by now is downloaded.
                if not all("[Errno 2]" in str(words) for _source, _target, words in error.args[0]):
                    raise

    def add(self, repository: Any) -> None:
        """A repository that is not configured yet. Streams do not hide its packages: the versions that are kept choose the branch."""
        options = {"gpgcheck": repository["signed"] != "index", "repo_gpgcheck": repository["signed"] == "index"}
        if repository["username"]:
            options.update(username=repository["username"], password=repository["password"])
        if repository["key"]:
            options["gpgkey"] = ["file://" + repository["key"]]
        added = self.base.repos.add_new_repo(
            "gpuwright-asked-" + repository["name"],
            self.base.conf,
            baseurl=repository["uris"],
            module_hotfixes=True,
            skip_if_unavailable=False,
            **options,
        )
        added.enable()

    def load(self) -> None:
        """Fetch the indexes, each by itself, so that one that does not come is named and the others still answer."""
        import dnf

        if not self.given["packages"]:
            self.base.fill_sack(load_available_repos=False)
            return
        for repository in list(self.base.repos.iter_enabled()):
            try:
                repository.load()
            except dnf.exceptions.RepoError as error:  # noqa: PERF203 - each repository fails for itself
                self.failed(repository, str(error))
                repository.disable()
        self.base.fill_sack()

    def failed(self, repository: Any, said: str) -> None:
        """Name a repository that gave no index, and its file where it is one of the machine."""
        if "gpuwright-asked-" in repository.id:
            self.problem(kind_of(said), said, repository.id.split("gpuwright-asked-", 1)[-1])
        elif repository.baseurl or repository.metalink or repository.mirrorlist:
            # One that is late is not there for this plan either: "timeout" is said where the whole answer came too late.
            kind = kind_of(said).replace("timeout", "unreachable")
            self.other(kind, f"{said} ({repository.repofile})", repository.id)
        else:
            text = (
                f"dnf cannot read {repository.repofile}, [{repository.id}]: it names no baseurl, metalink or mirrorlist"
            )
            note = self.other if repository.skip_if_unavailable else self.problem
            note("broken-source", text, source=repository.id)

    def judge_others(self) -> None:
        """Say of what dnf did without that nothing would come from it: all that was asked for is to be had elsewhere."""
        if any(row["kind"] != "broken-source" for row in self.problems if row not in self.others):
            return  # where something is missing nobody knows who would have had it
        for row in self.others:
            row["needed"] = False

    def available(self, name: str) -> Any:
        """What repositories offer under a name (or a name with its version, as of headers), for this machine."""
        import dnf

        sack = self.base.sack
        arches = [self.base.conf.basearch, "noarch"]
        found = sack.query().available().filterm(name=name, arch=arches)
        if found:
            return found
        by_version = dnf.subject.Subject(name).get_best_query(sack, with_provides=False, with_filenames=False)
        return by_version.available().filterm(arch=arches)

    def versions(self, name: str) -> Any:
        """Versions that repositories offer, newest first."""
        return list(dict.fromkeys(evr(package) for package in sorted(self.available(name), reverse=True)))

    def keep(self) -> None:
        """Leave out of the question what does not begin as it has to, where something is there that does."""
        kept = self.given["keep"]
        every = kept.get(EVERY_PACKAGE)
        by_name = {}  # type: Any
        for package in self.base.sack.query().available():
            by_name.setdefault(package.name, []).append(package)
        out = []
        for name, packages in by_name.items():
            start = kept.get(name) or every
            if start and any(continues(evr(package), start) for package in packages):
                out += [package for package in packages if not continues(evr(package), start)]
        if out:
            self.base.sack.add_excludes(self.base.sack.query().filterm(pkg=out))

    def whole(self, name: str) -> Any:
        """What repositories have under a name (or a name with its version) for this machine, with what is kept from being installed."""
        import hawkey

        offered = self.base.sack.query(flags=hawkey.IGNORE_EXCLUDES).available()
        arches = [self.base.conf.basearch, "noarch"]
        return list(offered.filter(name=name, arch=arches)) or list(offered.filter(nevra=name))

    def hidden(self, wanted: Any) -> Any:
        """Of what is asked for that which the machine's own settings keep out in every version that would do."""
        out = []
        for item in wanted:
            name, _equals, version = item.partition("=")
            start = version or self.given["keep"].get(name) or self.given["keep"].get(EVERY_PACKAGE) or ""
            whole = self.whole(name)
            fit = [package for package in whole if continues(evr(package), start)] or whole
            offered = set(self.available(name))
            if fit and not any(package in offered for package in fit):
                out.append((item, fit))
        return self.name_hidden(out)

    def name_hidden(self, found: Any) -> Any:
        """Those of the packages of which it is told who keeps them out. `found`: what is asked for, with what is there of it."""
        rows = {}  # type: Any
        for item, packages in found:
            told = self.who_hides(max(packages)) if packages else None
            if told:
                rows.setdefault(told, []).append(item)
        for (who, rule), items in sorted(rows.items()):
            more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
            self.problem("hidden", f"{who} keeps {', '.join(items[:_NAMED])}{more} from being installed ({rule})")
        return [item for items in rows.values() for item in items]

    def who_hides(self, package: Any) -> Any:
        """Who keeps a package out, and by which line; None where nobody is found who does."""
        import hawkey

        regular = self.base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available()
        if package in set(regular.filter(name=package.name)):
            return self.stream_that_hides(package)
        repository = self.base.repos[package.reponame]
        for conf, path in ((self.base.conf, self.base.conf.config_file_path), (repository, repository.repofile)):
            where = "" if conf is self.base.conf else f"[{repository.id}] "
            for pattern in conf.excludepkgs:
                if is_meant(package, pattern):
                    return path, f"{where}exclude={pattern}"
            if conf.includepkgs and not any(is_meant(package, pattern) for pattern in conf.includepkgs):
                return path, f"{where}includepkgs={' '.join(conf.includepkgs)}"
        return None

    def stream_that_hides(self, package: Any) -> Any:
        """The module that keeps a package out: its own, which is disabled or has another stream, or one that has its name."""
        container = self.base._moduleContainer  # noqa: SLF001 - dnf has no other way
        modules = list(container.getModulePackages())
        full = f"{package.name}-{package.epoch}:{package.version}-{package.release}.{package.arch}"
        for module in modules:
            if full in module.getArtifacts():
                name, stream = module.getName(), module.getStream()
                state = "disabled" if container.isDisabled(name) else "not enabled"
                return f"the module {name}", f"its stream {stream} is {state}: dnf module enable {name}:{stream}"
        for module in modules:
            name = module.getName()
            names = [artifact.rsplit("-", 2)[0] for artifact in module.getArtifacts()]
            if package.name in names and container.isEnabled(name, module.getStream()):
                return f"the module {name}", f"its stream {module.getStream()} is enabled: dnf module reset {name}"
        return None

    def policy(self, names: Any, seen: Any) -> Any:
        """Candidate and versions of the packages that are known."""
        found = {}
        for name in names:
            offered = self.available(name).latest(1)
            installed = self.base.sack.query().installed().filterm(name=name).latest(1)
            candidate = next((evr(package) for rows in (offered, installed) for package in rows), None)
            if candidate or seen.get(name):
                found[name] = {"candidate": candidate, "versions": seen.get(name) or []}
        return found

    def simulate(self, wanted: Any) -> Any:
        """What installing would install and take away, with sizes."""
        import dnf

        files = self.given.get("files") or {}
        # Before anything else is marked: dnf takes no file any more once it has something to do.
        for package in self.base.add_remote_rpms(sorted(files.values())) if files else ():
            self.base.package_install(package)
        for name in self.given.get("leaves", ()):
            for package in self.base.sack.query().installed().filterm(name=name):
                self.base.package_remove(package)
        for item in wanted:
            name, equals, version = item.partition("=")
            try:
                self.base.install(f"{name}-{version}" if equals else self.newest(name))
            except dnf.exceptions.MarkingError as error:
                self.problem("unsolvable", str(error))
                return NO_TRANSACTION
        for name in self.of_the_set():
            self.base.install(self.newest(name))
        try:
            self.base.resolve(allow_erasing=True)
        except dnf.exceptions.DepsolveError as error:
            said = str(error).strip()
            filtered = sorted(set(_FILTERED.findall(said)))
            if not self.name_hidden([(package, self.whole(package)) for package in filtered]):
                self.problem("unsolvable", said[-1500:])
            return NO_TRANSACTION
        transaction = self.base.transaction or ()
        gone = set(transaction.remove_set) if transaction else set()
        arriving = sorted(transaction.install_set) if transaction else []
        before = {package.name: package for package in gone}
        install = [
            {
                # Headers are asked for, and told, under the name with their version.
                "name": full if full in wanted else package.name,
                "version": evr(package),
                "from": evr(before[package.name]) if package.name in before else None,
                "download_bytes": package.downloadsize,
                "installed_bytes": package.installsize,
            }
            for package in arriving
            if package.name not in files
            for full in [f"{package.name}-{package.version}-{package.release}.{package.arch}"]
        ]
        return {
            "install": install,
            "removes": [{"name": package.name, "version": evr(package)} for package in leaving(arriving, gone)],
            "downgrades": [
                row.name for row in arriving if row.name in before and row < before[row.name] and row.name not in files
            ],
            "freed_bytes": sum(package.installsize for package in gone),
        }

    def of_the_set(self) -> Any:
        """Installed packages that have another version now than what is kept for every package: a loose dependency would leave them."""
        start = self.given["keep"].get(EVERY_PACKAGE)
        if not start:
            return []
        found = []
        for package in self.base.sack.query().installed():
            offered = list(self.available(package.name).latest(1)) if not continues(evr(package), start) else []
            if offered and continues(evr(offered[0]), start):
                found.append(package.name)
        return found

    def newest(self, name: str) -> str:
        """The candidate of a name as it is asked for, so that an older one that is kept replaces a newer one."""
        offered = list(self.available(name).latest(1))
        if not offered:
            return name
        package = offered[0]
        return f"{package.name}-{package.epoch}:{package.version}-{package.release}.{package.arch}"

    def answer(self) -> Any:
        """Versions, what would be installed and taken away, problems."""
        try:
            self.open()
        except Unreadable as error:
            self.problem("broken-source", str(error))
            return {**NOTHING, "problems": self.problems}
        wanted = self.given["packages"]
        names = list(dict.fromkeys([item.partition("=")[0] for item in wanted]))
        also = [name for name in self.given["also"] if name not in names]
        seen = {name: self.versions(name) for name in [*names, *also]}
        hidden = self.hidden(wanted)
        self.keep()
        known = self.policy(names, seen)
        there = [item for item in wanted if item not in hidden and self.offered(known, item)]
        beside = self.given.get("files") or self.given.get("leaves")
        transaction = self.simulate(there) if (there or beside) and not hidden else NO_TRANSACTION
        self.judge_others()
        return {
            **transaction,
            "packages": known,
            "others": {name: seen[name] for name in also if seen[name]},
            "enabled": list(self.given.get("enable", ())),
            "problems": self.problems,
        }

    def offered(self, known: Any, item: str) -> bool:
        """Say whether a package (in this version) is to be had; if not it becomes a problem."""
        name, equals, version = item.partition("=")
        entry = known.get(name)
        if entry is None or (not equals and not entry["candidate"]):
            others = sorted({package.arch for package in self.base.sack.query().available().filter(name=name)})
            alone = f" for {self.base.conf.basearch}; it is there for {', '.join(others)}" if others else ""
            self.problem("no-such-package", f"no repository offers the package {name}{alone}", package=name)
            return False
        if equals and version not in entry["versions"] and version != entry["candidate"]:
            there = ", ".join(entry["versions"][:5]) or "none"
            text = f"no repository offers {name} in version {version}; offered: {there}"
            self.problem("no-such-package", text, package=name)
            return False
        return True


def answer(given: Any) -> Any:
    """The answer; where dnf finds none for want of packages, the one with the `builders`, which are repositories that are not enabled."""
    first = Question(given).answer()
    if not given.get("builders") or not unsolvable(first):
        return first
    second = Question(dict(given, enable=given["builders"])).answer()
    return first if unsolvable(second) else second


def unsolvable(found: Any) -> bool:
    """Say whether dnf found no way to install what was asked for, or none but past an exclusion: another repository may have it too."""
    return any(row["kind"] in ("unsolvable", "hidden") for row in found["problems"])


def main() -> None:
    """Answer the question in the file that the first argument names, as JSON on stdout."""
    with open(sys.argv[1]) as stream:
        given = json.load(stream)
    json.dump(answer(given), sys.stdout)
