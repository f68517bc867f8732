# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that stay on a node, each put there as one file with all that it imports; and how what they leave there is read."""
