"""What a command asks of Ansible: pure data, built from the options without running anything."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwright import console, given, paths, system_python
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import Lock
    from gpuwright.privilege import Privilege

#: Variables by host, in the group `all`.
Inventory = dict[str, dict[str, dict[str, dict[str, str | bool]]]]

DEFAULT_FORKS = 25

# Options of ansible-playbook that take a path as their own word or behind `=`.
_FORK_OPTIONS = ("-f", "--forks")


@dataclass(frozen=True)
class Request:
    """One run of one playbook.

    Attributes:
        verb: what the person asked for; also the extra variable `gpuwright_verb`.
        playbook: the playbook's name in the collection, without suffix.
        run_dir: the run's directory on this controller.
        inventory: `-i` as absolute paths or host lists; empty for the machine one sits at.
        extra_vars: variables of ours; they are written to the run directory, and without credentials once Ansible has read them.
        user_vars: `-e` as given. They come later and win. What is no file is written to one until Ansible has read it: a
            command line can be read by everybody on this machine.
        check: dry run (`--check --diff`).
        become_password: sudo's password, given to the prompt only.
        report_asked_for: the run directory is the one that `--report` named.
    """

    verb: str
    playbook: str
    run_dir: Path
    inventory: tuple[str, ...] = ()
    limit: str | None = None
    extra_vars: Mapping[str, object] = field(default_factory=dict)
    user_vars: tuple[str, ...] = ()
    vault_password_file: str | None = None
    ansible_options: tuple[str, ...] = ()
    verbosity: int = 0
    check: bool = False
    become_password: str | None = field(default=None, repr=False)
    report_asked_for: bool = False

    @property
    def local(self) -> bool:
        """Whether the run is about the machine one sits at."""
        return not self.inventory

    def dry(self) -> Request:
        """The same run without changes."""
        return replace(self, check=True)


def build(
    args: argparse.Namespace,
    *,
    run_dir: Path,
    playbook: str,
    privilege: Privilege,
    wish: Mapping[str, object],
    lock: Lock | None = None,
) -> Request:
    """The request of a host verb.

    Args:
        args: the parsed options.
        run_dir: where the run writes.
        playbook: its name in the collection.
        privilege: the way to root.
        wish: what `--wish` said, as variables.
        lock: what `--lock` named, read and checked.

    Raises:
        BadInput: an inventory, a variables file or a password file is not there.
    """
    inventory = tuple(_inventory(source) for source in args.inventory or ())
    return Request(
        verb=args.verb,
        playbook=playbook,
        run_dir=run_dir,
        inventory=inventory,
        limit=args.limit,
        extra_vars=extra_vars(args, run_dir=run_dir, local=not inventory, privilege=privilege, wish=wish)
        | ({"gpuwright_lock": dict(lock)} if lock else {}),
        user_vars=tuple(_user_var(word) for word in args.extra_vars),
        vault_password_file=_file(args.vault_password_file, "the vault password file"),
        ansible_options=tuple(args.ansible_options),
        verbosity=max(args.verbose - 1, 0),
        become_password=privilege.password,
        report_asked_for=args.report is not None,
    )


def extra_vars(
    args: argparse.Namespace, *, run_dir: Path, local: bool, privilege: Privilege, wish: Mapping[str, object]
) -> dict[str, object]:
    """The variables that carry the options into the playbook. What was not given is not set."""
    variables: dict[str, object] = {
        "gpuwright_run_dir": str(run_dir),
        "gpuwright_verb": args.verb,
        "gpuwright_full": args.full,
        "gpuwright_no_reboot": args.no_reboot,
    }
    if local:
        variables["gpuwright_local"] = True
    if args.user:
        variables["gpuwright_user"] = True
    if not privilege.become:
        variables["ansible_become"] = False
    if args.allow_remove:
        variables["gpuwright_allow_remove"] = list(args.allow_remove)
    if args.allow_source:
        variables["gpuwright_allow_source"] = list(args.allow_source)
    if args.want:
        variables["gpuwright_want"] = list(args.want)
    if getattr(args, "security", False):
        variables["gpuwright_security"] = True
    if wish:
        variables["gpuwright_wish"] = dict(wish)
    if args.gpu:
        # Named for `up` they may still be on order; named for a proof they are what must be there.
        provisioning = args.verb in {"up", "plan", "upgrade"}
        variables["gpuwright_provision_for" if provisioning else "gpuwright_gpus_expected"] = list(args.gpu)
    return variables


def command_line(request: Request) -> list[str]:
    """The arguments of ansible-playbook, without the inventory and the playbook themselves."""
    words = ["-e", f"@{_own_variables(request)}"]
    for number, variable in enumerate(request.user_vars):
        words += ["-e", variable if variable.startswith("@") else f"@{_user_variables(request, number)}"]
    if request.limit:
        words += ["--limit", request.limit]
    if request.check:
        words += ["--check", "--diff"]
    if request.vault_password_file:
        words += ["--vault-password-file", request.vault_password_file]
    if request.become_password is not None:
        words.append("--ask-become-pass")
    if not any(word.startswith(_FORK_OPTIONS) for word in request.ansible_options):
        words += ["--forks", str(DEFAULT_FORKS)]
    if request.verbosity:
        words.append("-" + "v" * request.verbosity)
    return [*words, *request.ansible_options]


def environment(request: Request, inherited: Mapping[str, str]) -> dict[str, str]:
    """What is set for ansible-playbook on top of the user's environment."""
    theirs = inherited.get("ANSIBLE_COLLECTIONS_PATH") or "~/.ansible/collections:/usr/share/ansible/collections"
    variables = {
        # The own collection first; behind it the user's, for the plugins of an inventory.
        "ANSIBLE_COLLECTIONS_PATH": f"{paths.collections_root()}:{theirs}",
        # ansible-runner looks for ansible-playbook on PATH: it must be the one of this environment.
        "PATH": f"{paths.programs()}:{_searched(request, inherited)}",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOWS": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        # What a node answers is never a variable.
        "ANSIBLE_INJECT_FACT_VARS": "False",
        # The modules of this collection have limits of their own (plugin_utils/actions/limits.py); Ansible's get this one.
        "ANSIBLE_TASK_TIMEOUT": inherited.get("ANSIBLE_TASK_TIMEOUT", "21600"),
        # A source that cannot be read must not become "no such hosts".
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    }
    locale = inherited.get("LC_ALL") or inherited.get("LC_CTYPE") or inherited.get("LANG") or "C"
    if "utf" not in locale.lower():
        variables["LC_ALL"] = "C.UTF-8"  # ansible-core does not start without UTF-8
    if request.verbosity == 0:
        variables["ANSIBLE_VERBOSITY"] = "0"
    return variables


def _searched(request: Request, inherited: Mapping[str, str]) -> str:
    """The caller's PATH; where root works on this machine, the system's own: sudo may keep directories there that users write."""
    at_work = request.local and os.geteuid() == 0
    return paths.SYSTEM_PATH if at_work else inherited.get("PATH", os.defpath)


def write_files(request: Request) -> list[str]:
    """Write the variables and, for the own machine, its inventory; returns the inventory sources."""
    _write_private(_own_variables(request), request.extra_vars)
    for number, variable in enumerate(request.user_vars):
        if not variable.startswith("@"):
            _write_private(_user_variables(request, number), _content(variable))
    if not request.local:
        return list(request.inventory)
    path = request.run_dir / "inventory.json"
    _write_private(path, local_inventory(system_python.path()))
    return [str(path)]


def forget_secrets(request: Request) -> None:
    """Ansible has read the variables: those of the user go, ours stay as a record without credentials."""
    for number in range(len(request.user_vars)):
        _user_variables(request, number).unlink(missing_ok=True)
    _write_private(_own_variables(request), console.redact().document(request.extra_vars))


def _own_variables(request: Request) -> Path:
    return request.run_dir / "extravars.json"


def _user_variables(request: Request, number: int) -> Path:
    return request.run_dir / "ansible" / f"variables-{number}.yml"


def _content(variable: str) -> str | dict[str, object]:
    """What a file says that means the same to Ansible as the word behind `-e`: YAML and JSON as they are, `name=value` read."""
    if variable[:1] in ("[", "{"):
        return variable
    from ansible.errors import AnsibleError
    from ansible.parsing.splitter import parse_kv

    try:
        return dict(parse_kv(variable))
    except AnsibleError as error:
        raise BadInput("a variable of -e cannot be read: a quote or an escape in it has no end") from error


def local_inventory(python: str | None) -> Inventory:
    """The machine one sits at, with a Python of the system; without one, with the Python that Ansible runs on."""
    host: dict[str, str | bool] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": python or "{{ ansible_playbook_python }}",
        "gpuwright_local": True,
    }
    return {"all": {"hosts": {"localhost": host}}}


def _inventory(source: str) -> str:
    if "," in source:
        return source
    path = paths.written(source).absolute()
    if not paths.exists(path):
        raise BadInput(f"there is no inventory {source}", ["a list of hosts is written with a comma: -i node1,"])
    if not os.access(path, os.R_OK):
        raise BadInput(f"the inventory {source} cannot be read", ["check its permissions"])
    return str(path)


def _user_var(word: str) -> str:
    if not word.startswith("@"):
        return word
    path, what = word[1:], "the variables file"
    found = _file(path, what)
    given.for_ansible(path, what)
    return f"@{found}"


def _file(name: str | None, what: str) -> str | None:
    if name is None:
        return None
    path = paths.written(name).absolute()
    if not paths.is_file(path):
        raise BadInput(f"{what} {name} is not there")
    return str(path)


def _write_private(path: Path, document: Mapping[str, object] | str) -> None:
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

    path.parent.mkdir(mode=0o700, exist_ok=True)
    run_directory.write(path, (document if isinstance(document, str) else json.dumps(document, indent=1)).encode())
