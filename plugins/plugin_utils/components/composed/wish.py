# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What may be wished of all components.

Written by tools/build_components.py from the folders of the components: `make rules`.
"""

from __future__ import annotations

from ..container_toolkit import wish as container_toolkit
from ..cuda import wish as cuda
from ..fabric import wish as fabric
from ..frameworks import wish as frameworks
from ..gpu_log import wish as gpu_log
from ..gpu_settings import wish as gpu_settings
from ..mig import wish as mig
from ..monitoring_exporters import wish as monitoring_exporters
from ..monitoring_server import wish as monitoring_server
from ..nvidia_driver import wish as nvidia_driver
from ..watch import wish as watch


class Fields(
    nvidia_driver.Fields,
    mig.Fields,
    gpu_settings.Fields,
    cuda.Fields,
    container_toolkit.Fields,
    frameworks.Fields,
    gpu_log.Fields,
    watch.Fields,
    fabric.Fields,
    monitoring_exporters.Fields,
    monitoring_server.Fields,
):
    """The fields of a wish that components have."""


WORDS = (
    nvidia_driver.WORDS,
    mig.WORDS,
    gpu_settings.WORDS,
    cuda.WORDS,
    container_toolkit.WORDS,
    frameworks.WORDS,
    gpu_log.WORDS,
    watch.WORDS,
    fabric.WORDS,
    monitoring_exporters.WORDS,
    monitoring_server.WORDS,
)
