"""The continuation of a local `up` after the boot it must not make itself: what it runs, and what its result was.

What is prepared here is written on the machine by the role `reboot`, for root alone. Nothing that may be a secret is part of it.
"""

from __future__ import annotations

import copy
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from gpuwright import console, paths

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from gpuwright.request import Request

#: Where the continuation lies on the machine (role `reboot`), and the file in which it leaves its result for people.
DIRECTORY = Path("/var/lib/gpuwright/resume")
PROGRAM = DIRECTORY / "program"
NOTICE = DIRECTORY / "notice"
#: What a login shows. In /run: gone at the next boot whatever happens.
MOTD = Path("/run/motd.d/gpuwright-resume")

#: Set by the continuation for the run it starts: one boot is continued once, so that no machine boots and resumes for ever.
RESUMED = "GPUWRIGHT_RESUMED"

# Verbs that mean the same when they are run again after the boot.
_VERBS = ("up", "upgrade")
# Those that may need a boot and must not be run again.
_ONLY_ONCE = ("rollback", "remove")

# What is asked of nobody, written elsewhere, or kept as a file of its own.
_NOT_REPEATED = {"help", "json", "verbose", "yes", "report", "ask_become_pass", "extra_vars", "wish", "lock"}

# Options of ansible-playbook that are repeated, and whether a value follows. Any other may carry or read a secret.
_ANSIBLE_OPTIONS = {
    "-f": True, "--forks": True, "-t": True, "--tags": True, "--skip-tags": True, "-T": True, "--timeout": True,
    "-D": False, "--diff": False, "--flush-cache": False, "--force-handlers": False,
}  # fmt: skip
_BECOME_FILE = ("--become-password-file", "--become-pass-file")

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy")


class _NotPreparedError(Exception):
    """Nothing is prepared; the text says why."""


class _MayHoldSecretError(_NotPreparedError):
    """The run had something that must not be written to a file; the text names it."""


class Resume(TypedDict, total=False):
    """How a run goes on after a boot, or why it does not (``refused``)."""

    refused: str
    command: list[str]
    program: dict[str, str]
    files: dict[str, object]
    environment: dict[str, str]


@dataclass(frozen=True)
class _Variables:
    """User variables that may be written: words for `-e`, and the content of files."""

    words: tuple[str, ...] = ()
    documents: tuple[dict[str, object], ...] = ()


def prepare(args: argparse.Namespace, wanted: Request, environment: Mapping[str, str]) -> Resume | None:
    """What the role `reboot` writes: the command, its files and its environment; or why there is none, as `refused`.

    None where the run is none that is continued: another verb, hosts of an inventory, `--no-reboot`, `--user`.
    """
    if args.verb not in (*_VERBS, *_ONLY_ONCE) or not wanted.local or args.no_reboot or args.user:
        return None
    if args.verb in _ONLY_ONCE:
        return {"refused": f"{args.verb} is done once; after the boot `gpuwright validate` says how it went"}
    if environment.get(RESUMED):
        return {"refused": "this run was itself started after a boot, and is not repeated at the next one"}
    try:
        return _prepared(args, wanted, environment)
    except _NotPreparedError as reason:
        return {"refused": str(reason)}


def _prepared(args: argparse.Namespace, wanted: Request, environment: Mapping[str, str]) -> Resume:
    if args.vault_password_file:
        raise _MayHoldSecretError("the run had --vault-password-file, so its variables may hold secrets")
    options = list(_ansible_options(args.ansible_options))
    variables = _user_variables(args.extra_vars)
    files: dict[str, object] = {}
    words: list[str] = []
    for option, name in (("--wish", "gpuwright_wish"), ("--lock", "gpuwright_lock")):
        if wanted.extra_vars.get(name):
            file = f"{option.strip('-')}.json"
            files[file] = wanted.extra_vars[name]
            words += [option, str(DIRECTORY / file)]
    for number, document in enumerate(variables.documents):
        files[f"variables-{number}.json"] = document
        words += ["-e", f"@{DIRECTORY / f'variables-{number}.json'}"]
    for word in variables.words:
        words += ["-e", word]
    _refuse_projects(wanted.extra_vars.get("gpuwright_wish"), *variables.documents)
    repeated = list(_own_options(_with_copies(args, files)))
    told = [files, words, repeated]
    if console.redact().document(told) != told:
        raise _MayHoldSecretError(
            "an address in the wish or in a variable carries a user or password, or there is another secret in them"
        )
    interpreter = _interpreter()
    command = [interpreter, "-IS", str(PROGRAM / "gpuwright"), args.verb, "--yes", *repeated, *words]
    command += ["--report", str(DIRECTORY / "report")]
    if options:
        command += ["--", *options]
    # What runs now is copied for root when the boot turns out to be needed: its user may change it until then.
    program = {"package": str(Path(__file__).resolve().parent), "interpreter": interpreter, "directory": str(PROGRAM)}
    return {"command": command, "program": program, "files": files, "environment": _environment(environment)}


def _interpreter() -> str:
    """The Python that may run as root after the boot: this one where nobody else can change it, else the system's of its version.

    Raises:
        _NotPreparedError: there is none.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership

    own = os.path.realpath(sys.executable)
    systems = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (own, os.path.realpath(systems)):
        if Path(path).is_file() and ownership.offence(path) is None:
            return path
    raise _NotPreparedError(
        f"the Python that runs now is not root's alone ({ownership.offence(own) or own}), and there is no {systems}; "
        "install that one by the package manager and run again, or run the same command again after the boot"
    )


def _with_copies(args: argparse.Namespace, files: dict[str, object]) -> argparse.Namespace:
    """The options with each project's file as it was read now: whoever may write that must not say later what root installs."""
    from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import wish

    wants: list[str] = []
    for want in args.want or ():
        project = wish.project_of(want)
        if project is not None:
            name = f"project-{len(files)}.json"
            files[name] = wish.projects.document(project)
            wants.append(f"project@{project.environment}={DIRECTORY / name}")
        else:
            wants.append(want)
    repeated = copy.copy(args)
    repeated.want = wants
    return repeated


def _refuse_projects(*variables: object) -> None:
    """Raises _NotPreparedError where a variable names a project's file, which somebody may change until the boot."""
    for document in variables:
        named = document if isinstance(document, dict) else {}
        environments = named.get("frameworks_environments")
        if named.get("frameworks_project") or "project" in json.dumps(environments, default=str):
            raise _NotPreparedError(
                "a variable names a project's file, which may change until then; name it by --want project=PATH"
            )


def _own_options(args: argparse.Namespace) -> Iterator[str]:
    """The options of the verb that were given, as words. `--option=value`: a value may begin with a dash."""
    for action in args.verb_parser._actions:  # noqa: SLF001 - argparse has no other way to list its options
        value = getattr(args, action.dest, None)
        if action.dest in _NOT_REPEATED or not action.option_strings or value in (None, False, [], action.default):
            continue
        option = action.option_strings[-1]
        if value is True:
            yield option
            continue
        for each in value if isinstance(value, list) else [value]:
            yield f"{option}={each}"


def _ansible_options(given: Sequence[str]) -> Iterator[str]:
    """What stood behind `--`, where every word of it is known to hold no secret.

    Raises:
        _MayHoldSecretError: one is not.
    """
    words = iter(given)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in _BECOME_FILE:
            # The continuation is root already.
            if not equals:
                next(words, None)
            continue
        if re.fullmatch(r"-v+|--verbose", name):
            continue
        if name not in _ANSIBLE_OPTIONS:
            raise _MayHoldSecretError(f"the run had {name} for ansible-playbook, which may hold or read a secret")
        yield word
        if _ANSIBLE_OPTIONS[name] and not equals:
            yield next(words, "")


def _user_variables(given: Sequence[str]) -> _Variables:
    """The variables of `-e`, where all of them are gpuwright's own and none is declared a secret.

    Raises:
        _MayHoldSecretError: a name is not known, or a value is a template or encrypted.
    """
    words: list[str] = []
    documents: list[dict[str, object]] = []
    for word in given:
        content = _document(word)
        _refuse_unknown(content)
        if word.startswith("@"):
            documents.append(content)
        else:
            words.append(word)
    return _Variables(tuple(words), tuple(documents))


def _document(word: str) -> dict[str, object]:
    """The variables of one `-e`, as Ansible reads it."""
    from ansible.errors import AnsibleError
    from ansible.parsing.splitter import parse_kv

    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model import errors, given_file

    try:
        if word.startswith("@"):
            written = given_file.text(word[1:], "the variables of -e", given_file.WRITTEN_BY_PEOPLE)
            content = given_file.from_yaml(written, "the variables of -e")
        elif word[:1] in "[{":
            content = given_file.from_yaml(word, "the variables of -e")
        else:
            content = parse_kv(word)
    except (errors.BadInput, AnsibleError, RecursionError):
        content = None
    if not isinstance(content, dict) or "_raw_params" in content:
        # The file's name may be told, a value may not.
        raise _MayHoldSecretError(f"the variables of -e {word if word.startswith('@') else '…'} cannot be read here")
    return {str(name): value for name, value in content.items()}


def _refuse_unknown(content: Mapping[str, object]) -> None:
    public = _public_variables()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import plain

    for name, value in content.items():
        if name not in public:
            raise _MayHoldSecretError(f"the variable {name} of -e may hold a secret")
        if any(plain.templates(value)):
            raise _MayHoldSecretError(f"the variable {name} of -e is a template, which may read a secret")


def _public_variables() -> frozenset[str]:
    """The variables that gpuwright itself reads, without those that a role declares as `no_log`."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import node_action
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import node_session as look

    options = (row for role in look.ROLES.values() for row in role["options"].items())
    own = {name for name, row in options if not row["no_log"]}
    return frozenset(own | set(node_action.WISH_VARIABLES) | set(look.RUN_VARIABLES))


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What the command needs around it: the system's programs, a way to the network. Nothing else of the caller's goes along."""
    wanted = {"PATH": paths.SYSTEM_PATH, "HOME": "/root", RESUMED: "1"}
    for name in (*_PROXIES, *(name.upper() for name in _PROXIES)):
        if inherited.get(name) and "@" not in inherited[name]:
            wanted[name] = inherited[name]
    return wanted


# --- the result, for whoever comes next --------------------------------------------------------------------------------


def tell_result(state_home: Path | None = None) -> None:
    """Say on stderr how the continuation ended, once for each user; root takes the notice away with it."""
    seen = (state_home or paths.state_home()) / "gpuwright" / "resume-told"
    try:
        text = NOTICE.read_text(encoding="utf-8", errors="replace").strip()
        root = os.geteuid() == 0
        if (
            os.environ.get(RESUMED)
            or not text
            or (not root and seen.is_file() and seen.read_text(encoding="utf-8") == text)
        ):
            return
        for line in text.splitlines():
            console.note(console.clean(line))
        console.note()
        if root:
            NOTICE.unlink(missing_ok=True)
            MOTD.unlink(missing_ok=True)
        else:
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.write_text(text, encoding="utf-8")
    except OSError:
        return  # told or not: it is in the journal and in its report too
