"""`gpuwright remove`: take back everything that gpuwright brought to the hosts."""

from __future__ import annotations

from gpuwright.commands.up import run

__all__ = ["run"]
