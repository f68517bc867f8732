# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The units that components write.

Written by tools/build_units.py from the components: edit `units` there, then `make rules`.
"""

from __future__ import annotations

UNITS = (
    "gpuwright-nvidia-persistence.service",
    "gpuwright-mig.service",
    "gpuwright-gpu-settings.service",
    "gpuwright-device-links.service",
    "gpuwright-gpu-log.service",
    "gpuwright-gpu-log.timer",
    "gpuwright-watch.service",
    "gpuwright-watch.timer",
    "gpuwright-gpu-exporter.service",
    "gpuwright-gpu-exporter.socket",
    "gpuwright-dcgm-exporter.socket",
    "gpuwright-node-exporter.socket",
)
