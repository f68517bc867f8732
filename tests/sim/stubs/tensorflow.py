"""A stand-in for TensorFlow: finds the cards through libcuda and multiplies small matrices, so that a proof has something to prove."""
import contextlib as _contextlib
import sys as _sys
import types as _types

from tensorflow import _build, _cards

__version__ = _build.VERSION
_placement = ["CPU"]


def _gpus():
    # As the real one: without cards it goes on, and says why on stderr.
    try:
        return _cards.names(int(_build.CUDA.split(".")[0]))
    except RuntimeError as error:
        _sys.stderr.write("E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] %s\n" % error)
        return []


def _physical(kind):
    names = _gpus() if kind == "GPU" else ["cpu"]
    return [_types.SimpleNamespace(name="/physical_device:%s:%d" % (kind, index), device_type=kind) for index in range(len(names))]


def _details(device):
    return {"device_name": _gpus()[int(device.name.rsplit(":", 1)[1])]}


@_contextlib.contextmanager
def device(name):
    if name.startswith("/GPU:") and int(name[5:]) >= len(_gpus()):
        raise RuntimeError("Could not satisfy device specification '%s'" % name)
    _placement.append(name)
    yield
    _placement.pop()


def ones(shape, dtype=None):
    return _cards.Matrix(shape, 1)


def matmul(first, second):
    return first @ second


def reduce_sum(matrix):
    return matrix.total()


config = _types.SimpleNamespace(
    set_soft_device_placement=lambda enabled: None,
    list_physical_devices=_physical,
    experimental=_types.SimpleNamespace(set_memory_growth=lambda device, enable: None, get_device_details=_details),
)
sysconfig = _types.SimpleNamespace(
    get_build_info=lambda: {"is_cuda_build": True, "cuda_version": _build.CUDA, "cudnn_version": str(_build.CUDNN)}
)
