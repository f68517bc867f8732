"""`gpuwright size`: which cards a model needs, whether it fits, how fast it is. Needs neither a host nor a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show_size
from gpuwright.errors import BadInput
from gpuwright.sizing import answer, formats, memory, units

if TYPE_CHECKING:
    import argparse

#: Options that have a value although nobody gave one, as the answer names them.
_ASSUMED = ("context", "batch")
#: More than any job has of anything that is counted one by one.
_MOST = 10_000_000


def run(args: argparse.Namespace) -> int:
    """Answer and show it."""
    found = answer.size(question(args))
    if args.json:
        console.json_document(found)
    else:
        show_size.page(found)
    return exits.DONE if found["ok"] else exits.REFUSED


def question(args: argparse.Namespace) -> answer.Question:
    """What the options ask.

    Raises:
        BadInput: a number is none, or an option belongs to another job.
    """
    if args.gpus and not args.gpu:
        raise BadInput("--gpus says how many cards there are: name the card with --gpu")
    card = knowledge.card_called(args.gpu) if args.gpu else None
    return answer.Question(
        model=args.model,
        job=_training(args) if args.train else _inference(args),
        card=card,
        count=number(args.gpus, "--gpus") if args.gpus else 0,
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
