# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The errors that end a run with a sentence for a person."""

from __future__ import annotations

from collections.abc import Sequence


class BadInput(ValueError):
    """Something was asked for that does not exist (exit code 2).

    message says what was expected and what was found, suggestions name what exists instead.
    """

    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.suggestions = list(suggestions)


class StepRefused(Exception):
    """A run must not go on: what was expected, what was found and what to do, as one text for a person."""
