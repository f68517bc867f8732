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

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import keyring

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
        last = (err or out).strip().splitlines()[-1:] or ["it said nothing"]
        super().__init__(redact.text(f"'{' '.join(argv)}' failed: {(err or last[0]).strip()[-4_000:]}"))
        self.answer: Answer = {
            "rc": rc,
            "cmd": list(argv),
            "stdout": end_of(out),
            "stderr": end_of(err),
        }


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


def install(call: Call, runner: Runner, check: bool, directory: str = paths.RUN) -> Answer:
    """The module's answer: whether something changed, and what was (in check mode, would be) installed.

    Raises InstallationFailed, OSError.
    """
    if not call.names:
        return _answer([])
    return _apt(call, runner, check, directory) if call.manager == "apt" else _dnf(call, runner, check)


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
        argv = ["apt-get", "-y", *_apt_options(call), "install", *due]
        if call.preferences:
            settings = write_preferences(call.preferences, directory)
            try:
                _run(runner, argv, {"APT_CONFIG": settings})
            finally:
                remove_preferences(directory)
        else:
            _run(runner, argv)
    if not check:
        # What was there as somebody's dependency would go with it.
        _run(runner, ["apt-mark", "manual", *call.names])
    return _answer(due, check)


def _apt_options(call: Call) -> list[str]:
    options = ["Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold", "APT::Install-Recommends=no"]
    options.append(f"DPkg::Lock::Timeout={call.lock_timeout}")
    flags = [
        *(["--allow-downgrades"] if call.allow_downgrade else []),
        *(["--allow-change-held-packages"] if call.allow_held else []),
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


def _dnf(call: Call, runner: Runner, check: bool) -> Answer:
    specs = [_EPOCH.sub("-", spec) for spec in call.specs]  # rpm's queries know no epoch
    # The status is the number of packages that are missing.
    missing, _out = _run(runner, ["rpm", "--query", "--queryformat", "", *specs], known=len(specs))
    if missing and not check:
        _run(runner, [*dnf_command(call), *call.specs])
    return _answer(call.specs if missing else [], check)


def dnf_command(call: Call) -> list[str]:
    """dnf with its options.

    A repository that EPEL needs and that is not enabled is for this command alone. One of somebody else that does not answer, and that
    nothing of the plan comes from, is left out of it. A package on hold changes without the plugin that holds it. Erasing is what a change
    of the flavour of modules takes; the plan has named it.
    """
    return [
        *("dnf", "--assumeyes", "--quiet", "--setopt=install_weak_deps=False", "--setopt=best=True"),
        *("--enablerepo=" + name for name in call.enabled),
        *("--disablerepo=" + name for name in call.left_out),
        *(["--disableplugin=versionlock"] if call.allow_held else []),
        *(["--allowerasing"] if call.allow_downgrade else []),
        "install",
    ]
