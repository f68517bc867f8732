"""A stand-in for ONNX Runtime: gives a session the provider that libcuda has a card for, and runs the model of a proof.

Names and answers are those of the wheels onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 on a machine without a card, and what a session of the
latter prints there when its provider cannot be made. What a session answers with a card is assumed.
"""
import sys as _sys

from onnxruntime import _build, _cards

__version__ = _build.VERSION
cuda_version = _build.CUDA or ""
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def get_available_providers():
    return ["TensorrtExecutionProvider", _CUDA, _CPU] if cuda_version else [_CPU]


def preload_dlls(cuda=True, cudnn=True, msvc=True, directory=None):
    pass


class SessionOptions:
    def __init__(self):
        self.entries = {}

    def add_session_config_entry(self, key, value):
        self.entries[key] = value


class InferenceSession:
    """A session of one model, the product of two matrices and its sum."""

    def __init__(self, model, sess_options=None, providers=None):
        for word in (b"MatMul", b"ReduceSum"):
            if word not in model:
                raise ValueError("[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model failed: Protobuf parsing failed.")
        self._providers = [_CPU]
        for provider in providers or ():
            name, options = provider if isinstance(provider, tuple) else (provider, {})
            if name == _CUDA and self._card(int(options.get("device_id", 0))):
                self._providers = [_CUDA, _CPU]
        if self._providers == [_CPU] and sess_options and sess_options.entries.get("session.disable_cpu_ep_fallback") == "1":
            raise RuntimeError("This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been explicitly disabled by the user.")

    def _card(self, index):
        try:
            return index < len(_cards.names(int(cuda_version.split(".")[0])))
        except RuntimeError as error:
            _sys.stderr.write("Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. (%s)\n" % error)
            return False

    def get_providers(self):
        return list(self._providers)

    def run(self, outputs, inputs):
        return [(inputs["a"] @ inputs["b"]).total()]
