# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a stack that the toolkits and their libraries are, in the order of a lock."""

from __future__ import annotations

from . import cudnn, forward, nccl, tensorrt, toolkit

PARTS = (toolkit.PART, forward.PART, cudnn.PART, nccl.PART, tensorrt.PART)
