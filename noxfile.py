"""The checks, each defined once: `make lint`, `make test`, `make soak` and pre-commit call these sessions.

`make test` runs each behaviour once, the quickest first, on the floor of ansible-core; `make soak` has what takes long, in the parts
of `SOAK`.

Sessions run in the environment nox was started from (`pip install -e .[dev]`, or `make venv`). Only the tests on the other
ansible-core line make an environment of their own, under .nox/.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "typing", "unit"]
nox.options.error_on_external_run = False

ROOT = Path(__file__).parent

# The other line of ansible-core, which the soak runs on, and the Pythons it runs on, the wanted one first. The floor, 2.19, is what
# the environment of this session holds.
NEWEST_LINE = "2.21"
NEWEST_PYTHONS = ("3.13", "3.12", "3.14")

# The line of this environment, and what makes and follows the mutants of `make mutants`.
ANSIBLE_FLOOR = "ansible-core>=2.19,<2.20"
MUTATION_TOOLS = ("cosmic-ray>=8.4,<9", "coverage>=7")

# What our count of memory is held against: PyTorch's own, and other tools'.
MEASURED = (
    "torch==2.13.0",
    "transformers==5.24.0",
    "peft==0.21.2",
    "accelerate==1.15.0",
    "deepspeed==0.19.8",
    "pytest>=8.3",
)

# The ptxas of the last CUDA 12, which knows cards from Maxwell on, and of the newest CUDA, which knows the newest.
ASSEMBLERS = ("nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-nvcc==13.5.37", "pytest>=8.3")

# What needs no simulated node and is run on both lines.
UNITS = ["tests/unit", "tests/packaging"]
# As many files of units run in one process.
FEW = 12
# Examples for each property in the soak, drawn anew each time.
PROPERTY_EXAMPLES = "2000"
# For how long the soak breaks outputs at random, beside those properties.
FUZZ_SECONDS = "600"

PYTHON_TREES = ["plugins", "src", "tests", "molecule", "tools", "benchmarks", "noxfile.py"]
# The tests of a file stay together, they share what they prepared.
_BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
# As many processes of pytest as there are cores, four at most; where half of the time is waiting for a node, half as many again.
_WORKERS = ["-n", str(min(os.cpu_count() or 1, 4)), *_BY_FILE]
_WORKERS_WITH_NODES = ["-n", str(min((os.cpu_count() or 1) * 3 // 2, 4)), *_BY_FILE]
SHELL_SHEBANGS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash", b"#!/usr/bin/env sh")


def _tracked(*patterns: str) -> list[str]:
    """The files git knows or would add, matching the patterns; in a tree without git (an sdist) nothing."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [
        name for name in listed.stdout.splitlines() if (ROOT / name).is_file() and not name.startswith("collections/")
    ]


def _shell_scripts() -> list[str]:
    """Every file that begins with a shell's shebang, whatever its name; a template is none yet."""
    names = (name for name in _tracked() if not name.endswith(".j2"))
    return [name for name in names if (ROOT / name).read_bytes()[:24].startswith(SHELL_SHEBANGS)]


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, yamllint, ansible-lint (production), shell scripts, the changelog's fragments."""
    session.run("ruff", "check", *(name for name in PYTHON_TREES if (ROOT / name).exists()))
    session.run("ruff", "format", "--check", "--diff", *(name for name in PYTHON_TREES if (ROOT / name).exists()))
    session.run("yamllint", "--strict", ".")
    # Offline: ansible-lint must not look for collections; there is nothing to install, the roles need ansible.builtin only.
    session.run("ansible-lint", "--offline", env={"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")})
    _scripts(session, _shell_scripts())
    session.run("antsibull-changelog", "lint")


def _scripts(session: nox.Session, scripts: list[str]) -> None:
    for script in scripts:
        session.run("bash", "-n", script, silent=True)
    if scripts and shutil.which("shellcheck"):
        session.run("shellcheck", *scripts)


def _lint_of(session: nox.Session, files: list[str]) -> None:
    """What `lint` says of these files alone."""
    python = [name for name in files if name.endswith(".py") and name.startswith(tuple(PYTHON_TREES))]
    if python:
        session.run("ruff", "check", "--force-exclude", *python)
        session.run("ruff", "format", "--force-exclude", "--check", "--diff", *python)
    tables = [name for name in files if name.endswith((".yml", ".yaml"))]
    if tables:
        session.run("yamllint", "--strict", *tables)
    if any(name.startswith(("roles/", "playbooks/", "meta/", "molecule/")) for name in files):
        session.run("ansible-lint", "--offline", env={"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")})
    _scripts(session, sorted({*files} & {*_shell_scripts()}))
    if any(name.startswith("changelogs/") for name in files):
        session.run("antsibull-changelog", "lint")


@nox.session
def typing(session: nox.Session) -> None:
    """mypy, strict, over what runs on the controller and on nodes, and over the tests."""
    session.run("mypy", *session.posargs)


@nox.session
def sanity(session: nox.Session) -> None:
    """ansible-test sanity on the collection as a user has it: built, and installed from the tarball."""
    session.run("tests/sanity.sh", *session.posargs)


@nox.session
def molecule(session: nox.Session) -> None:
    """Molecule: the scenario `default`, or the named ones."""
    session.run("tests/molecule.sh", *(session.posargs or ["default"]))


@nox.session
def integration(session: nox.Session) -> None:
    """Whole runs of the command line on simulated nodes: those of `make test`, or every test of the named files."""
    chosen = session.posargs or ["-m", "not soak and not metal", "tests/integration"]
    _integration(session, *chosen)


@nox.session
def metal(session: nox.Session) -> None:
    """`gpuwright up` on a real kernel, in an emulated machine, and with cuts of its power; the cuts are in no part of the soak."""
    _ensure_metal(session)
    session.run("pytest", "-q", "-s", "tests/integration/test_metal.py", *session.posargs)


def _integration(session: nox.Session, *arguments: str) -> None:
    # A bare Debian or Ubuntu has no container engine yet: this installs and starts one, or says why not.
    session.run("python", "-c", "from tests.sim import engine; engine.ensure()")
    session.run("pytest", "-q", "--durations", "20", *_WORKERS_WITH_NODES, *arguments)


def _ensure_metal(session: nox.Session) -> None:
    session.run("python", "-c", "from tests.sim import engine; engine.ensure_for_metal()")


@nox.session
def build(session: nox.Session) -> None:
    """The collection's tarball, the sdist and the wheel, in dist/."""
    session.run("ansible-galaxy", "collection", "build", "--force", "--output-path", "dist")
    session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist")


@nox.session
def unit(session: nox.Session) -> None:
    """The unit tests."""
    session.run("pytest", "-q", "-m", "not sim", *_WORKERS, "tests/unit", *session.posargs)


@nox.session
def world(session: nox.Session) -> None:
    """What compat/ and the stand-ins say of Debian's own archive, held against that archive."""
    session.run("python", "-m", "tools.world")


@nox.session
def measured(session: nox.Session) -> None:
    """What PyTorch keeps of small models in training, byte by byte, held against what `size` counts; the load of cards, on the CPU."""
    home = _environment(session, "measured", _open_to_users(), *MEASURED)
    where = os.pathsep.join(map(str, (ROOT / "src", ROOT / "collections")))
    # Ansible is this environment's: beside PyTorch it would decide over its libraries.
    ansible = str(Path(sys.executable).with_name("ansible-playbook"))
    environment = {"PYTHONPATH": where, "DS_ACCELERATOR": "cpu", "GPUWRIGHT_ANSIBLE": ansible}
    session.run(
        str(home / "bin/python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/measured",
        env=environment,
    )


@nox.session
def assembled(session: nox.Session) -> None:
    """The programs of the load on a card, assembled by NVIDIA's ptxas for every generation of cards."""
    home = _environment(session, "assembled", sys.executable, *ASSEMBLERS)
    session.run(
        str(home / "bin/python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/assembled",
        env={"PYTHONPATH": str(ROOT / "collections")},
    )


@nox.session
def changed(session: nox.Session) -> None:
    """What a change touches, and nothing else; `since` a commit, or since this branch left main. tools/changed.py says how it is found."""
    told = session.run("python", "-m", "tools.changed", *session.posargs, silent=True)
    touched: dict[str, list[str]] = {}
    for line in str(told).splitlines():
        kind, name = line.split(" ", 1)
        touched.setdefault(kind, []).append(name)
    _lint_of(session, touched.get("file", []))
    if "typed" in touched:
        session.run("mypy", *touched["typed"])
    if "unit" in touched:
        # To begin a second process costs more than it saves where there is little to run.
        session.run(
            "pytest", "-q", "-m", "not sim", *(_WORKERS if len(touched["unit"]) > FEW else []), *touched["unit"]
        )
    if "slow" in touched:
        session.run("pytest", "-q", *_WORKERS, *touched["slow"])
    if "node" in touched:
        _integration(session, "-m", "not metal", *touched["node"])
    if "scenario" in touched:
        session.run("tests/molecule.sh", *touched["scenario"])
    if "part" in touched:
        session.log(f"it can affect these parts of the soak: {', '.join(touched['part'])}")


@nox.session
def properties(session: nox.Session) -> None:
    """What holds for any machine and any wish, on the same examples each time."""
    session.run("pytest", "-q", *_WORKERS, "tests/property", *session.posargs)


@nox.session
def packaging(session: nox.Session) -> None:
    """The wheel, the editable install, the bare clone and the collection, built and used."""
    session.run("pytest", "-q", "tests/packaging", *session.posargs)


def _soak_nodes(part: str) -> Callable[[nox.Session], None]:
    """The integration tests that are marked `soak(part=PART)`."""

    def run(session: nox.Session) -> None:
        # Of the forty orders of test_stranger.py each state of the tree has ten.
        seed = os.environ.get("GPUWRIGHT_STRANGER_SEED") or str(4100 + _state() // len(SOAK) % 4 * 10)
        session.env["GPUWRIGHT_STRANGER_SEED"] = seed
        _integration(session, "-m", f"soak(part='{part}') and not metal", "tests/integration")

    return run


def _soak_machines(session: nox.Session) -> None:
    """QEMU; what a machine in QEMU begins with is made first."""
    _ensure_metal(session)
    session.run("python", "-m", "tests.sim", "metal", "prepare")
    _soak_nodes("machines")(session)


def _soak_lines(session: nox.Session) -> None:
    """The other line of ansible-core, and the other scenarios of molecule."""
    home = _newest_environment(session)
    newest = {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "GPUWRIGHT_ANSIBLE_CORE": NEWEST_LINE}
    session.log(f"on ansible-core {NEWEST_LINE}")
    session.run("tests/sanity.sh", env=newest)
    # By its path: nox looks for a program in its own PATH, whatever the program itself is given.
    session.run(str(home / "bin/pytest"), "-q", "-m", "not sim", *_WORKERS, *UNITS, env=newest)
    session.log("on this environment's ansible-core")
    session.run("tests/molecule.sh", "alternative", "distro")


def _soak_properties(session: nox.Session) -> None:
    """The properties on examples that are drawn anew, and outputs of nodes that are broken at random."""
    more = {"GPUWRIGHT_PROPERTY_EXAMPLES": PROPERTY_EXAMPLES, "GPUWRIGHT_FUZZ_SECONDS": FUZZ_SECONDS}
    session.run("pytest", "-q", *_WORKERS, "tests/property", env=more)


def _soak_figures(session: nox.Session) -> None:
    """Debian's archive, PyTorch and ptxas, which ours is held against."""
    world(session)
    measured(session)
    assembled(session)


# The parts of the soak, in their order. CONTRIBUTING.md says what is in which; tests/unit/repo/test_soak.py holds the two together.
SOAK: dict[str, Callable[[nox.Session], None]] = {
    "machines": _soak_machines,
    "driver": _soak_nodes("driver"),
    "services": _soak_nodes("services"),
    "systems": _soak_nodes("systems"),
    "rocky": _soak_nodes("rocky"),
    "lines": _soak_lines,
    "figures": _soak_figures,
    "environments": _soak_nodes("environments"),
    "modules": _soak_nodes("modules"),
    "monitoring": _soak_nodes("monitoring"),
    "containers": _soak_nodes("containers"),
    "hosts": _soak_nodes("hosts"),
    "kernels": _soak_nodes("kernels"),
    "properties": _soak_properties,
}


@nox.session
def soak(session: nox.Session) -> None:
    """What takes long: all parts, the one of a number or a name, or with `turn` the one whose turn it is."""
    names = list(SOAK)
    (wanted,) = session.posargs or ["all"]
    if wanted == "turn":
        wanted = _turn(names)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        wanted = names[int(wanted) - 1]
    if wanted not in (*names, "all"):
        numbered = ", ".join(f"{number} ({name})" for number, name in enumerate(names, 1))
        session.error(f"there is no part {wanted!r} of the soak; there are {numbered}")
    for number, name in enumerate(names, 1):
        if wanted in (name, "all"):
            session.log(f"soak, part {number} of {len(names)}: {name}")
            SOAK[name](session)


def _turn(names: list[str]) -> str:
    """The part whose turn it is, of those that the change since the last landed state can affect, of all where that is none.

    Each state of the tree has one, and the states go through all of them by chance.
    """
    since = [os.environ["SOAK_SINCE"]] if os.environ.get("SOAK_SINCE") else []
    command = [sys.executable, "-m", "tools.changed", "--parts", *since]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    affected = told.stdout.split() or names
    return affected[_state() % len(affected)]


def _state() -> int:
    """A number of the tree."""
    tree = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return int(tree.stdout[:12], 16)


def _environment(session: nox.Session, name: str, python: str, *wanted: str) -> Path:
    """An environment of its own below .nox, made again only when pyproject.toml, the interpreter or what is wanted is another."""
    home = ROOT / ".nox" / name
    stamp = home / "inputs"
    inputs = hashlib.sha256("\n".join(((ROOT / "pyproject.toml").read_text(), python, *wanted)).encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != inputs:
        session.log(f"making {home.relative_to(ROOT)} with {python}")
        session.run(python, "-m", "venv", "--clear", str(home))
        session.run(str(home / "bin/python"), "-m", "pip", "install", "--quiet", *wanted)
        stamp.write_text(inputs)
    return home


def _open_to_users() -> str:
    """An interpreter that every user may run, since ranks that root starts are nobody's: this one, else the system's."""
    places = Path(sys.executable).resolve().parents
    return sys.executable if all(place.stat().st_mode & 0o001 for place in places) else "/usr/bin/python3"


def _newest_environment(session: nox.Session) -> Path:
    """An environment with the newest line. A machine without a Python for it (installed from the package archive if need be) fails."""
    command = [str(ROOT / "tools/find-python"), "--install", *NEWEST_PYTHONS]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    python = found.stdout.strip()
    if found.returncode != 0:
        session.error(f"NOT TESTED ON ansible-core {NEWEST_LINE}: it needs Python {', '.join(NEWEST_PYTHONS)}")
    major, minor = NEWEST_LINE.split(".")
    wanted = f"ansible-core>={NEWEST_LINE},<{major}.{int(minor) + 1}"
    return _environment(session, f"ansible-core-{NEWEST_LINE}", python, "--editable", ".[test]", wanted)


@nox.session
def mutants(session: nox.Session) -> None:
    """Change one thing in the resolver, the plan, the components or the judges at a time: the share that tests notice, and what they
    do not.
    """
    home = _environment(session, "mutants", sys.executable, "--editable", ".[dev]", *MUTATION_TOOLS, ANSIBLE_FLOOR)
    session.run(str(home / "bin/python"), "-m", "tools.mutants", *session.posargs)
