# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every directory and record of gpuwright's on a node, once."""

from __future__ import annotations

#: What stays: root's alone, all of it.
STATE = "/var/lib/gpuwright"
HISTORY = STATE + "/history.json"
SEALS = STATE + "/seals"
PROOF = STATE + "/proof.json"
#: Packages and installers that the way back to an earlier driver needs.
PACKAGES = STATE + "/packages"
#: Logs of drivers that failed.
FAILED = STATE + "/failed"
#: Files of the host that were in the way, below their whole path.
BACKUP = STATE + "/backup"
#: What was put into Docker's configuration, and what stood there before.
DOCKER = STATE + "/docker.json"
#: What goes on after a boot, and the copy of the program that does.
RESUME = STATE + "/resume"
RESUME_PROGRAM = RESUME + "/program"
#: What is gone after a boot.
RUN = "/run/gpuwright"
LOCK = RUN + "/lock.json"
#: Settings that programs of ours read, and these programs.
SETTINGS = "/etc/gpuwright"
PROGRAMS = "/usr/local/libexec/gpuwright"
#: What /usr/local/cuda was before it was led elsewhere.
CUDA_BEFORE = SETTINGS + "/cuda_before.json"
#: There on a node of the simulator, and nowhere else.
SIMULATED = SETTINGS + "/simulated"
