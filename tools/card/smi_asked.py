# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the real nvidia-smi what the log and the exporter ask, and provoke errors whose sentences are known here.

`python -m tools.card.smi_asked` prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_messages
from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_metrics
from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv, run

#: Seconds for one question, as the log has them.
SECONDS = run.SECONDS
_MOST_TOLD = 400
_QUERY = "--query-gpu="
#: A question that has to be refused, and whether the reader knows the sentence.
REFUSED: tuple[tuple[tuple[str, ...], Callable[[str], bool]], ...] = (
    ((_QUERY + "no.such.field", "--format=csv"), lambda text: "is not a valid field to query" in text),
    (("-i", "99", "-q", "-x"), lambda text: smi_messages.from_text(text) is not None),
)


class NotThere(run.SmiError):
    """There is no nvidia-smi."""


def ask(arguments: Sequence[str]) -> tuple[int, str]:
    """Call nvidia-smi by its name. Raises NotThere where there is none, Hung where it does not answer."""
    try:
        ran = subprocess.run(
            ["nvidia-smi", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise NotThere("nvidia-smi is not there") from error
    except subprocess.TimeoutExpired as error:
        raise run.Hung(f"nvidia-smi did not answer within {SECONDS} s") from error
    return ran.returncode, ran.stdout + ran.stderr


def fields(asked: Sequence[str]) -> list[str]:
    """The fields of a question for CSV."""
    return [field for word in asked if word.startswith(_QUERY) for field in word.removeprefix(_QUERY).split(",")]


def answers() -> dict[str, Any]:
    """All of it. Raises SmiError where nvidia-smi does not answer."""
    calls: list[Sequence[str]] = []

    def smi(arguments: Sequence[str]) -> tuple[int, str]:
        calls.append(arguments)
        return ask(arguments)

    try:
        rows, refusals = csv.samples(smi), calls[:-1]
    except (run.Hung, NotThere):
        raise
    except run.SmiError:
        rows, refusals = [], list(calls)
    # Where all of them together are refused, each alone tells which one it is.
    asked = dict.fromkeys(field for call in refusals for field in fields(call))
    alone = {field: ask([_QUERY + field, "--format=csv,noheader,nounits"]) for field in asked}
    cards, problem = gpu_metrics.look(smi, {})
    refused = []
    for arguments, is_known in REFUSED:
        status, text = ask(arguments)
        refused.append({"asked": list(arguments), "status": status, "text": text[:_MOST_TOLD], "known": is_known(text)})
    return {
        "rows": rows,
        "asked": [list(call) for call in calls],
        "fields": {
            field: {"status": status, "text": text.strip()[:_MOST_TOLD]} for field, (status, text) in alone.items()
        },
        "exporter": {"cards": len(cards), "problem": problem, "text": gpu_metrics.rendered(cards)},
        "refused": refused,
    }


def main() -> None:
    try:
        print(json.dumps(answers()))
    except run.SmiError as error:
        print(json.dumps({"missing": str(error)}))


if __name__ == "__main__":
    main()
