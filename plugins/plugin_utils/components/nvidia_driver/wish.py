# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for a driver."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ...model.errors import BadInput
from ...model.wish import Values
from ...rules import Rules
from ...wish import datacentre
from ...wish.reading import AUTO, VERSION, Reader, Variables, Words, bare, choice, equals, is_outside, sha256

#: Packages of the driver as NVIDIA and the distributions name them, and a branch as NVIDIA writes it: r580.
_PACKAGE = lazy(
    r"(?:nvidia-(?:driver|headless|utils|dkms|kernel|firmware)|(?P<kind>nvidia-open|nvidia-kernel-open)|cuda-drivers?|driver)"
    r"(?:-no-dkms)?(?:-(?P<branch>\d{3}))?(?:-server)?(?P<open>-open)?"
)
_BRANCH = lazy(r"=+ *[rv](?P<version>\d[\d.]*)")
_CHOICES = {
    "modules": ("open", "proprietary"),
    "source": ("nvidia", "distro", "runfile", "preinstalled"),
    "set": ("desktop", "compute"),
}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the driver."""

    driver: bool = False
    driver_source: str | None = None
    driver_branch: str | None = None
    driver_version: str | None = None
    driver_modules: str | None = None
    driver_set: str | None = None
    driver_imex: bool | None = None
    driver_peermem: bool = False
    driver_runfile: str | None = None
    driver_runfile_sha256: str | None = None


def _read_driver(values: Values, spec: str, want: str, rules: Rules) -> None:
    values["driver"] = True
    _set_driver(values, equals(spec, want), want, rules)


def _set_driver(values: Values, version: str | None, want: str, rules: Rules) -> None:
    if version is None or version == "auto":
        return
    if not VERSION.match(version):
        raise BadInput(f"{want!r}: a driver is a branch (580) or a version (580.95.05)", ["driver=580"])
    branch = numeric_version.major(version)
    known = [row["branch"] for row in rules["driver_branches"]["rows"]]
    if branch not in known and not is_outside(branch, known):
        near = sorted(known, key=lambda each: abs(int(each) - int(branch)))[:3]
        raise BadInput(f"{want!r}: there is no driver branch {branch}", [f"driver={each}" for each in near])
    values["driver_branch"] = branch
    if version != branch:
        values["driver_version"] = version


def _of_package(name: str, rest: str) -> tuple[str, ...]:
    """Return what is wished by the name of a package of the driver; nothing for another name."""
    package = _PACKAGE.fullmatch(name)
    if not package:
        return ()
    branch = _BRANCH.fullmatch(rest)
    version = f"={package['branch']}" if package["branch"] else f"={branch['version']}" if branch else rest
    return (f"driver{version}", *(("driver-modules=open",) if package["kind"] or package["open"] else ()))


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    for name in ("source", "modules", "set"):
        value = variables.get(f"nvidia_driver_{name}")
        if value not in AUTO:
            _choice(name)(values, f"={value}", f"nvidia_driver_{name}={value}", rules)
    _runfile_variables(values, variables)
    branch, version = variables.get("nvidia_driver_branch"), variables.get("nvidia_driver_version")
    for name, value in (("branch", branch), ("version", version)):
        if value not in AUTO:
            values["driver"] = True
            _set_driver(values, str(value), f"nvidia_driver_{name}={value}", rules)
    if (
        branch not in AUTO
        and version not in AUTO
        and numeric_version.major(str(version)) != numeric_version.major(str(branch))
    ):
        instead = f"nvidia_driver_branch={numeric_version.major(str(version))}"
        raise BadInput(f"nvidia_driver_version {version} is not of nvidia_driver_branch {branch}", [instead])
    values |= datacentre.of_driver(variables)


def _runfile_variables(values: Values, variables: Variables) -> None:
    """Read where the driver's file is and what it has to be; both only matter with the source runfile."""
    if variables.get("nvidia_driver_runfile") not in AUTO:
        values["driver_runfile"] = bare(str(variables["nvidia_driver_runfile"]), "nvidia_driver_runfile")
    given = variables.get("nvidia_driver_runfile_sha256")
    if given not in AUTO:
        values["driver_runfile_sha256"] = sha256(given, "nvidia_driver_runfile_sha256")


def _choice(name: str) -> Reader:
    return choice(f"driver_{name}", _CHOICES[name], "driver")


#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "nvidia-smi persistence persistenced nvidia-persistenced nvidia-modprobe mps nvidia-cuda-mps",
        "it comes with the driver",
        ("driver",),
    ),
    (
        "fabricmanager fabric-manager nvidia-fabricmanager nvlink nvswitch nvlsm nscq libnvidia-nscq",
        "the fabric manager comes with the driver, in its version, where the machine has NVSwitches",
        ("driver",),
    ),
    ("imex nvidia-imex", "IMEX is a variable (docs/datacentre.md)", ("nvidia_driver_imex: true",)),
    (
        "peermem nvidia-peermem gpudirect gpudirect-rdma",
        "nvidia-peermem is a variable (docs/datacentre.md)",
        ("nvidia_driver_peermem: true",),
    ),
    (
        "vulkan opengl egl opencl xorg x11 nvenc nvdec",
        "it comes with the driver, what draws with its desktop set",
        ("driver", "driver-set=desktop"),
    ),
    (
        "secure-boot secureboot mok",
        "Secure Boot is no want: gpuwright doctor and plan say what it asks of a driver",
        ("driver",),
    ),
    ("nouveau", "the driver of NVIDIA takes its place", ("driver",)),
)
WORDS = Words(
    "nvidia_driver",
    "driver",
    brings=("driver",),
    readers={"driver": _read_driver, **{f"driver-{name}": _choice(name) for name in _CHOICES}},
    aliases={"nvidia-driver": "driver"},
    variables=(
        "nvidia_driver_source",
        "nvidia_driver_branch",
        "nvidia_driver_version",
        "nvidia_driver_modules",
        "nvidia_driver_set",
        "nvidia_driver_imex",
        "nvidia_driver_peermem",
        "nvidia_driver_runfile",
        "nvidia_driver_runfile_sha256",
    ),
    of_host=(
        "nvidia_driver_imex",
        "nvidia_driver_peermem",
        "nvidia_driver_runfile",
        "nvidia_driver_runfile_sha256",
    ),
    instead="the driver that is there is used as it is",
    read=_read_variables,
    told=_TOLD,
    packages=_of_package,
)
