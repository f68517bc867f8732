# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One look at one node, from the action plugins: observe, resolve, ask the package index where that is needed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from .. import rules
from ..components import sources
from ..components.frameworks.resolve import FRAMEWORKS
from ..components.nvidia_driver import exchange
from ..model import sections
from ..model.proof import MAX_AGE
from ..plan import document, index_query, python_query, removal, removal_work, security_floors, taking
from ..plan import users as of_users
from ..plan.draft import Draft, completed, make_draft
from ..plan.finish import finish
from ..plan.request import APPLYING, WITH_HISTORY, Request
from ..report import run_directory
from ..resolver import lock
from ..wish import credentials, settings, users
from ..wish.wish import FLEET_VARIABLES, BadInput, Wish
from . import script, watching
from .node_action import WISH_VARIABLES, NodeAction, Variables, of_another

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex, PythonIndex

    from ..model.lock import Lock
    from ..model.plan import Plan, StoppedBy
    from ..model.stack import Refusal, Stack

#: The documents of a run that say how far each host is with what it downloads now.
METER = "progress"
#: Variables of a run that are no wish.
RUN_VARIABLES = (
    "gpuwright_local",
    "gpuwright_no_reboot",
    "gpuwright_full",
    "gpuwright_verb",
    "gpuwright_proof_max_age",
    "gpuwright_root",
    "gpuwright_command_timeout",
    "gpuwright_security",
    "gpuwright_retry",
    "gpuwright_allow_remove",
    "gpuwright_allow_source",
    "gpuwright_user",
    "gpuwright_allow_busy",
)

# Read once, where Ansible imports the action: each host's look happens in a fork of that process.
RULES = rules.load_rules()
ROLES = settings.ROLES
SCRIPT = script.look()
# And left out of each fork's garbage collection, which would copy all of it.
gc.freeze()


class NodeSession:
    """A look at one host. ``draft`` is a :class:`Draft`, or the finished plan where the look ended early."""

    def __init__(self, action: NodeAction, task_vars: Variables) -> None:
        self.action = action
        self.task_vars = task_vars
        self.host: str = task_vars["inventory_hostname"]
        self.run = self._read(RUN_VARIABLES)

    def _read(self, names: Iterable[str]) -> Variables:
        """The named variables that are set, as their types say."""
        try:
            return settings.read(self.action.variables(self.task_vars, names))
        except BadInput as error:  # in a play of ours they were read before the first host
            raise AnsibleActionFail(error.message) from None

    @property
    def verb(self) -> str:
        """What the run is for; a task of it may go back."""
        return str(self.action.verb or self.run.get("gpuwright_verb") or "up")

    @property
    def user(self) -> bool:
        """Whether a user works without root, on what is the user's own."""
        return bool(self.run.get("gpuwright_user"))

    def keep(self, arguments: Mapping[str, object]) -> None:
        """Have the node keep records of what was done to it: root's, or the user's own."""
        own = {"user": True} if self.user else {}
        self.action.on_node("node_seal", {**arguments, **own}, self.task_vars)

    def facts(self, only: Sequence[str] = (), *, records: bool = False) -> Facts:
        """The node's facts: the one remote operation of a warm run. ``only``: the components that are planned alone; ``records``: whether
        all is read that the node keeps of what gpuwright brought.
        """
        arguments: dict[str, object] = {
            "root": self.run.get("gpuwright_root") or "/",
            # A proof that was asked for looks at every file, too.
            "full": bool(self.run.get("gpuwright_full")) or self.verb == "validate",
            "initramfs": True,
        }
        arguments["environments"] = self._environments()
        if self.user:
            arguments["user"] = True
        # What an engine has of images matters to a wish for some alone, and so with ports and the rules of the firewall.
        wish = self._looked_for.with_roles(only)
        if wish.images:
            arguments["images"] = True
        arguments |= wish.listens
        if (self.verb == "remove" and not self.user) or wish.opens_firewall:
            arguments["firewall"] = True
        if records or self.verb in WITH_HISTORY:
            arguments["history"] = True
        if self.run.get("gpuwright_command_timeout"):
            arguments["timeout"] = self.run["gpuwright_command_timeout"]
        answer = self.action.on_node("node_facts", arguments, self.task_vars, script=SCRIPT)
        facts: Facts = answer["facts"]
        return facts

    def _environments(self) -> list[str]:
        """Where the wish puts the framework environments. It is needed before the wish is resolved, so each known
        framework is looked for, and each environment with a name; what is not there costs one failed open.
        """
        wished = self.action.variables(self.task_vars, ["frameworks_path", "gpuwright_wish"])
        asked = wished.get("gpuwright_wish") or {}
        path = (asked.get("frameworks_path") if isinstance(asked, Mapping) else None) or wished.get("frameworks_path")
        return [f"{str(path).rstrip('/')}/{name}" for name in (*FRAMEWORKS, *self._named())] if path else []

    def _named(self) -> list[str]:
        """The names of environments in the wish."""
        return sorted({each.environment for each in self._looked_for.frameworks if each.environment})

    def draft(
        self,
        facts: Facts,
        *,
        only: list[str],
        applied: Stack | None = None,
        absent: Mapping[str, Sequence[str]] | None = None,
    ) -> Draft | Plan:
        """What is to be done, or the finished plan where the wish itself is wrong."""
        request = self._request(only, applied, absent or {})
        try:
            held = self._lock
            request = replace(request, lock=held)
            wish = self._wish(facts)
            users.refuse_sources(request.allow_source, user=self.user)
        except BadInput as error:
            return document.bad_input(facts, request, error)
        refused = self._refused(facts) if self.user else []
        if refused:
            return document.ended(facts, request, refusals=refused)
        whole = completed(wish, facts, request)
        # A lock has said what is wished of each.
        whole = whole.with_roles(only if request.lock is None else ())
        return make_draft(facts, whole, RULES, request)

    def index(self, drafted: Draft) -> PackageIndex | None:
        """What the node's package index says of the packages that would change; None where nothing would, or where the
        verb only judges what is there.
        """
        beside = drafted.beside
        if not (drafted.packages or any(beside.values())) or drafted.request.verb not in (*APPLYING, "plan"):
            return None
        repositories = drafted.context.stack.get("repositories") or []
        addresses = [url for row in repositories for url in sources.addresses(row)]
        arguments = {
            "repositories": repositories,
            "credentials": credentials.of_variables(addresses, self.action.variables(self.task_vars, WISH_VARIABLES)),
            "packages": drafted.packages,
            "also": list(drafted.also),
            "builders": [row["repository"] for row in drafted.builders],
            "keep": drafted.keep,
            "origin": exchange.addresses(drafted.context.stack),
            "replaced": sorted(drafted.replaced),
            **beside,
        }
        return cast("PackageIndex", self.action.on_node("package_index", arguments, self.task_vars))

    def wheels(self, drafted: Draft) -> python_query.Wheels:
        """What the node's Python index says of the wheels that pip would install; it is asked of none where the verb only judges what is
        there, and where all are there already.
        """
        asked = python_query.question(drafted) if drafted.request.verb in (*APPLYING, "plan") else None
        if asked is None:
            return python_query.NONE
        addresses = python_query.addresses(drafted)
        access = credentials.of_variables(addresses, self.action.variables(self.task_vars, WISH_VARIABLES))
        answer = self.action.on_node("python_index", {**asked, "credentials": access}, self.task_vars)
        return python_query.judged(drafted, cast("PythonIndex", answer), RULES)

    def plan(self, facts: Facts, *, only: list[str]) -> Plan:
        """The plan: drafted by the rules, and drafted again without what the node's package index turned out to lack."""
        if self.verb == "remove":
            return self._removal(facts, self._request(only, None, {}))
        lacking: dict[str, list[str]] = {}
        while True:
            drafted = self.draft(facts, only=only, absent=lacking)
            if not isinstance(drafted, Draft):
                return drafted
            index = self.index(drafted)
            more = index_query.absent(drafted, index) if index else {}
            if more:
                lacking |= more
                continue
            if drafted.request.security and index:
                drafted = security_floors.to_the_floor(drafted, index, RULES)
                index = self.index(drafted)
            tighter = index_query.tightened(drafted, index)
            if tighter:
                drafted, index = tighter, self.index(tighter)
            wheels = self.wheels(drafted)
            more = python_query.absent(drafted, wheels)
            if more:
                lacking |= more
                continue
            plan = finish(drafted, index, wheels)
            if taking.others(plan["takes"]) and self.verb not in WITH_HISTORY:
                # Whose these are say the records, which is a second look that no other plan needs.
                seen = cast("Facts", {**facts, "history": self.facts(only, records=True)["history"]})
                plan = finish(replace(drafted, context=replace(drafted.context, facts=seen)), index, wheels)
            return plan

    def _removal(self, facts: Facts, request: Request) -> Plan:
        """The plan of a removal, with what the node answers to it: what is in use, what would break, and what its index has of the driver
        that is to come back.
        """
        question = removal.question(facts, request)
        index = (
            cast("PackageIndex", self.action.on_node("package_index", question, self.task_vars)) if question else None
        )

        def ask(questions: removal_work.Questions) -> removal_work.Answers:
            return cast("removal_work.Answers", self.action.on_node("removal_answers", questions, self.task_vars))

        return removal.answered(facts, request, index, ask)

    def save(self, kind: str, document: Mapping[str, object], *, packed: bool = False) -> None:
        """Write a document of this host into the run directory, where there is one (a role used alone has none)."""
        if self.run_dir:
            run_directory.write_document(self.run_dir / kind, self.host, document, packed=packed)

    def saved(self, kind: str) -> run_directory.Json | None:
        """A document of this host that this run wrote; None where there is none. Raises AnsibleActionFail where it is broken."""
        path = run_directory.document(self.run_dir / kind, self.host) if self.run_dir else None
        if path is None:
            return None
        document = run_directory.read_json(path)
        if document is None:
            raise AnsibleActionFail(f"{path}, which this run wrote, cannot be read")
        return document

    @contextlib.contextmanager
    def watched(self, path: str) -> Iterator[None]:
        """Keep how far something on the node is, by a file of it, as a document of the run while the body runs."""
        if self.run_dir is None:
            yield
            return
        try:
            with watching.watched(
                self.action, path, lambda done, total: self.save(METER, {"done": done, "total": total})
            ):
                yield
        finally:
            kept = run_directory.document(self.run_dir / METER, self.host)
            if kept:
                kept.unlink(missing_ok=True)

    @cached_property
    def run_dir(self) -> Path | None:
        """Where the run keeps its documents."""
        given = self.action.variables(self.task_vars, ["gpuwright_run_dir", "gpuwright_run"])
        path = given.get("gpuwright_run_dir") or (given.get("gpuwright_run") or {}).get("run_dir")
        return Path(path) if path else None

    @property
    def pending(self) -> bool:
        """Whether a task of this run left the cards to the next boot."""
        name = "gpuwright_reboot_pending"
        return bool(boolean(self.action.variables(self.task_vars, [name]).get(name) or False, strict=False))

    @property
    def _begun(self) -> Plan | None:
        """The plan of this run, for a task of it that goes back; else None."""
        return cast("Plan | None", self.saved("plans")) if self.action.verb == "rollback" else None

    @property
    def _failure(self) -> StoppedBy | None:
        """What stopped this run, for a task of it that goes back; else None."""
        failure = self.action.variables(self.task_vars, ["gpuwright_failure"]).get("gpuwright_failure")
        return cast("StoppedBy | None", failure)

    @cached_property
    def _lock(self) -> Lock | None:
        """The lock that the host is held to: given as it is, or as a file on the controller. Raises BadInput."""
        given = self.action.variables(self.task_vars, ["gpuwright_lock"]).get("gpuwright_lock")
        if not given:
            return None
        found = lock.load(self.action.controller_path(given)) if isinstance(given, str) else lock.check(given)
        return of_users.of_lock(found) if self.user else found

    def _wish(self, facts: Facts) -> Wish:
        """The wish for this host: where a user works without root, in the user's places."""
        wish, user = self._asked, sections.user(facts)
        if wish.asks_fleet:
            wish = wish.with_fleet(self._fleet(), self.host)
        return users.placed(wish, user["environments"]) if user else wish

    def _fleet(self) -> dict[str, Variables]:
        """What every host of the inventory says of its exporters, also one that this run is limited to leave out."""
        hosts = {name: of_another(name, FLEET_VARIABLES, self.task_vars) for name in self.task_vars["groups"]["all"]}
        return {name: self.action.variables(values, FLEET_VARIABLES) for name, values in hosts.items()}

    @cached_property
    def _written(self) -> Wish | BadInput:
        """The wish as it was written down, or as the lock has it; or what is wrong with it. It is read once."""
        try:
            variables = self.action.variables(self.task_vars, WISH_VARIABLES)
            return Wish.from_variables(variables) if self._lock is None else lock.as_wish(self._lock, variables)
        except BadInput as error:
            return error

    @property
    def _asked(self) -> Wish:
        """The wish. Raises BadInput."""
        if isinstance(self._written, BadInput):
            raise self._written
        return self._written

    @property
    def _looked_for(self) -> Wish:
        """The wish that a look goes by: one for nothing where it is wrong, which is told where it is planned."""
        return Wish() if isinstance(self._written, BadInput) else self._written

    def _refused(self, facts: Facts) -> list[Refusal]:
        """What a user without root cannot have, or that it is no user."""
        variables = self.action.variables(self.task_vars, WISH_VARIABLES)
        return of_users.of_caller(facts) or of_users.of_wish(variables)

    def _request(self, only: list[str], applied: Stack | None, absent: Mapping[str, Sequence[str]]) -> Request:
        run = self.run
        return Request(
            host=self.host,
            today=datetime.now(tz=UTC).date(),
            local=bool(run.get("gpuwright_local")),
            full=bool(run.get("gpuwright_full")) and applied is None,
            verb=self.verb,
            only=only,
            proof_max_age=run.get("gpuwright_proof_max_age") or MAX_AGE,
            inputs=self.inputs(),
            role_digests={name: role["digest"] for name, role in ROLES.items()},
            applied=applied,
            absent=absent,
            begun=self._begun,
            failure=self._failure,
            retry=bool(run.get("gpuwright_retry")),
            pending=self.pending,
            user=self.user,
            security=bool(run.get("gpuwright_security")),
            allow_remove=[str(name) for name in run.get("gpuwright_allow_remove") or ()],
            allow_source=[str(name) for name in run.get("gpuwright_allow_source") or ()],
            no_reboot=bool(run.get("gpuwright_no_reboot")),
            allow_busy=bool(run.get("gpuwright_allow_busy")),
        )

    def inputs(self) -> dict[str, Variables]:
        """Variables of each role that are set outside it. Of a secret there is only that it is set: a digest of one is an oracle for it."""
        inputs = {}
        for name, role in ROLES.items():
            public = [
                option for option, row in role["options"].items() if not row["no_log"] and option not in WISH_VARIABLES
            ]
            secret = [option for option, row in role["options"].items() if row["no_log"]]
            is_set: dict[str, object] = {option: True for option, value in self._read(secret).items() if value}
            inputs[name] = self._read(public) | is_set
        return inputs
