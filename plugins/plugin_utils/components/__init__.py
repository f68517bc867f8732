# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The components of a node, in the order in which they are applied.

To add one: a module here with the functions of :class:`.base.Component`, a role of the same name, a row in ``COMPONENTS``,
and a task in ``playbooks/site.yml`` at the same place (a test holds the two orders equal).
"""

from __future__ import annotations

from . import container_toolkit, cuda, frameworks, gpu_settings, mig, nouveau_blacklist, nvidia_driver, reboot, repair
from .base import Component, Context, Finding, Manages

# Nouveau comes after the driver: it is only taken away once a module for the next kernel is verified, so that a cut in
# between never leaves a screen without a driver.
COMPONENTS: dict[str, Component] = {
    "repair": repair,
    "nvidia_driver": nvidia_driver,
    "nouveau_blacklist": nouveau_blacklist,
    "mig": mig,
    "gpu_settings": gpu_settings,
    "cuda": cuda,
    "container_toolkit": container_toolkit,
    "frameworks": frameworks,
    "reboot": reboot,
}

#: Components that leave a seal.
SEALED = ("nvidia_driver", "nouveau_blacklist", "mig", "gpu_settings", "cuda", "container_toolkit", "frameworks")

__all__ = ["COMPONENTS", "SEALED", "Component", "Context", "Finding", "Manages"]
