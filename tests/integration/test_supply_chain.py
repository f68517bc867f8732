"""What root installs from a hostile mirror: no source is built, no package is another index's, no second key goes along."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels as pip
from ansible_collections.gpuwright.node.plugins.modules import repository_key
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import machine_from_options
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.sim import repository, settings, wheels
from tests.sim.engine import docker
from tests.unit.modules import run_module
from tests.unit.observe.test_openpgp import SECOND_KEYS, new_key
from tests.unit.plan.nodes import bare

from .conftest import Node, environment

pytestmark = pytest.mark.sim

_CANARY = "/root/built-as-root"
_MIRROR = "http://127.0.0.1:8099"
_PLAN = yaml.safe_load((Path(repository.__file__).parent / "packages.yaml").read_text())["wheels"]


def source(name: str, version: str) -> tuple[str, bytes]:
    """A source distribution that leaves a mark where any code of it runs."""
    stem, stream = f"{name}-{version}", io.BytesIO()
    content = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": f"open({_CANARY!r}, 'w')\n",
    }
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, text in content.items():
            info = tarfile.TarInfo(f"{stem}/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return f"{stem}.tar.gz", stream.getvalue()


def hostile(folder: Path, *without: str) -> None:
    """A mirror of the public index that has all that PyTorch needs, and what an attacker put beside it."""
    files = {**wheels.projects(_PLAN, "cu130"), **wheels.projects(_PLAN, "pypi")}
    files = {name: made for name, made in files.items() if name not in without}
    # The same version with a build number, and a version that sorts after the real one.
    for name, version, build in (("torch", "2.14.1+cu130", "9-"), ("torchaudio", "2.11.0+evil", "")):
        tag = f"{build}py3-none-any"
        files[name] = [wheels.wheel(name, version, [], {f"{name}/__init__.py": b"EVIL = 1\n"}, tag, {})]
    files["filelock"] = [*files.get("filelock", []), source("filelock", "99.0")]
    wheels.write_index(folder, files)


def serve(machine: Node, folder: Path) -> None:
    """Let the node have the index, as a mirror that it trusts."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(folder, "mirror")
    docker("exec", "-i", settings.container_name(machine.name), "tar", "-xC", "/srv", stdin=stream.getvalue())
    machine.shell(
        "systemctl is-active --quiet mirror || systemd-run -q --unit mirror -d python3 -m http.server -d /srv/mirror 8099"
        " --bind 127.0.0.1; for turn in $(seq 100); do python3 -c"
        f" \"import urllib.request as u; u.urlopen('{_MIRROR}')\" 2>/dev/null && exit; sleep 0.1; done; exit 1"
    )


def play(machine: Node, folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run the role for PyTorch as the resolver plans it where the mirror is named for the public index."""
    mirrors = {"pytorch": f"{settings.REPOSITORY_URL}/whl", "pypi": _MIRROR}
    wish = Wish.from_variables({"frameworks_wanted": ["pytorch"], "gpuwright_mirrors": mirrors})
    where = machine_from_options(["H100"], "debian-13", "x86_64", {}, load_rules())
    (framework,) = resolver.resolve(where, wish, load_rules())["stack"]["frameworks"]
    stack: Any = {"frameworks": [{**framework, **changes}]}
    nothing: Any = {"packages": {}, "rebuild": [], "builds": {}, "install": []}
    work = frameworks.COMPONENT.steps["begin"](Context(facts=bare(), stack=stack), nothing)
    variables = {
        "gpuwright_standalone": False,
        "gpuwright_mirrors": mirrors,
        "gpuwright_plan": {"stack": stack, "work": {"frameworks": work}, "package_manager": "apt", **nothing},
    }
    ours = {"name": "Ours", "hosts": "all", "become": True, "gather_facts": False, "vars": variables}
    (folder / "ours.yml").write_text(yaml.safe_dump([{**ours, "roles": ["gpuwright.node.frameworks"]}]))
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", machine.inventory, folder / "ours.yml"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "ANSIBLE_COLLECTIONS_PATH": str(settings.CLONE / "collections"), "ANSIBLE_NOCOLOR": "1"},
    )


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node whose mirror of the public index is somebody else's."""
    return make_shared_node("supply", "two-h100")


def test_a_hostile_mirror_gets_neither_its_code_run_nor_its_packages_in_place_of_pytorchs(
    machine: Node, tmp_path: Path
) -> None:
    hostile(tmp_path / "mirror")
    serve(machine, tmp_path / "mirror")
    done = play(machine, tmp_path)
    machine.shell(f"! test -e {_CANARY}")
    assert done.returncode == 0, done.stdout + done.stderr
    freeze = machine.shell("/opt/gpuwright/pytorch/bin/python -m pip freeze").lower().replace("_", "-").split()
    assert {"torch==2.14.1+cu130", "torchaudio==2.11.0+cu130", "filelock==4.2.11"} <= set(freeze)
    machine.shell("! grep -r EVIL /opt/gpuwright/pytorch/lib/python3*/site-packages/torch*/__init__.py")
    record = machine.shell("cat /opt/gpuwright/pytorch/gpuwright-wheels.txt")
    pins = re.findall(r"^(\S+) --hash=sha256:[0-9a-f]{64}$", record, re.MULTILINE)
    assert sorted(pins) == sorted(freeze), record
    assert "changed=0" in play(machine, tmp_path).stdout


def test_a_lock_holds_the_environment_to_its_very_files(machine: Node, tmp_path: Path) -> None:
    locked = [
        {"name": wheel.name, "version": wheel.version, "sha256": list(wheel.sha256)}
        for wheel in pip.pins(machine.shell("cat /opt/gpuwright/pytorch/gpuwright-wheels.txt"))
    ]
    assert "changed=0" in play(machine, tmp_path, wheels=locked).stdout
    other = [{**wheel, "sha256": ["0" * 64]} if wheel["name"] == "filelock" else wheel for wheel in locked]
    done = play(machine, tmp_path, wheels=other)
    assert done.returncode != 0
    assert (
        "Expected the files that the lock names by their SHA-256. Found another one: filelock==4.2.11 from"
        in done.stdout
    )
    # The one in use is what it was, and nothing is left of the other.
    machine.shell("/opt/gpuwright/pytorch/bin/python -c 'import torch'")
    assert machine.shell("ls -A /opt/gpuwright/.pytorch").split() == ["1", "gave-way"]
    assert "changed=0" in play(machine, tmp_path, wheels=locked).stdout
    assert "changed=0" in play(machine, tmp_path).stdout


def test_what_a_mirror_has_as_a_source_alone_is_refused_and_the_environment_stays_as_it_was(
    machine: Node, tmp_path: Path
) -> None:
    machine.shell("rm -rf /opt/gpuwright/pytorch /srv/mirror /root/.cache/pip")
    hostile(tmp_path / "mirror", "filelock")
    serve(machine, tmp_path / "mirror")
    done = play(machine, tmp_path)
    assert done.returncode != 0
    assert f"Found only sources of filelock on {_MIRROR}:" in done.stdout, done.stdout
    machine.shell(f"! test -e {_CANARY}")


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rocky(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node with rpm."""
    return make_shared_node("supply-rpm", "rocky")


@pytest.mark.soak(part="systems")
def test_rpm_takes_no_key_from_our_file_but_the_checked_one(rocky: Node, tmp_path: Path) -> None:
    ours, theirs = (new_key(tmp_path / "home", name) for name in ("repository", "stranger"))
    for number, (attack, made) in enumerate(SECOND_KEYS.items()):
        (tmp_path / "key.pub").write_text(made(ours, theirs), newline="")
        path = tmp_path / f"{number}.asc"
        options: dict[str, Any] = {
            "url": f"file://{tmp_path}/key.pub",
            "fingerprint": ours.fingerprint,
            "path": str(path),
        }
        if not run_module(repository_key, form="armoured", **options).get("failed"):
            assert keys_of_rpm(rocky, path.read_bytes()) == ["repository public key"], attack


@pytest.mark.soak(part="systems")
def test_rpm_would_take_a_second_key_from_such_a_file(rocky: Node, tmp_path: Path) -> None:
    ours, theirs = (new_key(tmp_path / "home", name) for name in ("repository", "stranger"))
    text = SECOND_KEYS["a second armour in lines of another system"](ours, theirs)
    assert openpgp.mismatch(text.encode(), ours.fingerprint) is None
    assert keys_of_rpm(rocky, text.encode()) == ["repository public key", "stranger public key"]


def keys_of_rpm(machine: Node, content: bytes) -> list[str]:
    """The keys that the node's rpm has after it imported a file into an empty database."""
    look = (
        "d=$(mktemp -d); cat > $d.asc; rpmkeys --dbpath $d --import $d.asc"
        "; rpm --dbpath $d -qa gpg-pubkey --qf '%{SUMMARY}\\n'; rm -r $d*"
    )
    done = docker("exec", "-i", settings.container_name(machine.name), "sh", "-c", look, stdin=content)
    return sorted(re.sub(r" <.*>", "", line) for line in done.stdout.splitlines())
