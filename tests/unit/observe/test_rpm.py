"""rpm systems: kernels side by side, what an interrupted update leaves, streams and locks."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.facts import Packages
from ansible_collections.gpuwright.node.plugins.module_utils.observe import dnf_files, packages, rpm
from tests.unit.observe.trees import FakePrograms, Tree, answer
from tests.unit.quick import quickly

KERNELS = "".join(
    f"kernel-devel\t(none)\t5.14.0-{release}\tx86_64\tRocky\tkernel-5.14.0-{release}.src.rpm\n"
    for release in ("611.9.1.el9_7", "611.41.1.el9_7", "570.58.1.el9_6")
) + "".join(f"glibc\t(none)\t2.34-231.el9\t{arch}\tRocky\tglibc-2.34-231.el9.src.rpm\n" for arch in ("x86_64", "i686"))
CUT_OFF = KERNELS + "".join(
    f"nvidia-driver-cuda\t3\t{build}-1.el9\tx86_64\tNVIDIA\tnvidia-driver-{build}-1.el9.src.rpm\n"
    for build in ("580.126.20", "580.178.04")
)
KEY = "gpg-pubkey\t(none)\td42d0685-62589a51\t(none)\t(none)\t(none)\n"
PLUGIN = "/etc/dnf/plugins/versionlock.conf"


def observed(tree: Tree, listing: str) -> Packages:
    tree.directory("/var/lib/rpm")
    return packages.observe(tree.host(FakePrograms({"rpm -": answer(listing)})))


def test_headers_stand_under_the_name_of_each_kernel_and_the_newest_under_their_own() -> None:
    found = rpm.parse_rpm(KERNELS)
    assert found["kernel-devel"].version == "5.14.0-611.41.1.el9_7"
    assert "kernel-devel-5.14.0-570.58.1.el9_6.x86_64" in found
    assert "glibc-2.34-231.el9.x86_64" not in found
    matched = "kernel-devel-matched\t(none)\t5.14.0-611.9.1.el9_7\tx86_64\tRocky\tkernel-5.14.0-611.9.1.el9_7.src.rpm\n"
    assert "kernel-devel-matched-5.14.0-611.9.1.el9_7.x86_64" in rpm.parse_rpm(matched)


@pytest.mark.parametrize("name", ["kernel-64k-core", "kernel-64k-devel", "kernel-64k-devel-matched", "kernel-rt-devel"])
def test_flavoured_kernels_stand_under_the_name_of_each_too(name: str) -> None:
    line = f"{name}\t(none)\t5.14.0-503.14.1.el9_5\taarch64\tRocky\tkernel-5.14.0-503.14.1.el9_5.src.rpm\n"
    assert set(rpm.parse_rpm(line)) == {name, f"{name}-5.14.0-503.14.1.el9_5.aarch64"}


def test_the_source_package_and_the_keys_are_read() -> None:
    found = rpm.parse_rpm(CUT_OFF + KEY)
    assert found["nvidia-driver-cuda"].source == "nvidia-driver"
    assert [name for name in found if name.startswith("gpg")] == ["gpg-pubkey-d42d0685-62589a51"]


def test_a_set_of_names_says_each_kernel_once() -> None:
    headers = "kernel-devel-5.14.0-611.9.1.el9_7.x86_64"
    assert rpm.exact(["kernel-devel", headers, "gcc"]) == ["gcc", headers]
    assert rpm.exact(["kernel-devel"]) == ["kernel-devel"]
    matched = "kernel-devel-matched-5.14.0-611.9.1.el9_7.x86_64"
    assert rpm.exact(["kernel-devel", headers, "kernel-devel-matched", matched]) == [headers, matched]
    assert rpm.exact(["kernel-devel-matched", headers]) == [headers, "kernel-devel-matched"]


def test_kernels_and_other_architectures_are_no_interruption(tree: Tree) -> None:
    seen = observed(tree, KERNELS)
    assert (seen["interrupted"], seen["interrupted_detail"]) == (False, None)


def test_two_versions_of_one_package_are_what_an_interrupted_update_leaves(tree: Tree) -> None:
    seen = observed(tree, CUT_OFF)
    assert seen["interrupted"] is True
    assert seen["interrupted_detail"] == "two versions are installed of nvidia-driver-cuda"


def test_a_database_that_does_not_answer_is_an_interruption(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    host = tree.host(FakePrograms({"rpm -": answer("", 1, "error: cannot open Packages database")}))
    seen = packages.observe(host)
    assert seen["interrupted"] is True
    assert "cannot open Packages database" in str(seen["interrupted_detail"])
    assert "packages.installed" in host.unknown_facts


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        (
            "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n",
            {"nvidia-driver": "580-open"},
        ),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=\nprofiles=\nstate=\n", {}),
        ("no section\n", {}),
    ],
)
def test_streams_are_those_that_are_enabled(tree: Tree, text: str, streams: dict[str, str]) -> None:
    tree.file("/etc/dnf/modules.d/nvidia-driver.module", text)
    assert rpm.streams(tree.host()) == streams


def test_the_locks_of_the_role_are_read_as_the_names_they_hold(tree: Tree) -> None:
    lock(tree, "nvidia-driver-cuda-3:580.178.04-1.el9.*", "kmod-nvidia-open-dkms-3:580.178.04-1.el9.*")
    assert rpm.versionlocks(tree.host()) == ["kmod-nvidia-open-dkms", "nvidia-driver-cuda"]


def lock(tree: Tree, *lines: str, enabled: str = "1") -> None:
    text = "\n".join(["# BEGIN driver (gpuwright)", *lines, "# END", ""])
    tree.file("/etc/dnf/plugins/versionlock.list", text)
    tree.file(PLUGIN, f"[main]\nenabled = {enabled}\n")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("nvidia-driver-cuda-3:580.178.04-1.el9.*", ["nvidia-driver-cuda"]),
        ("nvidia-driver-cuda-3:580.178.04-1.el9.x86_64", ["nvidia-driver-cuda"]),
        ("3:nvidia-driver-cuda-580.178.04-1.el9.*", ["nvidia-driver-cuda"]),
        ("nvidia-driver-cuda", ["nvidia-driver-cuda"]),
        ("nvidia-driver-cuda-3:580.126.20-1.el9.*", []),
    ],
)
def test_a_lock_of_another_version_than_the_installed_one_holds_nothing(
    tree: Tree, line: str, names: list[str]
) -> None:
    lock(tree, line)
    assert observed(tree, CUT_OFF)["holds"] == names


def test_without_its_plugin_the_list_holds_nothing(tree: Tree) -> None:
    lock(tree, "nvidia-driver-cuda-3:580.178.04-1.el9.*", enabled="0")
    assert observed(tree, CUT_OFF)["holds"] == []
    (tree.root / PLUGIN.lstrip("/")).unlink()
    assert observed(tree, CUT_OFF)["holds"] == []


def test_the_plugin_that_locks_is_among_what_is_listed(tree: Tree) -> None:
    line = (
        "python3-dnf-plugin-versionlock\t(none)\t4.3.0-24.el9\tnoarch\tRocky\tdnf-plugins-core-4.3.0-24.el9.src.rpm\n"
    )
    assert observed(tree, line)["installed"] == {"python3-dnf-plugin-versionlock": "4.3.0-24.el9"}


def test_a_file_of_sources_beyond_measure_is_named_and_takes_no_time(tree: Tree) -> None:
    tree.file("/etc/yum.repos.d/long.repo", "[a]\n" + "x = y\n" * 100_000)
    host = tree.host()
    assert quickly(lambda: rpm.sources(host)) == []
    assert "long.repo" in host.unknown_facts["packages.sources"]


GOOD = "[a]\nbaseurl=http://m.example/\n"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("name=x\n" + GOOD, 1, "no [section]"),
        (GOOD + "garbage\n", 3, "not OPTION=VALUE"),
        (GOOD + "name: x\n", 3, "not OPTION=VALUE"),
        (GOOD + "=x\n", 3, "not OPTION=VALUE"),
        ("[a]\n name=x\n", 2, "indented"),
        ("# words\n\n[a\n", 3, "no ]"),
        ("[]\nname=x\n", 1, "names no repository"),
        ("[a] words\nname=x\n", 1, "behind the ]"),
        (GOOD + "name=\ufffd\n", 3, "UTF-8"),
        (GOOD + "[b]\nname=x\n", 3, "[b] names no baseurl"),
        (GOOD + "[b]\nbaseurl=\n", 3, "[b] names no baseurl"),
        ("[a b]\nbaseurl=http://m.example/\n", 1, "[a b] is no id"),
        (GOOD + "enabled=maybe\n", 3, "enabled=maybe"),
        ("[main]\nbest=True\ngpgcheck=perhaps\n", 3, "gpgcheck=perhaps"),
        ("[a\x1bb]\nbaseurl=http://m.example/\n", 1, "[a?b] is no id"),
    ],
)
def test_what_dnf_cannot_read_is_named_with_its_line(tree: Tree, text: str, line: int, why: str) -> None:
    tree.file("/etc/yum.repos.d/foreign.repo", text)
    (told,) = dnf_files.broken(tree.host())
    assert told.startswith(f"/etc/yum.repos.d/foreign.repo, line {line}: ")
    assert why in told
    assert len(told) < 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# words\n; words\n\n",
        "\ufeff[a]\r\nname = x\r\nbaseurl = http://m.example/\r\n  http://n.example/\r\n",
        " [a] # words\nmirrorlist=http://m.example/\n",
        "[a]\nmetalink=http://m.example/\nexcludepkgs=a\n# words\n\n b=c\n",
        "[a]\nenabled=0\n",
        "[main]\nplugins=1\n[a-$releasever]\nbaseurl=http://m.example/\nenabled=$flag\n",
        "[a]\nname=x\n[a]\nbaseurl=http://m.example/\n",
        "# \ufffd\n" + GOOD,
    ],
)
def test_what_dnf_reads_is_not_broken(tree: Tree, text: str) -> None:
    tree.file("/etc/yum.repos.d/good.repo", text)
    assert dnf_files.broken(tree.host()) == []


def test_the_settings_of_dnf_are_read_too_and_the_first_line_that_stops_it_is_the_last_one_told(tree: Tree) -> None:
    tree.file("/etc/dnf/dnf.conf", "best\nbest\n")
    assert [told.partition(":")[0] for told in dnf_files.broken(tree.host())] == ["/etc/dnf/dnf.conf, line 1"]
    assert observed(tree, KERNELS)["broken_sources"] == dnf_files.broken(tree.host())


def test_of_a_file_that_dnf_cannot_read_there_are_no_sources() -> None:
    assert [source["name"] for source in rpm.parse_yum_repo("[main]\nbest=1\n" + GOOD, "/a.repo")] == ["a"]
    assert rpm.parse_yum_repo(GOOD + "garbage\n", "/a.repo") == []
    assert rpm.parse_yum_repo(GOOD + "enabled=maybe\n", "/a.repo")[0]["enabled"] is True


def test_a_file_that_is_full_of_sections_takes_no_time() -> None:
    sections = "".join(f"[{number}]\n" for number in range(9_000))
    quickly(lambda: dnf_files.faults(sections))


def test_a_long_version_is_not_taken_apart_again_for_each_line_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read 260 kB took a minute of the processor."""
    taken: list[str] = []
    key = versions.key

    def counted(version: str) -> tuple[tuple[int, int, str], ...]:
        taken.append(version)
        return key(version)

    monkeypatch.setattr(versions, "key", counted)
    line = "kernel-core\t0\t{}\tx86_64\tRocky\tkernel-5.14.0-611.el9.src.rpm\n"
    long = "9" + ".1" * 1000
    found = rpm.parse_rpm(line.format(long) + line.format("5.14.0-611.el9") * 20)
    assert found["kernel-core"].version == long
    assert taken.count(long) == 1


def test_exclusions_are_told_with_their_file_and_line(tree: Tree) -> None:
    tree.directory("/var/lib/rpm")
    tree.program("/usr/bin/dnf")
    tree.file("/etc/dnf/dnf.conf", "[main]\nexclude=nvidia*, kernel*\n cuda*\n")
    off = "[off]\nname=x\nbaseurl=http://r.example/\nenabled=0\nexcludepkgs=a\n"
    tree.file("/etc/yum.repos.d/a.repo", f"{off}[on]\nname=x\nbaseurl=http://r.example/\nincludepkgs=bash glibc*\n")
    assert dnf_files.hides(tree.host()) == [
        {
            "file": "/etc/dnf/dnf.conf",
            "entry": "exclude=nvidia* kernel* cuda*",
            "packages": ["nvidia*", "kernel*", "cuda*"],
            "except": [],
            "source": None,
        },
        {
            "file": "/etc/yum.repos.d/a.repo",
            "entry": "[on] includepkgs=bash glibc*",
            "packages": ["*"],
            "except": ["bash", "glibc*"],
            "source": "on",
        },
    ]
