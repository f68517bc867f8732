# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that a container sees the cards of the host by each way that its engine has, and sees them yet after a `systemctl daemon-reload`.

The container has no network and no volume, and is of an image that is there. It does nothing but sleep, ends by itself where nobody is
left to end it, and is asked by ``nvidia-smi -L``.
"""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run, words
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

CARDS = "container.cards"
RELOAD = "container.reload"
#: How an engine is asked for all cards, by the name of the way.
WAYS: Dict[str, Tuple[str, str]] = {"gpus": ("--gpus", "all"), "cdi": ("--device", "nvidia.com/gpu=all")}
#: As NVIDIA's guide has it for Podman: SELinux lets no container at the device nodes otherwise.
_OF_ENGINE: Dict[str, Sequence[str]] = {"docker": (), "podman": ("--security-opt", "label=disable")}
#: An image may ask for less than nvidia-smi, and have another PATH than the one in which the toolkit puts it.
_VARIABLES = (
    "NVIDIA_DRIVER_CAPABILITIES=utility",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)
#: Seconds after which a container that nobody ended ends by itself.
_LIFE = 900
#: Seconds that systemd has, after it says that it read its units again, to set the devices of each control group.
_SETTLES = 2.0
#: A row of a card, with its number, or of a part of one.
_ROW = re.compile(r"^(?:GPU (\d{1,4}): |\s+MIG ).*\(UUID: ", re.ASCII)
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]{1,100})\)", re.ASCII)
_CONNECTS = re.compile(r"cannot connect to the docker daemon|permission denied", re.IGNORECASE)
#: Docker 28 and Podman 4.3 of an image that is not there. What says anything else could not be asked.
_ABSENT = re.compile(r"no such image|image not known", re.IGNORECASE)
_NO_SLEEP = re.compile(r"\bsleep\b.*(?:not found|no such file)", re.IGNORECASE | re.DOTALL)

# What engines say of cards that they cannot hand out. The first match decides.
_TROUBLES: Tuple[Tuple[str, str], ...] = (
    (
        r"could not select device driver|nvidia-container-runtime-hook",
        "see the check container.daemon_json; Docker finds the toolkit's hook when it starts: systemctl restart docker.service, when its "
        "containers may stop. Where the hook itself is not there, " + checks.again("nvidia-container-runtime-hook"),
    ),
    (
        r"unresolvable CDI devices|no such device|CDI.*not (?:supported|enabled)|CDI device injection failed",
        "systemctl restart nvidia-cdi-refresh.service, then prove again; see the check container.cdi",
    ),
    (
        r"unsatisfied condition|requirement error",
        "the image asks for a newer driver: gpuwright resolve names the tag that fits this one, container-image=auto takes it",
    ),
)
_ELSE = "read what it says, and see the checks container.cdi and container.device_links"


class Question(NamedTuple):
    """What is asked of an engine.

    ``images``: of which the first that is there is taken. ``ways``: names of WAYS. ``unlinked``: device nodes without a link in /dev/char;
    with some, systemd is not asked to read its units again, which could take the cards from those of others. ``smi``: that of the host.
    """

    engine: str
    images: Sequence[str]
    ways: Sequence[str]
    unlinked: Sequence[str]
    smi: str
    timeout: float


class Runner(Protocol):
    """What runs a program: :func:`run.run`, or a test in its place."""

    def __call__(self, argv: Sequence[str], /, *, timeout: float) -> run.Result:
        """Run it for at most so many seconds."""


def uuids(text: str) -> Set[str]:
    """The cards and MIG devices that `nvidia-smi -L` lists."""
    return set(_UUID.findall(text))


def is_whole(text: str) -> bool:
    """Whether a list leaves no card out: its numbers have no gap, and nothing is said in place of a row."""
    rows = [_ROW.match(line) for line in text.splitlines() if line.strip()]
    numbers = [int(row.group(1)) for row in rows if row and row.group(1)]
    return all(rows) and numbers == list(range(len(numbers)))


def prove(question: Question, runner: Runner = run.run, pause: Callable[[float], None] = time.sleep) -> List[Check]:
    """``container.cards`` of each way, and ``container.reload`` of each that works."""
    told = runner([question.smi, "-L"], timeout=question.timeout)
    host = uuids(told.out) if told.ok else set()
    if host and not is_whole(told.out):
        reason = "nvidia-smi of the host does not list every card, so that no container can be held against it"
        return [checks.incomplete(CARDS, reason, evidence=_said(told), action="none", remedy="see the checks smi.*")]
    if not host:
        reason = "nvidia-smi of the host lists no card that a container could be held against"
        return [checks.incomplete(CARDS, reason, evidence=_said(told), action="none", remedy="see the checks smi.*")]
    image, why = _image(question, runner)
    if image is None:
        return [why or _no_image(question, "")]
    names: List[str] = []
    try:
        return _ways(question, image, host, names, runner, pause)
    finally:
        for name in names:
            runner([question.engine, "rm", "--force", name], timeout=question.timeout)


def _image(question: Question, runner: Runner) -> Tuple[Optional[str], Optional[Check]]:
    """The first image that is there; or why none is."""
    said = ""
    for image in question.images:
        answer = runner([question.engine, "image", "inspect", "--format", "{{.Id}}", image], timeout=question.timeout)
        if answer.ok:
            return image, None
        said = _said(answer)
    return None, _no_image(question, said)


def _no_image(question: Question, said: str) -> Check:
    if _CONNECTS.search(said):
        reason = f"{question.engine} cannot be asked"
        remedy = f"ask as root; where it does not run, {question.engine} info says why"
    elif said and not _ABSENT.search(said):
        reason, remedy = (
            f"{question.engine} cannot be asked for its images",
            f"call {question.engine} info and mend what it says",
        )
    else:
        reason = f"{question.engine} has none of the images that are wished, and none is pulled for a check"
        remedy = "run gpuwright up, which pulls them"
    return checks.incomplete(CARDS, reason, evidence=said or None, action="configure", remedy=remedy)


def _ways(
    question: Question,
    image: str,
    host: Set[str],
    names: List[str],
    runner: Runner,
    pause: Callable[[float], None],
) -> List[Check]:
    """Start a container for each way and ask it, then all of them once more. ``names``: what is to be ended, before it is begun."""
    found: List[Check] = []
    good: List[Tuple[str, str]] = []
    for way in question.ways:
        name = f"gpuwright-check-{os.urandom(6).hex()}"
        names.append(name)
        started = runner(_start(question.engine, way, name, image), timeout=question.timeout)
        check = _judge_start(way, image, started)
        if check is None:
            check = _ask(CARDS, question, way, name, host, runner)
        found.append(check)
        if check["status"] == "pass":
            good.append((way, name))
    return found + _after_reload(question, good, host, runner, pause)


def _start(engine: str, way: str, name: str, image: str) -> List[str]:
    variables = [word for each in _VARIABLES for word in ("--env", each)]
    words = [engine, "run", "--detach", "--rm", "--pull", "never", "--network", "none", "--name", name, *variables]
    # A first process without a handler takes no SIGTERM: Podman would wait ten seconds for it at the end.
    words += ["--stop-timeout", "0"]
    return [*words, *_OF_ENGINE[engine], *WAYS[way], "--entrypoint", "sleep", image, str(_LIFE)]


def _judge_start(way: str, image: str, answer: run.Result) -> Optional[Check]:
    """None where the container runs."""
    if answer.ok:
        return None
    said = _said(answer)
    if answer.error or _CONNECTS.search(said):
        reason = f"no container could be started with {_words(way)}"
        return checks.incomplete(CARDS, reason, evidence=said, action="none", remedy="start one by hand")
    if _NO_SLEEP.search(said):
        remedy = "wish for an image with a shell besides, such as container-image=auto"
        return checks.incomplete(CARDS, f"{image} has no program sleep", evidence=said, action="none", remedy=remedy)
    reason = f"a container with {_words(way)} does not start"
    return checks.failed(CARDS, reason=reason, evidence=said, action="configure", remedy=_remedy(said))


def _ask(check_id: str, question: Question, way: str, name: str, host: Set[str], runner: Runner) -> Check:
    """Hold what nvidia-smi lists in a container against what it lists on the host."""
    answer = runner([question.engine, "exec", name, "nvidia-smi", "-L"], timeout=question.timeout)
    when = " after a systemctl daemon-reload" if check_id == RELOAD else ""
    what, said = f"a container with {_words(way)}", _said(answer)
    if answer.error:
        reason = f"nvidia-smi in {what} did not end{when}"
        remedy = "call it by hand; read the kernel log for Xid messages"
        return checks.incomplete(check_id, reason, evidence=said, action="none", remedy=remedy)
    inside = uuids(answer.out)
    if inside == host and answer.ok:
        return checks.passed(
            check_id,
            reason=f"{what} sees the host's {words.count(len(host), 'cards')} and parts{when}",
            measured=len(inside),
        )
    return checks.failed(
        check_id,
        reason=f"{what} does not see the host's cards{when}: {_difference(inside, host)}",
        measured=len(inside),
        expected=len(host),
        evidence=said,
        action="configure",
        remedy=_remedy(said),
    )


def _difference(inside: Set[str], host: Set[str]) -> str:
    told = []
    if host - inside:
        told.append(f"it lacks {', '.join(sorted(host - inside))}")
    if inside - host:
        told.append(f"it has {', '.join(sorted(inside - host))}, which the host has not")
    return "; ".join(told) or "nvidia-smi ended with an error"


def _after_reload(
    question: Question,
    good: Sequence[Tuple[str, str]],
    host: Set[str],
    runner: Runner,
    pause: Callable[[float], None],
) -> List[Check]:
    """Have systemd read its units again, as each installation of a package does, and ask the containers that saw the cards."""
    if not good:
        reason = "no container sees the cards, so none can lose them"
        return [checks.incomplete(RELOAD, reason, action="none", remedy=f"see the check {CARDS}")]
    if question.unlinked:
        reason = (
            "systemd was not asked to read its units again, which may take the cards from containers that run: no link in /dev/char "
            f"leads to {', '.join(question.unlinked)}"
        )
        return [checks.incomplete(RELOAD, reason, action="configure", remedy="run gpuwright up, which makes the links")]
    answer = runner(["systemctl", "daemon-reload"], timeout=question.timeout)
    if not answer.ok:
        reason = "systemctl daemon-reload did not succeed"
        remedy = "call it by hand, as root"
        return [checks.incomplete(RELOAD, reason, evidence=_said(answer), action="none", remedy=remedy)]
    pause(_SETTLES)
    return [_ask(RELOAD, question, way, name, host, runner) for way, name in good]


def _words(way: str) -> str:
    return " ".join(WAYS[way])


def _remedy(said: str) -> str:
    return next((remedy for pattern, remedy in _TROUBLES if re.search(pattern, said, re.IGNORECASE)), _ELSE)


def _said(answer: run.Result) -> str:
    """What a program says, the end of it."""
    text = "\n".join(filter(None, [answer.error, answer.out.strip(), answer.err.strip()]))
    return text[-checks.EVIDENCE_LIMIT :] or f"it ended with {answer.rc}"
