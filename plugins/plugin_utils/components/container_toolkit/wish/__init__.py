# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for the NVIDIA Container Toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....model.errors import BadInput
from ....model.wish import Values
from ....rules import Rules
from ....wish.reading import AUTO, VERSION, Variables, Words, choice, equals, is_yes
from . import docker, images, rootless


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The toolkit's fields of a wish."""

    container_toolkit: bool = False
    container_toolkit_version: str | None = None
    container_toolkit_engine: str | None = None
    container_toolkit_engine_source: str | None = None
    container_toolkit_docker: Mapping[str, object] = field(default_factory=dict)
    container_toolkit_rootless: tuple[str, ...] = ()
    container_toolkit_images: tuple[str, ...] = ()


ENGINES = ("docker", "podman", "containerd")
#: The distribution's, or Docker's own repository.
SOURCES = ("distro", "docker")
_read_engine = choice("container_toolkit_engine", ENGINES, "container_toolkit")
_read_source = choice("container_toolkit_engine_source", SOURCES, "container_toolkit")


def _read_toolkit(values: Values, spec: str, want: str, rules: Rules) -> None:
    values.update(container_toolkit=True)
    version = equals(spec, want)
    if version and version != "auto":
        values.update(container_toolkit_version=_toolkit_version(version, want, rules))


def _read_rootless(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    values.update(container_toolkit=True, container_toolkit_rootless=rootless.read(equals(spec, want)))


def _read_image(values: Values, spec: str, want: str, rules: Rules) -> None:
    """Read one image; several wants are several images."""
    del rules
    there = values.get("container_toolkit_images", ())
    found = images.reference(equals(spec, want) or "", want.partition("=")[0].strip())
    values.update(container_toolkit=True, container_toolkit_images=(*there, found))


def _toolkit_version(version: str, want: str, rules: Rules) -> str:
    if not VERSION.match(version):
        newest = rules["container_toolkit"]["rows"][-2]["version"]
        raise BadInput(f"{want!r}: expected a version such as {newest}", [f"container-toolkit={newest}"])
    return version


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    wanted, version = variables.get("container_toolkit_wanted"), variables.get("container_toolkit_version")
    if is_yes(wanted):
        values.update(container_toolkit=True)
    if version not in AUTO:
        _read_toolkit(values, f"={version}", f"container_toolkit_version: {version}", rules)
    engine = variables.get("container_toolkit_engine")
    if engine not in AUTO:
        _read_engine(values, f"={engine}", f"container_toolkit_engine={engine}", rules)
    source = variables.get("container_toolkit_engine_source")
    if source not in AUTO:
        _read_source(values, f"={source}", f"container_toolkit_engine_source={source}", rules)
    settings = variables.get(docker.VARIABLE)
    if settings not in (*AUTO, {}):
        values.update(container_toolkit_docker=docker.read(settings))
    users = variables.get(rootless.VARIABLE)
    if users not in AUTO:
        values.update(container_toolkit=True, container_toolkit_rootless=rootless.read(users))
    named = images.read(variables.get(images.VARIABLE))
    if named:
        values.update(container_toolkit=True, container_toolkit_images=named)


#: The package, and those it took the place of.
_TOOLKIT_NAMES = (
    "nvidia-container-toolkit",
    "nvidia-container-runtime",
    "nvidia-ctk",
    "nvidia-docker",
    "nvidia-docker2",
    "libnvidia-container-tools",
)
#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "tritonserver triton-inference-server tgi text-generation-inference nim localai",
        "it is used from its image, which gets the cards by the container toolkit",
        ("container-toolkit", "container-image=IMAGE"),
    ),
)
WORDS = Words(
    "container_toolkit",
    "container-toolkit",
    brings=("container_toolkit",),
    by_default=True,
    readers={
        "container-toolkit": _read_toolkit,
        "container-engine": _read_engine,
        "container-engine-source": _read_source,
        "container-rootless": _read_rootless,
        "container-image": _read_image,
    },
    aliases={
        **dict.fromkeys(_TOOLKIT_NAMES, "container-toolkit"),
        **dict.fromkeys(("docker", "docker-ce", "docker.io", "docker-engine"), "container-engine=docker"),
        "podman": "container-engine=podman",
        **dict.fromkeys(("containerd", "containerd.io"), "container-engine=containerd"),
    },
    variables=(
        "container_toolkit_wanted",
        "container_toolkit_version",
        "container_toolkit_engine",
        "container_toolkit_engine_source",
        docker.VARIABLE,
        rootless.VARIABLE,
        images.VARIABLE,
    ),
    of_host=(
        "container_toolkit_engine",
        "container_toolkit_engine_source",
        docker.VARIABLE,
        rootless.VARIABLE,
        images.VARIABLE,
    ),
    instead=(
        "an environment needs no container; where root has named you in container-rootless, yours get the cards by "
        "podman run --device nvidia.com/gpu=all"
    ),
    read=_read_variables,
    told=_TOLD,
)
