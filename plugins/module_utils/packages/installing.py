# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring packages to exact versions by apt or dnf: what is there already is left alone, and what comes is the plan's.

A package that is named with a version leaves its dependencies free: apt takes the newest build, and of packages without a branch in their
names the newest branch. What the plan wants is told to apt for its own runs alone, by files that nothing but these runs reads.
"""

from __future__ import annotations

import os
import re
from typing import Callable, List, Mapping, NamedTuple, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, redact, simulated
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_python, keyring
from ansible_collections.gpuwright.node.plugins.module_utils.packages.dnf_python import Outcome

OWN_PREFERENCES = "/etc/apt/preferences"
"""The machine's own, which would be left out otherwise: the private file takes their place."""

#: Most characters that are kept of what a program said: its end tells why it failed.
_MOST_WORDS = 20_000
# needrestart would restart services under a run that installs.
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "LANG": "C",
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "NEEDRESTART_SUSPEND": "1",
}
_EPOCH = re.compile(r"-\d+:")
#: What tells why, the most specific first: what ran out; the build of a module; whose script or file it was; apt's and dnf's own reasons.
_CAUSES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"\b(No space left on device)$",
        r"^Error! .+",
        r"^dpkg: (?:error processing|unrecoverable fatal error).+\n .+",
        r"^E: (?!Sub-process ).+",
        r"^Error:.*(?:\n .+)*",
    )
)

#: Runs a program with more variables in its environment: status, output, errors.
Runner = Callable[[Sequence[str], Mapping[str, str]], "tuple[int, str, str]"]


class Answer(TypedDict, total=False):
    """What the module answers: `installed` where it went well, else the program that failed, and the end of what it said."""

    changed: bool
    installed: List[str]
    msg: str
    rc: int
    cmd: List[str]
    stdout: str
    stderr: str


class InstallationFailed(Exception):
    """A program that ended with an error. ``answer``: what the module says with it."""

    def __init__(self, argv: Sequence[str], rc: int, out: str, err: str) -> None:
        super().__init__(redact.text(f"{cause_of(out, err)[-4_000:]} ('{' '.join(argv)}' failed)"))
        self.answer: Answer = {
            "rc": rc,
            "cmd": list(argv),
            "stdout": end_of(out),
            "stderr": end_of(err),
        }


class InstallationRefused(Exception):
    """A trial says that something would be taken away which the plan does not name; nothing was changed."""

    def __init__(self, manager: str, found: str) -> None:
        super().__init__(
            f"Expected {manager} to take away nothing but what the plan names. Found in a trial: {found}. Nothing was changed. "
            "What to do: run the same command again; its plan then names these, and says how they are allowed"
        )


def cause_of(out: str, err: str) -> str:
    """Why a program of the package manager failed, in its words: the most specific of them, wherever it said them.

    apt's last word is that dpkg failed; why stands in what dpkg, the scripts of packages and DKMS said before.
    """
    said = f"{out}\n{err}"
    for pattern in _CAUSES:
        found = [" ".join(each.split()) for each in pattern.findall(said)]
        if found:
            return "; ".join(dict.fromkeys(found))
    return ((err or out).strip().splitlines() or ["it said nothing"])[-1]


def end_of(said: str) -> str:
    """The end of what a program said, without credentials."""
    return redact.text(said[-_MOST_WORDS:])


class Call(NamedTuple):
    """One installation, as the options of the module package_call tell it."""

    manager: str
    names: Sequence[str]
    specs: Sequence[str]
    allow_downgrade: bool
    allow_held: bool
    preferences: str
    enabled: Sequence[str]
    left_out: Sequence[str]
    lock_timeout: int
    takes: bool = False
    may_take: Sequence[str] = ()


def install(
    call: Call,
    runner: Runner,
    check: bool,
    directory: str = paths.RUN,
    trial: Callable[[Mapping[str, object]], Outcome] = dnf_python.tried,
) -> Answer:
    """The module's answer: whether something changed, and what was (in check mode, would be) installed.

    Raises InstallationFailed, InstallationRefused, OSError.
    """
    if not call.names:
        return _answer([])
    return _apt(call, runner, check, directory) if call.manager == "apt" else _dnf(call, runner, check, trial)


def _answer(installed: Sequence[str], check: bool = False) -> Answer:
    answer: Answer = {"changed": bool(installed), "installed": list(installed)}
    if installed and check:
        answer["msg"] = "Would install " + ", ".join(installed)
    return answer


def _run(
    runner: Runner, argv: Sequence[str], extra: Mapping[str, str] | None = None, known: int = 0
) -> tuple[int, str]:
    """Status and output. `known`: the highest status that is an answer. Raises InstallationFailed."""
    rc, out, err = runner(argv, {**_ENVIRONMENT, **(extra or {})})
    if not 0 <= rc <= known:
        raise InstallationFailed(argv, rc, out, err)
    return rc, out


# apt --------------------------------------------------------------------------------------------------------------------


def _apt(call: Call, runner: Runner, check: bool, directory: str) -> Answer:
    due = not_there(call.specs, _of_dpkg(call.names, runner))
    if due and not check:
        extra = {"APT_CONFIG": write_preferences(call.preferences, directory)} if call.preferences else {}
        try:
            _run(runner, ["apt-get", "-y", *_apt_options(call), *_agreed(call, due, runner, extra)], extra)
        finally:
            if extra:
                remove_preferences(directory)
    if not check:
        # What was there as somebody's dependency would go with it.
        _run(runner, ["apt-mark", "manual", *call.names])
    return _answer(due, check)


def _agreed(call: Call, due: Sequence[str], runner: Runner, extra: Mapping[str, str]) -> list[str]:
    """What apt is told: to remove nothing, or exactly what a trial says that goes, where all of that may go.

    Where nothing may, no trial is needed: apt by itself then moves nothing to an older version, and nothing that is on hold.
    """
    if not (call.takes or call.allow_downgrade or call.allow_held):
        return ["--no-remove", "install", *due]
    _rc, said = _run(runner, ["apt-get", "--simulate", *_apt_options(call), "install", *due], extra)
    _rc, holds = _run(runner, ["apt-mark", "showhold"])
    named = [spec.partition("=")[0] for spec in call.specs]
    beyond = simulated.beyond(said, holds.split(), [*call.may_take, *named])
    if beyond:
        raise InstallationRefused("apt", "; ".join(beyond))
    going = [row["name"] for row in simulated.parse(said)[1]]
    return ["install", *due, *(f"{name}-" for name in going)] if going else ["--no-remove", "install", *due]


def _apt_options(call: Call) -> list[str]:
    options = ["Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold", "APT::Install-Recommends=no"]
    options.append(f"DPkg::Lock::Timeout={call.lock_timeout}")
    options += ["APT::Ignore-Hold=true"] if call.takes else []
    flags = [
        *(["--allow-downgrades"] if call.allow_downgrade or call.takes else []),
        *(["--allow-change-held-packages"] if call.allow_held or call.takes else []),
    ]
    return [word for option in options for word in ("-o", option)] + flags


def _of_dpkg(names: Sequence[str], runner: Runner) -> str:
    """What dpkg has of these packages; it ends with 1 where it does not know one of them."""
    form = "${Package} ${Architecture} ${db:Status-Status} ${Version}\\n"
    return _run(runner, ["dpkg-query", "--show", "--showformat=" + form, *names], known=1)[1]


def not_there(specs: Sequence[str], said: str) -> list[str]:
    """Of packages as apt takes them (``name``, ``name:architecture``, with ``=version``) those that dpkg's rows do not have whole."""
    there: set[str] = set()
    for row in map(str.split, said.splitlines()):
        if len(row) == 4 and row[2] == "installed":
            for name in (row[0], f"{row[0]}:{row[1]}"):
                there.update((name, f"{name}={row[3]}"))
    return [spec for spec in specs if spec not in there]


def write_preferences(preferences: str, directory: str = paths.RUN, own: str = OWN_PREFERENCES) -> str:
    """Write what apt prefers in this run, and the settings that name it; the path of the settings (for APT_CONFIG). Raises OSError."""
    path, settings = _private(directory)
    keyring.write(path, (preferences + _text(own)).encode("utf-8", "surrogateescape"))
    keyring.write(settings, f'Dir::Etc::preferences "{path}";\n'.encode())
    return settings


def remove_preferences(directory: str = paths.RUN) -> None:
    """Leave no preference behind."""
    for path in _private(directory):
        if os.path.exists(path):
            os.unlink(path)


def _private(directory: str) -> tuple[str, str]:
    return os.path.join(directory, "apt-preferences"), os.path.join(directory, "apt.conf")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


# dnf --------------------------------------------------------------------------------------------------------------------
# By its command and not by its library: RHEL 8 has that for its own Python 3.6 alone.


def _dnf(call: Call, runner: Runner, check: bool, trial: Callable[[Mapping[str, object]], Outcome]) -> Answer:
    specs = [_EPOCH.sub("-", spec) for spec in call.specs]  # rpm's queries know no epoch
    # The status is the number of packages that are missing.
    missing, _out = _run(runner, ["rpm", "--query", "--queryformat", "", *specs], known=len(specs))
    if missing and not check:
        told = trial(
            {
                "specs": list(call.specs),
                "may_take": list(call.may_take),
                "enabled": list(call.enabled),
                "left_out": list(call.left_out),
            }
        )
        if "refused" in told or "failed" in told:
            raise InstallationRefused("dnf", told.get("refused") or told["failed"])
        _run(runner, [*dnf_command(call, erases=bool(told["removed"])), *call.specs])
    return _answer(call.specs if missing else [], check)


def dnf_command(call: Call, *, erases: bool = False) -> list[str]:
    """dnf with its options. ``erases``: whether a trial says that packages go, all of which the plan names.

    A repository that EPEL needs and that is not enabled is for this command alone. One of somebody else that does not answer, and that
    nothing of the plan comes from, is left out of it. A package on hold changes without the plugin that holds it. No kernel of anybody's
    goes because another one comes.
    """
    return [
        *("dnf", "--assumeyes", "--quiet", "--setopt=install_weak_deps=False", "--setopt=best=True"),
        "--setopt=installonly_limit=0",
        *("--enablerepo=" + name for name in call.enabled),
        *("--disablerepo=" + name for name in call.left_out),
        *(["--disableplugin=versionlock"] if call.allow_held or call.takes else []),
        *(["--allowerasing"] if erases else []),
        "install",
    ]
