"""Files of an environment that pip installed and that are gone or changed: RECORDs of a real pip, and damage done by hand."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import installed_files, python_envs
from tests.unit.quick import quickly

if TYPE_CHECKING:
    from collections.abc import Callable

# A wheel with what frameworks have: packages, one in a namespace, a module of one file, libraries, a name that needs quotes, a script.
_FILES = {
    "torch/__init__.py": b"from torch import _C\n",
    "torch/nn/functional.py": b"def relu(x):\n    return x\n",
    "torch/lib/libtorch_cuda.so": b"\x7fELF" + b"x" * 4000,
    "torch/data/a, b.txt": b"quoted\n",
    "nvidia/cublas/lib/libcublas.so.13": b"\x7fELF" + b"y" * 4000,
    "torchgen.py": b"name = 'torchgen'\n",
}
_METADATA = {
    "torch-2.14.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.14.1\n",
    "torch-2.14.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: assumed\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "torch-2.14.1.dist-info/entry_points.txt": b"[console_scripts]\ntorchrun = torchgen:name\n",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of distributions of an environment into which pip installed the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    wheel = folder / "torch-2.14.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        record = io.StringIO()
        rows = csv.writer(record)
        for name, content in (_FILES | _METADATA).items():
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(content)])
        archive.writestr("torch-2.14.1.dist-info/RECORD", record.getvalue())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--python",
        str(folder / "venv"),
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = (folder / "venv/lib").glob("python3.*/site-packages")
    return site


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    copy = shutil.copytree(installed.parents[2], tmp_path / "venv", symlinks=True)
    return Path(copy) / installed.relative_to(installed.parents[2])


def test_what_pip_left_is_whole(site: Path) -> None:
    for full in (False, True):
        assert installed_files.damage(Host(full=full), str(site)) == []


def test_compiled_files_are_nobodys_loss(site: Path) -> None:
    for directory in site.rglob("__pycache__"):
        shutil.rmtree(directory)
    assert installed_files.damage(Host(full=True), str(site)) == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda site: shutil.rmtree(site / "torch"), "torch is gone"),
        (lambda site: shutil.rmtree(site / "nvidia"), "nvidia is gone"),
        (lambda site: (site / "torchgen.py").unlink(), "torchgen.py is gone"),
        (lambda site: (site / "torch/lib/libtorch_cuda.so").unlink(), "torch/lib/libtorch_cuda.so is gone"),
        (
            lambda site: (site / "nvidia/cublas/lib/libcublas.so.13").write_bytes(b"cut off"),
            "nvidia/cublas/lib/libcublas.so.13 has 7 bytes instead of 4004",
        ),
        (lambda site: (site / "torch/__init__.py").unlink(), "torch/__init__.py is gone"),
        (lambda site: (site / "torch/__init__.py").write_bytes(b""), "torch/__init__.py has 0 bytes instead of 21"),
        (lambda site: (site / "torch-2.14.1.dist-info/RECORD").unlink(), "torch-2.14.1.dist-info/RECORD is gone"),
        (
            lambda site: (site / "torch-2.14.1.dist-info/RECORD").write_bytes(b""),
            "torch-2.14.1.dist-info/RECORD is not whole",
        ),
    ],
)
def test_each_look_sees_what_an_import_needs_first(site: Path, harm: Callable[[Path], object], said: str) -> None:
    harm(site)
    assert said in installed_files.damage(Host(), str(site))
    assert installed_files.damage(Host(full=True), str(site))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("torch/nn/functional.py", None, "torch/nn/functional.py is gone"),
        ("torch/data/a, b.txt", None, "torch/data/a, b.txt is gone"),
        ("torch/nn/functional.py", b"def relu(x):\n    return 0\n", "torch/nn/functional.py changed"),
        ("torch-2.14.1.dist-info/METADATA", b"", "torch-2.14.1.dist-info/METADATA has 0 bytes instead of"),
    ],
)
def test_a_full_look_sees_every_file(site: Path, name: str, content: bytes | None, said: str) -> None:
    (site / name).unlink() if content is None else (site / name).write_bytes(content)
    assert installed_files.damage(Host(), str(site)) == []
    (found,) = installed_files.damage(Host(full=True), str(site))
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text", ["a" * 200_000 + ",,", "\0,,\0", "../../../../etc/shadow,sha256=x,1", '"', ",,,,", "a,sha256=%%%,9" * 9]
)
def test_a_record_of_somebody_elses_making_is_no_crash(site: Path, text: str) -> None:
    (site / "torch-2.14.1.dist-info/RECORD").write_text(text + ".so\n" + text)
    for full in (False, True):
        found = installed_files.damage(Host(full=full), str(site))
        assert len(found) <= 4


def test_much_damage_is_counted(site: Path) -> None:
    for name in _FILES:
        (site / name).unlink()
    *named, rest = installed_files.damage(Host(full=True), str(site))
    assert (len(named), rest) == (3, "3 more")


def test_an_environment_without_interpreter_is_damaged(tmp_path: Path) -> None:
    base = tmp_path / "opt/gpuwright/pytorch"
    base.mkdir(parents=True)
    (base / "pyvenv.cfg").write_text("version = 3.12.3\n")
    assert damage_of(tmp_path) == ["bin/python cannot be run"]


def damage_of(root: Path) -> list[str]:
    """The damage of the only environment below a root."""
    found = python_envs.environment(Host(root=str(root)), "/opt/gpuwright/pytorch")
    assert found is not None
    return list(found["damage"])


@pytest.mark.parametrize("closed", ["", "pytorch", "pytorch/bin", "pytorch/lib/python3.12/site-packages"])
def test_an_environment_that_only_root_can_enter_is_damaged(tmp_path: Path, closed: str) -> None:
    base = tmp_path / "opt/gpuwright/pytorch"
    for directory in ("bin", "lib/python3.12/site-packages"):
        (base / directory).mkdir(parents=True)
    (base / "pyvenv.cfg").write_text("version = 3.12.3\n")
    (base / "bin/python").write_text("#!/bin/sh\n")
    (base / "bin/python").chmod(0o755)
    assert damage_of(tmp_path) == []
    (base.parent / closed).chmod(0o750)
    (said,) = damage_of(tmp_path)
    assert said == f"{str(base.parent / closed).removeprefix(str(tmp_path))} is closed to other users"


def test_a_look_at_an_environment_as_large_as_pytorchs_is_quick(tmp_path: Path) -> None:
    info = tmp_path / "torch-2.14.1.dist-info"
    info.mkdir()
    (tmp_path / "torch").mkdir()
    digest = "sha256=0I8rHh6Lv0kqVO4d3zX0Y3d3d9y6k4mJk3rBq3lU1aA"
    rows = [f"torch/include/ATen/ops/operation_{number}_native.h,{digest},1234" for number in range(25_000)]
    (info / "RECORD").write_text("\n".join([*rows, "torch-2.14.1.dist-info/RECORD,,"]))
    assert quickly(lambda: installed_files.damage(Host(), str(tmp_path))) == []
