"""A stand-in for vLLM, beside the one for PyTorch: its kernels are in a library of their own, as in the wheel 0.33.0."""
import torch

from vllm import _build

__version__ = _build.VERSION
