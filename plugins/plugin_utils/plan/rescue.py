# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What helps if a workstation's screen stays black after the boot with a new driver: a few lines, to be read before it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

#: How the menu of GRUB is brought up where it does not show itself, by distribution.
_MENU = {
    "ubuntu": "hold Shift (BIOS) or press Esc once (UEFI) right after the firmware's picture",
    "debian": "the menu shows itself for some seconds",
}
_MENU_OF_FAMILY = {"redhat": "press Esc right after the firmware's picture"}
_GRUB = (
    "in the boot menu ({menu}) press e, go to the end of the line that begins with linux, add a word, press Ctrl-X: "
)
_SYSTEMD_BOOT = "in the boot menu (hold the space bar right after the firmware's picture) press e, add a word at the end, press Enter: "
_WORDS = (
    "nomodeset gives a plain picture without the NVIDIA driver; systemd.unit=multi-user.target gives a text console"
)


def needed(facts: Facts, *, local: bool) -> bool:
    """Whether somebody may look at a black screen: an NVIDIA card drives one, or one sits at a desktop."""
    display = facts["display"]
    return bool(display["nvidia_screens"]) or (local and bool(display["desktop"]))


def lines(facts: Facts, *, local: bool) -> list[str]:
    """The lines, most gentle way first; empty where no screen can go dark."""
    if not needed(facts, local=local):
        return []
    host = facts.get("hostname") or "the machine"
    return [
        f"the machine itself is most likely up: from another one, ssh to {host}, or press Ctrl-Alt-F3 for a text console",
        "there, or after the next line: gpuwright rollback -K, then sudo reboot",
        _menu(facts) + _WORDS,
    ]


def _menu(facts: Facts) -> str:
    system = facts["os"]
    # Red Hat's GRUB reads the same entry files as systemd-boot.
    if system["family"] != "redhat" and str(facts["kernel"].get("next_source") or "").startswith("boot loader entry"):
        return _SYSTEMD_BOOT
    other = _MENU_OF_FAMILY.get(system["family"], "hold Shift or press Esc right after the firmware's picture")
    return _GRUB.format(menu=_MENU.get(str(system["id"]), other))
