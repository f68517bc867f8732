"""The few functions of NumPy that a proof uses; its matrices have equal elements."""
from numpy import _build, _cards

__version__ = _build.VERSION
float32 = "float32"


def ones(shape, dtype=None):
    return _cards.Matrix(shape, 1)


def array_equal(one, other):
    return one.shape == other.shape and float(one) == float(other)
