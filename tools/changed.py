# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change touches: which tests to run while one works on it, and which parts of the soak it can affect.

    python -m tools.changed [--parts] [COMMIT]    # since COMMIT, else since this branch left main, on main since its last commit

`make test-changed` and the turn of the soak ask; `make test` asks nobody. Unit tests, properties and what measures are touched by what they
import. Where a module differs in texts for people alone, they are those that import it themselves and those that quote what is gone. Tests
on nodes run the command line: for one of them the table below says what belongs to which part of the tree, and a part of the soak is
touched by all that no component has for itself, and by the components that its tests name.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools import reach

ROOT = Path(__file__).resolve().parent.parent

#: A pattern for paths, and the tests on nodes and of packages that a change there concerns. Every row that matches counts.
TOUCHES: list[tuple[str, tuple[str, ...]]] = [
    (r"^tests/(packaging|integration)/.*test_\w+\.py$", (r"\g<0>",)),
    (r"^tests/(packaging|integration)/conftest\.py$", (r"tests/\1",)),
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


#: What a file that is no module is read by, where no test names it: a pattern, and the module that reads it.
_READ_BY: list[tuple[str, str]] = [
    (r"^compat/(?!sizing/|monitoring)", "plugins/plugin_utils/rules/__init__.py"),
    (r"^compat/sizing/", "src/gpuwright/sizing/__init__.py"),
]

#: Components that an ordinary `up` of a test brings: every part with nodes has them.
_EVERYWHERE = {
    "repair",
    "nvidia_driver",
    "nouveau_blacklist",
    "cuda",
    "container_toolkit",
    "frameworks",
    "reboot",
}

#: What the parts without nodes have, as patterns of paths; beside it all that their tests import.
_PARTS: dict[str, tuple[str, str]] = {
    "lines": (r"^(plugins|roles|playbooks|meta|molecule|src|tests/unit|tests/packaging|tests/sim|galaxy|pyproject|tests/\w+\.sh)", ""),
    "figures": (r"^(compat/packages|tools/world|tests/sim/packages|tests/(measured|assembled)/)", "tests/(measured|assembled)/"),
    "properties": (r"^(compat/(?!sizing)|tests/property/)", "tests/property/"),
}  # fmt: skip

#: What all tests on nodes go through, beside the product.
_NODES = re.compile(
    r"^(site\.yml|playbooks/|compat/(?!sizing|schema)|tests/callback/|tests/sim/(?!metal|onmetal|demo)|noxfile\.py)"
)
#: What mypy reads.
_TYPED = re.compile(r"^((plugins|src|tests|tools|benchmarks)/(?!sim/stubs/).*|noxfile)\.py$")
#: Commands of which no part with nodes runs any.
_OFF_NODES = re.compile(r"^src/gpuwright/(sizing|show_cost|show_size|completions)")
_TEXT_FILE = re.compile(r"^(plugins|src|tools)/.*\.py$")


@dataclass
class Targets:
    """What to run: unit tests, slow tests without a node, tests on nodes, scenarios of molecule."""

    units: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)


@cache
def _imports() -> Mapping[str, set[str]]:
    return reach.imports(ROOT)


@cache
def _source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _tests(tree: str) -> list[str]:
    return [path for path in sorted(_imports()) if path.startswith(tree) and Path(path).name.startswith("test_")]


def targets(changed: Iterable[str], base: str | None = None) -> Targets:
    """What the changed paths touch, each once, in the order of the table; with a BASE what differs there in texts alone touches less."""
    changed = list(changed)
    texts = {path: words for path in changed if base and (words := _texts(path, base)) is not None}
    code = [path for path in changed if path not in texts]
    found: dict[str, None] = {}
    scenarios: dict[str, None] = {}
    for path in code:
        for pattern, tests in TOUCHES:
            match = re.search(pattern, path)
            found.update(dict.fromkeys(match.expand(test) for test in tests) if match else {})
        scenario = re.match(r"^molecule/(\w+)/", path)
        if scenario:
            scenarios["default" if scenario[1] == "shared" else scenario[1]] = None
    there = [path for path in found if (ROOT / path).exists()]
    importing = _importing(code) | _quoting(texts)
    return Targets(
        units=[path for path in _tests("tests/unit/") if path in importing],
        slow=[path for path in _tests("tests/property/") if path in importing]
        + [path for path in there if path.startswith("tests/packaging")],
        nodes=[path for path in there if path.startswith("tests/integration")],
        scenarios=list(scenarios),
    )


def _texts(path: str, base: str) -> set[reach.Pair] | None:
    """The words that are gone from a module, where it differs in nothing else."""
    if not _TEXT_FILE.match(path) or not (ROOT / path).exists():
        return None
    return reach.texts_that_changed(_git("show", f"{base}:{path}"), _source(path))


def _importing(paths: Iterable[str]) -> set[str]:
    """All that imports one of the modules, or what reads one of the other files, over any number of modules."""
    begin: set[str] = set()
    tests: set[str] = set()
    for path in paths:
        name = Path(path).name
        if path.startswith("tests/") and name.startswith("test_"):
            # What a test module has for others is taken from it without a way between.
            tests |= {path, *(test for test in _imports() if path in _imports()[test])}
        else:
            begin.update({path} if path in _imports() else _readers(path))
    return tests | reach.reaching(begin, _imports())


def _readers(path: str) -> set[str]:
    """The modules that read a file which is none: the package that it lies in, what the table names, tests that name it or its folder."""
    folder = str(Path(path).parent)
    found = {module for pattern, module in _READ_BY if re.search(pattern, path)}
    beside = f"{folder}/__init__.py"
    if path.startswith(("plugins/", "src/")) and beside in _imports():
        found.add(beside)
    names = {Path(path).name, path, *([folder] if folder != "." else []), path.partition("/")[0]}
    named = re.compile("[\"'/](" + "|".join(map(re.escape, sorted(names))) + ")[\"'/]")
    return found | {test for test in _imports() if test.startswith("tests/") and named.search(_source(test))}


def _quoting(texts: Mapping[str, set[reach.Pair]]) -> set[str]:
    """The tests that import one of the modules themselves, and those that have a pair of words that is gone."""
    differs = set().union(*texts.values()) if texts else set()
    tests = [path for path in _imports() if path.startswith("tests/unit/")]
    return (
        {path for path in tests if _imports()[path] & set(texts) or not differs.isdisjoint(reach.pairs(_source(path)))}
        if texts
        else set()
    )


# --- parts of the soak -------------------------------------------------------------------------------------------------


def parts(changed: Iterable[str]) -> list[str]:
    """The parts of the soak that the changed paths can affect, in their order."""
    paths = list(changed)
    affected: set[str] = set()
    for path in paths:
        affected |= _parts_of(path)
    return [name for name in names_of_parts() if name in affected]


def _parts_of(path: str) -> set[str]:
    found = {name for name, (own, _tests_of) in _PARTS.items() if re.search(own, path)}
    found |= {
        name
        for name, (_own, tests_of) in _PARTS.items()
        if tests_of and any(re.match(tests_of, test) for test in reach.reaching([path], _imports()))
    }
    tests = node_tests()
    if path.startswith(("plugins/", "roles/", "src/")) and not _OFF_NODES.match(path):
        owners = owners_of(path)
        found |= {
            part for part, words in tests.items() if owners is None or any(_named(each, words) for each in owners)
        }
    elif _NODES.search(path):
        found |= set(tests)
    if path.startswith("tests/"):
        importers = reach.reaching([path], _imports())
        found |= {part for part, files in _files_of_parts().items() if importers & files}
    return found


def _named(component: str, words: str) -> bool:
    return component in _EVERYWHERE or bool(re.search(rf"\b{component.replace('_', '[_-]')}\b", words))


def names_of_parts() -> list[str]:
    """The parts of the soak in their order, as noxfile.py has them. (It is read: nox is not in every environment.)"""
    for node in ast.parse(_source("noxfile.py")).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="SOAK"), value=ast.Dict(keys=keys)):
                return [ast.literal_eval(key) for key in keys if key is not None]
    return []


@cache
def _files_of_parts() -> Mapping[str, set[str]]:
    """By part the files of integration tests that are marked with it."""
    found: dict[str, set[str]] = {}
    for path in _tests("tests/integration/"):
        for part in re.findall(r'\bsoak\(part="(\w+)"\)', _source(path)):
            found.setdefault(part, set()).add(path)
    return found


@cache
def node_tests() -> Mapping[str, str]:
    """By part with nodes the text of its tests, and of what these import beside the product."""
    texts = {}
    for part, files in _files_of_parts().items():
        used, waiting = set(), list(files)
        while waiting:
            path = waiting.pop()
            if path not in used and path.startswith("tests/integration/"):
                used.add(path)
                waiting += _imports()[path]
        texts[part] = "\n".join(_source(path) for path in sorted(used))
    return texts


def components() -> list[str]:
    """The names of the components: each has a folder or a module, and a role."""
    rooms = {path.stem for path in (ROOT / "plugins/plugin_utils/components").iterdir()}
    return sorted(rooms & {path.name for path in (ROOT / "roles").iterdir()})


def owners_of(path: str) -> set[str] | None:
    """The components that alone have this path of the product; None where it is common to all."""
    return _owners().get(path, _at_home(path))


def _at_home(path: str) -> set[str] | None:
    parts_of_path = {*Path(path).parts, Path(path).stem}
    return {name for name in components() if name in parts_of_path} or None


@cache
def _owners() -> Mapping[str, set[str] | None]:
    """By module of the product: a room of a component is its own, and so is what is reached from rooms alone, over modules and roles."""
    product = [path for path in _imports() if path.startswith(("plugins/", "src/"))]
    importers: dict[str, set[str]] = {path: set() for path in product}
    for importer in product:
        for path in _imports()[importer]:
            importers[path].add(importer)
    roles = _roles_by_call()
    found = {path: _at_home(path) for path in product}
    own = {path for path in product if found[path]}
    open_ = [path for path in product if path not in own]
    #: From "nobody's" up: what nobody is known to use yet takes what its users have, until nothing changes.
    users: dict[str, set[str]] = {path: set() for path in open_}
    changes = True
    while changes:
        changes = False
        for path in open_:
            taken: set[str] = set()
            for user in importers[path]:
                taken |= found[user] or set() if user in own else users[user]
            called = (
                roles.get(Path(path).stem, set()) if path.startswith(("plugins/action", "plugins/modules")) else set()
            )
            taken |= called
            if not importers[path] and not called:
                taken.add("")
            changes |= taken != users[path]
            users[path] = taken
    found.update({path: None if "" in names else names for path, names in users.items()})
    return found


@cache
def _roles_by_call() -> Mapping[str, set[str]]:
    """By module of Ansible the components whose roles call it; "" for a role or playbook of no component."""
    found: dict[str, set[str]] = {}
    for path in [*(ROOT / "roles").rglob("*.yml"), *(ROOT / "playbooks").rglob("*.yml")]:
        role = path.relative_to(ROOT).parts[1]
        for name in re.findall(r"\bgpuwright\.node\.(\w+)", path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(role if role in components() else "")
    return found


# --- what changed ------------------------------------------------------------------------------------------------------


def base_of(since: str | None) -> str:
    """The commit that is compared with: the named one, else where this branch left main; on main, with nothing new, its last commit."""
    base = since or _git("merge-base", "HEAD", "origin/main").strip() or "HEAD~1"
    if not since and base == _git("rev-parse", "HEAD").strip() and not _git("status", "--porcelain"):
        base = "HEAD~1"
    return base


def changed(base: str) -> list[str]:
    """The paths that differ from a commit, and new ones."""
    listed = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return [path for path in listed.splitlines() if not path.startswith("collections/")]


def _git(*arguments: str) -> str:
    """What git prints; nothing where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _typed(path: str) -> str:
    """Where mypy finds a module: a plugin by the link that its name comes from."""
    return f"collections/ansible_collections/gpuwright/node/{path}" if path.startswith("plugins/") else path


def main(argv: list[str]) -> int:
    """Print what is touched, one a line with its kind, or the parts of the soak alone; 2 where nothing changed."""
    only_parts = "--parts" in argv
    (since, *_more) = [*(word for word in argv if word != "--parts"), None]
    if since and not _git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"):
        print(f"there is no commit {since!r}: name one that `git log` shows", file=sys.stderr)
        return 2
    base = base_of(since)
    paths = changed(base)
    if only_parts:
        print("\n".join(parts(paths)))
        return 0
    if not paths:
        print("nothing changed: name a commit, as in `make test-changed SINCE=HEAD~3`", file=sys.stderr)
        return 2
    found = targets(paths, base)
    told = {
        "file": [path for path in paths if (ROOT / path).is_file()],
        "typed": [
            _typed(path)
            for path in paths
            if _TYPED.match(path) and (ROOT / path).is_file() and _texts(path, base) is None
        ],
        "unit": found.units,
        "slow": found.slow,
        "node": found.nodes,
        "scenario": found.scenarios,
        "part": parts(paths),
    }
    for kind, names in told.items():
        for name in names:
            print(kind, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
