# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the driver comes from, and the units and files that the role puts beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...model.work import File

#: The package sources that a driver of each source comes from (names as the resolver gives them).
SOURCES: Mapping[str, list[str]] = {
    "nvidia": ["nvidia-cuda", "epel"],
    # NVIDIA's, where it is there too, is kept from answering for the driver.
    "distro": ["distro-non-free", "distro-restricted", "nvidia-cuda"],
    "runfile": [],
}
PERSISTENCE_SERVICE = "nvidia-persistenced.service"
#: Where the packages have that unit without [Install] (Ubuntu's: udev alone starts it, with --no-persistence-mode, and an upgrade stops it
#: for good), a drop-in turns persistence on and a unit of ours keeps the daemon running.
PERSISTENCE_KEEPER = "gpuwright-nvidia-persistence.service"
PERSISTENCE_FILES = (
    f"/etc/systemd/system/{PERSISTENCE_SERVICE}.d/gpuwright.conf",
    f"/etc/systemd/system/{PERSISTENCE_KEEPER}",
)
#: The kernel hook of the role, where each family of systems calls it. The first one is also called by hand.
KERNEL_HOOKS = {
    "debian": [
        "/etc/kernel/postinst.d/zz-gpuwright",
        "/etc/kernel/postinst.d/aa-gpuwright",
        "/etc/kernel/header_postinst.d/zz-gpuwright",
        "/etc/kernel/postrm.d/zz-gpuwright",
    ],
    "redhat": ["/etc/kernel/install.d/95-gpuwright.install"],
}

_WRITTEN = "Written by gpuwright (role nvidia_driver)"
_OURS = f"# {_WRITTEN}. A change here is overwritten by the next run.\n"
_DROP_IN = f"""{_OURS}[Unit]
StopWhenUnneeded=false

[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose
"""
_KEEPER = f"""{_OURS}[Unit]
Description=Keeps the NVIDIA persistence daemon running
# Started again when an upgrade of its package has stopped it.
Upholds={PERSISTENCE_SERVICE}
After=systemd-modules-load.service
ConditionPathExists=/usr/bin/nvidia-persistenced

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true

[Install]
WantedBy=multi-user.target
"""
_UNATTENDED = f"""// {_WRITTEN}; a change by hand is undone by the next run.
// The NVIDIA driver is one set of packages, loaded into the kernel and into running programs. Moved behind their back it ends in
// "Driver/library version mismatch" until the next boot, so it moves as a whole, by gpuwright, and is proven after it.
Unattended-Upgrade::Package-Blacklist {{
"""
_BOOT_MODULES = f"{_OURS}# Kernel modules that the cards of this machine need beside the driver's own.\n"


def persistence() -> list[File]:
    """The drop-in that turns persistence on, and the unit that keeps the daemon running."""
    return [
        {"path": path, "content": content, "mode": "0644"}
        for path, content in zip(PERSISTENCE_FILES, (_DROP_IN, _KEEPER), strict=True)
    ]


def unattended(path: str, patterns: Iterable[str]) -> File:
    """What keeps unattended upgrades from packages; ``patterns``: regular expressions for their names."""
    rows = "".join(f'  "{pattern}";\n' for pattern in patterns)
    return {"path": path, "content": f"{_UNATTENDED}{rows}}};\n", "mode": "0644"}


def boot_modules(path: str, names: Iterable[str]) -> File:
    """What has kernel modules loaded at each boot (modules-load.d(5))."""
    return {"path": path, "content": _BOOT_MODULES + "".join(f"{name}\n" for name in names), "mode": "0644"}
