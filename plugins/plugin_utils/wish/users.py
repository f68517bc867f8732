# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a user wishes who works without root: environments in the own home. Everything else is the machine's, and root's to bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..components.frameworks.wish import FRAMEWORKS_PATH
from ..model import local_path
from ..model.errors import BadInput
from .reading import Variables, Words, as_list, says
from .wish import WORDS, Wish, words_of

#: The components that take no root.
OF_USERS = frozenset(words.component for words in WORDS if words.of_users)
#: What is wished where nothing is wished by name.
DEFAULT_WANTS = [words.want for words in WORDS if words.of_users and words.by_default and words.want]
#: Variables of a host that speak of the machine, and what they are about.
_OF_HOST = {
    "gpuwright_provision_for": "cards that are yet to come are for whoever brings them",
}


class NeedsRoot(NamedTuple):
    """A part of a wish that needs root: as it was written, and what a user has instead of it."""

    text: str
    instead: str


def needing_root(variables: Variables) -> list[NeedsRoot]:
    """Return what of a wish, which is one that can be read, needs root."""
    asked = variables.get("gpuwright_wish")
    every = {**variables, **(asked if isinstance(asked, Mapping) else {})}
    wants = [str(want).strip() for want in as_list(every.get("gpuwright_want") or [], "gpuwright_want")]
    found = [NeedsRoot(want, why) for want in wants if (why := _why(want, words_of(want))) is not None]
    for words in WORDS:
        found += [
            NeedsRoot(name, why)
            for name in words.variables
            if says(words, name, every.get(name)) and (why := _why(name, words)) is not None
        ]
    return found + [NeedsRoot(name, why) for name, why in _OF_HOST.items() if every.get(name)]


def _why(name: str, words: Words) -> str | None:
    """Return what a user has instead of what a word or variable of a component asks for; None where it takes no root."""
    return words.of_root.get(name) if words.of_users else words.instead


def refuse_sources(names: Sequence[str], *, user: bool) -> None:
    """Raise BadInput where sources are allowed in a run that is no user's own: code of them would run as root."""
    if names and not user:
        text = f"{', '.join(names)} may be built from its source in a user's own run alone: code of its makers runs with it"
        raise BadInput(text, ["gpuwright up --user, without root; in an inventory gpuwright_user: true"])


def placed(wish: Wish, environments: str) -> Wish:
    """Return a wish whose environments are the user's own: where they were wished, else in the usual place of the user."""
    place = environments if wish.frameworks_path == FRAMEWORKS_PATH else str(local_path.read(wish.frameworks_path))
    return replace(wish, frameworks_path=place)
