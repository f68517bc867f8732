"""The options of the command line, and nothing that acts on them."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from gpuwright import __version__
from gpuwright.errors import BadInput
from gpuwright.sizing import engines
from gpuwright.sizing import formats as sizing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Verbs that the contract names and this version does not have yet. Not in the help: what is listed works.
LATER = ("bundle",)

# What must not reach ansible-playbook behind `--`, and what to use instead.
_NOT_THROUGH = {
    "-i": "use -i before the `--`",
    "--inventory": "use -i before the `--`",
    "-l": "use -l before the `--`",
    "--limit": "use --limit before the `--`",
    "-K": "use -K before the `--`",
    "--ask-become-pass": "use -K before the `--`",
    "-C": "use `gpuwright plan`",
    "--check": "use `gpuwright plan`",
    "-k": "use an ssh key or the inventory's connection settings",
    "--ask-pass": "use an ssh key or the inventory's connection settings",
    "-J": "use --vault-password-file",
    "--ask-vault-pass": "use --vault-password-file",
    "--ask-vault-password": "use --vault-password-file",
    "--step": "there is nobody to answer it; use `gpuwright plan` to see what would be done",
    "--start-at-task": "a run always begins by observing the host; what is already right is not done again",
    "--list-hosts": "use ansible-inventory --graph",
    "--list-tasks": "use `gpuwright plan`",
    "--list-tags": "use ansible-playbook itself",
    "--syntax-check": "use ansible-playbook itself",
    "--version": "use `gpuwright --version`",
    "-h": "use ansible-playbook --help",
    "--help": "use ansible-playbook --help",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing, so that there is one place where errors are shown.

    Attributes:
        examples: commands that the help begins with, and what each is for.
    """

    examples: Mapping[str, str] = MappingProxyType({})

    def format_help(self) -> str:
        """Return the help, behind its examples."""
        width = max(map(len, self.examples), default=0)
        lines = [f"  {command:<{width}}  # {what}\n" for command, what in self.examples.items()]
        return "".join(["examples:\n", *lines, "\n"] if lines else []) + super().format_help()

    def error(self, message: str) -> NoReturn:
        """Turn argparse's complaint into the contract's exit 2, with the nearest option that exists."""
        raise BadInput(message, [*self._near(message), f"see `{self.prog} --help`"])

    def _near(self, message: str) -> list[str]:
        options = [option for action in self._actions for option in action.option_strings]
        loose = message.partition("unrecognized arguments:")[2]
        unknown = re.findall(r"(?<![\w-])(--?[\w-]+)", loose)
        if loose and not unknown and "--want" in options:
            wanted = " ".join(f"--want {shlex.quote(word)}" for word in loose.split())
            return [f"what is wanted stands behind --want: {self.prog} {wanted}"]
        if early := [word for word in unknown if word in options]:
            return [f"options stand behind the command: {self.prog} {' '.join(early)} ..."]
        found = [match for word in unknown for match in difflib.get_close_matches(word, options, 1)]
        choice = re.search(r"invalid choice: '([^']*)' \(choose from ([^)]*)\)", message)
        if choice:
            choices = [word.strip(" '") for word in choice.group(2).split(",")]
            found += difflib.get_close_matches(choice.group(1), choices, 1)
        return [f"did you mean {match}?" for match in found]


def split_ansible_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what stands behind the first `--` for ansible-playbook.

    Raises:
        BadInput: an option behind `--` that would change what the command line itself decides.
    """
    if "--" not in argv:
        return list(argv), []
    at = list(argv).index("--")
    passed = list(argv[at + 1 :])
    for word in passed:
        name = word.partition("=")[0]
        if name in _NOT_THROUGH:
            raise BadInput(f"{name} cannot be passed to ansible-playbook", [_NOT_THROUGH[name]])
    return list(argv[:at]), passed


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        BadInput: it is not one of ours.
    """
    own, passed = split_ansible_options(argv)
    verb = next((word for word in own if not word.startswith("-")), None)
    if verb in LATER:
        raise BadInput(
            f"`gpuwright {verb}` comes in a later version; this is {__version__}", ["see `gpuwright --help`"]
        )
    parser = build_parser()
    # Abbreviated and unknown options are told by the verb's own parser, which knows the near ones.
    args, unknown = parser.parse_known_args(own)
    if unknown:
        args.verb_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.verb is None:
        parser.error("a command is missing")
    if passed and not args.takes_ansible_options:
        raise BadInput(f"`gpuwright {args.verb}` does not run Ansible: nothing can follow `--`")
    args.ansible_options = passed
    return args


def build_parser() -> Parser:
    """The parser with its verbs."""
    parser = Parser(
        prog="gpuwright",
        description="Brings Linux machines with NVIDIA GPUs to a deep-learning node that is proven to work.",
        epilog="Exit codes: 0 done and proven; 1 a host failed, is not proven or unreachable; 2 bad input; "
        "3 refused before any change; 4 done, a reboot is needed to finish; 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gpuwright {__version__}")
    parser.set_defaults(verb=None, json=False, verbose=0)
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    _host_verb(verbs, "up", "observe, plan, apply what is missing and prove it", changes=True)
    _host_verb(verbs, "plan", "show what `up` would do; changes nothing")
    _validate(verbs)
    _host_verb(verbs, "doctor", "look for what is wrong and name the remedy; changes nothing")
    upgrade = _host_verb(
        verbs, "upgrade", "move to the newest that the wish allows, prove it and lock it again", changes=True
    )
    upgrade.add_argument(
        "--security", action="store_true", help="only to the lowest versions without a published vulnerability"
    )
    _host_verb(verbs, "rollback", "return to the driver that worked before the last change, and prove it", changes=True)
    _host_verb(verbs, "remove", "take back everything that gpuwright brought", changes=True)
    _host_verb(verbs, "status", "show which driver each host is on, held or drifting; changes nothing")
    _top(verbs)
    _resolve(verbs)
    _gpus(verbs)
    _size(verbs)
    _cost(verbs)
    _init(verbs)
    _runs(verbs)
    _demo(verbs)
    _completion(verbs)
    return parser


_Verbs = argparse._SubParsersAction  # noqa: SLF001 - argparse names the type of add_subparsers() only so


#: What `-v` shows of a verb that works on hosts, and of one that only counts.
_MORE = "show more: the reasons of a plan, Ansible's output, tracebacks of internal errors"
_MORE_OF_COUNTING = "show the traceback of an internal error"


def _verb(verbs: _Verbs[Parser], name: str, summary: str, *, ansible: bool = False, more: str = _MORE) -> Parser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="What follows `--` is passed to ansible-playbook, for example `-- --forks 50`." if ansible else None,
        allow_abbrev=False,
    )
    parser.set_defaults(verb=name, verb_parser=parser, takes_ansible_options=ansible)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.add_argument("-v", "--verbose", action="count", default=0, help=more)
    return parser


def _host_verb(verbs: _Verbs[Parser], name: str, summary: str, *, changes: bool = False) -> Parser:
    parser = _verb(verbs, name, summary, ansible=True)
    hosts = _hosts(parser)
    hosts.add_argument(
        "--user", action="store_true", help="without root: environments of your own, in your home, on this machine"
    )
    hosts.add_argument("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
    _wish(parser, with_file=True)
    parser.add_argument("--lock", metavar="FILE", help="take the versions that `gpuwright resolve --lock` wrote")
    parser.add_argument(
        "--gpu", metavar="NAME", action="append", default=[], help="a card that is, or will be, in the hosts (repeat)"
    )
    parser.add_argument("--full", action="store_true", help="look at everything again, also where a seal is good")
    parser.add_argument("--no-reboot", action="store_true", help="never reboot a host")
    parser.add_argument(
        "--allow-remove",
        metavar="NAME",
        action="append",
        default=[],
        help="a package that is not gpuwright's and may go, be downgraded, or change though it is on hold (repeat)",
    )
    parser.add_argument(
        "--allow-source",
        metavar="NAME",
        action="append",
        default=[],
        help="with --user: a Python distribution without a wheel that may be built from its source, whose code runs as you (repeat)",
    )
    parser.add_argument(
        "--report", metavar="DIR", help="where the report is written (default: the user's state directory)"
    )
    yes_help = "do not ask before changes" if changes else argparse.SUPPRESS
    parser.add_argument("--yes", action="store_true", help=yes_help)
    return parser


def _validate(verbs: _Verbs[Parser]) -> None:
    parser = _host_verb(verbs, "validate", "measure the node and write the report")
    proof = parser.add_argument_group("proof")
    proof.add_argument(
        "--profile",
        choices=("quick", "standard", "burn-in"),
        help="how hard: look only, load the cards for at most 5 minutes, or for as long as --for says (default: quick)",
    )
    proof.add_argument(
        "--for", metavar="TIME", dest="duration", type=_duration, help="of a burn-in: 90m, 12h (default: 1h)"
    )
    proof.add_argument(
        "--fabric", action="store_true", help="measure NCCL between the hosts as well: by pairs, then all together"
    )
    proof.add_argument("--busy", action="store_true", help="load cards too that compute for somebody")
    proof.add_argument(
        "--boots", metavar="N", type=_boots, help="read the kernel log of N earlier boots as well (at most 10)"
    )


#: Seconds of a burn-in: what `standard` takes, and a week.
_BURN_IN = (300, 7 * 86_400)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _duration(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text, re.ASCII)
    seconds = int(match.group(1)) * _UNITS[match.group(2)] if match else 0
    if not _BURN_IN[0] <= seconds <= _BURN_IN[1]:
        raise argparse.ArgumentTypeError(f"expected a time from 5m to 7d, such as 90m or 12h, found {text!r}")
    return seconds


def _boots(text: str) -> int:
    if not re.fullmatch(r"\d{1,2}", text, re.ASCII) or int(text) > 10:
        raise argparse.ArgumentTypeError(f"expected a number of boots from 0 to 10, found {text!r}")
    return int(text)


def _hosts(parser: Parser, *, short: bool = False) -> argparse._ArgumentGroup:
    """What every verb over hosts is told about them; ``short``: the help has only what says which hosts."""
    hosts = parser.add_argument_group("hosts")
    hosts.add_argument(
        "-i", "--inventory", metavar="INVENTORY", action="append", help="Ansible inventory (default: this machine)"
    )
    hosts.add_argument("-l", "--limit", metavar="PATTERN", help="only these hosts of the inventory")
    hosts.add_argument(
        "-e",
        "--extra-vars",
        metavar="VAR",
        action="append",
        default=[],
        help=argparse.SUPPRESS if short else "Ansible variable: key=value, JSON or @FILE",
    )
    hosts.add_argument(
        "--vault-password-file",
        metavar="FILE",
        help=argparse.SUPPRESS if short else "file with the password of Ansible vault",
    )
    return hosts


#: What the other verbs over hosts may be asked, and `top` has no use for.
_NOT_ASKED: dict[str, object] = {
    "want": [],
    "wish": None,
    "lock": None,
    "gpu": [],
    "report": None,
    "user": False,
    "full": False,
    "no_reboot": True,
    "allow_remove": [],
    "allow_source": [],
    "ask_become_pass": False,
}


def _top(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "top", "show what the cards do now, or a day of their log; changes nothing", ansible=True)
    _hosts(parser)
    parser.set_defaults(**_NOT_ASKED)
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        help="how often it is refreshed, 1 to 3600 (default: 2; with -i 10)",
    )
    parser.add_argument("--once", action="store_true", help="one sample, also on a terminal")
    parser.add_argument(
        "--day",
        metavar="YYYY-MM-DD",
        nargs="?",
        const="",
        help="draw this day of the light log (UTC; default: today)",
    )


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text, re.ASCII) or not 1 <= float(text) <= 3600:
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 1 to 3600, found {text!r}")
    return float(text)


def _wish(parser: Parser, *, with_file: bool = False) -> None:
    wish = parser.add_argument_group("wish")
    wish.add_argument(
        "--want",
        metavar="C[=SPEC]",
        action="append",
        default=[],
        help="a component, as people write versions: driver=580, cuda=12.8, cudnn, container-toolkit, pytorch>=2.7 (repeat)",
    )
    if with_file:
        wish.add_argument("--wish", metavar="FILE", help="the same as a YAML file of variables")


def _resolve(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "resolve", "answer which versions fit together; needs no host and no network")
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--gpu", metavar="NAME", action="append", default=[], help="a card, as people name it (repeat)"
    )
    machine.add_argument("--os", metavar="ID-VERSION", help="for example ubuntu-24.04 (default: this machine)")
    machine.add_argument("--arch", metavar="ARCH", help="x86_64 or aarch64 (default: this machine)")
    machine.add_argument("--facts", metavar="FILE", help="an observation that a run wrote (facts/HOST.json)")
    machine.add_argument(
        "--assume",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="what decides and is not given: secure_boot, kernel, desktop, python, wsl, nvswitch, glibc, windows_driver (repeat)",
    )
    _wish(parser)
    parser.add_argument("--lock", metavar="FILE", help="write the answer, for `up --lock`")
    parser.add_argument(
        "--hashes",
        metavar="FILE",
        action="append",
        default=[],
        help="a node's gpuwright-wheels.txt: the lock holds others to exactly these wheels (repeat)",
    )


def _gpus(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "gpus", "show what the rules know of a card")
    parser.add_argument(
        "pattern", metavar="PATTERN", nargs="?", help="part of a name or a PCI device id (default: all)"
    )


def _size(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "size", "answer which cards a model needs, whether it fits and how fast it is", ansible=True)
    parser.usage = "gpuwright size MODEL [options]"
    parser.examples = {
        "gpuwright size llama-3.1-70b": "which cards it answers on",
        "gpuwright size Qwen/Qwen2.5-32B-Instruct-AWQ --gpu 4090": "does it fit on mine",
        "gpuwright size llama-3.1-8b --train qlora --gpu '4060 ti 16gb'": "can I fine-tune it",
        "gpuwright size qwen3-235b-a22b --weights q4_k_m --gpu 3090 --offload": "what of it on the host",
        "gpuwright size 13B --train --tokens 300B --gpu h100 --gpus 64": "how long it trains",
    }
    parser.epilog = None
    _job(parser, several=True)
    parser.add_argument("--here", action="store_true", help="on the cards of this machine")
    parser.add_argument("--html", metavar="FILE", help="write the answer as a page to forward")
    # An inventory may need its variables; who asks for a size is not told of them.
    _hosts(parser, short=True)
    parser.set_defaults(**_NOT_ASKED)


def _cost(verbs: _Verbs[Parser]) -> None:
    parser = _verb(
        verbs,
        "cost",
        "answer what cards cost, rented and owned, and from when on owning pays; needs no host",
        more=_MORE_OF_COUNTING,
    )
    parser.examples = {
        "gpuwright cost llama-3.1-8b --gpu l4": "a million tokens on one card",
        "gpuwright cost gpt-oss-120b": "the same, on the card that is looked for",
        "gpuwright cost 13B --train --tokens 300B --gpu h100 --gpus 64": "a training run",
        "gpuwright cost --gpu h100 --gpus 64 --share 60%": "rent or buy, for three years",
        "gpuwright cost --gpu 4090 --years 2 --kwh 0.35": "the same at home",
    }
    _job(parser, needed=False)
    cost = parser.add_argument_group("cost")
    cost.add_argument(
        "--hours",
        metavar="N",
        help="of a job on all cards (default: those that the training of --tokens takes)",
    )
    cost.add_argument("--years", metavar="N", default="3", help="that every row covers (default: 3)")
    cost.add_argument(
        "--share",
        metavar="SHARE",
        help="of these hours in which the cards compute (default: half, as owned clusters do)",
    )
    cost.add_argument("--kwh", metavar="USD", help="price of electricity (default: United States, business)")
    cost.add_argument(
        "--prices",
        metavar="FILE",
        help="your own prices and rates, as YAML, beside the tables' or (`only: true`) instead",
    )
    parser.add_argument("--html", metavar="FILE", help="write the answer as a page to forward")


def _job(parser: Parser, *, needed: bool = True, several: bool = False) -> None:
    """What is to be computed, and on which cards: of one kind, or of several."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs=None if needed else "?",
        help="a name (llama-3.1-8b), a number of parameters (7B), a config.json, or a shape (layers=32,hidden=4096,heads=32)",
    )
    cards = parser.add_argument_group("cards")
    cards.add_argument(
        "--gpu",
        metavar="NAME",
        action="append" if several else "store",
        help="the card that is there: 4090, '4060 ti 16gb', 2x3090"
        + ("; again for another kind" if several else "")
        + " (default: the smallest set that fits is looked for)",
    )
    cards.add_argument("--gpus", metavar="N", help="how many of it (default: the smallest number that fits)")
    cards.add_argument(
        "--preset",
        choices=("academic", "workstation", "enterprise", "edge"),
        help="among the cards of a kind of machine",
    )
    job = parser.add_argument_group("job")
    job.add_argument(
        "--train",
        choices=("full", "lora", "qlora"),
        nargs="?",
        const="full",
        help="train it (default: it answers; full where nothing is said)",
    )
    job.add_argument("--context", metavar="TOKENS", help="tokens of a sequence (default: 8k, training 2k)")
    job.add_argument(
        "--batch",
        metavar="N",
        help="sequences at once; in training those of a step over all cards (default: 1, in training one a card)",
    )
    job.add_argument("--tokens", metavar="N", help="tokens that it is trained on (15T, 300B): how long that takes")
    job.add_argument(
        "--mfu", metavar="SHARE", help="share of the peak that the cards reach in training (default: by published runs)"
    )
    inference = parser.add_argument_group("inference")
    inference.add_argument(
        "--weights",
        metavar="FORMAT",
        help="how weights are stored: bf16, fp8, awq, gptq, nf4, mxfp4, q4_k_m … (default: as the name says, else bf16)",
    )
    inference.add_argument(
        "--kv-bits", choices=("4", "8", "16"), help="bits of an element of the KV cache (default: 16)"
    )
    inference.add_argument(
        "--engine",
        choices=engines.NAMES,
        help="what answers (default: llama.cpp with its own formats and with --offload, else vllm)",
    )
    inference.add_argument(
        "--offload", action="store_true", help="leave what does not fit in the memory of the host, as llama.cpp does"
    )
    training = parser.add_argument_group("training")
    training.add_argument("--precision", choices=sizing.SCHEMES, help="what is kept in how many bits (default: mixed)")
    training.add_argument("--optimizer", choices=sizing.OPTIMIZERS, help="(default: adamw)")
    training.add_argument("--micro-batch", metavar="N", help="sequences that a card computes at once (default: 1)")
    training.add_argument(
        "--recompute",
        choices=("none", "selective", "full"),
        help="activations computed again (default: none; full with LoRA and QLoRA, as their tools do)",
    )
    training.add_argument(
        "--attention", choices=("flash", "eager"), help="whether scores are kept (default: flash, not)"
    )
    training.add_argument(
        "--kernels",
        choices=("separate", "fused"),
        help="fused: Megatron-LM, Transformer Engine, Liger (default: separate)",
    )
    training.add_argument("--rank", metavar="N", help="of LoRA's matrices (default: 16)")


def _init(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "init", "write a wish for this machine, or an inventory of hosts, ready to edit")
    parser.add_argument(
        "hosts",
        metavar="HOST",
        nargs="*",
        help="the hosts of an inventory; localhost is this machine (default: a wish)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where (default: wish.yml or inventory.yml)")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def _runs(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "runs", "list the runs of this user, show one, or remove old ones")
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run, by its name, the beginning of it, or `last`")
    parser.add_argument("--open", action="store_true", help="open its report in the browser")
    parser.add_argument("--prune", action="store_true", help="remove old runs")
    parser.add_argument(
        "--keep", metavar="N", type=_count, help="with --prune: how many of the newest stay (default: 100)"
    )
    parser.add_argument("--days", metavar="N", type=_count, help="with --prune: up to which age (default: 90)")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs or days")
    return int(text)


def _demo(verbs: _Verbs[Parser]) -> None:
    parser = _verb(
        verbs, "demo", "run the loop on a throw-away simulated node (needs a clone of the repository and Docker)"
    )
    parser.add_argument("--clean", action="store_true", help="only remove what an earlier demo left")


def _completion(verbs: _Verbs[Parser]) -> None:
    parser = _verb(verbs, "completion", "print the completion script of a shell")
    parser.add_argument("shell", choices=("bash", "zsh"))


def wants_json(argv: Sequence[str]) -> bool:
    """Whether `--json` was asked for, known even where the rest of the line cannot be parsed."""
    own = list(argv)[: list(argv).index("--")] if "--" in argv else argv
    return "--json" in own


def command_line() -> list[str]:
    """The arguments of this process."""
    return [os.fsdecode(word) for word in sys.argv[1:]]
