"""`gpuwright rollback`: as `up`, with the driver that worked before the last change for a wish."""

from __future__ import annotations

from gpuwright.commands.up import run

__all__ = ["run"]
