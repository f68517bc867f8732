# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of all components.

Written by tools/build_components.py from the folders of the components: `make rules`.
"""

from __future__ import annotations

from ..container_toolkit import model as container_toolkit
from ..cuda import model as cuda
from ..fabric import model as fabric
from ..frameworks import model as frameworks
from ..gpu_log import model as gpu_log
from ..gpu_settings import model as gpu_settings
from ..mig import model as mig
from ..monitoring_exporters import model as monitoring_exporters
from ..nvidia_driver import model as nvidia_driver
from ..watch import model as watch


class Parts(
    nvidia_driver.Parts,
    mig.Parts,
    gpu_settings.Parts,
    cuda.Parts,
    container_toolkit.Parts,
    frameworks.Parts,
    gpu_log.Parts,
    watch.Parts,
    fabric.Parts,
    monitoring_exporters.Parts,
    total=False,
):
    """The keys of a stack that components have."""
