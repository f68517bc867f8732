# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is asked for and lies beyond the tables: released before the first that they know, or after the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..rules import Rules
from ..wish.reading import is_outside
from ..wish.wish import Wish
from .log import Entry, conflict


def versions(wish: Wish, rules: Rules) -> Iterator[Entry]:
    """Yield why a toolkit, a library or a driver of a wish cannot be judged. What a framework lacks is told where its release is chosen."""
    asked: list[tuple[str, str, str | None, list[str]]] = [
        ("cuda", "CUDA", version, [row["cuda"] for row in rules["cuda"]["rows"]]) for version in wish.cuda_versions
    ]
    asked += [
        ("cudnn", "cuDNN", wish.cudnn_version, [row["version"] for row in rules["cudnn"]["versions"]]),
        ("nccl", "NCCL", wish.nccl_version, [row["version"] for row in rules["libraries"]["nccl"]]),
        ("tensorrt", "TensorRT", wish.tensorrt_version, [row["version"] for row in rules["libraries"]["tensorrt"]]),
        ("driver", "driver", wish.driver_branch, [row["branch"] for row in rules["driver_branches"]["rows"]]),
    ]
    for name, title, version, known in asked:
        if version and not any(numeric_version.belongs(each, version) for each in known) and is_outside(version, known):
            first, last = _ends(known)
            near = first if numeric_version.at_least(first, version) else last
            text = f"{title} {version} is {beyond(version, known, rules)}"
            yield conflict(f"{name}.unknown", text, f"compat/ of {rules['generated']}", f"use {name}={near}")


def beyond(version: str, known: Sequence[str], rules: Rules) -> str:
    """Return on which side of the tables a version lies, as the end of a sentence."""
    first, last = _ends(known)
    if numeric_version.at_least(first, version):
        return f"older than these tables, which begin at {first}"
    return f"newer than these tables ({rules['generated']}), whose newest is {last}"


def _ends(known: Sequence[str]) -> tuple[str, str]:
    ordered = sorted(known, key=numeric_version.key)
    return ordered[0], ordered[-1]
