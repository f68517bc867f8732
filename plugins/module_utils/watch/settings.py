# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node that watches itself goes by: the file that the role `watch` writes, and the webhook's address beside it."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Dict, List, Optional, TypedDict, cast
from urllib.parse import urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import Row

SCHEMA = 1
_LONGEST = 4096


class Floor(TypedDict):
    """The lowest build of a branch of the driver without a published vulnerability."""

    branch: str
    floor: str
    bulletin: str


class Branch(TypedDict):
    """A branch of the driver; ``eol``: the day of its end of life, None where it was not published."""

    branch: str
    eol: Optional[str]


class Cards(TypedDict):
    """The cards that have to be there; ``count`` None: as many as the driver's seal names."""

    count: Optional[int]
    names: Optional[List[str]]
    ignore: List[str]
    pcie_lanes: Dict[str, int]


class _SwitchRows(TypedDict, total=False):
    """What a file of an older gpuwright has not. ``sxid``: the rows of compat/sxid.yaml."""

    sxid: List[Row]


class Settings(_SwitchRows):
    """The file. ``interval``: seconds between two looks; ``proof_max_age``: seconds for which a proof speaks; ``smtp``: HOST or HOST:PORT,
    None for the local sendmail; ``end_is_near``: days before the end of a branch from which on it is told; ``xid``: the rows of
    compat/xid.yaml.
    """

    schema: int
    interval: int
    textfile_directory: str
    proof_max_age: int
    mail: List[str]
    smtp: Optional[str]
    cards: Cards
    floors: List[Floor]
    branches: List[Branch]
    end_is_near: int
    xid: List[Row]


class SettingsError(Exception):
    """The settings cannot be used; the text says what to do, and never has the webhook's address."""


def read(host: Host) -> Settings:
    """The settings. Raises SettingsError."""
    try:
        found = seals.read_object(host, paths.WATCH_SETTINGS)
    except seals.SealError as error:
        raise SettingsError(f"{error}; run gpuwright up, which writes it again") from None
    if found is None or found.get("schema") != SCHEMA:
        state = "it is not there" if found is None else f"schema {found.get('schema')}"
        raise SettingsError(
            f"expected {paths.WATCH_SETTINGS} with schema {SCHEMA}, found: {state}; run gpuwright up, which writes it again"
        )
    return cast("Settings", found)


def webhook(host: Host) -> Optional[str]:
    """The address that is told; None where none was wished. Raises SettingsError for one that is no https address, or that others may
    read.
    """
    found, text = host.stat(paths.WATCH_WEBHOOK), host.read(paths.WATCH_WEBHOOK, limit=_LONGEST)
    if found is None or text is None:
        # The role always writes it, an empty one where no webhook was wished.
        raise SettingsError(
            f"{paths.WATCH_WEBHOOK} cannot be read; look as root, and where it is gone run gpuwright up --full"
        )
    if not text.strip():
        return None
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise SettingsError(
            f"expected {paths.WATCH_WEBHOOK} with mode 0600, found {stat.S_IMODE(found.st_mode):04o}; "
            "have a new address made, since others may have read this one, and run gpuwright up --full"
        )
    problem = address_problem(text.strip())
    if problem:
        raise SettingsError(f"{paths.WATCH_WEBHOOK}: {problem}")
    return text.strip()


def address_problem(text: str) -> Optional[str]:
    """Why a text is no address of a webhook, without the text; None where it is one."""
    try:
        parts = urlsplit(text)
        right = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
        parts = urlsplit("")
    if not right or not text.isascii() or not text.isprintable() or " " in text:
        return "expected an address that begins with https://, found another text (it is a secret and not shown)"
    if parts.username is not None:
        return "expected an https address without user and password, found one with them (it is a secret and not shown)"
    return None
