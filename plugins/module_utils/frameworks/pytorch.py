# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What PyTorch is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

#: What torch says of the cards; what computes by torch asks it the same.
CARDS = """
available = torch.cuda.is_available()
facts = {"available": available, "count": torch.cuda.device_count() if available else 0}
if not available and torch.version.cuda:
    try:
        torch.cuda.init()
    except BaseException as error:
        facts["error"] = str(error)
try:
    facts["cudnn"] = torch.backends.cudnn.version()
except BaseException:
    pass
say("cuda", **facts)
"""
_PROGRAM = (
    """
try:
    import torch
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
say("import", version=torch.__version__, cuda=torch.version.cuda)
def multiply(index):
    device = "cpu" if index is None else "cuda:%d" % index
    # cuDNN loads its parts for a convolution, and not for a product: 4 * 14 * 14 values, each the sum of 8 * 3 * 3 ones.
    found = torch.nn.functional.conv2d(torch.ones((1, 8, 16, 16), device=device), torch.ones((4, 8, 3, 3), device=device))
    if found.sum().item() != 56448.0:
        raise RuntimeError("a convolution of ones gives %r in place of 56448.0" % found.sum().item())
    ones = torch.ones((256, 256), device=device)
    return (ones @ ones).sum().item()
"""
    + CARDS
    + """
compute(range(facts["count"]) if facts["count"] else [None], multiply, lambda index: torch.cuda.get_device_name(index))
say("end")
"""
)

ABOUT = About(
    name="pytorch",
    title="PyTorch",
    package="torch",
    module="torch",
    program=_PROGRAM,
    releases=("pytorch", "releases"),
    aliases=("torch",),
    local=True,
    loads=True,
)
