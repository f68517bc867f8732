"""A stand-in for DALI: a pipeline of constants and their sum, on a card that libcuda finds or on the processor."""
from nvidia.dali import _build, _cards

__version__ = _build.VERSION
_pipelines = []


class _Output:
    """The list of tensors that one operator left, one for each sample of the batch."""

    def __init__(self, samples):
        self._samples = samples

    def as_cpu(self):
        return self

    def at(self, index):
        return self._samples[index]


class Pipeline:
    """What is set as outputs while the pipeline is current, for each sample of the batch."""

    def __init__(self, batch_size, num_threads, device_id):
        self._batch, self._card, self._outputs = batch_size, device_id, ()

    def __enter__(self):
        _pipelines.append(self)
        return self

    def __exit__(self, *error):
        _pipelines.pop()

    def set_outputs(self, *outputs):
        self._outputs = outputs

    def build(self):
        major = int(_build.CUDA.split(".")[0])
        if self._card is not None and self._card >= len(_cards.names(major)):
            raise RuntimeError("Error in thread 0: nvml error (invalid argument): device %d" % self._card)

    def run(self):
        return tuple(_Output([float(each)] * self._batch) for each in self._outputs)


# Last: the submodules are part of the package, as in the real one.
from nvidia.dali import fn, types
