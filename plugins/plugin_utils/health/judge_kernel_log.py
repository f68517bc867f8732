# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the errors of the kernel log mean, by the tables of compat/. Judged in module_utils/measure/, where nodes judge it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log_judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import MOST_CHECKS

from ..rules import Rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Seen

__all__ = ["MOST_CHECKS", "judge"]


def judge(seen: Seen, rules: Rules) -> list[Check]:
    """The check of the kernel log for each number of each card, see :func:`kernel_log_judge.judge`."""
    return kernel_log_judge.judge(seen, rules["xid"]["rows"])
