"""The compiled part of the stand-in for vLLM: needs libcuda as the real one does, and has the one kernel that a proof runs.

The name and the arguments of the kernel are those in the wheel 0.33.0; what it answers with a card is assumed.
"""
import ctypes as _ctypes
import types as _types

import torch

try:
    _ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise ImportError(str(error)) from None


def _rms_norm(result, input, weight, epsilon):
    """Rows of equal elements: the root of their mean square is the element."""
    torch.cuda.init()
    result._fill = input._fill / (input._fill**2 + epsilon) ** 0.5 * weight._fill


torch.ops._C = _types.SimpleNamespace(rms_norm=_rms_norm)
