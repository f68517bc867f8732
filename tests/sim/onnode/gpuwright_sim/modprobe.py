"""Stand-ins for modprobe, insmod, rmmod, lsmod and dmesg: only NVIDIA's modules and nouveau are simulated.

Everything else, and every option that only asks, is passed to the real kmod, told which kernel is meant to be running.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import kernel, node

_KMOD = "/usr/bin/kmod"
_ASKING = (
    "-n",
    "--dry-run",
    "--show",
    "-D",
    "--show-depends",
    "-c",
    "--showconfig",
    "-R",
    "--resolve-alias",
    "--show-modversions",
    "-V",
    "--version",
    "-h",
    "--help",
)
_WITH_VALUE = ("-C", "--config", "-d", "--dirname", "-S", "--set-version")


def main(call: list[str]) -> int:
    """The exit status that the real program would have; the first word of CALL is its name."""
    program, *arguments = call
    if program == "modprobe":
        return _modprobe(arguments)
    if program == "insmod":
        return _insmod(arguments)
    if program == "rmmod":
        return _rmmod(arguments)
    if program == "lsmod":
        return _lsmod()
    return _dmesg()


def _modprobe(arguments: list[str]) -> int:
    names = _names(arguments)
    asks = any(argument in _ASKING for argument in arguments)
    if asks or not names or not kernel.is_simulated(names[0]):
        given = any(argument in ("-S", "--set-version") for argument in arguments)
        version = [] if given else ["-S", kernel.release()]
        os.execv(_KMOD, ["modprobe", *version, *arguments])
    quiet = any(argument in ("-q", "--quiet") for argument in arguments)
    removing = any(argument in ("-r", "--remove") for argument in arguments)
    every = removing or any(argument in ("-a", "--all") for argument in arguments)
    status = 0
    for name in names if every else names[:1]:
        status = max(status, _change(name, removing=removing, quiet=quiet))
    return status


def _names(arguments: list[str]) -> list[str]:
    names, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _WITH_VALUE:
            skip = True
        elif not argument.startswith("-"):
            names.append(argument)
    return names


def _change(name: str, *, removing: bool, quiet: bool) -> int:
    try:
        if removing:
            kernel.remove(name)
        else:
            kernel.insert(name)
    except FileNotFoundError:
        text = f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{kernel.release()}"
    except kernel.InsertionError as error:
        text = (
            f"modprobe: FATAL: {error}."
            if removing
            else f"modprobe: ERROR: could not insert '{name.replace('-', '_')}': {error}"
        )
    else:
        return 0
    if not quiet:
        print(text, file=sys.stderr)
    return 1


def _insmod(arguments: list[str]) -> int:
    name = Path(arguments[0]).name.split(".ko")[0] if arguments else ""
    if not kernel.is_simulated(name):
        os.execv(_KMOD, ["insmod", *arguments])
    try:
        kernel.insert(name)
    except (FileNotFoundError, kernel.InsertionError) as error:
        print(f"insmod: ERROR: could not insert module {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


def _rmmod(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("-")]
    if not names or not kernel.is_simulated(names[0]):
        os.execv(_KMOD, ["rmmod", *arguments])
    status = 0
    for name in names:
        try:
            kernel.remove(name)
        except kernel.InsertionError as error:
            print(f"rmmod: ERROR: {error}", file=sys.stderr)
            status = 1
    return status


def _lsmod() -> int:
    print("Module                  Size  Used by")
    for name in node.loaded():
        print(f"{name:<20} {16384:>7}  0")
    return 0


def _dmesg() -> int:
    path = node.VIEW / "kernel.log"
    print("[    0.000000] Linux version of a simulated machine")
    print(path.read_text() if path.exists() else "", end="")
    return 0
