"""Imports from the zip that Ansible sends: each source is compiled once, and found where it is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "plugins/module_utils/zipped.py"
# Counts how often the source that says so is compiled.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from utils import zipped
if sys.argv[2] == "ours":
    zipped.install()
compiled = []
sys.addaudithook(lambda event, given: compiled.append(given[1]) if event == "compile" else None)
from utils.part import inner
from utils import plain
import elsewhere
assert (plain.WORD, inner.WORD, elsewhere.WORD) == ("plain", "inner", "elsewhere")
for name in ("plain.py", "part/inner.py", "elsewhere.py"):
    print(name, sum(str(each).endswith(name) for each in compiled))
try:
    from utils import missing
except ImportError:
    print("missing")
"""


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    path = tmp_path / "payload.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("utils/__init__.py", "")
        archive.write(SOURCE, "utils/zipped.py")
        archive.writestr("utils/plain.py", "WORD = 'plain'\n")
        archive.writestr("utils/part/__init__.py", "")
        archive.writestr("utils/part/inner.py", "WORD = 'inner'\n")
        archive.writestr("elsewhere.py", "WORD = 'elsewhere'\n")
    return path


def imported(payload: Path, how: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, str(payload), how]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_what_lies_in_the_package_is_compiled_once_and_the_rest_as_ever(payload: Path) -> None:
    others = imported(payload, "usual")
    assert imported(payload, "ours") == ["plain.py 1", "part/inner.py 1", others[2], "missing"]
