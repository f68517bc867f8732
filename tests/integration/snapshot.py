"""Independent witnesses of what a run did: the node's whole file tree, the roles that ran, the commands sudo saw."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import owner
from tests.sim import settings

#: Places whose content is no state of the machine that a plan could change, each with the reason.
EXCEPT: Mapping[str, str] = {
    "/proc": "the kernel's view, no files",
    "/sys": "the kernel's view, no files",
    "/dev": "devices, no files",
    "/run": "gone at the next boot; sshd, sudo and logind keep the session there",
    "/var/log/wtmp": "sshd writes each login there",
    "/var/log/lastlog": "sshd writes each login there",
    "/var/log/btmp": "sshd writes each failed login there",
    "/var/log/journal": "the system's log: each login and each sudo is a line",
    "/var/lib/wtmpdb": "the newer form of wtmp",
    "/var/lib/lastlog": "the newer form of lastlog",
    "/var/lib/systemd/timers": "systemd's own clockwork goes off when it likes",
    "/usr/lib/gpuwright-sim": "the simulation's own programs, which Python compiles where they lie",
}

#: Directories in which something may have been made and removed again: their content counts, their own time does not.
PASSING = ("/tmp", "/var/tmp")

#: Run on the node: each path with its kind, mode, owner, size, time and digest. Directories of other file systems too.
_LIST = """
import hashlib, os, stat, sys
exclude, passing = (set(words.split(":")) for words in sys.argv[1:3])
def lines(path):
    found = os.lstat(path)
    what = [oct(found.st_mode), found.st_uid, found.st_gid]
    if stat.S_ISREG(found.st_mode):
        with open(path, "rb") as stream:
            what += [found.st_size, found.st_mtime_ns, hashlib.file_digest(stream, "sha256").hexdigest()]
    elif stat.S_ISLNK(found.st_mode):
        what += [found.st_mtime_ns, os.readlink(path)]
    elif path not in passing:
        what.append(found.st_mtime_ns)
    print(path, *what, sep="\\t")
    if stat.S_ISDIR(found.st_mode):
        for name in sorted(os.listdir(path)):
            below = os.path.join(path, name)
            if below not in exclude:
                lines(below)
lines("/")
"""

#: Run on the node: SIGKILL to everything that a login started, apt and dpkg included, as when the power goes.
_CUT = """
import os, signal
parents = {}
for entry in os.listdir("/proc"):
    if entry.isdigit():
        try:
            with open(f"/proc/{entry}/stat") as stream:
                name, rest = stream.read().rsplit(")", 1)
        except OSError:
            continue
        parents[int(entry)] = (int(rest.split()[1]), name.split("(", 1)[1])
def from_login(pid):
    while pid > 1 and pid in parents:
        pid, name = parents[pid]
        if pid in parents and parents[pid][1].startswith("sshd"):
            return True
    return False
for pid in sorted(pid for pid in parents if from_login(pid)):
    try:
        os.kill(pid, signal.SIGKILL)
        print(pid, parents[pid][1])
    except ProcessLookupError:
        pass
"""


def tree(node: str) -> dict[str, str]:
    """Every path of a node, with mode, owner, size, time and digest."""
    listed = _on_node(node, _LIST, ":".join(EXCEPT), ":".join(PASSING))
    return dict(line.split("\t", 1) for line in listed.splitlines())


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """What is new, gone or changed between two trees."""
    return {
        path: (before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }


def roles(report: Path) -> list[str]:
    """The roles of which at least one task was begun, each once, from ansible-playbook's own words."""
    words = (report / "ansible/artifacts/site/stdout").read_text()
    return list(dict.fromkeys(re.findall(r"^TASK \[gpuwright\.node\.(\w+) :", words, re.MULTILINE)))


def changed(report: Path) -> int:
    """The number behind `changed=` in the recap of the only host."""
    words = (report / "ansible/artifacts/site/stdout").read_text()
    (number,) = re.findall(r"^\S+\s+: ok=\d+\s+changed=(\d+)", words, re.MULTILINE)
    return int(number)


def remote_operations(inventory: Path) -> tuple[list[str], str]:
    """What `ansible-playbook -vvv site.yml` sent to the hosts (commands and files), and its recap."""
    said = playbook("site.yml", inventory, "-vvv")
    operations = re.findall(r"^<\S+> (?:SSH: EXEC|PUT|FETCH) .*$", said, re.MULTILINE)
    return operations, said.split("PLAY RECAP")[-1]


def playbook(name: str, inventory: Path, *arguments: str) -> str:
    """What `ansible-playbook`, which has to end well, says of one of the clone's playbooks."""
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, *arguments, "-i", inventory, name],
        capture_output=True,
        text=True,
        check=False,
        cwd=settings.CLONE,
        timeout=120,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def sudo_commands(node: str, cursor: str) -> list[str]:
    """The commands that sudo ran on a node since a place in its journal (:func:`journal_cursor`)."""
    words = _shell(node, f"journalctl --no-pager -q -o cat -t sudo --after-cursor='{cursor}'")
    return re.findall(r"COMMAND=(.*)", words)


def journal_cursor(node: str) -> str:
    """The present end of a node's journal."""
    words = _shell(node, "journalctl --sync; journalctl --no-pager -n 0 --show-cursor")
    (cursor,) = re.findall(r"-- cursor: (.*)", words)
    return str(cursor)


def living_owner() -> str:
    """A lock's owner as a run of this very controller names itself, of a process that lives: this one."""
    return owner.of_process(os.getpid())


def cut_off(node: str, process: subprocess.Popen[bytes]) -> str:
    """Kill a run with all its processes here, and all that it started on the node. What was killed there, one a line."""
    kill(process)
    return _on_node(node, _CUT)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with all its processes here; what it started on the node is not told."""
    for pid in [*_descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """A process's children and theirs. The playbook has a session of its own: a signal to the group does not reach it."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [*_descendants(child), child]
    return found


def _on_node(node: str, program: str, *arguments: str) -> str:
    done = subprocess.run(
        ["docker", "exec", "-i", settings.container_name(node), "python3", "-", *arguments],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _shell(node: str, command: str) -> str:
    done = subprocess.run(
        ["docker", "exec", settings.container_name(node), "sh", "-c", command],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def content(path: Path) -> bytes:
    """What stands in a file of a run directory, a packed one too."""
    found = path.read_bytes()
    return gzip.decompress(found) if path.suffix == ".gz" else found
