# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How long a proof speaks for a node, and how old one is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

#: Seconds that a proof stays fresh without a boot or a change (variable gpuwright_proof_max_age).
MAX_AGE = 7 * 24 * 3600
#: How far a proof may be ahead of the clock of its node, which is set right now and then. One beyond it has no age that is known.
AHEAD = timedelta(minutes=5)


def age(then: str, now: str) -> timedelta | None:
    """How much time lies between two times in ISO 8601 (one without a zone is UTC), negative where ``now`` is the earlier one.

    None where one of them cannot be read: the age is not known.
    """
    begin, end = moment(then), moment(now)
    return end - begin if begin and end else None


def moment(text: str) -> datetime | None:
    """A time in ISO 8601 with its zone, which is UTC where it names none; None where it cannot be read."""
    try:
        # Before Python 3.11 no Z is known there.
        read = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)
