# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The components of a node, a folder each, and what is common to them. How one is added: CONTRIBUTING.md."""

from __future__ import annotations

#: The components in the order in which they are applied, each with what a run does then. ``make rules`` writes what follows from it:
#: the modules of ``composed``, and the tasks of ``playbooks/site.yml``. Nouveau comes after the driver: it is only taken away once a module
#: for the next kernel is verified, so that a cut in between never leaves a screen without a driver.
ORDER = {
    "repair": "repair the package manager",
    "nvidia_driver": "apply the driver",
    "nouveau_blacklist": "apply the blacklist of nouveau",
    "mig": "apply the MIG layout",
    "gpu_settings": "apply the settings of the cards",
    "cuda": "apply the toolkits",
    "container_toolkit": "apply the container toolkit",
    "frameworks": "apply the frameworks",
    "gpu_log": "apply the log of the cards",
    "watch": "apply the watch over the node",
    "fabric": "apply the firewall for the fabric",
    "monitoring_exporters": "apply the exporters of metrics",
    "monitoring_server": "apply the server of metrics",
    "reboot": "boot where it is needed",
}
