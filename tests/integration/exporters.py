"""What only DCGM and jobs tell, on a simulated node: a textfile that node_exporter reads beside that of the watch.

No fault of the simulated node makes it, and gpuwright's own exporter, over nvidia-smi, does not have it.
"""

from __future__ import annotations

import re
import shlex

from tests.unit.monitoring import series

from .conftest import Node

_FILE = "/var/lib/gpuwright/metrics/only-dcgm.prom"
_OF_TARGET = re.compile(r'(?:host|job|instance)="[^"]*",')


def write(machine: Node, path: str, text: str) -> None:
    """Put a text into a file of a node, whole at once."""
    machine.shell(f"printf %s {shlex.quote(text)} > {path}.new && mv {path}.new {path}")


def card(machine: Node, gpu: int, more: str = "") -> dict[str, float]:
    """What DCGM tells of a card that is well, with more labels."""
    told = series.card(machine.name, gpu, 1)
    return {_OF_TARGET.sub("", name).replace("{", "{" + more): values[0] or 0 for name, values in told.items()}


def tell(machine: Node, told: dict[str, float]) -> None:
    """Have node_exporter tell this, too, from now on."""
    write(machine, _FILE, "".join(f"{name} {value!r}\n" for name, value in sorted(told.items())))
