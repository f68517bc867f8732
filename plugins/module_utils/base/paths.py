# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every directory and record of gpuwright's on a node, once."""

from __future__ import annotations

import os
from typing import Literal, Mapping, NamedTuple

#: What stays: root's alone, all of it.
STATE = "/var/lib/gpuwright"
#: Packages and installers that the way back to an earlier driver needs.
PACKAGES = STATE + "/packages"
#: Where files lie that bring toolkits and their libraries, and what they unpack meanwhile. It goes when that is done.
FETCHED = STATE + "/cuda"
#: Libraries of which archives are put into toolkits: what their records and their directories there are called after, and the header that
#: is led to first and taken away first, so that it tells whether the library is whole.
ARCHIVED: Mapping[Literal["cudnn", "nccl", "tensorrt"], str] = {
    "cudnn": "cudnn.h",
    "nccl": "nccl.h",
    "tensorrt": "NvInfer.h",
}
#: Logs of drivers that failed.
FAILED = STATE + "/failed"
#: Files of the host that were in the way, below their whole path.
BACKUP = STATE + "/backup"
#: Directories with data of users that were not there before a run.
DATA = STATE + "/data.json"
#: What was put into Docker's configuration, and what stood there before.
DOCKER = STATE + "/docker.json"
#: The ranges of subordinate ids that were given to users.
ROOTLESS = STATE + "/rootless.json"
#: What goes on after a boot, and the copy of the program that does.
RESUME = STATE + "/resume"
RESUME_PROGRAM = RESUME + "/program"
#: What a node that watches itself saw last, and whom it has yet to tell.
WATCH = STATE + "/watch.json"
#: Where it writes its metrics unless the wish says otherwise, and how that file is called everywhere.
METRICS = STATE + "/metrics"
METRICS_FILE = "gpuwright.prom"
#: What is gone after a boot.
RUN = "/run/gpuwright"
#: Settings that programs of ours read, and these programs.
SETTINGS = "/etc/gpuwright"
PROGRAMS = "/usr/local/libexec/gpuwright"
#: What a node that watches itself goes by, and the address of its webhook, which is a secret.
WATCH_SETTINGS = SETTINGS + "/watch.json"
WATCH_WEBHOOK = SETTINGS + "/watch-webhook"
#: How a file of ours beside a unit of somebody else's is called.
DROP_IN = "gpuwright.conf"
#: What /usr/local/cuda was before it was led elsewhere.
CUDA_BEFORE = SETTINGS + "/cuda_before.json"
#: There on a node of the simulator, and nowhere else.
SIMULATED = SETTINGS + "/simulated"
#: Where environments are made unless the wish says otherwise.
ENVIRONMENTS = "/opt/gpuwright"
#: What each of ours has in it.
ENVIRONMENT_MARK = "gpuwright-constraints.txt"


class Places(NamedTuple):
    """Where the records of a run and its environments lie: root's, or those of a user who works without root.

    ``run``: what holds for a run at work alone.
    """

    state: str
    run: str
    environments: str

    @property
    def seals(self) -> str:
        """The directory of the seals."""
        return self.state + "/seals"

    @property
    def history(self) -> str:
        """The record of what the way back needs."""
        return self.state + "/history.json"

    @property
    def proof(self) -> str:
        """The record of the last proof."""
        return self.state + "/proof.json"

    @property
    def lock(self) -> str:
        """The lock of the run at work."""
        return self.run + "/lock.json"

    @property
    def last(self) -> str:
        """Who had the lock last."""
        return self.state + "/last_run.json"


ROOTS = Places(STATE, RUN, ENVIRONMENTS)


def of_user(variables: Mapping[str, str] | None = None) -> Places:
    """A user's own, where the XDG Base Directory Specification puts state and data, below the home. Relative paths are ignored."""
    known = os.environ if variables is None else variables

    def base(name: str, default: str) -> str:
        given = known.get(name, "")
        return given.rstrip("/") if os.path.isabs(given) else os.path.expanduser(default)

    state = base("XDG_STATE_HOME", "~/.local/state") + "/gpuwright"
    return Places(state + "/node", state + "/at-work", base("XDG_DATA_HOME", "~/.local/share") + "/gpuwright")


def of_caller() -> Places:
    """Root's, or those of the user that this process is."""
    return ROOTS if os.geteuid() == 0 else of_user()
