"""What a framework's stand-in asks of libcuda: the cards, or why there are none."""
import ctypes


def library():
    """libcuda after cuInit. Raises RuntimeError with what the driver said."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError("Could not find cuda drivers on your machine (%s)" % error) from None
    code = driver.cuInit(0)
    if code:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(name))
        raise RuntimeError("failed call to cuInit: %s: error %d" % ((name.value or b"UNKNOWN ERROR").decode(), code))
    return driver


def names(major):
    """The cards of a machine, for a program that was built with this CUDA major version."""
    driver, number = library(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    if number.value // 1000 < major:
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version (found version %d)" % number.value)
    driver.cuDeviceGetCount(ctypes.byref(number))
    text, found = ctypes.create_string_buffer(256), []
    for index in range(number.value):
        driver.cuDeviceGetName(text, 256, index)
        found.append(text.value.decode())
    return found


class Matrix:
    """A matrix whose elements are all equal, or the number that its sum is."""

    def __init__(self, shape, fill):
        self.shape, self._fill = tuple(shape), float(fill)

    def __matmul__(self, other):
        return Matrix((self.shape[0], other.shape[1]), self._fill * other._fill * self.shape[1])

    def total(self):
        size = 1
        for side in self.shape:
            size *= side
        return Matrix((), self._fill * size)

    def sum(self):
        return float(self.total())

    def __float__(self):
        return self._fill

    def numpy(self):
        return self._fill
