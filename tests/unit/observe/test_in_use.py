"""What runs on a machine that a change would end: by its processes and the files of its engines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers, in_use
from tests.unit.observe.trees import Tree, answer

_ROOT = "/var/lib/docker"
_ID = "0123456789ab" * 5 + "cdef"


class Machine:
    """A tree with processes."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def process(self, pid: int, comm: str, *words: str, opened: tuple[str, ...] = (), **links: str) -> None:
        """One with its command line and what it has open; ``links``: its program and its root."""
        place = f"/proc/{pid}"
        self.tree.file(f"{place}/comm", comm[:15] + "\n")
        self.tree.file(f"{place}/cmdline", "".join(f"{word}\0" for word in words))
        self.tree.directory(f"{place}/fd")
        for number, target in enumerate(opened):
            self.tree.link(f"{place}/fd/{number}", target)
        for name, target in {"exe": "/usr/bin/python3.11", "root": "/", **links}.items():
            self.tree.link(f"{place}/{name}", target)

    def seen(self, data_root: str = _ROOT) -> Any:
        return in_use.observe(self.tree.host(), data_root)

    def holders(self) -> list[str]:
        return [each["name"] for each in processes.holders(str(self.tree.root), os.getuid())[0]]


@pytest.fixture
def machine(tree: Tree) -> Machine:
    return Machine(tree)


# --- cards ------------------------------------------------------------------------------------------------------------


def test_who_has_a_card_open_holds_it(machine: Machine) -> None:
    opened = ("/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia0", "socket:[1]")
    machine.process(7, "python3", "train.py", opened=opened)
    machine.process(8, "bash", opened=("/dev/pts/0",))
    assert machine.seen()["holders"] == [{"pid": 7, "name": "python3", "devices": ["nvidia-uvm", "nvidia0"]}]


@pytest.mark.parametrize(
    ("device", "holds"),
    [
        ("/dev/nvidia12", True),
        ("/dev/nvidia0 (deleted)", True),
        ("/nvidia0", True),
        ("/dev/nvidia-caps/nvidia-cap3", True),
        ("/dev/nvidiactl", False),
        ("/dev/nvidia-modeset", False),
        ("/home/user/nvidia0", False),
    ],
)
def test_a_question_to_the_driver_alone_holds_no_card(machine: Machine, device: str, *, holds: bool) -> None:
    machine.process(7, "python3", opened=(device,))
    assert bool(machine.seen()["holders"]) is holds


@pytest.mark.parametrize(
    "program",
    ["/usr/bin/nvidia-persistenced", "/usr/bin/nv-hostengine", "/usr/bin/nvidia-smi", "/usr/lib/xorg/Xorg"],
)
def test_services_of_the_driver_and_the_desktop_are_known_by_their_program(machine: Machine, program: str) -> None:
    machine.tree.program(program)
    machine.process(7, "any-name", opened=("/dev/nvidia0",), exe=program)
    assert machine.holders() == []


def test_a_name_alone_makes_no_service_of_the_drivers(machine: Machine) -> None:
    machine.tree.program("/usr/bin/nvidia-persistenced")
    machine.tree.directory("/srv/container")
    machine.tree.program("/srv/container/usr/bin/nvidia-persistenced")
    held = ("/dev/nvidia0",)
    machine.process(7, "nvidia-persistenced", opened=held)
    machine.process(8, "nvidia-persistenced", opened=held, exe="/home/user/nvidia-persistenced")
    machine.process(9, "in-a-container", opened=held, exe="/usr/bin/nvidia-persistenced", root="/srv/container")
    assert machine.holders() == ["nvidia-persiste", "nvidia-persiste", "in-a-container"]


def test_a_program_that_somebody_else_may_change_is_not_known(machine: Machine) -> None:
    machine.tree.file("/usr/bin/nvidia-smi", "", 0o777)
    machine.process(7, "nvidia-smi", opened=("/dev/nvidia0",), exe="/usr/bin/nvidia-smi")
    assert machine.holders() == ["nvidia-smi"]


def test_a_process_that_cannot_be_looked_at_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(7, "python3", opened=("/dev/nvidia0",))
    machine.process(8, "python3", opened=("/dev/nvidia0",))
    listed = os.listdir

    def denied(path: Any = ".") -> list[str]:
        if str(path).endswith("/proc/7/fd"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "listdir", denied)
    found = machine.seen()
    assert [each["pid"] for each in found["holders"]] == [8]
    assert found["unread"] == "the open files of process 7 could not be read"


def test_a_process_that_ended_meanwhile_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(7, "python3", opened=("/dev/nvidia0",))

    def gone(_path: Any) -> str:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "readlink", gone)
    assert machine.seen()["holders"] == []
    assert machine.seen()["unread"] is None


def test_the_processes_of_this_machine_are_read_as_the_kernel_tells_them(tmp_path: Path) -> None:
    # No card is needed: a file of that name, in a process whose root is the same.
    place = tmp_path / "nvidia0"
    place.touch()
    with place.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as child:
        try:
            assert Path(f"/proc/{child.pid}/fd/0").readlink() == place
            assert processes.in_own_root(child.pid) is False
            assert child.pid in processes.numbers()
        finally:
            child.kill()


# --- containers, builds, jobs -----------------------------------------------------------------------------------------


def shim(machine: Machine, namespace: str, number: str = _ID, pid: int = 20) -> None:
    words = ("/usr/bin/containerd-shim-runc-v2", "-namespace", namespace, "-id", number, "-address", "/run/c.sock")
    machine.process(pid, "containerd-shim-runc-v2", *words)


@pytest.mark.parametrize(
    ("namespace", "engine", "comes_back"),
    [("moby", "docker", False), ("k8s.io", "kubernetes", True), ("default", "containerd", False)],
)
def test_each_shim_is_a_container_of_whose_namespace_it_is(
    machine: Machine, namespace: str, engine: str, *, comes_back: bool
) -> None:
    shim(machine, namespace)
    assert machine.seen()["containers"] == [{"engine": engine, "id": _ID[:12], "comes_back": comes_back}]


@pytest.mark.parametrize(
    ("policy", "comes_back"),
    [
        ('{"RestartPolicy": {"Name": "always"}}', True),
        ('{"RestartPolicy": {"Name": "unless-stopped"}}', True),
        ('{"RestartPolicy": {"Name": "on-failure"}}', False),
        ('{"RestartPolicy": {"Name": "no"}}', False),
        ('{"RestartPolicy": null}', False),
        ("[", False),
    ],
)
def test_docker_starts_a_container_again_by_its_policy(machine: Machine, policy: str, *, comes_back: bool) -> None:
    machine.tree.file(f"/srv/docker/containers/{_ID}/hostconfig.json", policy)
    shim(machine, "moby")
    assert machine.seen("/srv/docker")["containers"][0]["comes_back"] is comes_back


def test_a_container_inside_another_one_is_the_outer_ones(machine: Machine) -> None:
    machine.tree.directory("/srv/container")
    machine.process(20, "containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "x", root="/srv/container")
    assert machine.seen()["containers"] == []


@pytest.mark.parametrize(
    ("group", "engine", "comes_back"),
    [
        ("0::/machine.slice/libpod-conmon-1.scope", "podman", False),
        ("0::/system.slice/web.service", "podman", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service", "podman", False),
        ("0::/kubepods.slice/crio-conmon-1.scope", "kubernetes", True),
    ],
)
def test_a_container_with_a_monitor_is_podmans_or_a_pods(
    machine: Machine, group: str, engine: str, *, comes_back: bool
) -> None:
    machine.process(20, "conmon", "/usr/bin/conmon", "-c", _ID)
    machine.tree.file("/proc/20/cgroup", group + "\n")
    assert machine.seen()["containers"] == [{"engine": engine, "id": _ID[:12], "comes_back": comes_back}]


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (("docker", "build", "."), "docker"),
        (("docker", "--context", "default", "compose", "up"), None),
        (("docker", "pull", "nvidia/cuda"), "docker"),
        (("docker", "logs", "--follow", "web"), None),
        (("nerdctl", "run", "image"), "containerd"),
        (("podman", "build", "."), "podman"),
        (("ctr", "image", "pull", "image"), "containerd"),
    ],
)
def test_a_client_that_has_an_engine_work_is_work(machine: Machine, words: tuple[str, ...], engine: str | None) -> None:
    machine.process(30, words[0], *words)
    assert [each["engine"] for each in machine.seen()["working"]] == ([engine] if engine else [])


def test_an_image_that_is_being_pulled_is_work_and_one_that_was_cut_off_is_none(machine: Machine) -> None:
    place = machine.tree.file(f"{_ROOT}/tmp/GetImageBlob123")
    assert machine.seen()["working"] == [{"engine": "docker", "what": "an image that is being pulled"}]
    os.utime(place, (1, 1))
    assert machine.seen()["working"] == []
    machine.tree.file("/var/lib/containerd/io.containerd.content.v1.content/ingest/1a/data")
    assert [each["engine"] for each in machine.seen()["working"]] == ["containerd"]


def test_who_is_connected_to_docker_is_counted(machine: Machine) -> None:
    machine.tree.file(
        "/proc/net/unix",
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/docker.sock\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 12 /run/docker.sock\n"
        "0000000000000000: 00000003 00000000 00000000 0001 02 13 /run/docker.sock\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 14 /run/systemd/journal/stdout\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 15\n",
    )
    assert machine.seen()["docker_clients"] == 2


def test_a_connection_whose_client_is_gone_is_no_client(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker 26 keeps such: after `docker run --rm` two of four, as seen on a node."""
    rows = [f"0000000000000000: 00000003 00000000 00000000 0001 03 {inode} /run/docker.sock\n" for inode in (12, 13)]
    machine.tree.file("/proc/net/unix", "".join(rows))
    ends = "u_str ESTAB 0 0 /run/docker.sock 12 * 0 \nu_str ESTAB 0 0 /run/docker.sock 13 * 77\n"
    host = machine.tree.host()
    monkeypatch.setattr(host, "run", lambda _argv: answer(ends))
    assert in_use.observe(host, _ROOT)["docker_clients"] == 1


def test_the_steps_of_slurms_jobs_are_told_and_the_holder_of_its_scope_is_none(machine: Machine) -> None:
    machine.process(40, "slurmstepd", "/usr/sbin/slurmstepd", "infinity")
    machine.process(41, "slurmstepd", "slurmstepd: [17.batch]")
    assert machine.seen()["jobs"] == ["slurmstepd: [17.batch] (pid 41)"]


def test_dockers_directory_is_where_its_configuration_says(tree: Tree) -> None:
    host = tree.host()
    docker: Any = {"daemon_json": {"data-root": "/srv/docker"}}
    assert containers.data_root(docker) == "/srv/docker"
    for written in (None, {}, {"data-root": 7}, {"data-root": "srv"}):
        docker = {"daemon_json": written}
        assert containers.data_root(docker) == _ROOT
    assert in_use.observe(host, _ROOT)["containers"] == []


def test_more_than_can_be_told_is_not_known(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_use, "_MOST", 1)
    for pid in (7, 8):
        machine.process(pid, "python3", opened=("/dev/nvidia0",))
    found = machine.seen()
    assert len(found["holders"]) == 1
    assert found["unread"] == "more than 1 of one kind run here"


def test_a_step_of_a_job_is_roots_and_no_process_that_a_user_called_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(41, "slurmstepd", "slurmstepd: [17.batch]")
    monkeypatch.setattr(processes, "is_roots", lambda pid, _root: pid != 41)
    assert machine.seen()["jobs"] == []


def test_whose_a_process_is_says_the_kernel(tree: Tree) -> None:
    assert processes.is_roots(os.getpid()) is (os.geteuid() == 0)
    tree.directory("/proc/7")
    assert processes.is_roots(7, str(tree.root)), "it belongs to whom the tree does"
    assert not processes.is_roots(8, str(tree.root)), "it is gone"
