# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask dnf about repositories that are not configured yet, and leave the machine as it was.

dnf's own library is asked (dnf_question), under the system's Python, with its cache, its state and its log in a temporary
directory and without plugins. The machine's repositories and its enabled module streams are read. The key of each asked
repository is checked against its fingerprint here, before dnf sees it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable, Mapping, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import (
    dnf_python,
    dnf_question,
    private_apt,
)
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError, fetch
from ansible_collections.gpuwright.node.plugins.module_utils.packages.private_apt import (
    Problem,
    Repository,
    RepositoryKey,
    problem,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import (
        PackageIndex,
        PackageInstall,
        PackageRemoval,
        PackageVersions,
    )

_HEADERS = re.compile(r"^(?P<kernel>kernel(?:-64k|-rt)?)-devel-(?P<matched>matched-)?\d")
_HEADERS_REMEDY = (
    "the repositories no longer carry the headers of the kernel that boots next: update the kernel (dnf upgrade {kernel}), boot it, and "
    "run again; {newest}or enable a repository that keeps older kernels"
)
# Only a matched package is there without a version too, for the newest kernel (plugin_utils/resolver/systems.py, headers_of_newest).
_NEWEST_REMEDY = "or allow the newest (-e nvidia_driver_allow_kernel=true); "
_BROKEN_REMEDY = "correct that entry or remove it: dnf installs nothing, or nothing from there, before that"


class Trusted(TypedDict):
    """Repository as dnf_question takes it."""

    name: str
    uris: list[str]
    key: str | None
    signed: str
    username: str
    password: str


class _Trouble(TypedDict):
    kind: str
    text: str
    repository: str | None
    package: str | None


class Trouble(_Trouble, total=False):
    """Problem as dnf_question tells it."""

    needed: bool
    source: str | None


class Told(TypedDict):
    """What dnf_question answers."""

    packages: dict[str, PackageVersions]
    others: dict[str, list[str]]
    install: list[PackageInstall]
    removes: list[PackageRemoval]
    downgrades: list[str]
    enabled: list[str]
    freed_bytes: int
    problems: list[Trouble]


class PrivateDnf:
    """A directory for one question. Use as a context manager: the directory goes at the end."""

    def __init__(
        self,
        timeout: float,
        runner: Callable[..., Result],
        getter: Callable[..., bytes],
        credentials: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """`timeout`: seconds for everything together. `credentials`: machine, login and password of mirrors."""
        self._end = time.monotonic() + timeout
        self._run = runner
        self._fetch = getter
        self._credentials = credentials
        self.directory = ""
        self.problems: list[Problem] = []

    def __enter__(self) -> PrivateDnf:  # noqa: PYI034 - typing.Self is younger than Python 3.8
        self.directory = tempfile.mkdtemp(prefix="gpuwright-dnf-", dir=private_apt.roomy())
        return self

    def __exit__(self, *_exc: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _left(self) -> float:
        return max(1.0, self._end - time.monotonic())

    def _key(self, repository: Repository) -> str | None:
        """The key file of a repository, checked against its fingerprint. Raises KeyFileError, FetchError."""
        key = repository.get("key")
        if not key:
            return None
        data = self._fetch(key["url"], min(30.0, self._left()), self._credentials)
        keyring = openpgp.checked(data, key["fingerprint"])
        path = os.path.join(self.directory, re.sub(r"[^A-Za-z0-9_-]", "_", repository["name"]) + ".asc")
        with open(path, "wb") as out:
            out.write(openpgp.armour(keyring))
        return path

    def trusted(self, repositories: Sequence[Repository]) -> list[Trusted]:
        """The repositories whose key is the right one; the others become problems."""
        found: list[Trusted] = []
        for repository in repositories:
            name = repository["name"]
            try:
                key = self._key(repository)
            except openpgp.KeyFileError as exc:
                self.problems.append(problem("wrong-key", f"the key of {name} is not accepted: {exc}", name))
                continue
            except FetchError as exc:
                self.problems.append(problem("timeout" if exc.timed_out else "unreachable", str(exc), name))
                continue
            signed = repository.get("signed") or "packages"
            access = redact.access(repository["uris"][0], self._credentials)
            found.append(
                {
                    "name": name,
                    "uris": list(repository["uris"]),
                    "key": key,
                    "signed": signed,
                    "username": access.login if access else "",
                    "password": access.password if access else "",
                }
            )
        return found

    def ask(self, question: Mapping[str, object]) -> Told | None:
        """dnf's answer; None where there is none, with the reason in `problems`."""
        python = dnf_python.python_of_dnf(self._run, self._left())
        if python is None:
            self.problems.append(problem("unsolvable", dnf_python.NONE)._replace(remedy="install python3-dnf"))
            return None
        path = os.path.join(self.directory, "question.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({**question, "directory": self.directory}, out)
        result = self._run(
            [python, "-I", "-", path], timeout=self._left(), stdin=dnf_python.program(dnf_question).encode()
        )
        if result.ok:
            answer: Told = json.loads(result.out)
            return answer
        said = (result.error or result.err.strip() or f"dnf ended with status {result.rc}")[-1500:]
        late = result.rc is None and "did not answer" in said
        self.problems.append(problem("timeout" if late else "unsolvable", said))
        return None


def ask(  # noqa: PLR0913 - each is an option of the module
    repositories: Sequence[Repository],
    wanted: Sequence[str],
    keep: Mapping[str, str],
    timeout: float,
    recommends: bool = False,
    runner: Callable[..., Result] = run_module.run,
    getter: Callable[..., bytes] = fetch,
    also: Sequence[str] = (),
    credentials: Sequence[Mapping[str, str]] = (),
    builders: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    leaves: Sequence[str] = (),
) -> PackageIndex:
    """The answer of the module package_index, see there; of the same form as that of private_apt."""
    answer = private_apt.nothing()
    with PrivateDnf(timeout, runner, getter, credentials) as dnf:
        question = {
            # Where nothing comes from a repository, what does not answer is in nobody's way.
            "repositories": dnf.trusted(repositories) if wanted else [],
            "packages": list(wanted),
            "also": list(also),
            "keep": dict(keep),
            "recommends": recommends,
            "builders": list(builders),
            "files": dict(files),
            "leaves": list(leaves),
        }
        told = dnf.ask(question) if wanted or files or leaves else None
        keys = {repository["name"]: repository.get("key") or {} for repository in repositories}
        problems = [*dnf.problems, *(_problem(row, keys) for row in (told.get("problems", ()) if told else ()))]
    answer["problems"] = [item.as_dict() for item in problems]
    if told is not None:
        answer["packages"], answer["others"] = told["packages"], told["others"]
        answer["install"] = told["install"]
        answer["removes"], answer["downgrades"] = told["removes"], told["downgrades"]
        answer["enabled"] = told["enabled"]
        if not any(item.needed and item.kind in ("broken-source", "unsolvable", "timeout") for item in problems):
            answer["download_bytes"] = sum(row["download_bytes"] or 0 for row in told["install"])
            answer["disk_bytes"] = sum(row["installed_bytes"] or 0 for row in told["install"]) - told["freed_bytes"]
    return answer


def _problem(row: Trouble, keys: Mapping[str, RepositoryKey]) -> Problem:
    """A problem of dnf with the usual remedy for its kind, and the key that was expected where a signature is bad."""
    found = problem(row["kind"], row["text"], row["repository"])
    found = found._replace(package=row["package"], needed=row.get("needed", True), source=row.get("source"))
    if found.kind == "broken-source":
        found = found._replace(remedy=_BROKEN_REMEDY)
    headers = _HEADERS.match(row["package"] or "")
    if headers:
        newest = _NEWEST_REMEDY if headers.group("matched") else ""
        found = found._replace(remedy=_HEADERS_REMEDY.format(kernel=headers.group("kernel"), newest=newest))
    return private_apt.with_expected_key(found, keys.get(row["repository"] or "", {}).get("fingerprint"))
