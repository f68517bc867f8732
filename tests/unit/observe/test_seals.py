from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages, services
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals
from ansible_collections.gpuwright.node.plugins.modules import node_facts, node_seal
from tests.unit.modules import run_module
from tests.unit.observe.trees import Tree

CONFIG = "/etc/modprobe.d/gpuwright-nouveau.conf"
INITRD = "/boot/initrd.img-6.1"
ENVIRONMENT = "/opt/gpuwright/pytorch"
RECORD = ENVIRONMENT + "/lib/python3.12/site-packages/torch-2.14.1.dist-info/RECORD"
SEAL = "/var/lib/gpuwright/seals/nouveau_blacklist.json"
MANAGES = {"files": [CONFIG], "light_files": [INITRD], "packages": ["docker.io"], "environments": [ENVIRONMENT]}
BEGIN = {"nouveau_blacklist": {"stack": {"x": 2}, "gpus": []}}
GIVEN = {"nouveau_blacklist": {"digest": "abc", "stack": {"x": 1}, "gpus": ["10de:2330"], "manages": MANAGES}}


@pytest.fixture
def node(tree: Tree) -> Tree:
    tree.file(CONFIG, "blacklist nouveau\n", 0o644)
    tree.file(INITRD, "x" * 100)
    tree.packages({"docker.io": "26.1.5+dfsg1-9"})
    tree.file(ENVIRONMENT + "/pyvenv.cfg", "version = 3.12.3\n")
    tree.file(RECORD, "torch/__init__.py,,\n")
    return tree


def seal(node: Tree, check: bool = False, given: Any = None) -> dict[str, Any]:
    return run_module(node_seal, check, state="sealed", seals=given or GIVEN, root=str(node.root))


def verdict(node: Tree) -> tuple[str, str | None]:
    host = node.host()
    found = seals.read_all(host)["nouveau_blacklist"]
    seen = seals.verify(host, found, packages.installed(host), services.observe({}))
    return seen.state, seen.reason


def test_sealing_writes_what_the_node_really_has_readable_by_root_only(node: Tree) -> None:
    answer = seal(node)
    # Not every line of ansible-core repeats the arguments.
    answer.pop("invocation", None)
    assert answer == {"changed": True, "written": [SEAL], "removed": []}
    path = node.root / SEAL.lstrip("/")
    record = json.loads(path.read_text())
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert record["packages"] == {"docker.io": "26.1.5+dfsg1-9"}
    assert record["files"][CONFIG]["mode"] == "0644"
    assert verdict(node) == ("good", None)
    assert [entry.name for entry in path.parent.iterdir()] == ["nouveau_blacklist.json"]


def test_sealing_in_check_mode_says_so_and_writes_nothing(node: Tree) -> None:
    answer = seal(node, check=True)
    assert (answer["changed"], answer["written"]) == (True, [SEAL])
    assert not (node.root / "var/lib/gpuwright").exists()


def test_sealing_again_changes_nothing_also_in_check_mode(node: Tree) -> None:
    seal(node)
    assert seal(node)["changed"] is False
    assert seal(node, check=True)["changed"] is False


def test_what_is_not_there_cannot_be_sealed(node: Tree) -> None:
    (node.root / CONFIG.lstrip("/")).unlink()
    answer = seal(node)
    assert answer["failed"] is True
    assert CONFIG in answer["msg"]


def change_content(node: Tree) -> None:
    path = node.root / CONFIG.lstrip("/")
    before = path.stat()
    path.write_text("blacklist nouveaX\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_content, f"{CONFIG} changed"),
        (lambda node: (node.root / CONFIG.lstrip("/")).chmod(0o600), f"{CONFIG} has mode 0600 instead of 0644"),
        (lambda node: (node.root / CONFIG.lstrip("/")).unlink(), f"{CONFIG} is gone"),
        (lambda node: node.file(INITRD, "y"), f"{INITRD} changed"),
        (lambda node: node.packages({"docker.io": "25.0"}), "package docker.io is 25.0 instead of 26.1.5+dfsg1-9"),
        (lambda node: node.packages({}), "package docker.io is not installed"),
        (
            lambda node: node.packages({"docker.io": "26.1.5+dfsg1-9"}, {"docker.io": "install ok half-configured"}),
            "package docker.io is half-configured",
        ),
        (lambda node: node.file(RECORD, "more\n" * 9), f"packages of the environment {ENVIRONMENT} changed"),
        (
            lambda node: (node.root / ENVIRONMENT.lstrip("/") / "pyvenv.cfg").unlink(),
            f"environment {ENVIRONMENT} is gone",
        ),
        (lambda node: node.file(SEAL, "{"), None),
    ],
)
def test_the_first_difference_is_the_reason(node: Tree, change: Any, reason: str | None) -> None:
    seal(node)
    change(node)
    state, said = verdict(node)
    assert state == "broken"
    assert said == reason or (reason is None and "unreadable" in str(said))


def test_a_service_is_compared_with_its_sealed_state(node: Tree) -> None:
    host = node.host()
    sealed = {"schema": 1, "services": {"docker.service": {"active": "active", "enabled": "enabled"}}}
    assert (
        seals.verify(host, sealed, {}, {"docker.service": {"active": "active", "enabled": "enabled"}}).state == "good"
    )
    stopped = seals.verify(host, sealed, {}, {"docker.service": {"active": "inactive", "enabled": "enabled"}})
    assert stopped.reason == "service docker.service is inactive instead of active"


def test_a_service_that_could_not_run_yet_when_it_was_sealed_may_run_now(node: Tree) -> None:
    unit, host = "nvidia-persistenced.service", node.host()
    sealed = {"schema": 1, "services": {unit: {"active": "failed", "enabled": "enabled"}}}
    assert seals.verify(host, sealed, {}, {unit: {"active": "active", "enabled": "enabled"}}).state == "good"
    assert seals.verify(host, sealed, {}, {unit: {"active": "active", "enabled": "disabled"}}).state == "broken"
    assert seals.verify(host, sealed, {}, {}).state == "broken"


def test_a_seal_of_a_newer_gpuwright_is_neither_trusted_nor_overwritten_nor_dropped(node: Tree) -> None:
    seal(node)
    path = node.root / SEAL.lstrip("/")
    newer = {**json.loads(path.read_text()), "gpuwright": "99.0.0"}
    path.write_text(json.dumps(newer))
    assert verdict(node)[0] == "newer"
    for answer in (
        seal(node),
        run_module(node_seal, state="begun", seals=BEGIN, owner="a", root=str(node.root)),
    ):
        assert answer["failed"] is True
        assert "99.0.0" in answer["msg"]
    assert json.loads(path.read_text()) == newer


def begin(node: Tree, owner: str, check: bool = False, **more: Any) -> dict[str, Any]:
    return run_module(node_seal, check, state="begun", seals=BEGIN, owner=owner, root=str(node.root), **more)


def test_beginning_takes_the_lock_and_puts_a_mark_in_place_of_the_seals(node: Tree) -> None:
    seal(node)
    begin(node, "a@one:1")
    assert (node.root / paths.ROOTS.lock.lstrip("/")).exists()
    state, reason = verdict(node)
    assert state == "begun"
    assert "has not come to its end" in str(reason)


def test_a_mark_keeps_the_cards_and_versions_that_the_seal_knew_however_often_a_run_begins(node: Tree) -> None:
    seal(node)
    for _ in range(2):
        begin(node, "a@one:1")
    mark = seals.read(node.host(), "nouveau_blacklist")
    assert mark is not None
    assert (mark["gpus"], mark["packages"], mark["stack"]) == (["10de:2330"], {"docker.io": "26.1.5+dfsg1-9"}, {"x": 2})
    assert "digest" not in mark


def test_the_mark_of_a_role_used_alone_is_no_sign_of_a_run_that_was_cut_off(node: Tree) -> None:
    seal(node)
    begin(node, "a@one:1", alone=True)
    state, reason = verdict(node)
    assert state == "alone"
    assert "used alone" in str(reason)
    assert (seals.read(node.host(), "nouveau_blacklist") or {})["packages"] == {}, "the role moved them as it was told"
    begin(node, "a@one:1")
    assert verdict(node)[0] == "begun"


def test_beginning_in_check_mode_says_so_and_writes_nothing(node: Tree) -> None:
    seal(node)
    would = begin(node, "a@one:1", check=True)
    assert (would["changed"], would["written"]) == (True, [paths.ROOTS.lock, SEAL])
    assert verdict(node)[0] == "good"
    assert not (node.root / paths.ROOTS.lock.lstrip("/")).exists()


def test_sealing_replaces_the_mark(node: Tree) -> None:
    begin(node, "a@one:1")
    assert verdict(node)[0] == "begun"
    assert seal(node)["changed"] is True
    assert verdict(node) == ("good", None)


def test_the_lock_of_a_run_that_is_known_to_be_dead_is_taken_over_and_no_other(node: Tree) -> None:
    begin(node, "a@one:1")
    assert begin(node, "b@two:2", takes_over="c@three:3")["failed"] is True
    assert begin(node, "b@two:2", takes_over="a@one:1")["changed"] is True
    assert json.loads((node.root / paths.ROOTS.lock.lstrip("/")).read_text())["owner"] == "b@two:2"


def test_the_living_lock_of_another_owner_stops_and_names_the_owner(node: Tree) -> None:
    begin(node, "a@one:1")
    for check in (False, True):
        answer = begin(node, "b@two:2", check)
        assert answer["failed"] is True
        assert "a@one:1" in answer["msg"]
        assert paths.ROOTS.lock in answer["msg"]


def test_an_expired_lock_is_replaced(node: Tree) -> None:
    node.file(
        paths.ROOTS.lock,
        json.dumps({"owner": "a@one:1", "since": "2026-01-01T00:00:00Z", "expires": seals.iso(time.time() - 1)}),
    )
    assert begin(node, "b@two:2")["changed"] is True
    assert json.loads((node.root / paths.ROOTS.lock.lstrip("/")).read_text())["owner"] == "b@two:2"


def test_a_run_goes_on_while_the_lock_is_its_own_and_seals_nothing_after_another_came(node: Tree) -> None:
    held: dict[str, Any] = {"state": "held", "root": str(node.root)}
    begin(node, "a@one:1")
    assert run_module(node_seal, owner="a@one:1", **held)["changed"] is False
    (node.root / paths.ROOTS.lock.lstrip("/")).unlink()
    assert run_module(node_seal, owner="a@one:1", **held)["changed"] is False, "a boot took it along"
    begin(node, "b@two:2", takes_over="a@one:1")
    assert "b@two:2 has worked on it" in run_module(node_seal, owner="a@one:1", **held)["msg"]
    assert "failed" not in run_module(node_seal, True, owner="a@one:1", **held), "a check changes nothing"
    sealed = run_module(node_seal, state="sealed", seals=GIVEN, owner="a@one:1", root=str(node.root))
    assert sealed["failed"] is True
    assert verdict(node)[0] == "begun"


def test_an_unreadable_lock_stops(node: Tree) -> None:
    node.file(paths.ROOTS.lock, "{")
    assert begin(node, "b@two:2")["failed"] is True


def test_only_the_owner_releases_the_lock(node: Tree) -> None:
    begin(node, "a@one:1")
    release: dict[str, Any] = {"state": "released", "root": str(node.root)}
    assert run_module(node_seal, owner="b@two:2", **release)["changed"] is False
    assert run_module(node_seal, check=True, owner="a@one:1", **release)["changed"] is True
    assert run_module(node_seal, owner="a@one:1", **release)["changed"] is True
    assert run_module(node_seal, owner="a@one:1", **release)["changed"] is False
    assert not (node.root / paths.ROOTS.lock.lstrip("/")).exists()


def test_the_proof_is_written_once(node: Tree) -> None:
    given: dict[str, Any] = {"state": "proven", "proof": {"verdict": "pass", "boot_id": "x"}, "root": str(node.root)}
    assert run_module(node_seal, check=True, **given)["changed"] is True
    assert not (node.root / paths.ROOTS.proof.lstrip("/")).exists()
    assert run_module(node_seal, **given)["changed"] is True
    assert run_module(node_seal, **given)["changed"] is False
    assert run_module(node_seal, check=True, **given)["changed"] is False
    assert seals.read_proof(node.host()) == {"schema": 1, "verdict": "pass", "boot_id": "x"}


def test_a_component_cannot_lead_out_of_the_directory(node: Tree) -> None:
    answer = run_module(node_seal, state="sealed", seals={"../../etc/passwd": {}}, root=str(node.root))
    assert answer["failed"] is True


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in sorted(root.rglob("*"))}


def test_the_whole_observation_has_every_part_and_changes_nothing(node: Tree) -> None:
    seal(node)
    node.h100()
    node.file("/etc/os-release", "ID=debian\nVERSION_ID=13\n")
    before = snapshot(node.root)
    for check in (False, True):
        answer = run_module(node_facts, check, root=str(node.root))
        facts = answer["facts"]
        assert answer["changed"] is False
    assert snapshot(node.root) == before
    assert set(facts) == {
        "schema", "root", "privileged", "unknown", "simulated", "hostname", "time", "os", "environment", "boot", "kernel", "pci", "display",
        "driver", "dkms", "smi", "cuda", "containers", "python", "environments", "disks", "packages", "services",
        "sessions", "seals", "proof", "lock", "history", "fabric", "in_use", "names",
    }  # fmt: skip
    assert facts["seals"]["nouveau_blacklist"]["state"] == "good"
    assert facts["seals"]["nouveau_blacklist"]["digest"] == "abc"
    assert facts["environments"][ENVIRONMENT]["packages"] == {"torch": "2.14.1"}
    assert facts["simulated"] is False
    assert "services" in facts["unknown"]


def test_seals_that_may_not_be_read_are_not_known_and_not_absent(node: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    seal(node)
    listed, directory = os.listdir, str(node.root / paths.ROOTS.seals.lstrip("/"))

    def denied(path: Any = ".") -> list[str]:
        if str(path) == directory:
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "listdir", denied)
    facts = run_module(node_facts, root=str(node.root))["facts"]
    assert facts["seals"] is None
    assert "Permission denied" in facts["unknown"]["seals"]


def test_a_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    assert "no directory" in run_module(node_facts, root=str(tmp_path / "absent"))["msg"]


# --- what an earlier run left for the next boot -----------------------------------------------------------------------

UNITS = "/etc/systemd/system"
JOB = [
    f"{UNITS}/multi-user.target.wants/gpuwright-resume.service",
    f"{UNITS}/gpuwright-resume.service",
    "/var/lib/gpuwright/resume/run",
    "/var/lib/gpuwright/resume/wish.json",
]
REPORT = ["/var/lib/gpuwright/resume/notice", "/var/lib/gpuwright/resume/report/report.json"]


@pytest.fixture
def armed(node: Tree) -> Tree:
    for path in (*JOB[1:], *REPORT):
        node.file(path, "x")
    node.link(JOB[0], JOB[1])
    return node


def there(node: Tree) -> list[str]:
    return [path for path in (*JOB, *REPORT) if os.path.lexists(node.root / path.lstrip("/"))]


def test_who_begins_to_change_the_node_calls_off_what_waits_for_its_boot(armed: Tree) -> None:
    begin: dict[str, Any] = {"state": "begun", "seals": BEGIN, "owner": "me@here:1", "root": str(armed.root)}
    assert sorted(run_module(node_seal, True, **begin)["removed"]) == sorted(JOB)
    assert there(armed) == [*JOB, *REPORT]
    assert sorted(run_module(node_seal, **begin)["removed"]) == sorted(JOB)
    assert there(armed) == REPORT


def test_a_run_that_failed_calls_it_off_and_one_that_did_not_leaves_it(armed: Tree) -> None:
    release: dict[str, Any] = {"state": "released", "owner": "me@here:1", "root": str(armed.root)}
    assert run_module(node_seal, **release)["removed"] == []
    assert there(armed) == [*JOB, *REPORT]
    run_module(node_seal, **release, failed=True)
    assert there(armed) == REPORT


def test_a_run_that_failed_leaves_what_another_run_has_waiting_for_the_boot(armed: Tree) -> None:
    run_module(node_seal, state="begun", seals={}, owner="b@two:2", root=str(armed.root))
    for path in JOB[1:]:
        armed.file(path, "x")
    before = there(armed)
    run_module(node_seal, state="released", owner="me@here:1", failed=True, root=str(armed.root))
    assert there(armed) == before


# --- records that are none --------------------------------------------------------------------------------------------


def huge(node: Tree, path: str) -> None:
    node.file(path, '{"checks": ["' + "x" * (40 * 1024**2) + '"]}')


def deep(node: Tree, path: str) -> None:
    node.file(path, '{"checks": ' + "[" * 100_000 + "]" * 100_000 + "}")


def pipe(node: Tree, path: str) -> None:
    node.file(path).unlink()
    os.mkfifo(node.root / path.lstrip("/"))


@pytest.mark.parametrize("make", [huge, deep, pipe])
@pytest.mark.parametrize("path", [paths.ROOTS.proof, paths.ROOTS.lock, "/var/lib/gpuwright/history.json"])
def test_a_record_that_is_none_is_named_and_not_handed_on(node: Tree, make: Any, path: str) -> None:
    make(node, path)
    answer = run_module(node_facts, root=str(node.root), history=True)
    said = json.dumps(answer)
    assert f"{path} is unreadable" in said
    assert len(said) < 50_000


def test_a_record_that_leads_to_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "proof.json").symlink_to("/dev/zero")
    with pytest.raises(seals.SealError, match="it is no file"):
        seals.read_object(Host(), str(tmp_path / "proof.json"))


def test_a_huge_configuration_of_docker_is_not_handed_on(node: Tree) -> None:
    huge(node, "/etc/docker/daemon.json")
    docker = run_module(node_facts, root=str(node.root))["facts"]["containers"]["docker"]
    assert docker["daemon_json"] is None
    assert "has more than" in docker["daemon_json_error"]
