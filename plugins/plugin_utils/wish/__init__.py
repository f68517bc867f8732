# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a person wishes: from --want, from a wish file, from Ansible's variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted, redact

from ..model.errors import BadInput
from ..rules import Row, Rules, gpus, load_rules
from . import datacentre, gpu_settings, specifiers
from .gpu_settings import Settings

__all__ = ["DEFAULT_WANTS", "BadInput", "FrameworkWish", "Wish"]

DEFAULT_WANTS = ["cuda", "container-toolkit", "pytorch"]
FRAMEWORKS_PATH = "/opt/gpuwright"
#: What a role brings where none of these parts of the wish is set.
_WANT_OF_ROLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "nvidia_driver": ("driver", ("driver",)),
    "cuda": ("cuda", ("cuda", "cudnn", "nccl", "tensorrt", "cuda_compat")),
    "container_toolkit": ("container-toolkit", ("container_toolkit",)),
    "frameworks": ("pytorch", ("frameworks",)),
}

_WANT = re.compile(
    r"^\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*?)\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?P<spec>(?:[=<>!~].*)?)\s*$"
)
# Nine digits are more than any version has, and few enough to be made a number of.
_VERSION = re.compile(r"^\d{1,9}(\.\d{1,9})*$", re.ASCII)
_PLAIN = re.compile(r"^=?=\s*(?P<version>\d+(?:\.\d+)*)(?:\.\*)?(?:\+(?P<variant>[a-z]+\d*))?$", re.ASCII)
_CUDA_OF_VARIANT = re.compile(r"^cu(?:da)?(\d\d)")
_AUTO: tuple[Any, ...] = (None, "", "auto", [], (), False)
_SOURCES = ("nvidia", "distro", "runfile", "preinstalled")
_MODULES = ("open", "proprietary")
_SETS = ("desktop", "compute")
_LANES = ("1", "2", "4", "8", "16")
_COMPONENTS = (
    "driver",
    "driver-modules",
    "driver-source",
    "driver-set",
    "cuda",
    "cudnn",
    "nccl",
    "tensorrt",
    "cuda-compat",
    "container-toolkit",
    "power-limit",
    "pytorch",
    "tensorflow",
    "jax",
    "dali",
    "python",
)
_ALIASES = {
    "nvidia-container-toolkit": "container-toolkit",
    "nvidia-driver": "driver",
    "cuda-toolkit": "cuda",
    "libnccl2": "nccl",
}


@dataclass(frozen=True)
class FrameworkWish:
    """A framework as it was asked for: a specifier such as ">=2.7" ("" for any), a variant such as "cu121"."""

    name: str
    specifier: str = ""
    variant: str | None = None
    text: str = ""

    @property
    def cuda_major(self) -> str | None:
        """The CUDA major version that the variant names: 12 of cu121, of cuda12 and of cuda120."""
        named = _CUDA_OF_VARIANT.match(self.variant or "")
        return named[1] if named else None


@dataclass(frozen=True)
class Wish:
    """Everything a person may ask for; None, "" and () mean: the resolver decides."""

    driver: bool = False
    driver_source: str | None = None
    driver_branch: str | None = None
    driver_version: str | None = None
    driver_modules: str | None = None
    driver_set: str | None = None
    driver_imex: bool | None = None
    driver_peermem: bool = False
    mig_layout: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpu_settings: Mapping[str, Settings] = field(default_factory=dict)
    driver_runfile: str | None = None
    driver_runfile_sha256: str | None = None
    cuda: bool = False
    cuda_versions: tuple[str, ...] = ()
    cudnn: bool = False
    cudnn_version: str | None = None
    nccl: bool = False
    nccl_version: str | None = None
    tensorrt: bool = False
    tensorrt_version: str | None = None
    cuda_compat: bool = False
    container_toolkit: bool = False
    container_toolkit_version: str | None = None
    frameworks: tuple[FrameworkWish, ...] = ()
    python: str | None = None
    frameworks_path: str = FRAMEWORKS_PATH
    gpus_ignore: tuple[str, ...] = ()
    gpus_expected: tuple[str, ...] | int | None = None
    gpus_pcie_lanes: Mapping[str, int] = field(default_factory=dict)
    provision_for: tuple[str, ...] = ()
    mirrors: Mapping[str, str] = field(default_factory=dict)
    repository_keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def nothing_wished(self) -> bool:
        """Say whether no component is asked for by name: DEFAULT_WANTS is what plan and up use then."""
        named = (self.driver, self.cuda, self.cudnn, self.nccl, self.tensorrt, self.container_toolkit, self.frameworks)
        return not any(named)

    @property
    def cpu(self) -> bool:
        """Say whether a framework for the CPU is asked for by its variant, as in torch==2.14.1+cpu."""
        return any(framework.variant == "cpu" for framework in self.frameworks)

    @classmethod
    def from_wants(cls, wants: Iterable[str], rules: Rules | None = None) -> Wish:
        """Read what --want gives, each as people write it. Raises BadInput for what does not exist."""
        known = rules or load_rules()
        values: dict[str, Any] = {}
        for want in wants:
            _add_want(values, str(want), known)
        return cls(**values)

    @classmethod
    def from_variables(cls, variables: Mapping[str, Any], rules: Rules | None = None) -> Wish:
        """Read Ansible's variables; gpuwright_wish wins over them, gpuwright_want over both.

        Raises BadInput for what does not exist.
        """
        known = rules or load_rules()
        asked = variables.get("gpuwright_wish") or {}
        if not isinstance(asked, Mapping):
            raise BadInput(f"gpuwright_wish has to be a mapping of variables, found {type(asked).__name__}")
        _known_variables(asked)
        wish = cls(**_values({**variables, **asked}, known))
        wants = variables.get("gpuwright_want") or asked.get("gpuwright_want") or []
        return wish.overlaid(cls.from_wants(_list(wants, "gpuwright_want"), known))

    def overlaid(self, other: Wish) -> Wish:
        """Return this wish with everything that the other one says instead.

        A driver version replaces a branch and the other way round; lists replace lists.
        """
        blank = Wish()
        changes = {
            f.name: getattr(other, f.name) for f in fields(other) if getattr(other, f.name) != getattr(blank, f.name)
        }
        if other.driver_branch:
            changes.setdefault("driver_version", None)
        if other.cuda:
            changes["cuda_versions"] = other.cuda_versions
        return replace(self, **changes)

    def with_defaults(self, rules: Rules | None = None) -> Wish:
        """Return DEFAULT_WANTS where nothing is wished by name, else the wish itself."""
        return self.overlaid(Wish.from_wants(DEFAULT_WANTS, rules)) if self.nothing_wished else self

    def with_roles(self, components: Iterable[str], rules: Rules | None = None) -> Wish:
        """Return the wish with what roles of these names bring: who uses a role alone wishes it, whatever else is wished by name."""
        brought = [_WANT_OF_ROLE[name] for name in components if name in _WANT_OF_ROLE]
        lacking = [want for want, parts in brought if not any(getattr(self, part) for part in parts)]
        return self.overlaid(Wish.from_wants(lacking, rules))


# --want ------------------------------------------------------------------------------------------------


def _add_want(values: dict[str, Any], want: str, rules: Rules) -> None:
    match = _WANT.match(want)
    if not match:
        raise BadInput(f"cannot read the want {want!r}: write NAME or NAME=VERSION", list(_COMPONENTS))
    written = match["name"].lower().replace("_", "-")
    name, variant = _named(_ALIASES.get(written, written), rules)
    extras, spec = match["extras"], match["spec"].strip()
    if name in _FRAMEWORKS:
        wished = _framework(name, _variant_of_extras(name, extras, spec, want, rules) or variant, spec, want, rules)
        others = tuple(each for each in values.get("frameworks", ()) if each.name != name)
        values["frameworks"] = (*others, wished)
        return
    reader = _READERS.get(name)
    if reader is None:
        _unknown(name, spec, want, rules)
    elif extras:
        raise BadInput(f"{name} takes no extra: {want!r}", [name + spec])
    else:
        reader(values, spec, want, rules)


def _named(name: str, rules: Rules) -> tuple[str, str | None]:
    """Return the one name of what people call differently, and the variant that a name such as nvidia-dali-cuda120 holds."""
    package = re.match(r"^nvidia-dali-(cuda\d+)$", name)
    if package:
        return "dali", package[1]
    rows = rules["frameworks"]["frameworks"]
    return next((row["name"] for row in rows if name in row["aliases"]), name), None


def _unknown(name: str, spec: str, want: str, rules: Rules) -> None:
    """Say what exists instead of a name that does not; always raises BadInput."""
    row = next((each for each in rules["frameworks"]["frameworks"] if name == each["name"]), None)
    if row is None:
        near = difflib.get_close_matches(name, _COMPONENTS, n=3, cutoff=0.5) or list(_COMPONENTS)
        raise BadInput(f"unknown component {name!r} in the want {want!r}", near)
    raise BadInput(
        f"{want!r}: there is no {row['name']} to install, it ended in a package that only raises an error",
        _with_cuda(spec, rules) or [row["instead"]],
    )


def _with_cuda(spec: str, rules: Rules) -> list[str]:
    """Return the TensorFlow with a CUDA of its own that comes next to what was asked of tensorflow-gpu."""
    asked = _PLAIN.match(spec)
    minor = ".".join(asked["version"].split(".")[:2]) if asked else None
    rows = [
        row["version"]
        for row in rules["tensorflow"]["releases"]
        if row["extra"] and _offered(row) and minor and dotted.belongs(row["version"], minor)
    ]
    return [f"tensorflow[and-cuda]=={max(rows, key=dotted.key)}"] if rows else []


def _equals(spec: str, want: str) -> str | None:
    """Return VERSION of "=VERSION" or "==VERSION", None for nothing; a range is not taken here."""
    if not spec:
        return None
    if not spec.startswith("="):
        name = want.split(spec, maxsplit=1)[0].strip()
        raise BadInput(
            f"{want!r}: only one version is taken here, written NAME=VERSION", [f"{name}={spec.lstrip('<>=!~ ')}"]
        )
    return spec.lstrip("= ") or None


def _read_driver(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    values["driver"] = True
    _set_driver(values, _equals(spec, want), want, rules)


def _set_driver(values: dict[str, Any], version: str | None, want: str, rules: Rules) -> None:
    if version is None or version == "auto":
        return
    if not _VERSION.match(version):
        raise BadInput(f"{want!r}: a driver is a branch (580) or a version (580.95.05)", ["driver=580"])
    branch = dotted.major(version)
    known = [row["branch"] for row in rules["driver_branches"]["rows"]]
    if branch not in known:
        near = sorted(known, key=lambda each: abs(int(each) - int(branch)))[:3]
        raise BadInput(
            f"{want!r}: the rules of {rules['generated']} know no driver branch {branch}",
            [f"driver={each}" for each in near],
        )
    values["driver_branch"] = branch
    if version != branch:
        values["driver_version"] = version


def _choice(key: str, choices: Sequence[str]) -> Any:
    def read(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
        del rules
        value = _equals(spec, want)
        if value == "auto":
            return
        if value not in choices:
            name = want.split("=", 1)[0].strip()
            raise BadInput(f"{want!r}: expected one of {', '.join(choices)}", [f"{name}={each}" for each in choices])
        values[key] = value
        values["driver"] = True

    return read


def _read_cuda(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    values["cuda"] = True
    version = _equals(spec, want)
    if version and version != "auto":
        values["cuda_versions"] = (*values.get("cuda_versions", ()), _cuda_version(version, want, rules))


def _cuda_version(version: str, want: str, rules: Rules) -> str:
    """Return a CUDA version that exists: 12, 12.8 or 12.8.1."""
    never = next((row for row in rules["cuda"]["never"] if dotted.belongs(version, row["cuda"])), None)
    if never:
        raise BadInput(
            f"{want!r}: CUDA {never['cuda']} was never released", [f"cuda={each}" for each in never["instead"]]
        )
    releases = [row["release"] for row in rules["cuda"]["rows"]]
    if not _VERSION.match(version) or not any(dotted.belongs(each, version) for each in releases):
        minors = list(dict.fromkeys(row["cuda"] for row in rules["cuda"]["rows"]))
        near = difflib.get_close_matches(version, minors, n=3, cutoff=0.3) or minors[-3:]
        raise BadInput(
            f"{want!r}: the rules of {rules['generated']} know no CUDA {version}", [f"cuda={each}" for each in near]
        )
    return version


def _read_cudnn(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    values["cudnn"] = True
    version = _equals(spec, want)
    if version and version != "auto":
        values["cudnn_version"] = _cudnn_version(version, want, rules)


def _cudnn_version(version: str, want: str, rules: Rules) -> str:
    """Return the full number of a cuDNN version: 9.10.2 gives 9.10.2.21. A withdrawn one is refused."""
    published = rules["cudnn"]["versions"]
    found = [row for row in published if _VERSION.match(version) and dotted.belongs(row["version"], version)]
    good = [row["version"] for row in found if not row.get("yanked") and ".post" not in row["version"]]
    if good:
        return max(good, key=dotted.key)
    reason = "was withdrawn" if found else "was never published"
    usable = [row["version"] for row in published if not row.get("yanked") and ".post" not in row["version"]]
    raise BadInput(f"{want!r}: cuDNN {version} {reason}", [f"cudnn={each}" for each in _around(version, usable)])


def _around(version: str, others: Sequence[str]) -> list[str]:
    """Return the versions next to one that does not exist: up to two below and one above."""
    wanted = dotted.key(version)
    ordered = sorted(others, key=dotted.key)
    below = [each for each in ordered if dotted.key(each) < wanted]
    above = [each for each in ordered if dotted.key(each) > wanted]
    return [*below[-2:], *above[:1]]


def _read_toolkit(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    values["container_toolkit"] = True
    version = _equals(spec, want)
    if version and version != "auto":
        values["container_toolkit_version"] = _toolkit_version(version, want, rules)


def _toolkit_version(version: str, want: str, rules: Rules) -> str:
    if not _VERSION.match(version):
        newest = rules["container_toolkit"]["rows"][-2]["version"]
        raise BadInput(f"{want!r}: expected a version such as {newest}", [f"container-toolkit={newest}"])
    return version


def _read_python(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    del rules
    version = _equals(spec, want)
    if not version or not re.match(r"^3\.\d+$", version):
        raise BadInput(f"{want!r}: expected a version such as python=3.12", ["python=3.12"])
    values["python"] = version


# frameworks ---------------------------------------------------------------------------------------------

# Where the releases of each are: table and rows.
_FRAMEWORKS = {
    "pytorch": ("pytorch", "releases"),
    "tensorflow": ("tensorflow", "releases"),
    "jax": ("jax", "releases"),
    "dali": ("libraries", "dali"),
}
_TITLES = {"pytorch": "torch"}
_EXTRAS = {"tensorflow": ("and-cuda",), "jax": ("cuda12", "cuda13", "cpu")}
_WITH_LOCAL_VERSION = ("pytorch", "dali")


def _variant_of_extras(name: str, extras: str | None, spec: str, want: str, rules: Rules) -> str | None:
    """Return the variant that an extra names: cuda12 of jax[cuda12]. One that does not exist is BadInput."""
    if not extras:
        return None
    extra = extras.strip().lower().replace("_", "-")
    for row in rules["frameworks"]["extras"]:
        if row["framework"] == name and extra == row["extra"].replace("_", "-"):
            raise BadInput(
                f"{want!r}: the extra [{extras}] does not exist any more, it is {row['instead']} now",
                [each + spec for each in row["instead"].split(" or ")],
            )
    offered = _EXTRAS.get(name, ())
    if extra not in offered:
        known = ", ".join(f"[{each}]" for each in offered) or "none"
        instead = [f"{name}[{each}]{spec}" for each in offered] or [name + spec]
        raise BadInput(f"{want!r}: the extra [{extras}] is not served, {name} takes {known}", instead)
    return extra


def _framework(name: str, variant: str | None, spec: str, want: str, rules: Rules) -> FrameworkWish:
    """Read "", "=2.8", "==2.3.0+cu121", ">=2.7,<2.10"; a release or variant that never existed is BadInput."""
    if not spec or spec in ("=auto", "==auto"):
        return FrameworkWish(name, "", variant, want)
    exact = _PLAIN.match(spec)
    if not exact:
        return FrameworkWish(name, _specifier(name, spec, want), variant, want)
    if exact["variant"] and name not in _WITH_LOCAL_VERSION:
        raise BadInput(f"{want!r}: releases of {name} have no variant such as +cu121", [f"{name}={exact['version']}"])
    version, variant = exact["version"], exact["variant"] or variant
    specifier = f"=={version}" if len(dotted.key(version)) > 2 else f"=={version}.*"
    releases = _releases(name, version, specifier, want, rules)
    if variant and variant not in ("cpu", "and-cuda"):
        _variant_exists(name, variant, releases, want, rules)
    return FrameworkWish(name, specifier, variant, want)


def _releases(name: str, version: str, specifier: str, want: str, rules: Rules) -> list[Row]:
    """Return the rows of the releases that an exact wish means."""
    table, rows = _FRAMEWORKS[name]
    every = [row for row in rules[table][rows] if specifiers.is_version(row["version"])]
    found = [row for row in every if specifiers.matches(row["version"], specifier)]
    good = [row for row in found if _offered(row)]
    if good:
        return good
    title = _TITLES.get(name, name)
    usable = [row["version"] for row in every if _offered(row)]
    if any(row.get("yanked") for row in found):
        reason = f"{title} {version} was withdrawn"
    elif found:
        reason = f"{title} {version} has no wheels on the package index, only a stub that fails to install"
    else:
        reason = f"the rules of {rules['generated']} know no {title} {version}"
    near = difflib.get_close_matches(version, usable, n=3, cutoff=0.4) if not found else _around(version, usable)
    raise BadInput(f"{want!r}: {reason}", [f"{name}={each}" for each in near or usable[-3:]])


def _offered(row: Row) -> bool:
    """Say whether a release can be installed: not withdrawn, and real wheels."""
    return not row.get("yanked") and bool(row.get("real", True))


def _specifier(name: str, spec: str, want: str) -> str:
    text = re.sub(r"^=(?!=)", "==", spec).replace(" ", "")
    if not specifiers.is_range(text):
        raise BadInput(f"{want!r}: {spec!r} is no version range", [f"{name}>=2.7", f"{name}=2.8"])
    return text


def _variant_exists(name: str, variant: str, releases: Sequence[Row], want: str, rules: Rules) -> None:
    newest = max((row["version"] for row in releases), key=dotted.key)
    title = _TITLES.get(name, name)
    if name != "pytorch":
        key = {"jax": "extras", "dali": "wheels"}.get(name, "extra")
        names = list(dict.fromkeys(each for row in releases for each in row[key]))
        if variant not in names:
            form = "{0}[{2}]=={1}" if name == "jax" else "{0}={1}+{2}"
            instead = [form.format(name, newest, each) for each in names]
            raise BadInput(f"{want!r}: {title} {newest} has no variant {variant}", instead)
        return
    minors = {".".join(row["version"].split(".")[:2]) for row in releases}
    existing = [row for row in rules["pytorch"]["variants"] if row["release"] in minors]
    if any(row["variant"] == variant for row in existing):
        return
    index = rules["pytorch"]["index"][0]
    never = variant in index["never"] or variant not in index["existed"]
    names = list(dict.fromkeys(row["variant"] for row in existing))
    reason = "never existed for any release of torch" if never else f"has no wheel of torch {newest}"
    raise BadInput(f"{want!r}: the variant {variant} {reason}", [f"pytorch={newest}+{each}" for each in names])


# libraries ----------------------------------------------------------------------------------------------


def _library(name: str) -> Any:
    """Make the reader of a library that is wished by name, or in one version: nccl, nccl=2.27.7."""

    def read(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
        values[name] = True
        version = _equals(spec, want)
        if version and version != "auto":
            values[f"{name}_version"] = _library_version(name, version, want, rules)

    return read


def _library_version(name: str, version: str, want: str, rules: Rules) -> str:
    """Return the full number of a version that was published: 10.13 gives the newest 10.13."""
    every = [row["version"] for row in rules["libraries"][name]]
    plain = [each for each in every if specifiers.is_version(each)]
    found = [each for each in plain if _VERSION.match(version) and dotted.belongs(each, version)]
    if found:
        return max(found, key=dotted.key)
    near = _around(version, plain) or plain[-3:]
    raise BadInput(
        f"{want!r}: the rules of {rules['generated']} know no {name} {version}", [f"{name}={each}" for each in near]
    )


def _read_cuda_compat(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    del rules
    if _equals(spec, want) not in (None, "auto"):
        text = f"{want!r}: the package follows the CUDA version, it is asked for as cuda-compat=auto"
        raise BadInput(text, ["cuda-compat=auto"])
    values["cuda_compat"] = True


def _read_power_limit(values: dict[str, Any], spec: str, want: str, rules: Rules) -> None:
    del rules
    limit = gpu_settings.power_limit(_equals(spec, want) or "")
    cards = values.get("gpu_settings") or {}
    values["gpu_settings"] = {**cards, "all": {**cards.get("all", {}), "power_limit": limit}}


_READERS: dict[str, Any] = {
    "driver": _read_driver,
    "driver-modules": _choice("driver_modules", _MODULES),
    "driver-source": _choice("driver_source", _SOURCES),
    "driver-set": _choice("driver_set", _SETS),
    "cuda": _read_cuda,
    "cudnn": _read_cudnn,
    "nccl": _library("nccl"),
    "tensorrt": _library("tensorrt"),
    "cuda-compat": _read_cuda_compat,
    "container-toolkit": _read_toolkit,
    "power-limit": _read_power_limit,
    "python": _read_python,
}


# Ansible's variables ------------------------------------------------------------------------------------

VARIABLES = (
    "nvidia_driver_source",
    "nvidia_driver_branch",
    "nvidia_driver_version",
    "nvidia_driver_modules",
    "nvidia_driver_set",
    "nvidia_driver_imex",
    "nvidia_driver_peermem",
    "mig_layout",
    "gpu_settings_cards",
    "nvidia_driver_runfile",
    "nvidia_driver_runfile_sha256",
    "cuda_versions",
    "cuda_cudnn",
    "cuda_nccl",
    "cuda_tensorrt",
    "cuda_compat",
    "container_toolkit_wanted",
    "container_toolkit_version",
    "frameworks_wanted",
    "frameworks_path",
    "frameworks_python",
    "gpuwright_want",
    "gpuwright_gpus_expected",
    "gpuwright_provision_for",
    "gpuwright_gpus_ignore",
    "gpuwright_gpus_pcie_lanes",
    "gpuwright_mirrors",
    "gpuwright_repository_keys",
)


def _known_variables(asked: Mapping[str, Any]) -> None:
    """A wish file speaks of nothing else: a misspelt name there would be silence where an answer is expected."""
    for name in asked:
        if name not in VARIABLES:
            near = difflib.get_close_matches(str(name), VARIABLES, n=3, cutoff=0.4) or list(VARIABLES)
            raise BadInput(f"the wish file names {name!r}, which is no variable of a wish", near)


def _values(variables: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    values: dict[str, Any] = {}
    _driver_variables(values, variables, rules)
    _cuda_variables(values, variables, rules)
    _container_variables(values, variables, rules)
    for want in _list(variables.get("frameworks_wanted"), "frameworks_wanted"):
        _framework_variable(values, str(want), rules)
    if variables.get("frameworks_python") not in _AUTO:
        _read_python(
            values, f"={variables['frameworks_python']}", f"frameworks_python: {variables['frameworks_python']}", rules
        )
    if variables.get("frameworks_path"):
        values["frameworks_path"] = str(variables["frameworks_path"]).rstrip("/")
    _host_variables(values, variables, rules)
    return values


def _driver_variables(values: dict[str, Any], variables: Mapping[str, Any], rules: Rules) -> None:
    for name, choices in (("source", _SOURCES), ("modules", _MODULES), ("set", _SETS)):
        value = variables.get(f"nvidia_driver_{name}")
        if value not in _AUTO:
            _choice(f"driver_{name}", choices)(values, f"={value}", f"nvidia_driver_{name}={value}", rules)
    _runfile_variables(values, variables)
    branch, version = variables.get("nvidia_driver_branch"), variables.get("nvidia_driver_version")
    for name, value in (("branch", branch), ("version", version)):
        if value not in _AUTO:
            values["driver"] = True
            _set_driver(values, str(value), f"nvidia_driver_{name}={value}", rules)
    if branch not in _AUTO and version not in _AUTO and dotted.major(str(version)) != dotted.major(str(branch)):
        instead = f"nvidia_driver_branch={dotted.major(str(version))}"
        raise BadInput(f"nvidia_driver_version {version} is not of nvidia_driver_branch {branch}", [instead])
    values |= datacentre.of_variables(variables)
    values |= gpu_settings.of_variables(variables)


def _runfile_variables(values: dict[str, Any], variables: Mapping[str, Any]) -> None:
    """Read where the driver's file is and what it has to be; both only matter with the source runfile."""
    if variables.get("nvidia_driver_runfile") not in _AUTO:
        values["driver_runfile"] = _bare(str(variables["nvidia_driver_runfile"]), "nvidia_driver_runfile")
    given = variables.get("nvidia_driver_runfile_sha256")
    if given in _AUTO:
        return
    if not re.fullmatch(r"[0-9a-fA-F]{64}", str(given)):
        raise BadInput(f"nvidia_driver_runfile_sha256: expected 64 hexadecimal digits, found {str(given)!r}")
    values["driver_runfile_sha256"] = str(given).lower()


def _cuda_variables(values: dict[str, Any], variables: Mapping[str, Any], rules: Rules) -> None:
    versions = variables.get("cuda_versions")
    for version in [] if versions in _AUTO else _list(versions, "cuda_versions"):
        _read_cuda(values, f"={version}", f"cuda_versions: {version}", rules)
    for name in ("cudnn", "nccl", "tensorrt"):
        _library_variable(values, name, variables.get(f"cuda_{name}"), rules)
    compat = variables.get("cuda_compat")
    # "auto" means here what it means on the command line: where it is useful.
    if compat is True or str(compat).lower() in ("true", "yes", "auto"):
        values["cuda_compat"] = True


def _library_variable(values: dict[str, Any], name: str, value: Any, rules: Rules) -> None:
    """Read a library of the toolkit: true, a version, or nothing."""
    if value is True or str(value).lower() in ("true", "yes"):
        values[name] = True
    elif value not in _AUTO and str(value).lower() not in ("false", "no"):
        _READERS[name](values, f"={value}", f"cuda_{name}: {value}", rules)


def _container_variables(values: dict[str, Any], variables: Mapping[str, Any], rules: Rules) -> None:
    wanted, version = variables.get("container_toolkit_wanted"), variables.get("container_toolkit_version")
    if wanted is True or str(wanted).lower() in ("true", "yes"):
        values["container_toolkit"] = True
    if version not in _AUTO:
        _read_toolkit(values, f"={version}", f"container_toolkit_version: {version}", rules)


def _framework_variable(values: dict[str, Any], want: str, rules: Rules) -> None:
    written = re.split(r"[\[=<>!~]", want, maxsplit=1)[0].strip().lower().replace("_", "-")
    if _ALIASES.get(written, written) in _READERS:
        raise BadInput(f"frameworks_wanted: {want!r} is no framework", list(_FRAMEWORKS))
    _add_want(values, want, rules)


def _expected_cards(expected: Any, rules: Rules) -> dict[str, Any]:
    """Read which cards have to be there: their number, or their names."""
    if isinstance(expected, str) and expected.strip().isdecimal():
        expected = int(expected)  # `-e name=2` and an INI inventory know only texts
    if isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0:
        return {"gpus_expected": expected}
    if expected in _AUTO:
        return {}
    names = [] if expected is True else [str(item) for item in _list(expected, "gpuwright_gpus_expected")]
    strange = next((name for name in names if not gpus.is_known(name, rules)), expected if not names else None)
    if strange is not None:
        text = f"gpuwright_gpus_expected has to be a number of cards or their names, found {strange!r}"
        raise BadInput(text, gpus.suggest(str(strange), rules))
    return {"gpus_expected": tuple(names)}


def _host_variables(values: dict[str, Any], variables: Mapping[str, Any], rules: Rules) -> None:
    for key in ("gpus_ignore", "provision_for"):
        items = variables.get(f"gpuwright_{key}")
        if items:
            values[key] = tuple(str(item) for item in _list(items, f"gpuwright_{key}"))
    values |= _expected_cards(variables.get("gpuwright_gpus_expected"), rules)
    values["gpus_pcie_lanes"] = _lanes(variables.get("gpuwright_gpus_pcie_lanes"))
    for key in ("mirrors", "repository_keys"):
        mapping = variables.get(f"gpuwright_{key}") or {}
        if not isinstance(mapping, Mapping):
            raise BadInput(
                f"gpuwright_{key} has to be a mapping of upstream name to value, found {type(mapping).__name__}"
            )
        if mapping:
            values[key] = {
                str(name): _of_upstream(f"gpuwright_{key}", name, value, rules) for name, value in mapping.items()
            }
    mirrors = values.get("mirrors", {})
    for name, url in mirrors.items():
        mirrors[name] = _bare(url, f"gpuwright_mirrors: {name}")


def _of_upstream(variable: str, name: Any, value: Any, rules: Rules) -> str:
    """Return what a variable says of one upstream: of those that the rules name, and of the index that pip takes by itself."""
    known = [*(str(row["name"]) for row in rules["upstreams"]["rows"]), "pypi"]
    if name not in known:
        near = [f"did you mean {each}?" for each in difflib.get_close_matches(str(name), known, 1)]
        raise BadInput(f"{variable}: there is no upstream {name!r}, expected one of {', '.join(known)}", near)
    if isinstance(value, (Mapping, list, tuple)) or value is None:
        raise BadInput(f"{variable} of {name} has to be a text")
    return str(value).rstrip("/")


def _lanes(value: Any) -> dict[str, int]:
    """Return the PCIe lanes that are right for each card's slot; a number alone speaks for all cards."""
    if value in (None, "", "auto"):
        return {}
    lanes = value if isinstance(value, Mapping) else {"all": value}
    for card, count in lanes.items():
        if str(count) not in _LANES:
            example = "gpuwright_gpus_pcie_lanes: {'0000:65:00.0': 4, all: 16}"
            raise BadInput(
                f"gpuwright_gpus_pcie_lanes of {card}: expected {', '.join(_LANES)} lanes, found {count!r}", [example]
            )
    return {str(card): int(count) for card, count in lanes.items()}


def _bare(url: str, name: str) -> str:
    """Return an address without its credentials: what is resolved is recorded. See credentials.py."""
    try:
        redact.credentials(url)
    except redact.CredentialsError as error:
        raise BadInput(f"{name}: {error}") from None
    return redact.without_credentials(url)


def _list(value: Any, name: str) -> list[Any]:
    """Return a list; a single text is a list of one, written with commas a list of several."""
    if value in _AUTO:
        return []
    if isinstance(value, str):
        # Not every comma parts two wishes: "pytorch>=2.7,<2.10" is one.
        return [part.strip() for part in re.split(r",\s*(?=[A-Za-z])", value) if part.strip()]
    if isinstance(value, (int, float)):
        return [value]
    if isinstance(value, Sequence):
        return list(value)
    raise BadInput(f"{name} has to be a list, found {type(value).__name__}")
