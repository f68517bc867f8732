# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""dnf.conf and the files of repositories, read as dnf reads them, and what it cannot read of them.

dnf does nothing at all over a dnf.conf that it cannot read, over bytes that are not UTF-8, and over an enabled repository that names no
address. It does without a file of repositories, or a repository, that it cannot read otherwise, and hardly says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import HidingRule

MAIN = "main"
_SETTINGS = "/etc/dnf/dnf.conf"
_REPOSITORIES = "/etc/yum.repos.d/*.repo"
_FACT = "packages.sources"
_LONGEST = 1 << 16
"""Characters of a file that are read; the longest of a distribution has some thousand."""
# With variables, which dnf puts values in place of.
_ID = re.compile(r"[A-Za-z0-9._:${}-]+\Z")
_TRUE, _FALSE = ("1", "yes", "true", "on"), ("0", "no", "false", "off")
_FLAGS = ("enabled", "gpgcheck", "repo_gpgcheck", "skip_if_unavailable")
_ADDRESSES = ("baseurl", "metalink", "mirrorlist")
# Two names of one option, and what leaves all others out.
_EXCLUDES, _INCLUDES = ("exclude", "excludepkgs"), "includepkgs"
_LONGEST_ENTRY = 200
_BLANK = " \t\r"


class Section(NamedTuple):
    """A part of a file. `options`: the value of each name; `lines`: the line that each stands in."""

    name: str
    line: int
    options: dict[str, str]
    lines: dict[str, int]


def texts(host: Host) -> Iterator[tuple[str, str]]:
    """Each file of repositories that dnf reads, with its text; one beyond measure is unknown."""
    for path in host.glob(_REPOSITORIES, _FACT):
        text = host.read(path, _FACT) or ""
        if len(text) > _LONGEST:
            host.unknown(_FACT, f"{path} is longer than {_LONGEST} characters")
        else:
            yield path, text


def parse(text: str) -> tuple[list[Section], tuple[int, str] | None]:
    """The sections of a file up to the first line that dnf cannot read, and that line with the reason. Source: libdnf's reader."""
    sections: dict[str, Section] = {}
    here: Section | None = None
    last = None  # the option that an indented line goes on with
    for number, line in enumerate(text.replace("\ufeff", "", 1).split("\n"), 1):
        entry = line.strip(_BLANK)
        if line.startswith(("#", ";")) or not entry:
            continue
        if "\ufffd" in line:
            return list(sections.values()), (number, "it is not UTF-8")
        if entry.startswith("["):
            why, last = _unlike_a_header(entry), None
            name = entry[1:].partition("]")[0]
            # One that was there before goes on.
            here = sections.setdefault(name, Section(name, number, {}, {})) if why is None else here
        elif here is None:
            why = "it belongs to no [section]"
        elif line[0] in _BLANK:
            why = None if last else "it is indented, and there is no option that it could go on with"
            if last:
                here.options[last] += "\n" + entry
        else:
            name, equals, value = line.partition("=")
            last = name.rstrip(_BLANK)
            why = None if equals and last else "it is not OPTION=VALUE"
            here.options[last] = value.strip(_BLANK)
            here.lines[last] = number
        if why:
            return list(sections.values()), (number, why)
    return list(sections.values()), None


def _unlike_a_header(entry: str) -> str | None:
    """Why a line that begins with a bracket is no header; None where it is one."""
    end = entry.find("]")
    if end < 0:
        return "it has no ]"
    if end == 1:
        return "it names no repository"
    behind = entry[end + 1 :].strip(_BLANK)
    # dnf does not look at the very last character.
    return "there is text behind the ]" if len(behind) > 1 and not behind.startswith(("#", ";")) else None


def shown(text: str) -> str:
    """What stands in a file, fit for a sentence."""
    return "".join(character if character.isprintable() else "?" for character in text[:60])


def is_repository(section: Section) -> bool:
    """Whether dnf takes a section for a repository."""
    return section.name != MAIN and _ID.match(section.name) is not None


def addresses(section: Section) -> list[str]:
    """Where a repository lies."""
    return next((section.options[name] for name in _ADDRESSES if section.options.get(name)), "").split()


def enabled(section: Section) -> bool:
    """Whether a repository is switched on; dnf takes it so where it cannot read what is said of that."""
    return section.options.get("enabled", "1").lower() not in _FALSE


def faults(text: str) -> list[tuple[int, str]]:
    """What dnf cannot read of a file: numbers of lines, each with the reason."""
    sections, fault = parse(text)
    if fault:
        return [fault]
    found = []
    for section in sections:
        for name in _FLAGS:
            value = section.options.get(name, "1").lower()
            if value not in _TRUE + _FALSE and "$" not in value:
                found.append((section.lines[name], f"{name}={shown(value)} is neither yes nor no"))
        if section.name == MAIN:
            continue
        if not is_repository(section):
            found.append((section.line, f"[{shown(section.name)}] is no id of a repository"))
        elif enabled(section) and not addresses(section):
            found.append((section.line, f"[{shown(section.name)}] names no baseurl, metalink or mirrorlist"))
    return found


def hides(host: Host) -> list[HidingRule]:
    """The lines by which dnf keeps packages out: of its settings, and of each repository that is switched on."""
    found: list[HidingRule] = []
    for path, text in _all(host):
        for section in parse(text)[0]:
            if section.name != MAIN and not (is_repository(section) and enabled(section)):
                continue
            for name, value in section.options.items():
                if name not in (*_EXCLUDES, _INCLUDES):
                    continue
                patterns = re.split(r"[,\s]+", value.strip(", \n\t"))
                where = "" if section.name == MAIN else f"[{section.name}] "
                found.append(
                    {
                        "file": path,
                        "entry": f"{where}{name}={' '.join(patterns)}"[:_LONGEST_ENTRY],
                        "packages": ["*"] if name == _INCLUDES else patterns,
                        "except": patterns if name == _INCLUDES else [],
                        "source": None if section.name == MAIN else section.name,
                    }
                )
    return found


def _all(host: Host) -> list[tuple[str, str]]:
    """The settings and the files of repositories, each with its text."""
    return [(_SETTINGS, (host.read(_SETTINGS) or "")[:_LONGEST]), *texts(host)]


def broken(host: Host) -> list[str]:
    """What dnf cannot read of its settings and sources, as sentences."""
    return [f"{path}, line {number}: {why}" for path, text in _all(host) for number, why in faults(text)]
