#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write plugins/plugin_utils/wish/roles.json: for each role a digest of what it does, and its options.

A seal holds a digest of a component's inputs. The role itself is one of them, so that a node is looked at again when its role has
changed. The digest covers the role's own files, its component in Python, which decides what they do, and the files of the roles that it
includes to do the work; not its README, nor the refusals and the plan of a role used alone, which change nothing on a node.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "plugins" / "plugin_utils" / "wish" / "roles.json"
COMPONENTS = Path("plugins/plugin_utils/components")
#: What of a component chooses the stack, which the seal holds itself.
CHOICE = ("model", "wish", "resolve", "__init__")
PARTS = ("defaults", "vars", "tasks", "templates", "files", "handlers")
# What a role used alone does first. It belongs to no component.
FIRST_STEP = "standalone"
INCLUDED = re.compile(r"^\s*name: gpuwright\.node\.(\w+)\s*$", re.MULTILINE)


def build(roles: Path) -> dict[str, Any]:
    """The document, by role name."""
    names = sorted(path.name for path in roles.iterdir() if (path / "meta" / "argument_specs.yml").is_file())
    return {name: {"digest": digest(roles, name), "options": options(roles / name)} for name in names}


def digest(roles: Path, name: str) -> str:
    """SHA-256 over the path and the content of every file that decides what the role does."""
    result = hashlib.sha256()
    for path in files(roles, name):
        content = path.read_bytes()
        result.update(f"{path.relative_to(roles.parent).as_posix()}\0{len(content)}\0".encode() + content)
    return result.hexdigest()


def files(roles: Path, name: str) -> list[Path]:
    """Files of the role and of those that it includes, each once, in a fixed order."""
    found: list[Path] = []
    waiting, seen = [name], {FIRST_STEP} - {name}
    while waiting:
        role = waiting.pop()
        if role in seen:
            continue
        seen.add(role)
        own = [path for part in PARTS for path in (roles / role / part).rglob("*") if path.is_file()]
        found += own + component(roles.parent / COMPONENTS, role)
        for path in own:
            if path.suffix == ".yml":
                waiting += INCLUDED.findall(path.read_text(encoding="utf-8"))
    return sorted(found)


def component(components: Path, name: str) -> list[Path]:
    """The Python of a role's component that decides what the role does; none where the role is no component."""
    folder = components / name
    return [path for path in folder.rglob("*.py") if path.relative_to(folder).with_suffix("").parts[0] not in CHOICE]


def options(role: Path) -> dict[str, dict[str, Any]]:
    """The role's options; of each whether it is a secret, its type, and its choices where it has some."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    rows = specs["argument_specs"]["main"].get("options") or {}
    return {name: option(row) for name, row in rows.items()}


def option(row: dict[str, Any]) -> dict[str, Any]:
    choices = {"choices": row["choices"]} if "choices" in row else {}
    return {"no_log": bool(row.get("no_log")), "type": row.get("type", "str"), **choices}


def text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main(argv: list[str] | None = None) -> int:
    """0, or 1 with --check when the file is not what it should be."""
    parser = argparse.ArgumentParser(description="Write plugins/plugin_utils/wish/roles.json from roles/.")
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the file is up to date")
    arguments = parser.parse_args(argv)
    wanted = text(build(ROOT / "roles"))
    if arguments.check:
        if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run tools/build_roles.py", file=sys.stderr)
        return 1
    TARGET.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
