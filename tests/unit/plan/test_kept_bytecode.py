"""What the controller loads in each run is compiled once, although Ansible's own loader compiles it each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_LOAD = """
import json
from ansible.plugins import loader
loader.init_plugin_loader([])
from ansible_collections.gpuwright.node.plugins.action import plan
from ansible_collections.gpuwright.node.plugins.module_utils import versions
from ansible_collections.gpuwright.node.plugins.plugin_utils import planner, resolver
print(json.dumps([module.__spec__.cached for module in (planner, resolver, versions)]))
"""


def kept(tmp_path: Path) -> list[str]:
    """Where the bytecode lies after Ansible's loader loaded an action of ours."""
    env = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "PYTHONPYCACHEPREFIX": str(tmp_path),
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    told = subprocess.run([sys.executable, "-c", _LOAD], env=env, stdout=subprocess.PIPE, check=True).stdout
    found: list[str] = json.loads(told)
    return found


def test_bytecode_is_kept_where_ansible_loads_the_planner(tmp_path: Path) -> None:
    first = kept(tmp_path)
    assert all(path.startswith(str(tmp_path)) for path in first)
    made = {path: Path(path).stat().st_mtime_ns for path in first}
    assert kept(tmp_path) == first
    assert {path: Path(path).stat().st_mtime_ns for path in first} == made


def test_the_command_line_loads_them_as_any_python_does() -> None:
    script = (
        "import sys; from gpuwright import paths; paths.make_collection_importable();"
        "from ansible_collections.gpuwright.node.plugins import plugin_utils;"
        "print([type(each).__name__ for each in sys.meta_path])"
    )
    told = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout
    assert "KeptBytecode" not in told.decode()
