# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How long a proof speaks for a node, and how old one is: module_utils/base/ages.py, which nodes have too."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base.ages import AHEAD, MAX_AGE, age, moment

__all__ = ["AHEAD", "MAX_AGE", "age", "moment"]
