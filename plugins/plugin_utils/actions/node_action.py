# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the actions share: run a module of this collection on the node and take its answer in, read the variables of the wish."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from .. import gate
from ..model.errors import BadInput
from ..wish import settings, wish
from . import limits

#: Variables of a host, as Ansible hands them over: of any type until they were read.
Variables = dict[str, Any]
#: Result of a task or a module, with keys of Ansible's own.
Result = dict[str, Any]

#: Variables that say what is wished; everything else that a role takes only shapes how it is done.
WISH_VARIABLES = (*wish.VARIABLES, "gpuwright_wish")


#: What a person reads of a node whose answer was thrown away.
REFUSED = (
    "{host} answered {module} as no node of gpuwright answers: {error}. The whole answer was thrown away. What to do: find out who else is "
    "root on {host} before you trust it again, or correct the record below /var/lib/gpuwright that somebody edited by hand"
)

#: What a person reads where an answer would be a variable of ours: one of a module of Ansible's. Through the gate comes none.
SET_BY_ANSWER = (
    "Expected the variables of gpuwright to be set by you. Found {names} of {host} set by an answer of a module of Ansible's"
    " (ansible_facts), which whoever is root there can make. Nothing was done. What to do: set in the inventory what a playbook of"
    " yours keeps as a fact (set_fact with cacheable); else find out who else is root on {host}. With inject_facts_as_vars = False in"
    " ansible.cfg, as the command has it, no fact is a variable"
)

#: How it shows: ansible-core's own words, and those of a Python that does not know its first import.
_TOO_OLD = ("requires a minimum of Python", "future feature annotations is not defined")

#: The modules that may change a node for longer than a run's lock holds unasked: they hold it meanwhile.
_HOLDING = frozenset(("package_call", "wheels"))


class NodeAction(ActionBase):  # type: ignore[misc]  # ansible-core ships no type information
    """An action that looks at a node through this collection's modules and thinks on the controller."""

    _supports_check_mode = True
    _requires_connection = False
    #: What is sent in place of the module that is asked; see plugin_utils/actions/script.py.
    _script: bytes | None = None
    _shared_loader_obj: Any

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Refuse, before anything else, what an answer of the node would set. Raises AnsibleActionFail."""
        variables = task_vars or {}
        names = sorted(filter(settings.read_by_us, facts_as_variables(variables)))
        if names:
            host = variables.get("inventory_hostname")
            raise AnsibleActionFail(SET_BY_ANSWER.format(names=", ".join(names), host=host))
        result: Result = super().run(tmp, variables)
        return result

    @property
    def verb(self) -> str | None:
        """The verb of this task, where it is another one than the run's."""
        return self._task.args.get("verb") or None

    def variables(self, task_vars: Variables, names: Iterable[str]) -> Variables:
        """The named variables that are set, templated. Raises AnsibleActionFail with the name of one that cannot be."""
        values = {}
        for name in names:
            if name not in task_vars:
                continue
            try:
                values[name] = self._templar.template(task_vars[name])
            except Exception as error:
                message = (
                    f"the variable {name} of host {task_vars.get('inventory_hostname')} cannot be templated: {error}"
                )
                raise AnsibleActionFail(message) from error
        return values

    def controller_path(self, name: str) -> str:
        """A path on the controller as Ansible means it: relative ones lie beside the playbook."""
        return str(self._loader.path_dwim(str(name)))

    def ask(self, module: str, arguments: Mapping[str, object], task_vars: Variables) -> Result:
        """What one of our modules answers on the node: one remote operation. Every answer comes through the gate, a failure too.

        Raises AnsibleActionFail where the answer breaks the rules, AnsibleConnectionFailure where none comes in time.
        """
        self._asked = (module, str(task_vars.get("inventory_hostname") or "the node"))
        held = self._run(task_vars) if module in _HOLDING else {}
        with limits.within(limits.seconds(module, arguments, self._patience(task_vars)), self._asked[1], module):
            result: Result = self._execute_module(
                module_name=f"gpuwright.node.{module}",
                module_args={**held, **arguments},
                task_vars=dict(task_vars),
            )
        refused = python_too_old(result) if result.get("failed") else None
        return {**result, "msg": refused} if refused else result

    def _patience(self, task_vars: Variables) -> int:
        """The seconds for a look. Raises AnsibleActionFail for a value that is none."""
        name = "gpuwright_answer_timeout"
        try:
            return int(settings.read(self.variables(task_vars, [name])).get(name, limits.ANSWER))
        except BadInput as error:
            raise AnsibleActionFail(error.message) from None

    def _run(self, task_vars: Variables) -> Variables:
        """The run that has taken the node, as the option `owner`; none of a role used alone, which has given it back."""
        known = self.variables(task_vars, ["gpuwright_standalone", "gpuwright_plan"])
        alone = boolean(known.get("gpuwright_standalone", True), strict=False)
        owner = (known.get("gpuwright_plan") or {}).get("owner")
        return {} if alone or not owner else {"owner": owner}

    def on_node(
        self, module: str, arguments: Mapping[str, object], task_vars: Variables, *, script: bytes | None = None
    ) -> Result:
        """As `ask`, and the module's failure is this action's failure. `script` is sent in the module's place."""
        self._script = script
        try:
            result = self.ask(module, arguments, task_vars)
        finally:
            self._script = None
        if result.get("failed"):
            raise AnsibleActionFail(result.get("msg") or f"{module} failed", result=result)
        return result

    def _configure_module(self, module_name: str, module_args: dict[str, object], task_vars: Variables) -> Any:
        """Ansible's own making of what is sent, from the script where there is one: that counts as the module's file."""
        if self._script is None:
            return super()._configure_module(module_name, module_args, task_vars)
        found = SimpleNamespace(resolved=True, plugin_resolved_path=_file(self._script), resolved_fqcn=module_name)
        loaders: Any = self._shared_loader_obj
        self._shared_loader_obj = SimpleNamespace(
            module_loader=SimpleNamespace(find_plugin_with_context=lambda *_, **__: found)
        )
        try:
            return super()._configure_module(module_name, module_args, task_vars)
        finally:
            self._shared_loader_obj = loaders

    def _admit(self, module: str, said: str) -> str:
        """What a module said, once the gate let it in."""
        return gate.admit(module, said)

    def _parse_returned_data(self, res: Result, profile: str) -> Result:
        """Ansible's own reading of an answer, behind the gate."""
        module, host = self._asked
        heard = {**res, "stderr": gate.words(res.get("stderr") or "")}
        try:
            heard["stdout"] = self._admit(module, res.get("stdout") or "")
        except gate.Refused as error:
            raise AnsibleActionFail(REFUSED.format(host=host, module=module, error=error)) from None
        except gate.NoAnswer as error:
            # Ansible says what is wrong; with a mark before each line, for shortened and cleaned these words could be an answer.
            heard["stdout"] = "\n".join(f"| {line}" for line in str(error).splitlines())
        try:
            result: Result = super()._parse_returned_data(heard, profile)
        except Exception as error:  # Ansible's own types of warnings, made of what the node says
            told = f"Ansible cannot read it ({error})"
            raise AnsibleActionFail(REFUSED.format(host=host, module=module, error=told)) from error
        return result


def facts_as_variables(variables: Mapping[str, object]) -> Collection[str]:
    """The names of a host's variables that answers of its node set: where Ansible makes variables of facts."""
    facts = variables.get("ansible_facts")
    return facts if constants.INJECT_FACTS_AS_VARS and isinstance(facts, Mapping) else ()


def without_facts(variables: Mapping[str, object]) -> Variables:
    """A host's variables as the inventory and our own tasks set them."""
    answered = facts_as_variables(variables)
    return {name: value for name, value in variables.items() if name not in answered}


def of_another(host: str, names: Iterable[str], task_vars: Variables) -> Variables:
    """The same of another host, of which an answer decides nothing here: the named variables that are set."""
    found = task_vars["hostvars"][host]
    answered = facts_as_variables(found)
    return {name: found[name] for name in names if name in found and name not in answered}


def _file(script: bytes) -> str:
    """A script as a file, in the directory that Ansible has for one run and its user alone."""
    path = Path(constants.DEFAULT_LOCAL_TMP, "gpuwright_script.py")
    if not path.exists():
        own = path.with_name(f"{path.name}.{os.getpid()}")
        own.write_bytes(script)
        own.rename(path)
    return str(path)


class ModuleAction(NodeAction):
    """The action of each module of ours that speaks from a node, where a task names it: the same gate, and nothing else."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Run the module with the task's arguments. With `async` the answer would be read past the gate: Ansible says so."""
        result: Result = super().run(tmp, task_vars)
        return {**result, **self.ask(self._task.action.rpartition(".")[2], self._task.args, task_vars or {})}


def python_too_old(result: Mapping[str, object]) -> str | None:
    """What to do where a module failed because the node's Python is older than Ansible's floor; None for any other failure.

    RHEL 8 is the case: its platform Python is 3.6. Ansible says so only in the words of that Python, below a traceback.
    """
    said = "\n".join(str(result.get(key) or "") for key in ("msg", "module_stderr", "module_stdout", "exception"))
    if not any(words in said for words in _TOO_OLD):
        return None
    return (
        "the Python that Ansible uses on this node is too old for this version of ansible-core (RHEL 8's own is 3.6). "
        "Install a newer one beside it: dnf install python3.12; then say so in the inventory: "
        "ansible_python_interpreter: /usr/bin/python3.12"
    )
