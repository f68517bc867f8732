"""What it costs to bring up the node of the demo, in two states of the repository: tasks, the controller's processor time, wall time.

Each run begins on a new copy of the same prepared node, and the states take turns. Their files come from git, into worktrees that go
again; the simulated node, Python and Ansible are those of the clone that measures.

    python -m benchmarks.cold_up OLD NEW [--rounds N] [--scenario NAME] [--tasks] [--json] [-- OPTIONS OF gpuwright]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import startup, warm_fleet
from tests.sim import engine, node
from tests.sim.shell import SimulationError

ROOT = warm_fleet.ROOT
NODE = "cold"
CALLBACKS = ROOT / "benchmarks" / "callback"
FIGURES = ("done", "skipped", "tasks", "cpu_seconds", "wall_seconds")
DONE = ("ok", "changed")


@dataclass
class Run:
    """One `gpuwright up` on a new node."""

    tasks: list[dict[str, Any]]
    cpu_seconds: float
    wall_seconds: float

    @property
    def done(self) -> int:
        """How many tasks ran."""
        return sum(task["status"] in DONE for task in self.tasks)

    @property
    def skipped(self) -> int:
        """Of how many tasks the condition did not hold."""
        return sum(task["status"] == "skipped" for task in self.tasks)

    def figures(self) -> dict[str, float]:
        """What is compared, by name."""
        values = (self.done, self.skipped, self.done + self.skipped, self.cpu_seconds, self.wall_seconds)
        return dict(zip(FIGURES, values, strict=True))


@contextmanager
def worktree(state: str, folder: Path) -> Iterator[Path]:
    """The files of a state as git has them, compiled, so that the first of its runs does not pay for that."""
    git("worktree", "add", "--quiet", "--detach", str(folder), state)
    try:
        compiling = [sys.executable, "-m", "compileall", "-q", "src", "plugins"]
        subprocess.run(compiling, cwd=folder, check=True)
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    """What git says, which must succeed."""
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"cold_up.py: `git {' '.join(arguments)}` ended with {ended.returncode}\n{ended.stderr}")
    return ended.stdout.strip()


def commit(state: str) -> str:
    """The commit that a state of the repository is."""
    return git("rev-parse", "--verify", "--short", f"{state}^{{commit}}")


def environment(files: Path, folder: Path) -> dict[str, str]:
    """The environment of a run with these files: its sources come first, its records go to FOLDER, each task leaves a line there."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(files / "src"), str(files / "collections")]),
        "PATH": f"{warm_fleet.PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "task_times",
        "GPUWRIGHT_BENCHMARK_TASKS": str(folder / "tasks.jsonl"),
    }


def timed(command: Sequence[str], files: Path, environment: Mapping[str, str], words: Path) -> tuple[float, float]:
    """The processor time of a command with its children, and its wall time. It must end with 0."""
    with words.open("w") as stream:
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=files, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"cold_up.py: `{' '.join(command)}` ended with {process.returncode}, nothing was measured\n{words.read_text()[-3000:]}"
        )
    return used.ru_utime + used.ru_stime, wall


def up(files: Path, folder: Path, scenario: str, options: Sequence[str]) -> Run:
    """Bring up a new node with these files."""
    folder.mkdir()
    node.remove(NODE)
    node.create(NODE, scenario)
    inventory = folder / "inventory.yml"
    inventory.write_text(node.inventory([NODE]))
    command = [startup.gpuwright(), "up", "--yes", "-i", str(inventory), "--report", str(folder / "report"), *options]
    cpu, wall = timed(command, files, environment(files, folder), folder / "words")
    with (folder / "tasks.jsonl").open(encoding="utf-8") as lines:
        return Run([json.loads(line) for line in lines], cpu, wall)


def measure(files: Mapping[str, Path], folder: Path, options: argparse.Namespace) -> dict[str, list[Run]]:
    """The runs of each side. Every second round goes the other way, so that neither is always the first."""
    runs: dict[str, list[Run]] = {side: [] for side in files}
    order = list(files)
    try:
        for number in range(options.rounds):
            for side in order:
                runs[side].append(up(files[side], folder / f"{side}-{number}", options.scenario, options.options))
            order.reverse()
    finally:
        node.remove(NODE)
    return runs


def told(runs: Sequence[Run]) -> dict[str, float]:
    """Each figure of a side: of the counts the median, of the seconds the least, since what else the machine does only adds to them."""
    rows = [run.figures() for run in runs]
    kinds = {name: min if name.endswith("_seconds") else statistics.median for name in FIGURES}
    return {name: round(kind(row[name] for row in rows), 2) for name, kind in kinds.items()}


def compared(commits: Mapping[str, str], runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """The figures of both sides, and NEW as a multiple of OLD."""
    old, new = told(runs["old"]), told(runs["new"])
    ratios = {name: round(new[name] / old[name], 2) if old[name] else None for name in FIGURES}
    return {
        "old": {"commit": commits["old"], **old},
        "new": {"commit": commits["new"], **new},
        "ratio": ratios,
        "rounds": len(runs["old"]),
        "cores": os.cpu_count(),
    }


def print_compared(table: Mapping[str, Any]) -> None:
    """Both sides, one figure a line."""
    print(f"{'':<14}{table['old']['commit']:>12}{table['new']['commit']:>12}{'NEW / OLD':>12}")
    for name in FIGURES:
        ratio = table["ratio"][name]
        shown = f"{ratio:.2f} ×" if ratio is not None else "-"
        print(f"{name.replace('_', ' '):<14}{table['old'][name]:>12g}{table['new'][name]:>12g}{shown:>12}")


def print_tasks(title: str, tasks: Sequence[Mapping[str, Any]]) -> None:
    """Each task of a run in its order, and behind them the sums of each role."""
    print(f"\n{title}: {len(tasks)} tasks of its last run")
    for task in tasks:
        print(f"{short(task['role']) or '-':<18} {task['status']:<8} {task['seconds']:7.2f} s  {named(task)}")
    print(f"\n{title}: the roles")
    for role in dict.fromkeys(task["role"] for task in tasks):
        own = [task for task in tasks if task["role"] == role]
        done = sum(task["status"] in DONE for task in own)
        seconds = sum(task["seconds"] for task in own)
        skipped = sum(task["status"] == "skipped" for task in own)
        print(f"{short(role) or '-':<18} {done:4} done {skipped:4} skipped {seconds:7.2f} s")


def short(name: str) -> str:
    """The last part of a name with dots."""
    return name.rpartition(".")[2]


def named(task: Mapping[str, Any]) -> str:
    """A task's name, and the kind of task that it is."""
    return f"{task['task']} ({short(task['action'])})"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", help="a state of the repository: a commit, a branch")
    parser.add_argument("new", help="the one that is held against it")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is run (default: %(default)s)")
    parser.add_argument("--scenario", default="two-h100", help="of the simulated node (default: %(default)s)")
    parser.add_argument("--tasks", action="store_true", help="list the tasks of each state, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("options", nargs="*", help="behind --: for gpuwright up")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    commits = {"old": commit(options.old), "new": commit(options.new)}
    engine.ensure()
    with (
        tempfile.TemporaryDirectory(prefix="cold-up-") as name,
        worktree(commits["old"], Path(name, "files-old")) as old,
        worktree(commits["new"], Path(name, "files-new")) as new,
    ):
        runs = measure({"old": old, "new": new}, Path(name), options)
    table = compared(commits, runs)
    tasks = {side: runs[side][-1].tasks for side in commits}
    if options.json:
        print(json.dumps({**table, "tasks": tasks} if options.tasks else table, indent=2))
        return 0
    print_compared(table)
    if options.tasks:
        for side, state in commits.items():
            print_tasks(f"{side} {state}", tasks[side])
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SimulationError as error:
        raise SystemExit(f"cold_up.py: {error}") from error
