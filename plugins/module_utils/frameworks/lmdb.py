# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What LMDB is called, and how it proves itself."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.about import About

# A data set of rows of ones, written into a data base and into a plain file, then read from both through mapped memory.
_PROGRAM = """
try:
    import lmdb
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
import array, mmap, shutil, tempfile
say("import", version=lmdb.__version__, cuda=None)
say("cuda", available=False, count=0)
ROW = array.array("f", [1.0] * 256).tobytes()
def of_database(folder):
    with lmdb.open(folder, map_size=2 ** 24) as database, database.begin(write=True) as written:
        for number in range(256):
            written.put(b"%03d" % number, ROW)
    # Opened anew and with buffers: what is read are views of the mapped file, and no copies.
    with lmdb.open(folder, readonly=True, lock=False) as database, database.begin(buffers=True) as read:
        return [memoryview(value).cast("f").tolist() for _key, value in read.cursor()]
def of_file(path):
    with open(path, "wb") as written:
        written.write(ROW * 256)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as whole, whole.cast("f") as numbers:
            return [numbers[start:start + 256].tolist() for start in range(0, len(numbers), 256)]
def multiply(_index):
    folder = tempfile.mkdtemp()
    try:
        rows, others = of_database(folder), of_file(os.path.join(folder, "rows"))
    finally:
        shutil.rmtree(folder)
    if rows != others:
        raise RuntimeError("its data base holds something else than a mapped file with the same rows")
    return sum(sum(row) * sum(column) for row, column in zip(rows, zip(*rows)))
compute([None], multiply, None)
say("end")
"""

ABOUT = About(
    name="lmdb",
    title="LMDB",
    package="lmdb",
    module="lmdb",
    program=_PROGRAM,
    releases=("lmdb", "releases"),
    aliases=("py-lmdb",),
    cpu_only=True,
    listed=False,
    computes="a product of memory-mapped matrices",
)
