# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What vLLM is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.pytorch import CARDS

# Without a model: one kernel of its compiled part. Rows of ones are normalised to ones and weighed with 256, which gives the sum that the
# others compute.
_PROGRAM = (
    """
try:
    import torch
    import vllm
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
from importlib import import_module, util
say("import", version=vllm.__version__, cuda=torch.version.cuda)
"""
    + CARDS
    + """
def normalise(index):
    if index is None:
        raise RuntimeError("no NVIDIA GPU that vLLM could compute on")
    # Two libraries up to 0.23, one since.
    for each in ("vllm._C", "vllm._C_stable_libtorch"):
        if util.find_spec(each):
            import_module(each)
    with torch.cuda.device(index):
        ones = torch.ones((256, 256), device="cuda:%d" % index)
        result = torch.zeros((256, 256), device="cuda:%d" % index)
        torch.ops._C.rms_norm(result, ones, torch.full((256,), 256.0, device="cuda:%d" % index), 0.0)
        return result.sum().item()
compute(range(facts["count"]) if facts["count"] else [None], normalise, lambda index: torch.cuda.get_device_name(index))
say("end")
"""
)

ABOUT = About(
    name="vllm",
    title="vLLM",
    package="vllm",
    module="vllm",
    program=_PROGRAM,
    releases=("vllm", "releases"),
    named="{name}",
    cpu=False,
    listed=False,
    computes="a matrix that its kernel normalised",
)
