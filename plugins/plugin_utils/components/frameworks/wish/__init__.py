# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for frameworks, for projects beside them and for their Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.gpuwright.node.plugins.module_utils import frameworks
from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ....model.errors import BadInput
from ....model.wish import FrameworkWish, Project, Requirement, Values
from ....rules import Row, Rules
from ....wish import contradiction, specifiers
from ....wish.reading import (
    AUTO,
    BEHIND,
    WANT,
    AddWant,
    Variables,
    Words,
    around,
    as_list,
    equals,
    is_no,
    is_outside,
    is_yes,
)
from . import projects

FRAMEWORKS_PATH = "/opt/gpuwright"
PROJECT, PYTHON = "project", "python"
# A name of an environment is one of a directory, and of a Jupyter kernel.
_ENVIRONMENT = lazy(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", re.ASCII)
_PLAIN = lazy(r"^=?=\s*(?P<version>\d+(?:\.\d+)*)(?:\.\*)?(?:\+(?P<variant>[a-z]+\d*))?$", re.ASCII)
_BUILT = lazy(r"^=?=\s*(?P<version>\d+(?:\.\d+)*)\+(?P<local>[A-Za-z0-9.]+)$", re.ASCII)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The fields of a wish that are of the frameworks."""

    frameworks: tuple[FrameworkWish, ...] = ()
    projects: tuple[Project, ...] = ()
    by_hand: tuple[str, ...] = ()
    """What is used with frameworks and installed by hand: asked for so that it is told how"""
    jupyter: bool = False
    python: str | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)
    """By the name of an environment: the one that it has in place of `python`"""
    frameworks_path: str = FRAMEWORKS_PATH


def add(values: Values, about: frameworks.About, variant: str | None, match: re.Match[str], rules: Rules) -> None:
    """Read a want of a framework. ``variant``: the one that its name holds."""
    want, spec, named = match.string, match["spec"].strip(), match["environment"]
    behind = BEHIND.match(spec)
    if behind and named is None:
        spec, named = behind["spec"], behind["environment"]
    variant = _variant_of_name(about, match["variant"], want, rules) or variant
    wished = _framework(
        about, _variant_of_extras(about, match["extras"], spec, want, rules) or variant, spec, want, rules
    )
    _add_framework(values, replace(wished, environment=environment_of(named, want, about.name)))


def by_hand(asked: str, want: str) -> str:
    """Return what is asked for beside the frameworks as pip writes it. Raises BadInput for what pip could not read."""
    try:
        parsed = projects.parsed(Requirement(asked, repr(want)))
    except BadInput as error:
        raise BadInput(f"{want!r}: cannot read what is asked of its version", ["NAME or NAME==VERSION"]) from error
    return f"{parsed.name}{parsed.specifier}"


def named(name: str) -> tuple[str, str | None]:
    """Return the one name of what people call differently, and the variant that a name such as nvidia-dali-cuda120 holds."""
    for each in frameworks.ABOUT.values():
        package = re.fullmatch(each.variant_in_name, name) if each.variant_in_name else None
        if package:
            return each.name, package[1]
    return next((each.name for each in frameworks.ABOUT.values() if name in each.aliases), name), None


def refuse_stub(name: str, spec: str, want: str, rules: Rules) -> None:
    """Raise BadInput for a name whose package is a stub that only raises an error."""
    row = next((each for each in rules["frameworks"]["never"] if name == each["name"]), None)
    if row is not None:
        raise BadInput(
            f"{want!r}: there is no {row['name']} to install, it ended in a package that only raises an error",
            _next_to(row["instead"], spec, rules) or [row["instead"]],
        )


def _next_to(instead: str, spec: str, rules: Rules) -> list[str]:
    """Return what comes instead, in the newest release of the minor version that was asked for; empty where that has none."""
    asked, named = _PLAIN.match(spec), WANT.match(instead)
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


def environment_of(written: str | None, want: str, framework: str = "") -> str | None:
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


def add_project(values: Values, spec: str, environment: str | None, want: str, rules: Rules) -> None:
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
    name, variant = named(parsed.name.lower().replace("_", "-"))
    about = frameworks.ABOUT.get(name)
    if about is None:
        refuse_stub(name, str(parsed.specifier), f"{parsed.name}{parsed.specifier} ({requirement.origin})", rules)
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
    match = WANT.match(want)
    if not match or match["name"].lower() != PROJECT:
        return None
    return projects.read(re.sub(r"^==?\s*", "", match["spec"]), environment_of(match["environment"], want))


def _read_project(values: Values, spec: str, want: str, rules: Rules) -> None:
    add_project(values, spec, None, want, rules)


def _read_jupyter(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    if spec and equals(spec, want) not in ("true", "yes", "auto"):
        raise BadInput(f"{want!r}: a Jupyter kernel has no version here, it is wished or not", ["jupyter"])
    values["jupyter"] = True


def _read_python(values: Values, spec: str, want: str, rules: Rules) -> None:
    del rules
    add_python(values, spec, None, want)


def add_python(values: Values, spec: str, environment: str | None, want: str) -> None:
    """Read the Python of all environments, or of one: by its name, which is a framework's where that has one of its own."""
    version = equals(spec, want)
    if not version or not re.match(r"^3\.\d+$", version):
        raise BadInput(f"{want!r}: expected a version such as python=3.12", ["python=3.12", "python=3.12@research"])
    if environment is None:
        values["python"] = version
        return
    if environment not in frameworks.ABOUT:
        environment_of(environment, want)
    values["pythons"] = {**values.get("pythons", {}), environment: version}


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


def _read_wants(values: Values, variables: Variables, rules: Rules, add_want: AddWant) -> None:
    for want in as_list(variables.get("frameworks_wanted"), "frameworks_wanted"):
        add_want(values, str(want), rules, "frameworks_wanted")
    _environment_variables(values, variables, rules, add_want)
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


def _environment_variables(values: Values, variables: Variables, rules: Rules, add_want: AddWant) -> None:
    """Read the project of the variables, and their named environments with what is wished of each."""
    project = variables.get("frameworks_project")
    if project not in AUTO:
        add_project(values, f"={project}", None, f"frameworks_project: {project}", rules)
    named = variables.get("frameworks_environments") or {}
    if not isinstance(named, Mapping):
        raise BadInput(
            f"frameworks_environments has to be a mapping of names to lists of wishes, found {type(named).__name__}",
            ["frameworks_environments: {research: [pytorch, project=requirements.txt]}"],
        )
    for name, wants in named.items():
        for want in as_list(wants, f"frameworks_environments of {name}"):
            add_want(values, _within(str(want), str(name)), rules, "frameworks_environments")


def _within(want: str, environment: str) -> str:
    """Return a wish for a named environment. Raises BadInput where it names another one."""
    match = WANT.match(want)
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
WORDS = Words(
    "frameworks",
    frameworks.DEFAULT,
    brings=("frameworks", "projects", "by_hand"),
    by_default=True,
    readers={PROJECT: _read_project, "jupyter": _read_jupyter, PYTHON: _read_python},
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
    read_wants=_read_wants,
    told=_TOLD,
)
