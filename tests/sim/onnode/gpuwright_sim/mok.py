"""Machine owner keys of the simulated firmware, and the stand-in mokutil.

What shim keeps lies in /etc/gpuwright-sim/mok: `enrolled.esl`, and `new.der` after `mokutil --import`. At the next boot the key is
enrolled where somebody was at the console (the file `console` is there); else shim's menu times out and the request is gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import node, tree

PLACE = node.CONFIG / "mok"
_ENROLLED, _NEW, _CONSOLE = PLACE / "enrolled.esl", PLACE / "new.der", PLACE / "console"
_ATTRIBUTES = b"\x07\x00\x00\x00"
_VENDOR = b"simulated vendor certificate"


def main(arguments: list[str]) -> int:
    """The exit status of `mokutil ARGUMENTS`; a password is read from standard input and thrown away."""
    if arguments[:1] == ["--import"]:
        for _ in range(2):
            sys.stdin.readline()
        PLACE.mkdir(exist_ok=True)
        _NEW.write_bytes(Path(arguments[1]).read_bytes())
        show(node.VIEW)
        return 0
    if arguments[:1] == ["--test-key"]:
        key = Path(arguments[1]).read_bytes()
        state = "is already enrolled" if accepts(key) else "is not enrolled"
        print(f"{arguments[1]} {state}")
        return 1 if accepts(key) else 0
    if arguments[:1] == ["--sb-state"]:
        print("SecureBoot enabled" if node.scenario().get("secure_boot") else "SecureBoot disabled")
        return 0
    print("Unrecognized option", file=sys.stderr)
    return 255


def accepts(key: bytes) -> bool:
    """Whether the firmware accepts what this certificate's key signed."""
    return _ENROLLED.exists() and key in _ENROLLED.read_bytes()


def boot() -> None:
    """shim's menu: what waits is enrolled by somebody at the console, or dropped."""
    if _NEW.exists():
        if _CONSOLE.exists():
            with _ENROLLED.open("ab") as stream:
                stream.write(_NEW.read_bytes())
        _NEW.unlink()
    _CONSOLE.unlink(missing_ok=True)


def show(base: Path) -> None:
    """The EFI variables below BASE."""
    if not node.scenario().get("secure_boot"):
        return
    enrolled = _ENROLLED.read_bytes() if _ENROLLED.exists() else b""
    tree.write_efi_variable(base, "MokListRT", _ATTRIBUTES + _VENDOR + enrolled)
    tree.write_efi_variable(base, "MokNew", _ATTRIBUTES + _NEW.read_bytes() if _NEW.exists() else None)
