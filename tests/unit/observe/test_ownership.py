"""Whose packages are: what the package manager's own log says that our calls brought, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe import package_log, packages
from ansible_collections.gpuwright.node.plugins.module_utils.packages import recording
from ansible_collections.gpuwright.node.plugins.module_utils.records import history, history_writer, seals
from ansible_collections.gpuwright.node.plugins.modules import node_seal
from tests.unit.modules import run_module
from tests.unit.observe.trees import FakePrograms, Tree, answer

HISTORY = "/var/log/apt/history.log"
#: What apt's log has of a call of gpuwright's before its calls were marked.
EARLIER = (
    "apt-get -y -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o APT::Install-Recommends=no"
    " -o DPkg::Lock::Timeout=300 install {}"
)
THERE = {"docker.io": "26.1", "bash": "5.2"}


@pytest.fixture
def node(tree: Tree) -> Tree:
    tree.packages(THERE)
    return tree


def begin(node: Tree) -> None:
    run_module(node_seal, state="begun", seals={}, owner="me", root=str(node.root))


def end(node: Tree) -> None:
    run_module(node_seal, state="sealed", seals={}, root=str(node.root))


def stanza(command: str, **lists: Iterable[str]) -> str:
    """A call in apt's log; of `Install`, `Remove` and their like the packages."""
    said = [f"{kind}: {', '.join(f'{name}:amd64 (1-1, automatic)' for name in names)}" for kind, names in lists.items()]
    lines = ["", "Start-Date: 2026-11-01  10:00:00", f"Commandline: {command}", *said, "End-Date: 2026-11-01  10:00:01"]
    return "\n".join(lines) + "\n"


def log(node: Tree, *stanzas: str) -> None:
    node.file(HISTORY, "".join(stanzas))


def record(node: Tree, **more: Any) -> None:
    node.file(paths.ROOTS.history, json.dumps({"schema": 1, **more}))


def seen(node: Tree, programs: FakePrograms | None = None) -> Any:
    return history.observe(node.host(runner=programs) if programs else node.host(), full=True)


def test_what_others_install_after_a_run_that_was_cut_off_is_not_ours(node: Tree) -> None:
    begin(node)
    node.packages({**THERE, "users-db": "1"})
    log(node, stanza("apt-get install users-db", Install=["users-db"]))
    assert seen(node)["brought"] == []
    begin(node)
    end(node)
    assert seen(node)["brought"] == []


def test_what_others_install_while_a_run_is_at_work_is_not_ours(node: Tree) -> None:
    begin(node)
    node.packages({**THERE, "users-db": "1"})
    end(node)
    assert seen(node)["brought"] == []


def test_an_rpm_that_does_not_answer_makes_nothing_ours(tree: Tree) -> None:
    """glibc and openssh, which are there when it answers again, were there before."""
    tree.directory("/var/lib/rpm")
    begin(tree)
    listed = answer("glibc\t(none)\t2.34-1\tx86_64\tRocky\tglibc-2.34-1.src.rpm\n")
    assert seen(tree, FakePrograms({"rpm": listed}))["brought"] == []


def call(node: Tree, *argv: str, does: Any = None, rc: int = 0) -> list[str]:
    """One call of a package manager with its record: the command that ran, which DOES something meanwhile."""
    ran: list[list[str]] = []

    def runner(given: Sequence[str], _extra: Mapping[str, str]) -> tuple[int, str, str]:
        ran.append(list(given))
        if does:
            does(" ".join(given))
        return rc, "", ""

    recording.recording(runner, node.host)(argv, {})
    return ran[0]


def installs(node: Tree, *names: str, others: Sequence[str] = ()) -> Any:
    """What apt does: it writes its log, then the packages come; OTHERS come meanwhile by somebody else."""

    def does(command: str) -> None:
        old = (node.root / HISTORY[1:]).read_text() if (node.root / HISTORY[1:]).exists() else ""
        log(node, old, stanza(command, Install=names), *(stanza("apt install it", Install=[each]) for each in others))
        there = {name: package.version for name, package in packages.installed(node.host()).items()}
        node.packages({**there, **dict.fromkeys([*names, *others], "1-1")})

    return does


def test_what_a_call_of_ours_installed_is_ours_with_its_dependencies_and_nothing_else(node: Tree) -> None:
    begin(node)
    call(node, "apt-get", "install", "fio=1-1", does=installs(node, "fio", "libaio1", others=["users-db"]))
    end(node)
    assert seen(node)["brought"] == ["fio", "libaio1"]
    assert history.read(node.host())["calls"] == {}


def test_the_mark_is_the_first_of_the_words_because_apt_cuts_long_ones_off(node: Tree) -> None:
    ran = call(node, "apt-get", "-y", "install", "fio")
    assert ran[0] == "apt-get"
    assert ran[1] == "-o"
    assert ran[2].startswith("gpuwright::Call=")
    assert ran[3:] == ["-y", "install", "fio"]
    assert call(node, "rpm", "--query", "fio") == ["rpm", "--query", "fio"]
    trial = ["apt-get", "--simulate", "install", "fio"]
    assert call(node, *trial) == trial, "it brings nothing, and is no call of the record"


def test_the_record_of_a_call_is_on_the_node_before_the_call_begins(node: Tree) -> None:
    def does(command: str) -> None:
        (mark,) = history.read(node.host())["calls"] or {}
        assert f"gpuwright::Call={mark}" in command

    call(node, "apt-get", "install", "fio", does=does)


def test_a_call_that_was_cut_off_is_completed_from_apts_log_at_the_next_look(node: Tree) -> None:
    begin(node)
    mark = history_writer.call_begins(node.host(), ["fio"])
    log(
        node,
        stanza(f"apt-get -o gpuwright::Call={mark} install fio", Install=["fio", "libaio1"]),
        stanza("apt-get install users-db", Install=["users-db"]),
    )
    node.packages({**THERE, "fio": "1-1", "users-db": "1-1"})
    assert seen(node)["brought"] == ["fio"]
    begin(node)
    # The repair finishes it, and takes nothing from what is ours.
    call(node, "apt-get", "--fix-broken", "install", does=installs(node, "libaio1", "of-others"))
    end(node)
    assert seen(node)["brought"] == ["fio", "libaio1"]


def test_apts_own_words_are_read() -> None:
    """As apt 2.6 wrote them of a call with a mark; of the libraries one is of a foreign architecture."""
    text = (
        "\nStart-Date: 2026-11-29  00:46:58\n"
        "Commandline: apt-get -o gpuwright::Call=0123456789ab -y -o Dpkg::Options::=--force-confdef install ./users-db.deb\n"
        "Requested-By: admin (1000)\n"
        "Install: users-db:amd64 (1), dep-a:amd64 (2:1-1, automatic), dep-b:i386 (3, automatic)\n"
        "Upgrade: bash:amd64 (5.2, 5.3)\nPurge: old:amd64 (1)\n"
        "End-Date: 2026-11-29  00:46:59\n"
    )
    (found,) = package_log.parse_apt(text, "amd64")
    assert (found.mark, found.earlier, found.end) == ("0123456789ab", False, "2026-11-29 00:46:59")
    assert found.came == {"users-db": "1", "dep-a": "2:1-1", "dep-b:i386": "3"}
    assert found.went == {"old"}
    (of_image,) = package_log.parse_apt(text, None)
    assert "dep-b" in of_image.came, "nobody knows which is the machine's own"


def test_an_upgrade_of_what_was_there_brings_nothing(node: Tree) -> None:
    said = "Upgrade: bash:amd64 (5.2, 5.3)"
    call(
        node,
        *("apt-get", "install", "bash"),
        does=lambda command: log(node, f"\nStart-Date: 1\nCommandline: {command}\n{said}\nEnd-Date: 1\n"),
    )
    assert seen(node)["brought"] == []


def test_what_somebody_removed_and_installed_again_himself_is_his(node: Tree) -> None:
    call(node, "apt-get", "install", "fio", does=installs(node, "fio", "dkms"))
    old = (node.root / HISTORY[1:]).read_text()
    log(node, old, stanza("apt remove fio", Remove=["fio"]), stanza("apt install fio", Install=["fio"]))
    assert seen(node)["brought"] == ["dkms"]
    begin(node)
    end(node)
    assert list(history.read(node.host())["brought"]) == ["dkms"]


@pytest.mark.parametrize(
    "ending", ["", "Error: Sub-process /usr/bin/dpkg returned an error code (1)\nEnd-Date: 2026-11-02  10:00:01\n"]
)
def test_what_a_removal_did_not_come_to_stays_whose_it_was(node: Tree, ending: str) -> None:
    """It was cut off, or dpkg failed: apt writes down before what it is about to remove."""
    call(node, "apt-get", "install", "fio", does=installs(node, "fio", "dkms"))
    old = (node.root / HISTORY[1:]).read_text()
    cut = stanza("apt-get purge fio dkms", Purge=["fio", "dkms"]).rpartition("End-Date")[0]
    log(node, old, cut + ending)
    assert seen(node)["brought"] == ["dkms", "fio"]
    begin(node)
    end(node)
    assert sorted(history.read(node.host())["brought"]) == ["dkms", "fio"]


def test_what_somebody_installed_again_by_dpkg_itself_is_his(node: Tree) -> None:
    call(node, "apt-get", "install", "fio", does=installs(node, "fio", "dkms"))
    lines = ["2026-11-01 10:00:01 install dkms:all <none> 1-1", "2026-11-01 10:00:01 install fio:amd64 <none> 1-1"]
    node.file(package_log.DPKG_LOG, "\n".join(lines) + "\n")
    assert seen(node)["brought"] == ["dkms", "fio"]
    lines += ["2026-11-02 09:00:00 remove fio:amd64 1-1 <none>", "2026-11-02 09:00:05 install fio:amd64 <none> 1-1"]
    node.file(package_log.DPKG_LOG, "\n".join(lines) + "\n")
    assert seen(node)["brought"] == ["dkms"]


def test_a_log_that_was_rotated_is_read_too_and_one_that_is_damaged_refuses_the_call(node: Tree) -> None:
    mark = history_writer.call_begins(node.host(), ["fio"])
    node.packages({**THERE, "fio": "1-1"})
    old = stanza(f"apt-get -o gpuwright::Call={mark} install fio", Install=["fio"])
    os.utime(node.file(f"{HISTORY}.1.gz", gzip.compress(old.encode())), (1, 1))
    log(node, stanza("apt install htop", Install=["htop"]))
    assert seen(node)["brought"] == ["fio"]
    node.file(f"{HISTORY}.1.gz", gzip.compress(old.encode())[:-9])
    host = node.host()
    assert history.observe(host, full=True) is None
    assert "history.log.1.gz is damaged" in host.unknown_facts["history"]
    with pytest.raises(seals.SealError, match=r"history.log.1.gz is damaged.*Nothing was installed"):
        call(node, "apt-get", "install", "dkms")


def test_what_the_log_has_no_longer_stays_as_it_was_recorded(node: Tree) -> None:
    call(node, "apt-get", "install", "fio", does=installs(node, "fio"))
    (node.root / HISTORY[1:]).unlink()
    assert seen(node)["brought"] == ["fio"]
    node.packages(THERE)
    assert seen(node)["brought"] == []


def test_what_came_while_apt_keeps_no_log_is_not_proven(node: Tree) -> None:
    def does(_command: str) -> None:
        node.packages({**THERE, "fio": "1-1", "libaio1": "1-1"})

    call(node, "apt-get", "install", "fio=1-1", "docker.io", "old-", does=does)
    found = seen(node)
    assert (found["brought"], found["unproven"]) == ([], ["fio"])


def test_a_call_that_failed_before_its_first_package_leaves_nothing(node: Tree) -> None:
    call(node, "apt-get", "install", "fio", rc=100)
    assert history.read(node.host())["calls"] == {}
    assert (seen(node)["brought"], seen(node)["unproven"]) == ([], [])


def test_left_over_settings_are_no_package_that_was_there(node: Tree) -> None:
    node.packages({**THERE, "fio": "0-1"}, {"fio": "deinstall ok config-files"})
    call(node, "apt-get", "install", "fio", "dkms", does=installs(node, "fio", "dkms"))
    assert seen(node)["brought"] == ["dkms", "fio"]
    assert seen(node)["settings"] == ["fio"]


# Records of before calls were marked


def test_of_an_old_record_is_ours_what_apt_has_of_a_call_of_ours(node: Tree) -> None:
    record(node, brought={"fio": "1-1", "dkms": "1-1", "htop": "1-1", "gone": "1"})
    log(
        node,
        stanza(EARLIER.format("fio"), Install=["fio", "gone"]),
        stanza("apt install htop", Install=["htop"]),
    )
    node.packages({**THERE, "fio": "1-1", "dkms": "1-1", "htop": "1-1"})
    assert (seen(node)["brought"], seen(node)["unproven"]) == (["fio"], ["dkms", "htop"])
    begin(node)
    end(node)
    assert (seen(node)["brought"], seen(node)["unproven"]) == (["fio"], ["dkms", "htop"])


def test_of_an_old_run_that_was_cut_off_is_ours_what_its_own_calls_brought(node: Tree) -> None:
    record(node, before=["bash", "docker.io"], brought={})
    log(
        node,
        stanza(EARLIER.format("fio"), Install=["fio"]),
        stanza("apt install users-db", Install=["users-db"]),
    )
    node.packages({**THERE, "fio": "1-1", "users-db": "1", "by-hand": "1"})
    assert (seen(node)["brought"], seen(node)["unproven"]) == (["fio"], ["by-hand"])
    begin(node)
    assert "before" not in json.loads((node.root / paths.ROOTS.history[1:]).read_text())


def test_an_old_run_that_rpm_did_not_answer_makes_nobody_doubt_the_whole_system(node: Tree) -> None:
    record(node, before=[], brought={})
    log(node, stanza(EARLIER.format("fio"), Install=["fio"]))
    node.packages({**THERE, "fio": "1-1"})
    assert (seen(node)["brought"], seen(node)["unproven"]) == (["fio"], [])


# dnf


def dnf_history(node: Tree, *calls: tuple[str, str, Sequence[tuple[int, str]]], cut: int = -1) -> None:
    """dnf's history with these transactions: comment, command line, and (action, package), of which 1 is the version where none is said.

    cut: the place of the transaction that was cut off.
    """
    path = node.root / package_log.DNF_LOG[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE trans (id INTEGER PRIMARY KEY, cmdline TEXT, comment TEXT)")
    base.execute(
        "CREATE TABLE trans_item (id INTEGER PRIMARY KEY, trans_id INTEGER, item_id INTEGER, action INTEGER, state INTEGER)"
    )
    base.execute("CREATE TABLE rpm (item_id INTEGER, name TEXT, epoch INT, version TEXT, release TEXT, arch TEXT)")
    for place, (comment, command, items) in enumerate(calls):
        number = base.execute("INSERT INTO trans (cmdline, comment) VALUES (?, ?)", (command, comment)).lastrowid
        for action, name in items:
            item = base.execute("SELECT count(*) FROM rpm").fetchone()[0]
            named, _equals, version = name.partition("=")
            base.execute("INSERT INTO rpm VALUES (?, ?, 0, ?, '1', 'x86_64')", (item, named, version or "1"))
            row = (number, item, action, int(place != cut))
            base.execute("INSERT INTO trans_item (trans_id, item_id, action, state) VALUES (?, ?, ?, ?)", row)
    base.commit()
    base.close()


def of_rpm(*names: str) -> FakePrograms:
    return FakePrograms(
        {"rpm": answer("".join(f"{each}\t(none)\t1-1\tx86_64\tRocky\t{each}-1-1.src.rpm\n" for each in names))}
    )


def test_dnfs_history_tells_by_our_comment_what_a_call_brought(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    mark = history_writer.call_begins(tree.host(runner=of_rpm("bash")), ["fio"])
    dnf_history(
        tree,
        (f"gpuwright {mark}", "install fio", [(1, "fio"), (1, "kernel-devel"), (6, "bash"), (7, "bash")]),
        ("", "install users-db", [(1, "users-db")]),
    )
    # Two kernels' headers stand side by side: the one is ours, and the other somebody else's.
    there = of_rpm("bash", "fio", "kernel-devel", "users-db")
    assert seen(tree, there)["brought"] == ["fio", "kernel-devel-1-1.x86_64"]
    history_writer.call_ends(tree.host(runner=there), mark, True, [])
    dnf_history(
        tree,
        (f"gpuwright {mark}", "install fio", [(1, "fio"), (1, "kernel-devel")]),
        ("", "remove fio", [(8, "fio")]),
        ("gpuwright by hand", "install fio", [(1, "fio")]),
    )
    assert seen(tree, there)["brought"] == ["kernel-devel-1-1.x86_64"]


@pytest.mark.parametrize(
    ("repair", "cut"),
    [
        # dnf's history has the older one as removed, and the newer one as installed again where a source still offers it.
        pytest.param([(8, "fio"), (8, "bash")], -1, id="the older goes"),
        pytest.param([(8, "fio"), (9, "fio=2"), (10, "fio=2"), (8, "bash")], -1, id="the older goes, the newer again"),
        # On the way back the newer one goes: the older one is there with another reason at most.
        pytest.param([(8, "fio=2")], 1, id="the newer goes"),
        pytest.param([(11, "fio"), (8, "fio=2")], 1, id="the newer goes, the older told"),
    ],
)
def test_a_package_of_which_one_of_two_versions_goes_stays_whose_it_was(
    tree: Tree, repair: list[Any], cut: int
) -> None:
    """An update of it was cut off, and left both versions."""
    tree.directory("/var/lib/rpm")
    there = of_rpm("bash", "fio")
    mark = history_writer.call_begins(tree.host(runner=of_rpm("bash")), ["fio"])
    came = (f"gpuwright {mark}", "install fio", [(1, "fio")])
    dnf_history(tree, came)
    history_writer.call_ends(tree.host(runner=there), mark, True, [])
    update = ("gpuwright 0123456789ab", "install fio-2", [(6, "fio=2"), (7, "fio"), (6, "bash=2"), (7, "bash")])
    calls = (came, update, ("gpuwright 0123456789ac", "", repair))
    dnf_history(tree, *calls, cut=cut)
    assert seen(tree, there)["brought"] == ["fio"]
    # Whose the last version is that somebody removes, and installs again, is his.
    dnf_history(tree, *calls, ("", "remove fio", [(8, "fio=2"), (8, "fio")]), cut=cut)
    assert seen(tree, there)["brought"] == []


def test_dnfs_history_tells_which_versions_it_began_to_bring(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    assert package_log.begun(tree.host(runner=of_rpm())) == set()
    dnf_history(tree, ("", "upgrade", [(6, "nvidia-driver-cuda=580.178.04"), (7, "nvidia-driver-cuda")]), cut=0)
    assert package_log.begun(tree.host(runner=of_rpm())) == {
        ("nvidia-driver-cuda", "580.178.04"),
        ("nvidia-driver-cuda", "1"),
    }


def test_an_old_record_is_held_against_dnfs_command_lines(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    record(tree, brought={"fio": "1-1", "dkms": "1-1", "gpg-pubkey-d42d0685-62589a51": "d42d0685-62589a51"})
    command = "--assumeyes --quiet --setopt=install_weak_deps=False --setopt=best=True install fio-1-1"
    dnf_history(tree, ("", command, [(1, "fio")]))
    found = seen(tree, of_rpm("fio", "dkms"))
    assert (found["brought"], found["unproven"]) == (["fio"], ["dkms"])


def test_keys_that_dnf_imported_from_files_of_ours_are_ours(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    rows = "gpg-pubkey\t(none)\t{}-6258{:04x}\t(none)\tNVIDIA\t(none)\n"
    had, came, others = rows.format("aaaaaaaa", 1), rows.format("d42d0685", 2), rows.format("bbbbbbbb", 3)
    mark = history_writer.call_begins(tree.host(runner=FakePrograms({"rpm": answer(had)})), ["fio"])
    after = FakePrograms({"rpm": answer(had + came + others)})
    history_writer.call_ends(tree.host(runner=after), mark, True, ["gpg-pubkey-aaaaaaaa-", "gpg-pubkey-d42d0685-"])
    assert seen(tree, after)["brought"] == ["gpg-pubkey-d42d0685-62580002"]


@pytest.mark.parametrize("silent", ["rpm", "history"])
def test_nothing_is_installed_where_rpm_or_dnfs_history_does_not_answer(tree: Tree, silent: str) -> None:
    tree.directory("/var/lib/rpm")
    tree.file(package_log.DNF_LOG, "no database" * 200 if silent == "history" else "")
    programs = FakePrograms() if silent == "rpm" else of_rpm("bash")
    with pytest.raises(seals.SealError, match=r"Found: .*Nothing was installed"):
        history_writer.call_begins(tree.host(runner=programs), ["fio"])
    host = tree.host(runner=programs)
    assert history.observe(host, full=True) is None
    assert "history" in host.unknown_facts


# Files of a role used alone, and of a run that was cut off

TIMER = "/etc/systemd/system/gpuwright-gpu-log.timer"
SCRIPT = "/usr/local/libexec/gpuwright/gpu_log.py"
MANAGES = {"files": [TIMER, SCRIPT], "services": ["gpuwright-gpu-log.timer", "docker.service"], "environments": []}


def role(node: Tree, alone: bool = True, **more: Any) -> None:
    mark = {"stack": {}, "gpus": [], "manages": {**MANAGES, **more}}
    run_module(node_seal, state="begun", seals={"gpu_log": mark}, owner="me", alone=alone, root=str(node.root))


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_role_alone_or_a_run_that_was_cut_off_wrote_is_named(node: Tree, alone: bool) -> None:
    node.file("/usr/lib/systemd/system/docker.service", "somebody else's")
    role(node, alone)
    assert (seen(node)["files"], seen(node)["services"]) == ([], ["gpuwright-gpu-log.timer"])
    node.file(TIMER, "x")
    node.file(SCRIPT, "x")
    role(node, alone)
    assert (seen(node)["files"], seen(node)["services"]) == ([TIMER, SCRIPT], ["gpuwright-gpu-log.timer"])


def test_a_file_that_stood_there_is_ours_only_where_it_was_written_over(node: Tree) -> None:
    node.file(TIMER, "somebody else's")
    node.file(SCRIPT, "somebody else's")
    role(node)
    role(node)
    assert seen(node)["files"] == []
    node.file(SCRIPT, "ours")
    assert seen(node)["files"] == [SCRIPT]


def test_what_was_sealed_before_a_role_was_used_alone_is_still_ours(node: Tree) -> None:
    other = "/etc/systemd/system/gpuwright-watch.timer"
    for path in (TIMER, other):
        node.file(path, "ours")
    sealed = {"component": "gpu_log", "files": {TIMER: {}, other: {}}, "services": {"docker.service": {}}}
    node.file(seals.path_of("gpu_log"), json.dumps(sealed))
    role(node)
    assert seen(node)["files"] == [TIMER, other]
    assert seen(node)["services"] == ["docker.service", "gpuwright-gpu-log.timer"]


def test_environments_that_a_role_alone_made_are_named_where_they_bear_our_mark(node: Tree) -> None:
    ours, others = "/srv/envs/pytorch", "/srv/envs/jax"
    node.file(f"{ours}/{paths.ENVIRONMENT_MARK}")
    node.directory(others)
    role(node, environments=[ours, others])
    assert seen(node)["environments"] == [ours]


def test_a_role_that_ended_leaves_digests_of_what_it_wrote(node: Tree) -> None:
    role(node)
    node.file(TIMER, "x")
    run_module(node_seal, state="left", seals={"gpu_log": {}}, root=str(node.root))
    left = seals.read(node.host(), "gpu_log")
    assert left is not None
    assert left["files"][TIMER]["sha256"] == seals.file_record(node.host(), TIMER)["sha256"]  # type: ignore[index]
    assert left["files"][SCRIPT] is None
    assert left["alone"] is True
