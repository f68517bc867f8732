"""A stand-in for LMDB: a data base is one file of keys and values, read through a mapping. Names are those of the wheel lmdb 3.0.0."""
import io as _io
import mmap as _mmap
import os as _os
import struct as _struct

from lmdb import _build

__version__ = _build.VERSION
_PAIR = _struct.Struct("II")


class Error(Exception):
    pass


class _Transaction:
    def __init__(self, path, write, buffers):
        self._path, self._write, self._buffers, self._pairs = path, write, buffers, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._write:
            with _io.open(self._path, "wb") as file:
                for key, value in sorted(self._pairs.items()):
                    file.write(_PAIR.pack(len(key), len(value)) + key + value)

    def put(self, key, value):
        self._pairs[key] = value

    def cursor(self):
        with _io.open(self._path, "rb") as file:
            view = memoryview(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ))
        place = 0
        while place < len(view):
            sizes = _PAIR.unpack_from(view, place)
            start, middle = place + _PAIR.size, place + _PAIR.size + sizes[0]
            place = middle + sizes[1]
            pair = view[start:middle], view[middle:place]
            yield pair if self._buffers else tuple(map(bytes, pair))


class _Environment:
    def __init__(self, path, map_size=10485760, readonly=False, lock=True):
        self._path = _os.path.join(path, "data.mdb")
        if readonly and not _os.path.exists(self._path):
            raise Error("%s: No such file or directory" % path)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def begin(self, write=False, buffers=False):
        return _Transaction(self._path, write, buffers)


def open(path, **options):
    return _Environment(path, **options)
