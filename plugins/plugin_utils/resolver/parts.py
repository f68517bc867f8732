# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a stack, in the order in which a lock has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import container_toolkit, cuda, cudnn, driver, forward, nccl, tensorrt
from .part import Held, Part

#: How a framework of a variant is written.
_WRITTEN = {
    "pytorch": "torch=={version}+{variant}",
    "dali": "dali=={version}+{variant}",
    "jax": "jax[{variant}]=={version}",
    "tensorflow": "tensorflow[{variant}]=={version}",
}


def _wants(frameworks: Sequence[Held]) -> Iterator[str]:
    yield from (_framework_want(framework) for framework in frameworks)
    interpreters = {framework["interpreter"] for framework in frameworks}
    if len(interpreters) == 1:
        yield f"python={interpreters.pop()}"


def _framework_want(framework: Held) -> str:
    """Return a framework as pip writes it: torch==2.14.1+cu130, jax[cuda12]==0.7.2."""
    name, version, variant = (framework[key] for key in ("name", "version", "variant"))
    plain = not variant or (name, variant) == ("tensorflow", "cpu")
    form = "{name}=={version}" if plain else _WRITTEN.get(name, "{name}=={version}")
    return form.format(name=name, version=version, variant=variant)


def _uncompared(_theirs: Held, *, adopted: bool) -> tuple[str, ...]:
    """Return what may differ: addresses are a matter of mirrors."""
    del adopted
    return ("index_url", "wheels")


_FRAMEWORKS = Part(
    "frameworks",
    "frameworks",
    [
        {
            "name": str,
            "version": str,
            "variant": (str, type(None)),
            "requirements": [str],
            "constraints": [str],
            "index_url": (str, type(None)),
            "cuda": (str, type(None)),
            "cudnn": (str, type(None)),
            "interpreter": str,
            "wheels?": [{"name": str, "version": str, "sha256": [str]}],
        }
    ],
    _wants,
    uncompared=_uncompared,
    cards=False,
)

PARTS = (
    driver.PART,
    cuda.PART,
    forward.PART,
    cudnn.PART,
    nccl.PART,
    tensorrt.PART,
    container_toolkit.PART,
    _FRAMEWORKS,
)
