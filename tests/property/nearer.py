"""Every wish that is nearer than one that was proposed, by brute force over the tables.

Nearest is: nothing left out rather than something, then the fewest parts changed, then the smallest step of each, that of a framework
first, then of Python, libraries, toolkit and driver.
A step is smaller by the minor versions between, then upwards, then by the releases between.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

from tests.property import naive
from tests.property.machines import (
    BRANCHES,
    CUDNN,
    CUPY,
    DALI,
    JAX,
    LMDB,
    MINORS,
    NCCL,
    ONNXRUNTIME,
    RELEASES,
    TENSORFLOW,
    TENSORRT,
    TORCH,
    VLLM,
)
from tests.property.naive import within

Works = Callable[[Sequence[str]], bool]
Key = tuple[Any, ...]

_DRIVER = ("driver", "driver-modules", "driver-source")
ORDER = (
    "pytorch",
    "tensorflow",
    "jax",
    "dali",
    "onnxruntime",
    "cupy",
    "vllm",
    "lmdb",
    "python",
    "cudnn",
    "nccl",
    "tensorrt",
    "cuda",
    *_DRIVER,
)
COMPONENTS = (
    "cuda",
    "cudnn",
    "nccl",
    "tensorrt",
    "pytorch",
    "tensorflow",
    "jax",
    "dali",
    "onnxruntime",
    "cupy",
    "vllm",
    "lmdb",
)
# More combinations than these take longer than they are worth: then only every n-th is tried.
_MOST = 1500


def faults(wants: Sequence[str], proposed: Sequence[tuple[str, ...]], works: Works) -> Iterator[str]:
    """What is nearer than the first proposal and works. Without a proposal: anything that works."""
    changed = [want for want in wants if naive.component(want) in ORDER and alternatives(want)]
    changed.sort(key=lambda want: ORDER.index(naive.component(want)))
    first = proposed[0] if proposed else None
    mine = {naive.component(want): want for want in first or ()}
    out = [want for want in wants if first is not None and _gone(want, mine)]
    parts = [want for want in changed if want not in out and mine.get(naive.component(want)) != want]
    # Fewer parts; where something is left out, or nothing was found, any number of them.
    fewer = range(1, len(parts) if first is not None and not out else min(len(changed), 2) + 1)
    for number in fewer:
        for some in itertools.combinations(changed, number):
            yield from _that_work(wants, [alternatives(want) for want in some], some, works)
    if first is None or out:
        droppable = [want for want in wants if naive.component(want) in COMPONENTS]
        for number in range(1, len(out) if out else 2):
            for less in itertools.combinations(droppable, number):
                rest = [want for want in wants if want not in less]
                if works(rest):
                    yield f"without {less} it works"
        return
    if len(parts) == 1 and mine.get(naive.component(parts[0])):
        yield from _smaller_elsewhere(wants, changed, parts[0], mine, works)
    yield from _nearer(wants, parts, mine, works)


def _gone(want: str, mine: dict[str, str]) -> bool:
    return naive.component(want) in COMPONENTS and naive.component(want) not in mine


def _smaller_elsewhere(
    wants: Sequence[str], changed: Sequence[str], part: str, mine: dict[str, str], works: Works
) -> Iterator[str]:
    """Another part of which a smaller step works."""
    step = _steps(part, mine[naive.component(part)])
    for other in changed:
        if other != part:
            found = next((each for _key, each in alternatives(other) if works(_with(wants, {other: each}))), None)
            if found and _steps(other, found) < step:
                yield f"{found} is a smaller step than {mine[naive.component(part)]}"


def _nearer(wants: Sequence[str], parts: Sequence[str], mine: dict[str, str], works: Works) -> Iterator[str]:
    """A nearer value of a part that works, with those before it as they were proposed and those after it at anything."""
    fixed = list(wants)
    for place, part in enumerate(parts):
        taken = mine.get(naive.component(part), "")
        ordered = alternatives(part)
        key = next((key for key, each in ordered if same(each, taken)), None)
        if key is None:
            yield f"{taken} is no alternative of {part}"
            return
        smaller = [(other, each) for other, each in ordered if other < key]
        later = parts[place + 1 :]
        yield from _that_work(fixed, [smaller, *(alternatives(want) for want in later)], [part, *later], works)
        fixed = _with(fixed, {part: taken})


def same(one: str, other: str) -> bool:
    """Whether two wants are the same but for the number of signs of equality."""
    return re.sub("=+", "=", one) == re.sub("=+", "=", other)


def _that_work(
    wants: Sequence[str], several: Sequence[Sequence[tuple[Key, str]]], parts: Sequence[str], works: Works
) -> Iterator[str]:
    number = 1
    for each in several:
        number *= len(each)
    for chosen in itertools.islice(itertools.product(*several), 0, None, number // _MOST + 1):
        changes = dict(zip(parts, (each for _key, each in chosen), strict=True))
        if works(_with(wants, changes)):
            yield f"{sorted(changes.values())} works"
            return


def _with(wants: Sequence[str], changes: dict[str, str]) -> list[str]:
    return [changed for want in wants if (changed := changes.get(want, want))]


def _steps(want: str, other: str) -> int:
    """The minor versions between a want and another one."""
    key: int = next(each[0][1] for each in alternatives(want) if same(each[1], other))
    return key


# what a part may be changed to -------------------------------------------------------------------------


def alternatives(want: str) -> list[tuple[Key, str]]:
    """Everything else that may be asked for in place of a want, nearest first; "" leaves it out. The second of a key are the steps."""
    name = naive.component(want)
    spec = want[len(re.split(r"[=<>!~]", want)[0]) :]
    if name in ("pytorch", "tensorflow", "jax", "dali", "onnxruntime", "cupy", "vllm", "lmdb"):
        return sorted(_frameworks(name, want, spec))
    version = spec.lstrip("=")
    if not version:
        return []
    if name in ("driver-modules", "driver-source"):
        others = {"driver-modules": ("open", "proprietary"), "driver-source": ("nvidia", "distro")}[name]
        # Leaving the source out is as near as another one: it is what keeps a driver that is there.
        left_out = (1, 1, False, int(name == "driver-modules"))
        return [((1, 1, False, 0), f"{name}={each}") for each in others if each != version] + [(left_out, "")]
    if name == "driver":
        return _drivers(version)
    if name == "cuda":
        released = RELEASES if version.count(".") > 1 else list(MINORS)
        return sorted(_of(f"{name}=", [each for each in released if within(each, version)], released))
    released = {"python": _pythons(), "cudnn": CUDNN, "nccl": NCCL, "tensorrt": TENSORRT}[name]
    found = sorted(_of(f"{name}=", [each for each in released if within(each, version)], released))
    return found if name == "python" else [*found, ((9, len(released), False, 0), name)]


def _drivers(version: str) -> list[tuple[Key, str]]:
    branch = version.split(".", maxsplit=1)[0]
    known = [row["branch"] for row in naive.rows("driver_branches", "rows") if row["latest"] or row["branch"] == branch]
    assert branch in BRANCHES
    same_branch = [((0, 0, False, 0), f"driver={branch}")] if "." in version else []
    return [*same_branch, *sorted(_of("driver=", [branch], known))]


def _pythons() -> list[str]:
    tables = [
        (name, "releases") for name in ("pytorch", "tensorflow", "jax", "onnxruntime", "cupy", "vllm", "lmdb")
    ] + [("libraries", "dali")]
    found = {python for table in tables for row in naive.rows(*table) for python in row["python"]}
    return sorted(found, key=lambda each: int(each.split(".")[1]))


def _of(prefix: str, wished: Sequence[str], released: Sequence[str]) -> Iterator[tuple[Key, str]]:
    for each in released:
        if each not in wished:
            yield (1, *_away(each, wished, released)), prefix + each


def _away(version: str, wished: Sequence[str], released: Sequence[str]) -> Key:
    """The minor versions between, whether it is older, and the releases between."""
    place = released.index(version)
    if not wished:
        return len(released) - place, False, 0
    between = [
        (_minors(released, place, there), place < there, abs(place - there)) for there in map(released.index, wished)
    ]
    return min(between)


def _minors(released: Sequence[str], one: int, other: int) -> int:
    """The changes of the minor version on the way from one place to another."""
    first, last = sorted((one, other))
    names = [each.split(".")[:2] for each in released[first : last + 1]]
    return sum(left != right for left, right in itertools.pairwise(names))


def _frameworks(name: str, want: str, spec: str) -> Iterator[tuple[Key, str]]:
    extra = re.search(r"\[(.*)\]", want)
    operator = re.match(r"[=<>!~]*", spec).group()  # type: ignore[union-attr]  # the pattern matches the empty text
    version, _plus, local = spec[len(operator) :].partition("+")
    variant = local or (extra.group(1) if extra and name == "jax" else "")
    variants = _variants(name)
    wished = [each for each in variants if _answers(each, operator, version)]
    swaps = bool(variant) and variant != "cpu"
    if swaps and (version or name == "jax"):
        offered = sorted({each for one in wished for each in variants[one]} | {variant}, key=_number)
        for other in [each for each in offered if each != variant]:
            yield (1, 0, False, 0, *_away(other, [variant], offered)), _asked(name, operator, version, other)
        yield (1, 0, False, 0, 99), _asked(name, operator, version, "")
    for each in [each for each in variants if version and each not in wished]:
        away = _away(each, wished, list(variants))
        if not swaps or variant in variants[each]:
            yield (2 if swaps else 1, *away), _asked(name, "==", each, variant)
        for other in [*variants[each], ""] if swaps else ():
            if other != variant:
                yield (3, *away), _asked(name, "==", each, other)


def _answers(release: str, operator: str, version: str) -> bool:
    if operator in ("=", "=="):
        return within(release, version)
    return not operator or release in SpecifierSet(operator + version)


def _asked(name: str, operator: str, version: str, variant: str) -> str:
    if name in ("pytorch", "dali", "cupy"):
        return f"{name}{operator}{version}" + (f"+{variant}" if variant else "")
    return (f"{name}[{variant}]" if variant else name) + operator + version


def _number(variant: str) -> int:
    return int("0" + re.sub(r"\D", "", variant))


def _variants(name: str) -> dict[str, list[str]]:
    """The releases of a framework, oldest first, each with its variants."""
    if name in ("tensorflow", "vllm", "lmdb"):
        return {version: [] for version in {"tensorflow": TENSORFLOW, "vllm": VLLM, "lmdb": LMDB}[name]}
    if name == "onnxruntime":
        return {row["version"]: [] for row in ONNXRUNTIME if row["variant"] == "gpu"}
    if name == "jax":
        return {row["version"]: [each for each in row["extras"] if each in ("cuda12", "cuda13")] for row in JAX}
    if name in ("dali", "cupy"):
        return {row["version"]: list(row["wheels"]) for row in (DALI if name == "dali" else CUPY)}
    rows = naive.rows("pytorch", "variants")
    return {each: [row["variant"] for row in rows if within(each, row["release"])] for each in TORCH}
