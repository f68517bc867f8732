"""`python -m tests.sim`: make, use and remove simulated nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from . import demo, engine, image, metal, node, repository
from .shell import SimulationError, say


def main(arguments: list[str] | None = None) -> int:
    """The exit status of one command; a sentence instead of a traceback for what is not the program's fault."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except SimulationError as error:
        say(f"error: {error}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description="Simulated nodes with NVIDIA GPUs that do not exist."
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    nodes = verbs.add_parser("node", help="create and use nodes").add_subparsers(required=True, metavar="ACTION")
    create = _add(nodes, "create", "create and boot a node", _create)
    create.add_argument("name")
    create.add_argument(
        "--scenario", default="two-h100", help="a file, or a name under tests/sim/scenarios (default: %(default)s)"
    )
    create.add_argument("--os", help="another operating system than the scenario's: debian-13, ubuntu-24.04, rocky-9")
    _add(nodes, "rm", "remove nodes", _remove).add_argument("name", nargs="+")
    _add(nodes, "ls", "list the nodes", lambda options: print("\n".join(node.names())))
    execute = _add(
        nodes, "exec", "run a command on a node as root", lambda options: node.execute(options.name, options.command)
    )
    execute.add_argument("name")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    _add(nodes, "reboot", "reboot a node and wait for it", lambda options: node.reboot(options.name)).add_argument(
        "name"
    )
    inventory = _add(nodes, "inventory", "print an Ansible inventory of the nodes", _inventory)
    inventory.add_argument("name", nargs="*", help="default: all")
    inventory.add_argument("--wrong-key", action="store_true", help="with a repository that somebody else signed")
    fault = _add(
        nodes, "fault", "inject a fault", lambda options: node.fault(options.name, options.kind, clear=options.clear)
    )
    fault.add_argument("name")
    fault.add_argument(
        "kind",
        help="module-not-loaded, version-mismatch, fallen-off-bus, ecc, throttling, narrow-pcie, garbage-smi, hanging-smi,"
        " fio-fails, cuda-unknown, wrong-memory, wrong-results, hanging-load, crashing-load, failing-load, and throttling-, narrow-pcie-,"
        " ecc- and lost-under-load",
    )
    fault.add_argument("--clear", action="store_true", help="take it back (KIND may be all)")

    machines = verbs.add_parser("metal", help="create and use bare-metal machines (QEMU)").add_subparsers(
        required=True, metavar="ACTION"
    )
    for action, text, what in (
        ("create", "create a machine that has booted", metal.create),
        ("start", "switch a machine on", metal.start),
        ("cut", "cut the power of a machine", metal.cut_power),
        ("rm", "remove a machine", metal.remove),
        ("console", "print what its serial console said", lambda name: print(metal.console(name))),
    ):
        _add(machines, action, text, _of_machine(what)).add_argument("name")
    _add(machines, "prepare", "make what every machine begins with", lambda options: print(metal.ensure_booted()))
    command = _add(
        machines,
        "exec",
        "run a command on it as root",
        lambda options: print(metal.shell(options.name, " ".join(options.command))),
    )
    command.add_argument("name")
    command.add_argument("command", nargs=argparse.REMAINDER)
    _add(
        machines,
        "inventory",
        "print an Ansible inventory of the machines",
        lambda options: print(metal.inventory(options.name), end=""),
    ).add_argument("name", nargs="*", help="default: all")

    repositories = verbs.add_parser("repo", help="the simulated package repositories").add_subparsers(
        required=True, metavar="ACTION"
    )
    _add(repositories, "build", "build them", lambda options: print(repository.ensure()))
    _add(repositories, "serve", "serve them to the nodes", lambda options: repository.serve(_image()))

    _add(verbs, "image", "build the node image", lambda options: print(_image()))
    demo = _add(verbs, "demo", "a node, gpuwright plan, gpuwright up", _demo)
    demo.add_argument("--clean", action="store_true", help="remove what the demo left")
    clean = _add(
        verbs,
        "clean",
        "remove every trace of the simulation",
        _clean,
    )
    clean.add_argument("--keep-images", action="store_true", help="keep the images: the next node is quicker")
    return parser


# argparse has no public name for what add_subparsers returns.
def _add(
    parent: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, action: object
) -> argparse.ArgumentParser:
    parser = parent.add_parser(name, help=text, description=text)
    parser.set_defaults(run=action)
    return parser


def _of_machine(action: Callable[[str], None]) -> Callable[[argparse.Namespace], None]:
    """What a command does that takes nothing but the machine's name."""
    return lambda options: action(options.name)


def _image() -> str:
    engine.ensure()
    return image.ensure()


def _remove(options: argparse.Namespace) -> None:
    for name in options.name:
        node.remove(name)


def _create(options: argparse.Namespace) -> None:
    engine.ensure()
    node.create(options.name, options.scenario, options.os)


def _inventory(options: argparse.Namespace) -> None:
    print(node.inventory(options.name, wrong_key=options.wrong_key), end="")


def _clean(options: argparse.Namespace) -> None:
    metal.clean(disks=not options.keep_images)
    node.clean(images=not options.keep_images)


def _demo(options: argparse.Namespace) -> int:
    if options.clean:
        node.clean()
        return 0
    return demo.run()


if __name__ == "__main__":
    sys.exit(main())
