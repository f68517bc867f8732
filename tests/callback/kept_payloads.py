"""A callback plugin of the tests: what Ansible packs for a node is kept for all playbooks of a session of tests.

Ansible packs a module with everything that it imports once in each run of a playbook, in a folder of that run. The tests run the same
playbooks hundreds of times, from sources that stay as they are: a quarter of the controller's processor time went there. Here the
folder of a run is the one that GPUWRIGHT_TEST_PAYLOADS names. Ansible locks what it writes there, and writes by rename.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kept_payloads
type: notification
short_description: Keeps packed modules for all playbooks of a session of tests
description:
  - Makes the folder of packed modules of this run a link to the one that E(GPUWRIGHT_TEST_PAYLOADS) names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """See the module's documentation."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "kept_payloads"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Set the link before the first module is packed."""
        Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").symlink_to(os.environ["GPUWRIGHT_TEST_PAYLOADS"])
