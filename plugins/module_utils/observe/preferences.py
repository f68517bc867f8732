# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Preferences by which apt installs nothing: pins of negative priority, read as apt reads them (apt_preferences(5))."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import HidingRule

_FILE = "/etc/apt/preferences"
_PARTS = "/etc/apt/preferences.d/"
_FACT = "packages.hides"
# What apt ignores in a directory of settings: other characters, and other endings than none and .pref.
_READ = re.compile(r"[A-Za-z0-9_-]+(?:\.pref)?\Z")
_EVERYWHERE = re.compile(r"(?:release|version|origin) +(?:[a-z]=)?\*\Z")
_LONGEST_ENTRY = 200
OURS = "gpuwright-"


class Pin(NamedTuple):
    """A stanza, as it is written. `file`: where it stands."""

    file: str
    package: str
    pin: str
    priority: int

    @property
    def stanza(self) -> str:
        """The stanza, as apt reads it."""
        return f"Package: {self.package}\nPin: {self.pin}\nPin-Priority: {self.priority}\n"

    @property
    def words(self) -> str:
        """The stanza in one line."""
        return ", ".join(self.stanza.splitlines())


def parse(text: str, path: str) -> Iterator[Pin]:
    """The whole stanzas of a file, in their order. apt reads no further than one that it does not understand, and says so."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        lines = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        # A line that begins with a blank goes on with the one before.
        fields = {
            name.strip().lower(): " ".join(value.split())
            for name, colon, value in (line.partition(":") for line in re.sub(r"\n[ \t]", " ", lines).splitlines())
        }
        priority = fields.get("pin-priority", "")
        if fields.get("package") and fields.get("pin") and re.match(r"-?\d{1,6}\Z", priority):
            yield Pin(path, fields["package"], fields["pin"], int(priority))


def hides(host: Host) -> list[HidingRule]:
    """The pins of negative priority: what apt does not install."""
    return [
        {
            "file": pin.file,
            "entry": pin.words[:_LONGEST_ENTRY],
            "packages": pin.package.split(),
            "except": [],
            "source": None if _EVERYWHERE.match(pin.pin) else pin.pin[:_LONGEST_ENTRY],
        }
        for pin in of(host)
        if pin.priority < 0
    ]


def of(host: Host) -> list[Pin]:
    """The machine's own pins, in apt's order; those that gpuwright wrote are none of them."""
    names = [name for name in sorted(host.names(_PARTS, _FACT)) if _READ.match(name) and not name.startswith(OURS)]
    paths = [_FILE, *(_PARTS + name for name in names)]
    return [pin for path in paths for pin in parse(host.read(path, _FACT) or "", path)]
