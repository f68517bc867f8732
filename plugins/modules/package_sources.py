#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_sources
short_description: Add package sources, each with its checked key, and fetch their indexes
version_added: "0.2.0"
description:
  - Takes what is in the way of the sources to C(/var/lib/gpuwright/backup), installs each key as M(gpuwright.node.repository_key) does,
    writes users and passwords where only root reads them, then the source and its preferences, and has apt fetch the index of this
    source alone.
  - Only what differs is written.
  - In a play O(names) alone is given; the rest is read from the variables C(gpuwright_plan), C(gpuwright_mirrors) and C(gpuwright_wish).
options:
  names:
    description: Names of the sources of the plan that are added. Without it all of them are.
    type: list
    elements: str
  displaced:
    description:
      - Files of the machine that are in the way. Of each C(file), the C(uris) in it that are, and whether the C(whole) file goes.
    type: list
    elements: dict
    default: []
  sources:
    description:
      - The sources. Of each its C(name), the C(addresses) that are fetched, C(file) and C(content), its C(key) (C(url), C(fingerprint),
        C(path), C(form)), files of C(access) and C(preferences), and whether its C(index) is fetched.
    type: list
    elements: dict
    default: []
  retries:
    description: How often an index is asked for again before the task fails.
    type: int
    default: 3
extends_documentation_fragment:
  - gpuwright.node.gate
  - gpuwright.node.credentials
attributes:
  check_mode:
    description: Says what would be written and removed. Nothing is downloaded.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Add the package sources of the plan
  gpuwright.node.package_sources:
    names: [nvidia-cuda]
"""

RETURN = r"""
written:
  description: Files that were (in check mode, would be) written.
  returned: success
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources]
gone:
  description: Files that were (in check mode, would be) removed. Those of the machine are in the backup.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp, redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import sources
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError


def main() -> None:
    """Read the options, add, answer."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str"},
            "displaced": {"type": "list", "elements": "dict", "default": []},
            "sources": {"type": "list", "elements": "dict", "default": []},
            "retries": {"type": "int", "default": 3},
            "credentials": redact.OPTION,
        },
        supports_check_mode=True,
    )
    credentials = redact.taken(module)
    machine = sources.Machine(check=module.check_mode)
    where = ""
    try:
        done = [sources.displace(machine, module.params["displaced"])]
        for source in module.params["sources"]:
            where = "{0} ({1})".format(source["name"], redact.text((source["key"] or {}).get("url") or source["file"]))
            done.append(sources.add(machine, source, credentials, module.params["retries"]))
    except openpgp.KeyFileError as exc:
        module.fail_json(
            msg="The key of {0} is not accepted: {1}. If the owner of the repository changed its key, check that with the owner and "
            "name the new fingerprint; otherwise somebody on the way changes what you download.".format(where, exc)
        )
    except FetchError as exc:
        module.fail_json(
            msg="The key of {0} could not be fetched: {1}. Check the network, the proxy, or name a mirror.".format(
                where, exc
            )
        )
    except sources.NotFetched as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg="{0} could not be written: {1}. Run as root.".format(exc.filename, exc.strerror))
    written = [path for each in done for path in each.written]
    gone = [path for each in done for path in each.gone]
    module.exit_json(changed=bool(written or gone), written=written, gone=gone)


if __name__ == "__main__":
    main()
