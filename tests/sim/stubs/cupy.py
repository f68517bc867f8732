"""A stand-in for CuPy: runs the kernel of a proof on the cards that libcuda finds, and compiles it without one.

Names and answers are those of the wheel cupy-cuda13x 14.2.0, with nvidia-cuda-nvrtc 13.2.86, on a machine without a card; there the runtime calls
a driver that is missing one that is too old. What it answers with a card is assumed.
"""
import os as _os
import types as _types

from cupy import _build, _cards

__version__ = _build.VERSION
_os.makedirs(_os.environ.get("CUPY_CACHE_DIR", _os.path.expanduser("~/.cupy/kernel_cache")), exist_ok=True)
_MAJOR, _MINOR = (int(part) for part in _build.CUDA.split("."))


class ndarray:
    """A matrix in the memory of a card."""

    def __init__(self, matrix):
        self.matrix = matrix

    def sum(self):
        return self.matrix.total()


class RawKernel:
    """A kernel by its source: the product of its first two matrices becomes the third."""

    def __init__(self, code, name):
        _compile(code)
        if "__global__ void %s(" % name not in code:
            raise KeyError(name)

    def __call__(self, grid, block, args):
        one, other, product = args
        product.matrix = one.matrix @ other.matrix


def asarray(matrix):
    return ndarray(matrix)


def asnumpy(array):
    return array.matrix


def zeros_like(array):
    return ndarray(_cards.Matrix(array.matrix.shape, 0))


def _compile(code):
    if "__global__" not in code:
        raise RuntimeError("NVRTC_ERROR_COMPILATION (6)")


def _count():
    try:
        return len(_cards.names(_MAJOR))
    except RuntimeError as error:
        if "Could not find cuda drivers" in str(error):
            error = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
        raise RuntimeError(error) from None


class _Device:
    def __init__(self, device):
        if device >= _count():
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


cuda = _types.SimpleNamespace(
    driver=_types.SimpleNamespace(get_build_version=lambda: _MAJOR * 1000 + _MINOR * 10),
    runtime=_types.SimpleNamespace(getDeviceCount=_count),
    nvrtc=_types.SimpleNamespace(
        getVersion=lambda: (_MAJOR, _MINOR),
        getSupportedArchs=lambda: (75, 80, 90, 100, 120),
        createProgram=lambda source, name, headers, names: source,
        compileProgram=lambda program, options: _compile(program),
    ),
    Device=_Device,
)
