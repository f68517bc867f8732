# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What Grafana is provisioned with: the Prometheus beside it, and the directory of the dashboards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses

if TYPE_CHECKING:
    from .model import MonitoringServer

_HEAD = "---\n# Written by gpuwright (role monitoring_server). A change here is overwritten by the next run.\n"
#: The name and the identity of both.
NAME = "gpuwright"


def data_source(server: MonitoringServer) -> str:
    """Return the file of the data source. The dashboards ask for the default one of its kind."""
    place = f"{addresses.bracketed(addresses.within(server['address']))}:{server['port']}"
    source = {
        "name": NAME,
        "uid": NAME,
        "type": "prometheus",
        "access": "proxy",
        "url": f"http://{place}",
        "isDefault": True,
        "editable": False,
        # As often as exporters are asked.
        "jsonData": {"timeInterval": "15s"},
    }
    return _written({"apiVersion": 1, "datasources": [source]})


def dashboards(directory: str) -> str:
    """Return the file that names the directory, which Grafana looks at again every ten seconds."""
    provider = {
        "name": NAME,
        "folder": NAME,
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": directory},
    }
    return _written({"apiVersion": 1, "providers": [provider]})


def _written(document: dict[str, object]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False)
    return _HEAD + text
