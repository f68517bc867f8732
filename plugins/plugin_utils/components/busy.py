# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether cards, a host or a container engine are in use, which no change is made under.

What is not known is not idle. ``gpuwright_allow_busy`` gives leave to change it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ..model import sections
from ..model.errors import StepRefused
from ..model.in_use import Disturbance, InUse

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, RunningContainer

    from ..model.plan import Plan

#: Uses that a refusal names.
_MOST_NAMED = 5
_DRAWS, _DRAWS_TOO = "G", "C+G"
#: What containerd holds too: Docker's containers and pods lie in it.
_OF_CONTAINERD = ("containerd", "docker", "kubernetes")


class Restart(TypedDict):
    """Whether an engine may be restarted, and why not, for a person."""

    may: bool
    why: str


def cards(facts: Facts, *, drawing_too: bool = False) -> InUse:
    """Whether the cards are in use: by those who hold them, and by the processes that nvidia-smi names, where it answers.

    nvidia-smi's types: C computes, M+C computes through MPS; one of type G draws the desktop; one without a type counts as computing.
    ``drawing_too``: with those that compute and draw (C+G). Who holds a card and draws alone does not use it; without nvidia-smi's word
    whoever holds one does.
    """
    every = [process for card in sections.cards(facts) for process in card.get("processes") or ()]
    draws = (_DRAWS,) if drawing_too else (_DRAWS, _DRAWS_TOO)
    # One may draw on one card and compute on another.
    computing = {process["pid"]: process["name"] for process in every if process["type"] not in draws}
    drawing = {process["pid"] for process in every} - computing.keys()
    who: dict[int | None, str | None] = {
        each["pid"]: each["name"] for each in facts["in_use"]["holders"] if each["pid"] not in drawing
    }
    return _answer(facts, [f"{name} (pid {pid})" for pid, name in (who | computing).items()])


def host(facts: Facts) -> InUse:
    """Whether a boot would end anything: the cards are in use, a job of Slurm's runs, an engine builds or pulls, or a container runs that
    the machine does not start again by itself.
    """
    running = facts["in_use"]
    containers = [each for each in running["containers"] if not each["comes_back"]]
    working = [each["what"] for each in running["working"]]
    return _answer(facts, [*cards(facts).who, *running["jobs"], *working, *_named(containers)])


def docker(facts: Facts) -> InUse:
    """Whether a restart of Docker would end anything: each of its containers, and what its clients have it do."""
    running = facts["in_use"]
    containers = [each for each in running["containers"] if each["engine"] == "docker"]
    working = [each["what"] for each in running["working"] if each["engine"] == "docker"]
    clients = running["docker_clients"]
    connected = (
        [f"{words.count(clients, 'clients')} that {words.verb(clients, 'are')} connected to Docker"] if clients else []
    )
    return _answer(facts, [*working, *connected, *_named(containers)])


def containerd(facts: Facts) -> InUse:
    """Whether a restart of containerd would end anything."""
    running = facts["in_use"]
    containers = [each for each in running["containers"] if each["engine"] in _OF_CONTAINERD]
    working = [each["what"] for each in running["working"] if each["engine"] in _OF_CONTAINERD]
    return _answer(facts, [*working, *_named(containers)])


#: Engines with a daemon that reads its configuration when it starts, by their units: what they are called, and whether they are in use.
_ENGINES: Mapping[str, tuple[str, Callable[[Facts], InUse]]] = {
    "docker": ("Docker", docker),
    "containerd": ("containerd", containerd),
}


def restart(facts: Facts, plan: Plan, engine: str) -> Restart:
    """Whether an engine may be restarted: nothing runs in it, or leave was given."""
    title, asked = _ENGINES[engine]
    use = asked(facts)
    if use.state == "idle" or plan["allow_busy"]:
        return {"may": True, "why": ""}
    return {"may": False, "why": text(Disturbance(f"nothing to run in {title}", "it is to be restarted", use))}


def _named(containers: Iterable[RunningContainer]) -> list[str]:
    return [f"container {each['id']} of {each['engine']}" for each in containers]


def _answer(facts: Facts, who: list[str]) -> InUse:
    unread = facts["in_use"]["unread"]
    if who:
        return InUse("busy", tuple(who))
    return InUse("unknown", why=unread) if unread else InUse("idle")


def refuse(plan: Plan, disturbances: Iterable[Disturbance]) -> None:
    """Raise StepRefused for the first that is not known to be idle, unless leave was given."""
    for each in () if plan["allow_busy"] else disturbances:
        if each.use.state != "idle":
            raise StepRefused(f"{text(each)} What to do: {REMEDY}.")


def text(disturbance: Disturbance) -> str:
    """What is refused, as sentences."""
    use = disturbance.use
    expected = f"Expected {disturbance.what}, because {disturbance.because}."
    if use.state == "unknown":
        return f"{expected} Found that nobody can tell whether it is so: {use.why}."
    more = len(use.who) - _MOST_NAMED
    return (
        f"{expected} Found what uses it: {', '.join(use.who[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}."
    )


#: What a person does.
REMEDY = (
    "let the work end or stop it, and run again as root; or give leave to end it: -e gpuwright_allow_busy=true, in an inventory"
    " gpuwright_allow_busy: true"
)
