# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that a person hands in, and what others may have written into them: each is read here, within limits of size, depth and expansion.

What breaks a limit, or is not of its kind, is BadInput, with the line where there is one. Nothing is read to an end that never comes.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import local_path
from .errors import BadInput

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

#: Bytes of a file that programs write, unpacked, and of one that people do.
WRITTEN_BY_PROGRAMS, WRITTEN_BY_PEOPLE = 8 << 20, 1 << 20
#: Values of a document, those with it for which an alias of YAML stands.
MOST_VALUES = 200_000
_MIB = 1 << 20
_GZIP = b"\x1f\x8b"


def text(name: str, what: str, most: int = WRITTEN_BY_PROGRAMS, instead: Sequence[str] = ()) -> str:
    """Return the text of a file; of one that gzip packed what is in it. ``what``: the file for a person; ``instead``: what to do where it
    is not there. Raises BadInput.
    """
    told = f"{what} {name}"
    try:
        with local_path.read(name).open("rb") as stream:
            content = stream.read(most + 1)
        if content.startswith(_GZIP) and len(content) <= most:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
    except FileNotFoundError:
        raise BadInput(f"{told} is not there", instead) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{told} is a broken gzip file: {error}") from None
    except (OSError, ValueError) as error:
        # A path with a zero byte is a ValueError.
        raise BadInput(f"{what} {name!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > most:
        raise BadInput(f"{told} has more than {most // _MIB} MiB: nothing that long is read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{told} cannot be read: it is not UTF-8 text") from None


def from_json(written: str, told: str, most: int = MOST_VALUES) -> object:
    """Return the document in a text of so many values at most. ``told``: the file for a person, with its name. Raises BadInput."""
    if written.count(",") + written.count("[") + written.count("{") > most:
        raise _too_much(told, most)
    return _read(json.loads, written, f"{told} is not JSON")


def from_toml(written: str, told: str) -> object:
    """The same of TOML."""
    import tomllib

    return _read(tomllib.loads, written, f"{told} is not TOML")


def from_yaml(written: str, told: str) -> object:
    """The same of YAML; None of an empty text."""
    import yaml

    try:
        return yaml.load(written, Loader=_loader())  # noqa: S506 - a SafeLoader
    except _TooMuchError:
        raise _too_much(told) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"{told} is not YAML: {' '.join(str(error).split())}") from None


def bounded(written: str, told: str) -> None:
    """Refuse YAML that Ansible reads, with tags of its own, where it stands for too much; what is none Ansible tells. Raises BadInput."""
    import yaml

    try:
        node = yaml.compose(written, Loader=yaml.SafeLoader) if "*" in written else None
        if node:
            _expanded(node, {})
    except _TooMuchError:
        raise _too_much(told) from None
    except (yaml.YAMLError, RecursionError):
        return


def _read(reader: Callable[[str], object], written: str, else_: str) -> object:
    try:
        return reader(written)
    except (ValueError, RecursionError) as error:
        # Python reads no number of more than 4,300 digits, and says so by a ValueError.
        raise BadInput(f"{else_}: {error}") from None


def _too_much(told: str, most: int = MOST_VALUES) -> BadInput:
    return BadInput(f"{told} stands for more than {most} values: nothing that large is read")


class _TooMuchError(Exception):
    """A document stands for more values than are read."""


def _loader() -> type[SafeLoader]:
    """The safe loader of PyYAML, loaded where it is needed. What is no value is told with its line, and aliases do not multiply."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_document(self, node: Node) -> object:
            _expanded(node, {})
            return super().construct_document(node)

        def construct_object(self, node: Node, deep: bool = False) -> object:
            try:
                return super().construct_object(node, deep)
            except ValueError as error:  # 2026-02-30, a number of 5,000 digits
                raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    return Loader


def _expanded(node: Node, known: dict[int, int]) -> int:
    """For how many values a node stands; an alias stands for all of what it names, which may not be itself. Raises _TooMuchError."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES  # within itself it has no end
        inner = node.value if isinstance(node.value, list) else ()
        children = [child for each in inner for child in (each if isinstance(each, tuple) else (each,))]
        known[id(node)] = 1 + sum(_expanded(child, known) for child in children)
    if known[id(node)] > MOST_VALUES:
        raise _TooMuchError
    return known[id(node)]
