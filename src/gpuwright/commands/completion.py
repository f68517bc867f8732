"""`gpuwright completion`: the completion script of a shell, generated with shtab and kept in the package."""

from __future__ import annotations

import sys
from importlib import resources
from typing import TYPE_CHECKING

from gpuwright import console, exits

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    script = resources.files("gpuwright.completions").joinpath(f"gpuwright.{args.shell}").read_text(encoding="utf-8")
    if args.json:
        console.json_document({"shell": args.shell, "script": script})
    else:
        sys.stdout.write(script)
    return exits.DONE
