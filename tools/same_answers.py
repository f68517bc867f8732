# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold two states of the collection against each other: to the same questions they give the same answers.

    python tools/same_answers.py OLD NEW [--machines N] [--seed N] [--inputs FILE] [--most N]

OLD and NEW are revisions of git, or directories. The questions are made once, in OLD: every observation, wish and answer of a package
index that its unit tests hand to the planner, the judges and the resolver, each of these observations with every verb, every scenario of
the simulated node, and machines that are drawn. What a test leaves out of an observation or an answer of an index is filled in, by the
schema of the tree that this script is in. They are JSON; each state reads the same in a process of its own, so that NEW may have
renamed anything but what ENTRY_POINTS names. Sentences are left out of what is compared, and so are the key `work` and remedies.
Exit 0: the same; 1: a difference, shown as a diff; 2: no comparison could be made.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

_PLUGINS = "ansible_collections.gpuwright.node.plugins."
_PLAN = _PLUGINS + "plugin_utils.plan"
_PLANNER = _PLUGINS + "plugin_utils.plan.planner"
_OLD_PLANNER = _PLUGINS + "plugin_utils.planner"
#: Where each function that is asked is; of several places the first that is there. What moves gets its new place in front of the old one.
ENTRY_POINTS: dict[str, tuple[str, ...]] = {
    "rules": (f"{_PLUGINS}plugin_utils.rules:load_rules",),
    "wish": (f"{_PLUGINS}plugin_utils.wish.wish:Wish", f"{_PLUGINS}plugin_utils.wish:Wish"),
    "lock_as_wish": (f"{_PLUGINS}plugin_utils.resolver.lock:as_wish", f"{_PLUGINS}plugin_utils.lock:as_wish"),
    "described": (
        f"{_PLUGINS}plugin_utils.resolver.machine:machine_from_options",
        f"{_PLUGINS}plugin_utils.resolver.situation:situation_from_options",
        f"{_PLUGINS}plugin_utils.situation:situation_from_options",
    ),
    "observed": (
        f"{_PLUGINS}plugin_utils.resolver.machine:machine_from_facts",
        f"{_PLUGINS}plugin_utils.resolver.situation:situation_from_facts",
        f"{_PLUGINS}plugin_utils.situation:situation_from_facts",
    ),
    "resolve": (f"{_PLUGINS}plugin_utils.resolver.resolve:resolve", f"{_PLUGINS}plugin_utils.resolver:resolve"),
    "request": (f"{_PLAN}.request:Request", f"{_PLANNER}:Request", f"{_OLD_PLANNER}:Request"),
    "draft": (f"{_PLAN}.draft:make_draft", f"{_PLANNER}:draft", f"{_OLD_PLANNER}:draft"),
    "absent": (f"{_PLAN}.index_query:absent", f"{_PLANNER}:absent", f"{_OLD_PLANNER}:absent"),
    "tightened": (f"{_PLAN}.index_query:tightened", f"{_PLANNER}:tightened", f"{_OLD_PLANNER}:tightened"),
    "finish": (f"{_PLAN}.finish:finish", f"{_PLANNER}:finish", f"{_OLD_PLANNER}:finish"),
    "take_back": (f"{_PLAN}.removal:take_back", f"{_PLANNER}:take_back", f"{_OLD_PLANNER}:take_back"),
    "to_the_floor": (
        f"{_PLAN}.security_floors:to_the_floor",
        f"{_PLUGINS}plugin_utils.plan.upgrading:to_the_floor",
        f"{_PLUGINS}plugin_utils.upgrading:to_the_floor",
    ),
    "stack_part": (f"{_PLAN}.sealing:stack_part", f"{_PLANNER}:stack_part", f"{_OLD_PLANNER}:stack_part"),
    "status": (f"{_PLUGINS}plugin_utils.health.drift:status", f"{_PLUGINS}plugin_utils.drift:status"),
    "record": (f"{_PLUGINS}plugin_utils.report.records:ended_in_plan", f"{_PLUGINS}plugin_utils.records:ended_in_plan"),
    "judge": (f"{_PLUGINS}plugin_utils.health.judge:judge", f"{_PLUGINS}plugin_utils.judge:judge"),
    "judge_kernel_log": (
        f"{_PLUGINS}plugin_utils.health.judge_kernel_log:judge",
        f"{_PLUGINS}plugin_utils.judge_kernel_log:judge",
    ),
    "judge_smi": (
        f"{_PLUGINS}module_utils.measure.smi_judge:judge",
        f"{_PLUGINS}module_utils.measure.smi:judge",
        f"{_PLUGINS}module_utils.smi:judge",
    ),
    "judge_fio": (f"{_PLUGINS}module_utils.measure.fio_json:judge", f"{_PLUGINS}module_utils.fio_json:judge"),
    "code_of_plan": ("gpuwright.exits:of_plan",),
    "code_of_judgement": ("gpuwright.exits:of_judgement",),
    "code_of_result": ("gpuwright.exits:of_result",),
    "code_of_status": ("gpuwright.exits:of_status",),
    # Only where the questions are made.
    "observe": (f"{_PLUGINS}module_utils.observe.machine:observe",),
    "host": (f"{_PLUGINS}module_utils.base.host:Host", f"{_PLUGINS}module_utils.host:Host"),
}
#: Methods of a draft: what it asks the package index for.
DRAFT_ASKS = ("packages", "also", "keep", "replaced")
#: What is compared of a change, of a plan as it is, and of a plan by the rules alone.
OF_CHANGE = ("component", "action", "from", "to", "packages", "leaves", "download_bytes", "disk_bytes")
OF_PLAN = (
    *("ok", "stack", "reboot", "components", "download_bytes", "disk_bytes", "install", "verdict", "restore", "remove"),
    *("provision_only", "cards_missing", "cpu_only", "versions_verified", "absent", "rebuild", "left_out"),
)
OF_RULES = ("conflicts", "refusals", "warnings", "why")
#: Sentences for people, and what is new.
LEFT_OUT = ("text", "reason", "remedy", "source_reason", "reboot_reason", "sentence", "told", "work")

Entry = Callable[..., Any]
Row = Mapping[str, Any]


def entry(name: str) -> Any:
    """The function of a name in the tree that this process belongs to."""
    module, attribute = places(name)[0]
    return getattr(module, attribute)


def places(name: str) -> list[tuple[Any, str]]:
    """The modules of this tree that have the function of a name, with its name there; the first is asked."""
    there = []
    for place in ENTRY_POINTS[name]:
        module, _separator, attribute = place.partition(":")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        if hasattr(found, attribute):
            there.append((found, attribute))
    if there:
        return there
    raise LookupError(
        f"{name} is in none of {', '.join(ENTRY_POINTS[name])}: add its place to ENTRY_POINTS of tools/same_answers.py"
    )


# --- canonical: what is compared ------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Without sentences, and with nothing but JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items() if key not in LEFT_OUT}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def rules_told(rows: Sequence[Row]) -> list[str]:
    """The ids of rules, in their order."""
    return [str(row.get("rule")) for row in rows]


def checks_told(checks: Sequence[Row]) -> list[list[Any]]:
    """What was judged, without the sentences."""
    return [[check.get(key) for key in ("id", "status", "severity", "gpu", "action")] for check in checks]


def plan_told(plan: Row, codes: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of a plan. ``codes``: the exit codes that follow from it."""
    changes = [{key: plain(change.get(key)) for key in OF_CHANGE} for change in plan["changes"]]
    return {
        "changes": changes,
        **{key: plain(plan.get(key)) for key in OF_PLAN},
        **{key: rules_told(plan.get(key) or ()) for key in OF_RULES},
        "skipped": bool(plan.get("skipped")),
        "error": bool(plan.get("error")),
        "checks": checks_told(plan["checks"]),
        "exit": dict(codes),
    }


def answer_told(answer: Row) -> dict[str, Any]:
    """What is compared of an answer of the resolver."""
    told = {key: plain(answer.get(key)) for key in ("ok", "stack", "gpus", "os", "arch", "assumed")}
    return told | {key: rules_told(answer.get(key) or ()) for key in ("conflicts", "warnings", "why")}


def canonical(answer: Any) -> str:
    """The one spelling of an answer."""
    return json.dumps(answer, indent=1, sort_keys=True, ensure_ascii=False)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """A unified diff for each question that the two answer differently."""
    for name in {**old, **new}:
        before, after = (canonical(answers.get(name, "(not answered)")) for answers in (old, new))
        if before != after:
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), f"old: {name}", f"new: {name}", lineterm="", n=4
            )
            yield "\n".join(lines)


# --- answering: in a process of the tree that is asked ----------------------------------------------------------------------------


def wish_of(steps: Sequence[Sequence[Any]]) -> Any:
    """A wish from what it was made with, step by step."""
    made: Any = None
    for step, *arguments in steps:
        if step == "variables":
            made = entry("wish").from_variables(*arguments)
        elif step == "lock":
            made = entry("lock_as_wish")(*arguments)
        elif step == "overlaid":
            made = made.overlaid(wish_of(*arguments))
        else:
            made = getattr(made, step)(*arguments)
    return made


def request_of(fields: Row) -> Any:
    """A request from its fields."""
    return entry("request")(**{**fields, "today": date.fromisoformat(fields["today"])})


def codes_of(plan: dict[str, Any], request: Row, facts: Row) -> dict[str, Any]:
    """Every exit code that a plan may lead to."""
    record = entry("record")(plan)
    codes = {
        "plan": entry("code_of_plan")(plan),
        "judgement": entry("code_of_judgement")(record),
        "result": entry("code_of_result")(record),
    }
    if request.get("verb") == "status":
        codes["status"] = entry("code_of_status")({**plan, "status": entry("status")(facts, plan)})
    return codes


def ask_plan(row: Row, facts: Row) -> Any:
    """A draft, and the plan with each answer of the index."""
    fields = row["request"]
    request = request_of(fields)

    def told(plan: dict[str, Any]) -> dict[str, Any]:
        return plan_told(plan, codes_of(plan, fields, facts))

    if row.get("remove"):
        return told(entry("take_back")(facts, request))
    drafted = entry("draft")(facts, wish_of(row["wish"]), entry("rules")(), request)
    if isinstance(drafted, dict):
        return {"ended": told(drafted)}
    answered: list[Any] = []
    for index in row["indexes"]:
        floored = (
            entry("to_the_floor")(drafted, index, entry("rules")()) if fields.get("security") and index else drafted
        )
        tighter = entry("tightened")(floored, index)
        answered.append(
            {
                "absent": plain(entry("absent")(drafted, index)) if index else {},
                "floored": None if floored is drafted else asked_of(floored),
                "tightened": None if tighter is None else asked_of(tighter),
                "plan": told(entry("finish")(tighter or floored, index)),
            }
        )
    return {"asked": asked_of(drafted), "answered": answered}


def asked_of(drafted: Any) -> dict[str, Any]:
    """What a draft asks the package index for."""
    return {name: plain(getattr(drafted, name)) for name in DRAFT_ASKS}


def ask_resolver(row: Row, facts: Row | None) -> Any:
    """The resolver, of a machine that was described or looked at."""
    rules, wish, today = entry("rules")(), wish_of(row["wish"]), date.fromisoformat(row["today"])
    if facts is not None:
        where = entry("observed")(facts, wish, rules, today=today, **row["options"])
    else:
        where = entry("described")(row["gpus"], row["os"], row["arch"], row["assume"], rules, today=today)
    return answer_told(entry("resolve")(where, wish, rules))


def ask_judge(row: Row, facts: Row | None) -> Any:
    """The judges of an observation, of a kernel log, and of what nvidia-smi and fio measured."""
    if facts is not None:
        return checks_told(entry("judge")(facts, row["stack"], row["expected"]))
    if "seen" in row:
        return checks_told(entry("judge_kernel_log")(row["seen"], entry("rules")()))
    return checks_told(entry(row["judge"])(*row["arguments"], **row["named"]))


_ASK: dict[str, Callable[[Row, Any], Any]] = {"plan": ask_plan, "resolve": ask_resolver, "judge": ask_judge}


def answers(questions: Row) -> dict[str, Any]:
    """The answer to each question, by its name. What is refused by an exception is answered by the exception's name."""
    result: dict[str, Any] = {}
    for name, row in questions["rows"].items():
        facts = questions["facts"][row["facts"]] if row.get("facts") else None
        try:
            result[name] = _ASK[row["kind"]](row, facts)
        except LookupError as error:
            if "ENTRY_POINTS" in str(error):
                raise
            result[name] = {"raised": f"{type(error).__name__}: {error}"}
        except Exception as error:  # noqa: BLE001 - whatever one state raises, the other one has to raise too
            result[name] = {"raised": type(error).__name__}
    return result


def belong_to(tree: Path) -> None:
    """Let this process import the collection of that tree, and of no other: an editable installation would lend what is not there."""
    own = [str(tree / "collections"), str(tree / "src"), str(tree)]
    tools = str(Path(__file__).resolve().parent)
    other = [path for path in sys.path if path != tools and not _has_us(Path(path or "."))]
    sys.path[:] = [*own, *(path for path in other if path not in own)]
    if tools in sys.path:
        sys.path.remove(tools)


def strangers(tree: Path) -> list[str]:
    """Modules of ours that this process took from elsewhere."""
    ours = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(("ansible_collections.gpuwright", "gpuwright"))
    }
    files = {name: getattr(module, "__file__", None) for name, module in ours.items()}
    return sorted(name for name, file in files.items() if file and not Path(file).is_relative_to(tree))


def _has_us(path: Path) -> bool:
    return (path / "ansible_collections/gpuwright").exists() or (path / "gpuwright").exists()


# --- the command ------------------------------------------------------------------------------------------------------------------


class NoComparisonError(Exception):
    """A tree cannot be asked."""


@contextmanager
def tree_of(name: str) -> Iterator[Path]:
    """A directory as it is, or a revision as a working tree that goes afterwards."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="same-answers-") as place:
        tree = Path(place) / "tree"
        added = subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), name], capture_output=True, text=True, check=False
        )
        if added.returncode:
            raise NoComparisonError(f"{name} is neither a directory nor a revision: {added.stderr.strip()}")
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], capture_output=True, check=False)


def in_tree(tree: Path, *arguments: str) -> None:
    """Run this program in a process that belongs to a tree."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    ended = subprocess.run(command, cwd=tree, env=environment, check=False)
    if ended.returncode:
        raise NoComparisonError(f"{tree}: {' '.join(arguments[:1])} ended with {ended.returncode}")


def answered(tree: Path, questions: Path, place: Path) -> Any:
    """The answers of a tree."""
    in_tree(tree, "--answer", str(questions), str(place))
    return json.loads(place.read_text(encoding="utf-8"))


def compare(options: argparse.Namespace) -> int:
    """Make the questions, ask both trees, show where they differ."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="same-answers-")))
        old, new = (stack.enter_context(tree_of(name)) for name in (options.old, options.new))
        questions = Path(options.inputs).resolve() if options.inputs else place / "questions.json"
        if not questions.exists():
            in_tree(old, "--make", str(questions), str(options.machines), str(options.seed))
        with ThreadPoolExecutor() as both:
            told = list(
                both.map(lambda tree, name: answered(tree, questions, place / name), (old, new), ("old", "new"))
            )
        asked = json.loads(questions.read_text(encoding="utf-8"))
    found = list(differences(*told))
    for difference in found[: options.most]:
        print(difference, end="\n\n")
    kinds = [row["kind"] for row in asked["rows"].values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    raised = sum(1 for answer in told[0].values() if isinstance(answer, dict) and "raised" in answer)
    print(
        f"{len(kinds)} questions ({counts}) about {len(asked['facts'])} observations; {raised} are answered by an exception"
    )
    print(f"{len(found)} differ" if found else "the same")
    return 1 if found else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; or, in a process of a tree, make the questions or answer them."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--answer"]:
        belong_to(Path.cwd())
        told = answers(json.loads(Path(given[1]).read_text(encoding="utf-8")))
        if strangers(Path.cwd()):
            print(f"of another tree: {', '.join(strangers(Path.cwd()))}", file=sys.stderr)
            return 1
        Path(given[2]).write_text(json.dumps(told), encoding="utf-8")
        return 0
    if given[:1] == ["--make"]:
        maker, shapes = (importlib.import_module(name) for name in ("same_questions", "same_shape"))
        shape = shapes.Shape.of_tree(Path(__file__).resolve().parent.parent)
        belong_to(Path.cwd())
        makers = (wish_of, request_of, shape.filled)
        made = maker.make(entry, makers, places, machines=int(given[2]), seed=int(given[3]))
        Path(given[1]).write_text(json.dumps(made, sort_keys=True), encoding="utf-8")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a revision or a directory; its tests make the questions")
    parser.add_argument("new", help="a revision or a directory")
    parser.add_argument(
        "--machines", type=int, default=400, help="how many are drawn for the resolver (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=15, help="of the draw (default: %(default)s)")
    parser.add_argument("--inputs", help="where the questions are kept; taken as they are where the file is there")
    parser.add_argument("--most", type=int, default=20, help="how many differences are shown (default: %(default)s)")
    try:
        return compare(parser.parse_args(given))
    except NoComparisonError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
