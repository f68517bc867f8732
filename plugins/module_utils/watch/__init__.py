# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node that watches itself: quick checks, metrics, and whom it tells. A program of its own there, which the role `watch` brings."""
