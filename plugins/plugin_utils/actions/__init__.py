# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the actions on the controller share.

Ansible's loader of collections compiles the source of each module in every process. Where it is in use, our modules are read from their
bytecode, as Python reads any other module (``docs/adr/0015-bytecode.md``). Each action imports this package first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import machinery

#: The packages whose modules are read so. The plugins themselves stay Ansible's to load.
_PACKAGES = tuple(f"{__name__.partition('.plugin_utils.')[0]}.{name}." for name in ("plugin_utils", "module_utils"))
_FINDERS: dict[str, machinery.FileFinder] = {}


class BytecodeFinder:
    """Finds our modules as Python's own finder does, which Ansible's would keep it from."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: object = None) -> machinery.ModuleSpec | None:
        """Where a module of ours is; None for all others, and for a directory that is no package."""
        if not path or not name.startswith(_PACKAGES):
            return None
        for folder in path:
            if folder not in _FINDERS:
                _FINDERS[folder] = machinery.FileFinder(folder, (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES))
            found = _FINDERS[folder].find_spec(name)
            if found and found.loader:
                return found
        return None


# Before Ansible's, and not before what stands there already.
_PLACES = [place for place, finder in enumerate(sys.meta_path) if type(finder).__name__ == "_AnsibleCollectionFinder"]
if _PLACES:
    sys.meta_path.insert(_PLACES[0], BytecodeFinder)
