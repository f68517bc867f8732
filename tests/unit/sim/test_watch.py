"""The program of a node that watches itself (watch): against the tree of a machine, a stand-in nvidia-smi and a real web server."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log
from ansible_collections.gpuwright.node.plugins.module_utils.observe import machine
from ansible_collections.gpuwright.node.plugins.module_utils.records import run_lock, sealing, seals
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.module_utils.watch import metrics, nvlink, record, tell
from ansible_collections.gpuwright.node.plugins.module_utils.watch import program as watching
from ansible_collections.gpuwright.node.plugins.module_utils.watch import settings as wished
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.watch import apply as watch
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.watch.resolve import choose
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.metrics import WATCH
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.sim import receivers
from tests.unit.observe.trees import Tree
from tests.unit.plan import nodes

FIXTURES = Path(__file__).resolve().parents[1] / "prove/fixtures"
DRIVER = "580.95.05"
BOOT = "0a1b2c3d-0000-4000-8000-000000000001"
PROC = (
    f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build\n"
    "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n"
)
HANGS = Result(None, "", "", 20.0, "nvidia-smi did not answer within 20 s")
LOADED = "[    5.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
XID_79 = "[  900.2] NVRM: Xid (PCI:0000:1b:00): 79, pid=812, name=python3, GPU has fallen off the bus."
PLACES = ("0000:1b:00.0", "0000:43:00.0")


class LiveTree(Host):
    """The tree of a machine, taken for the running one: its programs are asked, and answered for by stand-ins."""

    def __init__(self, root: Path, runner: Callable[..., Result]) -> None:
        super().__init__(root=str(root), runner=runner, machine="x86_64", euid=0)
        self.live = True

    def realpath(self, path: str) -> str:
        self.live = False
        try:
            return super().realpath(path)
        finally:
            self.live = True

    def at(self, path: str) -> str:
        return str(Path(self.root, self.realpath(path)[1:]))


class Node:
    """A proven node with two H100: what it says now, and what was told."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.smi = Result(0, (FIXTURES / "h100_580.xml").read_text(), "", 0.4, None)
        self.links = ""
        self.lines = [LOADED]
        self.units: dict[str, str] = {}
        self.posted: list[tuple[str, tell.Message]] = []
        self.mailed: list[tuple[str, str | None, tell.Message]] = []
        self.no_users: list[str] = []
        self.untold: str | None = None
        self.said: list[str] = []

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        name = argv[0].rpartition("/")[2]
        if argv[1:] == ["nvlink", "-s"]:
            return Result(0, self.links, "", 0.1, None)
        if name == "nvidia-smi":
            return self.smi
        if name == "systemctl":
            states = [self.units.get(unit, "active") for unit in argv[4:]]
            pairs = zip(argv[4:], states, strict=True)
            shown = [f"Id={u}\nLoadState=loaded\nActiveState={s}\nUnitFileState=enabled\n" for u, s in pairs]
            return Result(0, "\n".join(shown), "", 0.01, None)
        return Result(None, "", "", 0.0, f"{argv[0]} is not there")

    def host(self) -> Host:
        return LiveTree(self.tree.root, self.run)

    def look(self, host: Host) -> Any:
        return machine.observe(host)

    def webhook(self, address: str, message: tell.Message) -> None:
        if self.untold:
            raise tell.UntoldError(self.untold)
        self.posted.append((address, message))

    def mail(self, to: str, smtp: str | None, message: tell.Message) -> None:
        if to in self.no_users:
            raise tell.UntoldError(f"no {to}")
        self.mailed.append((to, smtp, message))

    def around(self) -> watching.Around:
        self.said = []
        log = kernel_log.Log(self.lines, any("loading NVIDIA UNIX" in line for line in self.lines), None)
        return watching.Around(self.host(), self.look, lambda: log, self.webhook, self.mail, self.said.append)

    def turn(self) -> int:
        return watching.turn(self.around())

    def settings(self, **variables: Any) -> None:
        wish = Wish.from_variables({"watch_interval": "15m", **variables})
        stack = choose(wish, Log(load_rules()))
        assert stack is not None
        self.tree.file(paths.WATCH_SETTINGS, watch._settings(stack))

    def change_settings(self, **values: Any) -> None:
        path = self.tree.root / paths.WATCH_SETTINGS[1:]
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def metrics(self, directory: str = paths.METRICS) -> dict[str, float]:
        text = (self.tree.root / directory[1:] / paths.METRICS_FILE).read_text()
        return parsed(text)

    def record(self) -> record.Record:
        return record.read(self.host())


def parsed(text: str) -> dict[str, float]:
    """A file of metrics: the value by name and labels."""
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: float(value) for name, _, value in rows}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    tree = made.tree
    tree.file("/etc/os-release", 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n')
    tree.file("/etc/hostname", "gpu17\n")
    tree.file("/proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    tree.file("/proc/sys/kernel/hostname", "gpu17\n")
    tree.file("/proc/sys/kernel/osrelease", "6.12.94+deb13-amd64\n")
    tree.file("/proc/modules", "nvidia 90112 0 - Live 0x0\n")
    tree.file("/sys/module/nvidia/version", f"{DRIVER}\n")
    tree.file("/proc/driver/nvidia/version", PROC)
    tree.file(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", f"libcuda.so.{DRIVER}")
    tree.program("/usr/bin/nvidia-smi")
    tree.directory("/run/systemd/system")
    tree.directory(paths.METRICS)
    tree.packages({"nvidia-driver-cuda": f"{DRIVER}-1"})
    for place in PLACES:
        tree.h100(place)
    tree.file("/etc/modprobe.d/gpuwright.conf", "blacklist nouveau\n")
    made.settings()
    secret(made, "")
    seal(made)
    prove(made)
    return made


def seal(node: Node) -> None:
    stack = nodes.driver_stack(version=DRIVER, minimum="525.60.13")
    seal_of = {
        "digest": "d",
        "stack": stack,
        "gpus": ["10de:2330", "10de:2330"],
        "manages": {"files": ["/etc/modprobe.d/gpuwright.conf"]},
    }
    put_seal(node, "nvidia_driver", seal_of)


def put_seal(node: Node, component: str, seal_of: Any) -> None:
    host = node.host()
    sealing.write_object(host, seals.path_of(component), sealing.make(host, component, seal_of, {}, {}))


def prove(node: Node, **changes: Any) -> None:
    proof = {"verdict": "pass", "time": seals.iso(time.time()), "boot_id": BOOT, "driver": DRIVER, "stack_digest": "s"}
    sealing.write_object(node.host(), paths.ROOTS.proof, {**proof, **changes})


# --- what is told, and when ---------------------------------------------------------------------------------------------


def test_a_node_on_which_all_is_well_says_nothing(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    assert (node.turn(), node.said, node.posted) == (0, [], [])
    assert (node.turn(), node.said) == (0, [])
    assert (node.record()["told"], node.record()["waiting"]) == ([], [])


def test_leaving_the_proven_state_and_coming_back_are_one_line_each(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    node.turn()
    conf = node.tree.file("/etc/modprobe.d/gpuwright.conf", "# changed by hand!!\n")
    assert node.turn() == 0
    (line,) = node.said
    assert line.startswith(
        "<4>gpu17 is not proven: seals.nvidia_driver: not as it was set up: /etc/modprobe.d/gpuwright.conf"
    )
    assert "what to do: run gpuwright up" in line
    node.turn()
    assert node.said == []
    conf.write_text("blacklist nouveau\n")
    node.turn()
    assert node.said == ["<5>gpu17 is proven"]


def break_seal(node: Node, *, mended: bool = False) -> None:
    node.tree.file("/etc/modprobe.d/gpuwright.conf", "blacklist nouveau\n" if mended else "# changed by hand!!\n")


def test_a_node_that_comes_and_goes_is_told_as_not_proven_and_no_longer_as_proven_for_a_day(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.change_settings(floors=[], branches=[])
    started = time.time()
    told = []
    for quarter in range(4 * 24 + 1):
        monkeypatch.setattr(time, "time", lambda at=started + quarter * 900: at)
        break_seal(node, mended=quarter % 2 == 0)
        node.turn()
        told += node.said
    begin = "<4>gpu17 is not proven: seals.nvidia_driver"
    assert [line[: len(begin)] for line in told] == [begin, "<5>gpu17 is proven", begin, "<5>gpu17 is proven", begin]
    assert "it came back 2 times within a day" in told[-1]
    assert "it came back" not in "".join(told[:-1])
    monkeypatch.setattr(time, "time", lambda: started + 25 * 3600)
    node.turn()
    assert node.said == ["<5>gpu17 is proven"]


def test_what_breaks_besides_and_what_gets_worse_is_told_and_nothing_twice(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    prove(node, verdict="incomplete", time="2026-01-01T00:00:00Z")
    node.turn()
    assert [line for line in node.said if "proof.age: the last proof is" in line]
    node.lines.append(XID_79)
    node.turn()
    (line,) = node.said
    assert "kernel.xid of card 00000000:1B:00.0" in line
    assert "proof.age" not in line
    prove(node, verdict="fail")
    node.turn()
    (line,) = node.said
    assert "proof.age: the last proof ended with fail" in line
    node.turn()
    assert node.said == []


BAD: list[tuple[str, Callable[[Node], object], str]] = [
    ("a card fell off the bus", lambda node: (node.tree.root / "sys/bus/pci/devices" / PLACES[0] / "vendor").unlink(), "gpu.on_bus"),
    ("nvidia-smi hangs", lambda node: setattr(node, "smi", HANGS), "smi.runs"),
    ("versions differ", lambda node: node.tree.file("/proc/driver/nvidia/version", PROC.replace("95", "105")), "driver.version_match"),
    ("the module is gone", lambda node: shutil.rmtree(node.tree.root / "sys/module/nvidia"), "driver.loaded"),
    ("an Xid came", lambda node: node.lines.append(XID_79), "kernel.xid of card 00000000:1B:00.0"),
    ("a proof that failed", lambda node: prove(node, verdict="fail"), "proof.age"),
    ("another boot", lambda node: node.tree.file("/proc/sys/kernel/random/boot_id", "another\n"), "proof.age"),
    ("an old proof", lambda node: prove(node, time="2026-01-01T00:00:00Z"), "proof.age"),
    ("a run that was cut off", lambda node: sealing.write_object(
        node.host(), seals.path_of("cuda"), sealing.begun(node.host(), "cuda", {}, None)), "seals.cuda"),
    ("a bad card", lambda node: setattr(node, "smi", Result(0, (FIXTURES / "h100_bad_580.xml").read_text(), "", 0.4, None)), "ecc."),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "told"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_goes_wrong_is_named(node: Node, break_it: Callable[[Node], object], told: str) -> None:
    node.turn()
    break_it(node)
    assert node.turn() == 0
    assert any(line.startswith("<4>gpu17 is not proven") and told in line for line in node.said), node.said
    assert node.record()["told"]
    assert node.metrics()["gpuwright_proven"] == 0


def test_a_first_turn_on_a_bad_node_tells(node: Node) -> None:
    prove(node, verdict="fail")
    node.turn()
    assert any("is not proven" in line for line in node.said)


def test_a_run_at_work_is_not_judged(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    node.turn()
    prove(node, verdict="fail")
    lock = {"owner": "a run", "since": seals.iso(time.time()), "expires": seals.iso(time.time() + 60)}
    sealing.write_object(node.host(), paths.ROOTS.lock, lock)
    assert (node.turn(), node.said, node.record()["told"]) == (0, [], [])
    assert "gpuwright_proven" not in node.metrics()
    sealing.write_object(node.host(), paths.ROOTS.lock, {**lock, "expires": seals.iso(time.time() - 60)})
    node.turn()
    assert len(node.said) == 1


@pytest.mark.parametrize("begins", [True, False])
def test_a_look_in_which_a_run_begins_or_ends_is_not_judged(node: Node, begins: bool, monkeypatch: Any) -> None:
    """Half of what is seen is of before the change, and half of after it."""
    node.turn()
    prove(node, verdict="fail")
    lock = {"owner": "a run", "since": seals.iso(time.time()), "expires": seals.iso(time.time() + 60)}
    if not begins:
        sealing.write_object(node.host(), paths.ROOTS.lock, lock)

    def look(host: Host) -> Any:
        facts = {**machine.observe(host), "lock": None}
        if begins:
            sealing.write_object(host, paths.ROOTS.lock, lock)
        else:
            assert run_lock.end(host, "a run")
        return facts

    with monkeypatch.context() as patched:
        patched.setattr(node, "look", look)
        assert (node.turn(), node.record()["told"]) == (0, [])
        assert "gpuwright_proven" not in node.metrics()


def test_a_driver_below_its_floor_and_a_branch_near_its_end_are_told_once_and_the_node_stays_proven(node: Node) -> None:
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 100 * 86400))
    node.change_settings(
        floors=[{"branch": "580", "floor": "580.159.03", "bulletin": "5821"}],
        branches=[{"branch": "580", "eol": soon}],
    )
    node.turn()
    (line,) = node.said
    assert line.startswith(
        "<4>gpu17 needs an update: driver.security_floor: driver 580.95.05 has a published vulnerability"
    )
    assert "branch 580 of the driver ends on " in line
    assert node.record()["told"] == []
    found = node.metrics()
    assert found["gpuwright_driver_security_floor_ok"] == 0
    assert found["gpuwright_driver_end_of_life_timestamp_seconds"] > time.time()
    node.turn()
    assert node.said == []


def test_a_branch_without_a_published_end_and_floor_says_nothing_of_them(node: Node) -> None:
    node.change_settings(floors=[], branches=[{"branch": "580", "eol": None}])
    node.turn()
    assert not {name for name in node.metrics() if "end_of_life" in name or "floor" in name}


def test_an_xid_that_the_kernels_log_forgot_counts_on_until_the_next_boot(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    node.lines.append(XID_79)
    node.turn()
    node.lines = ["[ 9000.1] something else fills the buffer"]
    node.turn()
    assert node.said == []
    assert node.metrics()["gpuwright_proven"] == 0
    assert node.metrics()['gpuwright_xid_total{xid="79",pci_bus_id="00000000:1B:00.0"}'] == 1
    node.tree.file("/proc/sys/kernel/random/boot_id", "another\n")
    prove(node, boot_id="another")
    node.turn()
    assert node.said == ["<5>gpu17 is proven"]


def test_a_fabric_manager_that_does_not_run_is_told_where_one_is_needed(node: Node) -> None:
    node.turn()
    assert not any("fabric_manager" in name for name in node.metrics())
    node.tree.pci("0000:05:00.0", "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch")
    node.tree.file("/usr/lib/systemd/system/nvidia-fabricmanager.service")
    node.turn()
    assert node.metrics()["gpuwright_fabric_manager_active"] == 1
    node.units["nvidia-fabricmanager.service"] = "failed"
    node.turn()
    assert node.metrics()["gpuwright_fabric_manager_active"] == 0
    assert any("fabricmanager: the host has NVSwitches" in line for line in node.said)


def test_a_driver_below_its_floor_is_the_subject_of_its_mail(node: Node) -> None:
    node.settings(watch_mail="root")
    node.change_settings(floors=[{"branch": "580", "floor": "580.159.03", "bulletin": "5821"}], branches=[])
    node.turn()
    assert [message["title"] for _to, _smtp, message in node.mailed] == ["gpu17 needs an update"]


LINKS = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
)


def test_the_links_of_each_card_are_counted_up_and_down(node: Node) -> None:
    node.links = LINKS
    node.turn()
    found = {name: value for name, value in node.metrics().items() if "nvlink" in name}
    states = [(gpu, state) for gpu in "01" for state in ("active", "inactive")]
    names = [f'gpuwright_nvlink_links{{gpu="{gpu}",state="{state}"}}' for gpu, state in states]
    assert found == dict(zip(names, (1, 1, 0, 0), strict=True))


def test_cards_without_nvlink_and_parted_cards_have_no_links(node: Node) -> None:
    node.links = "GPU 0: NVIDIA GeForce RTX 4080 SUPER (UUID: GPU-1)\nDevice does not have or support Nvlink\n"
    node.turn()
    assert not [name for name in node.metrics() if "nvlink" in name]
    node.links = LINKS
    parted = node.smi.out.replace("<current_mig>Disabled", "<current_mig>Enabled", 1)
    assert parted != node.smi.out
    node.smi = node.smi._replace(out=parted)
    node.turn()
    assert {name[len("gpuwright_nvlink_links") :][:8] for name in node.metrics() if "nvlink" in name} == {'{gpu="1"'}


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("".join(f"\t Link {link}: 25 GB/s\n" for link in range(12)), nvlink.Links(12, 0)),
        ("         Link 0: 25.781 GB/s\n         Link 1: <inactive>\n", nvlink.Links(1, 1)),
        ("NVML: Unable to retrieve NVLink information as all links are inactive\n", nvlink.Links(0, 0)),
        ("         C2C Link 0: 44.712 GB/s\n", None),
        ("", None),
    ],
)
def test_what_drivers_say_of_links(text: str, links: nvlink.Links | None) -> None:
    said = f"GPU 0: A card (UUID: GPU-1)\n{text}"
    assert nvlink.parse(said) == ({} if links is None else {0: links})
    assert nvlink.parse(text) == {}


def test_no_second_nvidia_smi_is_begun_beside_one_that_the_kernel_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "held", lambda: 4711)
    found = watching.run_unless_held(["/usr/bin/nvidia-smi", "-q", "-x"])
    assert (found.rc, found.error) == (None, "an nvidia-smi (process 4711) hangs in the kernel")
    assert watching.run_unless_held(["/bin/true"]).ok


def test_a_card_that_sleeps_is_not_woken_by_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "asleep", lambda: True)
    found = watching.run_unless_held(["/usr/bin/nvidia-smi", "-q", "-x"])
    assert (found.rc, found.error) == (None, run.ASLEEP)
    assert watching.run_unless_held(["/bin/true"]).ok


# --- the metrics --------------------------------------------------------------------------------------------------------


def test_the_metrics_have_the_agreed_names_and_are_readable_by_all(node: Node) -> None:
    node.turn()
    path = node.tree.root / paths.METRICS[1:] / paths.METRICS_FILE
    assert (path.stat().st_mode & 0o777, [each.name for each in path.parent.iterdir()]) == (0o644, [path.name])
    found = node.metrics()
    assert abs(found["gpuwright_watch_timestamp_seconds"] - time.time()) < 60
    assert abs(found["gpuwright_proof_timestamp_seconds"] - time.time()) < 60
    wanted = {
        'gpuwright_proof_verdict{verdict="pass"}': 1,
        'gpuwright_proof_verdict{verdict="fail"}': 0,
        'gpuwright_seal_good{component="nvidia_driver"}': 1,
        "gpuwright_proof_max_age_seconds": 604800,
        "gpuwright_watch_interval_seconds": 900,
        "gpuwright_watch_untold": 0,
        "gpuwright_drift": 0,
        "gpuwright_gpus": 2,
        "gpuwright_expected_gpus": 2,
        "gpuwright_driver_library_mismatch": 0,
        "gpuwright_proven": 1,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    (info,) = [name for name in found if name.startswith("gpuwright_info{")]
    assert (
        f'driver="{DRIVER}",driver_branch="580",kernel="6.12.94+deb13-amd64",os="Debian GNU/Linux 13 (trixie)"' in info
    )


def test_what_alerts_and_dashboards_name_is_written_with_these_kinds_and_labels(node: Node) -> None:
    node.tree.pci("0000:05:00.0", "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch")
    node.tree.file("/proc/self/mountinfo", "22 1 0:40 / /tmp rw - tmpfs tmpfs rw\n")
    node.tree.directory("/tmp")
    node.links = LINKS
    node.lines.append(XID_79)
    node.change_settings(
        floors=[{"branch": "580", "floor": "580.159.03", "bulletin": "5821"}],
        branches=[{"branch": "580", "eol": "2099-01-01"}],
    )
    node.turn()
    lines = (node.tree.root / paths.METRICS[1:] / paths.METRICS_FILE).read_text().splitlines()
    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE "))
    labels = {line.partition("{")[0].split()[0]: re.findall(r'(\w+)="', line) for line in lines if line[0] != "#"}
    found = {name: (kind, labels[name]) for name, kind in kinds.items()}
    wanted = {metric.name: (metric.kind, list(metric.labels)) for metric in WATCH}
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_failed_check_of_a_card_has_the_index_of_the_card(node: Node) -> None:
    node.smi = Result(0, (FIXTURES / "h100_bad_580.xml").read_text(), "", 0.4, None)
    node.lines.append(XID_79)
    node.turn()
    failed = [name for name in node.metrics() if name.startswith("gpuwright_check_failed{")]
    assert 'gpuwright_check_failed{check="kernel.xid",severity="fatal",gpu="0"}' in failed
    assert any('gpu="1"' in name for name in failed)


def test_names_that_a_node_gives_itself_end_no_line_and_no_label(node: Node) -> None:
    node.tree.file("/etc/os-release", 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="a\\"b\\\\n} 1"\n')
    node.turn()
    path = node.tree.root / paths.METRICS[1:] / paths.METRICS_FILE
    lines = [line for line in path.read_text().splitlines() if line.startswith("gpuwright_info")]
    assert len(lines) == 1
    assert lines[0].endswith(" 1")


def test_metrics_that_cannot_be_written_fail_the_turn_and_the_rest_is_done(node: Node) -> None:
    node.settings(watch_textfile_directory="/not/there")
    prove(node, verdict="fail")
    assert node.turn() == 1
    assert node.said[0].startswith("<3>/not/there/gpuwright.prom cannot be written: No such file")
    assert node.record()["told"]


def test_metrics_go_through_no_link_and_leave_no_half_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    place = tmp_path / "place"
    place.mkdir()
    (place / paths.METRICS_FILE).symlink_to(victim)
    (place / f".{paths.METRICS_FILE}.new").symlink_to(victim)
    metrics.write(str(place), "a 1\n")
    assert (victim.read_text(), (place / paths.METRICS_FILE).read_text()) == ("mine\n", "a 1\n")
    assert not (place / paths.METRICS_FILE).is_symlink()
    assert [each.name for each in place.iterdir()] == [paths.METRICS_FILE]


# --- its own record -----------------------------------------------------------------------------------------------------


def test_a_turn_changes_nothing_but_the_record_and_the_metrics(node: Node) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = (path for path in node.tree.root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(node.tree.root)): (path.stat().st_mtime_ns, path.stat().st_mode) for path in files}

    before = state()
    node.turn()
    after = state()
    ours = {paths.WATCH[1:], f"{paths.METRICS[1:]}/{paths.METRICS_FILE}"}
    assert {name for name in after if after[name] != before.get(name)} == ours
    assert after[paths.WATCH[1:]][1] & 0o777 == 0o600


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_a_record_that_cannot_be_read_is_begun_anew(node: Node, content: str) -> None:
    node.change_settings(floors=[], branches=[])
    node.tree.file(paths.WATCH, content)
    assert (node.turn(), node.record()["told"]) == (0, [])


@pytest.mark.parametrize("content", [None, "{", '{"schema": 99}'])
def test_settings_that_cannot_be_read_are_told_with_what_to_do(node: Node, content: str | None) -> None:
    path = node.tree.root / paths.WATCH_SETTINGS[1:]
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert node.turn() == 1
    assert node.said[0].startswith("<3>")
    assert "run gpuwright up" in node.said[0]


# --- telling others -----------------------------------------------------------------------------------------------------


def secret(node: Node, address: str, mode: int = 0o600) -> None:
    node.tree.file(paths.WATCH_WEBHOOK, address + "\n", mode)


def test_webhook_and_mail_are_told_once_for_each_change(node: Node) -> None:
    node.settings(watch_mail="ops@example.com", watch_smtp="mail.example.com")
    node.change_settings(floors=[], branches=[])
    secret(node, "https://h.example/x")
    node.turn()
    assert (node.posted, node.mailed) == ([], [])
    prove(node, verdict="fail")
    node.turn()
    node.turn()
    ((address, message),) = node.posted
    assert (address, message["host"], message["state"]) == ("https://h.example/x", "gpu17", "not proven")
    assert message["reasons"] == ["proof.age: the last proof ended with fail"]
    assert message["remedy"] == "repair what it named, then run gpuwright validate"
    assert node.mailed == [("ops@example.com", "mail.example.com", message)]
    prove(node)
    node.turn()
    assert [each["state"] for _address, each in node.posted] == ["not proven", "proven"]


def test_what_could_not_be_sent_is_sent_at_the_next_turn_in_its_order_and_fails_the_turn(node: Node) -> None:
    node.settings(watch_mail="root")
    node.change_settings(floors=[], branches=[])
    secret(node, "https://h.example/x")
    node.untold = "the webhook answered with status 503, expected 2xx"
    prove(node, verdict="fail")
    complaint = f"<4>not everybody was told: {node.untold}; it is tried again at the next turn"
    assert node.turn() == 1
    assert node.said[1] == complaint
    assert node.metrics()["gpuwright_watch_untold"] == 0
    assert node.turn() == 1
    assert node.said == [complaint]
    assert node.metrics()["gpuwright_watch_untold"] == 1
    prove(node)
    node.turn()
    node.untold = None
    assert node.turn() == 0
    assert [each["state"] for _address, each in node.posted] == ["not proven", "proven"]
    assert [each["state"] for _to, _smtp, each in node.mailed] == ["not proven", "proven"]
    assert node.record()["waiting"] == []


def test_of_two_people_whom_a_server_takes_and_refuses_one_gets_it_once_and_the_other_waits(node: Node) -> None:
    node.settings(watch_mail="root,gone")
    node.change_settings(floors=[], branches=[])
    node.no_users = ["gone"]
    prove(node, verdict="fail")
    assert [node.turn(), node.turn()] == [1, 1]
    assert [to for to, _smtp, _message in node.mailed] == ["root"]
    node.no_users = []
    assert [node.turn(), node.turn()] == [0, 0]
    assert [to for to, _smtp, _message in node.mailed] == ["root", "gone"]


def test_who_is_not_wished_any_more_is_not_waited_for(node: Node) -> None:
    secret(node, "https://h.example/x")
    node.untold = "no"
    prove(node, verdict="fail")
    node.turn()
    assert node.record()["waiting"]
    secret(node, "")
    node.turn()
    assert node.record()["waiting"] == []


def test_a_trial_is_sent_each_way_and_says_whether_it_arrived(node: Node) -> None:
    assert watching.trial(node.around()) == 0
    assert node.said == ["nobody is told: neither watch_webhook nor watch_mail is set"]
    node.settings(watch_mail="root")
    secret(node, "https://h.example/x")
    assert (watching.trial(node.around()), node.said) == (0, ["sent: mail to root, webhook"])
    assert [each["state"] for _address, each in node.posted] == ["trial"]
    node.untold = "the webhook answered with status 404, expected 2xx"
    assert (watching.trial(node.around()), node.said) == (1, [node.untold])
    assert len(node.mailed) == 2
    (node.tree.root / paths.WATCH_SETTINGS[1:]).unlink()
    assert watching.trial(node.around()) == 1
    assert not (node.tree.root / paths.WATCH[1:]).exists()


def test_what_waits_has_an_end(node: Node) -> None:
    waiting: list[record.Waiting] = [{"message": MESSAGE, "ways": ["webhook"]} for _ in range(50)]

    def no(_message: tell.Message) -> None:
        raise tell.UntoldError("no")

    assert len(record.send(waiting, {"webhook": no})[0]) == record.MOST_WAITING


@pytest.mark.parametrize(
    ("address", "mode", "told"),
    [
        ("https://h.example/s3cr3t", 0o644, "mode 0600, found 0644"),
        ("http://h.example/s3cr3t", 0o600, "begins with https://"),
    ],
)
def test_an_address_that_others_may_read_or_that_is_none_is_not_used_and_not_shown(
    node: Node, address: str, mode: int, told: str
) -> None:
    secret(node, address, mode)
    prove(node, verdict="fail")
    assert node.turn() == 1
    assert node.posted == []
    assert any(told in line for line in node.said)
    everything = "".join(node.said) + (node.tree.root / paths.WATCH[1:]).read_text()
    assert "s3cr3t" not in everything


def test_an_address_that_is_gone_is_told(node: Node) -> None:
    node.change_settings(floors=[], branches=[])
    (node.tree.root / paths.WATCH_WEBHOOK[1:]).unlink()
    assert node.turn() == 1
    (line,) = node.said
    assert "watch-webhook cannot be read" in line
    prove(node, verdict="fail")
    assert node.turn() == 1
    assert len([line for line in node.said if "watch-webhook cannot be read" in line]) == 1


# --- a real web server --------------------------------------------------------------------------------------------------


MESSAGE: tell.Message = {
    "host": "gpu17",
    "time": "2026-11-27T06:00:00Z",
    "state": "not proven",
    "title": "gpu17 is not proven",
    "reasons": ["gpu.count: 2 cards were expected and nvidia-smi sees 1"],
    "remedy": "reseat the card",
    "text": "gpu17 is not proven: gpu.count",
}


@contextlib.contextmanager
def web(place: Path, names: str | None = None) -> Iterator[receivers.Web]:
    made = receivers.Web(place, names=names)
    made.address += "/services/s3cr3t"
    with receivers.serving(made.server):
        yield made


def test_a_webhook_gets_json_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        tell.webhook(server.address, MESSAGE)
    assert server.got == [{"path": "/services/s3cr3t", "type": "application/json", "json": MESSAGE}]


def test_a_certificate_that_nobody_trusts_or_of_another_name_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web(tmp_path) as server, pytest.raises(tell.UntoldError, match="certificate is not trusted") as refused:
        tell.webhook(server.address, MESSAGE)
    assert server.got == []
    assert "s3cr3t" not in str(refused.value)
    assert "127.0.0.1" not in str(refused.value)
    with web(tmp_path, "DNS:another.example") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        with pytest.raises(tell.UntoldError, match="certificate is not trusted"):
            tell.webhook(server.address, MESSAGE)
    assert server.got == []


@pytest.mark.parametrize(("status", "told"), [(503, "status 503"), (404, "status 404"), (302, "that it leads to")])
def test_an_answer_that_is_not_yes_is_no_delivery_and_a_redirection_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, told: str
) -> None:
    with web(tmp_path) as server:
        server.status = status
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        with pytest.raises(tell.UntoldError, match=told) as refused:
            tell.webhook(server.address, MESSAGE)
    assert "s3cr3t" not in str(refused.value)
    assert len(server.got) == 1


def test_a_server_that_is_not_there_is_told_without_its_address() -> None:
    for address in ("https://127.0.0.1:9/s3cr3t", "https://s3cr3t.invalid/", "https://127.0.0.1:99999/s3cr3t"):
        with pytest.raises(tell.UntoldError) as refused:
            tell.webhook(address, MESSAGE)
        assert "s3cr3t" not in str(refused.value)
        assert "127.0.0.1" not in str(refused.value)


@contextlib.contextmanager
def post(*, offers_tls: bool = False) -> Iterator[receivers.Mail]:
    made = receivers.Mail(offers_tls=offers_tls)
    with receivers.serving(made):
        yield made


def test_a_mail_goes_to_the_mail_server_with_the_reasons_and_what_to_do() -> None:
    with post() as server:
        tell.mail("ops@example.com", server.address, {**MESSAGE, "text": "gpu17 is not proven\nBcc: eve@example.com"})
    ((to, letter),) = server.letters
    heading, _, body = letter.partition("\r\n\r\n")
    assert to == ["ops@example.com"]
    assert "Subject: gpu17 is not proven" in heading
    assert "Bcc" not in heading
    assert {"From", "To", "Date", "Message-ID", "Auto-Submitted"} <= {
        line.partition(":")[0] for line in heading.splitlines()
    }
    assert "- gpu.count: 2 cards were expected" in body
    assert "What to do: reseat the card" in body


def test_a_server_elsewhere_that_offers_tls_has_to_have_it_and_one_of_this_machine_is_told_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with post(offers_tls=True) as server:
        tell.mail("ops@example.com", server.address, MESSAGE)
        assert len(server.letters) == 1
        monkeypatch.setattr(tell, "_HERE", ())
        with pytest.raises(tell.UntoldError, match="did not take the mail"):
            tell.mail("ops@example.com", server.address, MESSAGE)
        assert len(server.letters) == 1


def test_a_mail_that_a_server_refuses_waits() -> None:
    with post() as server, pytest.raises(tell.UntoldError, match=r"refuses refused@.*correct watch_mail"):
        tell.mail("refused@example.com", server.address, MESSAGE)
    assert server.letters == []
    with pytest.raises(tell.UntoldError, match="did not take the mail"):
        tell.mail("ops@example.com", "127.0.0.1:9", MESSAGE)


def test_the_machines_own_sendmail_gets_who_and_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tell, "SENDMAIL", str(tmp_path / "sendmail"))
    with pytest.raises(tell.UntoldError, match="found none; install one, or name a host in watch_smtp"):
        tell.mail("root", None, MESSAGE)
    (tmp_path / "sendmail").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/who; cat > {tmp_path}/what\n')
    (tmp_path / "sendmail").chmod(0o755)
    tell.mail("ops@example.com", None, MESSAGE)
    assert (tmp_path / "who").read_text() == "-i -- ops@example.com\n"
    assert "Subject: gpu17 is not proven" in (tmp_path / "what").read_text()
    (tmp_path / "sendmail").write_text("#!/bin/sh\necho 'no spool' >&2; exit 75\n")
    with pytest.raises(tell.UntoldError, match="did not take the mail: no spool"):
        tell.mail("root", None, MESSAGE)


# --- the program as it lies on a node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("python", ["/usr/bin/python3", sys.executable])
def test_the_program_runs_by_itself_and_tells(node: Node, tmp_path: Path, python: str) -> None:
    """One script, without anything of ours to import, on the tree of a machine; of a tree no program is asked."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    script = place / "watch.py"
    script.write_text(watch.SCRIPT.text().replace("sys.argv[1:])", f"sys.argv[1:], {str(node.tree.root)!r})"))
    (place / "json.py").write_text("raise SystemExit('a file beside the program was imported')\n")
    with web(place) as server:
        secret(node, server.address)
        ended = subprocess.run(
            [python, "-I", str(script)],
            cwd=place,
            env={"PATH": "/usr/bin:/bin", "SSL_CERT_FILE": str(server.certificate)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert "<4>" in ended.stderr
    assert "s3cr3t" not in ended.stderr
    assert server.got[0]["json"]["state"] == "not proven"
    assert node.metrics()["gpuwright_gpus"] == 2


def test_what_is_judged_on_the_node_is_judged_as_on_the_controller(node: Node) -> None:
    """The same facts, held against the same expectations: the controller's judge says the same of each quick check."""
    from ansible_collections.gpuwright.node.plugins.module_utils.watch import judge as quick
    from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge

    facts = machine.observe(node.host())
    mine = quick.judge(facts, wished.read(node.host()), None)
    stack: Any = {"driver": (facts["seals"] or {})["nvidia_driver"]["stack"]}
    theirs = judge.judge(facts, stack, {"count": 2, "proof_max_age": 604800})
    of_both = {check["id"] for check in mine} - {quick.FLOOR, quick.END}
    assert [check for check in theirs if check["id"] in of_both and check["id"] != "driver.loaded"] == [
        check for check in mine if check["id"] in of_both and check["id"] != "driver.loaded"
    ]
    assert checks.verdict(mine) == "pass"


def test_what_was_wished_of_a_card_is_no_fault_of_it(node: Node) -> None:
    from ansible_collections.gpuwright.node.plugins.module_utils.watch import judge as quick

    def passes() -> bool:
        found = quick.judge(machine.observe(node.host()), wished.read(node.host()), None)
        return {check["status"] for check in found if check["id"] == "gpu.mode.compute"} == {"pass"}

    exclusive = node.smi.out.replace("<compute_mode>Default<", "<compute_mode>Exclusive_Process<")
    node.smi = Result(0, exclusive, "", 0.4, None)
    assert not passes()
    cards = [{"bus_id": f"0000{place}".upper(), "settings": {"compute_mode": "Exclusive_Process"}} for place in PLACES]
    put_seal(node, "gpu_settings", {"digest": "d", "stack": {"cards": cards}, "gpus": [], "manages": {"files": []}})
    assert passes()
