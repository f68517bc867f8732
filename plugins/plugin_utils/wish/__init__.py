# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a person wishes: from --want, from a wish file, from Ansible's variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from ansible_collections.gpuwright.node.plugins.module_utils import frameworks
from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, paths
from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings

from ..model.errors import BadInput
from ..model.monitoring_server import ServerSettings
from ..model.wish import FrameworkWish, Project, Requirement, Values
from ..rules import Row, Rules, companions, gpus, load_rules
from . import (
    container_toolkit,
    contradiction,
    cuda,
    exactness,
    fabric,
    gpu_log,
    gpu_settings,
    mig,
    monitoring_exporters,
    monitoring_server,
    nvidia_driver,
    projects,
    specifiers,
    spoken,
    watch,
)
from .fleet import Exporters
from .monitoring_exporters import MonitoringSettings
from .monitoring_exporters_fleet import VARIABLES as FLEET_VARIABLES
from .monitoring_exporters_fleet import exporters as exporters_of_fleet
from .reading import ANY, AUTO, Variables, Words, around, as_list, bare, equals, is_no, is_outside, is_yes
from .watch import WatchSettings

__all__ = ["DEFAULT_WANTS", "FLEET_VARIABLES", "WORDS", "BadInput", "FrameworkWish", "Wish"]

FRAMEWORKS_PATH = "/opt/gpuwright"

_WANT = re.compile(
    r"^\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*?)\s*(?:\+(?P<variant>[A-Za-z]+\d*))?(?:\[(?P<extras>[^\]]*)\])?"
    r"\s*(?:@\s*(?P<environment>[^\s=<>!~]*))?\s*(?P<spec>(?:[=<>!~].*)?)\s*$"
)
# A name of an environment is one of a directory, and of a Jupyter kernel.
_ENVIRONMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", re.ASCII)
_ONE_EQUALS = re.compile(r"^=(?!=)")
_BEHIND = re.compile(r"^(?P<spec>[^@]*?)\s*@\s*(?P<environment>[^@]*)$")
_PLAIN = re.compile(r"^=?=\s*(?P<version>\d+(?:\.\d+)*)(?:\.\*)?(?:\+(?P<variant>[a-z]+\d*))?$", re.ASCII)
_BUILT = re.compile(r"^=?=\s*(?P<version>\d+(?:\.\d+)*)\+(?P<local>[A-Za-z0-9.]+)$", re.ASCII)
# What apt, dnf, pip, uv and we fetch from alike; a path alone is an address to none of them.
_ADDRESS = re.compile(r"^(?:https?://[^/\s]+|file:///)", re.IGNORECASE)
# The key of gpuwright_mirrors that stands for all mirrors of a region.
_REGION = "region"
_LANES = ("1", "2", "4", "8", "16")
_PROJECT, _PYTHON = "project", "python"
# How near a name has to be for that it was meant, as difflib counts: containerd-toolkit is, transformers is not tensorrt.
_NEAR = 0.7
_IN_A_FILE = "a package of the Python index goes into a project's file, beside a framework: pytorch@NAME and project@NAME=requirements.txt"


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
    mig: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpu_settings: Mapping[str, Settings] = field(default_factory=dict)
    gpu_log: int | str | None = None
    """Days, minutes; ANY where no number is said"""
    watch: int | str | None = None
    watch_settings: WatchSettings = field(default_factory=WatchSettings)
    fabric: tuple[str, ...] = ()
    fabric_ports: str | None = None
    monitoring_exporters: str | None = None
    monitoring_exporters_settings: MonitoringSettings = field(default_factory=MonitoringSettings)
    monitoring_server: bool = False
    monitoring_server_settings: ServerSettings | None = None
    fleet: tuple[Exporters, ...] = ()
    """Hosts of the inventory that a server of metrics asks; known only where the whole inventory is"""
    driver_runfile: str | None = None
    driver_runfile_sha256: str | None = None
    cuda: bool = False
    cuda_versions: tuple[str, ...] = ()
    cudnn: bool = False
    cudnn_version: str | None = None
    cudnn_source: str | None = None
    cudnn_sha256: str | None = None
    nccl: bool = False
    nccl_version: str | None = None
    nccl_source: str | None = None
    tensorrt: bool = False
    tensorrt_version: str | None = None
    tensorrt_source: str | None = None
    cuda_compat: bool = False
    cuda_default: str | None = None
    cuda_modulefiles: bool = False
    cuda_source: str | None = None
    cuda_runfile: str | None = None
    cuda_runfile_sha256: str | None = None
    container_toolkit: bool = False
    container_toolkit_version: str | None = None
    container_toolkit_engine: str | None = None
    container_toolkit_engine_source: str | None = None
    container_toolkit_docker: Mapping[str, object] = field(default_factory=dict)
    container_toolkit_rootless: tuple[str, ...] = ()
    container_toolkit_images: tuple[str, ...] = ()
    frameworks: tuple[FrameworkWish, ...] = ()
    projects: tuple[Project, ...] = ()
    by_hand: tuple[str, ...] = ()
    """What is used with frameworks and installed by hand: asked for so that it is told how"""
    jupyter: bool = False
    python: str | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)
    """By the name of an environment: the one that it has in place of `python`"""
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
        return not any(getattr(self, each) for words in WORDS for each in words.brings if each not in words.besides)

    @property
    def cpu(self) -> bool:
        """Say whether a framework for the CPU is asked for by its variant, as in torch==2.14.1+cpu."""
        return any(framework.variant == "cpu" for framework in self.frameworks)

    @property
    def metrics(self) -> str:
        """Where metrics lie that the watch writes and the exporter of the machine reads: either may be there without the other."""
        return self.watch_settings.textfile_directory or paths.METRICS

    @property
    def opens_firewall(self) -> bool:
        """Say whether rules of the machine's firewall are asked for: only then they are looked at."""
        return bool(self.fabric or self.monitoring_exporters)

    @property
    def listens(self) -> dict[str, object]:
        """What is looked at where exporters or their server are wished: their ports, and the certificate that the exporters shall have."""
        exporters = self.monitoring_exporters_settings if self.monitoring_exporters else None
        ports = monitoring_exporters.ports(exporters) if exporters else []
        if self.monitoring_server:
            ports += monitoring_server.ports(self.monitoring_server_settings).values()
        return {**({"ports": ports} if ports else {}), **(monitoring_exporters.pair(exporters) if exporters else {})}

    @property
    def asks_fleet(self) -> bool:
        """Say whether other hosts of the inventory matter: a server asks them for their metrics."""
        return self.monitoring_server

    def with_fleet(self, hosts: Mapping[str, Variables], host: str) -> Wish:
        """Return the wish of ``host`` with what every host of the inventory says in FLEET_VARIABLES. Raises BadInput."""
        return replace(self, fleet=exporters_of_fleet(hosts, host))

    @property
    def images(self) -> bool:
        """Say whether images of containers are asked for: only then it matters which of them are there."""
        return bool(self.container_toolkit_images)

    @classmethod
    def from_wants(cls, wants: Iterable[str], rules: Rules | None = None) -> Wish:
        """Read what --want gives, each as people write it. Raises BadInput for what does not exist, and for what says two things of one."""
        known = rules or load_rules()
        values: Values = {}
        said = contradiction.Said()
        for want in wants:
            for each in _VOCABULARY.wants(str(want)):
                _add_want(values, each, known)
            said.take(values, str(want))
        return cls(**values)

    @classmethod
    def from_variables(cls, variables: Variables, rules: Rules | None = None) -> Wish:
        """Read Ansible's variables; gpuwright_wish wins over them, gpuwright_want over both, what is said more exactly over all.

        Raises BadInput for what does not exist, and for a wish file that says two things of one.
        """
        known = rules or load_rules()
        asked = variables.get("gpuwright_wish") or {}
        if not isinstance(asked, Mapping):
            raise BadInput(f"gpuwright_wish has to be a mapping of variables, found {type(asked).__name__}")
        _known_variables(asked)
        _refuse_two_meanings(asked, known)
        wish = cls(**_values({**variables, **asked}, known))
        wants = variables.get("gpuwright_want") or asked.get("gpuwright_want") or []
        return wish.overlaid(cls.from_wants(as_list(wants, "gpuwright_want"), known).as_exact_as(wish))

    def as_exact_as(self, other: Wish) -> Wish:
        """Return this wish with what the other one says more exactly of the same: a name without a version, or the branch of one, takes
        nothing away.
        """
        changes = {
            f.name: getattr(other, f.name)
            for f in fields(self)
            if getattr(self, f.name) == ANY and _says(other, f.name)
        }
        if (
            self.driver_branch
            and not self.driver_version
            and exactness.is_within(other.driver_version, self.driver_branch)
        ):
            changes["driver_version"] = other.driver_version
        if self.cuda:
            changes["cuda_versions"] = (
                exactness.versions(other.cuda_versions, self.cuda_versions) or other.cuda_versions
            )
        changes["frameworks"] = exactness.frameworks(other.frameworks, self.frameworks)
        return replace(self, **changes)

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
        # Who names only where toolkits come from says nothing of their versions.
        if other.cuda and not other.cuda_source:
            changes["cuda_versions"] = other.cuda_versions
        # Frameworks and what a project asks beside them are one list.
        if other.frameworks:
            changes["projects"] = other.projects
        # A Python goes with its environment.
        stays = {each.directory for each in other.frameworks} | {each.environment for each in other.projects}
        mine = {name: python for name, python in self.pythons.items() if name in stays or not other.frameworks}
        changes["pythons"] = {**mine, **other.pythons}
        return replace(self, **changes)

    def with_defaults(self, rules: Rules | None = None, wants: Sequence[str] | None = None) -> Wish:
        """Return DEFAULT_WANTS, or other `wants`, where nothing is wished by name, else the wish itself."""
        default = DEFAULT_WANTS if wants is None else wants
        return self.overlaid(Wish.from_wants(default, rules)) if self.nothing_wished else self

    def with_roles(self, components: Iterable[str], rules: Rules | None = None) -> Wish:
        """Return the wish with what roles of these names bring: who uses a role alone wishes it, whatever else is wished by name."""
        by_component = {words.component: words for words in WORDS}
        brought = [by_component[name] for name in components if name in by_component]
        lacking = [each.want for each in brought if each.want and not any(getattr(self, part) for part in each.brings)]
        return self.overlaid(Wish.from_wants(lacking, rules))


def words_of(want: str) -> Words:
    """Return the words of the component that a want names. Raises BadInput for one that names none."""
    match = _WANT.match(_VOCABULARY.wants(want)[0])
    name, _variant = _named(match["name"].lower().replace("_", "-") if match else "")
    found = next((words for words in WORDS if name in words.readers), _FRAMEWORKS if name in frameworks.ABOUT else None)
    if found is None:
        raise BadInput(f"unknown component in the want {want!r}", [_COMPONENTS])
    return found


def _is_of_framework(name: str) -> bool:
    return _named(name)[0] in frameworks.ABOUT


# --want ------------------------------------------------------------------------------------------------


def _add_want(values: Values, want: str, rules: Rules) -> None:
    match = _WANT.match(want)
    if not match:
        raise BadInput(f"cannot read the want {want!r}: write NAME or NAME=VERSION", [_COMPONENTS])
    written = match["name"].lower().replace("_", "-")
    name, variant = _named(written)
    if name in frameworks.ABOUT:
        _add_of_framework(values, frameworks.ABOUT[name], variant, match, rules)
        return
    extras, spec, named = match["extras"], match["spec"].strip(), match["environment"]
    if match["variant"]:
        raise BadInput(f"{want!r}: only frameworks have builds such as +{match['variant']}", [name + spec])
    if name not in _READERS and companions.of(written, rules):
        asked = _ONE_EQUALS.sub("==", _BEHIND.sub(r"\g<spec>", spec))
        values["by_hand"] = tuple(dict.fromkeys((*values.get("by_hand", ()), _by_hand(written + asked, want))))
        return
    reader = _READERS.get(name)
    if reader is None:
        _unknown(name, spec, want, rules)
    elif name == _PROJECT:
        _add_project(values, spec, _environment(named, want), want, rules)
    elif name == _PYTHON:
        behind = _BEHIND.match(spec)
        _add_python(values, behind["spec"] if behind else spec, behind["environment"] if behind else named, want)
    elif named is not None:
        text = f"{want!r}: only frameworks, projects and their Python have environments, {name} has none"
        raise BadInput(text, [name + spec])
    elif extras:
        raise BadInput(f"{name} takes no extra: {want!r}", [name + spec])
    else:
        reader(values, spec, want, rules)


def _add_of_framework(
    values: Values, about: frameworks.About, variant: str | None, match: re.Match[str], rules: Rules
) -> None:
    """Read a want of a framework. ``variant``: the one that its name holds."""
    want, spec, named = match.string, match["spec"].strip(), match["environment"]
    behind = _BEHIND.match(spec)
    if behind and named is None:
        spec, named = behind["spec"], behind["environment"]
    variant = _variant_of_name(about, match["variant"], want, rules) or variant
    wished = _framework(
        about, _variant_of_extras(about, match["extras"], spec, want, rules) or variant, spec, want, rules
    )
    _add_framework(values, replace(wished, environment=_environment(named, want, about.name)))


def _by_hand(asked: str, want: str) -> str:
    """Return what is asked for beside the frameworks as pip writes it. Raises BadInput for what pip could not read."""
    try:
        parsed = projects.parsed(Requirement(asked, repr(want)))
    except BadInput as error:
        raise BadInput(f"{want!r}: cannot read what is asked of its version", ["NAME or NAME==VERSION"]) from error
    return f"{parsed.name}{parsed.specifier}"


def _named(name: str) -> tuple[str, str | None]:
    """Return the one name of what people call differently, and the variant that a name such as nvidia-dali-cuda120 holds."""
    for each in frameworks.ABOUT.values():
        package = re.fullmatch(each.variant_in_name, name) if each.variant_in_name else None
        if package:
            return each.name, package[1]
    return next((each.name for each in frameworks.ABOUT.values() if name in each.aliases), name), None


def _unknown(name: str, spec: str, want: str, rules: Rules) -> None:
    """Say what exists instead of a name that does not; always raises BadInput."""
    row = next((each for each in rules["frameworks"]["never"] if name == each["name"]), None)
    if row is None:
        near = difflib.get_close_matches(name, _NAMES, n=3, cutoff=_NEAR)
        raise BadInput(f"unknown component {name!r} in the want {want!r}", near or [_IN_A_FILE, _COMPONENTS])
    raise BadInput(
        f"{want!r}: there is no {row['name']} to install, it ended in a package that only raises an error",
        _next_to(row["instead"], spec, rules) or [row["instead"]],
    )


def _next_to(instead: str, spec: str, rules: Rules) -> list[str]:
    """Return what comes instead, in the newest release of the minor version that was asked for; empty where that has none."""
    asked, named = _PLAIN.match(spec), _WANT.match(instead)
    if not asked or not named:
        return []
    about, variant = frameworks.ABOUT[named["name"]], named["extras"]
    minor = ".".join(asked["version"].split(".")[:2])
    found = [
        row["version"]
        for row in _every_release(about, rules)
        if variant in _variants(row, about) and _offered(row) and numeric_version.belongs(row["version"], minor)
    ]
    return [about.pinned(max(found, key=numeric_version.key), variant)] if found else []


def _environment(written: str | None, want: str, framework: str = "") -> str | None:
    """Return the name of an environment; None where none is named, or a framework's own. Raises BadInput for what cannot be one."""
    if written is None or written == framework:
        return None
    if not _ENVIRONMENT.match(written):
        raise BadInput(
            f"{want!r}: a name of an environment has letters, digits and . _ - in it, found {written!r}",
            ["pytorch@research"],
        )
    if written in frameworks.ABOUT:
        title = frameworks.ABOUT[written].title
        raise BadInput(f"{want!r}: {written} is the environment of {title} alone", [f"{framework}@research"])
    return written


def _add_framework(values: Values, wished: FrameworkWish) -> None:
    """Put a framework into a wish, together with what was wished of it before. Raises BadInput where a person says different things of it;
    what a project asks has to hold besides.
    """
    there = values.get("frameworks", ())
    same = next((each for each in there if each.key == wished.key and not _by_turns(each, wished)), None)
    others = tuple(each for each in there if each is not same)
    error = contradiction.of_framework(same, wished) if same and not (same.origin or wished.origin) else None
    if error:
        raise error
    values["frameworks"] = (*others, _both(same, wished) if same else wished)


def _by_turns(one: FrameworkWish, other: FrameworkWish) -> bool:
    """Say whether a project asks for two versions of a framework under different markers, each on other machines."""
    return bool(one.origin and other.origin) and one.marker != other.marker


def _both(one: FrameworkWish, other: FrameworkWish) -> FrameworkWish:
    """Return the wish for what satisfies two."""
    return replace(
        other,
        specifier=",".join(dict.fromkeys(filter(None, [one.specifier, other.specifier]))),
        variant=other.variant or one.variant,
        text=" and ".join(dict.fromkeys(filter(None, [one.text, other.text]))),
        marker=one.marker if one.marker == other.marker else "",
        origin=other.origin or one.origin,
    )


def _add_project(values: Values, spec: str, environment: str | None, want: str, rules: Rules) -> None:
    """Read a project's file: what it says of frameworks is wished of them, the rest is installed beside them."""
    path = re.sub(r"^==?\s*", "", spec)
    if not path:
        raise BadInput(f"{want!r}: expected the file that says what the project requires", ["project=requirements.txt"])
    whole = projects.read(path, environment)
    before = values.get("projects", ())
    if any(each.environment == whole.environment for each in before):
        raise BadInput(
            f"{want!r}: the environment {whole.environment} has a project already",
            [f"project@research={path}", "one requirements.txt that names both files by -r"],
        )
    rest = [each for each in whole.requirements if not _is_framework(values, each, whole.environment, rules)]
    notes = (*whole.notes, *_of_one_set(whole.requirements))
    values["projects"] = (*before, replace(whole, requirements=tuple(rest), notes=notes))


def _of_one_set(requirements: Iterable[Requirement]) -> Iterator[Requirement]:
    """Yield what a person has to know of lines that name several packages with the same files."""
    named = [(projects.parsed(each).name.lower().replace("_", "-"), each.origin) for each in requirements]
    for about in frameworks.ABOUT.values():
        found = {name: origin for name, origin in named if about.one_of and re.fullmatch(about.one_of, name)}
        if len(found) > 1:
            told = " and ".join(f"{name} ({origin})" for name, origin in found.items())
            text = f"{told} have the same files, and the last one would be loaded: only {about.title} for this machine is installed"
            origin, *_others = found.values()
            yield Requirement(text, origin)


def _is_framework(values: Values, requirement: Requirement, environment: str, rules: Rules) -> bool:
    """Say whether a requirement is of a framework, and wish for that then."""
    parsed = projects.parsed(requirement)
    name, variant = _named(parsed.name.lower().replace("_", "-"))
    about = frameworks.ABOUT.get(name)
    if about is None:
        if any(each["name"] == name for each in rules["frameworks"]["never"]):
            _unknown(name, str(parsed.specifier), f"{parsed.name}{parsed.specifier} ({requirement.origin})", rules)
        return False
    text, marker = f"{parsed.name}{parsed.specifier} ({requirement.origin})", str(parsed.marker or "")
    extras = next((each for each in sorted(parsed.extras) if each.lower().replace("_", "-") in about.extras), None)
    wished = _framework(about, extras or variant or _variant_of(requirement, about), str(parsed.specifier), text, rules)
    wished = replace(wished, environment=environment, marker=marker, origin=requirement.origin)
    _add_framework(values, wished)
    return True


def _variant_of(requirement: Requirement, about: frameworks.About) -> str | None:
    """Return the variant that the index of a requirement means, where the framework's releases are parted by such."""
    return requirement.variant if about.local else None


def project_of(want: str) -> Project | None:
    """Return what a want reads of a project's file, the frameworks among it; None where it asks for something else. Raises BadInput."""
    match = _WANT.match(want)
    if not match or match["name"].lower() != _PROJECT:
        return None
    return projects.read(re.sub(r"^==?\s*", "", match["spec"]), _environment(match["environment"], want))


def _read_project(values: Values, spec: str, want: str, rules: Rules) -> None:
    _add_project(values, spec, None, want, rules)


def _read_jupyter(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    if spec and equals(spec, want) not in ("true", "yes", "auto"):
        raise BadInput(f"{want!r}: a Jupyter kernel has no version here, it is wished or not", ["jupyter"])
    values["jupyter"] = True


def _read_python(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    _add_python(values, spec, None, want)


def _add_python(values: Values, spec: str, environment: str | None, want: str) -> None:
    """Read the Python of all environments, or of one: by its name, which is a framework's where that has one of its own."""
    version = equals(spec, want)
    if not version or not re.match(r"^3\.\d+$", version):
        raise BadInput(f"{want!r}: expected a version such as python=3.12", ["python=3.12", "python=3.12@research"])
    if environment is None:
        values["python"] = version
        return
    if environment not in frameworks.ABOUT:
        _environment(environment, want)
    values["pythons"] = {**values.get("pythons", {}), environment: version}


# frameworks ---------------------------------------------------------------------------------------------


def _every_release(about: frameworks.About, rules: Rules) -> list[Row]:
    table, rows = about.releases
    found: list[Row] = rules[table][rows]
    return found


def _variants(row: Row, about: frameworks.About) -> list[str]:
    """Return the variants that a release names itself."""
    named = row[about.variants]
    return list(filter(None, [named] if isinstance(named, str | None) else named))


def _variant_of_name(about: frameworks.About, variant: str | None, want: str, rules: Rules) -> str | None:
    """Return the variant that stands behind a name, as in pytorch+cu121. One that no release is built in is BadInput."""
    if variant is None or variant == frameworks.CPU:
        return variant
    rows = _every_release(about, rules)
    named = [each for row in rows for each in _variants(row, about)] if about.variants else []
    builds = named or [row["variant"] for row in rules[about.releases[0]].get("variants", ())]
    if not about.local or variant not in builds:
        text = f"{want!r}: no release of {about.package} that is known is a build +{variant}"
        raise BadInput(
            text, [f"{about.name}+{each}" for each in reversed(dict.fromkeys(builds))] if about.local else [about.name]
        )
    return variant


def _variant_of_extras(about: frameworks.About, extras: str | None, spec: str, want: str, rules: Rules) -> str | None:
    """Return the variant that an extra names. One that does not exist is BadInput."""
    if not extras:
        return None
    name = about.name
    extra = extras.strip().lower().replace("_", "-")
    for row in rules["frameworks"]["extras"]:
        if row["framework"] == name and extra == row["extra"].replace("_", "-"):
            exact = _PLAIN.match(spec)
            if exact and not _releases(about, exact["version"], f"=={exact['version']}", want, rules):
                # That the release is older than the tables is the reason before that of the extra of its time.
                return None
            raise BadInput(
                f"{want!r}: the extra [{extras}] does not exist any more, it is {row['instead']} now",
                [each + spec for each in row["instead"].split(" or ")],
            )
    if extra not in about.extras:
        known = ", ".join(f"[{each}]" for each in about.extras) or "none"
        instead = [f"{name}[{each}]{spec}" for each in about.extras] or [name + spec]
        raise BadInput(f"{want!r}: the extra [{extras}] is not served, {name} takes {known}", instead)
    return extra


def _framework(about: frameworks.About, variant: str | None, spec: str, want: str, rules: Rules) -> FrameworkWish:
    """Read "", "=2.8", "==2.3.0+cu121", ">=2.7,<2.10"; a release or variant that never existed is BadInput."""
    name = about.name
    if not spec or spec in ("=auto", "==auto"):
        return FrameworkWish(name, "", variant, want)
    exact = _PLAIN.match(spec)
    built = _BUILT.match(spec) if not exact else None
    if built:
        raise _no_such_build(about, built["version"], built["local"], want, rules)
    if not exact:
        return FrameworkWish(name, _specifier(name, spec, want), variant, want)
    if exact["variant"] and not about.local:
        raise BadInput(f"{want!r}: releases of {name} have no variant such as +cu121", [f"{name}={exact['version']}"])
    version, variant = exact["version"], exact["variant"] or variant
    specifier = f"=={version}" if len(numeric_version.key(version)) > 2 else f"=={version}.*"
    releases = _releases(about, version, specifier, want, rules)
    if releases and variant and variant != frameworks.CPU and not about.one_build:
        _variant_exists(about, variant, releases, want, rules)
    return FrameworkWish(name, specifier, variant, want)


def _no_such_build(about: frameworks.About, version: str, local: str, want: str, rules: Rules) -> BadInput:
    """Return the error for a build of one's own, such as jaxlib==0.4.30+cuda12.cudnn89: it is on no index that is asked."""
    rows = [row for row in _every_release(about, rules) if row["version"] == version and _offered(row)]
    named = [each for row in rows for each in (_variants(row, about) if about.variants else [])]
    variants = [each for each in named if each in about.extras] or list(about.extras)
    how = "what its CUDA is, a variant such as +cu126 says" if about.local else "what its CUDA is, an extra says"
    several: list[str | None] = [*variants] or [None]
    again = [about.asked(version, each) if rows else about.with_variant(each) for each in several]
    return BadInput(f"{want!r}: no release of {about.package} that is served is a build +{local}; {how}", again)


def _releases(about: frameworks.About, version: str, specifier: str, want: str, rules: Rules) -> list[Row]:
    """Return the rows of the releases that an exact wish means; none of one that is older or newer than what the tables know."""
    every = [row for row in _every_release(about, rules) if specifiers.is_version(row["version"])]
    found = [row for row in every if specifiers.matches(row["version"], specifier)]
    good = [row for row in found if _offered(row)]
    if good:
        return good
    title = about.package
    usable = list(dict.fromkeys(row["version"] for row in every if _offered(row)))
    if any(row.get("yanked") for row in found):
        reason = f"{title} {version} was withdrawn"
    elif found:
        reason = f"{title} {version} has no wheels on the package index, only a stub that fails to install"
    elif is_outside(version, [row["version"] for row in every]):
        return []
    else:
        reason = f"there is no {title} {version}"
    raise BadInput(f"{want!r}: {reason}", [f"{about.name}={each}" for each in around(version, usable)])


def _offered(row: Row) -> bool:
    """Say whether a release can be installed: not withdrawn, and real wheels."""
    return not row.get("yanked") and bool(row.get("real", True))


def _specifier(name: str, spec: str, want: str) -> str:
    text = re.sub(r"^=(?!=)", "==", spec).replace(" ", "")
    if not specifiers.is_range(text):
        raise BadInput(f"{want!r}: {spec!r} is no version range", [f"{name}>=2.7", f"{name}=2.8"])
    return text


def _variant_exists(about: frameworks.About, variant: str, releases: Sequence[Row], want: str, rules: Rules) -> None:
    newest, title = max((row["version"] for row in releases), key=numeric_version.key), about.package
    if about.variants:
        names = list(dict.fromkeys(each for row in releases for each in _variants(row, about)))
        reason = f"{title} {newest} has no variant {variant}"
    else:
        table = rules[about.releases[0]]
        minors = {".".join(row["version"].split(".")[:2]) for row in releases}
        names = list(dict.fromkeys(row["variant"] for row in table["variants"] if row["release"] in minors))
        index = table["index"][0]
        never = variant in index["never"] or variant not in index["existed"]
        why = f"never existed for any release of {title}" if never else f"has no wheel of {title} {newest}"
        reason = f"the variant {variant} {why}"
    if variant not in names:
        raise BadInput(f"{want!r}: {reason}", [about.asked(newest, each) for each in names])


def _framework_variables(values: Values, variables: Variables, rules: Rules) -> None:
    for want in as_list(variables.get("frameworks_wanted"), "frameworks_wanted"):
        _framework_variable(values, str(want), rules)
    _environment_variables(values, variables, rules)
    if not is_no(variables.get("frameworks_jupyter")):
        if not is_yes(variables["frameworks_jupyter"]):
            raise BadInput(f"frameworks_jupyter has to be true or false, found {variables['frameworks_jupyter']!r}")
        values["jupyter"] = True
    if variables.get("frameworks_python") not in AUTO:
        _read_python(
            values, f"={variables['frameworks_python']}", f"frameworks_python: {variables['frameworks_python']}", rules
        )
    if variables.get("frameworks_path"):
        values["frameworks_path"] = str(variables["frameworks_path"]).rstrip("/")


def _environment_variables(values: Values, variables: Variables, rules: Rules) -> None:
    """Read the project of the variables, and their named environments with what is wished of each."""
    project = variables.get("frameworks_project")
    if project not in AUTO:
        _add_project(values, f"={project}", None, f"frameworks_project: {project}", rules)
    named = variables.get("frameworks_environments") or {}
    if not isinstance(named, Mapping):
        raise BadInput(
            f"frameworks_environments has to be a mapping of names to lists of wishes, found {type(named).__name__}",
            ["frameworks_environments: {research: [pytorch, project=requirements.txt]}"],
        )
    for name, wants in named.items():
        for want in as_list(wants, f"frameworks_environments of {name}"):
            _framework_variable(values, _within(str(want), str(name)), rules, "frameworks_environments")


def _within(want: str, environment: str) -> str:
    """Return a wish for a named environment. Raises BadInput where it names another one."""
    match = _WANT.match(want)
    if not match:
        raise BadInput(f"frameworks_environments: cannot read {want!r}", list(frameworks.ABOUT))
    if match["environment"] is not None:
        text = f"frameworks_environments: {want!r} stands in {environment} and names an environment itself"
        raise BadInput(text, [want.replace(f"@{match['environment']}", "")])
    extras = f"[{match['extras']}]" if match["extras"] else ""
    return f"{match['name']}{extras}@{environment}{match['spec']}"


#: What a user has without root in place of a kernel that all users see.
_OWN_KERNEL = "in the environment: pip install ipykernel, then python -m ipykernel install --user"
#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "conda miniconda anaconda mamba micromamba miniforge venv virtualenv uv pip poetry",
        "environments are made here from the Python and the files that are asked for, without conda",
        ("python=3.12", "project=requirements.txt"),
    ),
    ("jupyterlab jupyterhub notebook", "the environments become kernels of the Jupyter that is there", ("jupyter",)),
    (
        "pytorch-cuda cuda-version cu111 cu113 cu116 cu117 cu118 cu121 cu124 cu126 cu128 cu129 cu130 cu132",
        "the CUDA of a PyTorch is part of its version",
        (f"{frameworks.DEFAULT}{{variant}}",),
    ),
    (
        "pytorch-nightly torch-nightly",
        "nightly builds leave the index again, so none is installed",
        (frameworks.DEFAULT,),
    ),
    (
        "all everything gpu nvidia ml ai deep-learning default",
        "without any want a machine gets driver, toolkit, container toolkit and PyTorch",
        ("driver", "container-toolkit", frameworks.DEFAULT),
    ),
)
_FRAMEWORKS = Words(
    "frameworks",
    frameworks.DEFAULT,
    brings=("frameworks", "projects", "by_hand"),
    by_default=True,
    readers={_PROJECT: _read_project, "jupyter": _read_jupyter, _PYTHON: _read_python},
    variables=(
        "frameworks_wanted",
        "frameworks_environments",
        "frameworks_project",
        "frameworks_jupyter",
        "frameworks_path",
        "frameworks_python",
    ),
    of_host=("frameworks_path",),
    of_users=True,
    of_root=dict.fromkeys(("jupyter", "frameworks_jupyter"), _OWN_KERNEL),
    read=_framework_variables,
    told=_TOLD,
)
WORDS = (
    nvidia_driver.WORDS,
    mig.WORDS,
    gpu_settings.WORDS,
    cuda.WORDS,
    container_toolkit.WORDS,
    _FRAMEWORKS,
    gpu_log.WORDS,
    watch.WORDS,
    fabric.WORDS,
    monitoring_exporters.WORDS,
    monitoring_server.WORDS,
)
_READERS = {name: reader for words in WORDS for name, reader in words.readers.items()}
_NAMES = (*(name for name in _READERS if name != "python"), *frameworks.ABOUT, "python")
_VOCABULARY = spoken.Vocabulary(
    aliases={alias: name for words in WORDS for alias, name in words.aliases.items()},
    told=(*(words.told for words in WORDS), spoken.ELSEWHERE),
    packages=[words.packages for words in WORDS],
    known=lambda name: name in _READERS or _is_of_framework(name),
    of_framework=_is_of_framework,
)
_COMPONENTS = f"components: {', '.join(_NAMES)}"
#: What is wished where nothing is wished by name.
DEFAULT_WANTS = [words.want for words in WORDS if words.by_default and words.want]


# Ansible's variables ------------------------------------------------------------------------------------

VARIABLES = (
    *(variable for words in WORDS for variable in words.variables),
    "gpuwright_want",
    "gpuwright_gpus_expected",
    "gpuwright_provision_for",
    "gpuwright_gpus_ignore",
    "gpuwright_gpus_pcie_lanes",
    "gpuwright_mirrors",
    "gpuwright_repository_keys",
)


def _known_variables(asked: Mapping[str, object]) -> None:
    """A wish file speaks of nothing else: a misspelt name there would be silence where an answer is expected."""
    for name in asked:
        if name not in VARIABLES:
            near = difflib.get_close_matches(str(name), VARIABLES, n=3, cutoff=0.4) or list(VARIABLES)
            raise BadInput(f"the wish file names {name!r}, which is no variable of a wish", near)


def _refuse_two_meanings(asked: Variables, rules: Rules) -> None:
    """Refuse a wish file whose components and variables say different things of one: neither goes before the other."""
    wants = [str(want) for want in as_list(asked.get("gpuwright_want") or [], "gpuwright_want")]
    ours, theirs = Wish(**_values(asked, rules)), Wish.from_wants(wants, rules)
    for name in _contradictory(ours, theirs):
        variable = next(each for each in asked if _says(Wish(**_values({each: asked[each]}, rules)), name))
        want = next(each for each in wants if _says(Wish.from_wants([each], rules), name))
        raise contradiction.refused(f"{variable}: {asked[variable]}", want)


def _contradictory(one: Wish, other: Wish) -> list[str]:
    """Return the fields of which two wishes say different things, neither of them more exactly than the other."""
    both, turned = one.overlaid(other.as_exact_as(one)), other.overlaid(one.as_exact_as(other))
    said = (f.name for f in fields(one) if _says(one, f.name) and _says(other, f.name))
    return [
        name
        for name in said
        if getattr(both, name) != getattr(one, name) and getattr(turned, name) != getattr(other, name)
    ]


def _says(wish: Wish, name: str) -> bool:
    """Say whether a wish has something in a field."""
    return bool(getattr(wish, name) != getattr(Wish(), name))


def _values(variables: Variables, rules: Rules) -> Values:
    values: Values = {}
    for words in WORDS:
        words.read(values, variables, rules)
    _host_variables(values, variables, rules)
    return values


def _framework_variable(values: Values, want: str, rules: Rules, variable: str = "frameworks_wanted") -> None:
    for each in _VOCABULARY.wants(want):
        written = re.split(r"[\[=<>!~@]", each, maxsplit=1)[0].strip().lower().replace("_", "-")
        of_environment = variable != "frameworks_wanted" and written in (_PROJECT, _PYTHON)
        if written in _READERS and not of_environment:
            raise BadInput(f"{variable}: {want!r} is no framework", list(frameworks.ABOUT))
        _add_want(values, each, rules)


def _expected_cards(expected: object, rules: Rules) -> Values:
    """Read which cards have to be there: their number, or their names."""
    if isinstance(expected, str) and expected.strip().isdecimal():
        expected = int(expected)  # `-e name=2` and an INI inventory know only texts
    if isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0:
        return {"gpus_expected": expected}
    if expected in AUTO:
        return {}
    names = [] if expected is True else [str(item) for item in as_list(expected, "gpuwright_gpus_expected")]
    strange = next((name for name in names if not gpus.is_known(name, rules)), expected if not names else None)
    if strange is not None:
        text = f"gpuwright_gpus_expected has to be a number of cards or their names, found {strange!r}"
        raise BadInput(text, gpus.suggest(str(strange), rules))
    return {"gpus_expected": tuple(names)}


def _host_variables(values: Values, variables: Variables, rules: Rules) -> None:
    ignored, yet_to_come = (_texts(variables, f"gpuwright_{key}") for key in ("gpus_ignore", "provision_for"))
    if ignored:
        values["gpus_ignore"] = ignored
    if yet_to_come:
        values["provision_for"] = yet_to_come
    values |= _expected_cards(variables.get("gpuwright_gpus_expected"), rules)
    values["gpus_pcie_lanes"] = _lanes(variables.get("gpuwright_gpus_pcie_lanes"))
    mirrors, keys = _mirrors(variables, rules), _of_upstreams(variables, "gpuwright_repository_keys", rules)
    if mirrors:
        values["mirrors"] = {name: bare(url, f"gpuwright_mirrors: {name}") for name, url in mirrors.items()}
    if keys:
        values["repository_keys"] = keys


def _texts(variables: Variables, name: str) -> tuple[str, ...]:
    items = variables.get(name)
    return tuple(str(item) for item in as_list(items, name)) if items else ()


def _mirrors(variables: Variables, rules: Rules) -> dict[str, str]:
    """Return the mirror of each upstream: those known for the region that is named, and before them those that are named themselves."""
    name = "gpuwright_mirrors"
    given = variables.get(name)
    if not isinstance(given, Mapping) or _REGION not in given:
        return _addresses(variables, rules)
    region, rows = given[_REGION], rules["upstreams"]["mirrors"]
    regions = sorted({row["region"] for row in rows})
    if region not in regions:
        raise BadInput(f"{name}: no mirrors are known for the region {region!r}, expected one of {', '.join(regions)}")
    named = {key: value for key, value in given.items() if key != _REGION}
    known = {row["upstream"]: row["url"] for row in rows if row["region"] == region}
    return known | _addresses({name: named}, rules)


def _addresses(variables: Variables, rules: Rules) -> dict[str, str]:
    """Return the mirrors that are named. Raises BadInput for one that is no address."""
    name = "gpuwright_mirrors"
    found = _of_upstreams(variables, name, rules)
    images = {str(row["name"]) for row in rules["upstreams"]["rows"] if row["kind"] == "images"}
    for upstream, value in found.items():
        is_file = value.lower().startswith("file:")
        if value and value != "pypi" and (not _ADDRESS.match(value) or (is_file and upstream in images)):
            kinds = "https://… or http://…" if upstream in images else "https://…, http://… or file:///…"
            # What stands before the last @ may be a password.
            bare_value = value.rpartition("@")[2]
            told = f"{name} of {upstream}: expected an address ({kinds}), found {bare_value!r}"
            raise BadInput(told, _as_address(upstream, bare_value, of_images=upstream in images))
    return found


def _as_address(upstream: str, value: str, *, of_images: bool) -> list[str]:
    """Return what was meant by what is no address, as it is written: a directory, or a host."""
    rest = value.partition("://")[2] or value
    is_path = value.lower().startswith("file:") or value.startswith(("/", "~", "."))
    if is_path and of_images:
        return []
    place = f"file:///{rest.lstrip('/~.')}" if is_path else f"https://{rest}"
    return [f"{upstream}: {place}"]


def _of_upstreams(variables: Variables, name: str, rules: Rules) -> dict[str, str]:
    """Return what a variable says of each upstream. Raises BadInput where it is no mapping, or names one that does not exist."""
    mapping = variables.get(name) or {}
    if not isinstance(mapping, Mapping):
        raise BadInput(f"{name} has to be a mapping of upstream name to value, found {type(mapping).__name__}")
    return {str(upstream): _of_upstream(name, upstream, value, rules) for upstream, value in mapping.items()}


def _of_upstream(variable: str, name: object, value: object, rules: Rules) -> str:
    """Return what a variable says of one upstream: of those that the rules name, and of the index that pip takes by itself."""
    known = [*(str(row["name"]) for row in rules["upstreams"]["rows"]), "pypi"]
    if name not in known:
        near = [f"did you mean {each}?" for each in difflib.get_close_matches(str(name), known, 1)]
        raise BadInput(f"{variable}: there is no upstream {name!r}, expected one of {', '.join(known)}", near)
    if isinstance(value, (Mapping, list, tuple)) or value is None:
        raise BadInput(f"{variable} of {name} has to be a text")
    if value == "pypi" and name not in frameworks.ABOUT:
        raise BadInput(f"{variable}: the Python index has nothing of {name}, expected an address")
    return str(value).rstrip("/")


def _lanes(value: object) -> dict[str, int]:
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
    return {str(card): int(str(count)) for card, count in lanes.items()}
