"""gpuwright: brings Linux machines with NVIDIA GPUs to a proven deep-learning node."""

from __future__ import annotations

# The one place of the version: pyproject.toml reads it, a test holds galaxy.yml to it.
__version__ = "0.1.0"
