# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What people use beside the frameworks and ask for by its name: what the Python index has of it, whether that runs here, and how it is
installed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import DEFAULT

from ....model.wish import Requirement
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Machine
from ....rules import Row, companions
from ....wish import specifiers
from ..model import FrameworkEnvironment
from . import required
from .companions import Chosen, Place, choose, index_has

# From this release on PyTorch's wheels have the newer C++ ABI.
_NEW_ABI = "2.7"
# How a wheel of the Python index is installed: beside PyTorch, and by itself.
_OF_INDEX = {
    True: "name {name}=={version} in the file of a project, which is installed beside torch {torch}: project@NAME=requirements.txt",
    False: "in an environment of your own: python3 -m venv NAME, then NAME/bin/pip install {name}=={version}",
}
_CHOSEN_FOR_IT = (
    "name {name}=={version} in the file of a project, and a PyTorch that it is for is chosen: "
    "pytorch@NAME and project@NAME=requirements.txt"
)
_BESIDE = "beside a toolkit of CUDA {major} (cuda={toolkit})"
_NO_TORCH = "ask for a PyTorch that runs here first: what has to be installed follows from it"


_NOTHING = Chosen("", "", (), asked=False)


@dataclass(frozen=True)
class _How:
    """How something is asked for. ``beyond``: in a version that the index did not have; ``pinned``: beside no other PyTorch."""

    beyond: bool
    pinned: bool


def reasons(
    wished: Iterable[str],
    torch: FrameworkEnvironment | None,
    machine: Machine,
    place: Place,
    log: Log,
    *,
    pinned: bool,
) -> Iterator[Entry]:
    """Yield for each that is wished why it is not installed, and how it is. ``torch``: PyTorch as it was chosen; None where it does not
    fit; ``pinned``: whether another one is no answer.
    """
    place = replace(place, python=torch["interpreter"], cuda=torch["cuda"]) if torch else place
    beside = _beside(torch) if torch else []
    for each in wished:
        name = required.name(each)
        row = companions.of(name, log.rules)
        if row is None:
            continue
        fill = _build(torch, machine) if torch and torch["cuda"] else {}
        chosen = choose(each, place, beside, log.rules)
        better = choose(name, place, beside, log.rules)
        said = [f"{chosen.name} {chosen.version} {fault.text}" for fault in chosen.faults] if chosen else []
        said += [*_beyond(each, row), *_without_makers(name, row, torch)]
        # Another PyTorch may be chosen for what is asked for: then that stays.
        kept = bool(chosen and chosen.asked and not pinned and all(fault.other for fault in chosen.faults))
        better = chosen if kept else better
        version = chosen.version if chosen and kept else _version(each, row, chosen, better)
        fill = {
            **fill,
            "asked": required.exact(each) or version,
            "name": name,
            "plain": name.rpartition("-cu")[0] or name,
            "version": version,
        }
        text = "; ".join([*said, index_has(name, row)])
        remedy = _remedy(row, torch, chosen, better, _How(bool(_beyond(each, row)), pinned))
        yield conflict("frameworks.by-hand", _filled(text, fill), _source(row, chosen, log), _filled(remedy, fill))


def _beside(torch: FrameworkEnvironment) -> list[Requirement]:
    title = f"torch {torch['version']}"
    mine = [f"torch=={torch['version']}", *torch["requirements"][1:], *torch["constraints"]]
    return [Requirement(each, title) for each in mine]


def _beyond(asked: str, row: Row) -> list[str]:
    """Return that a version is asked for which the index did not have when it was read."""
    exact = required.exact(asked)
    if not exact or not row["newest"] or companions.key(exact) <= companions.key(row["newest"]):
        return []
    return [
        f"{required.name(asked)} {exact} is newer than the last one that was read of the Python index, {row['newest']}"
    ]


def _without_makers(name: str, row: Row, torch: FrameworkEnvironment | None) -> list[str]:
    """Return that the makers have no wheels for this PyTorch."""
    spec = row.get("makers", {}).get("torch")
    if not spec or not torch or specifiers.matches(torch["version"], spec):
        return []
    return [f"the wheels of {name} of its makers are for torch {spec}, not for {torch['version']}"]


def _version(asked: str, row: Row, chosen: Chosen | None, better: Chosen | None) -> str:
    """Return the release that is installed: what is asked for where nothing is against it, else what runs here, else the newest."""
    if chosen and not chosen.faults:
        return chosen.version
    if better and all(fault.other for fault in better.faults):
        return better.version
    return required.exact(asked) or row["newest"] or ""


def _source(row: Row, chosen: Chosen | None, log: Log) -> str:
    return log.cite("companions", chosen.faults[0].row if chosen and chosen.faults else row)


def _remedy(
    row: Row, torch: FrameworkEnvironment | None, chosen: Chosen | None, better: Chosen | None, how: _How
) -> str:
    """Return how it is installed, as a text with the places that a build fills."""
    builds = bool(torch and torch["cuda"])
    if any(fault.of_card for fault in (better or chosen or _NOTHING).faults):
        return f"leave it out{': ' + row['note'] if row.get('note') else ''}; or take another card"
    if row.get("instead"):
        return str(row["instead"]) if builds or "{major}" not in row["instead"] else _NO_TORCH
    if row["beside"] == DEFAULT and not builds:
        return _NO_TORCH
    fits = bool(better and not better.faults)
    older = fits and any(fault.of_card for fault in (chosen or _NOTHING).faults)
    needs = _needs(chosen, better)
    if row["there"] == "brought":
        return f"leave it out, and ask for {needs or row['beside']}, which brings it"
    ways = []
    if row["there"] == "wheels" and (older or not how.beyond):
        ways += [_OF_INDEX[row["beside"] == DEFAULT]] if fits or not (chosen and chosen.faults) else []
        ways += [_CHOSEN_FOR_IT] if needs and not fits and not how.pinned else []
    mine = needs if chosen and chosen.asked and not fits else ""
    # What its makers have besides is of newer ones.
    ways += () if older else _of_makers(row, torch, mine, for_it=fits or not needs)
    return "; or ".join(ways) if ways else _ask_for(needs)


def _needs(chosen: Chosen | None, better: Chosen | None) -> str:
    """Return what the release that is asked for, or the best one, needs instead of what is there, as it is asked for."""
    several = [fault.other for each in (chosen, better) if each for fault in each.faults if fault.other]
    return next((f"pytorch{each.removeprefix('torch')}" if each.startswith("torch") else each for each in several), "")


def _ask_for(needs: str) -> str:
    if needs.startswith(DEFAULT):
        return f"ask for a torch that it is for: {needs}"
    return (
        f"name {needs} beside it in the file of a project: project@NAME=requirements.txt" if needs else _OF_INDEX[False]
    )


def _of_makers(row: Row, torch: FrameworkEnvironment | None, asked: str, *, for_it: bool) -> Iterator[str]:
    """Yield how what a distribution's makers have is installed, and how it is built. ``for_it``: whether there are releases for this torch;
    ``asked``: the torch for which there is the one that is asked for.
    """
    makers: Mapping[str, str] = row.get("makers", {})
    serves = for_it and not (torch and _without_makers("", row, torch))
    besides = f"ask for a torch that it is for besides ({asked or 'pytorch' + makers.get('torch', '')})"
    if "file" in makers and serves:
        wheel = f"take the wheel of {{name}} {{asked}} itself whose name has {makers['file']} ({makers['page']})"
        yield f"{wheel}: {{pip}} install --no-deps FILE"
    elif "file" in makers and asked:
        yield f"{besides}: which wheel of its makers fits ({makers['page']}) is in the answer then"
    elif serves and "page" in makers:
        yield f"take the wheel of its makers ({makers['page']}): {{pip}} install --no-deps FILE"
    elif serves and "links" in makers:
        yield f"take the wheel of its makers: {{pip}} install {{name}} -f {makers['links']}"
    elif "links" in makers:
        yield f"{besides}: the address of its makers' wheel is in the answer then"
    if "git" in makers:
        yield f"build it {_BESIDE}: {{pip}} install --no-build-isolation '{makers['git']}'"
    elif row["there"] == "source":
        yield f"build it {_BESIDE}: {{pip}} install --no-build-isolation {{name}}=={{asked}}"


def _build(torch: FrameworkEnvironment, machine: Machine) -> dict[str, str]:
    """Return what the name of a build is made of."""
    version, cuda = torch["version"], str(torch["cuda"])
    return {
        "torch": version,
        "minor": ".".join(version.split(".")[:2]),
        "variant": torch["variant"],
        "toolkit": cuda,
        "major": numeric_version.major(cuda),
        "abi": str(numeric_version.at_least(version, _NEW_ABI)).upper(),
        "cp": f"cp{torch['interpreter'].replace('.', '')}",
        "arch": machine.arch,
        "pip": f"{torch['path']}/bin/python -m pip",
    }


def _filled(text: str, fill: Mapping[str, str]) -> str:
    for name, value in fill.items():
        text = text.replace(f"{{{name}}}", value)
    return text
