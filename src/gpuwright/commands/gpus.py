"""`gpuwright gpus`: what the rules know of a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwright import console, exits, knowledge

if TYPE_CHECKING:
    import argparse

_HEADINGS = ("card", "architecture", "capability", "memory", "modules", "CUDA", "PCI id", "driver branches")


def run(args: argparse.Namespace) -> int:
    """Show the cards whose name or PCI id matches."""
    found = knowledge.find_cards(args.pattern)
    if args.json:
        console.json_document({"ok": True, "gpus": found})
    else:
        console.out(console.table([_row(card) for card in found], _HEADINGS, indent=0))
    return exits.DONE


def _row(card: dict[str, Any]) -> tuple[str, ...]:
    memory = card.get("memory_gb")
    return (
        str(card["name"]),
        str(card.get("architecture") or "-"),
        str(card.get("compute_capability") or "-"),
        f"{_words(memory)} GB" if memory else "-",
        _words(card.get("modules")),
        _words(card.get("cuda"), " to "),
        _words(card.get("pci")),
        _words(card.get("branches")),
    )


def _words(value: object, between: str = " ") -> str:
    if isinstance(value, list | tuple):
        return between.join(str(item) for item in value) or "-"
    return "-" if value is None else str(value)
