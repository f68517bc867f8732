#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write plugins/module_utils/observe/own_units.py, by which a node knows the units of components; with --check only compare.

Components are on the controller alone. The same input gives the same bytes. Exit 1 when --check finds a difference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "plugins" / "module_utils" / "observe" / "own_units.py"
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS  # noqa: E402 - the path comes first

BEGIN = '''\
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The units that components write.

Written by tools/build_units.py from the components: edit `units` there, then `make rules`.
"""

from __future__ import annotations

UNITS = (
'''


def build() -> str:
    """Return what the file has to be."""
    units = [unit for component in COMPONENTS.values() for unit in component.units]
    return BEGIN + "".join(f'    "{unit}",\n' for unit in units) + ")\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the file is out of date")
    options = parser.parse_args(arguments)
    if not options.check:
        TARGET.write_text(build(), encoding="utf-8")
    elif not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != build():
        sys.stderr.write(f"{TARGET} does not match the components: run 'make rules' and commit the result\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
