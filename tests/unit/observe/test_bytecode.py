"""Under Ansible our modules are read from their bytecode (docs/adr/0015-bytecode.md)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = "ansible_collections.gpuwright.node.plugins."
# As Ansible does before it loads the first plugin of a collection.
LOAD = f"""
import importlib, json, sys
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
_AnsibleCollectionFinder(paths=[sys.argv[1]])._install()
importlib.import_module("{OURS}action.plan")
ours = {{name: module for name, module in sys.modules.items() if name.startswith("{OURS}")}}
print(json.dumps({{name: [type(module.__loader__).__name__, module.__file__] for name, module in ours.items()}}))
"""


@pytest.fixture(name="collections")
def _collections(tmp_path: Path) -> Path:
    """A collection without bytecode, as ansible-galaxy installs it."""
    node = tmp_path / "ansible_collections/gpuwright/node"
    for part in ("plugins", "meta", "galaxy.yml"):
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, node / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, node / part)
    return tmp_path


def loaded(collections: Path) -> dict[str, list[str]]:
    """The modules of ours that the action `plan` needs: how each was loaded, and from where."""
    command = [sys.executable, "-c", LOAD, str(collections)]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=collections, env={"PATH": "/usr/bin:/bin"}
    )
    found: dict[str, list[str]] = json.loads(said.stdout)
    return found


def test_ansible_reads_our_modules_as_python_does_and_the_plugins_itself(collections: Path) -> None:
    found = loaded(collections)
    by_python = {name for name, (loader, _) in found.items() if loader == "SourceFileLoader"}
    below = {
        name
        for name, (_, file) in found.items()
        if name.startswith((f"{OURS}plugin_utils.", f"{OURS}module_utils.")) and file.endswith(".py")
    }
    assert len(by_python) > 100
    # Those before the finder: its own package, and what an action names above it.
    assert len(below - by_python) <= 4
    assert f"{OURS}plugin_utils.actions" in below - by_python
    assert by_python <= below
    assert all(file.startswith(str(collections)) for _, file in found.values())
    assert all(Path(cache_from_source(found[name][1])).is_file() for name in by_python)


def test_a_changed_module_is_compiled_again(collections: Path) -> None:
    loaded(collections)
    module = collections / "ansible_collections/gpuwright/node/plugins/plugin_utils/model/proof.py"
    module.write_text(module.read_text() + "\nraise SystemExit('changed')\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        loaded(collections)
    assert "changed" in failed.value.stderr
