# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold a real answer of `nvidia-smi -q -x` against that of the stand-in for the nearest card: elements and shapes of values."""

from __future__ import annotations

import contextlib
import copy
import difflib
import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.smi import document as smi
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError
from tests.sim import scenario, settings
from tests.sim.onnode.gpuwright_sim import smi as simulated

from .running import Finding

Shapes = dict[str, set[str]]

_NUMBER = re.compile(r"-?\d+(\.\d+)?(\s*\S{1,8})?")
#: What is put in place of a value, to see whether the reader looks at it.
_OTHERS = ("424242", "424242 MiB", "Enabled", "Yes", "Active", "Other")
#: What is there as often as something runs or is partitioned.
_LISTS = ("gpu/processes", "gpu/supported_clocks", "gpu/mig_devices", "gpu/accounted_processes")


def shape(text: str | None) -> str:
    """The shape of a value: `# MiB`, `0x#`, `N/A`, `nothing`, `word` or `words`."""
    plain = smi.plain(text)
    if not plain:
        return "nothing"
    if smi.is_error(plain):
        return f"error: {plain}"
    if smi.is_not_applicable(plain):
        return plain
    if re.fullmatch(r"0x[0-9a-fA-F]+", plain):
        return "0x#"
    if _NUMBER.fullmatch(plain):
        return re.sub(r"-?\d+(\.\d+)?", "#", plain, count=1)
    return "words" if " " in plain else "word"


def leaves(root: ET.Element) -> Iterator[tuple[str, ET.Element]]:
    """Each element without children, with its path from the root."""

    def below(element: ET.Element, path: str) -> Iterator[tuple[str, ET.Element]]:
        for child in element:
            here = f"{path}/{child.tag}" if path else child.tag
            if len(child):
                yield from below(child, here)
            else:
                yield here, child

    return below(root, "")


def shapes(root: ET.Element) -> Shapes:
    """The shapes of the values at each path."""
    found: Shapes = defaultdict(set)
    for path, element in leaves(root):
        found[path].add(shape(element.text))
    return found


def document(text: str) -> ET.Element:
    """The XML of an answer, with the first card alone. Raises ParseError where there is none, or it is no document."""
    start, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    root = ET.fromstring(  # noqa: S314 - written by the program that this is all about
        text[start : end + len("</nvidia_smi_log>")] if start >= 0 else text
    )
    for gpu in root.findall("gpu")[1:]:
        root.remove(gpu)
    return root


def is_read(root: ET.Element, path: str) -> bool:
    """Whether our reader looks at an element: its answer is another one when something else stands there."""
    before = _answer(root)
    for other in (None, *_OTHERS):
        changed = copy.deepcopy(root)
        for element in changed.findall(path):
            element.text = other
        if _answer(changed) != before:
            return True
    return False


def _answer(root: ET.Element) -> Any:
    with contextlib.suppress(SmiError):
        return smi.parse_xml(ET.tostring(root, encoding="unicode"))
    return None


def nearest(name: str) -> str:
    """The simulated card whose name is the most like that of a real one."""
    cards = yaml.safe_load((settings.HERE / "hardware.yaml").read_text())["cards"]
    return max(cards, key=lambda card: difflib.SequenceMatcher(None, cards[card]["name"], name).ratio())


def stand_in(card: str, driver: str, fabric: str | None) -> str:
    """What the stand-in says of a card with this driver. `fabric`: the state of its NVSwitch fabric, None where there is none."""
    given = scenario.expand({"gpus": [{"card": card}]}, "card")
    return simulated.xml(given["gpus"], driver, {}, "Thu Jan  1 00:00:00 1970", fabric)


def compare(real: str) -> list[Finding]:
    """What is other in a real answer: elements that the stand-in lacks, that the real one lacks, and values of another shape."""
    root = document(real)
    card = nearest(root.findtext("gpu/product_name") or "")
    fabric = smi.plain(root.findtext("gpu/fabric/state"))
    said = stand_in(card, root.findtext("driver_version") or "0", None if smi.is_not_applicable(fabric) else fabric)
    ours = shapes(document(said))
    theirs = shapes(root)
    found = [Finding("note", f"held against the stand-in's {card}; `read`: our reader looks at this element")]

    def differs(path: str, text: str) -> None:
        used = " (read)" if path in theirs and is_read(root, path) else ""
        found.append(Finding("differs", f"{path}{used}: {text}"))

    for path in sorted(theirs.keys() - ours.keys()):
        if not path.startswith(_LISTS):
            differs(path, f"the stand-in has no such element; here it is {_words(theirs[path])}")
    for path in sorted(ours.keys() - theirs.keys()):
        if not path.startswith(_LISTS):
            differs(path, f"only the stand-in has it, as {_words(ours[path])}")
    for path in sorted(ours.keys() & theirs.keys()):
        if theirs[path] - ours[path]:
            differs(path, f"it is {_words(theirs[path])}, with the stand-in {_words(ours[path])}")
    return found


def _words(found: set[str]) -> str:
    return " or ".join(f"`{each}`" for each in sorted(found))


if __name__ == "__main__":
    for each in compare(Path(sys.argv[1]).read_text(errors="replace")):
        print(f"{each.kind}: {each.text}")
