#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the alerting rules, and the chapter of docs/monitoring.md about them, from the table of alerts; with --check only compare.

The same input gives the same bytes. Exit 1 when --check finds a difference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "plugins" / "plugin_utils" / "monitoring" / "alerts.yml"
PAGE = ROOT / "docs" / "monitoring.md"
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring import alert_rules  # noqa: E402 - the path comes first
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts, recorded  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules  # noqa: E402

BEGIN = "<!-- alerts: written by `make rules` -->\n"
END = "<!-- end of alerts -->\n"


def build(page: str) -> dict[Path, str]:
    """Return what each file has to be, given the page as it is."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"{PAGE} has lost its marks {BEGIN.strip()} and {END.strip()}: put both back, each on a line of its own"
        )
    chapter = alert_rules.chapter(alerts(), load_rules()["xid"]["rows"])
    return {RULES: alert_rules.rules_file(alerts(), recorded()), PAGE: f"{before}{begin}\n{chapter}\n{end}{after}"}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when a file is out of date")
    options = parser.parse_args(arguments)
    wrong = 0
    for path, text in build(PAGE.read_text(encoding="utf-8")).items():
        if options.check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            sys.stderr.write(f"{path} does not match the table of alerts: run 'make rules' and commit the result\n")
            wrong = 1
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
