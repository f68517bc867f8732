# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a measured disk means for training: how many samples it feeds to the workers of a data loader, and how long a checkpoint takes.

The yardsticks are those of MLPerf Storage (https://github.com/mlcommons/storage). Pure functions.
"""

from __future__ import annotations

from typing import Optional

#: Bytes of an image of ImageNet: `record_length_bytes` of storage-conf/workload/resnet50_h100.yaml.
IMAGE_BYTES = 114_660
#: Images a second that one H100 takes in training ResNet-50: `batch_size` by `computation_time` of the same file.
IMAGES_OF_H100 = 400 / 0.224
#: Checkpoints with the states of the optimizer: table 2 of Submission_guidelines.md, version 2.0. Bytes by model.
CHECKPOINTS = {"8B": 105e9, "70B": 912e9}
#: Tokens in a request of 4 KiB, of two bytes each.
TOKENS = 2048


def sentence(part: str, bytes_a_second: float, operations: float, readers: int) -> Optional[str]:
    """What a part of fio (:data:`fio_json.FIGURES`) measured means; None where it moved nothing.

    Args:
        part: its name.
        bytes_a_second: what it moved.
        operations: how many requests a second.
        readers: how many jobs shared it.
    """
    if bytes_a_second <= 0 or operations <= 0:
        return None
    if part in ("seqwrite", "checkpoint_write"):
        return "At {:,.0f} MB/s {}".format(bytes_a_second / 1e6, _checkpoints("is written", bytes_a_second))
    if part == "checkpoint_read":
        return "At {:,.0f} MB/s {}".format(bytes_a_second / 1e6, _checkpoints("is read back", bytes_a_second))
    if part == "randread":
        samples = f"{TOKENS:,} tokens of two bytes{_each(operations, readers)}"
        return f"{operations:,.0f} reads of 4 KiB a second are as many samples of {samples}"
    images = bytes_a_second / IMAGE_BYTES
    how = "read in shards at random" if part == "shards" else "read from large files one after the other"
    return (
        f"{bytes_a_second / 1e6:,.0f} MB/s feed about {images:,.0f} images of ImageNet a second ({IMAGE_BYTES:,} bytes each) "
        f"{how}{_each(images, readers)}; an H100 takes {IMAGES_OF_H100:,.0f} in training ResNet-50"
    )


def _each(rate: float, readers: int) -> str:
    """The part of each of several workers."""
    return f", {rate / readers:,.0f} for each of {readers} workers" if readers > 1 else ""


def _checkpoints(done: str, bytes_a_second: float) -> str:
    told = [
        f"one of {name} ({size / 1e9:,.0f} GB) in {_time(size / bytes_a_second)}" for name, size in CHECKPOINTS.items()
    ]
    return f"a checkpoint of a model with its optimizer {done}: " + ", ".join(told)


def _time(seconds: float) -> str:
    for most, unit, long in ((120, "s", 1), (7200, "min", 60)):
        if seconds < most:
            return f"{seconds / long:.0f} {unit}"
    return f"{seconds / 3600:,.0f} h"
