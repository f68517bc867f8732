#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/matrix.md, what fits together, from the rules as the resolver reads them; with --check only compare.

What fits is asked of the resolver's own functions: the page cannot say something else than an answer does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "matrix.md"
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version  # noqa: E402 - the path comes first
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.resolve import FRAMEWORKS  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver.resolve import branch  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import cards, targets  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Log  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import Card  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules  # noqa: E402
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import FrameworkWish  # noqa: E402

Rules = dict[str, Any]
Row = dict[str, Any]

TITLES = {name: each.ABOUT.title for name, each in FRAMEWORKS.items() if each.ABOUT.listed}
FORMS = {None: "For a slot or a board of its own", "laptop": "Laptop", "embedded": "Embedded"}
NONE = "–"
FLOORS = """All of a toolkit needs the driver of the second column; without what is new in its minor version it runs from the
third on. Any newer driver runs it too."""


def build(rules: Rules) -> str:
    """Return the page."""
    parts = [
        intro(rules),
        card_lists(rules),
        branches(rules),
        toolkits(rules),
        cudnn(rules),
        *(framework(name, rules) for name in TITLES),
        systems(rules),
    ]
    return "\n\n".join(parts) + "\n"


def intro(rules: Rules) -> str:
    names = ("Cards", "Driver branches", "CUDA", "cuDNN", *TITLES.values(), "Systems")
    links = " · ".join(f"[{name}](#{name.lower().replace(' ', '-')})" for name in names)
    return f"""# The matrix

What fits together, generated from `compat/` by `make rules`: rules of {rules["generated"]}. Each row's source stands in
`compat/`, next to the row. For one card, system and wish ask `gpuwright resolve`; for one card `gpuwright gpus NAME`. How a
choice is made among what fits: [decisions](decisions.md).

{links}

*Capability* is NVIDIA's compute capability. A *?* marks what is not confirmed, a {NONE} what there is not, or is not known."""


# cards ------------------------------------------------------------------------------------------------


def card_lists(rules: Rules) -> str:
    rows = rules["gpus"]["rows"]
    text = f"## Cards\n\n{len(rows)} cards, each with its chip and PCI ids of vendor 10de."
    for architecture in by_capability(rules):
        own = [row for row in rows if row["architecture"] == architecture]
        capabilities = ", ".join(sorted({row["compute_capability"] for row in own}, key=numeric_version.key))
        title = f"<b>{architecture}</b>, capability {capabilities}: {len(own)} card{'s' if len(own) > 1 else ''}"
        text += "\n\n" + folded(title, "\n\n".join(card_groups(own)))
    return text


def by_capability(rules: Rules) -> list[str]:
    """Return the architectures, newest first."""
    rows = rules["gpus"]["architectures"]
    return [
        row["architecture"] for row in sorted(rows, key=lambda row: numeric_version.key(row["compute_capability"]))
    ][::-1]


def card_groups(rows: Sequence[Row]) -> Iterator[str]:
    for form, title in FORMS.items():
        own = [row for row in rows if row.get("form") == form]
        if own:
            yield f"{title}:\n\n" + "\n".join(card_line(row) for row in own)


def card_line(row: Row) -> str:
    memory = f", {row['memory_gb']} GB" if row["memory_gb"] else ""
    ids = f" `{' '.join(row['pci'])}`" if row["pci"] else ""
    return f"- {row['name']}{doubt(row)} ({row['chip']}{memory}){ids}"


# drivers ----------------------------------------------------------------------------------------------


def branches(rules: Rules) -> str:
    today = date.fromisoformat(rules["generated"])
    rows = list(reversed(rules["driver_branches"]["rows"]))
    ended = [row for row in rows if branch.lifetime(row, today) == "ended" or not row["latest"]]
    living = [row for row in rows if row not in ended]
    headings = ("Branch", "Type", "End of life", "CUDA", "Architectures", "Modules")
    text = "## Driver branches\n\n" + table(headings, (branch_line(row, rules) for row in living))
    text += "\n\n" + folded("Branches that have ended", table(headings, (branch_line(row, rules) for row in ended)))
    skipped = [f"- {name}: not by {', '.join(names)}" for name, names in not_monotone(rules)]
    return text + (
        "\n\nSupport is not monotone. These cards are driven by an earlier branch and missing in a later one:\n\n"
        + folded(f"{len(skipped)} cards", "\n".join(skipped))
    )


def branch_line(row: Row, rules: Rules) -> tuple[str, ...]:
    driven = [name for name in reversed(by_capability(rules)) if drives(row, name, rules)]
    span = NONE if not driven else driven[0] if len(driven) == 1 else f"{driven[0]} to {driven[-1]}"
    number = f"{row['branch']}{doubt(row)}"
    return number, row["type"], row["eol"] or NONE, f"up to {row['max_cuda']}", span, ", ".join(row["modules"])


def drives(row: Row, architecture: str, rules: Rules) -> bool:
    """Say whether a branch drives any card of an architecture."""
    own = (each for each in rules["gpus"]["rows"] if each["architecture"] == architecture)
    return any(cards.served(cards.from_row(each), row, rules) for each in own)


def not_monotone(rules: Rules) -> Iterator[tuple[str, list[str]]]:
    for row in rules["gpus"]["rows"]:
        served = [cards.served(cards.from_row(row), each, rules) for each in rules["driver_branches"]["rows"]]
        if True in served:
            first, last = served.index(True), len(served) - served[::-1].index(True)
            names = [each["branch"] for each in rules["driver_branches"]["rows"]]
            missing = [names[at] for at in range(first, last) if not served[at]]
            if missing:
                yield row["name"], missing


# CUDA -------------------------------------------------------------------------------------------------


def toolkits(rules: Rules) -> str:
    rows: dict[str, list[Row]] = {}
    for row in rules["cuda"]["rows"]:
        rows.setdefault(row["cuda"], []).append(row)
    lines = (toolkit_line(cuda, releases, rules) for cuda, releases in reversed(rows.items()))
    spans = ((each, *architecture_and_span(each, rules)) for each in capabilities(rules, jetson=True))
    compat = (forward_line(row) for row in rules["cuda"]["forward"])
    parts = (
        "## CUDA",
        FLOORS,
        table(("CUDA", "All of it from", "Runs from", "Capabilities", "Newest gcc"), lines),
        "The same by card:",
        table(("Capability", "Architecture", "CUDA"), spans),
        "Forward compatibility: with the package `cuda-compat` an older driver runs a newer CUDA, on these cards only.",
        table(("Driver", "CUDA", "Cards", "Supported"), compat),
    )
    return "\n\n".join(parts)


def toolkit_line(cuda: str, releases: Sequence[Row], rules: Rules) -> tuple[str, ...]:
    native = [row["native_driver"] for row in releases if row["native_driver"]]
    floors = [row["minor_version_driver"] for row in releases if row["minor_version_driver"]]
    row = targets.toolkit_targets(cuda, rules)
    known = [each for each in capabilities(rules, jetson=True) if row and each in row["targets"]]
    name = cuda if any(each["confirmed"] for each in releases) else f"{cuda}?"
    ends = (min(builds, key=numeric_version.key, default=NONE) for builds in (native, floors))
    gcc = next((each["gcc"] for each in rules["cuda"]["compilers"] if each["cuda"] == cuda), None)
    return name, *ends, span(known, capabilities(rules, jetson=True)), gcc or NONE


def forward_line(row: Row) -> tuple[str, ...]:
    span_of = f"{row['first']} to {row['last']}" if row["first"] != row["last"] else row["first"]
    return f"{row['branch']}{doubt(row)}", span_of, ", ".join(row["classes"]), "yes" if row["supported"] else "no"


def architecture_and_span(capability: str, rules: Rules) -> tuple[str, str]:
    rows = [row for row in rules["gpus"]["rows"] if row["compute_capability"] == capability]
    every = [row["cuda"] for row in rules["cuda"]["targets"]]
    own = [row["cuda"] for row in rules["cuda"]["targets"] if capability in row["targets"]]
    return ", ".join(dict.fromkeys(row["architecture"] for row in rows)), span(own, every)


def cudnn(rules: Rules) -> str:
    lines = (cudnn_line(row) for row in reversed(rules["cudnn"]["rows"]))
    return "## cuDNN\n\n" + table(("cuDNN", "CUDA", "Capabilities"), lines)


def cudnn_line(row: Row) -> tuple[str, ...]:
    first, last = row["first"], row["last"]
    highest = f" to {row['max_compute_capability']}" if row["max_compute_capability"] else " on"
    name = first if first == last else f"{first} to {last}"
    return f"{name}{doubt(row)}", ", ".join(row["cuda_majors"]), f"from {row['min_compute_capability']}{highest}"


# frameworks -------------------------------------------------------------------------------------------


def framework(name: str, rules: Rules) -> str:
    """Return the releases of a framework with what each variant runs on; neighbours that do not differ are one row."""
    runs: list[tuple[list[str], tuple[str, ...]]] = []
    open_runs: dict[str, tuple[list[str], tuple[str, ...]]] = {}
    for offers in FRAMEWORKS[name].offers(FrameworkWish(name), rules, cpu=False):
        lines = {line[1]: line for line in offer_lines(name, offers, rules)}
        # A variant that this release lacks ends its run: what follows is not the same without a gap.
        open_runs = {variant: run for variant, run in open_runs.items() if variant in lines}
        for variant, (release, *rest) in lines.items():
            if variant not in open_runs or open_runs[variant][1] != tuple(rest):
                open_runs[variant] = ([], tuple(rest))
                runs.append(open_runs[variant])
            open_runs[variant][0].append(release)
    rows = (
        (releases[0] if len(releases) == 1 else f"{releases[-1]} to {releases[0]}", *rest) for releases, rest in runs
    )
    text = f"## {TITLES[name]}\n\nCapabilities that a variant has code for, its cuDNN included; on Arm only where that differs.\n\n"
    return text + table(("Release", "Variant", "CUDA", "Python", "Capabilities", "On Arm"), rows)


def offer_lines(name: str, offers: Iterable[Any], rules: Rules) -> Iterator[tuple[str, ...]]:
    log, maker = Log(rules), FRAMEWORKS[name]
    every = capabilities(rules)
    for offer in offers:
        runs = {
            arch: span(
                [each for each in every if not maker.card_reasons(offer, [sample(each, rules)], arch, log)], every
            )
            for arch in ("x86_64", "aarch64")
        }
        arm = "" if runs["aarch64"] == runs["x86_64"] else runs["aarch64"]
        release = offer.version if offer.confirmed else f"{offer.version}?"
        yield release, offer.variant, offer.cuda or NONE, span(offer.pythons, pythons(rules)), runs["x86_64"], arm


def sample(capability: str, rules: Rules) -> Card:
    """Return a card of a compute capability."""
    return cards.from_row(next(row for row in rules["gpus"]["rows"] if row["compute_capability"] == capability))


def pythons(rules: Rules) -> list[str]:
    tables = (rules[name]["releases"] for name in TITLES)
    return sorted({each for rows in tables for row in rows for each in row["python"]}, key=numeric_version.key)


def capabilities(rules: Rules, *, jetson: bool = False) -> list[str]:
    """Return the compute capabilities of the cards that are confirmed, lowest first; of Jetson boards only if asked for."""
    rows = [row for row in rules["gpus"]["rows"] if row["confirmed"]]
    found = {row["compute_capability"] for row in rows if jetson or not row["name"].startswith("Jetson")}
    return sorted(found, key=numeric_version.key)


# systems ----------------------------------------------------------------------------------------------


def systems(rules: Rules) -> str:
    lines = [system_line(row, rules) for row in rules["systems"]["rows"]]
    headings = ("System", "Own drivers", "NVIDIA's drivers and CUDA", "Python", "gcc, glibc", "Support ends")
    text = "## Systems\n\nWhat the repositories carry. *Signed* modules need no key of your own under Secure Boot.\n\n"
    text += table(headings, lines)
    doubts = [f"- {row['text']}" for row in rules["systems"]["doubts"]]
    return text + ("\n\nReports, not confirmed:\n\n" + "\n".join(doubts) if doubts else "")


def system_line(row: Row, rules: Rules) -> tuple[str, ...]:
    own = [each for each in rules["systems"]["distro_drivers"] if each["os"] == row["os"]]
    signed = " (signed)" if any(each["prebuilt"] for each in own) else ""
    drivers = ", ".join(each["branch"] for each in own) + signed if own else NONE
    first, cuda = row["nvidia_first_branch"], row["cuda_first"]
    compiler = f"{row['gcc']}, {row['glibc']}"
    return (
        f"{row['os']}{doubt(row)}",
        drivers,
        f"from {first}, from {cuda}",
        row["python"],
        compiler,
        row["support_end"],
    )


# markdown ---------------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def span(found: Sequence[str], every: Sequence[str]) -> str:
    """Return a list by its runs within an order: 5.0 to 9.0, 12.0."""
    runs: list[list[str]] = []
    for at, each in enumerate(every):
        if each not in found:
            continue
        if runs and at and every[at - 1] == runs[-1][-1]:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs) or NONE


def doubt(row: Row) -> str:
    return "" if row["confirmed"] else "?"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the page is out of date")
    options = parser.parse_args(arguments)
    text = build(load_rules())
    if options.check:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(
            f"{TARGET.relative_to(ROOT)} does not match the rules: run 'make rules' and commit the result\n"
        )
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
