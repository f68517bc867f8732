# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pull an image of a container by the engine's own program, with the logins that root has there.

What was cut off is no harm: an engine keeps the layers that are whole, and names the image when it has all of them.
"""

from __future__ import annotations

import re
from typing import Protocol, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import image_reference, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result

#: How a program asks for an image that is there.
_SEES = {"docker": ("docker", "image", "inspect", "--format", "{{.Id}}"), "podman": ("podman", "image", "exists")}
_ASKS = 60.0
#: What Docker says of an image that it lacks; Podman ends with 1.
_LACKS = re.compile(r"no such image", re.IGNORECASE)
_LACKS_CODE = 1

# What engines and registries say, and what a person does then. The first match decides.
_TROUBLES: Tuple[Tuple[str, str], ...] = (
    (
        r"toomanyrequests|too many requests|rate limit",
        "wait an hour, log in as root ({engine} login {registry}), or name a mirror (registry-mirrors of the settings of Docker)",
    ),
    (
        r"no space left on device|disk quota",
        "free the disk that {engine} keeps its images on ({engine} system df), then run again",
    ),
    (
        r"manifest unknown|not found: manifest|no matching manifest|name unknown|repository .* not found",
        "correct the tag: the registry has no such image for this machine; gpuwright resolve names tags of nvidia/cuda that fit",
    ),
    (
        r"unauthorized|denied|authentication required|no basic auth credentials|invalid username",
        "look whether the name is right; for an image that is not everybody's log in as root ({engine} login {registry}), then run again",
    ),
    (
        r"x509|certificate",
        "give {engine} the certificate of {registry} (/etc/docker/certs.d or /etc/containers/certs.d), then run again",
    ),
    (
        r"no such host|name resolution|connection (?:refused|reset)|timeout|deadline exceeded|unreachable|no route to host|proxyconnect",
        "look whether this machine reaches {registry} (through a proxy: proxies of the settings of Docker), then run again",
    ),
    (
        r"cannot connect to the docker daemon|docker daemon running",
        "start Docker (systemctl start docker; journalctl -u docker tells why it ended), then run again",
    ),
)
_ELSE = "read what {engine} says of it, then run again"


class PullError(Exception):
    """An image that could not be had: what was expected, found, and what to do."""


class Runner(Protocol):
    """What runs a program, as :func:`run.run` does."""

    def __call__(self, argv: Sequence[str], /, *, timeout: float) -> Result:
        """What became of it."""


def is_there(engine: str, image: str, run: Runner = run_module.run) -> bool:
    """Whether an engine has an image. Raises PullError where it does not tell."""
    answer = run([*_SEES[engine], image], timeout=_ASKS)
    if answer.ok:
        return True
    if answer.rc == _LACKS_CODE and (engine == "podman" or _LACKS.search(answer.err)):
        return False
    raise PullError(_sentence(engine, image, answer))


def bring(engine: str, image: str, timeout: float, run: Runner = run_module.run) -> bool:
    """Pull an image that is not there, and say whether that was done. Raises PullError."""
    if is_there(engine, image, run):
        return False
    answer = run([engine, "pull", "--quiet", image], timeout=timeout)
    if not answer.ok:
        raise PullError(_sentence(engine, image, answer))
    return True


def _sentence(engine: str, image: str, answer: Result) -> str:
    said = " ".join(answer.err.split())[-600:]
    found = redact.text(answer.error or said or f"{engine} ended with {answer.rc}")
    todo = next((remedy for pattern, remedy in _TROUBLES if re.search(pattern, said, re.IGNORECASE)), _ELSE)
    remedy = todo.format(engine=engine, registry=image_reference.registry(image))
    return f"Expected {engine} to pull {image}. Found: {found}. What to do: {remedy}. What was pulled so far is kept."
