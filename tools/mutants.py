# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Change one thing in the code at a time and see whether a test fails: the share of the changes that tests notice.

    make mutants                                     # 300 of the resolver, the plan, the components and the judges
    python -m tools.mutants --number 50 --seed 7 plugins/plugin_utils/resolver
    make mutants ARGS="--number 60 src/gpuwright/sizing"

The changes (mutants) are drawn from all that cosmic-ray can make of the named files. First the unit tests run once, with the lines
that each test runs; then each mutant is judged by the tests that run its line, in a copy of the tree. A line that is run when the
module is loaded is judged by the tests that run any line of the file; one that no test runs counts as survived. Exit 0 whatever
survives: the answer is a figure and a list to read. Runs in the environment of the session `mutants`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from zlib import crc32

import coverage
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from rich.progress import track

ROOT = Path(__file__).resolve().parents[1]
WHERE = (
    "plugins/plugin_utils/resolver",
    "plugins/plugin_utils/plan",
    "plugins/plugin_utils/components",
    "plugins/plugin_utils/health",
)
#: The tests that judge what lies below a directory.
TESTS = {
    "plugins": (
        "tests/unit/resolve",
        "tests/unit/plan",
        "tests/unit/frameworks",
        "tests/unit/prove",
        "tests/unit/roles",
    ),
    "src/gpuwright/sizing": ("tests/unit/sizing", "tests/unit/cli/test_size.py", "tests/unit/cli/test_cost.py"),
}
#: A test that holds a time, which tracing lengthens.
TIMED = "tests/unit/prove/test_smi_hostile.py::test_a_hostile_answer_is_one_clear_check_within_a_second"
#: Tests that judge a mutant first, spread over the files; all others follow where these notice nothing.
FIRST = 60
#: Seconds for the tests of one mutant: one that hangs is noticed.
LIMIT = 600
#: Operators whose mutants are the same program (the bar of an annotation, which is not run), and those that ask for a name to replace.
_IDLE = ("core/ReplaceBinaryOperator_BitOr", "core/Variable")


@dataclass(frozen=True)
class Mutant:
    """One change: the file below the root, its first line, and the whole source after it."""

    path: str
    line: int
    operator: str
    source: str


def positions(paths: Sequence[str]) -> dict[tuple[str, int, int], list[tuple[str, int]]]:
    """Where something can be changed: (file, line, column) with the operators there and the number of the place for each."""
    found: dict[tuple[str, int, int], list[tuple[str, int]]] = defaultdict(list)
    for path in files(paths):
        tree = get_ast((ROOT / path).read_text(encoding="utf-8"))
        for name in operator_names():
            if name.startswith(_IDLE):
                continue
            operator, number = get_operator(name)(), 0
            for node in ast_nodes(tree):
                for start, _end in operator.mutation_positions(node):
                    found[path, start[0], start[1]].append((name, number))
                    number += 1
    return found


def files(paths: Sequence[str]) -> list[str]:
    """The Python files that are named or lie below a named directory, below the root."""
    named = [ROOT / path for path in paths]
    below = [each for path in named for each in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [str(path.relative_to(ROOT)) for path in below]


def drawn(paths: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """Mutants at places that are drawn at random, one for each place; what is no Python any more is none."""
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    there = positions(paths)
    mutants: list[Mutant] = []
    for path, line, column in chance.sample(sorted(there), len(there)):
        if len(mutants) == number:
            break
        name, occurrence = chance.choice(there[path, line, column])
        source = mutate_code((ROOT / path).read_text(encoding="utf-8"), get_operator(name)(), occurrence)
        if _is_python(source):
            mutants.append(Mutant(path, line, name, source))
    return mutants


def _is_python(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def judges(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The directories of :data:`TESTS` that have one of these files, each with its tests."""
    return {below: tests for below, tests in TESTS.items() if any(Path(each).is_relative_to(below) for each in paths)}


def covered(data: Path, rooms: Mapping[str, Sequence[str]]) -> dict[str, dict[int, list[str]]]:
    """By file and line the tests that run it, from one run of those of the rooms. Raises CalledProcessError where a test fails."""
    sources = "\n    ".join(str(ROOT / below) for below in rooms)
    settings = data.with_suffix(".ini")
    settings.write_text(
        f"[run]\ndata_file = {data}\ndynamic_context = test_function\nsource =\n    {sources}\n", encoding="utf-8"
    )
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--rcfile={settings}",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    subprocess.run(
        [
            *command,
            "-m",
            "not slow and not sim",
            "--deselect",
            TIMED,
            *(test for tests in rooms.values() for test in tests),
        ],
        cwd=ROOT,
        check=True,
        env=_environment(ROOT),
    )
    read = coverage.CoverageData(str(data))
    read.read()
    found: dict[str, dict[int, list[str]]] = {}
    for path in read.measured_files():
        real = Path(path).resolve()
        if real.is_relative_to(ROOT):
            lines = {
                line: [_file_of(each) for each in contexts if each]
                for line, contexts in read.contexts_by_lineno(path).items()
            }
            found[str(real.relative_to(ROOT))] = lines
    return found


def _file_of(context: str) -> str:
    """The name of a test as coverage has it (module.function) as pytest takes it: file::function."""
    module, _dot, name = context.rpartition(".")
    parts = module.split(".")
    if not (ROOT / Path(*parts)).with_suffix(".py").is_file():
        parts, name = parts[:-1], f"{parts[-1]}::{name}"
    return f"{Path(*parts)}.py::{name}"


def noticed(mutant: Mutant, tests: Sequence[str], tree: Path) -> bool:
    """Whether one of the tests fails where the mutant takes its file's place in a copy of the tree."""
    place = tree / mutant.path
    before = place.read_text(encoding="utf-8")
    place.write_text(mutant.source, encoding="utf-8")
    try:
        spread = sorted(tests, key=lambda name: crc32(name.encode()))
        return any(_fails(part, tree) for part in (spread[:FIRST], spread[FIRST:]) if part)
    finally:
        place.write_text(before, encoding="utf-8")


def _fails(tests: Sequence[str], tree: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        ended = subprocess.run(
            command, cwd=tree, env=_environment(tree), capture_output=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


def _environment(tree: Path) -> dict[str, str]:
    ours = os.pathsep.join(str(tree / part) for part in ("collections", "src", "."))
    return os.environ | {"PYTHONPATH": ours, "PYTHONDONTWRITEBYTECODE": "1"}


def judged(
    mutants: Sequence[Mutant], lines: dict[str, dict[int, list[str]]], tree: Path
) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant with whether tests notice it."""
    for mutant in track(mutants, description="mutants"):
        tests = concerned(mutant, lines.get(mutant.path, {}))
        yield mutant, bool(tests) and noticed(mutant, tests, tree)


def concerned(mutant: Mutant, lines: Mapping[int, Sequence[str]]) -> list[str]:
    """The tests that run the mutant's line; those of the whole file where it is run when the module is loaded."""
    if mutant.line in lines and not lines[mutant.line]:
        return sorted({test for tests in lines.values() for test in tests})
    return sorted(set(lines.get(mutant.line, ())))


def told(mutant: Mutant) -> str:
    """What a mutant changes, as a diff without its head."""
    before = (ROOT / mutant.path).read_text(encoding="utf-8")
    rows = list(unified_diff(before.splitlines(), mutant.source.splitlines(), lineterm="", n=0))[3:]
    return f"{mutant.path}:{mutant.line} {mutant.operator}\n" + "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, judge, and tell the share that is noticed and each mutant that is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "paths", nargs="*", default=list(WHERE), metavar="PATH", help="files and directories that are changed"
    )
    parser.add_argument("--number", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the draw: the same mutants for the same code")
    parser.add_argument(
        "--lines", type=Path, help="keep here which tests run which line, and read it where it is there"
    )
    options = parser.parse_args(arguments)
    mutants = drawn(options.paths or WHERE, options.number, options.seed)
    with tempfile.TemporaryDirectory() as kept:
        tree = Path(kept, "tree")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree)], cwd=ROOT, check=True)
        try:
            if options.lines and options.lines.is_file():
                lines = {
                    path: {int(n): tests for n, tests in rows.items()}
                    for path, rows in json.loads(options.lines.read_text()).items()
                }
            else:
                lines = covered(Path(kept, "coverage"), judges(files(options.paths)))
            if options.lines:
                options.lines.write_text(json.dumps(lines), encoding="utf-8")
            results = list(judged(mutants, lines, tree))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    survived = [mutant for mutant, seen in results if not seen]
    for mutant in survived:
        print(told(mutant), end="\n\n")
    print(f"{len(results) - len(survived)} of {len(results)} mutants were noticed (seed {options.seed})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
