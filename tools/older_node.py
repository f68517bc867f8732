# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Take over what an older state of the repository left: a node it sealed, a node it was cut off on, and its lock.

    python -m tools.older_node COMMIT

On the simulated node of the demo. The older state's files come from git; the node, Python and Ansible are those of this clone. Of the
sealed node `up` may write gpuwright's own records and nothing else: each other path of the node that differs is told. The one that was
cut off must end proven, and with the older state's lock both states must plan the same. Exit 1 where one of it is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import cold_up, startup
from tests.integration import snapshot
from tests.sim import engine, node

NODE = "older"
SCENARIO = "two-h100"
WISH = ("-e", "frameworks_selected=['pytorch']")
LOCK = "/run/gpuwright/lock.json"
#: Where a run writes what is no state of the machine: gpuwright's records, Ansible's own, logs, and apt's copies of the indexes.
RECORDS = (
    "/var/lib/gpuwright/",
    "/root/.ansible",
    "/var/log/",
    "/tmp",  # noqa: S108 - a path of the node
    "/home/",
    "/var/cache/apt/",
    "/var/lib/apt/lists/",
)
#: A moment in the middle of the driver's installation.
CUT = "dpkg-query -W -f '${db:Status-Abbrev}' nvidia-kernel-open-dkms 2>/dev/null | grep -q '^i[HUF]'"


class Side:
    """One state of the repository, and its runs on the node."""

    def __init__(self, files: Path, folder: Path) -> None:
        self.files, self.folder, self._number = files, folder, 0

    def words(self, verb: str, *arguments: str) -> list[str]:
        """A command of this state."""
        self._number += 1
        report = self.folder / f"{verb}-{self._number}"
        return [
            startup.gpuwright(),
            verb,
            "-i",
            str(self.folder.parent / "inventory.yml"),
            "--report",
            str(report),
            "--json",
            *arguments,
        ]

    def environment(self) -> dict[str, str]:
        """With this state's sources first."""
        return cold_up.environment(self.files, self.folder)

    def run(self, verb: str, *arguments: str) -> dict[str, Any]:
        """The only host's answer to a verb."""
        command = self.words(verb, *arguments)
        ended = subprocess.run(
            command, cwd=self.files, env=self.environment(), capture_output=True, text=True, check=False
        )
        if ended.returncode not in (0, 4):
            raise SystemExit(
                f"older_node.py: `{' '.join(command)}` ended with {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
            )
        (entry,) = json.loads(ended.stdout)["hosts"].values()
        return dict(entry)


def locked(old: Side, new: Side) -> list[str]:
    """The older state's lock on the node that the older state brought up: both states plan the same of it, the seals aside."""
    lock = new.folder / "gpuwright.lock"
    command = [
        startup.gpuwright(),
        "resolve",
        "--gpu",
        "H100",
        "--os",
        "debian-13",
        "--want",
        "pytorch",
        "--lock",
        str(lock),
    ]
    subprocess.run(command, cwd=old.files, env=old.environment(), check=True, capture_output=True)
    plans = [side.run("plan", "--lock", str(lock), *WISH) for side in (old, new)]
    stacks, packages = [plan["stack"] for plan in plans], [_packages(plan) for plan in plans]
    say(
        f"lock: with the older state's {len(lock.read_text().splitlines())} lines both plan the packages {packages[1] or 'that are there'}"
    )
    return [
        f"plan --lock: {name} differ: {pair}"
        for name, pair in (("stacks", stacks), ("packages", packages))
        if pair[0] != pair[1]
    ]


def _packages(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each["name"], each["version"]) for change in plan["changes"] for each in change["packages"]]


def sealed(new: Side) -> list[str]:
    """The node that the older state brought up: what this one touches beside the records."""
    before = snapshot.tree(NODE)
    planned = new.run("plan", *WISH)
    entry = new.run("up", "--yes", *WISH)
    after = snapshot.tree(NODE)
    say(f"sealed: plan names {[change['component'] for change in planned['changes']]}, up ended {entry['verdict']}")
    again = new.run("up", "--yes", *WISH)["changes"]
    return [
        *(f"sealed: {path}: {was} became {now}" for path, (was, now) in touched(before, after).items()),
        *(f"sealed: the second up still has {change['component']}" for change in again),
        *([] if entry["verdict"] == "pass" else [f"sealed: up ended {entry['verdict']}"]),
    ]


def cut_off(old: Side, new: Side) -> list[str]:
    """A node on which the older state died in the middle of the driver."""
    fresh(new.folder.parent)
    process = subprocess.Popen(
        old.words("up", "--yes", *WISH),
        cwd=old.files,
        env=old.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while node.shell(NODE, f"if {CUT}; then echo now; fi").strip() != "now":
        if process.poll() is not None:
            return ["the older state's run ended before it could be cut off"]
        time.sleep(0.1)
    snapshot.cut_off(NODE, process)
    # A lock that says of no process who it is belongs to somebody until a person says otherwise, as the refusal has it.
    node.shell(NODE, f"grep -q renewed {LOCK} || rm -f {LOCK}")
    entry = new.run("up", "--yes", *WISH)
    say(f"cut off: up did {[change['component'] for change in entry['changes']]}, ended {entry['verdict']}")
    left = node.shell(NODE, "dpkg --audit").strip()
    return [f"up ended {entry['verdict']}"] * (entry["verdict"] != "pass") + [f"dpkg --audit: {left}"] * bool(left)


def fresh(folder: Path) -> None:
    """A new node, and its inventory."""
    node.remove(NODE)
    node.create(NODE, SCENARIO)
    (folder / "inventory.yml").write_text(node.inventory([NODE]))


def touched(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """What differs and is no record."""
    found = snapshot.differences(before, after)
    return {path: pair for path, pair in found.items() if not f"{path}/".startswith(RECORDS)}


def say(text: str) -> None:
    """Progress."""
    print(f"older_node.py: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older state: a commit, a branch")
    options = parser.parse_args()
    engine.ensure()
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="older-node-") as name,
        cold_up.worktree(options.commit, Path(name, "older")) as older,
    ):
        for side in ("old", "new"):
            Path(name, side).mkdir()
        old, new = Side(older, Path(name, "old")), Side(cold_up.ROOT, Path(name, "new"))
        try:
            fresh(new.folder.parent)
            old.run("up", "--yes", *WISH)
            wrong = [*locked(old, new), *sealed(new), *cut_off(old, new)]
        finally:
            if not os.environ.get("GPUWRIGHT_SIM_KEEP"):
                node.remove(NODE)
    for line in wrong:
        say(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
