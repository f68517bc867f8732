"""All output of the command line. Results go to stdout, words about the work to stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

from gpuwright import paths
from gpuwright.errors import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
_BY_WORD = {
    "pass": "green",
    "done": "green",
    "fail": "red",
    "failed": "red",
    "unreachable": "red",
    "refused": "yellow",
    "incomplete": "yellow",
    "warn": "yellow",
    "skip": "dim",
    "drift": "red",
    "unknown": "yellow",
    "ok": "green",
}
_MIN_COLUMN = 16
# What is to be pasted into a ticket is no wider than this, on a terminal or not.
_PAGE = 100
# What is drawn where nobody looks at a terminal is not wrapped.
_ENDLESS = 1000

# A remote host chooses what stands in its messages: it must not move the cursor, colour our terminal or turn the direction of text. So
# whatever is written is cleaned where it is written, and our own colours are marks until then that nobody else can know.
_MARK = re.compile(f"\x02{os.urandom(8).hex()}:(\\d+)\x03")
_UNSEEN = "\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f{_UNSEEN}]")
_NOT_IN_JSON = re.compile(f"[{_UNSEEN}]")


def clean(text: object) -> str:
    """Text without control characters and colours; its lines stay."""
    return _CONTROL.sub("", _MARK.sub("", str(text)))


def one_line(text: object) -> str:
    """The same on one line: a name of a host must not look like another host's line."""
    return " ".join(clean(text).split("\n"))


def without_credentials(text: str) -> str:
    """Text without the credentials of addresses; whatever is printed or logged goes through here."""
    try:
        return str(redact().text(text))
    except Failed:
        return text  # the installation is broken: it has run nothing, and has to be able to say so


def redact() -> Any:
    """The collection's one module for it, which reports and nodes use too. Imported late: a broken installation has none."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.base import redact

    return redact


def out(text: str = "") -> None:
    """Print one text of the result to stdout."""
    _write(sys.stdout, text)


def note(text: str = "") -> None:
    """Print words about the work to stderr."""
    _write(sys.stderr, text)


def error(text: str, suggestions: Iterable[str] = ()) -> None:
    """Print a failure: one line, then what to do."""
    note(f"gpuwright: {colour('error', 'red', sys.stderr)}: {clean(text)}")
    for suggestion in suggestions:
        note(f"  hint: {clean(suggestion)}")


def json_document(document: Mapping[str, object]) -> None:
    """Print the one JSON document of `--json`."""
    text = json.dumps(redact().document(document), indent=2, sort_keys=False, ensure_ascii=False, default=str)
    # What json leaves as it is although a terminal acts on it; in JSON it stands in a string, or nowhere.
    sys.stdout.write(_NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def ask(question: str) -> bool:
    """Ask a yes-or-no question on stderr; anything but a clear yes is no."""
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def ask_secret(prompt: str) -> str:
    """Ask for a password without showing it; without a terminal it is one line of stdin."""
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\n")


def interactive() -> bool:
    """Whether a person sits at both ends: can read a plan and answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def colour(text: str, name: str, stream: TextIO | None = None) -> str:
    """Text in a colour where the stream is a terminal that wants one (https://no-color.org)."""
    return f"{_mark(_COLOURS[name])}{text}{_mark('0')}" if wants_colours(stream or sys.stdout) else text


def wants_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def screen() -> Console:
    """Stdout as a screen, for what moves or is drawn."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _ENDLESS, highlight=False)


def draw(drawing: RenderableType) -> None:
    """Draw on stdout what is made of :func:`styled` texts; without a terminal as plain lines."""
    shown = screen()
    if shown.is_terminal:
        shown.print(drawing)
        return
    with shown.capture() as captured:
        shown.print(drawing)
    out("\n".join(line.rstrip() for line in captured.get().splitlines()))


def styled(words: object, style: str = "", *, wraps: bool = True) -> Text:
    """One line for a screen, as clean as whatever is written by :func:`out`."""
    from rich.text import Text

    text = without_credentials(one_line(words))
    return Text(text, style=style, no_wrap=not wraps, overflow=None if wraps else "ellipsis")


def _mark(code: str) -> str:
    return _MARK.pattern.replace("(\\d+)", code)


def status(word: str, stream: TextIO | None = None) -> str:
    """A status word in its colour."""
    return colour(word, _BY_WORD[word], stream) if word in _BY_WORD else word


def page_width() -> int:
    """The columns of a page that a person may paste elsewhere: the terminal's, but not more than a page has."""
    return min(shutil.get_terminal_size().columns, _PAGE) if sys.stdout.isatty() else _PAGE


def table(rows: Sequence[Sequence[object]], headings: Sequence[str], indent: int = 2, width: int | None = None) -> str:
    """Rows under headings; the last column takes what is left of the width and is wrapped.

    Without a width it is the terminal's, and without a terminal nothing is wrapped: a log is searched, not admired.
    """
    cells = [[one_line("" if cell is None else cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headings), *cells]) for i in range(len(headings))]
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    lines: list[str] = []
    for number, row in enumerate([list(headings), *cells]):
        shown = _wrapped(row, widths, width, indent)
        lines.extend(colour(line, "bold") if number == 0 else _coloured(line, row) for line in shown)
    return "\n".join(lines)


def paragraph(text: str, indent: int = 2, bullet: str = "", width: int | None = None) -> str:
    """A sentence behind an optional bullet, wrapped at a width, or on a terminal at its own."""
    first = " " * indent + bullet
    if width is None and not sys.stdout.isatty():
        # Its further lines stand below its first one: none of them begins where another thing would.
        return first + clean(text).replace("\n", "\n" + " " * len(first))
    width = max(width or shutil.get_terminal_size().columns, 40)
    return textwrap.fill(
        clean(text), width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def size(count: float | None) -> str:
    """A number of bytes for people, in powers of ten as package managers and disks give it."""
    if count is None:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def names(items: Sequence[str], most: int = 6) -> str:
    """Names of hosts or packages, shortened in the middle of a fleet."""
    if len(items) <= most:
        return ", ".join(map(one_line, items))
    return f"{', '.join(map(one_line, items[:most]))} and {len(items) - most} more"


def _write(stream: TextIO, text: str) -> None:
    """The one place where text leaves: every part of it is clean, without credentials, and our marks become colours."""
    # Split by a pattern with one group, every other part is what the group held: the code of a colour.
    parts = _MARK.split(without_credentials(text))
    parts = [clean(part) if number % 2 == 0 else f"\x1b[{part}m" for number, part in enumerate(parts)]
    stream.write("".join(parts) + "\n")
    stream.flush()


def _wrapped(row: Sequence[str], widths: Sequence[int], width: int | None, indent: int) -> list[str]:
    head = " " * indent + "".join(f"{cell:<{widths[i]}}  " for i, cell in enumerate(row[:-1]))
    room = None if width is None else max(width - len(head), _MIN_COLUMN)
    last = [row[-1]] if room is None else textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
    return [(head + last[0]).rstrip(), *(" " * len(head) + more for more in last[1:])]


def _coloured(line: str, row: Sequence[str]) -> str:
    word = row[0]
    return line.replace(word, status(word), 1) if word in _BY_WORD else line


def counted(number: object, plural: str) -> str:
    """A number with what it is of: 1 card, 2 cards."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.base import words

    return words.count(number, plural)
