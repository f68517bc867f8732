# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What CuPy is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

# A kernel of its own source: compiled in the environment by NVRTC, run on each card, and held against what NumPy computes.
_PROGRAM = """
try:
    import cupy
    import numpy
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
number = cupy.cuda.driver.get_build_version()
say("import", version=cupy.__version__, cuda="%d.%d" % (number // 1000, number % 1000 // 10))
SOURCE = '''
extern "C" __global__ void product(const float* a, const float* b, float* c) {
    const int row = blockIdx.x, column = threadIdx.x, size = blockDim.x;
    float sum = 0;
    for (int each = 0; each < size; ++each) sum += a[row * size + each] * b[each * size + column];
    c[row * size + column] = sum;
}
'''
def cards():
    # The driver is asked itself: CUDA's runtime calls one that is not there one that is too old.
    import ctypes
    driver, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found))
    if code or not found.value:
        raise RuntimeError("no NVIDIA GPU" if code in (0, 100) else "cuInit answered error %d" % code)
    return cupy.cuda.runtime.getDeviceCount()
facts, count = {}, 0
try:
    count = cards()
except OSError as error:
    facts["error"] = "no NVIDIA driver: " + str(error)
except BaseException as error:
    facts["error"] = told(error)
say("cuda", available=count > 0, count=count, **facts)
def compiled():
    # Without a card its compiler is all that there is to try: for the first architecture that it knows.
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(SOURCE, "product.cu", [], [])
    nvrtc.compileProgram(program, ["-arch=sm_%d" % nvrtc.getSupportedArchs()[0]])
    return "NVRTC %d.%d" % nvrtc.getVersion()
def multiply(index):
    if index is None:
        raise RuntimeError("no NVIDIA GPU that CuPy could compute on; its compiler works (%s)" % compiled())
    ones = numpy.ones((256, 256), numpy.float32)
    with cupy.cuda.Device(index):
        one = cupy.asarray(ones)
        product = cupy.zeros_like(one)
        cupy.RawKernel(SOURCE, "product")((256,), (256,), (one, one, product))
        if not numpy.array_equal(cupy.asnumpy(product), ones @ ones):
            raise RuntimeError("a kernel that it compiled computes something else than NumPy")
        return float(product.sum())
compute(range(count) if count else [None], multiply, lambda index: "card %d" % index)
say("end")
"""

ABOUT = About(
    name="cupy",
    title="CuPy",
    package="cupy",
    module="cupy",
    program=_PROGRAM,
    releases=("cupy", "releases"),
    variants="wheels",
    variant_in_name=r"cupy-(cuda\d+)x?",
    local=True,
    cpu=False,
    listed=False,
    # All are the same module: one that another installation left hides the other.
    one_of=r"cupy(-cuda\d+x?)?",
    # What it compiles stays in memory. Its import makes the directory of its cache all the same, in a home that may not be there: this one
    # is there.
    environment={"CUPY_CACHE_IN_MEMORY": "1", "CUPY_CACHE_DIR": "/"},
)
