"""Names and places of the simulation: one spot, so that ``clean`` finds every trace of it."""

from __future__ import annotations

import os
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# Keys, ports, the built repository. In the clone and ignored by git, so that two clones do not disturb each other.
STATE = Path(os.environ.get("GPUWRIGHT_SIM_STATE", CLONE / ".sim"))
KEY = STATE / "ssh" / "id_ed25519"
REPOSITORY = STATE / "repository"

LABEL = "gpuwright.sim"
NETWORK = "gpuwright-sim"
IMAGE = "gpuwright-node"
CONTAINER_PREFIX = "gpuwright-sim-"

REPOSITORY_CONTAINER = CONTAINER_PREFIX + "packages"
# The name under which the nodes reach the package server: given by the container network, so it needs no port on the host.
REPOSITORY_HOST = "packages.gpuwright-sim"
REPOSITORY_URL = f"http://{REPOSITORY_HOST}"

# The account that Ansible logs in as: an ordinary one with sudo, as on a real machine.
NODE_USER = "gpuadmin"

# Where the stand-ins live on a node, and what tells everybody that the node is not a real one.
NODE_LIBRARY = "/usr/lib/gpuwright-sim"
NODE_CONFIG = "/etc/gpuwright-sim"
NODE_MARKER = "/etc/gpuwright/simulated"

DEBIAN_RELEASE = "trixie"


def container_name(node: str) -> str:
    """The container of the node called NODE."""
    return CONTAINER_PREFIX + node
