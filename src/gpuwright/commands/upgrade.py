"""`gpuwright upgrade`: as `up`, and what is sealed moves to the newest that the wish and the node's package index allow."""

from __future__ import annotations

from gpuwright.commands.up import run

__all__ = ["run"]
