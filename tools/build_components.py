#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write what follows from the folders of the components and their order; with --check only compare.

``ORDER`` in plugins/plugin_utils/components/__init__.py is the table. Written are the modules of ``composed`` there, one a floor, and the
tasks of playbooks/site.yml between their marks. The same input gives the same bytes. Exit 1 when --check finds a difference.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = Path("plugins/plugin_utils/components")
PLAYBOOK = Path("playbooks/site.yml")
_BEGIN, _END = (
    "        # Begin of what tools/build_components.py writes.\n",
    "        # End of what tools/build_components.py writes.\n",
)

HEAD = '''\
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""{title}

Written by tools/build_components.py from the folders of the components: `make rules`.
"""

from __future__ import annotations

'''
TASKS = """\
        - name: Hold the node to {does}
          gpuwright.node.node_seal:
            state: held
            owner: "{{{{ gpuwright_plan.owner }}}}"
            user: "{{{{ gpuwright_user | default(false) }}}}"
          changed_when: false
          tags: [hold]
          when: "'{name}' in gpuwright_plan.components"

        - name: {Does}
          ansible.builtin.include_role:
            name: gpuwright.node.{name}
            tasks_from: work
            rolespec_validate: false
            apply: {{tags: [{name}]}}
          when: "'{name}' in gpuwright_plan.components"

"""


@dataclass(frozen=True)
class Said:
    """A name that a module of a component defines: the component, the module from its folder on, the name."""

    component: str
    module: str
    name: str

    @property
    def alias(self) -> str:
        """The name that the module has where it is imported."""
        return self.component if self.module.count(".") == 0 else f"{self.component}_{self.module.rpartition('.')[2]}"

    @property
    def line(self) -> str:
        """The line that imports the module."""
        inner, _, leaf = self.module.rpartition(".")
        return f"from ..{self.component}{'.' if inner else ''}{inner} import {leaf} as {self.alias}\n"

    def __str__(self) -> str:
        return f"{self.alias}.{self.name}"


def order(root: Path = ROOT) -> dict[str, str]:
    """Return the components in their order, each with what a run does then."""
    tree = ast.parse((root / ROOMS / "__init__.py").read_text(encoding="utf-8"))
    (table,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and _target(node) == "ORDER")
    found: dict[str, str] = ast.literal_eval(table)
    return found


def files(root: Path = ROOT) -> dict[Path, str]:
    """Return what each generated file has to be."""
    models, wishes = list(_said("model", ["Parts"], root)), list(_said("wish", ["Fields"], root))
    words, parts = list(_said("wish", ["WORDS"], root)), list(_said("resolve", ["PARTS", "PART"], root))
    hosts, components = list(_said("resolve", ["HOST_PART"], root)), list(_said("apply", ["COMPONENT"], root))
    composed = root / ROOMS / "composed"
    return {
        composed / "model.py": HEAD.format(title="What a stack has of all components.")
        + _imports(models)
        + f"\n\nclass Parts(\n{_rows(models)}    total=False,\n):\n"
        + '    """The keys of a stack that components have."""\n',
        composed / "wish.py": HEAD.format(title="What may be wished of all components.")
        + _imports(wishes)
        + f"\n\nclass Fields(\n{_rows(wishes)}):\n"
        + '    """The fields of a wish that components have."""\n'
        + f"\n\nWORDS = (\n{_rows(words)})\n",
        composed / "resolve.py": HEAD.format(title="The parts of a stack.")
        + _imports([*parts, *hosts])
        + f"\n#: Those of a lock, in its order.\nPARTS = (\n{_rows(parts)})\n"
        + "#: Those that each host wishes for itself, in the order in which they are chosen.\n"
        + f"HOST_PARTS = (\n{_rows(hosts)})\n",
        composed / "apply.py": HEAD.format(title="All components, in the order in which they are applied.")
        + "from ..base import Component\n"
        + _imports(components)
        + "\nCOMPONENTS: dict[str, Component] = {\n    each.name: each\n    for each in (\n"
        + f"{_rows(components, 8)}    )\n}}\n",
        root / PLAYBOOK: _playbook(root),
    }


def _imports(said: list[Said]) -> str:
    return "".join(sorted(each.line for each in said))


def _rows(said: list[Said], indent: int = 4) -> str:
    """Return a line for each; a tuple gives all that is in it."""
    return "".join(f"{' ' * indent}{'*' if each.name == 'PARTS' else ''}{each},\n" for each in said)


def _said(floor: str, names: list[str], root: Path) -> Iterator[Said]:
    """Yield the modules of a floor that define one of the names, by component; of several names the first that a component has counts."""
    for component in order(root):
        folder = root / ROOMS / component
        modules = sorted([*folder.glob(f"{floor}.py"), *folder.glob(f"{floor}/*.py")])
        defined = {path: set(_defined(path)) for path in modules}
        for name in names:
            having = [path for path, found in defined.items() if name in found]
            yield from (Said(component, _module(path, folder), name) for path in having)
            if having:
                break


def _module(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _defined(path: Path) -> Iterator[str]:
    """Yield the names that a module defines for others."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield _target(node)


def _target(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _playbook(root: Path) -> str:
    """Return the playbook with a task for each component."""
    text = (root / PLAYBOOK).read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    tasks = "".join(
        TASKS.format(name=name, does=does, Does=does[0].upper() + does[1:]) for name, does in order(root).items()
    )
    return f"{before}{_BEGIN}{tasks}{_END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when a file is out of date")
    options = parser.parse_args(arguments)
    stale = {
        path: text for path, text in files().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if options.check and stale:
        sys.stderr.write(
            f"{', '.join(map(str, stale))} do not match the components: run 'make rules' and commit the result\n"
        )
        return 1
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
