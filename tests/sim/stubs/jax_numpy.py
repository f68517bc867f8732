"""The few functions of jax.numpy that a proof uses."""
from jax import _cards


def ones(shape, dtype=None):
    return _cards.Matrix(shape, 1)


def sum(matrix):
    return matrix.total()
