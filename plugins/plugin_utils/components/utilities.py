# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Module utilities of ours as one script: a program for a node that has all that it imports, and needs nothing of its surroundings."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

_PLUGINS = Path(__file__).resolve().parents[2]
UTILITIES = f"{__name__.rpartition('.plugin_utils.')[0]}.module_utils"
_OURS = re.compile(rf"^[ \t]*from {re.escape(UTILITIES)}([.\w]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
#: What only mypy imports: the types of the facts are no part of what a node runs.
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ ]+[^\n]*\n|\n)+", re.MULTILINE)

#: What a script imports them by, from the text in place of the mark.
_IMPORTER = """\
import base64
import json
import zlib
from importlib import import_module
from importlib.machinery import ModuleSpec

SOURCES = json.loads(zlib.decompress(base64.b64decode("{sources}")).decode())


class Finder:
    def find_spec(self, name, _path=None, _target=None):
        if name in SOURCES:
            return ModuleSpec(name, self, origin="gpuwright", is_package=SOURCES[name][0])

    def create_module(self, _spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(SOURCES[name][1], name, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, Finder())
"""


def importer(first: str) -> str:
    """The lines of a script after which it can import the module utility ``first``; it has imported sys before them."""
    packed = base64.b64encode(zlib.compress(json.dumps(sources(first)).encode())).decode()
    return _IMPORTER.replace("{sources}", packed)


def sources(first: str) -> dict[str, tuple[bool, str]]:
    """A module utility, all that it imports of the others, and the packages that these are in: name → whether it is one, source."""
    found: dict[str, tuple[bool, str]] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = _read(name)
        waiting.append(name.rpartition(".")[0] or name)
        for package, names in _OURS.findall(_FOR_TYPES.sub("", found[name][1])):
            each = re.findall(r"\w+", re.sub(r"\bas \w+|#.*", "", names))
            whole = UTILITIES + package
            waiting += [f"{whole}.{one}" if _exists(f"{whole}.{one}") else whole for one in each]
    return found


def _path(name: str) -> Path:
    return _PLUGINS / "module_utils" / Path(*name[len(UTILITIES) :].strip(".").split("."))


def _exists(name: str) -> bool:
    return _path(name).with_suffix(".py").is_file() or _path(name).is_dir()


def _read(name: str) -> tuple[bool, str]:
    if not name.startswith(UTILITIES + "."):
        return True, ""
    own = _path(name) / "__init__.py" if _path(name).is_dir() else _path(name).with_suffix(".py")
    return _path(name).is_dir(), own.read_text(encoding="utf-8") if own.is_file() else ""
