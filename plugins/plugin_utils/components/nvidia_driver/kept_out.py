# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What somebody set that keeps NVIDIA's module from being loaded: a switch of hybrid graphics, a rescue line of a black screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, KeptOut

_CMDLINE = "/proc/cmdline"
# Who writes a file of modprobe anew at each start, by a word of its name: what comes before.
_WRITERS = {
    "supergfxd": "supergfxctl --mode Hybrid, or systemctl disable --now supergfxd, which writes that file at each start; then ",
    "optimus-manager": "optimus-manager --switch hybrid, which writes that file; then ",
    "bumblebee": "remove bumblebee, which brought that file; then ",
}
_REMEDY = (
    "take it out{where}; a switch of hybrid graphics (prime-select, envycontrol) writes such lines, and takes them back by its own command."
    " Then make the initramfs again (update-initramfs -u, or dracut --force) and reboot"
)


def told(kept: Sequence[KeptOut]) -> dict[str, str]:
    """The reason, the action and the remedy of a check."""
    return {"reason": f"the module is kept out: {named(kept)}", "action": "configure", "remedy": remedy(kept)}


def named(kept: Sequence[KeptOut]) -> str:
    """Each line with its file."""
    return "; ".join(f"{each['file']}: {each['line']}" for each in kept)


def remedy(kept: Sequence[KeptOut]) -> str:
    """What a person does."""
    of_boot = any(each["file"] == _CMDLINE for each in kept)
    writers = "".join(text for name, text in _WRITERS.items() if any(name in each["file"] for each in kept))
    return writers + _REMEDY.format(
        where=" (of the command line: what was typed in the boot menu is gone with the next boot, else /etc/default/grub has it)"
        if of_boot
        else ""
    )


def for_good(facts: Facts) -> list[KeptOut]:
    """Those by which nobody can load it, not by its name either, after the next boot too. A blacklist keeps it from being loaded by itself
    alone; a word of the command line may be of this boot alone, as it is after a rescue (docs/rescue.md).
    """
    kept = facts["kernel"].get("kept_out", ())
    return [each for each in kept if each["file"] != _CMDLINE and not each["line"].startswith("blacklist ")]
