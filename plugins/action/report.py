# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action ``report``: opens a run, takes each host's record, closes with the report. Runs on the controller alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail, AnsibleTemplateError, AnsibleValueOmittedError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import without_facts
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import definition, local_path
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import APPLYING
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import fleet, run_directory
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import Result, Variables


#: What may be said of a host: all of its record but what is told of one that stays as it is.
FIELDS = tuple(key for key, said in definition.keys(Record).items() if said.required and key != "host")


class ActionModule(ActionBase):
    """See the documentation module of the same name."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("state", "run_dir", "verb", "record", "unreachable", "failed", "not_reached", *FIELDS))

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        """Do what ``state`` says; nothing of it is a change of the host."""
        # It speaks for all hosts, on one of them.
        variables = without_facts(task_vars or {})
        super().run(tmp, variables)
        arguments = dict(self._task.args)
        state = arguments.get("state")
        steps = {"open": self._open, "host": self._host, "close": self._close}
        if state not in steps:
            raise AnsibleActionFail(f"report: state must be one of open, host, close, and it is {state!r}")
        try:
            result = steps[state](arguments, variables)
        except OSError as error:
            raise AnsibleActionFail(f"the run directory cannot be written: {error}") from error
        except run_directory.RefusedError as error:
            raise AnsibleActionFail(
                f"Expected a run directory that nobody else can change. Found {error}. What to do: name another in gpuwright_run_dir"
            ) from error
        return {"changed": False, **result}

    def _open(self, arguments: Variables, variables: Variables) -> Result:
        """Before the first host is asked, so that what is set for any of them and cannot be meant is refused here."""
        try:
            settings.refuse(self._set(variables))
        except BadInput as error:
            return {"failed": True, "msg": error.message, "suggestions": error.suggestions}
        path = self._given(arguments, variables) or report.default_run_dir()
        verb = arguments.get("verb") or self._variable("gpuwright_verb", variables)
        return {"run_dir": str(report.open_run(path, verb and str(verb)))}

    def _set(self, variables: Variables) -> dict[str, Variables]:
        """For each host of the play what is set of our variables, and of what stands for one, misspelt."""
        others, this = variables["hostvars"], variables["inventory_hostname"]
        of_the_play = variables.keys() - others.raw_get(this).keys()
        of_all = {name: variables[name] for name in of_the_play}
        found: dict[str, Variables] = {}
        for host in variables["ansible_play_hosts_all"]:
            own = variables if host == this else without_facts(others.raw_get(host))
            # An earlier play may have left out a host that it could not reach, and what this one takes from that play is not there.
            strict = host in variables["ansible_play_hosts"]
            found[host] = self._rendered(own, {**of_all, **own}, strict=strict)
        return found

    def _rendered(self, own: Mapping[str, object], variables: Variables, *, strict: bool) -> Variables:
        """What a host has of our variables. What cannot be rendered is left to the task that needs it where that may be known then."""
        templar = self._templar.copy_with_new_env(available_variables=variables)
        found: Variables = {}
        for name in filter(settings.ours, own):
            try:
                found[name] = templar.template(own[name])
            except Exception as error:  # noqa: BLE001 - as what a lookup raises
                if strict and not _is_for_later(error, own[name], variables):
                    found[name] = settings.not_rendered(error)
        return found

    def _host(self, arguments: Variables, variables: Variables) -> Result:
        host = str(variables.get("inventory_hostname") or "localhost")
        given = arguments.get("record") or {}
        if not isinstance(given, dict):
            raise AnsibleActionFail("report: record must be a dictionary")
        values = {**given, **{key: arguments[key] for key in FIELDS if arguments.get(key) is not None}}
        record = report.write_host(self._run_dir(arguments, variables), host, values)
        return {"verdict": record["verdict"], "host": host}

    def _close(self, arguments: Variables, variables: Variables) -> Result:
        run_dir = self._run_dir(arguments, variables)
        verb = arguments.get("verb") or self._variable("gpuwright_verb", variables)
        to_come = self._to_come(run_dir, verb)
        waiting = [] if self._task.check_mode or verb == "validate" else to_come
        made = report.aggregate(
            run_dir,
            verb=verb,
            unreachable=arguments.get("unreachable") or {},
            failed=arguments.get("failed") or {},
            not_reached=arguments.get("not_reached") or waiting,
            ended=None if to_come else "done",
        )
        if verb == "status":
            Display().display(fleet.text(report.read_plans(run_dir)))
        names = {"report": "report.json", "html": "report.html", "junit": "junit.xml"}
        paths = {key: str(run_dir / name) for key, name in names.items()}
        return {
            "verdict": made["verdict"],
            "counts": made["counts"],
            "run_dir": str(run_dir),
            "waiting": waiting,
            "ended": not to_come,
            **paths,
        }

    def _to_come(self, run_dir: Path, verb: str | None) -> list[str]:
        """The hosts that the run has more to do on than it has done; a plan is all that most want of a host.

        Where a verb that applies is in check mode, it asks next whether to apply.
        """
        if verb == "validate":
            return [] if self._task.check_mode else report.unproven(run_dir)
        applies = verb in APPLYING or (verb is None and not self._task.check_mode)
        return report.waiting(run_dir) if applies else []

    def _run_dir(self, arguments: Variables, variables: Variables) -> Path:
        path = self._given(arguments, variables)
        if path is None:
            raise AnsibleActionFail(
                "report: no run directory; call it with state open first and hand its run_dir on as gpuwright_run_dir"
            )
        return path

    def _given(self, arguments: Variables, variables: Variables) -> Path | None:
        value = arguments.get("run_dir") or self._variable("gpuwright_run_dir", variables)
        return local_path.read(str(value)).absolute() if value else None

    def _variable(self, name: str, variables: Variables) -> Any:
        value = variables.get(name)
        return self._templar.template(value) if isinstance(value, str) else value


def _is_for_later(error: Exception, value: Any, variables: Variables) -> bool:
    """Whether a value that cannot be rendered before the first host is nothing to refuse.

    `omit` says that it is not set, and what no password decrypts fails where it is used; no default takes its place there.
    """
    if isinstance(error, AnsibleValueOmittedError) or not isinstance(error, AnsibleTemplateError):
        return True
    return "undecryptable" in str(error) or settings.waits(value, variables)
