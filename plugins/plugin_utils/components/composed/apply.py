# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All components, in the order in which they are applied.

Written by tools/build_components.py from the folders of the components: `make rules`.
"""

from __future__ import annotations

from ..base import Component
from ..container_toolkit import apply as container_toolkit
from ..cuda import apply as cuda
from ..fabric import apply as fabric
from ..frameworks import apply as frameworks
from ..gpu_log import apply as gpu_log
from ..gpu_settings import apply as gpu_settings
from ..mig import apply as mig
from ..monitoring_exporters import apply as monitoring_exporters
from ..monitoring_server import apply as monitoring_server
from ..nouveau_blacklist import apply as nouveau_blacklist
from ..nvidia_driver import apply as nvidia_driver
from ..reboot import apply as reboot
from ..repair import apply as repair
from ..watch import apply as watch

COMPONENTS: dict[str, Component] = {
    each.name: each
    for each in (
        repair.COMPONENT,
        nvidia_driver.COMPONENT,
        nouveau_blacklist.COMPONENT,
        mig.COMPONENT,
        gpu_settings.COMPONENT,
        cuda.COMPONENT,
        container_toolkit.COMPONENT,
        frameworks.COMPONENT,
        gpu_log.COMPONENT,
        watch.COMPONENT,
        fabric.COMPONENT,
        monitoring_exporters.COMPONENT,
        monitoring_server.COMPONENT,
        reboot.COMPONENT,
    )
}
