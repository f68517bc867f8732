"""`gpuwright demo`: the whole loop on a throw-away simulated node, in a clone of the repository."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from gpuwright import exits, paths
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Run what `make demo` runs.

    Raises:
        BadInput: this is no clone, or there is no JSON of a demonstration.
    """
    if args.json:
        raise BadInput("`gpuwright demo` has no JSON", ["its last lines name the report, which has"])
    root = paths.clone_root()
    if root is None:
        raise BadInput("`gpuwright demo` needs a clone of the repository: the simulated node is not in the package")
    clean = ["--clean"] if args.clean else []
    done = subprocess.run([sys.executable, "-m", "tests.sim", "demo", *clean], cwd=root, check=False)
    # It ends as the `gpuwright up` in it ended; anything else (Docker is missing, a crash) is a failure.
    return done.returncode if done.returncode in exits.ORDER else exits.FAILED
