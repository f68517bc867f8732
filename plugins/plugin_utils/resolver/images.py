# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which images of containers fit what was resolved: the tags of nvidia/cuda and of NGC's frameworks; and whether one that is wished does.

They stand beside the stack and not in it: nothing of them is installed, locked or sealed. One is pulled where the wish asks for it by
``container-image=auto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..components.cuda.resolve import forward
from ..components.cuda.resolve import support as cuda_support
from ..components.cuda.resolve import toolkit as cuda
from ..components.cuda.resolve.support import CudaSupport
from ..components.frameworks.resolve import FRAMEWORKS
from ..model.stack import Image, NewerImage, Stack
from ..rules import Row, Rules, cite, companions
from ..wish.wish import FrameworkWish, Wish
from . import foreign, systems, targets, upstreams
from .log import Log, Unresolved
from .machine import Card, Machine

# How a CUDA version may run, the best first; a toolkit is chosen in the same order.
_MODES = ("native", "minor-version", "forward")
_SAYS = {
    "native": "the driver brings CUDA {cuda} in full",
    "minor-version": "CUDA {cuda} runs by minor-version compatibility, the driver brings {own}: what is new since does not work",
    "forward": "CUDA {cuda} runs by the cuda-compat in the image, on data-centre cards only; the driver brings {own}",
}
_DATA = "compat/images.yaml"
# How the tags begin: 12.8.1-base-ubuntu22.04, 25.10-py3.
_CUDA_TAG = lazy(r"(?P<cuda>\d+\.\d+)(?:\.\d+)?-")
# The same as a whole; from this CUDA on not all tags were read.
_WHOLE_TAG = lazy(
    r"(?P<cuda>\d+\.\d+)(?P<patch>\.\d+)?-(?P<kind>(?:cudnn\d*-)?(?:base|runtime|devel))(?:-(?P<system>[a-z]+\d+(?:\.\d+)?))?\Z"
)
_READ_IN_PART = "13.0"
# https://github.com/NVIDIA/nvidia-docker/issues/1768 (2023-07-21)
_DELETED_BEFORE = "11.0"
_OF_CARD = "frameworks.card"
_CUDA_IN_TAG = lazy(r"(?:cuda|cu)-?(1[0-9])\.?([0-9])(?![0-9])")
_RELEASE_TAG = lazy(r"\d\d\.\d\d(?=-)")


@dataclass(frozen=True)
class _Asked:
    """A machine and a wish, what the driver runs with the cuda-compat of an image, and its branch; None where that is not known."""

    machine: Machine
    wish: Wish
    support: CudaSupport
    branch: str | None
    rules: Rules


@dataclass(frozen=True)
class _Fit:
    """A row that fits, its CUDA version (13.0), and how the driver runs it."""

    row: Row
    cuda: str
    mode: str


def choose(machine: Machine, wish: Wish, stack: Stack, rules: Rules) -> list[Image]:
    """Return for each image of the rules the tag that fits; where none does, why. None at all for a machine without cards.

    ``stack`` is what was resolved for the machine and the wish. Pure; nothing is asked of a registry or a container engine.
    """
    if not machine.cards:
        return []
    rows: list[Row] = rules["images"]["images"]
    if machine.environment == "jetson":
        text = "these images are for servers and workstations; a Jetson takes those of its JetPack"
        return [_none(row, text, _DATA) for row in rows]
    try:
        asked = _asked(machine, wish, stack, rules)
    except Unresolved as error:
        return [_none(row, error.conflicts[0]["text"], error.conflicts[0]["source"]) for row in rows]
    toolkits = [toolkit["version"] for toolkit in cuda.PART.of(stack) or ()]
    found: list[Image] = []
    for row in rows:
        if row["by"] == "toolkit":
            found += [_of_cuda(toolkit, row, asked) for toolkit in toolkits or (None,)]
        else:
            found.append(_of_framework(row, asked))
    return found


def _asked(machine: Machine, wish: Wish, stack: Stack, rules: Rules) -> _Asked:
    """Return what decides. Raises Unresolved where nothing is known of a driver that is not ours."""
    support = _support(machine, wish, stack, rules)
    branch = numeric_version.major(support.newest) if support.newest else None
    # The libraries of cuda-compat are in the image, whether the machine is to have the package or not.
    within = forward.versions(branch, machine.cards, rules) if branch else ()
    return _Asked(machine, wish, replace(support, forward=within), branch, rules)


def _support(machine: Machine, wish: Wish, stack: Stack, rules: Rules) -> CudaSupport:
    """Return what the driver runs: that of the stack, or the one that somebody else brings."""
    driver = stack.get("driver")
    system = systems.find(machine, rules)
    if driver is None:
        return foreign.support(machine, wish, system, Log(rules))
    return cuda_support.of_stack(driver, system, rules)


# one that is asked for --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What is to be said of an image that is asked for. runs: whether a container of it starts and finds its CUDA; None where that was not
    read. instead: the nearest reference that does, None where there is none.
    """

    runs: bool | None
    text: str
    source: str
    instead: str | None = None


def judge(reference: str, machine: Machine, wish: Wish, stack: Stack, rules: Rules) -> Verdict | None:
    """Return how an image that is asked for by its name runs on driver and cards; None for one of which the rules know too little."""
    repository, _colon, tag = reference.partition("@")[0].rpartition(":")
    image = next((row for row in rules["images"]["images"] if repository.endswith(f"/{row['repository']}")), None)
    if not machine.cards or machine.environment == "jetson":
        return None
    try:
        asked = _asked(machine, wish, stack, rules)
    except Unresolved:
        return None
    if image is None:
        return _of_others(reference, repository, tag, asked)
    if image["by"] == "toolkit" and _is_upstreams(repository, image, rules):
        missing = _no_such_tag(tag, asked)
        if missing:
            cuda = tag[: tag.find(".") + 2].rstrip("-")
            runs = any(_cuda_fit(row, asked) for row in rules["images"]["tags"] if _minor(row) == cuda)
            instead = (_alike(tag, cuda, asked) if runs else None) or _alike(tag, _best(image, asked)["cuda"], asked)
            named = f"{repository}:{instead}" if instead else None
            return Verdict(missing[1], f"{reference}: {missing[0]}", f"{_DATA} (tags)", named)
    if tag == "latest" and image["latest"] is False and _is_upstreams(repository, image, rules):
        return _no_latest(repository, image, asked)
    older, newer = _rows_of(image, tag, rules)
    if older is None:
        return None
    found = _verdict(reference, image, older, asked)
    if older is newer or found.runs is False:
        return found
    # Its CUDA is not older than that of the release before it, and not newer than that of the one behind it.
    behind = _verdict(reference, image, newer, asked) if newer else None
    if behind is None or behind.runs:
        return None
    text = (
        f"{reference}: what it has was not read; with what is in {newer['tag']} it would not run here" if newer else ""
    )
    return replace(behind, runs=None, text=text)


def _no_such_tag(tag: str, asked: _Asked) -> tuple[str, bool | None] | None:
    """Return why nvidia/cuda has no such tag, and False, or None where it may have it yet; None where it has it, or its CUDA was not read
    as a whole.
    """
    found = _WHOLE_TAG.match(tag)
    if found is None:
        return None
    rows: list[Row] = asked.rules["images"]["tags"]
    oldest = _minor(rows[0])
    if not numeric_version.at_least(found["cuda"], _DELETED_BEFORE):
        return f"all images of CUDA older than {_DELETED_BEFORE} were deleted", False
    if not found["patch"]:
        return (
            f"the tags of nvidia/cuda have the whole release ({rows[-1]['release']}), and {found['cuda']} is none",
            False,
        )
    if not numeric_version.at_least(found["cuda"], oldest):
        return (
            f"its CUDA is older than {oldest}, with which the tags begin that are kept: what has ended is deleted",
            None,
        )
    first = next((_minor(row) for row in rows if found["system"] in row["systems"]), None)
    begins = f", which begins with CUDA {first}" if first else ""
    absent = f"there is no image of CUDA {found['cuda']} for {found['system']}{begins}", False
    if first and not numeric_version.at_least(found["cuda"], first):
        return absent
    mine = [row for row in rows if _minor(row) == found["cuda"]]
    if not mine or numeric_version.at_least(found["cuda"], _READ_IN_PART):
        return None
    if not found["system"]:
        return (
            f"nvidia/cuda has no tag without its system ({mine[0]['release']}-{mine[0]['kinds'][0]}-{mine[0]['systems'][0]})",
            False,
        )
    systems = [row for row in mine if found["system"] in row["systems"]]
    if not systems:
        return absent
    kinds = {kind for row in systems for kind in row["kinds"]}
    if found["kind"] not in kinds:
        return (
            f"CUDA {found['cuda']} has no {found['kind']} for {found['system']}, but {', '.join(sorted(kinds))}",
            False,
        )
    return None


def _framework_in(repository: str, tag: str, rules: Rules) -> FrameworkWish | None:
    """Return the framework that an image of somebody else has, by its tag: of vLLM and SGLang the torch that they are for."""
    for row in rules["images"]["others"]:
        found = re.match(row["tag"], tag) if repository.endswith(row["repository"]) else None
        if found is None:
            continue
        named = found.groupdict()
        if not row["brings"]:
            cuda = named.get("cuda")
            return FrameworkWish(
                row["framework"], f"=={named['release']}", f"cu{cuda.replace('.', '')}" if cuda else None
            )
        needs = [each.text for each in companions.needs(row["brings"], named["release"], rules)]
        pin = next((each for each in needs if each.startswith(f"{ABOUT[row['framework']].package}==")), "")
        return FrameworkWish(row["framework"], f"=={pin.partition('==')[2]}") if pin else None
    return None


def _of_others(reference: str, repository: str, tag: str, asked: _Asked) -> Verdict | None:
    """Return why an image of somebody else does not run: for which machines it is built, and what its tag says, the CUDA and the release
    of a framework; else None.
    """
    not_built = _not_built(reference, repository, asked)
    if not_built is not None:
        return not_built
    wished = _framework_in(repository, tag, asked.rules)
    if wished is not None:
        room, machine = FRAMEWORKS[wished.name], asked.machine
        offers = [each for some in room.offers(wished, asked.rules, cpu=False) for each in some if each.cuda]
        told = [room.card_reasons(each, machine.cards, machine.arch, Log(asked.rules)) for each in offers]
        against = [[each for each in entries if each["rule"] == _OF_CARD] for entries in told]
        # Of which build it is a tag need not tell.
        if against and all(against):
            return Verdict(False, f"{reference}: {against[0][0]['text']}", against[0][0]["source"])
    found = _CUDA_IN_TAG.search(tag)
    if found is None:
        return None
    version = f"{found[1]}.{found[2]}"
    cards = _cards(asked.machine.cards)
    if targets.toolkit_lacks(version, asked.machine.cards, asked.rules):
        return Verdict(False, f"{reference}: its CUDA {version} has no code for {cards}", "compat/cuda.yaml (targets)")
    if asked.support.mode(version, asked.rules) is None:
        driver = f"the driver (branch {asked.branch})" if asked.branch else "the driver"
        text = f"{reference}: its CUDA {version} does not run on {driver}, which brings CUDA {asked.support.cuda}"
        return Verdict(False, text, "compat/cuda.yaml (families)")
    return None


def _not_built(reference: str, repository: str, asked: _Asked) -> Verdict | None:
    """Return that an image is not published for the machine's architecture, with NVIDIA's own of the framework, or of CUDA, that fits."""
    arch = asked.machine.arch
    for row in asked.rules["images"]["others"]:
        if row["arch"] and arch not in row["arch"] and _is_upstreams(repository, row, asked.rules):
            text = (
                f"{reference}: {row['repository']} is published for {' and '.join(row['arch'])} alone, not for {arch}"
            )
            by_name = {image["image"]: image for image in asked.rules["images"]["images"]}
            fitting = (_best(by_name[name], asked)["reference"] for name in (row["framework"], "cuda"))
            return Verdict(False, text, cite(asked.rules, "images", row), next(filter(None, fitting), None))
    return None


def _verdict(reference: str, image: Row, row: Row, asked: _Asked) -> Verdict:
    """Return how an image runs that is what a row says."""
    repository, _colon, tag = reference.partition("@")[0].rpartition(":")
    of_toolkit = image["by"] == "toolkit"
    fit = _cuda_fit(row, asked) if of_toolkit else None if _lacks(row, asked) else _release_fit(row, asked)
    source = cite(asked.rules, "images", row)
    if fit is not None:
        return Verdict(True, f"{reference}: {_said(fit, asked)}", source)
    nearest = _best(image, asked)
    instead = _alike(tag, nearest["cuda"], asked) if of_toolkit else nearest["tag"]
    why, runs = _why_not(row, asked, of_toolkit=of_toolkit)
    return Verdict(runs, f"{reference}: {why}", source, f"{repository}:{instead}" if instead else None)


def _best(image: Row, asked: _Asked) -> Image:
    return _of_cuda(None, image, asked) if image["by"] == "toolkit" else _of_framework(image, asked)


def _is_upstreams(repository: str, image: Row, rules: Rules) -> bool:
    """Say whether a repository is the maker's own: in another registry somebody may have tagged what they liked."""
    row = next(each for each in rules["upstreams"]["rows"] if each["name"] == image["upstream"])
    return repository == f"{str(row['url']).rstrip('/').partition('://')[2]}/{image['repository']}"


def _no_latest(repository: str, image: Row, asked: _Asked) -> Verdict:
    """Return that an image has no tag latest, with the tag that fits here."""
    tag = _best(image, asked)["tag"]
    text = f"{repository}:latest: {image['repository']} has no tag latest, one with its version has to be named"
    return Verdict(False, text, cite(asked.rules, "images", image), f"{repository}:{tag}" if tag else None)


def _rows_of(image: Row, tag: str, rules: Rules) -> tuple[Row | None, Row | None]:
    """Return the row of a tag, twice; of a release that was not read the one before it and the one behind it, None where there is none."""
    if image["by"] == "toolkit":
        version = _CUDA_TAG.match(tag)
        known = next((row for row in rules["images"]["tags"] if version and _minor(row) == version["cuda"]), None)
        return known, known
    release = _RELEASE_TAG.match(tag)
    if not release:
        return None, None
    rows = [row for row in rules["images"]["releases"] if row["image"] == image["image"]]
    older = [row for row in rows if numeric_version.at_least(release.group(), row["release"])]
    newer = [row for row in rows if numeric_version.at_least(row["release"], release.group())]
    return older[-1] if older else None, newer[0] if newer else None


def _alike(tag: str, cuda: str | None, asked: _Asked) -> str | None:
    """Return the tag of a CUDA version that is of the same kind and system as another one, as far as there is one."""
    _release, _dash, rest = tag.partition("-")
    rows = [row for row in asked.rules["images"]["tags"] if _minor(row) == cuda]
    tags = [f"{row['release']}-{kind}-{system}" for row in rows for kind in row["kinds"] for system in row["systems"]]
    system = rest.rpartition("-")[2]
    # What is called cudnn8 is cudnn from CUDA 12.4 on.
    newer = re.sub(r"cudnn\d*", "cudnn", rest)
    same = (
        [each for each in tags if each.endswith((f"-{rest}", f"-{newer}"))]
        or [each for each in tags if f"-{newer}-" in each]
        or [each for each in tags if each.endswith(system)]
        or [each for each in tags if f"-{newer.rpartition('-')[0]}-" in each]
        or tags
    )
    return same[0] if same else None


def _why_not(row: Row, asked: _Asked, *, of_toolkit: bool) -> tuple[str, bool | None]:
    """Return why an image does not run, and False; or why it may not, and None where its own word was not read."""
    cuda = _minor(row) if of_toolkit else str(row["cuda"])
    cards, driver = _cards(asked.machine.cards), f"the driver (branch {asked.branch})" if asked.branch else "the driver"
    if targets.toolkit_lacks(cuda, asked.machine.cards, asked.rules):
        return f"its CUDA {cuda} has no code for {cards}", False
    if asked.support.mode(cuda, asked.rules) is None:
        compat = (
            ""
            if _are_datacenter(asked.machine.cards)
            else "; the cuda-compat in the image is for data-centre cards alone"
        )
        return f"its CUDA {cuda} does not run on {driver}, which brings CUDA {asked.support.cuda}{compat}", False
    if not of_toolkit:
        if _lacks(row, asked):
            sure = False if "min_compute_capability" in row else None
            return f"it has no code for {cards}, as far as was read", sure
        return f"its release notes ask for a driver of branch {row['driver']}, here is {asked.branch}", False
    known = next((each for each in asked.rules["images"]["admits"] if each["cuda"] == cuda), None)
    older = f"the image asks for a driver that brings CUDA {cuda}, {driver} brings {asked.support.cuda}"
    if known is None:
        return f"{older}; which older ones it lets in was not read", None
    if asked.branch in known[asked.machine.arch] and not known["geforce"]:
        return (
            f"{older}; older ones it lets in with data-centre and workstation cards alone, and here is {cards}: no container starts",
            False,
        )
    return (
        f"{older}, and of older branches it lets in {', '.join(known[asked.machine.arch]) or 'none'}: no container starts",
        False,
    )


def _are_datacenter(cards: Sequence[Card]) -> bool:
    return all(card.kind == "datacenter" for card in cards)


# nvidia/cuda ------------------------------------------------------------------------------------------


def _of_cuda(toolkit: str | None, image: Row, asked: _Asked) -> Image:
    """Return the tag for a toolkit of the stack (12.8), or for none the one that is nearest to the driver."""
    rows: list[Row] = asked.rules["images"]["tags"]
    if toolkit is not None:
        rows = [row for row in rows if _minor(row) == toolkit]
        if not rows:
            return _none(image, f"no image of CUDA {toolkit} was read", f"{_DATA} (tags)")
    fits = [fit for row in rows if (fit := _cuda_fit(row, asked)) is not None]
    if not fits:
        return _none(image, _no_cuda(rows, asked), f"{_DATA} (tags, admits)")
    best = _nearest(fits)
    row = _for_system([fit.row for fit in fits if fit.cuda == best.cuda], asked.machine, asked.rules)
    system = _system(row, asked.machine, asked.rules)
    tags = [f"{row['release']}-{kind}-{system}" for kind in row["kinds"]]
    said = _said(best, asked)
    text = f"{tags[0]}: {said}; the newest that does"
    if toolkit is not None:
        text = f"{tags[0]}: the toolkit that was chosen; {said}"
    named = _named(image, tags[0], best, text, row, asked)
    return {**named, "tags": tags}


def _cuda_fit(row: Row, asked: _Asked) -> _Fit | None:
    """Return how an image of nvidia/cuda runs; None where it has no code for a card, or would not start or run on the driver."""
    version = _minor(row)
    mode = asked.support.mode(version, asked.rules)
    if mode is None or targets.toolkit_lacks(version, asked.machine.cards, asked.rules):
        return None
    if mode != "native" and not _admitted(version, asked):
        return None
    return _Fit(row, version, mode)


def _admitted(version: str, asked: _Asked) -> bool:
    """Say whether an image starts on a driver that is older than its CUDA: the container toolkit reads that from the image."""
    rows: list[Row] = asked.rules["images"]["admits"]
    row = next((each for each in rows if each["cuda"] == version), None)
    if row is None or asked.branch not in row[asked.machine.arch]:
        return False
    return bool(row["geforce"]) or all(card.kind in ("datacenter", "workstation") for card in asked.machine.cards)


def _nearest(fits: Sequence[_Fit]) -> _Fit:
    """Return the newest that the driver brings in full; where there is none the one that is nearest to it."""
    native = [fit for fit in fits if fit.mode == "native"]
    if native:
        return max(native, key=lambda fit: numeric_version.key(fit.cuda))
    return min(fits, key=lambda fit: (_MODES.index(fit.mode), numeric_version.key(fit.cuda)))


def _for_system(rows: Sequence[Row], machine: Machine, rules: Rules) -> Row:
    """Return the row that has the machine's system, of one CUDA version; else the first."""
    suffix = _suffix(machine, rules)
    return next((row for row in rows if suffix in row["systems"]), rows[0])


def _system(row: Row, machine: Machine, rules: Rules) -> str:
    suffix = _suffix(machine, rules)
    return str(suffix if suffix in row["systems"] else row["systems"][0])


def _suffix(machine: Machine, rules: Rules) -> str | None:
    """Return what a tag calls the machine's system (ubuntu24.04, ubi9); None where no image is made of it."""
    name, _dash, version = machine.os.partition("-")
    row = next((each for each in rules["images"]["systems"] if each["id"] == name), None)
    return str(row["suffix"]).replace("{version}", version) if row else None


def _no_cuda(rows: Sequence[Row], asked: _Asked) -> str:
    """Return why none of some rows fits: the first reason that holds for all of them."""
    coded = [row for row in rows if not targets.toolkit_lacks(_minor(row), asked.machine.cards, asked.rules)]
    if not coded:
        return f"none has code for {_cards(asked.machine.cards)}"
    first = min((_minor(row) for row in coded), key=numeric_version.key)
    text = f"the first with code for {_cards(asked.machine.cards)} has CUDA {first}, the driver brings {asked.support.cuda}"
    if any(asked.support.mode(_minor(row), asked.rules) for row in coded):
        return f"{text}, and an image starts on an older driver only where it says so"
    return text


def _minor(row: Row) -> str:
    """Return the CUDA version (12.8) of a release (12.8.1)."""
    return ".".join(str(row["release"]).split(".")[:2])


# NGC's frameworks -------------------------------------------------------------------------------------


def _of_framework(image: Row, asked: _Asked) -> Image:
    """Return the newest release of the newest CUDA major version that runs, one that runs in full before others."""
    rows = [row for row in asked.rules["images"]["releases"] if row["image"] == image["image"]]
    coded = [row for row in rows if not _lacks(row, asked)]
    source = f"{_DATA} (releases)"
    if not coded:
        return _none(image, f"no release is known to have code for {_cards(asked.machine.cards)}", source)
    fits = [fit for row in coded if (fit := _release_fit(row, asked)) is not None]
    if not fits:
        oldest, newest = coded[0], coded[-1]
        text = (
            f"the releases with code for {_cards(asked.machine.cards)}, {oldest['release']} to {newest['release']}, "
            f"need CUDA {oldest['cuda']} to {newest['cuda']}; the driver brings {asked.support.cuda}"
        )
        return _none(image, text, source)
    best = max(fits, key=_preference)
    text = f"{best.row['tag']}: {_said(best, asked)}; the newest of those that were read"
    if image["last"]:
        text += f"; the series ended with {image['last']}"
    if not best.row["confirmed"]:
        text += "; what is known of it is not confirmed"
    named = _named(image, str(best.row["tag"]), best, text, best.row, asked)
    newer = _newer(best, fits)
    return {**named, "newer": newer} if newer else named


def _preference(fit: _Fit) -> tuple[bool, int, int, tuple[int, ...]]:
    """Return what a greater one of is preferred: without cuda-compat, the CUDA major version, how it runs, the release."""
    major = int(numeric_version.major(fit.cuda))
    return fit.mode != "forward", major, -_MODES.index(fit.mode), numeric_version.key(fit.row["release"])


def _newer(best: _Fit, fits: Sequence[_Fit]) -> NewerImage | None:
    """Return the newest release that fits and is newer than the chosen one, which it may be where CUDA does not run in full."""
    newest = max(fits, key=lambda fit: numeric_version.key(fit.row["release"]))
    if newest.row is best.row:
        return None
    return NewerImage(tag=newest.row["tag"], cuda=newest.cuda, mode=newest.mode)


def _lacks(row: Row, asked: _Asked) -> bool:
    """Say whether a release has no code for one of the cards: it begins at a compute capability, and ends where its CUDA ends."""
    least = row.get("min_compute_capability") or asked.rules["images"]["unread"][0]["min_compute_capability"]
    known = [card.compute_capability for card in asked.machine.cards if card.compute_capability]
    old = any(not numeric_version.at_least(capability, least) for capability in known)
    return old or bool(targets.toolkit_lacks(row["cuda"], asked.machine.cards, asked.rules))


def _release_fit(row: Row, asked: _Asked) -> _Fit | None:
    """Return how a release runs; None where it does not, or its notes ask for another driver."""
    mode = asked.support.mode(row["cuda"], asked.rules)
    if mode is None or not _by_the_notes(row, asked):
        return None
    return _Fit(row, str(row["cuda"]), mode)


def _by_the_notes(row: Row, asked: _Asked) -> bool:
    """Say whether the release notes let the driver's branch in; where they name none, or it is not known, the rules of CUDA decide."""
    if "driver" not in row or asked.branch is None or int(asked.branch) >= int(row["driver"]):
        return True
    return asked.branch in row["datacenter"] and _are_datacenter(asked.machine.cards)


# what is said -----------------------------------------------------------------------------------------


def _named(image: Row, tag: str, fit: _Fit, text: str, row: Row, asked: _Asked) -> Image:
    """Return a tag of an image with how it is reached, how it runs and why it was taken."""
    host = upstreams.url(image["upstream"], asked.wish, asked.rules).partition("://")[2]
    return Image(
        name=image["repository"],
        tag=tag,
        reference=f"{host}/{image['repository']}:{tag}",
        cuda=fit.cuda,
        mode=fit.mode,
        version=fit.row.get("version"),
        rule=f"image.{image['by']}",
        text=text,
        source=cite(asked.rules, "images", row),
    )


def _none(image: Row, text: str, source: str) -> Image:
    """Return that no tag of an image fits, with the reason."""
    return Image(
        name=image["repository"],
        tag=None,
        reference=None,
        cuda=None,
        mode=None,
        version=None,
        rule="image.none",
        text=text,
        source=source,
    )


def _said(fit: _Fit, asked: _Asked) -> str:
    return _SAYS[fit.mode].format(cuda=fit.cuda, own=asked.support.cuda)


def _cards(cards: Sequence[Card]) -> str:
    """Return the cards as a sentence names them, each once."""
    return " and ".join(f"the {name} ({capability})" for name, capability in dict(_capabilities(cards)).items())


def _capabilities(cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    for card in cards:
        yield card.name, card.compute_capability or "compute capability unknown"
