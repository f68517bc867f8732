# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a stack.

Written by tools/build_components.py from the folders of the components: `make rules`.
"""

from __future__ import annotations

from ..container_toolkit import resolve as container_toolkit
from ..cuda.resolve import parts as cuda_parts
from ..fabric import resolve as fabric
from ..frameworks.resolve import part as frameworks_part
from ..gpu_log import resolve as gpu_log
from ..gpu_settings import resolve as gpu_settings
from ..mig import resolve as mig
from ..monitoring_exporters import resolve as monitoring_exporters
from ..monitoring_server import resolve as monitoring_server
from ..nvidia_driver.resolve import driver as nvidia_driver_driver
from ..watch import resolve as watch

#: Those of a lock, in its order.
PARTS = (
    nvidia_driver_driver.PART,
    *cuda_parts.PARTS,
    container_toolkit.PART,
    frameworks_part.PART,
)
#: Those that each host wishes for itself, in the order in which they are chosen.
HOST_PARTS = (
    mig.HOST_PART,
    gpu_settings.HOST_PART,
    gpu_log.HOST_PART,
    watch.HOST_PART,
    fabric.HOST_PART,
    monitoring_exporters.HOST_PART,
    monitoring_server.HOST_PART,
)
