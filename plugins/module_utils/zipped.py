# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Imports from the zip in which Ansible sends a module, at half their price.

Python's zipimport compiles each source twice: once to answer where it lies, once to run it. A look at a node is mostly that, so the
module that looks asks for its parts by a finder that answers the first question without compiling (measured: 12 of 200 ms).
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
import zipimport
from importlib.machinery import PathFinder
from typing import Any, Sequence


class Finder:
    """A finder for sys.meta_path: what lies below `package`, where that was imported from a zip."""

    def __init__(self, package: str) -> None:
        self.prefix = package + "."

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: Any = None) -> Any:
        """The specification of a module, or None where the usual finders are to look."""
        if not name.startswith(self.prefix):
            return None
        for place in path or ():
            importer = pkgutil.get_importer(place)
            if not isinstance(importer, zipimport.zipimporter):
                continue
            try:
                is_package = importer.is_package(name)
            except zipimport.ZipImportError:
                continue
            spec = importlib.util.spec_from_loader(name, importer, origin=place, is_package=is_package)
            if spec is not None and is_package:
                spec.submodule_search_locations = [place + "/" + name.rpartition(".")[2]]
            return spec
        return None


def install() -> None:
    """Use the finder for this collection's own module utilities from now on: before the one that looks through sys.path."""
    finder: Any = Finder(__name__.rpartition(".")[0])
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
