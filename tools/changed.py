# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change touches: which tests to run while one works on it. `make test-changed` asks; `make test` asks nobody.

Unit tests are quick, so all that are quick run; of what takes long (simulated nodes, packaging, molecule) the table below says
what belongs to which part of the tree.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A pattern for paths, and the tests that a change there concerns. Every row that matches counts.
TOUCHES: list[tuple[str, tuple[str, ...]]] = [
    (r"^tests/(unit|property|packaging|integration)/.*test_\w+\.py$", (r"\g<0>",)),
    (r"^tests/(unit/\w+|property|packaging|integration)/conftest\.py$", (r"tests/\1",)),
    (r"^(compat/|plugins/plugin_utils/(resolver/|rules|wish|components/\w+/(resolve|wish)))", ("tests/property",)),
    (r"^(pyproject\.toml|galaxy\.yml|meta/|src/gpuwright/paths)", ("tests/packaging",)),
    (r"^(roles|playbooks)/", ("tests/integration/test_warm.py", "tests/integration/test_roles_alone.py")),
    (r"^plugins/(action|modules)/|plugin_utils/(plan|actions)/|seal", ("tests/integration/test_plan.py", "tests/integration/test_warm.py")),
    (r"^tests/sim/(?!metal|onmetal)", ("tests/integration/test_up.py",)),
    (r"metal", ("tests/integration/test_metal.py",)),
    (r"\bmig", ("tests/integration/test_mig.py",)),
    (r"fabric", ("tests/integration/test_fabric.py",)),
    (r"runfile", ("tests/integration/test_runfile.py",)),
    (r"dnf|rpm", ("tests/integration/test_rocky.py",)),
    (r"repair|cut", ("tests/integration/test_cut.py",)),
    (r"rollback|history|plan/removal|upgrading|roles/remove/", ("tests/integration/test_life.py",)),
    (r"plugin_utils/resolver/lock|src/gpuwright/(knowledge|commands/resolve)", ("tests/integration/test_lock.py",)),
    (r"version_hold|driver_set|drift", ("tests/integration/test_lock_of_driver.py",)),
    (r"kernel_hook", ("tests/integration/test_kernel_hook.py",)),
    (r"reboot|resume", ("tests/integration/test_reboot.py", "tests/integration/test_resume.py")),
    (r"hosts|foreign", ("tests/integration/test_hosts.py", "tests/integration/test_not_ours.py")),
    (r"secure_boot|signing_key|signed", ("tests/integration/test_secure_boot.py",)),
    (r"^plugins/|^roles/", ("tests/integration/test_mend.py",)),
]  # fmt: skip


@dataclass
class Targets:
    """What to run beside the quick unit tests: slow tests without a node, tests on nodes, scenarios of molecule."""

    slow: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)


def targets(changed: Iterable[str]) -> Targets:
    """What the changed paths touch, each once, in the order of the table."""
    found: dict[str, None] = {}
    scenarios: dict[str, None] = {}
    for path in changed:
        for pattern, tests in TOUCHES:
            match = re.search(pattern, path)
            found.update(dict.fromkeys(match.expand(test) for test in tests) if match else {})
        scenario = re.match(r"^molecule/(\w+)/", path)
        if scenario:
            scenarios["default" if scenario[1] == "shared" else scenario[1]] = None
    there = [path for path in found if (ROOT / path).exists()]
    return Targets(
        slow=[path for path in there if path.startswith(("tests/property", "tests/packaging"))],
        nodes=[path for path in there if path.startswith("tests/integration")],
        scenarios=list(scenarios),
    )


def changed(since: str | None) -> list[str]:
    """The paths that differ from a commit, and new ones. Without one: from where this branch left main, on main from its last commit."""
    base = since or _git("merge-base", "HEAD", "origin/main").strip() or "HEAD~1"
    if not since and base == _git("rev-parse", "HEAD").strip() and not _git("status", "--porcelain"):
        base = "HEAD~1"
    listed = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return [path for path in listed.splitlines() if not path.startswith("collections/")]


def _git(*arguments: str) -> str:
    """What git prints; nothing where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def main(argv: list[str]) -> int:
    """Print what is touched, one a line with its kind; 2 where nothing changed."""
    if argv and not _git("rev-parse", "--verify", "--quiet", f"{argv[0]}^{{commit}}"):
        print(f"there is no commit {argv[0]!r}: name one that `git log` shows", file=sys.stderr)
        return 2
    paths = changed(argv[0] if argv else None)
    if not paths:
        print("nothing changed: name a commit, as in `make test-changed SINCE=HEAD~3`", file=sys.stderr)
        return 2
    found = targets(paths)
    for kind, names in (("slow", found.slow), ("node", found.nodes), ("scenario", found.scenarios)):
        for name in names:
            print(kind, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
