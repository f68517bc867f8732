# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a project's files have wheels come from: the variant of PyTorch that its own index means, and what else is said and not followed.

PyTorch's index is asked anyway, so that a file that names it says which variant is wished. Every other index is the machine's to name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT, CPU

from ....model.errors import BadInput
from ....rules import load_rules

#: Architectures that a node may have: a marker that holds on both is none.
_ARCHITECTURES = ("x86_64", "aarch64")
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
#: What a source of uv's may name instead of an index, in words.
_NO_INDEX = {
    "git": "a repository of git",
    "url": "an address",
    "path": "a directory",
    "workspace": "its workspace",
}
#: Tables of other programs with indexes.
_OF_OTHERS = (("poetry", "source"), ("pdm", "source"))
#: The page with all wheels of an index, which guides name by --find-links.
_PAGE = "/torch_stable.html"
_NAME_IT = "name it in gpuwright_mirrors ({pypi: URL}) where that has to be asked"


@dataclass(frozen=True)
class Source:
    """Where a requirement comes from: the variant that this means, the marker under which it does ("": always), and what a person has to
    know about it ("": nothing).
    """

    variant: str | None = None
    marker: str = ""
    note: str = ""


#: The machine's own index, which nothing has to name.
PLAIN = Source()


def variant(url: str) -> str | None:
    """Return the variant that the address of PyTorch's own index, or of a mirror of it, ends with; "" where that holds all variants, None
    for any other address.
    """
    address = url.rstrip("/").removesuffix(_PAGE)
    above, _slash, last = address.rpartition("/")
    for about in ABOUT.values():
        if about.local and any(_same(address, each) for each in _indexes(about.name)):
            return ""
        if about.local and any(_same(above, each) for each in _indexes(about.name)):
            return last if last in (*load_rules()[about.releases[0]]["index"][0]["existed"], CPU) else None
    return None


def _indexes(framework: str) -> Iterator[str]:
    """Yield the addresses of the index that a framework has of its own, and of the mirrors of it."""
    tables = load_rules()["upstreams"]
    yield from (row["url"] for row in tables["rows"] if row["name"] == framework)
    yield from (row["url"] for row in tables["mirrors"] if row["upstream"] == framework)


def _same(one: str, other: str) -> bool:
    """Say whether two addresses are of one place, whatever is written before or behind it."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.hostname, first.path.rstrip("/")) == (second.hostname, second.path.rstrip("/"))


def one_of(variants: Sequence[str]) -> str | None:
    """Return the variant of indexes that several lines name; of several it is left to the resolver."""
    found = set(variants)
    return found.pop() if len(found) == 1 else None


class UvTables:
    """What the tables [tool.uv] of a pyproject.toml say of where a project's requirements come from."""

    def __init__(self, file: str, document: Mapping[str, object], extras: Sequence[str], groups: Sequence[str]) -> None:
        tool = _mapping(document.get("tool"))
        self._file, self._tool, self._uv = file, tool, _mapping(tool.get("uv"))
        self._asked = {"extra": set(extras), "group": set(groups)}
        self._sources = {_normal(name): rows for name, rows in _mapping(self._uv.get("sources")).items()}
        self._indexes = [row for row in _rows(self._uv.get("index")) if isinstance(row.get("url"), str)]

    @property
    def constraints(self) -> object:
        """What holds for whatever is installed."""
        return self._uv.get("constraint-dependencies", [])

    @property
    def variant(self) -> str | None:
        """The variant that an index means which is asked for everything."""
        return one_of([found for url in self._for_all() if (found := variant(url))])

    def of(self, name: str, origin: str) -> list[Source]:
        """Return where a requirement comes from: one row, or one for each architecture. Raises BadInput where it comes from no index."""
        rows = [row for row in _rows(self._sources.get(_normal(name))) if self._is_asked(row)]
        chosen = {arch: next((row for row in rows if _holds(row, arch)), None) for arch in _ARCHITECTURES}
        several = list(chosen.values())
        if all(row is several[0] for row in several):
            return [self._source(name, several[0], origin)]
        return [
            Source(found.variant, f'platform_machine == "{arch}"', found.note)
            for arch, row in chosen.items()
            for found in [self._source(name, row, origin)]
        ]

    def _is_asked(self, row: Mapping[str, object]) -> bool:
        return all(key not in row or _normal(str(row[key])) in asked for key, asked in self._asked.items())

    def _source(self, name: str, row: Mapping[str, object] | None, origin: str) -> Source:
        if row is None:
            return PLAIN
        elsewhere = next((words for key, words in _NO_INDEX.items() if row.get(key)), None)
        if elsewhere:
            text = (
                f"{origin}: [tool.uv.sources] takes {name} from {elsewhere}, and only wheels of an index are installed"
            )
            raise BadInput(text, ["make a wheel of it (pip wheel), put that on an index, and require it by its name"])
        named = str(row.get("index"))
        url = next((str(each["url"]) for each in self._indexes if each.get("name") == named), None)
        found = variant(url) if url else None
        if found is not None:
            return Source(found or None)
        told = redact.text(url) if url else named
        return Source(note=f"[tool.uv.sources] takes {name} from {told}, which is not asked: {_NAME_IT}")

    def _for_all(self) -> Iterator[str]:
        """Yield the addresses of the indexes that are asked for everything."""
        yield from (str(row["url"]) for row in self._indexes if not row.get("explicit"))
        for table in (self._uv, _mapping(self._uv.get("pip"))):
            for key in ("index-url", "extra-index-url"):
                found = table.get(key)
                yield from [found] if isinstance(found, str) else [str(each) for each in _list(found)]

    def notes(self) -> Iterator[str]:
        """Yield what a person has to know: what is said for everything, and not followed."""
        for url in self._for_all():
            if variant(url) is None:
                yield f"[tool.uv] names the index {redact.text(url)}, which is not asked: {_NAME_IT}"
        for program, key in _OF_OTHERS:
            for row in _rows(_mapping(self._tool.get(program)).get(key)):
                told = redact.text(str(row.get("url") or row.get("name")))
                yield f"[tool.{program}] names the index {told}, which is not asked: {_NAME_IT}"
        if self._uv.get("override-dependencies"):
            yield "[tool.uv] has override-dependencies, which are not followed: write those versions into dependencies"


def _holds(row: Mapping[str, object], arch: str) -> bool:
    """Say whether the marker of a source holds on Linux. One that is none is left to uv: here it holds."""
    from packaging.markers import InvalidMarker, Marker

    try:
        marker = Marker(str(row["marker"])) if row.get("marker") else None
    except InvalidMarker:
        return True
    return marker is None or marker.evaluate({**_LINUX, "platform_machine": arch})


def _normal(name: str) -> str:
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _rows(value: object) -> list[Mapping[str, object]]:
    """Return the tables of a list, or the one that stands in its place."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Mapping)]
