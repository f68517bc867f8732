"""What is counted is written by one helper, so that nobody reads "1 cards"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import words
from tests.unit.repo.test_layout import ROOT

#: What a person has many of or one; sizes and limits of files (bytes, characters, tokens) are never one.
NOUNS = (
    "cards|clients|days|entries|errors|exporters|faults|files|hosts|images|libraries|minutes|months|packages|pairs|processes|ranks|reboots|"
    "requirements|steps|targets|times|toolkits|ways|years"
)
COUNTED = re.compile(rf" (?:(?!has )[a-z]+ )?(?:{NOUNS})\b")
#: A limit has a name in capitals, and is more than one.
LIMIT = re.compile(r"(?:[a-z]\w*\.)?_?[A-Z_]+(?:\.days)?")
#: Where the number is never one, or the value is none.
NEVER_ONE = {
    "plugins/module_utils/programs/gpu_metrics.py: len(elements) cards",
    "plugins/module_utils/measure/fio_json.py: _told(job['total_err']) errors",
    "plugins/module_utils/measure/fio_meaning.py: images images",
    "plugins/module_utils/observe/container_images.py: len(names) images",
    "plugins/plugin_utils/gate/schema.py: most entries",
    "plugins/plugin_utils/health/fabric.py: len(best) hosts",
    "plugins/plugin_utils/health/fabric.py: len(every) hosts",
    "plugins/plugin_utils/report/loads.py: len(names) cards",
    "plugins/plugin_utils/resolver/resolve.py: days days",
    "plugins/plugin_utils/components/cuda/resolve/runfile.py: len(wanted) toolkits",
    "plugins/plugin_utils/components/nvidia_driver/resolve/fabric_manager.py: len(machine.cards) cards",
    "plugins/plugin_utils/components/nvidia_driver/resolve/package_set.py: wish.driver_set packages",
    "plugins/plugin_utils/components/nvidia_driver/resolve/packages.py: package_set packages",
    "plugins/plugin_utils/wish/settings.py: of hosts",
    "src/gpuwright/progress.py: len(hosts) hosts",
    "src/gpuwright/show.py: len(hosts) hosts",
    "src/gpuwright/show_cost.py: each['age_days'] days",
    "src/gpuwright/commands/size.py: named.count cards",
    "src/gpuwright/sizing/advice.py: cards cards",
    "src/gpuwright/sizing/advice.py: hosts hosts",
    "src/gpuwright/sizing/fitting.py: number cards",
    "src/gpuwright/sizing/hosting.py: ratio['high'] times",
}


def texts(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each value of an f-string whose next words count something, with these words."""
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for value, after in pairwise(parts):
            said = after.value if isinstance(after, ast.Constant) else None
            found = COUNTED.match(said) if isinstance(said, str) else None
            if found and isinstance(value, ast.FormattedValue):
                number = ast.unparse(value.value)
                if not LIMIT.fullmatch(number) and not number.startswith("words.count("):
                    yield number, found.group()


def test_a_number_and_its_plural_are_written_by_one_helper() -> None:
    files = [path for place in ("plugins", "src") for path in sorted((ROOT / place).rglob("*.py"))]
    found = {
        f"{path.relative_to(ROOT)}: {value}{after}"
        for path in files
        for value, after in texts(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert sorted(found - NEVER_ONE) == []
    assert sorted(NEVER_ONE - found) == []


def test_a_plural_without_the_helper_is_found() -> None:
    assert list(texts(ast.parse('f"{n} whole cards, {m} s"'))) == [("n", " whole cards")]
    assert list(texts(ast.parse("f\"{words.count(n, 'cards')} are\""))) == []


@pytest.mark.parametrize(
    ("number", "plural", "does", "text"),
    [
        (1, "cards", "", "1 card"),
        (0, "cards", "are", "0 cards are"),
        (1, "cards parted otherwise", "are", "1 card parted otherwise is"),
        (1, "computing processes", "were", "1 computing process was"),
        (1, "libraries", "have", "1 library has"),
        (2, "libraries", "have", "2 libraries have"),
        ("1", "years", "", "1 year"),
        (1, "s", "", "1 s"),
        (1, "GB/s", "", "1 GB/s"),
        (1, "status", "", "1 status"),
        (None, "hosts", "", "None hosts"),
    ],
)
def test_one_thing_is_no_plural(number: object, plural: str, does: str, text: str) -> None:
    assert words.count(number, plural, does) == text
