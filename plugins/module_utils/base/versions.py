# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions as numbers, not as text; and the version of this collection."""

from __future__ import annotations

import re

COLLECTION = "0.1.0"
"""The version that seals name. galaxy.yml says the same."""

EVERY_PACKAGE = "/./"
"""Where versions by package say what is kept, as apt has it in a preference by version: whatever has a version that begins so."""

# Python makes no number of more digits than some thousands.
_PIECE = re.compile(r"\d{1,1000}|[a-zA-Z]+")


def key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of a version or kernel release: runs of digits compare as numbers, before them letters.

    "6.8.0-47-generic" > "6.8.0-9-generic"; "2.1rc1" < "2.1" holds because an end sorts after letters.
    """
    pieces = [(2, int(piece), "") if piece.isdigit() else (0, 0, piece) for piece in _PIECE.findall(version)]
    return (*tuple(pieces), (1, 0, ""))


def upstream(version: str) -> str:
    """What the makers call a packaged version: without epoch, packaging revision and repackaging mark.

    "5:26.1.5-1~debian.12~bookworm" and "26.1.5+dfsg1-9" are both 26.1.5.
    """
    version = version.split(":", 1)[-1]
    if "-" in version:
        version = version.rsplit("-", 1)[0]
    return re.split(r"[+~](?:dfsg|ds|really|deb|ubuntu|nmu|git)", version, maxsplit=1)[0]
