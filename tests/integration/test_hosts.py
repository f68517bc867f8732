"""Hosts that are not like the others: without cards, with cards yet to come, with cards that are gone, without a boot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.sim import settings

from . import snapshot
from .conftest import Node, Proven, Run, gpuwright
from .footprint import footprint

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

#: Enough to see a driver come and be proven, in half the time of a whole stack.
_DRIVER = ("--want", "driver=580")


def status(run: Run, check: str) -> str:
    """The status of a check of the only host."""
    (found,) = {entry["status"] for entry in run.host["checks"] if entry["id"] == check}
    return str(found)


def trouble(run: Run) -> dict[str, str]:
    """The checks of the only host that failed or could not be made, each with the remedy that it has to have."""
    told = [entry for entry in run.host["checks"] if entry["status"] in ("fail", "incomplete")]
    assert all(entry["reason"] and entry["remedy"] for entry in told)
    return {entry["id"]: entry["status"] for entry in told}


# --- a node without cards ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cardless(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node without NVIDIA GPU."""
    return make_shared_node("cardless", "no-gpu")


def test_a_node_without_cards_is_skipped_and_named(cardless: Node) -> None:
    before = footprint(cardless)
    run = gpuwright("up", "--yes", "-i", cardless.inventory, "--json")
    assert run.code == 0, str(run)
    assert (run.host["verdict"], run.host["skipped"]) == ("skip", "no NVIDIA GPU, and none is expected")
    assert run.host["changes"] == []
    looked = gpuwright("validate", "-i", cardless.inventory, "--json")
    assert (looked.code, looked.host["verdict"]) == (0, "skip"), str(looked)
    assert footprint(cardless) == before


def test_a_node_without_the_cards_that_the_inventory_expects_fails(cardless: Node) -> None:
    before = footprint(cardless)
    run = gpuwright("up", "--yes", "-i", cardless.inventory, "-e", "gpuwright_gpus_expected=2", "--json")
    assert run.code == 1, str(run)
    (told,) = [entry for entry in run.host["checks"] if entry["status"] == "fail"]
    assert "2 cards are expected" in told["reason"]
    assert told["remedy"]
    assert run.host["changes"] == []
    assert footprint(cardless) == before


_NODE_EXPORTER = "prometheus-node-exporter.service"
#: What a fleet wishes in its group `all`, and what the inventory says of a host without cards.
_OF_FLEET = {
    "gpuwright_want": ["driver=580", "pytorch", "watch"],
    "monitoring_source": "dcgm",
    "gpuwright_gpus_expected": 0,
}


@pytest.fixture(scope="module", params=["debian", "rocky"])
def file_server(request: pytest.FixtureRequest, make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node without NVIDIA GPU that wishes what its fleet wishes."""
    machine = (
        request.getfixturevalue("cardless")
        if request.param == "debian"
        else make_shared_node("cardless-rocky", "rocky-no-gpu")
    )
    inventory = yaml.safe_load(machine.inventory.read_text())
    inventory["all"]["vars"] |= _OF_FLEET
    path = machine.inventory.with_name("file-server.yml")
    path.write_text(yaml.safe_dump(inventory))
    return Node(machine.name, path)


def test_a_node_without_cards_has_metrics_of_the_machine_alone(file_server: Node) -> None:
    def listened() -> list[str]:
        return file_server.shell("ss -Hltn 'sport = :9100 or sport = :9400' | awk '{print $4}'").split()

    def run(verb: str, *arguments: str) -> Run:
        return gpuwright(
            verb, *arguments, "-i", file_server.inventory, "--json", "--report", file_server.inventory.parent / "r"
        )

    before = file_server.tree()
    up = run("up", "--yes")
    assert (up.code, up.host["verdict"]) == (0, "pass"), str(up)
    assert up.components == {"monitoring_exporters"}
    assert any("dcgm has nothing to tell" in row["text"] for row in up.host["warnings"])
    assert listened() == ["127.0.0.1:9100"]
    again = run("up", "--yes", "--full")
    assert (again.code, again.changed) == (0, 0), str(again)

    file_server.shell(f"rm /etc/systemd/system/{_NODE_EXPORTER}.d/gpuwright.conf; systemctl daemon-reload")
    file_server.shell(f"systemctl restart {_NODE_EXPORTER}")
    (told,) = [row for row in run("doctor").host["checks"] if row["id"].startswith("monitoring.")]
    assert (told["id"], told["status"]) == ("monitoring.node", "warn")
    mended = run("up", "--yes")
    assert (mended.code, mended.components) == (0, {"monitoring_exporters"}), str(mended)
    assert listened() == ["127.0.0.1:9100"]

    gone = run("remove", "--yes", "--no-reboot")
    assert gone.code == 0, str(gone)
    assert listened() == []
    left = [
        path for path in snapshot.differences(before, file_server.tree()) if "exporter" in path or "gpuwright" in path
    ]
    assert [path for path in left if path.startswith(("/etc", "/usr/local"))] == []


def test_the_machine_one_sits_at_without_cards_gets_what_needs_none(cardless: Node, tmp_path: Path) -> None:
    install(cardless, tmp_path)
    variables = yaml.safe_load(cardless.inventory.read_text())["all"]["vars"]
    mirrors = json.dumps({name: value for name, value in variables.items() if name.startswith("gpuwright_")})
    words = cardless.shell(f"/opt/gw/bin/gpuwright up --yes --report /root/run -e '{mirrors}' 2>&1; echo exit $?")
    assert words.rstrip().endswith("exit 0"), words
    assert "this machine has no NVIDIA GPU" in words
    (record,) = json.loads(cardless.shell("cat /root/run/report.json"))["hosts"].values()
    assert record["verdict"] == "pass"
    assert [change["component"] for change in record["changes"]] == ["frameworks", "validate"]
    checks = {entry["id"]: entry["status"] for entry in record["checks"]}
    assert checks["framework.compute"] == checks["fio.seqread"] == "pass"
    assert checks["gpu.compute"] == "skip"
    warm = cardless.shell(f"/opt/gw/bin/gpuwright up --yes --json -e '{mirrors}' 2>/dev/null")
    assert json.loads(warm)["hosts"]["localhost"]["changes"] == []


def install(machine: Node, folder: Path, place: str = "/opt/gw") -> None:
    """The wheel of this clone with all that it needs, in an environment of its own on the node: by its own, newer Python."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    version = machine.shell("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    platforms = [word for name in ("manylinux2014_x86_64", "manylinux_2_28_x86_64") for word in ("--platform", name)]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder / "wheel", settings.CLONE], check=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    wanted: list[str | Path] = ["--only-binary=:all:", "--python-version", version, *platforms, "-d", folder / "wheels"]
    subprocess.run([*pip, "download", *wanted, wheel], check=True)
    subprocess.run(["docker", "cp", folder / "wheels", f"{settings.container_name(machine.name)}:/root/"], check=True)
    machine.shell(
        f"python3 -m venv {place} && {place}/bin/pip install -q --no-index --find-links /root/wheels gpuwright"
    )


def test_a_node_is_provisioned_for_cards_that_are_yet_to_come(make_node: Callable[..., Node]) -> None:
    machine = make_node("ahead", "no-gpu")
    run = machine.up("--gpu", "H100", *_DRIVER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    assert "nvidia_driver" in run.components
    assert "reboot" not in run.components
    # No exact build was wished: its packages are held.
    assert machine.shell("dpkg-query -W -f '${Status}' nvidia-driver-cuda") == "hold ok installed"
    assert machine.shell("ls /sys/module | grep -c '^nvidia' || true").strip() == "0"
    assert status(run, "gpu.compute") == "skip"
    assert "not there yet" in run.host["warnings"][0]["text"]


# --- a boot that is not allowed ---------------------------------------------------------------------------------------


def test_without_a_boot_the_run_says_that_one_is_needed_and_the_next_ends_proven(
    make_node: Callable[..., Node],
) -> None:
    machine = make_node("noboot")
    boot = machine.shell("cat /proc/sys/kernel/random/boot_id")
    run = machine.up("--no-reboot", *_DRIVER)
    assert run.code == run.json["exit"] == 4, str(run)
    assert run.host["reboot"]
    assert run.host["verdict"] == "incomplete"
    assert machine.shell("cat /proc/sys/kernel/random/boot_id") == boot
    assert run.report
    (record,) = json.loads((run.report / "report.json").read_text())["hosts"].values()
    assert record["reboot"]
    assert any("reboot" in (entry["remedy"] or "") for entry in record["checks"])
    machine.reboot()
    after = machine.up(*_DRIVER)
    assert after.code == 0, str(after)
    assert after.host["verdict"] == "pass"
    assert [change["component"] for change in after.host["changes"]] == ["validate"]


# --- a proven node that is no longer well -----------------------------------------------------------------------------


@pytest.fixture
def well(proven: Proven) -> Iterator[Node]:
    """The proven node, seen to be warm again after the test."""
    machine = proven.take()
    yield machine
    proven.put_back(machine)


@pytest.mark.parametrize("kind", ["garbage-smi", "hanging-smi"])
def test_an_nvidia_smi_that_gives_no_sense_fails_the_node_and_changes_nothing(well: Node, kind: str) -> None:
    before = footprint(well)
    well.fault(kind)
    try:
        run = well.up("-e", "gpuwright_command_timeout=4")
    finally:
        well.fault("all", clear=True)
    assert run.code == 1, str(run)
    assert trouble(run)["smi.runs"] == "fail"
    assert run.components == set()
    assert footprint(well) == before
    assert "Traceback" not in run.stdout + run.stderr


def test_a_card_that_fell_off_the_bus_fails_the_node_and_changes_nothing(well: Node) -> None:
    before = footprint(well)
    well.fault("fallen-off-bus")
    try:
        run = well.up()
    finally:
        well.fault("all", clear=True)
    assert run.code == 1, str(run)
    assert trouble(run)["smi.runs"] == "fail"
    assert run.components == set()
    assert footprint(well) == before


def test_a_disk_test_that_fails_leaves_the_node_unproven_with_the_evidence(well: Node) -> None:
    well.fault("fio-fails")
    try:
        run = gpuwright("validate", "-i", well.inventory, "--json")
    finally:
        well.fault("all", clear=True)
    assert run.code == 1, str(run)
    assert run.host["verdict"] == "incomplete"
    assert trouble(run) == {"fio.seqread": "incomplete", "fio.randread": "incomplete"}
    assert "Input/output error" in next(entry["reason"] for entry in run.host["checks"] if entry["id"] == "fio.seqread")
    assert "Traceback" not in run.stdout + run.stderr
    healed = well.up()
    assert (healed.code, healed.components) == (0, set()), str(healed)


@pytest.mark.parametrize("left", [1, 0])
def test_a_card_that_is_gone_after_a_boot_fails_the_node_and_changes_nothing(well: Node, left: int) -> None:
    scenario = f"{settings.NODE_CONFIG}/scenario.json"
    well.shell(f"cp {scenario} {scenario}.whole")
    cut = f"import json; d = json.load(open('{scenario}')); d['gpus'] = d['gpus'][:{left}]; json.dump(d, open('{scenario}', 'w'))"
    well.shell(f'python3 -c "{cut}"')
    well.reboot()
    try:
        run = well.up()
    finally:
        well.shell(f"mv {scenario}.whole {scenario}")
        well.reboot()
    assert run.code == 1, str(run)
    counted = [entry for entry in run.host["checks"] if entry["id"] in ("gpu.count", "gpu.on_bus")]
    assert "fail" in {entry["status"] for entry in counted}
    assert any("2 cards" in (entry["reason"] or "") for entry in counted if entry["status"] == "fail")
    assert run.components == set()
    whole = well.up()
    assert (whole.code, whole.components) == (0, set()), str(whole)
