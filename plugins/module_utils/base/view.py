# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An observation as the judges read it, and what they say of what it does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, PciGpu

#: The remedy that is most often the right one.
UP = "run gpuwright up"


class View:
    """An observation, read by dotted paths; what is unknown keeps its reason."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.unknown: Mapping[str, str] = facts.get("unknown") or {}

    def get(self, path: str) -> Any:
        """The value at a path, ``None`` where any step of it is missing."""
        value: Any = self.facts
        for step in path.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(step)
        return value

    def why_unknown(self, path: str) -> str | None:
        """Why a fact is not known: the reason of the path itself, of what holds it, or of something inside it."""
        steps = path.split(".")
        for length in range(len(steps), 0, -1):
            reason = self.unknown.get(".".join(steps[:length]))
            if reason:
                return reason
        inside = [reason for key, reason in self.unknown.items() if key.startswith(path + ".")]
        return inside[0] if inside else None

    @property
    def gpus(self) -> list[PciGpu]:
        """The NVIDIA GPUs on the PCI bus."""
        return list(self.get("pci.gpus") or ())

    @property
    def environment(self) -> str:
        """bare, vm, container, wsl or jetson."""
        return str(self.get("environment.kind") or "bare")


def unknown(check_id: str, view: View, path: str, what: str, severity: str = "critical") -> Check:
    """An incomplete check with the observation's own reason."""
    reason = view.why_unknown(path) or "the observation does not tell"
    return checks.incomplete(check_id, f"it is not known {what}: {reason}", severity, remedy=remedy_for(reason))


def remedy_for(reason: str) -> str:
    """What to do where something could not be read."""
    lacking: Sequence[str] = ("permission", "root", "privilege")
    return (
        "run with become" if any(word in reason.lower() for word in lacking) else "see the reason, then observe again"
    )
