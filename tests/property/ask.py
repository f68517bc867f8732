"""Answer questions in a process of its own: a JSON list on standard input, one answer a line on standard output."""

from __future__ import annotations

import json
import sys

from tests.property.machines import Question, answer_to


def main() -> None:
    """Read, answer, print."""
    for each in json.load(sys.stdin):
        print(json.dumps(answer_to(Question(each["machine"], tuple(each["wants"]), tuple(each["lines"])))))


if __name__ == "__main__":
    main()
