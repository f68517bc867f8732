# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Screens: whether the machine is a desktop, which connectors of NVIDIA cards drive a screen, who sits there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe.pci import bus_id

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Display, PciGpu

_DRM = "/sys/class/drm/"


#: How the reason begins where it is only the screens of one card that cannot be seen: one that no driver holds.
UNBOUND = "no display driver is bound to "


def is_desktop(host: Host) -> bool:
    """Whether a display manager or a graphical session is installed."""
    if host.link("/etc/systemd/system/display-manager.service") is not None:
        return True
    return bool(host.glob("/usr/share/xsessions/*.desktop") or host.glob("/usr/share/wayland-sessions/*.desktop"))


def _nvidia_cards(host: Host) -> dict[str, str]:
    """DRM cards that are NVIDIA's, with their bus id."""
    cards = {}
    for name in host.names(_DRM, "display.nvidia_screens"):
        if re.match(r"^card\d+$", name) and host.line(_DRM + name + "/device/vendor") == "0x10de":
            cards[name] = bus_id(os.path.basename(host.realpath(_DRM + name + "/device")))
    return cards


def screens(host: Host, gpus: list[PciGpu]) -> list[str]:
    """PCI addresses of the NVIDIA cards with a screen. Where no driver shows connectors, the card that the firmware booted with counts."""
    cards = _nvidia_cards(host)
    found: list[str] = []
    for path in host.glob(_DRM + "card*-*"):
        card = os.path.basename(path).partition("-")[0]
        if card in cards and host.line(path + "/status") == "connected" and cards[card] not in found:
            found.append(cards[card])
    for gpu in gpus:
        if gpu["bus_id"] in cards.values() or gpu["class"] != "0300":
            continue
        address = gpu["bus_id"][4:].lower()
        if host.line("/sys/bus/pci/devices/" + address + "/boot_vga") == "1" and is_desktop(host):
            found.append(gpu["bus_id"])
        else:
            host.unknown(
                "display.nvidia_screens",
                "{}{}, so its connectors cannot be seen".format(UNBOUND, gpu["bus_id"]),
            )
    return found


def observe(host: Host, gpus: list[PciGpu]) -> Display:
    """The part `display`."""
    return {"desktop": is_desktop(host), "nvidia_screens": screens(host, gpus)}


def graphical_session(host: Host) -> bool:
    """Whether somebody's graphical session is open (a login screen is nobody's)."""
    directory = "/run/systemd/sessions/"
    if host.isdir("/run/systemd/seats"):
        for name in host.names(directory, "sessions.display"):
            text = "" if name.endswith(".ref") else host.read(directory + name, "sessions.display") or ""
            fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
            if (
                fields.get("TYPE") in ("x11", "wayland", "mir")
                and fields.get("CLASS", "user").startswith("user")
                and fields.get("STATE") != "closing"
            ):
                return True
        return False
    return bool(host.glob("/tmp/.X11-unix/X*") or host.glob("/run/user/*/wayland-*"))  # noqa: S108 - the sockets of X lie there
