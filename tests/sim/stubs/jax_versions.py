"""The versions that JAX's plugin tells of its CUDA."""
from . import _build


def cuda_runtime_get_version():
    major, minor = (int(part) for part in _build.CUDA.split("."))
    return major * 1000 + minor * 10


def cudnn_get_version():
    return _build.CUDNN
