# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Framework wheels: release, CUDA variant, Python, and everything pinned that pip would let float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils import dotted

from ..rules import Row, Rules
from ..situation import Card, Situation
from ..wish import FrameworkWish, Wish
from . import cudnn, targets, upstreams
from .log import Entry, Log, Unresolved, conflict
from .power import Power

CPU = "cpu"
_STATUS = {"default": 0, "stable": 1, "legacy": 2, "experimental": 3, "unsupported": 4}


@dataclass(frozen=True)
class Choice:
    """A release of torch, the variant of its wheels (None: for the CPU) and the Python to run it with."""

    release: Row
    variant: Row | None
    python: str

    @property
    def tag(self) -> str:
        """The local version of the wheels, such as cu130."""
        return str(self.variant["variant"]) if self.variant else CPU


def choose(situation: Situation, wish: Wish, power: Power | None, log: Log) -> list[dict[str, Any]]:
    """Return one environment for each framework that was asked for. power None means: for the CPU. Raises Unresolved."""
    return [_pytorch(framework, situation, wish, power, log) for framework in wish.frameworks]


def newest_for(cards: Sequence[Card], arch: str, rules: Rules) -> str | None:
    """Return the newest torch with code for every card, as 2.14.1+cu130; whatever the driver."""
    for release in reversed(rules["frameworks"]["pytorch"]):
        fitting = [
            row
            for row in _variants(release, rules)
            if row["confirmed"] and not _card_reasons(row, release, cards, arch, Log(rules))
        ]
        if fitting:
            best = min(fitting, key=lambda row: _STATUS[row["status"]])
            return f"{release['version']}+{best['variant']}"
    return None


# which release, which variant --------------------------------------------------------------------------


def _pytorch(
    framework: FrameworkWish, situation: Situation, wish: Wish, power: Power | None, log: Log
) -> dict[str, Any]:
    cpu = power is None or framework.variant == CPU
    choice = _choice(framework, situation, wish, None if cpu else power, log, guesses=False)
    if isinstance(choice, list):
        again = _choice(framework, situation, wish, None if cpu else power, log, guesses=True)
        if isinstance(again, list):
            raise Unresolved(*choice)
        choice = again
        row = choice.variant or choice.release
        text = f"what is known of torch {choice.release['version']}+{choice.tag} is not confirmed"
        log.warn("frameworks.unconfirmed", text, log.cite("frameworks", row))
    _explain(choice, framework, power, log)
    return _environment(choice, wish, log)


def _choice(
    framework: FrameworkWish,
    situation: Situation,
    wish: Wish,
    power: Power | None,
    log: Log,
    *,
    guesses: bool,
) -> Choice | list[Entry]:
    """Return the newest release that fits with its best variant, or the reasons of the one that came nearest."""
    nearest: list[Entry] = []
    for release in _releases(framework, log.rules):
        python, reasons = _python(release, situation, wish, log)
        variants: list[Row | None] = [None]
        if power is not None:
            variants = [row for row in _variants(release, log.rules) if framework.variant in (None, row["variant"])]
        fitting: list[Row | None] = []
        for variant in variants:
            more = _variant_reasons(variant, release, situation, power, log, guesses=guesses)
            if python and not reasons and not more:
                fitting.append(variant)
            elif not nearest or len(reasons) + len(more) < len(nearest):
                nearest = [*reasons, *more]
        if fitting and python:
            return Choice(release, min(fitting, key=lambda row: _rank(row, power, log.rules)), python)
    return nearest or [_no_release(framework, log)]


def _releases(framework: FrameworkWish, rules: Rules) -> Iterator[Row]:
    for release in reversed(rules["frameworks"]["pytorch"]):
        if _matches(release["version"], framework.specifier):
            yield release


def _matches(version: str, specifier: str) -> bool:
    if not specifier:
        return True
    if specifier.startswith("==") and "," not in specifier:
        return dotted.belongs(version, specifier[2:].removesuffix(".*"))
    # packaging costs 20 ms: only a range pays for it.
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version)


def _variants(release: Row, rules: Rules) -> list[Row]:
    minor = ".".join(release["version"].split(".")[:2])
    return [row for row in rules["frameworks"]["pytorch_variants"] if row["release"] == minor]


def _rank(variant: Row | None, power: Power | None, rules: Rules) -> tuple[bool, int, tuple[int, ...]]:
    if variant is None or power is None:
        return False, 0, ()
    native = power.mode(variant["cuda"], rules) == "native"
    return not native, _STATUS[variant["status"]], tuple(-number for number in dotted.key(variant["cuda"]))


def _python(release: Row, situation: Situation, wish: Wish, log: Log) -> tuple[str | None, list[Entry]]:
    """Return the interpreter for a release: the one asked for, else the system's, else the newest that is there."""
    there = _interpreters(situation, log.rules)
    looked = situation.pythons is not None and "python" not in situation.assumed
    if wish.python and looked and wish.python not in there:
        text = f"python {wish.python} is asked for, this machine has {', '.join(there) or 'none'}"
        remedy = f"install python{wish.python} with its venv module"
        return None, [conflict("frameworks.python-missing", text, "the machine's facts", remedy)]
    usable = [each for each in ([wish.python] if wish.python else there) if each in release["python"]]
    if usable:
        return usable[0], []
    who = f"python {wish.python}" if wish.python else f"the Python of this machine ({', '.join(there)})"
    text = f"torch {release['version']} has no wheels for {who}, only for {', '.join(release['python'])}"
    return None, [
        conflict("frameworks.python", text, log.cite("frameworks", release), f"use python={release['python'][-1]}")
    ]


def _interpreters(situation: Situation, rules: Rules) -> list[str]:
    """Return the Pythons of a machine, the system's own first, then the newest."""
    system = next((row["python"] for row in rules["systems"]["rows"] if row["os"] == situation.os), None)
    there = list(situation.pythons) if situation.pythons is not None else [system] if system else []
    return sorted(there, key=lambda each: (each != system, tuple(-number for number in dotted.key(each))))


def _variant_reasons(
    variant: Row | None,
    release: Row,
    situation: Situation,
    power: Power | None,
    log: Log,
    *,
    guesses: bool,
) -> list[Entry]:
    if variant is None or power is None:
        return []
    name = f"torch {release['version']}+{variant['variant']}"
    entries = _card_reasons(variant, release, situation.cards, situation.arch, log)
    if power.mode(variant["cuda"], log.rules) is None:
        text = (
            f"{name} needs a driver for CUDA {dotted.major(variant['cuda'])}, the one chosen brings CUDA {power.cuda}"
        )
        entries.append(
            conflict(
                "frameworks.driver", text, "compat/cuda.yaml (families)", "use a newer driver, or an older variant"
            )
        )
    if not guesses and not (variant["confirmed"] and release["confirmed"]):
        text = f"what is known of {name} is not confirmed"
        entries.append(
            conflict("frameworks.unconfirmed", text, log.cite("frameworks", variant), "ask for it by its version")
        )
    return entries


def _card_reasons(variant: Row, release: Row, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    name = f"torch {release['version']}+{variant['variant']}"
    carried = variant["targets"].get(arch)
    if not carried:
        text = f"{name}: no wheel with CUDA code for {arch} is known"
        return [conflict("frameworks.arch", text, log.cite("frameworks", variant), "use another release")]
    entries = []
    for card in cards:
        if card.compute_capability and not targets.wheel_runs(card.compute_capability, carried):
            text = f"{name} has no code for the {card.name} (compute capability {card.compute_capability})"
            entries.append(
                conflict(
                    "frameworks.card",
                    text,
                    log.cite("frameworks", variant),
                    "use a release that has it: gpuwright gpus",
                )
            )
    return entries + _cudnn_reasons(name, variant, cards, log)


def _cudnn_reasons(name: str, variant: Row, cards: Sequence[Card], log: Log) -> list[Entry]:
    """Return the cards that the cuDNN inside the wheels does not serve, though torch has code for them."""
    row = _cudnn_row(variant["cudnn"], log.rules)
    entries = []
    for card in cards if row else ():
        capability = card.compute_capability
        if row and capability and not dotted.at_least(capability, row["min_compute_capability"]):
            text = f"{name} carries cuDNN {variant['cudnn']}, which does not serve the {card.name} (compute capability {capability})"
            entries.append(conflict("frameworks.cudnn", text, log.cite("cudnn", row), "use an older release"))
    return entries


def _cudnn_row(version: str | None, rules: Rules) -> Row | None:
    if version is None:
        return None
    minor = dotted.key(version)[:3]
    for row in rules["cudnn"]["rows"]:
        first, last = dotted.key(row["first"]), dotted.key(row["last"])
        if first <= minor[: max(len(first), 2)] and minor[: len(last)] <= last:
            found: Row = row
            return found
    return None


def _no_release(framework: FrameworkWish, log: Log) -> Entry:
    newest = log.rules["frameworks"]["pytorch"][-1]
    text = f"no release of torch matches {framework.text!r}; the newest known is {newest['version']}"
    return conflict("frameworks.release", text, log.cite("frameworks", newest), f"use pytorch={newest['version']}")


# what is installed -------------------------------------------------------------------------------------


def _environment(choice: Choice, wish: Wish, log: Log) -> dict[str, Any]:
    release, variant, tag = choice.release, choice.variant, choice.tag
    result = {
        "name": "pytorch",
        "version": release["version"],
        "variant": tag,
        "requirements": [f"torch=={release['version']}+{tag}", *_partners(release, tag, log)],
        "constraints": _constraints(choice, log.rules),
        "index_url": f"{upstreams.url('pytorch', wish, log.rules)}/{tag}",
        "cuda": variant["cuda"] if variant else None,
        "cudnn": variant["cudnn"] if variant else None,
        "python": list(release["python"]),
        "interpreter": choice.python,
        "path": f"{wish.frameworks_path}/pytorch",
    }
    if wish.mirrors.get("pypi"):
        result["extra_index_url"] = wish.mirrors["pypi"]
    return result


def _partners(release: Row, tag: str, log: Log) -> list[str]:
    """Return the pins of torchvision and torchaudio.

    pip cannot find a mismatch of theirs by itself: the newer ones do not name the torch they were built for.
    """
    pins = []
    for package in ("torchvision", "torchaudio"):
        version = release[package]
        limited = [
            row
            for row in log.rules["frameworks"]["pytorch_partners"]
            if row["package"] == package and row["version"] == version
        ]
        if limited and tag not in limited[0]["variants"]:
            text = f"{package} {version} has no wheels for the variant {tag}: it is left out"
            log.warn("frameworks.partner", text, log.cite("frameworks", limited[0]))
            continue
        pins.append(f"{package}=={version}")
    return pins


def _constraints(choice: Choice, rules: Rules) -> list[str]:
    variant, release = choice.variant, choice.release
    constraints = []
    if variant:
        suffix = f"cu{dotted.major(variant['cuda'])}"
        constraints += [f"nvidia-{name}-{suffix}=={variant[name]}" for name in ("cudnn", "nccl") if variant[name]]
    for row in rules["frameworks"]["pytorch_constraints"]:
        if not dotted.at_least(release["version"], row["below"]):
            constraints.append(row["constraint"])
    return constraints


def _explain(choice: Choice, framework: FrameworkWish, power: Power | None, log: Log) -> None:
    release = choice.release
    name = f"torch {release['version']}+{choice.tag}"
    if choice.variant is None:
        log.decided(
            "frameworks.pytorch",
            f"{name} for the CPU: the newest that {choice.python} runs",
            log.cite("frameworks", release),
        )
        return
    cuda = choice.variant["cuda"]
    mode = power.mode(cuda, log.rules) if power else None
    asked = (
        f"answers {framework.text!r}" if framework.specifier or framework.variant else "the newest confirmed release"
    )
    text = f"{name} ({asked}): it has code for every card, and its CUDA {cuda} runs on the driver ({mode})"
    log.decided("frameworks.pytorch", text, log.cite("frameworks", choice.variant))
    log.decided("frameworks.python", f"Python {choice.python}", log.cite("frameworks", release))
    for row in cudnn.limits([], [dotted.major(cuda)], log.rules["cudnn"]["ceilings"]):
        log.decided("frameworks.cudnn", f"its cuDNN stays at {choice.variant['cudnn']}", log.cite("cudnn", row))
