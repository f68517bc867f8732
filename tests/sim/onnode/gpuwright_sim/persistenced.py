"""The stand-in nvidia-persistenced: runs while the driver is loaded, ends with 1 where it is not."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from . import kernel, node

_PLACE = Path("/run/nvidia-persistenced")


def main(arguments: list[str]) -> int:
    """Stay, as the real daemon does in the foreground."""
    if "nvidia" not in node.loaded():
        try:
            kernel.insert("nvidia")
        except (FileNotFoundError, kernel.InsertionError, OSError):
            print("nvidia-persistenced failed to initialize. Check syslog for more details.", file=sys.stderr)
            return 1
    _PLACE.mkdir(exist_ok=True)
    (_PLACE / "mode").write_text("Disabled\n" if "--no-persistence-mode" in arguments else "Enabled\n")
    (_PLACE / "nvidia-persistenced.pid").write_text(f"{os.getpid()}\n")
    while True:
        time.sleep(3600)
