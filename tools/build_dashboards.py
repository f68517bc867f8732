#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the dashboards of Grafana, from the table of dashboards; with --check only compare.

The same input gives the same bytes. Exit 1 when --check finds a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "plugins" / "plugin_utils" / "monitoring" / "dashboards"
sys.path.insert(0, str(ROOT))

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402 - the path comes first

from tools import dashboards  # noqa: E402


def build() -> dict[str, str]:
    """Return the text of each file, by its name."""
    return {
        f"{name}.json": json.dumps(dashboard, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
        for name, dashboard in dashboards.all_dashboards().items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when a file is out of date")
    options = parser.parse_args(arguments)
    texts = build()
    if options.check:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
        if there == texts:
            return 0
        sys.stderr.write(f"{FOLDER} does not match tools/dashboards.py: run 'make rules' and commit the result\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
