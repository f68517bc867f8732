# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role `reboot` left to go on after the next boot, and how it is called off.

It carries the wish of the run that prepared it. A later run that changes the node, or fails, has another one: what was prepared
before must not come back at a boot.
"""

from __future__ import annotations

import os
import shutil

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

UNIT = "gpuwright-resume.service"
UNITS = "/etc/systemd/system"


def prepared(host: Host) -> list[str]:
    """Paths of what waits for the next boot. The link that enables the unit comes first: without it nothing is started."""
    link = UNITS + "/multi-user.target.wants/" + UNIT
    units = [path for path in (link, UNITS + "/" + UNIT) if os.path.lexists(_entry(host, path))]
    job = [path for path in host.glob(paths.RESUME + "/*") if path.endswith(".json") or path == paths.RESUME + "/run"]
    # Without the unit it is at work, and runs from its copy of the program.
    return units + job + [path for path in (paths.RESUME_PROGRAM,) if units and host.exists(path)]


def _entry(host: Host, path: str) -> str:
    """Where the entry itself lies, not what a link leads to."""
    return os.path.join(host.at(os.path.dirname(path)), os.path.basename(path))


def drop(host: Host, check: bool) -> list[str]:
    """Remove it; the paths that were (with `check`, would be) removed."""
    found = prepared(host)
    for path in [] if check else found:
        if path == paths.RESUME_PROGRAM:
            shutil.rmtree(_entry(host, path))
        else:
            os.unlink(_entry(host, path))
    return found
