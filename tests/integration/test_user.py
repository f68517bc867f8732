"""A user without root on a shared machine with root's driver: environments of their own, proven, and nothing outside the home."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.observe.environment_builds import MADE

from .conftest import Node, Run
from .test_hosts import install

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="containers")]

_HOME = "/home/alice"
_PLACE = f"{_HOME}/.local/share/gpuwright"
_RECORDS = f"{_HOME}/.local/state/gpuwright"
_WISHES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("wishes_of_users.yaml").read_text())
_FILES = {
    "machine.yml": {"nvidia_driver_branch": "580", "frameworks_wanted": ["jax"]},
    "mine.yml": {"frameworks_wanted": ["jax"]},
}

# All that lies on the machine but in the home, and what every program leaves: the log, and the times of /tmp and /dev/shm.
_OUTSIDE = r"""
for place in / /run /tmp /dev/shm; do
    find $place -xdev \( -path /proc -o -path /sys -o -path /home/alice -o -path /run/gpuwright-sim -o -path /var/log/journal \
        -o -path /run/systemd -o -path /run/user \
        -o -path /var/lib/docker \) -prune -o ! -path /tmp ! -path /dev/shm -printf '%p %y %m %u %g %s %T@ %l\n'
done | sort
cat /var/lib/gpuwright/seals/*.json /var/lib/gpuwright/*.json | sha256sum
"""


class Alice:
    """A user of the machine, at its terminal."""

    def __init__(self, machine: Node) -> None:
        self.machine = machine
        inventory = yaml.safe_load(machine.inventory.read_text())["all"]["vars"]
        self.mirrors = json.dumps({"gpuwright_mirrors": inventory["gpuwright_mirrors"]})

    def shell(self, line: str) -> str:
        """What a line prints in her session, which has no terminal: a question for a password would find nobody."""
        session = f"cd {_HOME}; setpriv --reuid alice --regid alice --init-groups env -i HOME={_HOME} USER=alice PATH=/usr/bin:/bin"
        return self.machine.shell(f"{session} sh -c {shlex.quote(line)} </dev/null")

    def run(self, words: str, *, user: str = "--user") -> Run:
        """What a command line of hers does, with her mirrors unless it names others."""
        mirrors = "" if "gpuwright_mirrors" in words else f"-e '{self.mirrors}'"
        line = f"/opt/gw/bin/gpuwright {words} {user} --json {mirrors} 2>{_HOME}/words; code=$?; echo; echo $code"
        stdout, _, code = self.shell(line).strip().rpartition("\n")
        return Run(int(code), stdout, self.shell(f"cat {_HOME}/words"))

    def outside(self) -> set[str]:
        """Everything that is not in her home."""
        return set(self.machine.shell(_OUTSIDE).splitlines())


@pytest.fixture(scope="module")
def alice(make_shared_node: Callable[[str, str], Node]) -> Alice:
    """A user of a machine with two cards, whose root brought the driver and nothing else."""
    machine = make_shared_node("users", "two-h100")
    install(machine, machine.inventory.parent)
    machine.shell("for each in alice bob; do useradd --create-home --shell /bin/sh $each; done; mkdir /srv/roots")
    run = machine.up("--want", "driver")
    assert run.code == 0, str(run)
    # What the machine does by itself, as systemd-tmpfiles-clean 15 minutes after its boot, is no change of hers.
    machine.shell("systemctl stop '*.timer'")
    user = Alice(machine)
    for name, content in _FILES.items():
        user.shell(f"cat >{name} <<'END'\n{yaml.safe_dump(content)}END")
    wants = "--want driver --want torch==2.14.1+cu130"
    user.shell(
        f"/opt/gw/bin/gpuwright resolve --gpu H100 --os debian-13 --arch x86_64 {wants} --lock machine.lock.json"
    )
    return user


def test_without_the_option_it_is_named(alice: Alice) -> None:
    run = alice.run("up --yes --want lmdb", user="")
    assert run.code == 3, str(run)
    assert "without root: --user" in run.json["conflicts"][0]["remedy"]


def test_a_life_of_a_users_environments(alice: Alice) -> None:
    before = alice.outside()
    first = alice.run("up --yes --want pytorch --want lmdb")
    assert (first.code, first.json["verdict"]) == (0, "pass"), str(first)
    proven = {(row["id"], row["gpu"]) for row in first.host["checks"] if row["status"] == "pass"}
    assert {("framework.cuda", None), ("framework.compute", "cuda:0"), ("framework.compute", "cuda:1")} <= proven
    assert alice.shell(f"{_PLACE}/pytorch/bin/python -c 'import torch; print(torch.__version__)'").startswith("2.")
    assert alice.shell(f"ls {_RECORDS}/node {_RECORDS}/at-work").split() == [
        f"{_RECORDS}/at-work:", "lock.guard", "lock.work", f"{_RECORDS}/node:", "last_run.json", "proof.json", "seals",
    ]  # fmt: skip

    again = alice.run("up --yes --want pytorch --want lmdb")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    assert alice.run("status").host["state"] == "ok"
    assert alice.run("doctor --want pytorch --want lmdb").json["verdict"] == "pass"
    assert alice.run("validate --want pytorch --want lmdb").json["verdict"] == "pass"

    other = alice.run("up --yes --want torch==2.14.1+cu126 --want lmdb")
    assert other.code in (0, 3), str(other)
    if other.code == 0:
        back = alice.run("rollback --yes --want pytorch --want lmdb")
        assert (back.code, next(row["action"] for row in back.host["changes"])) == (0, "return"), str(back)

    alice.shell(f"rm {_PLACE}/lmdb/lib/python3*/site-packages/lmdb/__init__.py")
    healed = alice.run("up --yes --want pytorch --want lmdb")
    assert (healed.code, healed.json["verdict"]) == (0, "pass"), str(healed)

    gone = alice.run("remove --yes")
    assert (gone.code, gone.json["verdict"]) == (0, "pass"), str(gone)
    # The directories that a run of ours made go too, where nothing else is in them.
    left = alice.shell(f"ls -A {_HOME}/.local/share {_RECORDS} 2>/dev/null || true").split()
    assert not {"gpuwright", "node", "at-work"} & set(left), left
    assert alice.run("remove --yes").host["changes"] == []
    assert alice.outside() == before


def test_a_run_that_is_killed_leaves_what_was_in_use_and_the_next_one_completes_it(alice: Alice) -> None:
    assert alice.run("up --yes --want lmdb").code == 0
    line = f"/opt/gw/bin/gpuwright up --user --yes --want jax --want lmdb -e '{alice.mirrors}'"
    alice.shell(
        f"setsid {line} >killed 2>&1 & run=$!; for i in $(seq 600); do ls -d {_PLACE}/.jax/1/lib && break; sleep 0.1; done; "
        "kill -9 -$run; wait; true"
    )
    assert alice.shell(f"{_PLACE}/lmdb/bin/python -c 'import lmdb; print(1)'").strip() == "1"
    assert alice.run("status").host["state"] == "drift"
    healed = alice.run("up --yes --want jax --want lmdb")
    assert (healed.code, healed.json["verdict"]) == (0, "pass"), str(healed)
    assert alice.shell(f"ls -A {_PLACE}/.jax").split() == ["2", "gave-way"]
    alice.run("remove --yes")


def test_root_runs_and_trusts_nothing_of_a_users(alice: Alice) -> None:
    assert alice.run("up --yes --want lmdb").code == 0
    alice.shell(
        f"printf '#!/bin/sh\\nid -u >>{_HOME}/ran\\n' >evil; chmod +x evil; ln -sf {_HOME}/evil {_PLACE}/lmdb/bin/python"
    )
    roots = "/opt/gw/bin/gpuwright"
    mirrors = f"-e '{alice.mirrors}'"
    plan = json.loads(alice.machine.shell(f"{roots} plan --want lmdb --json {mirrors} 2>/dev/null"))
    assert [row["files"] for row in plan["hosts"]["localhost"]["changes"] if row["component"] == "frameworks"] == [
        ["/opt/gpuwright/lmdb"]
    ]
    taken = alice.machine.shell(
        f"{roots} up --yes --want lmdb -e frameworks_path={_PLACE} --json {mirrors} 2>/dev/null", check=False
    )
    assert "which belongs to alice" in taken
    own = alice.machine.shell(
        f"HOME={_HOME} {roots} up --user --yes --want lmdb --json {mirrors}; echo $?", check=False
    )
    assert own.strip().endswith("3"), own
    assert alice.shell("cat ran 2>/dev/null || true") == ""
    alice.run("remove --yes")


# --- what people ask for ----------------------------------------------------------------------------------------------


def _line(wish: dict[str, Any]) -> str:
    wants = " ".join(f"--want {shlex.quote(want)}" for want in wish.get("want") or ())
    return f"{wants} {wish.get('line', '')}".strip()


@pytest.mark.parametrize("wish", _WISHES, ids=[str(wish["what"]) for wish in _WISHES])
def test_a_wish_works_or_says_what_would(alice: Alice, wish: dict[str, Any]) -> None:
    before, has = alice.outside(), wish.get("has", [])
    # What is refused has to be refused by what would do it, too.
    run = alice.run(f"{'up --yes' if wish.get('up') or not has else 'plan'} {_line(wish)}")
    said = f"{run.stdout}\n{run.stderr}"
    assert run.code == wish["exit"] == run.json.get("exit", run.code), str(run)
    assert "Traceback" not in said
    assert "password:" not in said
    missing = [words for words in wish.get("says") or () if not re.search(words, said)]
    assert not missing, f"{missing} in {said}"
    place = next(iter(re.findall(r"frameworks_path=(\S+)", str(wish.get("line")))), _PLACE)
    # The mark says which directories a run of ours made.
    made = [each for each in alice.shell(f"ls -A {place} 2>/dev/null || true").split() if each != MADE]
    assert made == sorted(f"{dot}{name}" for name in has for dot in (".", "") if wish.get("up")), made
    if has and not made:
        assert [row["files"] for row in run.host["changes"] if row["files"]] == [[f"{place}/{name}"] for name in has]
    if wish.get("instead"):
        assert alice.run(f"plan --want '{wish['instead']}'").code == 0
    if made:
        assert alice.run("remove --yes").code == 0
    assert alice.outside() == before
