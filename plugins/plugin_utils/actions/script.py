# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The look at a node as one script, for Ansible to run in place of the module node_facts.

A module of Python is packed with all that Ansible's own AnsibleModule imports: 0.3 s in each run, and on each node more work than the
look itself. A look changes nothing, logs nothing and takes options from here alone, so it needs none of that. The script is a module
too, of the style that Ansible calls JSONARGS: its own source, with the options in place of a mark.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

_PLUGINS = Path(__file__).resolve().parents[2]
_UTILITIES = f"{__name__.rpartition('.plugin_utils.')[0]}.module_utils"
_OURS = re.compile(rf"^[ \t]*from {re.escape(_UTILITIES)}([.\w]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
#: What only mypy imports: the types of the facts are no part of what a node runs.
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ ]+[^\n]*\n|\n)+", re.MULTILINE)

#: What runs on the node. Ansible puts the options in the place of its mark; as JSON has it, so that they are a text of Python, too.
_SCRIPT = '''\
#!/usr/bin/python
from __future__ import annotations

import sys

# Python looks in the working directory first where it is piped; that, and what the environment names, may be a user's.
sys.path[:] = [place for place in sys.path if place.startswith((sys.prefix, sys.base_prefix))]

import base64
import json
import zlib
from importlib import import_module
from importlib.machinery import ModuleSpec

OPTIONS = r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""
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
# No import statement: Ansible would take the script for a module of Python, and pack it.
machine = import_module("{utilities}.observe.machine")
sys.stdout.write(json.dumps(machine.answer(json.loads(OPTIONS))) + "\\n")
'''


def look() -> bytes:
    """The script that looks at a node."""
    sources = _sources(f"{_UTILITIES}.observe.machine")
    packed = base64.b64encode(zlib.compress(json.dumps(sources).encode())).decode()
    return _SCRIPT.replace("{sources}", packed).replace("{utilities}", _UTILITIES).encode()


def _sources(first: str) -> dict[str, tuple[bool, str]]:
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
            whole = _UTILITIES + package
            waiting += [f"{whole}.{one}" if _exists(f"{whole}.{one}") else whole for one in each]
    return found


def _path(name: str) -> Path:
    return _PLUGINS / "module_utils" / Path(*name[len(_UTILITIES) :].strip(".").split("."))


def _exists(name: str) -> bool:
    return _path(name).with_suffix(".py").is_file() or _path(name).is_dir()


def _read(name: str) -> tuple[bool, str]:
    if not name.startswith(_UTILITIES + "."):
        return True, ""
    own = _path(name) / "__init__.py" if _path(name).is_dir() else _path(name).with_suffix(".py")
    return _path(name).is_dir(), own.read_text(encoding="utf-8") if own.is_file() else ""
