# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What JAX is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

_PROGRAM = """
try:
    import jax
    import jax.numpy as jnp
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
from importlib import import_module, util
plugin = next((name for name in ("jax_cuda13_plugin", "jax_cuda12_plugin") if util.find_spec(name)), None)
say("import", version=jax.__version__, cuda=plugin[len("jax_cuda"):len("jax_cuda") + 2] if plugin else None)
facts, cards = {}, []
if plugin:
    try:
        cards = jax.devices("gpu")
    except BaseException as error:
        facts["error"] = told(error)
    try:
        versions = import_module(plugin + "._versions")
        number = versions.cuda_runtime_get_version()
        facts["cuda"] = "%d.%d" % (number // 1000, number % 1000 // 10)
        facts["cudnn"] = versions.cudnn_get_version()
    except BaseException:
        pass
say("cuda", available=bool(cards), count=len(cards), **facts)
def multiply(card):
    ones = jax.device_put(jnp.ones((256, 256)), jax.devices("cpu")[0] if card is None else card)
    return jnp.sum(ones @ ones)
compute(cards or [None], multiply, lambda card: card.device_kind)
say("end")
"""

ABOUT = About(
    name="jax",
    title="JAX",
    package="jax",
    module="jax",
    program=_PROGRAM,
    releases=("jax", "releases"),
    aliases=("jaxlib",),
    variants="extras",
    extras=("cuda12", "cuda13", "cpu"),
    example="jax[cuda13]",
    one_of=r"jax-cuda\d+-(plugin|pjrt)",
    # It does not take the whole memory of a card, and what a shell says of its platforms does not hide the cards.
    environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": ""},
)
