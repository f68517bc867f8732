# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of two wishes says more exactly what is meant: a name without a version takes no version away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..model.wish import FrameworkWish


def is_within(version: str | None, other: str) -> bool:
    """Say whether a version is one of those that another one means: 12.8.1 of 12.8."""
    return version is not None and numeric_version.belongs(version, other)


def versions(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Return their versions, each as exactly as ours have it."""
    found = [each for version in theirs for each in [v for v in ours if is_within(v, version)] or [version]]
    return tuple(dict.fromkeys(found))


def frameworks(ours: Sequence[FrameworkWish], theirs: Sequence[FrameworkWish]) -> tuple[FrameworkWish, ...]:
    """Return their frameworks, with what ours say of those that theirs leave open."""
    said = {each.key: each for each in ours}
    return tuple(_more_exactly(said.get(each.key), each) for each in theirs)


def _more_exactly(ours: FrameworkWish | None, theirs: FrameworkWish) -> FrameworkWish:
    if ours is None or theirs.specifier not in ("", ours.specifier):
        return theirs
    if theirs.variant in (None, ours.variant):
        return ours
    return theirs if ours.variant else replace(theirs, specifier=ours.specifier)
