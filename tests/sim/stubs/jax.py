"""A stand-in for JAX: finds the cards through libcuda where its plugin is installed, and multiplies small matrices."""
import importlib.util as _util
import types as _types

from jax import _build, _cards

__version__ = _build.VERSION


def _major():
    return next((major for major in (13, 12) if _util.find_spec("jax_cuda%d_plugin" % major)), None)


def devices(backend=None):
    if backend == "cpu" or (backend is None and _major() is None):
        return [_types.SimpleNamespace(id=0, platform="cpu", device_kind="cpu")]
    if _major() is None:
        raise RuntimeError("Unknown backend: '%s' requested, but no platforms that are instances of %s are present." % (backend, backend))
    try:
        names = _cards.names(_major())
    except RuntimeError as error:
        raise RuntimeError("Unable to initialize backend 'cuda': INTERNAL: %s" % error) from None
    return [_types.SimpleNamespace(id=index, platform="gpu", device_kind=name) for index, name in enumerate(names)]


def device_put(matrix, device=None):
    return matrix


# Last: the submodule needs what is above.
from jax import numpy
