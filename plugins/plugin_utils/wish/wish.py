# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a person wishes: from --want, from a wish file, from Ansible's variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..components.composed.wish import WORDS, Fields
from ..components.frameworks import wish as frameworks
from ..components.monitoring_exporters import wish as monitoring_exporters
from ..components.monitoring_exporters.fleet import VARIABLES as FLEET_VARIABLES
from ..components.monitoring_exporters.fleet import exporters as exporters_of_fleet
from ..components.monitoring_server import wish as monitoring_server
from ..model.errors import BadInput
from ..model.wish import FrameworkWish, Values
from ..rules import Rules, companions, load_rules
from . import contradiction, exactness, of_host, spoken
from .reading import ANY, BEHIND, WANT, Variables, Words, as_list

__all__ = ["DEFAULT_WANTS", "FLEET_VARIABLES", "WORDS", "BadInput", "FrameworkWish", "Wish"]

_ONE_EQUALS = lazy(r"^=(?!=)")
# How near a name has to be for that it was meant, as difflib counts: containerd-toolkit is, transformers is not tensorrt.
_NEAR = 0.7
_IN_A_FILE = "a package of the Python index goes into a project's file, beside a framework: pytorch@NAME and project@NAME=requirements.txt"


@dataclass(frozen=True)
class Wish(Fields, of_host.Fields):
    """Everything a person may ask for; None, "" and () mean: the resolver decides. Each component says the fields that are of it."""

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
    match = WANT.match(_VOCABULARY.wants(want)[0])
    name, _variant = frameworks.named(match["name"].lower().replace("_", "-") if match else "")
    found = next((words for words in WORDS if name in words.readers), frameworks.WORDS if name in ABOUT else None)
    if found is None:
        raise BadInput(f"unknown component in the want {want!r}", [_COMPONENTS])
    return found


def _is_of_framework(name: str) -> bool:
    return frameworks.named(name)[0] in ABOUT


# --want ------------------------------------------------------------------------------------------------


def _add_want(values: Values, want: str, rules: Rules) -> None:
    match = WANT.match(want)
    if not match:
        raise BadInput(f"cannot read the want {want!r}: write NAME or NAME=VERSION", [_COMPONENTS])
    written = match["name"].lower().replace("_", "-")
    name, variant = frameworks.named(written)
    if name in ABOUT:
        frameworks.add(values, ABOUT[name], variant, match, rules)
        return
    extras, spec, named = match["extras"], match["spec"].strip(), match["environment"]
    if match["variant"]:
        raise BadInput(f"{want!r}: only frameworks have builds such as +{match['variant']}", [name + spec])
    if name not in _READERS and companions.of(written, rules):
        asked = _ONE_EQUALS.sub("==", BEHIND.sub(r"\g<spec>", spec))
        values["by_hand"] = tuple(
            dict.fromkeys((*values.get("by_hand", ()), frameworks.by_hand(written + asked, want)))
        )
        return
    reader = _READERS.get(name)
    if reader is None:
        _unknown(name, spec, want, rules)
    elif name == frameworks.PROJECT:
        frameworks.add_project(values, spec, frameworks.environment_of(named, want), want, rules)
    elif name == frameworks.PYTHON:
        behind = BEHIND.match(spec)
        frameworks.add_python(
            values, behind["spec"] if behind else spec, behind["environment"] if behind else named, want
        )
    elif named is not None:
        text = f"{want!r}: only frameworks, projects and their Python have environments, {name} has none"
        raise BadInput(text, [name + spec])
    elif extras:
        raise BadInput(f"{name} takes no extra: {want!r}", [name + spec])
    else:
        reader(values, spec, want, rules)


def _unknown(name: str, spec: str, want: str, rules: Rules) -> None:
    """Say what exists instead of a name that does not; always raises BadInput."""
    frameworks.refuse_stub(name, spec, want, rules)
    near = difflib.get_close_matches(name, _NAMES, n=3, cutoff=_NEAR)
    raise BadInput(f"unknown component {name!r} in the want {want!r}", near or [_IN_A_FILE, _COMPONENTS])


_READERS = {name: reader for words in WORDS for name, reader in words.readers.items()}
_NAMES = (*(name for name in _READERS if name != "python"), *ABOUT, "python")
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

VARIABLES = (*(variable for words in WORDS for variable in words.variables), "gpuwright_want", *of_host.VARIABLES)


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
        words.read_wants(values, variables, rules, _add_framework)
    of_host.read(values, variables, rules)
    return values


def _add_framework(values: Values, want: str, rules: Rules, variable: str) -> None:
    """Read a want of a variable that has wants of frameworks: ``frameworks_wanted``, or one of named environments."""
    for each in _VOCABULARY.wants(want):
        written = re.split(r"[\[=<>!~@]", each, maxsplit=1)[0].strip().lower().replace("_", "-")
        of_environment = variable != "frameworks_wanted" and written in (frameworks.PROJECT, frameworks.PYTHON)
        if written in _READERS and not of_environment:
            raise BadInput(f"{variable}: {want!r} is no framework", list(ABOUT))
        _add_want(values, each, rules)
