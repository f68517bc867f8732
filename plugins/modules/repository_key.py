#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: repository_key
short_description: Install the key of a package repository after checking its fingerprint
version_added: "0.1.0"
description:
  - Downloads an OpenPGP key file, refuses it when any primary key in it is not the expected one, and writes a keyring that is made anew
    from the packets that were read, never the file as it came.
  - It goes by the proxy of the node, that of the task's variables (E(https_proxy)), of apt or of dnf.
  - Signatures are not judged here. An expired or revoked key is handed on with what says so, and apt or rpm refuses what it signed.
  - A file that already is that keyring is kept and nothing is downloaded.
options:
  url:
    description: Address of the key file, armoured or binary.
    type: str
    required: true
  fingerprint:
    description:
      - Full fingerprint of the key. Spaces are allowed, a short key id is not.
      - Where it was never read, C(text-sha256:HASH:END) with the SHA-256 of the file's text without the line of its C(Version), and the
        last eight digits of the fingerprint. The file is then downloaded each time.
    type: str
    required: true
  path:
    description: File to write, for use in C(Signed-By) of apt or C(gpgkey) of dnf.
    type: path
    required: true
  form:
    description: How the file is written. apt takes a binary keyring, rpm one with an armour.
    type: str
    choices: [binary, armoured]
    default: binary
  timeout:
    description: Seconds that the download may take.
    type: float
    default: 30
extends_documentation_fragment:
  - gpuwright.node.gate
  - gpuwright.node.credentials
attributes:
  check_mode:
    description: Says whether the file would change. The key is not downloaded.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Install the key of the repository
  gpuwright.node.repository_key:
    url: "{{ repository.key.url }}"
    fingerprint: "{{ repository.key.fingerprint }}"
    path: "{{ repository.key.path }}"
"""

RETURN = r"""
fingerprint:
  description: The fingerprint that the file has (in check mode, would have), in capitals without spaces. Zeros stand for what is not known.
  returned: success
  type: str
  sample: 0123456789ABCDEF0123456789ABCDEF01234567
previous:
  description: Fingerprints in the file before. Empty when there was none or it was no key file.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import cast

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp, redact
from ansible_collections.gpuwright.node.plugins.module_utils.packages import keyring
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError


def main() -> None:
    """Read the options, install, answer."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "form": {"type": "str", "choices": ["binary", "armoured"], "default": "binary"},
            "timeout": {"type": "float", "default": 30},
            "credentials": redact.OPTION,
        },
        supports_check_mode=True,
    )
    credentials = redact.taken(module)
    url, path = redact.text(module.params["url"]), module.params["path"]
    options = cast("keyring.Options", {**module.params, "credentials": credentials})
    try:
        module.exit_json(**keyring.install(options, module.check_mode))
    except openpgp.KeyFileError as exc:
        module.fail_json(
            msg="The key from {0} is not accepted: {1}. If the owner of the repository changed its key, check that with the owner and "
            "name the new fingerprint; otherwise somebody on the way changes what you download.".format(url, exc)
        )
    except FetchError as exc:
        module.fail_json(
            msg="The repository's key could not be fetched: {0}. Check the network, the proxy, or name a mirror.".format(
                exc
            )
        )
    except OSError as exc:
        module.fail_json(msg="{0} could not be written: {1}. Run as root.".format(path, exc))


if __name__ == "__main__":
    main()
