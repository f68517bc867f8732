# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The look at a node as one script, for Ansible to run in place of the module node_facts.

A module of Python is packed with all that Ansible's own AnsibleModule imports: 0.3 s in each run, and on each node more work than the
look itself. A look changes nothing, logs nothing and takes options from here alone, so it needs none of that. The script is a module
too, of the style that Ansible calls JSONARGS: its own source, with the options in place of a mark.
"""

from __future__ import annotations

from ..components import utilities

_MACHINE = f"{utilities.UTILITIES}.observe.machine"

#: What runs on the node. Ansible puts the options in the place of its mark; as JSON has it, so that they are a text of Python, too.
_SCRIPT = '''\
#!/usr/bin/python
from __future__ import annotations

import sys

# Python looks in the working directory first where it is piped; that, and what the environment names, may be a user's.
sys.path[:] = [place for place in sys.path if place.startswith((sys.prefix, sys.base_prefix))]

OPTIONS = r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""
{importer}
# No import statement: Ansible would take the script for a module of Python, and pack it.
machine = import_module("{machine}")
sys.stdout.write(json.dumps(machine.answer(json.loads(OPTIONS))) + "\\n")
'''


def look() -> bytes:
    """The script that looks at a node."""
    return _SCRIPT.replace("{importer}", utilities.importer(_MACHINE)).replace("{machine}", _MACHINE).encode()
