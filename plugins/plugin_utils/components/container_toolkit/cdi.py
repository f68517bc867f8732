# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What keeps the CDI specification up to date: the toolkit's own units, and what they have to know of this driver."""

from __future__ import annotations

from ..base import Context
from .shape import Merged

SETTING = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpuwright.conf"
#: Modules that the toolkit's unit waits for. Debian's open ones have another name, and it never writes the CDI specification there
#: (NVIDIA/nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service at v1.20.0, ExecCondition).
_KNOWS = ("nvidia", "nvidia-current")
#: Since 1.18 the toolkit itself keeps the CDI specification up to date; no second unit beside it.
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
#: States of units that nobody can enable.
ABSENT = (None, "", "not-found", "masked")


def files(context: Context) -> list[str]:
    """The setting that lets the toolkit's unit know the module of this driver, where it does not by itself."""
    driver = context.stack.get("driver")
    module = driver["kernel_module"] if driver else None
    return [] if module is None or module in _KNOWS else [SETTING]


def setting(context: Context) -> list[Merged]:
    driver = context.stack.get("driver")
    module = driver.get("kernel_module") if driver else None
    return [Merged(path=path, content=text(str(module)), mode="0644") for path in files(context)]


def text(module: str) -> str:
    """What tells the toolkit's unit how the module of this driver is called."""
    return (
        "# Written by gpuwright (role container_toolkit); a change by hand is undone by the next run.\n"
        f"# The toolkit's unit waits for a module called nvidia or nvidia-current. The one of this driver is {module}.\n"
        "[Service]\n"
        "ExecCondition=\n"
        f"ExecCondition=/bin/sh -c 'grep -qE \"/{module}[.]ko\" /lib/modules/$$(uname -r)/modules.dep'\n"
    )
