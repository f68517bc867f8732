# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A want as people say it: another name of a thing, its version in the name or behind a blank, and what is asked for in another way.

"cuda 12.4", "cuda-toolkit-12-8", "python3.12", "nvidia-driver-580-open", "docker", "nvcc" are understood. What has no want of its own (the
layout of MIG, DCGM, Slurm) is answered with what to write, or with that it is not set up here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..model.errors import BadInput
from .reading import Told

_BEGINNING = lazy(r"[^\[=<>!~@]*")
_VERSION_APART = lazy(r"(?P<name>[a-z].*?) +v?(?P<version>\d[\w.+]*|latest|newest)", re.IGNORECASE)
_VERSION_IN_NAME = lazy(
    r"(?P<name>[a-z][a-z-]*?)-?v?(?P<version>\d{1,3}(?:[.-]\d+){0,3})(?:-cuda-\d+)?(?:-dev(?:el)?)?"
)
#: A CUDA as it is in a name or a version: cu121, 12.1.
_CUDA = lazy(r"(\d{1,2})\.?(\d)")
#: What leaves the version to the resolver, which takes the newest that fits.
_NEWEST = lazy(r"=+ *(?:latest|newest|auto)")

#: What nothing of ours sets up: see Words.told.
ELSEWHERE: Told = (
    (
        "rdma infiniband ofed mofed mlnx-ofed doca doca-ofed ucx openmpi mpi",
        "drivers and libraries of the network between nodes are not set up here",
        (),
    ),
    ("gds nvidia-gds nvidia-fs gpudirect-storage", "GPUDirect Storage is not set up here", ()),
    (
        "slurm kubernetes k8s k3s rke2 gpu-operator device-plugin nvidia-device-plugin",
        "schedulers of jobs are not set up here; a node for them needs driver and container toolkit",
        ("driver", "container-toolkit"),
    ),
    (
        "vgpu grid nvidia-grid vgpu-driver",
        "drivers of virtual GPUs are licensed, and neither installed nor replaced here (docs/hosts.md)",
        (),
    ),
)


@dataclass(frozen=True)
class Vocabulary:
    """What can be wished, and what people call it.

    aliases: other names of what can be wished, each with its name or with a whole want. told: what is no want by its name, see Words.
    packages: what the name of a package means, each those of one component. known: whether a name can be wished as it is. of_framework:
    whether it is one of a framework.
    """

    aliases: Mapping[str, str]
    told: Iterable[Told]
    packages: Sequence[Callable[[str, str], tuple[str, ...]]]
    known: Callable[[str], bool]
    of_framework: Callable[[str], bool]

    def wants(self, want: str) -> tuple[str, ...]:
        """Return what is wished in our own words, as --want takes them; a want that nobody knows as it is.

        Raises BadInput for what is asked for in another way.
        """
        text = _apart(want.strip())
        name, rest = _parted(text)
        name = name.lower().replace("_", "-")
        if self.of_framework(name) and _NEWEST.fullmatch(rest):
            return (name,)
        if name in self.aliases:
            return (_aliased(self.aliases[name], rest, want),)
        meant = next((found for each in self.packages if (found := each(name, rest))), ())
        if meant or self.known(name):
            return meant or (text,)
        if name in self._answers:
            self._refuse(name, want)
        return self._of_package(name, rest) or (text,)

    def _of_package(self, name: str, rest: str) -> tuple[str, ...]:
        """Return what the name of a package means that has its version in it; nothing for another name."""
        versioned = None if rest else _VERSION_IN_NAME.fullmatch(name)
        bare = self.aliases.get(versioned["name"], versioned["name"]) if versioned else ""
        return (f"{bare}={versioned['version'].replace('-', '.')}",) if versioned and self.known(bare) else ()

    @cached_property
    def _answers(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        return {name: (said, instead) for rows in self.told for names, said, instead in rows for name in names.split()}

    def _refuse(self, name: str, want: str) -> NoReturn:
        said, instead = self._answers[name]
        cuda = _CUDA.search(want)
        variant = f"+cu{cuda[1]}{cuda[2]}" if cuda else ""
        raise BadInput(f"{want!r}: {said}", [each.replace("{variant}", variant) for each in instead])


def _parted(text: str) -> tuple[str, str]:
    """Return the name that a want begins with, and what follows: its extras, its environment, its version."""
    written = _BEGINNING.match(text)
    name = written[0] if written else ""
    return name, text[len(name) :]


def _apart(text: str) -> str:
    """Return "nvidia driver 580" as "nvidia-driver=580"; what has a sign of a comparison keeps it."""
    name, rest = _parted(text)
    versioned = None if rest else _VERSION_APART.fullmatch(name)
    if versioned:
        name, rest = versioned["name"], f"={versioned['version']}"
    return "-".join(name.split()) + rest


def _aliased(meant: str, rest: str, want: str) -> str:
    if "=" in meant and rest:
        raise BadInput(
            f"{want!r}: which version of it comes is a matter of its source, so it is asked for without one", [meant]
        )
    return f"{meant}{rest}"
