"""`gpuwright resolve`: which versions fit together. Needs neither a host nor a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack
    from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit.model import Specified
    from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.model import CudaToolkit, Cudnn
    from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.model import FrameworkEnvironment
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Answer, Image, Stack


def run(args: argparse.Namespace) -> int:
    """Resolve and show the answer with its reasons."""
    if args.facts and (args.gpu or args.os or args.arch or args.assume):
        raise BadInput("--facts names the machine already: leave out --gpu, --os, --arch and --assume")
    if args.hashes and not args.lock:
        raise BadInput("--hashes goes into a lock: name its file with --lock")
    question = knowledge.Question(
        gpus=args.gpu,
        os_name=args.os,
        arch=args.arch,
        assume=args.assume,
        wants=args.want,
        facts=knowledge.read_facts(args.facts) if args.facts else None,
    )
    answer = knowledge.resolve(question)
    lock = args.lock if answer["ok"] else None
    left_open = knowledge.write_lock(lock, question, args.hashes) if lock else []
    if args.json:
        console.json_document(answer)
    else:
        _show(answer)
    if lock:
        console.note(f"lock: {lock}")
    for want in left_open:
        console.note(
            f"the lock leaves the version of {want} open: the rules know none to name; give it with --want {want}=VERSION"
        )
    return exits.DONE if answer["ok"] else exits.REFUSED


def _show(answer: Answer) -> None:
    """A page for a ticket: what was asked, a table, what to know, and why; no wider than a page."""
    width, sources = console.page_width(), show.Sources()
    if answer["ok"]:
        _stack(answer, width, sources)
    else:
        console.out("This wish cannot be met:")
        for row in answer["conflicts"]:
            console.out(console.paragraph(f"{row['text']}{sources.mark(row)}", bullet="- ", width=width))
            if row.get("remedy"):
                console.out(console.paragraph(f"remedy: {row['remedy']}", indent=6, width=width))
    sources.show(width)
    show.rules_age(answer.get("rules"))


def _stack(answer: Answer, width: int, sources: show.Sources) -> None:
    cards = ", ".join(str(card["name"]) for card in answer["gpus"]) or "no NVIDIA GPU"
    console.out(f"{console.colour(cards, 'bold')} on {answer['os']} ({answer['arch']})")
    rows = list(_rows(answer["stack"]))
    if rows:
        console.out(console.table(rows, ("component", "version", "details"), width=width))
    else:
        console.out("  nothing to install")
    _images(answer, width, sources)
    assumed = answer.get("assumed") or {}
    if assumed:
        text = "assumed: " + ", ".join(f"{key}={_word(value)}" for key, value in assumed.items())
        console.out(console.paragraph(text, width=width))
    for row in answer.get("warnings") or ():
        text = f"{row['text']}{sources.mark(row)}"
        console.out(console.paragraph(text, bullet="warning: ", width=width))
    if answer.get("why"):
        console.out("because")
    for row in answer.get("why") or ():
        console.out(console.paragraph(f"{row['text']}{sources.mark(row)}", bullet="- ", width=width))


def _images(answer: Answer, width: int, sources: show.Sources) -> None:
    """The images of containers that fit, and why none of a name does."""
    images = answer.get("images") or ()
    if images:
        console.out("images of containers that fit")
    for image in images:
        newer = image.get("newer")
        also = f"; {newer['tag']} too, in {newer['mode']} mode (CUDA {newer['cuda']})" if newer else ""
        text = f"{image['reference'] or 'none of ' + image['name']}: {_reason(image)}{also}{sources.mark(image)}"
        console.out(console.paragraph(text, bullet="- ", width=width))


def _reason(image: Image) -> str:
    """Why it fits, or why none does; without the tag, which the reference has."""
    return image["text"].removeprefix(f"{image['tag']}: ")


def _rows(stack: Stack) -> Iterator[tuple[str, str, str]]:
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.parts import PARTS

    driver = stack.get("driver")
    if driver:
        yield "driver", str(driver.get("version") or driver["branch"]), _driver(driver)
    for toolkit in stack.get("cuda") or ():
        yield "cuda", str(toolkit["version"]), f"{toolkit['mode']}: {_packages(toolkit)}"
    single = [part for part in PARTS if part.source and not part.several and part.of(stack)]
    packaged = [part for part in single if "packages" in part.row.__annotations__]
    rows = [
        (part, (part.want, str(part.of(stack).get(part.version_key) or "newest"), _packages(part.of(stack))))
        for part in packaged
    ]
    yield from (row for part, row in rows if not part.has_own_source)
    compat = stack.get("cuda_compat")
    if compat:
        yield "cuda-compat", str(compat["version"]), f"{compat['package']} in {compat['path']}"
    yield from (row for part, row in rows if part.has_own_source)
    for framework in stack.get("frameworks") or ():
        named = framework.get("environment")
        title = f"{framework['name']}@{named}" if named else framework["name"]
        yield title, str(framework["version"]), _framework(framework)


def _driver(driver: DriverStack) -> str:
    if driver.get("adopted"):
        return f"{driver['modules']} modules, {driver['source_reason']}: kept as it is"
    facts = [f"branch {driver['branch']}"] if driver.get("version") else []
    facts += [f"{driver['modules']} modules", f"from {driver['source']}", str(driver["build"]), f"{driver['set']} set"]
    if driver.get("minimum"):
        facts.append(f"at least {driver['minimum']}")
    packages = _packages(driver)
    return f"{', '.join(facts)}: {packages}" if packages else ", ".join(facts)


def _framework(framework: FrameworkEnvironment) -> str:
    python = f"Python {framework['interpreter']}: " if framework.get("interpreter") else ""
    where = framework.get("index_url")
    pins = framework.get("constraints") or ()
    text = python + " ".join(framework["requirements"]) + (f" from {where}" if where else "")
    others = framework.get("others")
    beside = f"; beside them {' '.join(others)}" if others else ""
    return (f"{text}; held to {' '.join(pins)}" if pins else text) + beside


def _packages(part: DriverStack | CudaToolkit | Cudnn | Specified) -> str:
    return " ".join(part["packages"])


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
