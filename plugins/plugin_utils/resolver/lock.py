# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A lock: a resolved stack with exact versions, to be reviewed in git and held to on every node.

A lock is never applied as it stands. Its versions become the wish of a node, the node's own stack is resolved from that, and
where the two differ the node is refused with the reason. What reaches a node is therefore always the resolver's answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted
from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels

from .. import resolver
from ..model import shortfalls
from ..model.errors import BadInput
from ..rules import Row, Rules
from ..wish import VARIABLES, Wish, plain
from . import systems
from .log import conflict
from .situation import Situation

#: Version of the format. A file with a higher one may mean what this version does not know.
SCHEMA = 1

#: Variables of a host that a lock does not speak of: where things lie and which cards count.
HOST_VARIABLES = tuple(
    name
    for name in VARIABLES
    if (name.startswith("gpuwright_") and name != "gpuwright_want")
    or name
    in (
        "frameworks_path",
        "mig_layout",
        "gpu_settings_cards",
        "nvidia_driver_imex",
        "nvidia_driver_peermem",
        "nvidia_driver_runfile",
        "nvidia_driver_runfile_sha256",
    )
)

# Headers and prebuilt modules of Debian's, Ubuntu's and Red Hat's kernels.
_OF_KERNEL = ("linux-", *systems.DEVELS)
_PACKAGED = {"version": (str, type(None)), "packages": [str]}
_FOR_CUDA = {**_PACKAGED, "cuda": str}
#: What a lock file holds: a type, a list of one kind, or the keys of a mapping ("?" marks one that may be absent).
#: docs/lock.schema.json says the same for other programs; a test holds the two equal.
SHAPE: dict[str, Any] = {
    "lock": int,
    "gpuwright": str,
    "rules": {"generated": str, "digest": str},
    "question": {
        "gpus": [str],
        "os": str,
        "arch": str,
        "environment": str,
        "secure_boot": (bool, type(None)),
        "desktop": bool,
        "nvswitch": bool,
        "kernel": (str, type(None)),
        "python": [str],
        "want": [str],
    },
    "stack": {
        "driver?": {
            "branch": str,
            "version": (str, type(None)),
            "modules": str,
            "source": str,
            "set": (str, type(None)),
            "build": (str, type(None)),
            "packages": [str],
        },
        "cuda?": [{"version": str, "release": (str, type(None)), "packages": [str]}],
        "cuda_compat?": {"version": str, "package": str},
        "cudnn?": _PACKAGED,
        "nccl?": _FOR_CUDA,
        "tensorrt?": _FOR_CUDA,
        "container_toolkit?": {"version_spec": str, "packages": [str]},
        "frameworks?": [
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
        "repositories": [
            {
                "name": str,
                "uris": [str],
                "suites": [str],
                "components": [str],
                "fingerprint": (str, type(None)),
            }
        ],
    },
}

_NAMES = {str: "a text", int: "a number", bool: "true or false", type(None): "null"}
_PARTS = {
    "driver": "driver",
    "cuda": "CUDA toolkit",
    "cuda_compat": "forward-compatibility package",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "tensorrt": "TensorRT",
    "container_toolkit": "container toolkit",
    "frameworks": "frameworks",
}
#: How a framework of a variant is written.
_WRITTEN = {
    "pytorch": "torch=={version}+{variant}",
    "dali": "dali=={version}+{variant}",
    "jax": "jax[{variant}]=={version}",
    "tensorflow": "tensorflow[{variant}]=={version}",
}
_MACHINE = {
    "gpus": "cards",
    "os": "system",
    "arch": "architecture",
    "environment": "kind of machine",
    "secure_boot": "Secure Boot",
    "desktop": "desktop",
    "nvswitch": "NVSwitch",
    "python": "Python",
    "kernel": "kernel",
}


# making one --------------------------------------------------------------------------------------------


def make(
    situation: Situation,
    wish: Wish,
    rules: Rules,
    *,
    wants: Sequence[str],
    version: str,
    hashes: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Return the lock of a wish that resolves. Where it leaves a version open, the rules' newest is taken.

    wants is the wish in words, version is gpuwright's own, hashes are the names and the texts of files that say with hashes which
    wheels an environment is made of. Raises BadInput where there is nothing to lock, or a file is of none of its environments.
    """
    answer = resolver.resolve(situation, wish, rules)
    if not answer["ok"] or not answer["stack"]:
        raise BadInput("there is no stack to lock: nothing is wished, or the wish cannot be met")
    exact = wish.overlaid(Wish.from_wants(as_wants(_exactly(answer["stack"], situation, rules)), rules))
    answer = resolver.resolve(situation, exact, rules)
    if not answer["ok"]:
        reasons = "; ".join(entry["text"] for entry in answer["conflicts"])
        raise BadInput(
            f"the stack cannot be locked at the newest versions of the rules: {reasons}", ["name the versions: --want"]
        )
    return {
        "lock": SCHEMA,
        "gpuwright": version,
        "rules": {"generated": rules["generated"], "digest": rules["digest"]},
        "question": {**_machine(situation), "want": list(wants)},
        "stack": _hashed(_stack(answer["stack"]), hashes),
    }


def text(document: Mapping[str, Any]) -> str:
    """Return the bytes of a lock file: the same for the same lock, an entry a line."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def left_open(document: Mapping[str, Any]) -> list[str]:
    """Return the parts of a lock without an exact version, as --want calls them: the rules know none. An index decides there."""
    stack = document["stack"]
    found = [name for name in ("driver", "cudnn", "nccl", "tensorrt") if name in stack and not stack[name]["version"]]
    return found + ["cuda" for toolkit in stack.get("cuda") or () if not toolkit["release"]]


def _stack(stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an answer's stack that a lock holds a node to.

    Packages of the kernel (headers, prebuilt modules) follow each node's kernel and are left out, so is the container engine,
    which is the distribution's.
    """
    found: dict[str, Any] = {}
    for name, shape in SHAPE["stack"].items():
        key = name.rstrip("?")
        if key == "repositories":
            found[key] = [_repository(row) for row in stack.get(key) or ()]
        elif stack.get(key):
            part = stack[key]
            found[key] = [_only(row, shape[0]) for row in part] if isinstance(shape, list) else _only(part, shape)
    if "driver" in found:
        found["driver"]["packages"] = [name for name in found["driver"]["packages"] if not name.startswith(_OF_KERNEL)]
    return found


def _only(row: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    asked = {key: kind for key, kind in shape.items() if not key.endswith("?")}
    return {key: list(row.get(key) or ()) if isinstance(kind, list) else row.get(key) for key, kind in asked.items()}


def _hashed(stack: dict[str, Any], hashes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the stack of a lock whose frameworks have the wheels that files name. Raises BadInput."""
    for name, content in hashes:
        found = _pins(name, content)
        versions = {wheel.name: wheel.version for wheel in found}
        unmet = {
            framework["name"]: shortfalls.in_environment(framework["requirements"], versions, framework["constraints"])
            for framework in stack.get("frameworks") or ()
        }
        framework = next((each for each in stack.get("frameworks") or () if not unmet[each["name"]]), None)
        if framework is None:
            nearest = min(unmet.values(), key=len, default=["a framework"])
            raise BadInput(
                f"{name} has the wheels of no environment of this stack: it lacks {', '.join(nearest)}",
                [
                    f"give it the {wheels.RECORD} of an environment with these versions, from a node that was brought up with them"
                ],
            )
        framework["wheels"] = [
            {"name": wheel.name, "version": wheel.version, "sha256": sorted(wheel.sha256)} for wheel in found
        ]
    return stack


def _pins(name: str, content: str) -> list[wheels.Wheel]:
    """Return the wheels that a file names. Raises BadInput for one that does not say exactly which they are."""
    again = [f"give it the {wheels.RECORD} of an environment, or what `uv pip compile --generate-hashes` writes"]
    try:
        found = wheels.pins(content)
    except ValueError as error:
        raise BadInput(f"{name}: expected NAME==VERSION --hash=sha256:…, found {str(error)[:80]!r}", again) from error
    unknown = [f"{wheel.name}=={wheel.version}" for wheel in found if not wheel.sha256]
    if unknown:
        text = (
            f"{name} has no hash of {', '.join(unknown)}, which was in the environment before its wheels were recorded"
        )
        raise BadInput(text, ["remove that environment on its node, run `gpuwright up` there and take the file anew"])
    return found


def with_wheels(document: Mapping[str, Any] | None, stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's stack with the wheels that the lock it is held to names, where it names any."""
    locked = _by_name((document or {}).get("stack", {}).get("frameworks") or ())
    if "frameworks" not in stack or not any("wheels" in framework for framework in locked.values()):
        return dict(stack)
    held = [
        {**each, "wheels": locked[each["name"]]["wheels"]} if "wheels" in locked.get(each["name"], {}) else each
        for each in stack["frameworks"]
    ]
    return {**stack, "frameworks": held}


def _repository(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = _only(row, SHAPE["stack"]["repositories"][0])
    return {**kept, "fingerprint": (row.get("key") or {}).get("fingerprint")}


def _machine(situation: Situation) -> dict[str, Any]:
    """Return what decided of a machine, as a lock remembers it."""
    return {
        "gpus": [card.name for card in situation.cards],
        "os": situation.os,
        "arch": situation.arch,
        "environment": situation.environment,
        "secure_boot": situation.secure_boot,
        "desktop": situation.screen,
        "nvswitch": situation.nvswitch,
        "kernel": situation.kernel,
        "python": list(situation.pythons or ()),
    }


# exact versions ----------------------------------------------------------------------------------------


def _exactly(stack: Mapping[str, Any], situation: Situation, rules: Rules) -> dict[str, Any]:
    """Return a stack in which every version that was left open is the newest that the rules know."""
    exact = {key: stack[key] for key in stack if key != "repositories"}
    if "driver" in exact and not exact["driver"]["version"]:
        exact["driver"] = {**exact["driver"], "version": _driver_build(exact["driver"], situation, rules)}
    if "cuda" in exact:
        exact["cuda"] = [
            {**toolkit, "release": toolkit.get("release") or _cuda_release(toolkit["version"], rules)}
            for toolkit in exact["cuda"]
        ]
    majors = {dotted.major(toolkit["version"]) for toolkit in exact.get("cuda") or ()}
    for name in ("cudnn", "nccl", "tensorrt"):
        if exact.get(name):
            exact[name] = {**exact[name], "version": _library(name, exact[name], majors, situation.arch, rules)}
    if "container_toolkit" in exact:
        toolkit = exact["container_toolkit"]
        exact["container_toolkit"] = {**toolkit, "version_spec": f"=={_toolkit(toolkit['version_spec'], rules)}"}
    return exact


def _driver_build(driver: Mapping[str, Any], situation: Situation, rules: Rules) -> str | None:
    """Return the newest build of the driver's branch in its source."""
    if driver["source"] == "distro":
        carried = systems.distro_driver(systems.find(situation, rules), driver["branch"], rules)
        return carried["build"] if carried else None
    return next((row["latest"] for row in rules["driver_branches"]["rows"] if row["branch"] == driver["branch"]), None)


def _cuda_release(cuda: str, rules: Rules) -> str | None:
    """Return the newest release (12.8.1) of a CUDA version (12.8); None where only its first two numbers are known.

    A release whose row is not confirmed counts: what is not confirmed there is its driver, not that it exists.
    """
    found = [row["release"] for row in rules["cuda"]["rows"] if row["cuda"] == cuda]
    newest = max(found, key=dotted.key, default="")
    return newest if len(dotted.key(newest)) > 2 else None


def _library(name: str, part: Mapping[str, Any], majors: set[str], arch: str, rules: Rules) -> str | None:
    """Return the version of cuDNN, NCCL or TensorRT; where it is open the newest that was published for the CUDA majors.

    TensorRT may be left open within a generation (10) or a minor version (10.13).
    """
    start = part.get("version") or part.get("generation") or ""
    if len(dotted.key(start)) > 2:
        return str(start)
    rows: list[Row] = rules["cudnn"]["versions"] if name == "cudnn" else rules["libraries"][name]
    wanted = {part["cuda"]} if part.get("cuda") else majors or _majors(part["packages"])
    fitting = [row for row in rows if not row.get("yanked") and ".post" not in row["version"]]
    fitting = [row for row in fitting if not start or dotted.belongs(row["version"], start)]
    fitting = [row for row in fitting if wanted <= _published_for(row, arch)]
    sure = [row for row in fitting if row["confirmed"]] or fitting
    return max((row["version"] for row in sure), key=dotted.key, default=part.get("version"))


def _published_for(row: Row, arch: str) -> set[str]:
    """Return the CUDA majors that a row of a library names for an architecture."""
    if "variants" in row:
        return {variant[2:] for variant, arches in row["variants"].items() if arch in arches}
    return {str(major) for major in row.get("cuda_majors") or row.get("cuda") or ()}


def _majors(packages: Iterable[str]) -> set[str]:
    """Return the CUDA majors in names such as libcudnn9-cuda-12."""
    return {name.rpartition("-cuda-")[2] for name in packages if "-cuda-" in name}


def _toolkit(specifier: str, rules: Rules) -> str:
    """Return the version that a specifier of the container toolkit names, or the newest good one that it allows."""
    asked = specifier.lstrip("=>")
    if specifier.startswith("==") and not specifier.endswith("*"):
        return asked
    rows = [row for row in rules["container_toolkit"]["rows"] if row["confirmed"] and not row.get("bad")]
    if specifier.startswith("=="):
        rows = [row for row in rows if dotted.belongs(row["version"], asked.removesuffix(".*"))]
    else:
        rows = [row for row in rows if dotted.at_least(row["version"], asked)]
    return max((row["version"] for row in rows), key=dotted.key, default=asked.removesuffix(".*"))


# reading one -------------------------------------------------------------------------------------------


def load(name: str) -> dict[str, Any]:
    """Return the lock in a file. Raises BadInput where it is not there, broken, or not a lock that this version reads."""
    what = f"the lock file {name}"
    try:
        document = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{what} is not there", ["gpuwright resolve --lock FILE writes one"]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{what} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{what} is not JSON: {error}") from error
    return check(document, what)


def check(document: Any, what: str = "gpuwright_lock") -> dict[str, Any]:
    """Return a lock that this version can hold a node to. Raises BadInput for anything else, with the place of the mistake."""
    again = ["gpuwright resolve --lock FILE writes one"]
    if not isinstance(document, Mapping) or "lock" not in document:
        raise BadInput(f"{what} is not a lock of gpuwright", again)
    schema = document["lock"]
    if isinstance(schema, int) and schema > SCHEMA:
        writer = document.get("gpuwright") or "a newer version"
        raise BadInput(
            f"{what} was written by gpuwright {writer} in format {schema}, this version reads up to {SCHEMA}",
            ["update gpuwright here", "write the lock with this version"],
        )
    if schema is True or schema != SCHEMA:
        raise BadInput(f"{what} has the format {schema!r}, expected {SCHEMA}", again)
    mistake = next(_mistakes(document, SHAPE, ""), None) or next(_not_wheels(document["stack"]), None)
    if mistake:
        raise BadInput(f"{what}: {mistake}", again)
    Wish.from_wants(as_wants(document["stack"]))
    return dict(document)


def _mistakes(value: Any, kind: Any, place: str) -> Iterator[str]:
    """Yield what is wrong with a value, each with its place."""
    if isinstance(kind, Mapping):
        yield from _mistakes_of_mapping(value, kind, place)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{place} has to be a list, found {type(value).__name__}"
            return
        for number, each in enumerate(value):
            yield from _mistakes(each, kind[0], f"{place}[{number}]")
    else:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not any(_is(value, each) for each in kinds):
            yield f"{place} has to be {' or '.join(_NAMES[each] for each in kinds)}, found {value!r}"
        elif plain.is_template(value):
            yield f"{place} has to be plain text, found the template {value!r}"


def _mistakes_of_mapping(value: Any, kind: Mapping[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place} has to be a mapping, found {type(value).__name__}"
        return
    known = {key.rstrip("?") for key in kind}
    yield from (
        f"{place or 'it'} has a key {key!r} that this version does not know" for key in value if key not in known
    )
    for key, shape in kind.items():
        name = key.rstrip("?")
        below = f"{place}.{name}".lstrip(".")
        if name in value:
            yield from _mistakes(value[name], shape, below)
        elif name == key:
            yield f"{below} is missing"


def _not_wheels(stack: Mapping[str, Any]) -> Iterator[str]:
    """Yield each wheel that is not one: it becomes a line of a file that pip reads."""
    for framework in stack.get("frameworks") or ():
        for row in framework.get("wheels") or ():
            written = wheels.Wheel(row["name"], row["version"], tuple(row["sha256"])).line()
            if not row["sha256"] or not wheels.is_pin(written):
                yield f"stack.frameworks has a wheel with a name, a version or a SHA-256 that is none: {written[:80]!r}"


def _is(value: Any, kind: type) -> bool:
    """Say whether a value is of a kind; to Python true is a number too. Ansible's texts are a kind of text of their own."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


# asking for what one names -----------------------------------------------------------------------------


def as_wish(document: Mapping[str, Any], variables: Mapping[str, Any]) -> Wish:
    """Return the wish that asks for what a lock names, on a host with these variables.

    A lock speaks alone about versions: of the variables only those of the host itself are read. Raises BadInput where the
    command line or an extra variable speaks about them too.
    """
    other = [name for name in ("gpuwright_want", "gpuwright_wish") if variables.get(name)]
    if other:
        raise BadInput(f"gpuwright_lock and {other[0]} speak about the same versions: give one of them")
    host = {name: variables[name] for name in HOST_VARIABLES if name in variables}
    return Wish.from_variables(host).overlaid(Wish.from_wants(as_wants(document["stack"])))


def as_wants(stack: Mapping[str, Any]) -> list[str]:
    """Return the stack of a lock as --want takes it."""
    return list(_wants(stack))


def _wants(stack: Mapping[str, Any]) -> Iterator[str]:
    driver = stack.get("driver")
    if driver:
        yield f"driver={driver['version'] or driver['branch']}"
        yield f"driver-modules={driver['modules']}"
        if driver["source"] in ("nvidia", "distro", "runfile"):
            yield f"driver-source={driver['source']}"
        if driver["set"]:
            yield f"driver-set={driver['set']}"
    for toolkit in stack.get("cuda") or ():
        yield f"cuda={toolkit['release'] or toolkit['version']}"
    for name in ("cudnn", "nccl", "tensorrt"):
        if stack.get(name):
            yield f"{name}={stack[name]['version']}" if stack[name]["version"] else name
    if stack.get("cuda_compat"):
        yield "cuda-compat=auto"
    if stack.get("container_toolkit"):
        yield f"container-toolkit={stack['container_toolkit']['version_spec'].removeprefix('==')}"
    frameworks = stack.get("frameworks") or ()
    yield from (_framework_want(framework) for framework in frameworks)
    interpreters = {framework["interpreter"] for framework in frameworks}
    if len(interpreters) == 1:
        yield f"python={interpreters.pop()}"


def _framework_want(framework: Mapping[str, Any]) -> str:
    """Return a framework as pip writes it: torch==2.14.1+cu130, jax[cuda12]==0.7.2."""
    name, version, variant = (framework[key] for key in ("name", "version", "variant"))
    plain = not variant or (name, variant) == ("tensorflow", "cpu")
    form = "{name}=={version}" if plain else _WRITTEN.get(name, "{name}=={version}")
    return form.format(name=name, version=version, variant=variant)


# holding a node to one ---------------------------------------------------------------------------------


def unresolved(
    document: Mapping[str, Any], situation: Situation, conflicts: Sequence[Mapping[str, Any]], rules: Rules
) -> list[dict[str, Any]]:
    """Return why a node cannot be held to a lock whose versions do not resolve on it."""
    if _without_its_cards(document, situation):
        return [_refused(document, situation, rules)]
    rows = ({**entry, "remedy": f"in a lock of its own: {entry['remedy']}"} for entry in conflicts)
    return [_refused(document, situation, rules), *rows]


def differences(
    document: Mapping[str, Any], situation: Situation, stack: Mapping[str, Any], rules: Rules
) -> list[dict[str, Any]]:
    """Return why a node cannot be held to a lock, and a conflict for everything of its stack that is not the lock's; empty
    where it can.
    """
    theirs, ours = document["stack"], _stack(stack)
    adopted = bool((stack.get("driver") or {}).get("adopted"))
    found = []
    for part, name in _PARTS.items():
        for what, wanted, got in _unlike(part, theirs.get(part), ours.get(part), adopted=adopted):
            text = f"{name}{what}: the lock has {wanted}, this node resolves to {got}"
            found.append(
                conflict(f"lock.{part.replace('_', '-')}", text, "the lock", "hold this node to a lock of its own")
            )
    if found and _without_its_cards(document, situation):
        return [_refused(document, situation, rules)]
    first = [_refused(document, situation, rules)] if found else []
    return [*first, *_foreign_driver(theirs.get("driver"), stack.get("driver"), situation), *found]


def _without_its_cards(document: Mapping[str, Any], situation: Situation) -> bool:
    """Say whether a lock for cards meets a node that has none: that is the whole reason, whatever else it brings about."""
    return bool(document["question"]["gpus"]) and not situation.cards


def _refused(document: Mapping[str, Any], situation: Situation, rules: Rules) -> dict[str, Any]:
    """Return the conflict that says why and what to do; those behind it say what differs."""
    text = f"the lock cannot be held on this node{_because(document, situation, rules)}"
    return conflict("lock.node", text, "the lock", _remedy(document, situation))


def _foreign_driver(
    theirs: Mapping[str, Any] | None, ours: Mapping[str, Any] | None, situation: Situation
) -> list[dict[str, Any]]:
    """Return the conflict where a driver would be installed over one that no package manager brought. A lock that was made
    elsewhere does not know of it, so it is not taken for somebody asking for that.
    """
    stranger = situation.driver_owner not in (None, "none", "packages")
    if not theirs or not ours or ours["adopted"] or not stranger or situation.kept:
        return []
    who = f"the lock has packages from {theirs['source']}"
    text = f"driver: {who}, on this node a driver of another origin ({situation.driver_owner}) is installed"
    remedy = "remove it first (a .run file's: nvidia-uninstall), or give this node a wish of its own"
    return [conflict("lock.driver-owner", text, "the machine's facts", remedy)]


def _unlike(part: str, theirs: Any, ours: Any, *, adopted: bool) -> Iterator[tuple[str, str, str]]:
    """Yield what differs in a part: its name (" modules"), the lock's value and the node's."""
    if not theirs or not ours:
        if theirs or ours:
            yield "", _told(part, theirs), _told(part, ours)
        return
    if isinstance(theirs, list):
        named, found = _by_name(theirs), _by_name(ours)
        for name in [*named, *(name for name in found if name not in named)]:
            for what, wanted, got in _unlike(f"{part}[]", named.get(name), found.get(name), adopted=adopted):
                yield f" {name}{what}", wanted, got
        return
    for key in theirs:
        if key in _uncompared(part, theirs, adopted=adopted) or theirs[key] == ours[key]:
            continue
        if isinstance(theirs[key], list) and sorted(theirs[key]) == sorted(ours[key]):
            continue
        yield f" {key.replace('_', ' ')}", _shown(theirs[key]), _shown(ours[key])


def _uncompared(part: str, theirs: Mapping[str, Any], *, adopted: bool) -> tuple[str, ...]:
    """Return the keys of a part that may differ: addresses are a matter of mirrors, a driver that was adopted (here or where
    the lock was made) has neither set nor packages of ours.
    """
    if part == "driver" and (adopted or not theirs["packages"]):
        return ("set", "build", "packages", *(() if theirs["packages"] else ("source",)))
    return ("index_url", "wheels") if part == "frameworks[]" else ()


def _by_name(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(row.get("name") or row["version"]): row for row in rows}


def _told(part: str, value: Any) -> str:
    """Return a whole part in a few words."""
    if not value:
        return "none"
    rows = value if isinstance(value, list) else [value]
    key = "version_spec" if part == "container_toolkit" else "version"
    return ", ".join(f"{row.get('name', '')} {row.get(key) or row.get('branch') or ''}".strip() for row in rows)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or "none"
    return "none" if value is None else str(value)


def _because(document: Mapping[str, Any], situation: Situation, rules: Rules) -> str:
    """Return why a node may come out otherwise than the lock, as the end of a sentence: another machine, other rules."""
    theirs, ours = document["question"], _machine(situation)
    unlike = [key for key in _MACHINE if _differ(key, theirs[key], ours[key])]
    other_rules = document["rules"]["digest"] != rules["digest"]
    # Kernels differ everywhere and decide seldom: named only where nothing else is left.
    told = [key for key in unlike if key != "kernel"] or ([] if other_rules else unlike)
    reasons = []
    if told:
        rows = (f"{_MACHINE[key]} {_words(theirs[key])}, here {_words(ours[key])}" for key in told)
        reasons.append(f"another machine ({'; '.join(rows)})")
    if other_rules:
        made, here = (f"of {each['generated']}, {each['digest'][:8]}" for each in (document["rules"], rules))
        reasons.append(f"other rules ({made}, gpuwright {document['gpuwright']}; here {here})")
    if not reasons:
        return ""
    return f": it was made {'for' if told else 'by'} {' and by '.join(reasons)}"


def _differ(key: str, theirs: Any, ours: Any) -> bool:
    """Say whether two values differ in what counts. What one side does not know is no difference."""
    if theirs is None or ours is None:
        return False
    if key == "environment":
        return {theirs, ours} & {"container", "wsl", "jetson"} != set() and bool(theirs != ours)
    if key == "python":
        return not set(theirs) <= set(ours)
    return set(theirs) != set(ours) if isinstance(theirs, list) else bool(theirs != ours)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " and ".join(dict.fromkeys(value)) or "none"
    return "unknown" if value is None else str(value)


def _remedy(document: Mapping[str, Any], situation: Situation) -> str:
    """Return the command that makes a lock for this node; it needs no network, so it can be run anywhere."""
    cards = " ".join(f"--gpu '{name}'" for name in dict.fromkeys(card.name for card in situation.cards))
    wants = " ".join(f"--want '{want}'" for want in document["question"]["want"])
    machine = f"{cards} --os {situation.os} --arch {situation.arch} {wants}".strip()
    return (
        f"make a lock for this kind of node (gpuwright resolve {machine} --lock FILE) and give it to these hosts alone"
    )
