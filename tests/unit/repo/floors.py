"""The modules of plugins/ and src/ and the arrows between them, as their imports draw them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PLUGINS = "ansible_collections.gpuwright.node.plugins"

Arrow = tuple[str, str]

#: From the ground up: each floor with the modules on it. Of several names that a module begins with the longest one counts. ``*`` is a
#: component: what its files are called says on which floor they are.
FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "types of what leaves a node",
        ("module_utils.check", "module_utils.facts", "module_utils.index", "module_utils.seal"),
    ),
    ("base of a node", ("module_utils.base",)),
    ("how nvidia-smi is run and read", ("module_utils.smi",)),
    ("what a framework is called and how it is proven", ("module_utils.frameworks",)),
    ("measure", ("module_utils.measure",)),
    ("programs that stay on a node", ("module_utils.programs",)),
    ("observe", ("module_utils.observe",)),
    ("records of a node", ("module_utils.records",)),
    ("packages", ("module_utils.packages",)),
    ("the look at a node", ("module_utils.observe.machine",)),
    ("a node that watches itself", ("module_utils.watch",)),
    ("modules", ("modules",)),
    ("gate and model", ("doc_fragments", "plugin_utils.gate", "plugin_utils.model", "plugin_utils.components.*.model")),
    ("rules", ("plugin_utils.rules",)),
    ("what a monitoring server gets", ("plugin_utils.monitoring",)),
    ("wish", ("plugin_utils.wish", "plugin_utils.components.*.wish", "plugin_utils.components.*.fleet")),
    ("resolver", ("plugin_utils.resolver", "plugin_utils.components.*.resolve")),
    ("components", ("plugin_utils.components",)),
    ("health", ("plugin_utils.health",)),
    ("plan", ("plugin_utils.plan",)),
    ("report", ("plugin_utils.report",)),
    ("actions", ("action", "filter", "plugin_utils.actions")),
    (
        "base of the command line",
        (
            "gpuwright",
            "gpuwright.console",
            "gpuwright.errors",
            "gpuwright.events",
            "gpuwright.exits",
            "gpuwright.given",
            "gpuwright.paths",
        ),
    ),
    ("sizing", ("gpuwright.sizing",)),
    (
        "command line",
        (
            *("gpuwright.resume", "gpuwright.knowledge", "gpuwright.privilege", "gpuwright.progress"),
            "gpuwright.system_python",
            *("gpuwright.reasons", "gpuwright.records", "gpuwright.request", "gpuwright.runner", "gpuwright.runs"),
            *(
                "gpuwright.show",
                "gpuwright.show_status",
                "gpuwright.show_size",
                "gpuwright.size_there",
                "gpuwright.proven",
                "gpuwright.sizing_page",
                "gpuwright.show_cost",
                "gpuwright.braille",
                "gpuwright.told",
                *("gpuwright.hostrun", "gpuwright.ends", "gpuwright.steps", "gpuwright.tied"),
            ),
            *("gpuwright.card_looks", "gpuwright.day_plot", "gpuwright.show_top"),
        ),
    ),
    (
        "commands",
        ("gpuwright.__main__", "gpuwright.cli", "gpuwright.commands", "gpuwright.completions", "gpuwright.parser"),
    ),
)


def modules() -> dict[str, Path]:
    """Every module of plugins/ and src/, by a name without what is the same for all."""
    found = {}
    for begin in ("plugins", "src"):
        for path in sorted((ROOT / begin).rglob("*.py")):
            parts = path.relative_to(ROOT / begin).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, package: str) -> Iterator[tuple[str, str | None]]:
    """What a module imports, those of functions and of type checks too: (module, name that is taken of it)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            begin = ".".join([*base, *filter(None, [node.module])])
            yield from ((begin, alias.name) for alias in node.names)


def arrows(paths: Mapping[str, Path] | None = None) -> set[Arrow]:
    """(from, to) for each module that imports another one of ours."""
    known = modules() if paths is None else paths
    found = set()
    for name, path in known.items():
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        ours = f"{_PLUGINS}." if "plugins" in path.relative_to(ROOT).parts[:1] else ""
        for module, taken in imported(path.read_text(encoding="utf-8"), f"{ours}{inside}".rstrip(".")):
            short = module.removeprefix(f"{_PLUGINS}.").removeprefix(_PLUGINS)
            whole = f"{short}.{taken}".lstrip(".")
            target = whole if whole in known else short
            if target in known and target != name and not (target == "gpuwright" and taken and whole in known):
                found.add((name, target))
    return found


def circles(graph: Iterable[Arrow]) -> list[tuple[str, ...]]:
    """The sets of modules that lead to each other, each sorted."""
    leads: dict[str, set[str]] = {}
    for begin, end in graph:
        leads.setdefault(begin, set()).add(end)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(leads.get(start, ()))
        while waiting:
            here = waiting.pop()
            if here not in seen:
                seen.add(here)
                waiting += leads.get(here, ())
        return seen

    reach = {name: reached(name) for name in leads}
    return sorted(
        {
            tuple(sorted(other for other in ends if name in reach.get(other, ())))
            for name, ends in reach.items()
            if name in ends
        }
    )


def floor(name: str) -> int | None:
    """The number of the floor that a module is on, the ground is 0; None where no floor names it."""
    fits = [
        (len(begin), number) for number, (_title, begins) in enumerate(FLOORS) for begin in begins if is_of(name, begin)
    ]
    return max(fits)[1] if fits else None


def is_of(name: str, begin: str) -> bool:
    """Whether a module is the one that a floor names, or within it; of the command line only those that are named."""
    inside = name.split(".")[: begin.count(".") + 1]
    matches = fnmatchcase(".".join(inside), begin)
    return matches and (begin != "gpuwright" or name == begin)


def upward(graph: Iterable[Arrow]) -> set[Arrow]:
    """The arrows that lead from a floor to a higher one."""
    return {(begin, end) for begin, end in graph if (floor(begin) or 0) < (floor(end) or 0)}
