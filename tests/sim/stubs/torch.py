"""A stand-in for PyTorch: finds the cards through libcuda and multiplies small matrices, so that a proof has something to prove."""
import ctypes as _ctypes
import math as _math
import types as _types

from torch import _build

__version__ = _build.VERSION
version = _types.SimpleNamespace(cuda=_build.CUDA, hip=None, git_version="0" * 40, debug=False)
float16, bfloat16, float32, float64, int32, int64 = ("torch." + name for name in ("float16", "bfloat16", "float32", "float64", "int32", "int64"))


class Tensor:
    """A matrix or a number; a matrix whose elements are all equal keeps only one of them."""

    def __init__(self, shape, fill=None, rows=None, device="cpu"):
        self.shape, self._fill, self._rows, self.device = tuple(shape), fill, rows, device

    def _row(self, index):
        return [self._fill] * self.shape[1] if self._rows is None else self._rows[index]

    def __matmul__(self, other):
        if self._rows is None and other._rows is None:
            return Tensor((self.shape[0], other.shape[1]), fill=self._fill * other._fill * self.shape[1], device=self.device)
        columns = list(zip(*(other._row(index) for index in range(other.shape[0]))))
        rows = [[sum(a * b for a, b in zip(self._row(index), column)) for column in columns] for index in range(self.shape[0])]
        return Tensor((self.shape[0], other.shape[1]), rows=rows, device=self.device)

    matmul = mm = __matmul__

    def sum(self):
        if not self.shape:
            return self
        if self._rows is None:
            return Tensor((), fill=self._fill * _math.prod(self.shape), device=self.device)
        return Tensor((), fill=sum(map(sum, self._rows)), device=self.device)

    def item(self):
        return float(self._fill)

    def tolist(self):
        return [self._row(index) for index in range(self.shape[0])] if self.shape else self._fill

    def to(self, device):
        return Tensor(self.shape, self._fill, self._rows, str(device))

    def cuda(self):
        return self.to("cuda:0")

    def cpu(self):
        return self.to("cpu")


def _need(device):
    if str(device).startswith("cuda"):
        cuda.init()


def full(shape, value, device="cpu", dtype=None):
    _need(device)
    return Tensor(shape, fill=float(value), device=str(device))


def ones(*shape, device="cpu", dtype=None):
    return full(shape[0] if isinstance(shape[0], (tuple, list)) else shape, 1, device)


def zeros(*shape, device="cpu", dtype=None):
    return full(shape[0] if isinstance(shape[0], (tuple, list)) else shape, 0, device)


def tensor(data, device="cpu", dtype=None):
    _need(device)
    rows = [list(map(float, row)) for row in data]
    return Tensor((len(rows), len(rows[0])), rows=rows, device=str(device))


def matmul(first, second):
    return first @ second


class _Device:
    """What is computed within it is computed on one card."""

    def __init__(self, index):
        if index >= cuda.device_count():
            raise RuntimeError("CUDA error: invalid device ordinal")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class _Cuda:
    device = _Device

    def _library(self):
        if version.cuda is None:
            raise AssertionError("Torch not compiled with CUDA enabled")
        try:
            library = _ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver") from None
        code = library.cuInit(0)
        if code:
            name = _ctypes.c_char_p()
            library.cuGetErrorName(code, _ctypes.byref(name))
            raise RuntimeError("CUDA driver initialization failed: error %d %s" % (code, (name.value or b"").decode()))
        number = _ctypes.c_int()
        library.cuDriverGetVersion(_ctypes.byref(number))
        major, minor = (int(part) for part in version.cuda.split("."))
        if number.value // 1000 < major:
            raise RuntimeError("The NVIDIA driver on your system is too old (found version %d)" % number.value)
        return library

    def init(self):
        self._library()

    def is_available(self):
        try:
            return self.device_count() > 0
        except (RuntimeError, AssertionError):
            return False

    def device_count(self):
        number = _ctypes.c_int()
        self._library().cuDeviceGetCount(_ctypes.byref(number))
        return number.value

    def get_device_name(self, index=0):
        text = _ctypes.create_string_buffer(256)
        self._library().cuDeviceGetName(text, 256, int(index))
        return text.value.decode()

    def get_device_capability(self, index=0):
        major, minor = _ctypes.c_int(), _ctypes.c_int()
        self._library().cuDeviceComputeCapability(_ctypes.byref(major), _ctypes.byref(minor), int(index))
        return major.value, minor.value

    def get_arch_list(self):
        return _build.ARCHITECTURES

    def synchronize(self, device=None):
        self._library()


def _conv2d(values, weights):
    """Of equal values: each of the result is the sum of one kernel's products."""
    number, channels, height, width = values.shape
    kernels, _channels, high, wide = weights.shape
    shape = (number, kernels, height - high + 1, width - wide + 1)
    return Tensor(shape, fill=values._fill * weights._fill * channels * high * wide, device=values.device)


cuda = _Cuda()
nn = _types.SimpleNamespace(functional=_types.SimpleNamespace(conv2d=_conv2d))
ops = _types.SimpleNamespace()
backends = _types.SimpleNamespace(cudnn=_types.SimpleNamespace(version=lambda: _build.CUDNN, is_available=lambda: cuda.is_available(), enabled=True))
