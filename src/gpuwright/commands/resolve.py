"""`gpuwright resolve`: which versions fit together. Needs neither a host nor a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwright import console, exits, knowledge, show
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping


def run(args: argparse.Namespace) -> int:
    """Resolve and show the answer with its reasons."""
    if args.facts and (args.gpu or args.os or args.arch or args.assume):
        raise BadInput("--facts names the machine already: leave out --gpu, --os, --arch and --assume")
    question = knowledge.Question(
        gpus=args.gpu,
        os_name=args.os,
        arch=args.arch,
        assume=args.assume,
        wants=args.want,
        facts=knowledge.read_facts(args.facts) if args.facts else None,
    )
    answer = knowledge.resolve(question)
    if answer["ok"] and args.lock:
        knowledge.write_lock(args.lock, answer)
    if args.json:
        console.json_document(answer)
    else:
        _show(answer)
        if answer["ok"] and args.lock:
            console.note(f"lock: {args.lock}")
    return exits.DONE if answer["ok"] else exits.REFUSED


def _show(answer: Mapping[str, Any]) -> None:
    if not answer["ok"]:
        console.out("This wish cannot be met:")
        show.conflicts(answer["conflicts"])
        return
    cards = ", ".join(str(card["name"]) for card in answer["gpus"]) or "no NVIDIA GPU"
    console.out(f"{console.colour(cards, 'bold')} on {answer['os']} ({answer['arch']})")
    console.out(console.table(list(_rows(answer["stack"])), ("component", "version", "details")))
    show.warnings(answer.get("warnings") or ())
    assumed = answer.get("assumed") or {}
    if assumed:
        console.out(
            console.paragraph("assumed: " + ", ".join(f"{key}={_word(value)}" for key, value in assumed.items()))
        )
    console.out("because")
    show.because(answer.get("why") or ())


def _rows(stack: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    driver = stack.get("driver")
    if driver:
        details = f"{driver['modules']} modules, source {driver['source']}, {driver['build']}, {driver['set']} set"
        packages = console.names(driver.get("packages") or [], 8)
        yield (
            "driver",
            str(driver.get("version") or driver["branch"]),
            f"{details}: {packages}" if packages else details,
        )
    for toolkit in stack.get("cuda") or ():
        yield "cuda", str(toolkit["version"]), f"{toolkit['mode']}: {console.names(toolkit['packages'])}"
    for name in ("cudnn", "nccl", "tensorrt", "dali"):
        part = stack.get(name)
        if part:
            yield name, str(part.get("version") or "newest"), console.names(part.get("packages") or [])
    toolkit = stack.get("container_toolkit")
    if toolkit:
        yield "container-toolkit", str(toolkit["version_spec"]), console.names(toolkit["packages"])
    for framework in stack.get("frameworks") or ():
        details = f"{' '.join(framework['requirements'])} from {framework.get('index_url') or 'the default index'}"
        yield framework["name"], str(framework["version"]), details


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
