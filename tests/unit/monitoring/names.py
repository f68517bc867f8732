"""The metrics that a query of Prometheus names. No parser: promtool is that; here only what is no metric is taken out."""

from __future__ import annotations

import re

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NO_METRICS = (
    re.compile(r"\{[^}]*\}"),
    re.compile(r"\[[^\]]*\]"),
    re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"),
    re.compile(r"\b\d\w*"),
)
_WORDS = frozenset(("and", "or", "unless", "offset", "bool"))
_NAME = re.compile(r"(?<![\w:$.])[A-Za-z_:][\w:]*\b(?!\s*\()")


def metrics_of(query: str) -> set[str]:
    """The names of the metrics that a query reads."""
    bare = _TEXT.sub('""', query)
    for pattern in _NO_METRICS:
        bare = pattern.sub(" ", bare)
    return set(_NAME.findall(bare)) - _WORDS
