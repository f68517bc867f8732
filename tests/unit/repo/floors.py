"""The modules of plugins/ and src/ and the arrows between them, as their imports draw them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PLUGINS = "ansible_collections.gpuwright.node.plugins"

Arrow = tuple[str, str]

#: From the ground up: each floor with the modules on it. Of several names that a module begins with the longest one counts.
FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "types of what leaves a node",
        ("module_utils.check", "module_utils.facts", "module_utils.index", "module_utils.seal"),
    ),
    (
        "base of a node",
        (
            *("module_utils.block", "module_utils.checks", "module_utils.dotted", "module_utils.host"),
            *("module_utils.openpgp", "module_utils.ownership", "module_utils.program", "module_utils.redact"),
            *("module_utils.run", "module_utils.versions"),
        ),
    ),
    (
        "measure",
        (
            *("module_utils.cuda_probe", "module_utils.fio_bench", "module_utils.fio_json", "module_utils.framework"),
            *("module_utils.kernel_log", "module_utils.mig_layout", "module_utils.module_load", "module_utils.smi"),
            *("module_utils.smi_brake", "module_utils.smi_judge", "module_utils.smi_messages"),
        ),
    ),
    ("observe", ("module_utils.observe",)),
    (
        "records of a node",
        (
            *("module_utils.continuation", "module_utils.history", "module_utils.remembering"),
            *("module_utils.sealing", "module_utils.seals"),
        ),
    ),
    (
        "packages",
        (
            *("module_utils.dnf_exactly", "module_utils.dnf_python", "module_utils.dnf_question"),
            *("module_utils.driver_file", "module_utils.fetch", "module_utils.keyring", "module_utils.private_apt"),
            *("module_utils.private_dnf", "module_utils.proxies", "module_utils.wheels"),
        ),
    ),
    ("the look at a node", ("module_utils.observe.machine",)),
    ("modules", ("modules",)),
    (
        "base of the controller",
        (
            *("doc_fragments", "plugin_utils.credentials", "plugin_utils.errors", "plugin_utils.gate"),
            *(
                "plugin_utils.index_answer",
                "plugin_utils.sections",
                "plugin_utils.installation",
                "plugin_utils.owner",
                "plugin_utils.plain",
                "plugin_utils.rescue",
            ),
            *("plugin_utils.rules", "plugin_utils.run_directory", "plugin_utils.script"),
            *("plugin_utils.shortfalls", "plugin_utils.specifiers"),
        ),
    ),
    (
        "rules",
        (
            *("plugin_utils.datacentre", "plugin_utils.driver_lock", "plugin_utils.exchange", "plugin_utils.gpus"),
            *("plugin_utils.hosts", "plugin_utils.secure_boot", "plugin_utils.signed_modules"),
        ),
    ),
    ("wish", ("plugin_utils.settings", "plugin_utils.situation", "plugin_utils.wish")),
    ("resolver", ("plugin_utils.catalogue", "plugin_utils.lock", "plugin_utils.resolver")),
    ("components", ("plugin_utils.components",)),
    (
        "health",
        (
            *("plugin_utils.drift", "plugin_utils.judge", "plugin_utils.judge_datacentre"),
            *("plugin_utils.judge_hosts", "plugin_utils.judge_kernel_log"),
        ),
    ),
    (
        "plan",
        (
            *("plugin_utils.availability", "plugin_utils.kernels", "plugin_utils.planner", "plugin_utils.removal"),
            *("plugin_utils.upgrading", "plugin_utils.way_back"),
        ),
    ),
    ("report", ("plugin_utils.afterwards", "plugin_utils.fleet", "plugin_utils.records", "plugin_utils.report")),
    ("actions", ("action", "filter", "plugin_utils.look", "plugin_utils.node_action")),
    (
        "base of the command line",
        ("gpuwright", "gpuwright.console", "gpuwright.errors", "gpuwright.exits", "gpuwright.paths"),
    ),
    (
        "command line",
        (
            *("gpuwright.continuation", "gpuwright.knowledge", "gpuwright.privilege", "gpuwright.progress"),
            *("gpuwright.reasons", "gpuwright.records", "gpuwright.request", "gpuwright.runner", "gpuwright.runs"),
            *("gpuwright.show", "gpuwright.show_status", "gpuwright.told", "gpuwright.hostrun"),
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
        (len(begin), number)
        for number, (_title, begins) in enumerate(FLOORS)
        for begin in begins
        if name == begin or (name.startswith(f"{begin}.") and begin != "gpuwright")
    ]
    return max(fits)[1] if fits else None


def upward(graph: Iterable[Arrow]) -> set[Arrow]:
    """The arrows that lead from a floor to a higher one."""
    return {(begin, end) for begin, end in graph if (floor(begin) or 0) < (floor(end) or 0)}
