"""One host's part in the collectives of several: how it joins, what NCCL tells of its network, what a host is for it, and how it is judged.

The programs themselves run for real in tests/measured/test_fabric_load.py. All figures here are made up (`assumed`); where the shape of a
line is from is said beside it.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_host as facts
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_load as load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_load_judge as judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework import HEAD, MARK, NOBODY, told_in
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_programs import PROGRAMS
from ansible_collections.gpuwright.node.plugins.modules import fabric_load
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module

#: An interpreter that every user may run.
PYTHON = "/usr/bin/python3"
FIXTURES = Path(__file__).parent / "fixtures"
MIB = 1 << 20
GROUP = load.Group("10.0.0.1", 29411, 0, 8, 16, 60, "eth0")
SECOND = GROUP._replace(first_rank=8)
BEGUN: list[dict[str, Any]] = [
    {"step": "start"},
    {"step": "import", "version": "2.9.0+cu128", "cuda": "12.8"},
    {"step": "device", "name": "NVIDIA H100 80GB HBM3", "count": 8},
    {"step": "begin", "part": "group"},
]
CAME: list[dict[str, Any]] = [
    {"step": "group", "ranks": 16, "backend": "nccl", "nccl": [2, 21, 5]},
    {"step": "begin", "part": "meet"},
    {"step": "done", "part": "meet"},
    {"step": "begin", "part": "collectives"},
]
DONE: list[dict[str, Any]] = [{"step": "done", "part": "collectives"}, {"step": "end"}]
IB: load.Network = {"kind": "ib", "interfaces": ["eth0"], "adapters": ["mlx5_0:1"], "gpu_direct": True}
SOCKET: load.Network = {"kind": "socket", "interfaces": ["eth0"], "adapters": [], "gpu_direct": False}


def told(*steps: dict[str, Any], rc: int | None = 0, err: str = "", error: str | None = None) -> run.Result:
    lines = [MARK + json.dumps(step) for step in [*BEGUN, *steps]]
    return run.Result(rc, "\n".join(["a warning", *lines]), err, 9.0, error)


def collective(kind: str = "all_reduce", size: int = 4096 * MIB, **changes: Any) -> dict[str, Any]:
    return {
        "step": "collective",
        "kind": kind,
        "bytes": size,
        "seconds": size / 190e9,
        "repeats": 20,
        "right": True,
    } | changes


def port(name: str = "mlx5_0", **changes: Any) -> facts.Port:
    row: Any = {
        "name": name,
        "port": 1,
        "model": "MT4129",
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbit": 400.0,
    }
    merged: facts.Port = row | changes
    return merged


def host(**changes: Any) -> facts.FabricHost:
    row: Any = {
        "interface": {"name": "eth0", "mtu": 1500, "speed_mbit": 100000, "state": "up"},
        "adapters": [port(), port("mlx5_1")],
        "devices": 10,
        "virtual": False,
        "memlock_bytes": None,
        "peermem": True,
        "iommu": {"on": True, "passthrough": True},
        "acs": [],
        "settings": {},
        "socket_interface_missing": False,
        "firewall": [],
    }
    merged: facts.FabricHost = row | changes
    return merged


def judged(
    answer: run.Result,
    group: load.Group = GROUP,
    network: load.Network = IB,
    of: facts.FabricHost | None = None,
    on_card: bool = True,
) -> dict[str, Check]:
    found = judge.judge(group, answer, network, of or host(), on_card)
    assert all(set(check) == set(checks.KEYS) for check in found)
    assert len({check["id"] for check in found}) == len(found)
    return {check["id"]: check for check in found}


def on_host(**changes: Any) -> dict[str, Check]:
    return {check["id"]: check for check in judge.judge_host(host(**changes))}


GOOD = told(*CAME, collective(size=MIB), collective(), collective("all_gather"), *DONE)


# --- what NCCL tells --------------------------------------------------------------------------------------------------

# https://github.com/NVIDIA/nccl-tests/issues/185 (2.19.3, the line of NET/IB and of the chosen network), https://github.com/siderolabs/docs/issues/566
# (channels); the names are own ones.
ROCE = """node-b:4711:4711 [0] NCCL INFO Bootstrap : Using ens9:10.1.0.7<0>
node-b:4711:4711 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation
node-b:4711:4790 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB ens9:10.1.0.7<0>
node-b:4711:4790 [0] NCCL INFO Using network IB
node-b:4711:4790 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
node-b:4711:4790 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/1(3)/GDRDMA(PCI)/Shared
"""
# https://github.com/Mellanox/nv_peer_memory/issues/56 (2.5.6; without GPUDirect RDMA).
INFINIBAND = """node-a:24570:24907 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.7.1<0>
node-a:24570:24907 [0] NCCL INFO Ring 00 : 3 -> 4 [send] via NET/IB/0
"""
# https://github.com/NVIDIA/nccl/issues/226 (sockets of 2.4), the chosen network as 2.22 writes it.
SOCKETS = """node-a:45361:45361 [0] NCCL INFO NET/IB : No device found.
node-a:45361:45361 [0] NCCL INFO NET/Socket : Using [0]ens3:172.31.0.9<0> [1]ens4:172.31.1.9<0>
node-a:45361:45361 [0] NCCL INFO Using network Socket
node-a:45361:45361 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
"""
# https://github.com/NVIDIA/nccl/issues/1597 (aws-ofi-nccl), https://github.com/aws/aws-ofi-nccl/issues/24 (the connection).
LIBFABRIC = """node-a:6831:6840 [0] NCCL INFO NET/OFI Selected Provider is efa (found 16 nics)
node-a:6831:6840 [0] NCCL INFO Using network AWS Libfabric
node-a:6831:6840 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
"""
# Two ports as one: src/transport/net_ib.cc of NCCL 2.19 and newer.
MERGED = """node-a:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>
node-a:1:2 [0] NCCL INFO Using network IB
"""


@pytest.mark.parametrize(
    ("log", "kind", "interfaces", "adapters", "direct"),
    [
        (ROCE, "roce", ["ens9"], ["mlx5_2:1", "mlx5_3:1"], True),
        (INFINIBAND, "ib", ["ib0"], ["mlx5_0:1"], False),
        (SOCKETS, "socket", ["ens3", "ens4"], [], False),
        (LIBFABRIC, "plugin", [], [], True),
        (MERGED, "roce", ["eth0"], ["mlx5_0:1", "mlx5_1:1"], None),
        # The plugin of HPC-X counts as InfiniBand: https://github.com/NVIDIA/nccl/issues/952.
        (INFINIBAND.replace("NET/IB/0", "NET/IBext_v8/0"), "ib", ["ib0"], ["mlx5_0:1"], False),
        (SOCKETS.replace("Using network", "Using net").replace("via NET", "via"), "socket", ["ens3", "ens4"], [], None),
        (LIBFABRIC.splitlines()[0], "plugin", [], [], None),
        # What was used counts, whatever was found.
        (ROCE.replace("via NET/IB/0", "via NET/Socket/0"), "socket", ["ens9"], [], True),
        ("node:1:1 [0] NCCL INFO Channel 00/08 : 0[0] -> 1[1] via P2P/CUMEM", None, [], [], None),
        ("", None, [], [], None),
    ],
)
def test_the_network_is_the_one_that_nccl_used(
    log: str, kind: str | None, interfaces: list[str], adapters: list[str], direct: bool | None
) -> None:
    found = load.network_of(log)
    assert (found["kind"], found["interfaces"], found["adapters"]) == (kind, interfaces, adapters)
    assert found["gpu_direct"] == direct


def test_one_connection_through_the_hosts_memory_is_no_gpudirect() -> None:
    assert load.network_of(ROCE.replace("/1(3)/GDRDMA(PCI)", "/1(3)"))["gpu_direct"] is False


def test_the_adapter_that_carries_tells_the_kind() -> None:
    log = INFINIBAND.replace("[0]mlx5_0:1/IB", "[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE")
    assert load.network_of(log)["kind"] == "ib"
    assert load.network_of(log.replace("NET/IB/0", "NET/IB/1"))["kind"] == "roce"


@pytest.mark.parametrize(
    "log",
    [
        "NET/IB : Using " + "[0]" * 99999,
        "via NET/" * 99999,
        "NET/IB : Using [0]={" * 50000,
        "\x00\x1b[2J" * 1000,
        ROCE * 300,
    ],
)
def test_a_log_that_is_none_or_endless_is_read_soon(log: str) -> None:
    begun = time.monotonic()
    assert set(load.network_of(log)) == set(load.NO_NETWORK)
    assert time.monotonic() - begun < 5


# --- how it is run ----------------------------------------------------------------------------------------------------


class Recorder:
    """Keeps what was run, writes what NCCL would, and answers what it was told to."""

    def __init__(self, *answers: run.Result, log: str = "") -> None:
        self.answers = list(answers)
        self.log = log
        self.calls: list[dict[str, Any]] = []

    def __call__(self, argv: Any, timeout: float, env: Any = None) -> run.Result:
        self.calls.append({"argv": argv, "timeout": timeout, "env": env or {}})
        if "NCCL_DEBUG_FILE" in self.calls[-1]["env"]:
            Path(self.calls[-1]["env"]["NCCL_DEBUG_FILE"].replace("%p", "12")).write_text(self.log, encoding="utf-8")
        return self.answers.pop(0)

    def settings(self, number: int) -> Any:
        return json.loads(self.calls[number]["argv"][-1])


CARDS = [framework_load.Device(f"GPU-{number}", str(number), "b", "card", "H100", number) for number in range(8)]


def test_a_host_starts_its_own_ranks_of_the_group() -> None:
    recorder = Recorder(GOOD, log=ROCE)
    answer, log = load.ask("/e/bin/python", SECOND, 10, CARDS, recorder)
    settings, environment = recorder.settings(0), recorder.calls[0]["env"]
    assert (settings["first_rank"], settings["here"], settings["ranks"]) == (8, 8, 16)
    assert (settings["init_method"], settings["patience"]) == ("tcp://10.0.0.1:29411", 60)
    assert settings["devices"].count("GPU-") == 8
    assert settings["parts"] == ["meet", "collectives"]
    assert (environment["NCCL_SOCKET_IFNAME"], environment["GLOO_SOCKET_IFNAME"]) == ("=eth0", "eth0")
    assert (environment["NCCL_DEBUG"], environment["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    assert (answer, log) == (GOOD, ROCE)
    # The directory of the log goes.
    assert not Path(environment["NCCL_DEBUG_FILE"]).parent.exists()
    assert recorder.calls[0]["timeout"] == load.STARTUP + 60 + 2 * 10 + 15


def test_without_an_interface_nccl_and_gloo_choose() -> None:
    environment = load.environment_for(None, "/t")
    assert "NCCL_SOCKET_IFNAME" not in environment
    assert "GLOO_SOCKET_IFNAME" not in environment


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    recorder = Recorder(GOOD)
    load.ask("/e/bin/python", GROUP._replace(address="fd00::1"), 1, [], recorder)
    assert recorder.settings(0)["init_method"] == "tcp://[fd00::1]:29411"
    assert recorder.settings(0)["reach"] == ["fd00::1", 29411]


def test_what_hangs_ends_at_its_limit_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
import json, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
print("child", child.pid)
for step in {[*BEGUN]!r}:
    print({MARK!r} + json.dumps(step), flush=True)
time.sleep(300)
"""
    monkeypatch.setitem(PROGRAMS, "ranks", text)
    monkeypatch.setattr(load, "limit", lambda group, seconds: 6.0)
    begun = time.monotonic()
    answer, _log = load.ask(PYTHON, GROUP, 1, [])
    assert time.monotonic() - begun < 25
    check = judged(answer)["fabric.joined"]
    assert check["status"] == "fail"
    assert "did not answer within 6 s" in str(check["evidence"])
    assert ended(int(answer.out.split("child ", 1)[1].split()[0]))


def ended(pid: int) -> bool:
    """Whether a process is gone, or will be within seconds."""
    stat = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.05)
    return not stat.exists() or " Z " in stat.read_text()


# --- whose the ranks are ----------------------------------------------------------------------------------------------


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


def ranks(
    monkeypatch: pytest.MonkeyPatch, text: str, devices: Sequence[framework_load.Device] = ()
) -> tuple[run.Result, str]:
    """What becomes of ranks that do something else than PyTorch's would."""
    monkeypatch.setitem(PROGRAMS, "ranks", HEAD + text)
    return load.ask(PYTHON, GROUP, 1, devices)


#: Takes the limit of memory away that adapters need, which root may in most places.
_ANY = "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))"


@pytest.mark.usefixtures("root")
def test_ranks_that_root_starts_are_an_ordinary_users_with_a_directory_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, log = ranks(
        monkeypatch,
        """
import pwd, resource
place = os.environ["HOME"]
open(os.environ["NCCL_DEBUG_FILE"].replace("%p", "1"), "w").write("what NCCL wrote")
say("found", ids=os.getresuid() + os.getresgid(), groups=os.getgroups(), at=os.getcwd(), scratch=os.environ["TMPDIR"] == place,
    mode=oct(os.stat(place).st_mode & 0o777), lock=resource.getrlimit(resource.RLIMIT_MEMLOCK))
""",
    )
    assert answer.rc == 0, answer.err
    may = subprocess.run([PYTHON, "-c", _ANY], capture_output=True, check=False).returncode == 0
    lock = (resource.RLIM_INFINITY,) * 2 if may else resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = next(step for step in told_in(answer.out) if step["step"] == "found")
    assert found == {
        "step": "found",
        "ids": [NOBODY] * 6,
        "groups": [],
        "at": "/",
        "scratch": True,
        "mode": "0o700",
        "lock": list(lock),
    }
    assert log == "what NCCL wrote"


@pytest.mark.usefixtures("root")
def test_a_device_that_is_closed_to_users_is_named_and_root_takes_no_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    for name in ("closed/uverbs0", "nvidia0", "nvidiactl"):
        (tmp_path / name).touch(0o666)
        (tmp_path / name).chmod(0o660 if name == "nvidia0" else 0o666)
    patterns = [f"{tmp_path}/{name}" for name in ("nvidia[0-9]*", "closed/uverbs*", "absent*")]
    monkeypatch.setattr(framework_load, "_DEVICES", patterns)
    answer, _log = ranks(monkeypatch, "say('start')", CARDS)
    assert "start" not in answer.out
    check = judged(answer)["fabric.runs"]
    assert (check["status"], check["evidence"]) == ("incomplete", f"{tmp_path}/nvidia0, {tmp_path}/closed/uverbs0")
    assert "chmod o+rw" in str(check["remedy"])


@pytest.mark.usefixtures("root")
def test_an_interpreter_that_is_closed_to_users_is_said(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(PYTHON)
    tmp_path.chmod(0o700)
    answer, _log = load.ask(str(python), GROUP, 1, [])
    check = judged(answer)["fabric.runs"]
    assert (check["status"], check["reason"]) == (
        "incomplete",
        "an ordinary user cannot run the environment's interpreter",
    )
    assert "Permission denied" in str(check["evidence"])


def test_what_a_rank_lays_in_the_place_of_a_log_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame")
    place = 'os.environ["HOME"]'
    _answer, log = ranks(
        monkeypatch,
        f"""
os.symlink({str(secret)!r}, {place} + "/nccl.1")
os.mkfifo({place} + "/nccl.2")
os.mkdir({place} + "/nccl.3")
open({place} + "/nccl.4", "w").write("what NCCL wrote")
""",
    )
    assert log.split() == ["what", "NCCL", "wrote"]


def test_ranks_end_with_who_started_them_though_they_are_another_users() -> None:
    text = """
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_load, framework_load
framework_load.PROGRAMS["ranks"] = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
fabric_load.ask(%r, fabric_load.Group("::1", 1, 0, 1, 2, 300, None), 1, [], lambda argv, timeout, env: subprocess.call(argv))
"""
    child = subprocess.Popen([sys.executable, "-c", "import subprocess" + text % PYTHON], stdout=subprocess.PIPE)
    assert child.stdout
    pid = 0
    for line in child.stdout:
        if line.strip().isdigit():
            pid = int(line)
            break
    assert Path(f"/proc/{pid}/stat").exists()
    child.kill()
    child.wait()
    assert ended(pid)


# --- judging ----------------------------------------------------------------------------------------------------------


def test_a_group_that_came_together_passes_and_its_figures_are_told() -> None:
    found = judged(GOOD)
    assert {key: each["status"] for key, each in found.items()} == {
        "fabric.runs": "pass",
        "fabric.joined": "pass",
        "fabric.results": "pass",
        "fabric.all_reduce": "skip",
        "fabric.all_gather": "skip",
        "fabric.network": "pass",
        "fabric.adapters": "pass",
        "fabric.mtu": "skip",
        "fabric.memlock": "pass",
        "fabric.iommu": "pass",
        "fabric.acs": "pass",
    }
    # The largest; 190 GB/s * 2 * 15 / 16.
    assert found["fabric.all_reduce"]["measured"] == 356.2
    assert found["fabric.all_gather"]["measured"] == 178.1
    assert "told and not judged" in str(found["fabric.all_reduce"]["reason"])
    assert "with GPUDirect RDMA" in str(found["fabric.network"]["reason"])


def test_figures_are_told_by_the_first_host_alone() -> None:
    found = judged(told(*CAME, *DONE), SECOND)
    assert {found[f"fabric.{name}"]["status"] for name in ("results", "all_reduce", "all_gather")} == {"skip"}
    assert found["fabric.joined"]["status"] == "pass"
    found = judged(told(*CAME, *DONE))
    assert {found[f"fabric.{name}"]["status"] for name in ("results", "all_reduce", "all_gather")} == {"incomplete"}


def test_a_wrong_sum_fails() -> None:
    check = judged(told(*CAME, collective(right=False), collective("all_gather"), *DONE))["fabric.results"]
    assert (check["status"], check["severity"], check["measured"]) == ("fail", "critical", 1)
    assert "all_reduce" in str(check["reason"])


def test_a_group_of_another_size_fails() -> None:
    steps = [{**CAME[0], "ranks": 2}, *CAME[1:], *DONE]
    assert judged(told(*steps))["fabric.joined"]["status"] == "fail"


# As PyTorch 2.13 told it (measured on the processor).
MISSING = "DistStoreError: Timed out after 61 seconds waiting for clients. 8/16 clients joined."
CALLS = (
    "\nException raised from waitForWorkers at /pytorch/x.cpp:1 (most recent call first):\nframe #0: c10::Error::Error"
)


def broke(part: str, error: str, *before: dict[str, Any]) -> run.Result:
    steps = [*before, {"step": "broken", "part": part, "error": error}, {"step": "rank", "rank": 0, "status": 1}]
    return told(*steps, rc=1, err="Traceback")


def test_hosts_that_do_not_come_are_said_in_the_words_of_pytorch() -> None:
    found = judged(broke("group", MISSING + CALLS))
    check = found["fabric.joined"]
    assert (check["status"], check["severity"], check["evidence"]) == ("fail", "critical", MISSING)
    assert "did not come together" in str(check["reason"])
    assert {found[f"fabric.{name}"]["status"] for name in ("results", "all_reduce", "all_gather")} == {"incomplete"}
    assert found["fabric.adapters"]["status"] == "pass"


def test_a_group_that_breaks_is_no_pass() -> None:
    check = judged(broke("collectives", "RuntimeError: Connection closed by peer [10.0.0.2]:7", *CAME))["fabric.joined"]
    assert (check["status"], check["reason"]) == ("fail", "the group broke while it was measured")
    assert "Connection closed by peer" in str(check["evidence"])


@pytest.mark.parametrize(("status", "words"), [(-9, "rank 3 was killed by signal 9"), (-6, "watchdog")])
def test_a_rank_that_was_killed_is_said_unless_it_ended_itself(status: int, words: str) -> None:
    steps: list[dict[str, Any]] = [
        *CAME,
        {"step": "broken", "part": "collectives", "error": "RuntimeError: watchdog"},
        {"step": "rank", "rank": 3, "status": status},
    ]
    assert words in str(judged(told(*steps, rc=1))["fabric.joined"]["evidence"])


def test_want_of_memory_is_no_fault_of_the_network() -> None:
    check = judged(broke("collectives", "OutOfMemoryError: CUDA out of memory.", *CAME))["fabric.joined"]
    assert (check["status"], check["action"]) == ("incomplete", "restart_app")


def reached(how: str) -> dict[str, Any]:
    return {"step": "reach", "how": how, "error": "OSError: x"}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("refused", "10.0.0.1:29411 was refused"),
        ("timed out", "did not answer in time"),
        ("no route", "no route there"),
        ("unknown name", "a name that this host does not know"),
        ("connected", "answers: what is between the hosts beside that port"),
    ],
)
def test_an_address_that_cannot_be_reached_is_told_apart(how: str, words: str) -> None:
    answer = broke("group", "ConnectionRefusedError: x", reached("timed out"), reached(how))
    remedy = str(judged(answer, SECOND)["fabric.joined"]["remedy"])
    assert words in remedy
    assert remedy.count("10.0.0.1:29411") == 1


def test_what_of_the_host_can_be_the_reason_is_named_in_order() -> None:
    of = host(
        firewall=["ufw"],
        settings={"NCCL_SOCKET_IFNAME": "ib", "NCCL_IB_DISABLE": "1"},
        socket_interface_missing=True,
        interface={"name": "eth0", "mtu": 9000, "speed_mbit": None, "state": "down"},
    )
    remedy = str(judged(broke("group", "x", reached("timed out")), SECOND, of=of)["fabric.joined"]["remedy"])
    words = [
        "ufw is active on this host",
        "did not answer in time",
        "NCCL_SOCKET_IFNAME=ib",
        "NCCL_IB_DISABLE is set",
        "eth0 is down",
        "MTU of eth0 is 9000",
        "ping -M do -s 8972",
        "the other hosts",
    ]
    places = [remedy.index(word) for word in words]
    assert places == sorted(places)
    healthy = str(judged(broke("group", "x"), of=host(settings={"NCCL_IB_DISABLE": "0"}))["fabric.joined"]["remedy"])
    assert healthy.startswith("See the same check")


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (run.Result(1, "", "No such file or directory: '/e/bin/python'", 0.1, None), "incomplete", "interpreter"),
        (run.Result(0, "", "", 0.1, None), "incomplete", "interpreter"),
        (run.Result(-9, MARK + '{"step": "start"}', "Killed", 0.1, None), "fail", "signal 9"),
    ],
)
def test_ranks_that_did_not_begin_are_no_pass(answer: run.Result, status: str, words: str) -> None:
    found = judged(answer)
    assert (found["fabric.runs"]["status"], "fabric.joined" in found) == (status, False)
    assert words in str(found["fabric.runs"]["reason"])


def test_sockets_beside_an_adapter_that_is_ready_warn_with_the_reason() -> None:
    of = host(settings={"NCCL_IB_DISABLE": "1"}, memlock_bytes=65536, peermem=False)
    check = judged(GOOD, network=SOCKET, of=of)["fabric.network"]
    assert (check["status"], check["measured"]) == ("warn", "socket")
    for word in ("mlx5_0:1", "NCCL_IB_DISABLE", "65536", "nvidia_peermem"):
        assert word in str(check["reason"])
    down = [port(state="DOWN", phys_state="Polling")]
    assert judged(GOOD, network=SOCKET, of=host(adapters=down))["fabric.network"]["status"] == "pass"
    assert judged(GOOD, network=SOCKET, of=host(adapters=[]))["fabric.network"]["status"] == "pass"


def test_a_network_that_is_not_recognised_is_incomplete_and_gloo_is_none() -> None:
    assert judged(GOOD, network=load.NO_NETWORK)["fabric.network"]["status"] == "incomplete"
    assert judged(GOOD, network=load.NO_NETWORK, on_card=False)["fabric.network"]["status"] == "skip"


# --- judging the host -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ports", "status", "words"),
    [
        ([], "skip", "no adapter"),
        ([port(state="INIT")], "fail", "mlx5_0:1 has a link and is not active"),
        ([port(), port("mlx5_1", state="ARMED")], "fail", "mlx5_1:1"),
        ([port(), port("mlx5_1", state="DOWN", phys_state="Polling")], "warn", "mlx5_1:1 has no link"),
        ([port(), port("mlx5_1", state="DOWN", phys_state="Disabled")], "warn", "mlx5_1:1 has no link"),
        ([port(), port("mlx5_1", rate_gbit=200.0)], "warn", "mlx5_1:1 is slower"),
        # A card for storage is no equal of one for the cards.
        ([port(), port("mlx5_1", rate_gbit=100.0, model="MT4125")], "pass", "active"),
        ([port(), port("mlx5_1", rate_gbit=100.0, link_layer="Ethernet")], "pass", "active"),
        ([port(state=None)], "incomplete", "could not be read"),
        ([port(), port("mlx5_1", state=None)], "incomplete", "mlx5_1:1"),
        ([port(rate_gbit=None), port("mlx5_1")], "pass", "active"),
    ],
)
def test_adapters_are_active_and_as_fast_as_their_equals(ports: list[facts.Port], status: str, words: str) -> None:
    check = on_host(adapters=ports)["fabric.adapters"]
    assert check["status"] == status
    assert words in str(check["reason"])


def test_locked_memory_needs_no_limit_where_there_is_an_adapter() -> None:
    check = on_host(memlock_bytes=65536)["fabric.memlock"]
    assert (check["status"], check["measured"], check["unit"]) == ("warn", 65536, "bytes")
    assert on_host(memlock_bytes=65536, adapters=[])["fabric.memlock"]["status"] == "skip"


@pytest.mark.parametrize(
    ("on", "passthrough", "status"),
    [(False, False, "pass"), (True, True, "pass"), (True, False, "warn"), (True, None, "incomplete")],
)
def test_an_iommu_lets_the_cards_pass(on: bool, passthrough: bool | None, status: str) -> None:
    assert on_host(iommu={"on": on, "passthrough": passthrough})["fabric.iommu"]["status"] == status


@pytest.mark.parametrize(("acs", "status"), [([], "pass"), (["0000:00:01.0"], "warn"), (None, "incomplete")])
def test_bridges_do_not_redirect(acs: list[str] | None, status: str) -> None:
    assert on_host(acs=acs)["fabric.acs"]["status"] == status


def test_one_card_or_a_virtual_machine_has_nothing_to_redirect() -> None:
    for changes in ({"devices": 1}, {"virtual": True}):
        found = on_host(acs=["0000:00:01.0"], iommu={"on": True, "passthrough": False}, **changes)
        assert (found["fabric.acs"]["status"], found["fabric.iommu"]["status"]) == ("skip", "skip")


def test_the_mtu_is_told_and_an_unknown_one_is_incomplete() -> None:
    assert (on_host()["fabric.mtu"]["status"], on_host()["fabric.mtu"]["measured"]) == ("skip", 1500)
    assert on_host(interface=None)["fabric.mtu"]["status"] == "incomplete"


# --- the facts of the host --------------------------------------------------------------------------------------------


def tree(root: Path, files: dict[str, str | bytes], links: dict[str, str] | None = None) -> Host:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode() + b"\n")
    for path, target in (links or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    return Host(str(root), machine="x86_64", euid=0)


def config(control: int | None, size: int = 4096, at: int = 0x148) -> bytes:
    """A configuration space with AER (1) at 0x100 and ACS (0xd) behind it (include/uapi/linux/pci_regs.h)."""
    space = bytearray(size)
    if size > 0x100:
        struct.pack_into("<I", space, 0x100, 1 | 1 << 16 | (0 if control is None else at << 20))
    if control is not None and at + 8 <= size:
        struct.pack_into("<IHH", space, at, 0xD | 1 << 16, 0x5F, control)
    return bytes(space)


BUS = "sys/devices/pci0000:00"
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, "System configuration".
CONF = """# of the cluster
NCCL_IB_HCA=mlx5
NCCL_SOCKET_IFNAME=ens,=x
NCCL_TOKEN=a b
NOT_NCCL=1
NCCL_DEBUG=$HOME/\x1b[2J"""


def machine(root: Path, bridge: bytes, **more: str) -> Host:
    """A card and an adapter below one bridge."""
    card, adapter = (f"{BUS}/0000:00:01.0/0000:0{number}:00.0" for number in (1, 2))
    # As the samples of ibstat and nvidia-smi have them in other words; layouts of sysfs by its own documentation.
    files: dict[str, str | bytes] = {
        f"{BUS}/0000:00:01.0/config": bridge,
        f"{card}/vendor": "0x10de",
        f"{card}/class": "0x030200",
        f"{card}/iommu_group/type": "DMA",
        f"{adapter}/vendor": "0x15b3",
        f"{adapter}/class": "0x020700",
        f"{adapter}/infiniband/mlx5_0/hca_type": "MT4129",
        f"{adapter}/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        f"{adapter}/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp",
        f"{adapter}/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        f"{adapter}/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        "sys/class/iommu/dmar0/x": "",
        "sys/class/net/eth0/mtu": "9000",
        "sys/class/net/eth0/speed": "-1",
        "sys/class/net/eth0/operstate": "up",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz quiet",
        "proc/cpuinfo": "processor : 0\nflags : fpu vme",
        "etc/nccl.conf": CONF,
        **more,
    }
    links = {
        "sys/bus/pci/devices/0000:00:01.0": f"/{BUS}/0000:00:01.0",
        "sys/bus/pci/devices/0000:01:00.0": f"/{card}",
        "sys/bus/pci/devices/0000:02:00.0": f"/{adapter}",
        "sys/class/infiniband/mlx5_0": f"/{adapter}/infiniband/mlx5_0",
        f"{adapter}/infiniband/mlx5_0/device": f"/{adapter}",
    }
    return tree(root, files, links)


def test_a_host_is_seen_as_it_is(tmp_path: Path) -> None:
    found = facts.look(machine(tmp_path, config(0x1D)), "eth0", ["ufw"], 65536)
    assert found == {
        "interface": {"name": "eth0", "mtu": 9000, "speed_mbit": None, "state": "up"},
        "adapters": [port()],
        "devices": 2,
        "virtual": False,
        "memlock_bytes": 65536,
        "peermem": False,
        "iommu": {"on": True, "passthrough": False},
        "acs": ["0000:00:01.0"],
        # What has other characters than a setting has is left out.
        "settings": {"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "ens,=x"},
        "socket_interface_missing": True,
        "firewall": ["ufw"],
    }


@pytest.mark.parametrize(
    ("space", "redirects"),
    [
        (config(0x1D), True),
        (config(0x04), True),
        (config(0x19), False),
        (config(None), False),
        (config(0x1D, at=0xFF8), True),
        # What an ordinary user is given, and a device without extended capabilities.
        (config(0x1D)[:64], None),
        (b"", None),
        (None, None),
        (config(None, size=256), False),
        # Cut off before it, a device that fell off the bus, a chain that leads in a circle or back.
        (config(0x1D)[:0x148], None),
        (b"\xff" * 4096, None),
        (config(None)[:0x100] + struct.pack("<I", 1 | 0x100 << 20) + bytes(3000), None),
        (config(0x1D, at=0x40), False),
    ],
)
def test_the_control_of_acs_is_read_from_the_configuration_space(space: bytes | None, redirects: bool | None) -> None:
    assert facts.redirects(space) is redirects


def test_a_bridge_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    here = machine(tmp_path, config(0x1D)[:64])
    assert facts.redirecting(here, facts.devices(here)) is None
    assert facts.bridges(here, facts.devices(here)) == ["0000:00:01.0"]


def test_an_iommu_is_read_of_the_groups_then_of_the_kernels_arguments(tmp_path: Path) -> None:
    here = machine(tmp_path, b"")
    assert facts.iommu(here, ["0000:01:00.0"]) == {"on": True, "passthrough": False}
    (tmp_path / BUS / "0000:00:01.0/0000:01:00.0/iommu_group/type").write_text("identity\n")
    assert facts.iommu(here, ["0000:01:00.0"]) == {"on": True, "passthrough": True}
    assert facts.iommu(here, []) == {"on": True, "passthrough": False}
    (tmp_path / "proc/cmdline").write_text("quiet intel_iommu=on iommu=pt\n")
    assert facts.iommu(here, []) == {"on": True, "passthrough": True}
    (tmp_path / "proc/cmdline").unlink()
    assert facts.iommu(here, []) == {"on": True, "passthrough": None}
    assert facts.iommu(tree(tmp_path / "other", {"proc/cmdline": "quiet"}), []) == {"on": False, "passthrough": False}


def test_a_virtual_machine_says_so(tmp_path: Path) -> None:
    assert facts.is_virtual(tree(tmp_path, {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor lahf_lm"}))
    assert not facts.is_virtual(tree(tmp_path / "b", {"proc/cpuinfo": "model name : hypervisor"}))


HOSTILE = ["", "-1", "1e999", "nan", "9" * 5000, "\x1b[2J", "99: \x00", "0x10", "ACTIVE", "4: " + "A" * 9999, "٣"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_the_kernel_cannot_say_is_none_and_passes_the_gate(tmp_path: Path, text: str) -> None:
    place = f"{BUS}/0000:00:01.0/0000:02:00.0/infiniband/mlx5_0"
    names = ["hca_type", "ports/1/state", "ports/1/phys_state", "ports/1/rate", "ports/1/link_layer"]
    more = {f"{place}/{name}": text for name in names}
    more.update({f"sys/class/net/eth0/{name}": text for name in ("mtu", "speed", "operstate")})
    here = machine(tmp_path, text.encode(), **more, **{"proc/cmdline": text, "etc/nccl.conf": text})
    found = facts.look(here, "eth0", None, None)
    assert found["adapters"][0]["rate_gbit"] is None
    assert found["interface"] is not None
    assert found["interface"]["mtu"] is None
    listed = judge.judge_host(found)
    assert "pass" not in {check["status"] for check in listed if check["id"] in ("fabric.adapters", "fabric.mtu")}
    answer = {"devices": [], "group": {}, "collectives": [], "network": load.NO_NETWORK, "host": found, "seconds": 0.1}
    said = json.dumps({**answer, "checks": listed, "verdict": "incomplete", "changed": False}, allow_nan=False)
    assert json.loads(gate.admit("fabric_load", said))["host"]["devices"] == 2


@pytest.mark.parametrize("name", ["../x", "a b", "\x1b", "", "eth9"])
def test_what_is_no_interface_is_none(tmp_path: Path, name: str) -> None:
    assert facts.interface_of(machine(tmp_path, b""), name) is None


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ("", False),
        ("eth", False),
        ("ib,eth", False),
        ("ib", True),
        ("=eth0", False),
        ("=eth", True),
        ("=ib0,eth1", True),
        ("^docker", False),
        (",", True),
    ],
)
def test_a_setting_that_names_no_interface_of_the_host_is_seen(value: str, missing: bool) -> None:
    assert facts.names_no_interface(value, ["eth0", "lo"]) is missing


def test_the_interface_is_the_one_with_the_address_that_the_kernel_speaks_from(tmp_path: Path) -> None:
    here = Host(str(tmp_path))
    rows = [("10.0.0.9", "eth0"), ("fe80::1", "ib0"), ("10.0.0.8", "\x1b[2J")]

    def ask(source: str | None) -> str | None:
        return facts.interface_to(here, "10.0.0.1", lambda address: source, lambda _host: rows)

    assert ask("10.0.0.9") == "eth0"
    assert ask("fe80::1%ib0") == "ib0"
    assert ask("10.9.9.9") is None
    assert ask("10.0.0.8") is None
    assert ask(None) is None


def test_the_addresses_of_this_machine_are_known() -> None:
    assert facts.interface_to(Host(), "127.0.0.1") == "lo"
    assert facts.source_of("\x00") is None
    lines = "00000000000000000000000000000001 01 80 10 80       lo\nx y\n" + "f" * 31 + "g 01 40 20 80 eth0\n"
    assert facts._ipv6(lines) == [("::1", "lo")]


# --- the module -------------------------------------------------------------------------------------------------------


def options(**changes: Any) -> Any:
    return {
        "python": "/nonexistent/bin/python",
        "address": "127.0.0.1",
        "port": 29411,
        "first_rank": 0,
        "ranks": 16,
        "expected_ranks": 8,
        "cards": [],
        "seconds": 1,
        "patience": 1,
        "interface": "",
        "busy": True,
        "expect_cuda": True,
        "executable": "nvidia-smi",
    } | changes


def smi_says(name: str = "h100_580.xml") -> run.Result:
    return run.Result(0, (FIXTURES / name).read_text(encoding="utf-8"), "", 0.3, None)


def number_of_cards() -> int:
    return smi_says().out.count("<gpu id=")


def test_the_cards_join_and_the_answer_passes_the_gate() -> None:
    cards = number_of_cards()
    recorder = Recorder(smi_says(), GOOD, log=ROCE)
    answer: Any = fabric_load.prove(options(expected_ranks=cards), runner=recorder)
    assert recorder.settings(1)["here"] == cards
    assert recorder.calls[1]["env"]["NCCL_SOCKET_IFNAME"] == "=lo"
    assert len(answer["devices"]) == cards
    assert (answer["version"], answer["group"]) == ("2.9.0+cu128", {"ranks": 16, "backend": "nccl"})
    assert answer["network"]["kind"] == "roce"
    assert answer["host"]["interface"]["name"] == "lo"
    assert len(answer["collectives"]) == 3
    said = {**checks.with_verdict(answer), "changed": False}
    assert json.loads(gate.admit("fabric_load", json.dumps(said)))["network"] == answer["network"]


def test_a_host_with_another_number_of_cards_does_not_join() -> None:
    recorder = Recorder(smi_says())
    answer: Any = fabric_load.prove(options(expected_ranks=number_of_cards() + 1), runner=recorder)
    assert len(recorder.calls) == 1
    [check] = [each for each in answer["checks"] if each["id"] == "fabric.runs"]
    assert (check["status"], check["measured"]) == ("incomplete", number_of_cards())
    assert answer["host"]["interface"]["name"] == "lo"


def test_a_host_whose_ranks_go_beyond_the_group_does_not_join() -> None:
    cards = number_of_cards()
    recorder = Recorder(smi_says())
    fabric_load.prove(options(expected_ranks=None, ranks=cards, first_rank=1), runner=recorder)
    assert len(recorder.calls) == 1


def test_cards_that_compute_for_somebody_do_not_join_unless_told() -> None:
    text = smi_says().out.replace("<processes>", "<processes><process_info><pid>7</pid><type>C</type></process_info>")
    if text == smi_says().out:
        pytest.skip("no place for processes")
    said = run.Result(0, text, "", 0.3, None)
    answer: Any = fabric_load.prove(options(busy=False, expected_ranks=None), runner=Recorder(said))
    assert {each["status"] for each in answer["checks"] if each["id"] == "fabric.runs"} == {"incomplete"}


def test_a_card_that_is_cut_into_instances_does_not_join() -> None:
    recorder = Recorder(smi_says("mig_580.xml"), GOOD)
    fabric_load.prove(options(expected_ranks=None), runner=recorder)
    asked = [json.loads(call["argv"][-1])["devices"] for call in recorder.calls[1:]]
    assert not any("MIG" in each for each in asked)


def test_nothing_joins_where_nvidia_smi_does_not_answer() -> None:
    answer: Any = fabric_load.prove(options(), runner=Recorder(run.Result(9, "", "no driver", 0.1, None)))
    assert [each["status"] for each in answer["checks"] if each["id"] == "fabric.runs"] == ["incomplete"]


def test_the_processor_joins_where_no_cards_are_expected() -> None:
    recorder = Recorder(told(*[{**CAME[0], "ranks": 2, "backend": "gloo"}, *CAME[1:]], collective(), *DONE))
    answer: Any = fabric_load.prove(options(expect_cuda=False, ranks=2, expected_ranks=None), runner=recorder)
    assert (recorder.settings(0)["card"], recorder.settings(0)["here"]) == (False, 1)
    statuses = {each["id"]: each["status"] for each in answer["checks"]}
    assert (statuses["fabric.joined"], statuses["fabric.network"]) == ("pass", "skip")


def test_an_interface_that_is_not_there_is_said() -> None:
    recorder = Recorder()
    answer: Any = fabric_load.prove(options(expect_cuda=False, interface="nosuch9"), runner=recorder)
    assert recorder.calls == []
    assert "no network interface nosuch9" in str([each["reason"] for each in answer["checks"]])


def test_root_runs_nothing_that_another_may_change(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o777)
    recorder = Recorder()
    answer: Any = fabric_load.prove(options(python=str(python)), runner=recorder)
    assert recorder.calls == []
    assert [each["status"] for each in answer["checks"] if each["id"] == "fabric.runs"] == ["incomplete"]


def right(**changes: Any) -> dict[str, Any]:
    return {
        "python": "/nonexistent/python",
        "address": "10.0.0.1",
        "port": 29411,
        "first_rank": 0,
        "ranks": 2,
    } | changes


def test_nothing_is_run_in_check_mode() -> None:
    answer = run_module(fabric_load, check=True, **right())
    assert ([each["status"] for each in answer["checks"]], answer["verdict"]) == (["skip"], "incomplete")
    assert answer["host"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"port": 0}, "port must be from 1 to 65535"),
        ({"port": 65536}, "port must be"),
        ({"ranks": 0}, "ranks must be"),
        ({"first_rank": 2}, "first_rank must be from 0 to 1"),
        ({"first_rank": 1, "expected_ranks": 2}, "expected_ranks must be from 1 to 1"),
        ({"seconds": 0}, "seconds must be"),
        ({"patience": -1}, "patience must be"),
        ({"address": "-x"}, "address must be"),
        ({"address": "a b"}, "address must be"),
        ({"address": "10.0.0.1/../x"}, "address must be"),
        ({"interface": "../eth0"}, "interface must be"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], words: str) -> None:
    answer = run_module(fabric_load, **right(**changes))
    assert answer["failed"]
    assert words in answer["msg"]


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "::1", "node-1.cluster.example"])
def test_addresses_and_names_are_taken(address: str) -> None:
    assert not run_module(fabric_load, check=True, **right(address=address)).get("failed")


@pytest.mark.parametrize(
    "key", ["ranks", "backend", "how", "kind", "bytes", "seconds", "right", "rank", "status", "error"]
)
def test_no_fact_that_cannot_be_makes_the_judge_stumble_or_pass(key: str) -> None:
    values: list[Any] = [None, True, "1", [], {}, -1, 0, 1e999, float("nan"), 10**400, "\x1b[2J"]
    steps = [reached("refused"), *CAME, collective(), {"step": "rank", "rank": 0, "status": -9}]
    broken = [*steps, {"step": "broken", "part": "group", "error": "x"}]
    for value in values:
        for chosen in ([*steps, *DONE], broken):
            answer = told(*[{**step, key: value} if key in step else step for step in chosen])
            found = judged(answer)
            json.dumps([found, framework_load.collectives_of(framework_load.steps_of(answer.out))], allow_nan=False)
            if key in ("kind", "bytes", "seconds", "right") and chosen is not broken and value is not True:
                assert found["fabric.results"]["status"] != "pass"


def test_the_module_looks_at_the_host_of_this_process() -> None:
    found = fabric_load.look_at_host(Host(), None)
    assert found["interface"] is None
    assert found["memlock_bytes"] is None or found["memlock_bytes"] >= 0
