# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What ONNX Runtime is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

# The model is written here byte by byte (onnx.proto3: ModelProto with a GraphProto of two nodes), so that no other package is needed.
_PROGRAM = """
try:
    import numpy
    import onnxruntime as ort
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
built = CUDA in ort.get_available_providers()
say("import", version=ort.__version__, cuda=(getattr(ort, "cuda_version", "") or "of an unknown version") if built else None)
def number(field, value):
    return bytes([8 * field, value])
def part(field, content):
    return bytes([8 * field + 2, len(content)]) + content
def node(operation, inputs, output):
    return part(1, b"".join(part(1, each) for each in inputs) + part(2, output) + part(4, operation))
def value(name):
    return part(1, name) + part(2, part(1, number(1, 1)))
graph = node(b"MatMul", [b"a", b"b"], b"product") + node(b"ReduceSum", [b"product"], b"sum") + part(2, b"proof")
graph += part(11, value(b"a")) + part(11, value(b"b")) + part(12, value(b"sum"))
model = number(1, 8) + part(8, number(2, 13)) + part(7, graph)
def session(index, alone=True):
    options = ort.SessionOptions()
    if index is None:
        return ort.InferenceSession(model, options, providers=[CPU])
    if alone:
        # Without this what the card cannot do is quietly done by the processor.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model, options, providers=[(CUDA, {"device_id": index})])
def cards():
    import ctypes
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        raise RuntimeError("cuInit answered error %d" % code)
    return count.value
def lacking():
    # Why the library of the provider cannot be loaded: onnxruntime tells that only in its log.
    import ctypes
    ctypes.CDLL(os.path.join(os.path.dirname(ort.__file__), "capi", "libonnxruntime_providers_cuda.so"))
facts, count = {}, 0
if built:
    try:
        count = cards()
        if hasattr(ort, "preload_dlls"):
            # The CUDA and the cuDNN of this environment.
            ort.preload_dlls()
        if count and CUDA not in session(0, alone=False).get_providers():
            count = 0
            facts["error"] = "a session that asks for %s does not get it" % CUDA
            lacking()
    except OSError as error:
        count, facts["error"] = 0, "no NVIDIA driver: " + str(error) if "libcuda.so" in str(error) else str(error)
    except BaseException as error:
        count, facts["error"] = 0, told(error)
say("cuda", available=count > 0, count=count, cudnn=cudnn(), **facts)
def multiply(index):
    made = session(index)
    wanted = CPU if index is None else CUDA
    if made.get_providers()[0] != wanted:
        raise RuntimeError("it computes with %s instead of %s" % (made.get_providers()[0], wanted))
    ones = numpy.ones((256, 256), numpy.float32)
    return made.run(None, {"a": ones, "b": ones})[0].sum()
compute(range(count) if count else [None], multiply, lambda index: "card %d" % index)
say("end")
"""

ABOUT = About(
    name="onnxruntime",
    title="ONNX Runtime",
    package="onnxruntime",
    module="onnxruntime",
    program=_PROGRAM,
    releases=("onnxruntime", "releases"),
    aliases=("ort", "onnx-runtime"),
    variant_in_name=r"onnxruntime-(gpu)",
    variants="variant",
    named="{name}-{variant}",
    # Both are the same module: one that another installation left hides the other.
    one_of=r"onnxruntime(-gpu)?",
    for_cards="gpu",
)
