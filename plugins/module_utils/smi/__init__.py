# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""nvidia-smi: how it is run, and how its document and its rows are read. One way for the proof, the roles and the programs of a node."""
