"""The command `gpuwright`: parse, hand over to one verb, and show whatever went wrong in one place."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from gpuwright import console, exits, paths, resume
from gpuwright.errors import CommandError
from gpuwright.parser import command_line, parse, wants_json

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises for a mistake of its user."""
    words = command_line() if argv is None else list(argv)
    as_json = wants_json(words)
    try:
        paths.leave_the_callers_places()
        args = parse(words)
        if args.verb != "completion":  # what a shell evaluates
            resume.tell_result()
        verb = importlib.import_module(f"gpuwright.commands.{args.verb}")
        return int(verb.run(args))
    except SystemExit as stop:  # argparse, after --help and --version
        return int(stop.code or 0)
    except CommandError as problem:
        return _tell(problem, as_json=as_json)
    except KeyboardInterrupt:
        console.note()
        console.error("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nobody is left to tell, and Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except Exception as problem:  # noqa: BLE001 - the last handler: what arrives here is a mistake of ours
        return _own_mistake(problem, as_json=as_json, verbose=_verbose(words))


def _tell(problem: CommandError, *, as_json: bool) -> int:
    if as_json:
        console.json_document(problem.document())
    else:
        console.error(problem.message, problem.suggestions)
    return problem.exit_code


def _own_mistake(problem: Exception, *, as_json: bool, verbose: bool) -> int:
    text = f"internal error: {type(problem).__name__}: {problem}"
    advice = ["please report this, with the output of the same command and -v"]
    if as_json:
        console.json_document({"ok": False, "error": text, "suggestions": advice})
    else:
        console.error(text, advice)
    if verbose:
        import traceback

        console.note(traceback.format_exc())
    return exits.FAILED


def _verbose(words: Sequence[str]) -> bool:
    own = list(words)[: list(words).index("--")] if "--" in words else words
    return any(word == "--verbose" or (word.startswith("-v") and set(word[1:]) == {"v"}) for word in own)
