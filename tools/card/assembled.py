# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Assemble the programs of the load by a ptxas that is there: `python -m tools.card.assembled PTXAS 9.0`; prints one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load_ptx as ptx

_SECONDS = 60
#: The first generation with tensor cores.
_TENSOR = 70


def main(ptxas: str, capability: str) -> None:
    generation = int(capability.replace(".", ""))
    programs = {"PLAIN": ptx.PLAIN, **({"TENSOR": ptx.TENSOR} if generation >= _TENSOR else {})}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in programs.items():
            source = Path(folder) / f"{name}.ptx"
            source.write_text(text)
            command = [ptxas, "--verbose", "-arch", f"sm_{generation}", "-o", f"{source}.cubin", str(source)]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            found[name] = {"code": ran.returncode, "words": ran.stderr}
    print(json.dumps({"programs": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
