# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What DALI is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

# A pipeline has no product of matrices: 256 times 256 numbers of 256, summed on the card, give the same.
_PROGRAM = """
try:
    import nvidia.dali as dali
    from nvidia.dali import fn, types
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
from importlib import metadata
names = [str(one.metadata["Name"]).lower() for one in metadata.distributions()]
built = next((one[len("nvidia-dali-cuda"):] for one in names if one.startswith("nvidia-dali-cuda")), None)
say("import", version=dali.__version__, cuda="%s.%s" % (built[:-1], built[-1]) if built else None)
facts, count = {}, 0
try:
    import ctypes
    driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number))
    count = number.value
    if code:
        facts["error"] = "cuInit answered %d" % code
except OSError as error:
    facts["error"] = "no NVIDIA driver: " + str(error)
say("cuda", available=count > 0, count=count, **facts)
def total(index):
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=index)
    with pipeline:
        numbers = types.Constant(256.0, dtype=types.FLOAT, shape=(256, 256), device="gpu" if index is not None else "cpu")
        pipeline.set_outputs(fn.reductions.sum(numbers))
    pipeline.build()
    (output,) = pipeline.run()
    return (output.as_cpu() if index is not None else output).at(0)
compute(range(count) if count else [None], total, lambda index: "card %d" % index)
say("end")
"""

ABOUT = About(
    name="dali",
    title="DALI",
    package="dali",
    module="nvidia.dali",
    program=_PROGRAM,
    releases=("libraries", "dali"),
    aliases=("nvidia-dali",),
    variants="wheels",
    variant_in_name=r"nvidia-dali-(cuda\d+)",
    local=True,
    cpu=False,
    listed=False,
    computes="the sum of a matrix",
    one_of=r"nvidia-dali-cuda\d+",
)
