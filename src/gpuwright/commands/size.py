"""`gpuwright size`: which cards a model needs, whether it fits, how fast it is; with `--here` or `-i` on cards that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import card_looks, console, exits, hostrun, knowledge, show_size, size_there, sizing_page
from gpuwright.errors import BadInput
from gpuwright.sizing import answer, formats, memory, tables, units

if TYPE_CHECKING:
    import argparse

#: Options that have a value although nobody gave one, as the answer names them.
_ASSUMED = ("context", "batch")
#: More than any job has of anything that is counted one by one.
_MOST = 10_000_000


def run(args: argparse.Namespace) -> int:
    """Answer and show it."""
    hostrun.refuse_limit_alone(args)
    if args.here or args.inventory:
        return _there(args)
    if args.extra_vars or args.vault_password_file or args.ansible_options:
        raise BadInput("-e, --vault-password-file and `--` are for the hosts of an inventory: give one with -i")
    found = answer.size(question(args))
    if args.html:
        sizing_page.write(args.html, sizing_page.size(found))
    if args.json:
        console.json_document(found)
    else:
        show_size.page(found)
    return exits.DONE if found["ok"] else exits.REFUSED


def _there(args: argparse.Namespace) -> int:
    """Answer for cards that are there."""
    if args.gpu or args.gpus or args.preset:
        raise BadInput("--here and -i are about the cards that are there: leave out --gpu, --gpus and --preset")
    if args.html:
        raise BadInput("--html is a page of one answer: leave out --here and -i")
    if args.here and args.inventory:
        raise BadInput("--here is this machine, and -i an inventory: give one of them")
    asked = question(args)
    answer.refuse(asked)
    look = card_looks.There(args)(shown=True) if args.inventory else card_looks.Here()()
    found = size_there.judge(look, asked)
    code = exit_code(found)
    if args.json:
        verdict = exits.verdict_of(code, ["fail" if code else "pass"])
        console.json_document({"verdict": verdict, "exit": code, **found})
    else:
        show_size.fleet(found)
    return code


def exit_code(found: size_there.Fleet) -> int:
    """Done where it fits on a host or on several together; failed where one could not be asked; else refused."""
    answers = [each for host in found["hosts"].values() for each in host["answers"]] + found["together"]
    if any(each["ok"] for each in answers):
        return exits.DONE
    lost = found["unreachable"] or any(host["problem"] for host in found["hosts"].values())
    return exits.FAILED if lost else exits.REFUSED


def question(args: argparse.Namespace) -> answer.Question:
    """What the options ask.

    Raises:
        BadInput: a number is none, or an option belongs to another job.
    """
    if args.gpus and not args.gpu:
        raise BadInput("--gpus says how many cards there are: name the card with --gpu")
    card = knowledge.card_called(args.gpu) if args.gpu else None
    preset = tables.scenario(args.preset) if args.preset else None
    if preset and card:
        raise BadInput("--preset chooses among its cards: leave out --gpu")
    return answer.Question(
        model=args.model,
        job=_training(args) if args.train else _inference(args),
        card=card,
        count=number(args.gpus, "--gpus") if args.gpus else 0,
        among=tuple(preset["gpus"]) if preset else answer.USUAL,
        most=preset["count"][1] if preset else 0,
        tokens=units.count(args.tokens, "--tokens") if args.tokens else 0.0,
        mfu=units.share(args.mfu, "--mfu") if args.mfu else 0.0,
        assumed=tuple(name for name in _ASSUMED if getattr(args, name) is None),
    )


def _inference(args: argparse.Namespace) -> memory.Inference:
    return memory.Inference(
        weights=formats.FORMATS[args.weights],
        cache=int(args.kv_bits) // 8,
        context=units.tokens(args.context or "8k", "--context"),
        batch=number(args.batch or "1", "--batch"),
    )


def _training(args: argparse.Namespace) -> memory.Training:
    return memory.Training(
        kind=args.train,
        scheme=formats.SCHEMES[args.precision],
        optimizer=args.optimizer,
        context=units.tokens(args.context or "2k", "--context"),
        batch=number(args.batch, "--batch") if args.batch else 0,
        micro=number(args.micro_batch, "--micro-batch"),
        recompute=args.recompute,
        flash=args.attention == "flash",
        fused=args.kernels == "fused",
        rank=number(args.rank, "--rank"),
    )


def number(text: str, what: str) -> int:
    """A number of things that are counted one by one.

    Raises:
        BadInput: it is none, or more than any job has.
    """
    found = units.whole(units.amount(text, what, least=1), what)
    if found > _MOST:
        raise BadInput(f"{what} has to be at most {_MOST}, found {text!r}")
    return found
