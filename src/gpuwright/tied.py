"""Runs a program that does not outlive who started it: `tied.py PARENT MARK PROGRAM [ARGUMENT…]`. Run by its path.

ansible-runner has ansible-playbook ignore that its terminal went. Where gpuwright is killed it would go on with nobody to tell, and
keep the locks of its nodes. Until the last of its processes is gone the run is at work, which the lock on its mark says.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Tie this process to its parent, and become the program."""
    parent, mark, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    descriptor = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.set_inheritable(descriptor, True)
    if os.getppid() == int(parent):  # else it went before this was tied to it
        os.execvp(command[0], command)  # noqa: S606 - the words of ansible-runner, no shell


if __name__ == "__main__":
    main()
