"""Names and places of the simulation: one spot, so that ``clean`` finds every trace of it."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

CLONE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# The account's key, machines, inventories. In the clone and ignored by git, so that two clones do not disturb each other.
STATE = Path(os.environ.get("GPUWRIGHT_SIM_STATE", CLONE / ".sim")).resolve()
# What takes minutes to make, holds nothing of a clone and no container engine keeps: the package repositories and the throw-away keys
# that sign them, without which each clone would prepare its own images of the nodes; the disk of the bare-metal machine.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwright-sim"
KEY = STATE / "ssh" / "id_ed25519"
REPOSITORIES = CACHE / "repositories"
# Kept when a repository is built anew: the nodes that there are still trust it.
SIGNING = CACHE / "signing"
# What was made for a recipe of some other day goes when it was not used for this long.
_KEPT_SECONDS = 7 * 86400

# Two clones on one machine have nodes of the same names: containers and network bear four digits of the state's place.
INSTANCE = hashlib.sha256(str(STATE).encode()).hexdigest()[:4]
LABEL = "gpuwright.sim"
INSTANCE_LABEL = f"{LABEL}.instance={INSTANCE}"
NETWORK = f"gpuwright-sim-{INSTANCE}"
IMAGE = "gpuwright-node"
CONTAINER_PREFIX = f"gpuwright-sim-{INSTANCE}-"
# Where pytest runs the integration tests in several processes, each has nodes of its own; image and packages are shared.
NODE_PREFIX = CONTAINER_PREFIX + os.environ.get("PYTEST_XDIST_WORKER", "")

REPOSITORY_CONTAINER = CONTAINER_PREFIX + "packages"
# The name under which the nodes reach the package server: given by the container network, so it needs no port on the host.
REPOSITORY_HOST = "packages.gpuwright-sim"
REPOSITORY_URL = f"http://{REPOSITORY_HOST}"
# The same server as the distribution's archive: another host than the vendors', as in the world.
ARCHIVE_HOST = "archive.gpuwright-sim"
ARCHIVE_URL = f"http://{ARCHIVE_HOST}/distribution"

# The account that Ansible logs in as: an ordinary one with sudo, as on a real machine.
NODE_USER = "gpuadmin"

# Where the stand-ins live on a node, and what tells everybody that the node is not a real one.
NODE_LIBRARY = "/usr/lib/gpuwright-sim"
NODE_CONFIG = "/etc/gpuwright-sim"
NODE_MARKER = "/etc/gpuwright/simulated"

DEBIAN_RELEASE = "trixie"


def recipe(*paths: Path) -> str:
    """A digest of what these files mean: comments and layout of Python and YAML count for nothing."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".py":
            content = ast.dump(ast.parse(content)).encode()
        elif path.suffix == ".yaml":
            content = json.dumps(yaml.safe_load(content)).encode()
        total.update(content)
    return total.hexdigest()[:12]


def used(path: Path) -> None:
    """Note that what is cached at PATH was needed now."""
    os.utime(path)


def forgotten(paths: Iterable[Path]) -> list[Path]:
    """Those of the cached PATHS that nobody needed for a week."""
    return [path for path in paths if time.time() - path.stat().st_mtime > _KEPT_SECONDS]


@contextlib.contextmanager
def locked(name: str, folder: Path = CACHE) -> Iterator[None]:
    """One process at a time makes the thing called NAME, which all clones share or (in STATE) one has; the others find it made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def container_name(node: str) -> str:
    """The container of the node called NODE."""
    return NODE_PREFIX + node
