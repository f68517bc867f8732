# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of a run: report.json, report.html and junit.xml from the records of hosts.

Used by the action ``report`` and by the command line. Imports no Ansible.
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.plugin_utils.report.files import (
    aggregate,
    default_run_dir,
    note_begin,
    open_run,
    read_plans,
    unproven,
    waiting,
    write_host,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.report.model import host_record, report_of

__all__ = [
    "aggregate",
    "default_run_dir",
    "host_record",
    "note_begin",
    "open_run",
    "read_plans",
    "report_of",
    "unproven",
    "waiting",
    "write_host",
]
