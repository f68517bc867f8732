"""Fixtures of the integration tests: a simulated node, the command line run against it, what it prints as JSON.

Run them with `pytest -m sim tests/integration`. They need a container engine; where there is none they say so and fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sim import engine, node, settings

_LIMIT_SECONDS = 900


@dataclass
class Run:
    """One run of the command line."""

    code: int
    stdout: str
    stderr: str

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

    def shell(self, command: str, *, check: bool = True) -> str:
        """What COMMAND prints on the node, as root."""
        return node.shell(self.name, command, check=check)

    def fault(self, kind: str, *, clear: bool = False) -> None:
        """Inject the fault KIND, or take it back."""
        node.fault(self.name, kind, clear=clear)

    def reboot(self) -> None:
        """Reboot and wait."""
        node.reboot(self.name)

    def files(self) -> dict[str, str]:
        """Every file that a run could change: path to mode, size and digest.

        What the system itself writes all the time is left out.
        """
        listing = self.shell(
            "find / -xdev \\( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /var/log"
            " -o -path /var/lib/docker -o -path /var/lib/containerd -o -path /var/lib/systemd -o -path /var/cache/ldconfig \\) -prune -o -type f -printf '%p\\t%m %s\\n'"
        )
        sums = self.shell(
            "find /etc /boot /opt /usr/local /var/lib/dpkg /var/lib/apt /var/lib/gpuwright -xdev -type f -size -4M"
            " -exec sha256sum {} + 2>/dev/null || true"
        )
        found = dict(line.split("\t", 1) for line in listing.splitlines())
        for line in sums.splitlines():
            digest, path = line.split("  ", 1)
            found[path] = found.get(path, "") + " " + digest
        return found


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
    }


def gpuwright(*arguments: str | Path) -> Run:
    """Run the command line to its end."""
    done = subprocess.run(
        [*command_line(), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        cwd=settings.CLONE,
        timeout=_LIMIT_SECONDS,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def gpuwright_killed(until: Callable[[], bool], *arguments: str | Path) -> None:
    """Start the command line and kill it, with everything it started, as soon as UNTIL says so; fails if it ends before."""
    process = subprocess.Popen(
        [*command_line(), *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd=settings.CLONE,
        start_new_session=True,
    )
    limit = time.monotonic() + _LIMIT_SECONDS
    try:
        while not until():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < limit, "the moment to kill it never came"
            time.sleep(0.1)
    finally:
        # Only the run's own session: a process that the connection left on the node goes on, as with a lost network.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def container_engine() -> None:
    """A container engine that answers."""
    engine.ensure()


@pytest.fixture
def make_node(container_engine: None, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Make simulated nodes; they are removed after the test, unless GPUWRIGHT_SIM_KEEP is set."""
    made: list[str] = []

    def make(name: str = "t1", scenario: str = "two-h100", **inventory: Any) -> Node:
        full = f"it-{name}"
        node.remove(full)
        node.create(full, scenario)
        made.append(full)
        path = tmp_path / f"{name}.yml"
        path.write_text(node.inventory([full], **inventory))
        return Node(full, path)

    yield make
    if not os.environ.get("GPUWRIGHT_SIM_KEEP"):
        for name in made:
            node.remove(name)


@pytest.fixture(scope="module")
def ready_node(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that `up` has brought to a proven state; shared by the tests of a module, which must leave it so."""
    name = "it-ready"
    node.remove(name)
    node.create(name, "two-h100")
    path = tmp_path_factory.mktemp("inventory") / "ready.yml"
    path.write_text(node.inventory([name]))
    run = gpuwright("up", "--yes", "-i", path, "--json")
    assert run.code == 0, str(run)
    yield Node(name, path)
    if not os.environ.get("GPUWRIGHT_SIM_KEEP"):
        node.remove(name)
