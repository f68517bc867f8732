"""The machine one sits at needs a boot: the run ends, and goes on by itself after it."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import settings

from .conftest import Node
from .test_hosts import install

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

_UNIT = "gpuwright-resume.service"
_JOB = f"/etc/systemd/system/{_UNIT} /etc/systemd/system/multi-user.target.wants/{_UNIT} /var/lib/gpuwright/resume/run"
_RESUME_SECONDS = 300

#: Where a researcher has it: an environment in the home, which is its user's to change at any time.
_HOME = f"/home/{settings.NODE_USER}"
_VENV = f"{_HOME}/gw"
_GPUWRIGHT = f"{_VENV}/bin/gpuwright"


@pytest.fixture(scope="module")
def desk(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A workstation whose NVIDIA card drives the screen through nouveau, with gpuwright installed from the wheel by its user."""
    machine = make_shared_node("desk", "workstation-rtx5090")
    install(machine, machine.inventory.parent, _VENV)
    machine.shell(f"chown -R {settings.NODE_USER}: {_VENV}")
    return machine


def by_the_user(machine: Node, command: str, *, check: bool = True) -> str:
    """What COMMAND prints when the ordinary user runs it, who may use sudo."""
    return machine.shell(f"cd {_HOME} && HOME={_HOME} runuser -u {settings.NODE_USER} -- {command}", check=check)


def mirrors(machine: Node) -> str:
    """The simulated repositories, as variables of `-e`."""
    variables = yaml.safe_load(machine.inventory.read_text())["all"]["vars"]
    return json.dumps({name: value for name, value in variables.items() if name.startswith("gpuwright_")})


def up(machine: Node, *words: str) -> tuple[int, dict[str, Any]]:
    """`gpuwright up` on the node itself: exit code, and what it said of its only host."""
    line = " ".join([f"{_GPUWRIGHT} up --yes --json --want driver=580", f"-e '{mirrors(machine)}'", *words])
    said = by_the_user(machine, f"{line} 2>/root/words; code=$?; echo; echo $code")
    document, _, code = said.strip().rpartition("\n")
    return int(code), json.loads(document)["hosts"]["localhost"]


def waiting(machine: Node) -> list[str]:
    """What lies on the node for its next boot."""
    return machine.shell(f"ls {_JOB} 2>/dev/null", check=False).split()


def test_a_run_that_may_not_boot_leaves_nothing_for_the_boot_and_says_what_is_left(desk: Node) -> None:
    code, host = up(desk, "--no-reboot")
    assert code == 4, host
    assert [row["component"] for row in host["left"]] == ["reboot", "validate"]
    assert host["resume"] == {"prepared": False, "why_not": "--no-reboot was given", "unit": None, "report": None}
    assert any("nomodeset" in line for line in host["rescue"])
    assert waiting(desk) == []


def test_a_run_with_a_variable_that_may_be_a_secret_writes_nothing_and_says_which(desk: Node) -> None:
    code, host = up(desk, "-e", "repository_token=s3cr3t")
    assert code == 4, host
    assert host["resume"]["prepared"] is False
    assert "repository_token" in host["resume"]["why_not"]
    assert waiting(desk) == []
    assert desk.shell("grep -rl s3cr3t /etc /var/lib/gpuwright 2>/dev/null || true") == ""


def test_the_run_goes_on_after_the_boot_once_and_leaves_its_report(desk: Node) -> None:
    boot = desk.shell("cat /proc/sys/kernel/random/boot_id")
    for _ in range(2):  # the second replaces what the first prepared
        code, host = up(desk)
        assert code == 4, host
        assert host["resume"]["prepared"] is True
        assert waiting(desk) == _JOB.split()
    assert desk.shell("cat /proc/sys/kernel/random/boot_id") == boot
    assert desk.shell("stat -c %a /var/lib/gpuwright/resume/run").strip() == "700"
    with everything_of_the_user_changed(desk):
        desk.reboot()
        wait_for_the_notice(desk)
    assert desk.shell("ls -l /root/owned 2>/dev/null", check=False) == "", (
        "what a user may write ran as root at the boot"
    )
    told = desk.shell("cat /var/lib/gpuwright/resume/notice")
    assert "went on after the boot: done and proven" in told, desk.shell("cat /var/lib/gpuwright/resume/output.txt")
    assert waiting(desk) == []
    assert desk.shell("ls /var/lib/gpuwright/resume").split() == ["notice", "output.txt", "report"]
    assert "done and proven" in desk.shell(f"journalctl --unit {_UNIT} --output cat")
    (record,) = json.loads(desk.shell("cat /var/lib/gpuwright/resume/report/report.json"))["hosts"].values()
    assert record["verdict"] == "pass"
    assert [change["component"] for change in record["changes"]] == ["validate"]
    assert "done and proven" in login(desk)


@contextlib.contextmanager
def everything_of_the_user_changed(machine: Node) -> Iterator[None]:
    """Whoever has the user's account (without sudo's password) puts a program of their own in the place of all that was run."""
    evil = "open('/root/owned', 'w').write(__file__)"
    machine.shell(f"cp -a {_VENV} {_HOME}/kept")
    attack = f"""
        printf '#!/bin/sh\necho "$0 $*" >/root/owned\nexit 0\n' >{_HOME}/evil && chmod 755 {_HOME}/evil
        for name in $(find {_VENV}/bin -type f -o -type l); do rm -f "$name"; cp {_HOME}/evil "$name"; done
        for name in $(find {_VENV}/lib -name __init__.py -o -name __main__.py); do echo "{evil}" >"$name"; done
        echo "import os; {evil.replace("__file__", "'pth'")}" >$(find {_VENV} -name site-packages)/evil.pth
        user=$(python3 -m site --user-site); mkdir -p $user; echo "{evil}" >$user/usercustomize.py; echo "{evil}" >$user/ansible.py
        mkdir -p {_HOME}/.ansible/collections; printf '[defaults]\ncallback_plugins={_HOME}\n' >{_HOME}/.ansible.cfg
    """
    by_the_user(machine, f"sh -e -c {shlex.quote(attack)}")
    try:
        yield
    finally:
        machine.shell(f"rm -rf {_VENV} {_HOME}/.ansible.cfg {_HOME}/.local/lib && mv {_HOME}/kept {_VENV}")


def wait_for_the_notice(machine: Node) -> None:
    """Until the continuation has ended, whatever its result is."""
    limit = time.monotonic() + _RESUME_SECONDS
    while time.monotonic() < limit and machine.shell("test -e /run/motd.d/gpuwright-resume; echo $?").strip() != "0":
        time.sleep(2)


def login(machine: Node) -> str:
    """What an ordinary user sees at a login over ssh."""
    host = yaml.safe_load(machine.inventory.read_text())["all"]["hosts"][machine.name]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    target = ["-i", str(settings.KEY), "-p", str(host["ansible_port"]), f"{settings.NODE_USER}@127.0.0.1"]
    done = subprocess.run(
        ["ssh", "-tt", *options, *target], input="exit\n", capture_output=True, text=True, check=False
    )
    return done.stdout


def test_the_result_is_told_once_to_each_user_and_root_takes_it_away(desk: Node) -> None:
    ask = f"{_GPUWRIGHT} --version 2>&1; {_GPUWRIGHT} gpus H100 2>&1 >/dev/null"
    user = f"runuser -u {settings.NODE_USER} -- sh -c '{ask}'"
    assert desk.shell(user).count("went on after the boot") == 1
    assert desk.shell(user).count("went on after the boot") == 0
    assert desk.shell(ask).count("went on after the boot") == 1
    assert desk.shell("ls /run/motd.d/gpuwright-resume /var/lib/gpuwright/resume/notice 2>/dev/null", check=False) == ""
    assert "went on" not in login(desk)


def test_the_next_boot_is_an_ordinary_one(desk: Node) -> None:
    desk.reboot()
    assert desk.shell(f"systemctl is-active {_UNIT}", check=False).strip() == "inactive"
    code, host = up(desk)
    assert code == 0, host
    assert [change["component"] for change in host["changes"]] == ["validate"]
    assert Path(_JOB.split(maxsplit=1)[0]).name not in desk.shell("ls /etc/systemd/system")
