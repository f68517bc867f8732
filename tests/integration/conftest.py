"""Fixtures of the integration tests: a simulated node, the command line run against it, what it prints as JSON.

Run them with `pytest -m sim tests/integration`. They need a container engine; where there is none they say so and fail.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory
from tests.sim import engine, node, scenario, settings

from . import snapshot

_LIMIT_SECONDS = 900

#: Leave the nodes to be looked at after the tests, and take the proven one of an earlier session.
_KEEP = bool(os.environ.get("GPUWRIGHT_SIM_KEEP"))

#: Files whose tests take longest together: they begin first, so that no process of pytest is left alone with one at the end.
_LONGEST = (
    "test_metal.py",
    "test_stranger.py",
    "test_kernel_update.py",
    "test_life_debian.py",
    "test_random_cuts.py",
    "test_roles_alone.py",
    "test_rocky.py",
    "test_life.py",
    "test_runfile.py",
    "test_mig.py",
    "test_hosts.py",
    "test_cut.py",
    "test_mend.py",
    "test_fabric.py",
    "test_lock.py",
    "test_reboot.py",
    "test_up.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; within a file the order stays."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@dataclass
class Run:
    """One run of the command line."""

    code: int
    stdout: str
    stderr: str
    report: Path | None = None

    @property
    def roles(self) -> list[str]:
        """The roles that ran, each once."""
        assert self.report
        return snapshot.roles(self.report)

    @property
    def components(self) -> set[str]:
        """The roles that ran and are a component of the plan."""
        return set(self.roles) & COMPONENTS.keys()

    @property
    def changed(self) -> int:
        """What Ansible counted as changed on the only host."""
        assert self.report
        return snapshot.changed(self.report)

    @property
    def written_plan(self) -> dict[str, Any]:
        """The only host's plan as the run directory has it."""
        return self.written("plans")

    def written(self, kind: str) -> dict[str, Any]:
        """What the run directory has of the only host: its `facts`, its `plans`."""
        assert self.report
        (path,) = run_directory.documents(self.report / kind)
        found = run_directory.read_json(path)
        assert found is not None, path
        return found

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        return dict(json.loads(self.stdout))

    @property
    def host(self) -> dict[str, Any]:
        """The entry of the only host."""
        (entry,) = self.json["hosts"].values()
        return dict(entry)

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"


class Node:
    """A simulated node and what a test does with it."""

    def __init__(self, name: str, inventory: Path) -> None:
        self.name = name
        self.inventory = inventory
        #: Seconds within which a run on it has to end.
        self.limit = _LIMIT_SECONDS
        #: Its file tree before gpuwright came, see `with_its_tree`.
        self.bare: dict[str, str] = {}

    def shell(self, command: str, *, check: bool = True) -> str:
        """What COMMAND prints on the node, as root."""
        return node.shell(self.name, command, check=check)

    def fault(self, kind: str, *, clear: bool = False) -> None:
        """Inject the fault KIND, or take it back."""
        node.fault(self.name, kind, clear=clear)

    def reboot(self) -> None:
        """Reboot and wait."""
        node.reboot(self.name)

    def tree(self) -> dict[str, str]:
        """Every path with mode, owner, size, time and digest; what is left out is in :data:`witness.EXCEPT`."""
        return snapshot.tree(self.name)

    def with_its_tree(self) -> Node:
        """Itself, with the tree that it has now to be compared with at the end of its life."""
        self.bare = self.tree()
        return self

    def plan(self, *arguments: str) -> Run:
        """`gpuwright plan --json`."""
        return self._gpuwright("plan", *arguments)

    def up(self, *arguments: str) -> Run:
        """`gpuwright up --yes --json`."""
        return self._gpuwright("up", "--yes", *arguments)

    def run(self, verb: str, *arguments: str) -> Run:
        """`gpuwright VERB --json`."""
        return self._gpuwright(verb, *arguments)

    def cut_when(self, moment: str, *arguments: str, verb: str = "up") -> str:
        """Start `gpuwright VERB` and cut it off, here and on the node, as soon as the shell command MOMENT succeeds there.

        Returns what was killed on the node. Fails where the run ends before that.
        """
        process = self.begin(verb, *arguments)
        try:
            assert self.comes(moment, process), "the run ended before it could be cut off"
        finally:
            killed = snapshot.cut_off(self.name, process)
        return killed

    def interrupt_when(self, moment: str, *arguments: str) -> int:
        """Start `gpuwright up`, press Ctrl-C once the shell command MOMENT succeeds on the node, and wait. Returns the exit status."""
        process = self.begin("up", *arguments)
        try:
            assert self.comes(moment, process), "the run ended before it could be interrupted"
            process.send_signal(signal.SIGINT)
            return process.wait(timeout=120)
        finally:
            process.kill()

    def begin(self, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        """`gpuwright VERB`, at work."""
        report = tempfile.mkdtemp(dir=self.inventory.parent)
        return subprocess.Popen(
            [*command_line(), verb, "--yes", "-i", str(self.inventory), "--report", report, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            cwd=settings.CLONE,
            start_new_session=True,
        )

    def comes(self, moment: str, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the shell command MOMENT succeeds on the node; False where PROCESS ends before that.

        Fails where neither happens within minutes.
        """
        # One waiting shell on the node: a look from here for each turn would come too late.
        wait = f"for turn in $(seq 12000); do if {moment}; then exit 0; fi; sleep 0.02; done; exit 1"
        waiting = subprocess.Popen(["docker", "exec", settings.container_name(self.name), "sh", "-c", wait])
        try:
            while waiting.poll() is None:
                if process.poll() is not None:
                    return False
                time.sleep(0.02)
        finally:
            waiting.kill()
        assert waiting.returncode == 0, f"the moment never came: {moment}"
        return True

    def _gpuwright(self, verb: str, *arguments: str) -> Run:
        report = Path(tempfile.mkdtemp(dir=self.inventory.parent))
        return gpuwright(verb, *arguments, "-i", self.inventory, "--json", "--report", report, limit=self.limit)


def signal_dpkg(signal: str, step: str) -> str:
    """The shell command that sends SIGNAL to the dpkg that does apt's STEP (`unpack`, `configure`, `remove`); it fails where none does.

    By its whole command line: of a dpkg that has ended, unseen by apt, the name is left, and a signal to that one succeeds without effect.
    """
    return f"pkill -{signal} -f '^/usr/bin/dpkg .*--({step})'"


def command_line() -> list[str]:
    """How the clone's own command is started."""
    beside = Path(sys.executable).with_name("gpuwright")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "gpuwright"]


def environment() -> dict[str, str]:
    """The caller's environment with the clone's sources and the running Python's programs first."""
    return {
        **os.environ,
        "PYTHONPATH": f"{settings.CLONE / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "ANSIBLE_CALLBACK_PLUGINS": str(settings.CLONE / "tests/callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "kept_payloads",
    }


def gpuwright(*arguments: str | Path, limit: float = _LIMIT_SECONDS) -> Run:
    """Run the command line to its end, which has to come within LIMIT seconds."""
    done = subprocess.run(
        [*command_line(), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        cwd=settings.CLONE,
        timeout=limit,
    )
    given = [*map(str, arguments)]
    report = Path(given[given.index("--report") + 1]) if "--report" in given else None
    return Run(done.returncode, done.stdout, done.stderr, report)


@dataclass
class Controller:
    """Where there is only ansible-core, and a clone without what git does not know."""

    folder: Path

    @property
    def clone(self) -> Path:
        """A bare clone."""
        return self.folder / "clone"

    @cached_property
    def collections(self) -> Path:
        """Where the collection lies as Galaxy installs it."""
        folder = self.folder / "galaxy"
        self.run("ansible-galaxy", "collection", "build", self.clone, "--output-path", folder)
        (tarball,) = folder.glob("gpuwright-node-*.tar.gz")
        self.run("ansible-galaxy", "collection", "install", tarball, "-p", folder, "--offline")
        return folder

    def run(
        self, program: str, *arguments: str | Path, cwd: Path | None = None, collections: Path | None = None
    ) -> str:
        """What a program of ansible-core says; fails with it where it does not end well."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        # A directory without collections: nothing of this machine may help.
        variables |= {
            "ANSIBLE_COLLECTIONS_PATH": str(collections or self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        variables |= {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}
        command = [self.folder / "venv/bin" / program, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd or self.folder, env=variables
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="session")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """A fresh environment with this one's ansible-core, and the clone's files as git knows them."""
    folder = tmp_path_factory.mktemp("controller")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip: list[str | Path] = [folder / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"ansible-core=={metadata.version('ansible-core')}"], check=True)
    bare_clone(folder / "clone")
    return Controller(folder)


def bare_clone(folder: Path) -> None:
    """Put the clone's files as git knows them into FOLDER."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=settings.CLONE,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = settings.CLONE / name, folder / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


@pytest.fixture(scope="session")
def container_engine() -> None:
    """A container engine that answers."""
    engine.ensure()


def new_node(name: str, scenario: str, folder: Path, **inventory: Any) -> Node:
    """A node as the factory delivers it, in an inventory of its own; it takes the place of an earlier one of this name."""
    full = f"it-{name}"
    node.remove(full)
    node.create(full, scenario)
    path = folder / f"{name}.yml"
    path.write_text(node.inventory([full], **inventory))
    return Node(full, path)


@pytest.fixture
def make_node(proven: Proven, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Make simulated nodes; they are removed after the test, unless GPUWRIGHT_SIM_KEEP is set."""
    made: list[str] = []

    def make(name: str = "t1", scenario: str = "two-h100", **inventory: Any) -> Node:
        made.append(f"it-{name}")
        return new_node(name, scenario, tmp_path, **inventory)

    yield make
    kept = proven.node.name if proven.node else None
    _remove([name for name in made if name != kept])


@pytest.fixture(scope="module")
def make_shared_node(
    container_engine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Node]]:
    """The same for the tests of a module together: they go by turns with the node, in their order."""
    made: list[str] = []

    def make(name: str, scenario: str) -> Node:
        made.append(f"it-{name}")
        return new_node(name, scenario, tmp_path_factory.mktemp(name))

    yield make
    _remove(made)


#: The disk of the node that was brought up first: the processes of a session begin with it instead of bringing up one each.
_KEPT = f"{settings.IMAGE}-kept:{settings.INSTANCE}"

#: The variable that names the folder of modules that were packed, for tests/callback/kept_payloads.py.
_PAYLOADS = "GPUWRIGHT_TEST_PAYLOADS"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin without the node of an earlier session; its code was another one. The processes of xdist begin after this."""
    if not hasattr(session.config, "workerinput"):
        _forget_kept()
        os.environ[_PAYLOADS] = tempfile.mkdtemp(prefix="gpuwright-payloads-")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no node's disk and no packed module."""
    if not hasattr(session.config, "workerinput"):
        _forget_kept()
        shutil.rmtree(os.environ.pop(_PAYLOADS))


def _forget_kept() -> None:
    if shutil.which("docker"):
        engine.docker("rmi", "-f", _KEPT, check=False)


class Proven:
    """The one node of a process that `up` brought to a proven state; the tests take turns with it.

    To bring a node up takes a minute, to see that it is still right a few seconds. A test that breaks it leaves it warm
    again (:meth:`Node.up` healed it). Where it does not, because it failed, the next test gets a new node.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node: Node | None = None

    def take(self) -> Node:
        """The node, out of the shelf: only who puts it back vouches for it."""
        machine, self.node = self.node, None
        if machine is None:
            with settings.locked("proven", settings.STATE):
                machine = self._made()
        return machine

    def _made(self) -> Node:
        name = "it-proven"
        known = engine.docker("image", "inspect", _KEPT, check=False).returncode == 0
        if not (_KEEP and name in node.names()):
            node.remove(name)
            node.create_from(name, scenario.load("two-h100"), _KEPT if known else None)
        path = self.folder / "proven.yml"
        path.write_text(node.inventory([name]))
        machine = Node(name, path)
        # One that begins with a disk that was kept has booted since: the proof is of another boot.
        run = machine.up()
        assert run.code == 0, str(run)
        if not known:
            node.keep(name, _KEPT)
        return machine

    def put_back(self, machine: Node) -> None:
        """Keep a node for the next test, after a look that it is warm."""
        run = machine.up()
        assert (run.code, run.roles, run.changed, run.host["changes"]) == (0, [], 0, []), str(run)
        assert run.host["verdict"] == "pass", str(run)
        if self.node is None:
            self.node = machine
        elif self.node.name != machine.name:
            _remove([machine.name])


@pytest.fixture(scope="session")
def proven(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    """See :class:`Proven`."""
    shelf = Proven(tmp_path_factory.mktemp("proven"))
    yield shelf
    _remove(["it-proven", *([shelf.node.name] if shelf.node else [])])


@pytest.fixture(scope="module")
def ready_node(proven: Proven) -> Iterator[Node]:
    """The proven node, shared by the tests of a module, which must leave it so."""
    machine = proven.take()
    yield machine
    # A test may have booted it: the proof is then of another boot.
    machine.up()
    proven.put_back(machine)


def _remove(names: list[str]) -> None:
    if not _KEEP:
        for name in names:
            node.remove(name)
