# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An observation as the judges read it: module_utils/base/view.py, which nodes have too."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base.view import UP, View, remedy_for, unknown

__all__ = ["UP", "View", "remedy_for", "unknown"]
