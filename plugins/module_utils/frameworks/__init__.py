# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The frameworks: one module each, and this table of them. Nodes and the controller read it; the order is that of the documentation."""

from __future__ import annotations

from typing import Dict

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import (
    cupy,
    dali,
    jax,
    lmdb,
    onnxruntime,
    pytorch,
    tensorflow,
    vllm,
)
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import CPU, About

__all__ = ["ABOUT", "CPU", "DEFAULT", "About"]

ABOUT: Dict[str, About] = {
    each.ABOUT.name: each.ABOUT for each in (pytorch, tensorflow, jax, dali, onnxruntime, cupy, vllm, lmdb)
}

#: The framework of whom names none.
DEFAULT = pytorch.ABOUT.name
