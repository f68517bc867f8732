"""Builders of small trees that look like a machine to an observer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result

Runner = Callable[..., Result]


def answer(out: str = "", rc: int = 0, err: str = "") -> Result:
    return Result(rc, out, err, 0.01, None)


class FakePrograms:
    """Answers by the first word that a program's command line contains; remembers what was run."""

    def __init__(self, answers: Mapping[str, Result] | None = None) -> None:
        self.answers = dict(answers or {})
        self.calls: list[list[str]] = []

    def __call__(self, argv: Sequence[str], timeout: float = 0, env: Any = None, stdin: Any = None) -> Result:
        self.calls.append(list(argv))
        for word, result in self.answers.items():
            if word in " ".join(argv):
                return result
        return Result(None, "", "", 0.0, f"{argv[0]} could not be run: No such file or directory")


class Tree:
    """A directory that is filled like the root of a machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, text: str | bytes = "", mode: int | None = None) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        if mode is not None:
            target.chmod(mode)
        return target

    def directory(self, path: str) -> Path:
        target = self.root / path.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        return target

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def program(self, path: str) -> None:
        self.file(path, "#!/bin/sh\n", 0o755)

    def packages(
        self, installed: Mapping[str, str], states: Mapping[str, str] | None = None, vendor: str = "Debian"
    ) -> None:
        """dpkg's status; `states` for packages that are not "install ok installed"."""
        stanzas = [
            f"Package: {name}\nStatus: {(states or {}).get(name, 'install ok installed')}\nMaintainer: {vendor}\n"
            f"Architecture: amd64\nVersion: {version}\nDescription: made up\n Version: not this one\n"
            for name, version in installed.items()
        ]
        self.file("/var/lib/dpkg/arch", "amd64\n")
        self.file("/var/lib/dpkg/status", "\n".join(stanzas))

    def pci(
        self, address: str, vendor: str, device: str, device_class: str, driver: str | None = None, **more: str
    ) -> None:
        base = f"/sys/bus/pci/devices/{address}"
        for name, value in {"vendor": vendor, "device": device, "class": device_class, **more}.items():
            self.file(f"{base}/{name}", value + "\n")
        if driver:
            self.directory(f"/sys/bus/pci/drivers/{driver}")
            self.link(f"{base}/driver", f"../../drivers/{driver}")

    def h100(self, address: str = "0000:3b:00.0", driver: str | None = "nvidia") -> None:
        self.pci(
            address,
            "0x10de",
            "0x2330",
            "0x030200",
            driver,
            revision="0xa1",
        )

    def host(self, runner: Runner | None = None, **options: Any) -> Host:
        return Host(root=str(self.root), runner=runner or FakePrograms(), euid=options.pop("euid", 0), **options)
