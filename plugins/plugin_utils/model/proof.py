# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Constants of the proof."""

from __future__ import annotations

#: Seconds that a proof stays fresh without a boot or a change (variable gpuwright_proof_max_age).
MAX_AGE = 7 * 24 * 3600
