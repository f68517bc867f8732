#!/usr/bin/env python3
"""Inventory of a molecule scenario: the simulated node that bears its name.

Its variables are those of `node inventory`, of molecule/<scenario>/wish.yml, and what `side_effect` said on the way.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.sim import node, settings  # noqa: E402  the clone is put on the path above: molecule starts this file, not Python's -m


def main() -> None:
    """Print what Ansible asks an inventory script for; nothing before `create`."""
    scenario = os.environ.get("MOLECULE_SCENARIO_NAME", "default")
    name = f"molecule-{scenario}"
    if name not in node.names():
        print(json.dumps({"all": {"hosts": []}}))
        return
    inventory = yaml.safe_load(node.inventory([name]))["all"]
    variables = dict(inventory["vars"])
    for path in (ROOT / "molecule" / scenario / "wish.yml", settings.STATE / f"{name}.yml"):
        if path.exists():
            variables.update(yaml.safe_load(path.read_text()) or {})
    # A scenario on the distribution's real packages takes nothing from the simulated repositories.
    variables = {key: value for key, value in variables.items() if value is not None}
    print(
        json.dumps(
            {"all": {"hosts": list(inventory["hosts"]), "vars": variables}, "_meta": {"hostvars": inventory["hosts"]}}
        )
    )


if __name__ == "__main__":
    main()
