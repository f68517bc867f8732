"""``python -m gpuwright`` and the entry point of the command ``gpuwright``."""

from __future__ import annotations

from gpuwright.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
