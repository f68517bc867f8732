# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page for people, README.md, and summary.json for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .running import WORST_FIRST, Done

_HEADS = {
    "failed": "What failed",
    "differs": "What differed from the stand-ins",
    "incomplete": "What could not be judged",
    "skip": "What does not apply here",
    "note": "Figures and notes",
}


def exit_code(done: Sequence[Done]) -> int:
    """0 where every step passed or does not apply here, and one passed; else 1."""
    states = {step.state for step in done}
    return 0 if "pass" in states and states <= {"pass", "skip"} else 1


def write(out: Path, done: Sequence[Done], folders: dict[str, Path], seconds: float) -> None:
    """Write both, from the steps that are done so far."""
    counts = {state: sum(step.state == state for step in done) for state in ("pass", *WORST_FIRST)}
    summary = {
        "exit": exit_code(done),
        "seconds": round(seconds, 1),
        "counts": counts,
        "steps": [{**step.told(), "folder": folders[step.name].name} for step in done],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (out / "README.md").write_text(page(done, folders, seconds, counts))


def page(done: Sequence[Done], folders: dict[str, Path], seconds: float, counts: dict[str, int]) -> str:
    """The page: what was found, the worst first, then each step with its raw output."""
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = ["# A real card beside the stand-ins", "", f"{len(done)} steps in {seconds:.0f} seconds: {told}.", ""]
    for kind, head in _HEADS.items():
        found = [(step.name, finding.text) for step in done for finding in step.findings if finding.kind == kind]
        if found:
            lines += [f"## {head}", "", *(f"- **{name}**: {_line(text)}" for name, text in found), ""]
    lines += ["## Steps", "", "| step | state | exit status | seconds | raw output |", "|---|---|---|---|---|"]
    lines += [
        f"| {step.name} | {step.state} | {_status(step)} | {step.seconds} | {_raw(folders[step.name])} |"
        for step in done
    ]
    return "\n".join(lines) + "\n"


def _status(step: Done) -> str:
    return "" if step.rc is None else str(step.rc)


def _raw(folder: Path) -> str:
    return f"[{folder.name}]({folder.name}/)" if folder.is_dir() else ""


def _line(text: str) -> str:
    return " ".join(text.split())
