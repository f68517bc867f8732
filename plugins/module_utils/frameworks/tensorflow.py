# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What TensorFlow is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

_PROGRAM = """
try:
    import tensorflow as tf
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
build = tf.sysconfig.get_build_info()
say("import", version=tf.__version__, cuda=build.get("cuda_version") if build.get("is_cuda_build") else None)
facts, cards = {}, []
try:
    # Without this an operation that the card cannot do is quietly done by the processor.
    tf.config.set_soft_device_placement(False)
    cards = tf.config.list_physical_devices("GPU")
    for card in cards:
        # Else the whole memory of every card is taken.
        tf.config.experimental.set_memory_growth(card, True)
except BaseException as error:
    facts["error"] = told(error)
say("cuda", available=bool(cards), count=len(cards), cudnn=cudnn(), **facts)
def multiply(card):
    with tf.device("/CPU:0" if card is None else "/GPU:%d" % cards.index(card)):
        ones = tf.ones((256, 256))
        return tf.reduce_sum(tf.matmul(ones, ones)).numpy()
def name(card):
    return str(tf.config.experimental.get_device_details(card).get("device_name"))
compute(cards or [None], multiply, name)
say("end")
"""

ABOUT = About(
    name="tensorflow",
    title="TensorFlow",
    package="tensorflow",
    module="tensorflow",
    program=_PROGRAM,
    releases=("tensorflow", "releases"),
    aliases=("tf",),
    variants="extra",
    extras=("and-cuda",),
    # It tells only in its log why it finds no card: a host's own setting must not silence it. A card may be in use by somebody else.
    environment={"TF_CPP_MIN_LOG_LEVEL": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
)
