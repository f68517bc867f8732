from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from tests.unit.observe.trees import FakePrograms, Tree, answer


def test_installed_packages_are_read_from_the_status_file(tree: Tree) -> None:
    tree.packages({"nvidia-driver-cuda": "580.95.05-1", "hello": "2.10-3"}, {"hello": "install ok installed"})
    seen = packages.observe(tree.host())
    assert seen["manager"] == "apt"
    assert seen["installed"] == {"nvidia-driver-cuda": "580.95.05-1"}
    assert seen["interrupted"] is False


def test_a_removed_package_with_left_over_configuration_is_not_installed() -> None:
    text = "Package: docker.io\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: gcc\nStatus: install ok installed\nVersion: 2\n"
    assert list(packages.parse_dpkg_status(text)) == ["gcc"]


def test_a_package_of_a_foreign_architecture_does_not_hide_the_native_one() -> None:
    text = "".join(
        f"Package: libcuda1\nStatus: install ok installed\nArchitecture: {arch}\nVersion: {version}\n\n"
        for arch, version in (("amd64", "1"), ("i386", "2"))
    )
    found = packages.parse_dpkg_status(text, "amd64")
    assert {name: package.version for name, package in found.items()} == {"libcuda1": "1", "libcuda1:i386": "2"}


@pytest.mark.parametrize(
    "state",
    [
        "install ok half-configured",
        "install ok unpacked",
        "install reinstreq half-installed",
        "install ok triggers-pending",
    ],
)
def test_unfinished_packages_are_an_interruption_that_names_them(tree: Tree, state: str) -> None:
    tree.packages({"nvidia-kernel-dkms": "1", "gcc": "1"}, {"nvidia-kernel-dkms": state})
    seen = packages.observe(tree.host())
    assert seen["interrupted"] is True
    assert "nvidia-kernel-dkms" in (seen["interrupted_detail"] or "")
    assert "nvidia-kernel-dkms" not in seen["installed"]


def test_an_unfinished_step_in_the_journal_is_an_interruption(tree: Tree) -> None:
    tree.packages({"gcc": "1"})
    tree.file("/var/lib/dpkg/updates/tmp.i")
    assert packages.observe(tree.host())["interrupted"] is False
    tree.file("/var/lib/dpkg/updates/0001")
    assert packages.observe(tree.host())["interrupted"] is True


def test_what_dpkg_did_since_it_wrote_its_record_is_read_from_its_journal(tree: Tree) -> None:
    record = "Package: {}\nStatus: install ok {}\nArchitecture: amd64\nVersion: {}\n\n"
    names = ("libcuda1", "nvidia-driver-cuda", "nvidia-modprobe")
    tree.file("/var/lib/dpkg/status", "".join(record.format(name, "installed", "580.126.20-1") for name in names))
    tree.file("/var/lib/dpkg/updates/0010", record.format("nvidia-driver-cuda", "unpacked", "580.178.04-1"))
    tree.file("/var/lib/dpkg/updates/0009", record.format("nvidia-driver-cuda", "half-installed", "580.126.20-1"))
    tree.file("/var/lib/dpkg/updates/tmp.i", "#padding\n")
    found = packages.installed(tree.host())
    assert [(found[name].version, found[name].state) for name in names] == [
        ("580.126.20-1", "installed"),
        ("580.178.04-1", "unpacked"),
        ("580.126.20-1", "installed"),
    ]


def test_holds_are_listed(tree: Tree) -> None:
    tree.packages({"nvidia-driver-cuda": "1", "gcc": "1"}, {"nvidia-driver-cuda": "hold ok installed"})
    assert packages.observe(tree.host())["holds"] == ["nvidia-driver-cuda"]


def test_sources_of_both_formats_are_read_and_other_files_are_not(tree: Tree) -> None:
    tree.packages({})
    tree.file(
        "/etc/apt/sources.list",
        "# deb http://no.example x main\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example/debian trixie main contrib # why\n",
    )
    tree.file(
        "/etc/apt/sources.list.d/b.sources",
        "Types: deb deb-src\nURIs: http://b.example\nSuites: trixie\n trixie-updates\nComponents: main\n\n"
        "# comment\nEnabled: no\nURIs: http://c.example\nSuites: /\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n",
    )
    tree.file("/etc/apt/sources.list.d/d.list.save", "deb http://d.example x main\n")
    first, second, third = packages.observe(tree.host())["sources"]
    assert first.pop("key_missing")
    tree.file("/k.gpg", "")
    assert "key_missing" not in packages.observe(tree.host())["sources"][0]
    assert first == {
        "file": "/etc/apt/sources.list",
        "types": ["deb"],
        "uris": ["http://a.example/debian"],
        "suites": ["trixie"],
        "components": ["main", "contrib"],
        "signed_by": "/k.gpg",
        "enabled": True,
    }
    assert second["types"] == ["deb", "deb-src"]
    assert second["suites"] == ["trixie", "trixie-updates"]
    assert (third["enabled"], third["signed_by"], third["suites"]) == (False, "inline", ["/"])


def test_a_running_package_manager_is_named_and_the_waiter_for_the_shutdown_is_not(tree: Tree) -> None:
    tree.packages({})
    tree.file("/proc/700/comm", "unattended-upgr\n")
    tree.file(
        "/proc/700/cmdline", "python3\0/usr/share/unattended-upgrades/unattended-upgrade-shutdown\0--wait-for-signal\0"
    )
    assert packages.observe(tree.host())["busy"] is None
    tree.file("/proc/812/comm", "unattended-upgr\n")
    tree.file("/proc/812/cmdline", "python3\0/usr/bin/unattended-upgrade\0")
    assert packages.observe(tree.host())["busy"] == "unattended-upgr (pid 812)"


def test_a_package_manager_in_a_root_of_its_own_changes_nothing_here(tree: Tree) -> None:
    tree.packages({})
    tree.directory("/var/lib/docker/overlay2/one/merged")
    tree.file("/proc/900/comm", "dpkg\n")
    tree.file("/proc/900/cmdline", "dpkg\0--configure\0-a\0")
    tree.link("/proc/900/root", "/var/lib/docker/overlay2/one/merged")
    assert packages.observe(tree.host())["busy"] is None
    tree.file("/proc/901/comm", "dpkg\n")
    tree.link("/proc/901/root", "/")
    assert packages.observe(tree.host())["busy"] == "dpkg (pid 901)"


@pytest.mark.parametrize("name", ["dnf", "needrestart", "dpkg"])
def test_a_name_that_a_user_gave_a_process_makes_no_package_manager_busy(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tree.packages({})
    tree.file("/proc/900/comm", f"{name}\n")
    assert packages.observe(tree.host())["busy"] == f"{name} (pid 900)"
    monkeypatch.setattr(processes, "is_roots", lambda pid, _root: pid != 900)
    assert packages.observe(tree.host())["busy"] is None


def test_the_holder_of_a_lock_is_found(tree: Tree, tmp_path: Path) -> None:
    lock = tree.file("/var/lib/dpkg/lock-frontend")
    code = f"import fcntl,sys; f=open({str(lock)!r},'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    assert packages.lock_holder(tree.host(), "/var/lib/dpkg/lock-frontend") is None
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert packages.lock_holder(tree.host(), "/var/lib/dpkg/lock-frontend") == holder.pid
        holder.communicate(b"")
    with lock.open("w") as mine:
        fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_rpm_is_asked_for_the_tree_and_keeps_what_it_says(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    tree.program("/usr/bin/dnf")
    tree.file(
        "/etc/yum.repos.d/cuda.repo",
        "[cuda-rhel9]\nname=x\nbaseurl=http://r.example/rhel9/\nenabled=1\ngpgkey=file:///k\n",
    )
    programs = FakePrograms(
        {
            "rpm -": answer(""),
            "rpm": answer(
                "docker-ce\t3\t26.1.5-1.el9\tx86_64\tDocker\tdocker-ce-26.1.5-1.el9.src.rpm\n"
                "nvidia-driver\t(none)\t580.95.05-1.el9\tx86_64\tNVIDIA\tnvidia-driver-580.95.05-1.el9.src.rpm\n"
            ),
        }
    )
    programs.answers.pop("rpm -")
    seen = packages.observe(tree.host(programs))
    assert seen["manager"] == "dnf"
    assert seen["installed"] == {"docker-ce": "3:26.1.5-1.el9", "nvidia-driver": "580.95.05-1.el9"}
    assert programs.calls[0][:3] == ["rpm", "--root", str(tree.root)]
    assert seen["sources"][0]["uris"] == ["http://r.example/rhel9/"]
    assert seen["interrupted"] is False


def test_a_machine_without_package_manager_is_unknown_not_empty(tree: Tree) -> None:
    host = tree.host()
    assert packages.observe(host)["manager"] is None
    assert "packages" in host.unknown_facts


def test_what_toolkits_need_of_the_system_is_listed(tree: Tree) -> None:
    tree.packages({"g++": "1", "g++-14": "1", "xz-utils": "1", "libxml2": "1", "bash": "1"})
    assert set(packages.observe(tree.host())["installed"] or ()) == {"g++", "xz-utils", "libxml2"}


def test_pins_of_negative_priority_are_read_as_apt_reads_their_files(tree: Tree) -> None:
    tree.packages({})
    out = "Pin: release *\nPin-Priority: -1\n"
    tree.file(
        "/etc/apt/preferences", f"# words\nPackage: a b\n c\n{out}\nPackage: d\nPin: release *\nPin-Priority: 10\n"
    )
    tree.file(
        "/etc/apt/preferences.d/no-nvidia",
        "Explanation: x\npackage: *nvidia*\nPin: origin x.example\nPin-Priority: -10\n",
    )
    for name in ("gpuwright-nvidia-cuda", "old.bak", "no nvidia"):
        tree.file(f"/etc/apt/preferences.d/{name}", f"Package: e\n{out}")
    first, second = packages.observe(tree.host())["hides"]
    assert first == {
        "file": "/etc/apt/preferences",
        "entry": "Package: a b c, Pin: release *, Pin-Priority: -1",
        "packages": ["a", "b", "c"],
        "except": [],
        "source": None,
    }
    assert (second["file"], second["source"]) == ("/etc/apt/preferences.d/no-nvidia", "origin x.example")
