# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that the role puts on a node: module_utils/watch/program.py with all that it imports, as one script."""

from __future__ import annotations

import hashlib
from functools import cache

from .. import utilities

MODULE = f"{utilities.UTILITIES}.watch.program"
# The same Python that looks at the node runs it, and from root's own directories alone: python3 -I.
_SCRIPT = """\
#!/usr/bin/python3 -I
# Written by gpuwright (role watch). A change here is overwritten by the next run.
# plugins/module_utils of the collection has the sources: watch/program.py, and all that it imports.
import sys

{importer}
sys.exit(import_module("{module}").main(sys.argv[1:]))
"""


@cache
def text() -> str:
    """The script."""
    return _SCRIPT.replace("{importer}", utilities.importer(MODULE)).replace("{module}", MODULE)


@cache
def digest() -> str:
    """What tells it from that of another version."""
    return hashlib.sha256(text().encode()).hexdigest()
