"""`gpuwright size`: which cards a model needs, whether it fits, how fast it is; with `--here` or `-i` on cards that are there."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show_size
from gpuwright.errors import BadInput
from gpuwright.sizing import answer, cards, engines, formats, memory, models, tables, units

if TYPE_CHECKING:
    from gpuwright.size_there import Fleet

#: Options that have a value although nobody gave one, as the answer names them.
_ASSUMED = ("context", "batch", "weights", "engine")
#: Options of one job that mean nothing in the other, each with what it says.
_OF_INFERENCE = {
    "weights": "says how weights are stored where a model answers: LoRA keeps them in 16 bits, --train qlora in 4",
    "kv_bits": "is of the KV cache, and training has none",
    "engine": "answers, and trains nothing: leave it out, or leave out --train",
    "offload": "leaves weights on the host where a model answers: leave it out, or leave out --train",
}
_OF_TRAINING = {
    "precision": "says what training keeps: add --train, or say with --weights how weights are stored",
    "optimizer": "trains: add --train, or leave it out",
    "micro_batch": "trains: add --train, or say with --batch how many sequences are answered together",
    "recompute": "trains: add --train, or leave it out",
    "attention": "says what training keeps: add --train, or leave it out",
    "kernels": "says what training keeps: add --train, or leave it out",
    "rank": "is of LoRA's matrices: add --train lora or qlora, or leave it out",
    "mfu": "says how fast it trains: add --train, or leave it out",
}
#: Bytes of an element of the KV cache; in 4 bits with a scale of 16 bits for 32 of them (llama.cpp's q4_0).
_CACHE = {"16": 2.0, "8": 1.0, "4": 0.5625}
#: Tokens of a sequence where nobody says: what people ask and are answered, or all that the model was made for.
_USUAL = 8192
#: More than any job has of anything that is counted one by one.
_MOST = 10_000_000


def run(args: argparse.Namespace) -> int:
    """Answer and show it."""
    if args.here or args.inventory or args.limit:
        return _there(args)
    if args.extra_vars or args.vault_password_file or args.ansible_options:
        raise BadInput("-e, --vault-password-file and `--` are for the hosts of an inventory: give one with -i")
    found = answer.size(question(args))
    found["warnings"] += idle(args, found)
    if args.html:
        from gpuwright import sizing_page

        sizing_page.write(args.html, sizing_page.size(found))
    if args.json:
        console.json_document(found)
    else:
        show_size.page(found)
    return exits.DONE if found["ok"] else exits.REFUSED


def _there(args: argparse.Namespace) -> int:
    """Answer for cards that are there. What looks at hosts is loaded here alone: most answers need none of it."""
    from gpuwright import card_looks, hostrun, size_there

    hostrun.refuse_limit_alone(args)
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


def exit_code(found: Fleet) -> int:
    """Done where it fits on a host or on several together; failed where one could not be asked; else refused."""
    answers = [each for host in found["hosts"].values() for each in host["answers"]] + found["together"]
    if any(each["ok"] for each in answers):
        return exits.DONE
    lost = found["unreachable"] or any(host["problem"] for host in found["hosts"].values())
    return exits.FAILED if lost else exits.REFUSED


def question(args: argparse.Namespace, model: models.Named | None = None) -> answer.Question:
    """What the options ask; `model`: the one that they name, where it was read already.

    Raises:
        BadInput: a number is none, or an option belongs to another job.
    """
    named = named_cards(args)
    preset = tables.scenario(args.preset) if args.preset else None
    if preset and named.cards:
        raise BadInput("--preset chooses among its cards: leave out --gpu")
    _refuse_without_effect(args)
    model = model or models.named(args.model)
    return answer.Question(
        model=args.model,
        job=_training(args) if args.train else _inference(args, model, mixed=named.mixed),
        count=named.count,
        among=tuple(preset["gpus"]) if preset else (),
        most=preset["count"][1] if preset else 0,
        tokens=units.count(args.tokens, "--tokens") if args.tokens else 0.0,
        mfu=units.share(args.mfu, "--mfu") if args.mfu else 0.0,
        assumed=tuple(
            name for name in _ASSUMED if getattr(args, name) is None and not (name == "weights" and model.format)
        ),
        weights=model.text if args.weights is None else "",
        own=named.cards,
        odd=named.text,
        offload=bool(args.offload),
        shape=model.shape,
    )


def named_cards(args: argparse.Namespace) -> cards.Called:
    """The cards that are named, and how many: 0 where nobody says.

    Raises:
        BadInput: a card is not known, or its number is said without it or twice.
    """
    named = _kinds(args)
    count = number(args.gpus, "--gpus") if args.gpus else 0
    if count and not named.cards:
        raise BadInput("--gpus says how many cards there are: name the card with --gpu")
    if count and named.count > 1:
        raise BadInput(f"--gpu names {named.count} cards already: leave out --gpus")
    return replace(named, count=count or named.count)


def _kinds(args: argparse.Namespace) -> cards.Called:
    """The cards as they are named: one kind, or several of which each holds some layers.

    Raises:
        BadInput: a card is not known, or cards of several kinds are to train, or to share each layer.
    """
    names = [args.gpu] if isinstance(args.gpu, str) else args.gpu or []
    found = [
        cards.called(part, knowledge.card_called) for name in names for part in re.split(r"\s*[+,]\s*", name) if part
    ]
    if len(found) < 2:
        return found[0] if found else cards.Called(())
    if len({each.cards[0].name for each in found}) == 1:
        return replace(found[0], count=sum(each.count or 1 for each in found))
    if args.train:
        raise BadInput(
            "cards of several kinds are not counted in training: all wait for the slowest, and have no more memory than the smallest",
            ["name the smallest with --gpu, and how many there are with --gpus"],
        )
    if args.engine not in (None, "llama.cpp"):
        raise BadInput(
            f"cards of several kinds are counted with --engine llama.cpp alone: {args.engine} cuts each layer evenly"
        )
    single = [each.cards[-1] for each in found for _ in range(each.count or 1)]
    odd = "; ".join(each.text for each in found if each.text)
    return cards.Called((cards.mixture(single),), len(single), odd, mixed=True)


def _refuse_without_effect(args: argparse.Namespace) -> None:
    """Refuse an option of another job: what was said is not dropped.

    Raises:
        BadInput: there is one.
    """
    for option, why in _OF_INFERENCE.items() if args.train else _OF_TRAINING.items():
        if getattr(args, option, None) not in (None, False):
            raise BadInput(f"--{option.replace('_', '-')} {why}")
    if args.train == "full" and args.rank is not None:
        raise BadInput("--rank is of LoRA's matrices: add --train lora or qlora, or leave it out")


def idle(args: argparse.Namespace, found: answer.Answer) -> list[dict[str, str]]:
    """Options that were given, are no defaults, and leave the answer as it is without them: a warning for each.

    Args:
        args: what was given.
        found: the answer to it.
    """
    model = models.named(args.model)

    def on_these(given: argparse.Namespace) -> answer.Question:
        return replace(question(given, model), alone=True, assumed=(), card=found["gpu"], count=found["cards"])

    asked = on_these(args)
    here = answer.size(asked)
    told = []
    for option in _given(args):
        other = on_these(argparse.Namespace(**{**vars(args), option: None}))
        if other == asked:
            continue
        again = answer.size(other)
        # A batch that is as large as the cards make it where nobody says is none of these.
        as_without = option == "batch" and again["job"] == here["job"]
        if _same(again, here) and not as_without:
            text = f"--{option.replace('_', '-')} {getattr(args, option)} changes nothing in this answer"
            told.append({"rule": "option", "text": text})
    return told


def _given(args: argparse.Namespace) -> list[str]:
    """Options of a job that somebody gave; of --offload the answer says what is on the host."""
    known = ({*_OF_INFERENCE, *_OF_TRAINING} - {"offload"}) | {"context", "batch", "tokens"}
    return sorted(option for option in known if getattr(args, option, None) is not None)


def _same(one: answer.Answer, other: answer.Answer) -> bool:
    return (one["layout"], one["memory"], one["speed"]) == (other["layout"], other["memory"], other["speed"])


def _inference(args: argparse.Namespace, named: models.Named, *, mixed: bool) -> memory.Inference:
    """What answers; `mixed`: on cards of several kinds, which llama.cpp alone lays whole layers on by their memory."""
    weights = formats.called(args.weights) if args.weights else named.format or formats.FORMATS["bf16"]
    if args.offload and args.engine not in (None, "llama.cpp"):
        raise BadInput(f"--offload is counted as llama.cpp does it: leave out --engine {args.engine}")
    return memory.Inference(
        weights=weights,
        cache=_CACHE[args.kv_bits or "16"],
        context=units.tokens(args.context, "--context") if args.context else min(_USUAL, named.shape.context or _USUAL),
        batch=number(args.batch or "1", "--batch"),
        engine=args.engine or ("llama.cpp" if mixed else engines.usual(weights, offload=args.offload)),
    )


def _training(args: argparse.Namespace) -> memory.Training:
    return memory.Training(
        kind=args.train,
        scheme=formats.SCHEMES[args.precision or "mixed"],
        optimizer=args.optimizer or "adamw",
        context=units.tokens(args.context or "2k", "--context"),
        batch=number(args.batch, "--batch") if args.batch else 0,
        micro=number(args.micro_batch or "1", "--micro-batch"),
        # PEFT's preparation for k-bit training, Unsloth and axolotl recompute where nobody says otherwise.
        recompute=args.recompute or ("none" if args.train == "full" else "full"),
        flash=args.attention != "eager",
        fused=args.kernels == "fused",
        rank=number(args.rank or "16", "--rank"),
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
