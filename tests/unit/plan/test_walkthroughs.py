"""From a machine as its owner describes it to the packages that are on it at the end, exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import index_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

from . import nodes, rpms
from .nodes import H100, bare
from .test_planner import request, wish

#: What every installation of Red Hat's systems has, of what the stand-ins ask for.
_FRESH = (
    "bash",
    "coreutils",
    "cpio",
    "file",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "kmod",
    "linux-firmware",
    "sed",
    "systemd",
    "tar",
    "which",
)
#: What kernel-devel, EPEL's DKMS and NVIDIA's modules bring to build with.
_BUILD = {
    "bison",
    "dkms",
    "elfutils-libelf-devel",
    "flex",
    "gcc",
    "gcc-c++",
    "make",
    "openssl-devel",
    "patch",
    "perl-interpreter",
}
_LOCK = {"python3-dnf-plugin-versionlock"}
#: What the proof measures disks with.
_PROOF = {"fio"}
_COMPUTE = {"kmod-nvidia-open-dkms", "libnvidia-cfg", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs", "nvidia-kmod-common",
            "nvidia-modprobe", "nvidia-persistenced"}  # fmt: skip
_OPENCL = {"ocl-icd", "opencl-filesystem"}
_FABRIC = {"nvidia-fabricmanager", "libnvidia-nscq"}


def red_hat(system: str, version: str, kernel: str, cards: int, **changes: Any) -> Any:
    """A server of Red Hat's family with so many H100."""
    facts = bare(**changes)
    source = {
        "types": ["rpm"],
        "uris": ["http://m.example/"],
        "suites": [],
        "components": [],
        "signed_by": None,
        "enabled": True,
    }
    facts["os"] |= {"id": system, "version": version, "codename": None, "family": "redhat"}
    facts["kernel"] |= {"running": kernel, "next": kernel, "installed": [kernel]}
    facts["pci"]["gpus"] = [{**H100, "bus_id": f"00000000:{bus:02X}:00.0"} for bus in range(0x18, 0x18 + cards)]
    facts["packages"] |= {
        "manager": "dnf",
        "sources": [{**source, "name": "baseos", "file": "/etc/yum.repos.d/base.repo"}],
    }
    return facts


def walked(facts: Any, *wants: str, **inputs: Any) -> tuple[Plan, dict[str, str]]:
    """The finished plan, and the packages with versions that come by it."""
    release = facts["os"]["version"].partition(".")[0]
    every = rpms.packages(release)
    there = rpms.installed(every, _FRESH, facts["kernel"]["next"])
    lacking: dict[str, list[str]] = {}
    asked = request(inputs={"nvidia_driver": inputs})
    while True:
        drafted = make_draft(
            facts, wish(gpuwright_want=list(wants)), load_rules(), replace(asked, absent=dict(lacking))
        )
        assert isinstance(drafted, Draft), drafted
        index = rpms.answer(drafted, every, there)
        more = index_query.absent(drafted, index)
        if not more:
            break
        lacking |= more
    tighter = index_query.tightened(drafted, index)
    if tighter is not None:
        drafted, index = tighter, rpms.answer(tighter, every, there)
    made = finish(drafted, index)
    return made, {row["name"]: row["version"] for row in made["install"]}


@pytest.mark.parametrize(
    ("system", "version", "kernel", "newest"),
    [
        ("rocky", "9.7", "5.14.0-611.41.1.el9_7", "5.14.0-611.49.1.el9_7"),
        ("almalinux", "10.1", "6.12.0-611.41.1.el10_7", "6.12.0-611.49.1.el10_7"),
    ],
)
def test_headers_of_the_kernel_that_runs_come_and_no_kernel(
    system: str, version: str, kernel: str, newest: str
) -> None:
    """One card of a data centre, the default wish of a driver, a kernel that is not the newest of the repositories."""
    made, coming = walked(red_hat(system, version, f"{kernel}.x86_64", 1), "driver")
    assert made["refusals"] == []
    headers = {f"kernel-devel-matched-{kernel}.x86_64", "kernel-devel"}
    assert set(coming) == _BUILD | _LOCK | _COMPUTE | _OPENCL | _PROOF | headers
    assert {coming[name] for name in headers} == {kernel}
    assert newest not in coming.values()
    release = version.partition(".")[0]
    assert {coming[name] for name in _COMPUTE} == {f"3:580.178.04-1.el{release}"}
    assert made["components"] == ["nvidia_driver", "nouveau_blacklist", "reboot", "validate"]


def test_eight_cards_with_nvswitches_get_the_fabric_manager_of_the_drivers_build() -> None:
    facts = red_hat("rocky", "9.7", "5.14.0-611.41.1.el9_7.x86_64", 8)
    facts["pci"]["nvswitches"] = [
        {"bus_id": f"00000000:{bus}:00.0", "vendor": "10de", "device": "22a3", "class": "0680", "driver": None}
        for bus in ("05", "06", "07", "08")
    ]
    made, coming = walked(facts, "driver")
    assert made["refusals"] == []
    headers = {"kernel-devel-matched-5.14.0-611.41.1.el9_7.x86_64", "kernel-devel"}
    assert set(coming) == _BUILD | _LOCK | _COMPUTE | _OPENCL | _FABRIC | _PROOF | headers
    assert {coming[name] for name in _COMPUTE | _FABRIC} == {"3:580.178.04-1.el9"}


_GONE = "5.14.0-600.1.1.el9_7.x86_64"
_NEWEST = "5.14.0-611.49.1.el9_7"


def test_headers_that_the_repositories_lost_are_refused_with_the_ways_out() -> None:
    """Rocky's and AlmaLinux's repositories hold the kernels of the current minor release only."""
    made, coming = walked(red_hat("rocky", "9.7", _GONE, 1), "driver")
    told = {row["rule"]: row["text"] for row in made["refusals"]}
    assert told["index-no-such-package"] == f"no repository offers kernel-devel-matched-{_GONE}"
    # DKMS would have dnf take it.
    assert told["kernel-unasked"].endswith(f"kernel-core {_NEWEST}")
    assert f"kernel-{_NEWEST}.x86_64" not in coming


def test_where_another_kernel_is_allowed_it_comes_whole_with_its_headers() -> None:
    made, coming = walked(red_hat("rocky", "9.7", _GONE, 1), "driver", nvidia_driver_allow_kernel=True)
    assert made["refusals"] == []
    kernel = {f"kernel-{_NEWEST}.x86_64", "kernel-core", "kernel-modules", "kernel-modules-core"}
    headers = {"kernel-devel-matched", "kernel-devel"}
    assert set(coming) == _BUILD | _LOCK | _COMPUTE | _OPENCL | _PROOF | headers | kernel
    assert {coming[name] for name in headers | kernel} == {_NEWEST}


def test_a_kernel_that_is_allowed_does_not_come_where_it_is_not_needed() -> None:
    facts = red_hat("rocky", "9.7", "5.14.0-611.41.1.el9_7.x86_64", 1)
    _made, coming = walked(facts, "driver", nvidia_driver_allow_kernel=True)
    assert _NEWEST not in coming.values()


def test_release_8_gets_the_headers_of_exactly_its_kernel_under_their_older_name() -> None:
    """Its kernel has no kernel-devel-matched."""
    facts = red_hat("rocky", "8.10", "4.18.0-553.83.1.el8_10.x86_64", 1)
    drafted = make_draft(facts, wish(gpuwright_want=["driver"]), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert [name for name in drafted.packages if name.startswith("kernel")] == [
        "kernel-devel-4.18.0-553.83.1.el8_10.x86_64"
    ]


@pytest.mark.parametrize(
    ("want", "names", "version"),
    [
        ("driver=580.126.20", _COMPUTE, "3:580.126.20-1.el9"),
        (
            "container-toolkit=1.19.1",
            {
                "nvidia-container-toolkit",
                "nvidia-container-toolkit-base",
                "libnvidia-container-tools",
                "libnvidia-container1",
            },
            "1.19.1-1",
        ),
    ],
)
def test_what_depends_by_a_lower_bound_alone_is_of_the_wished_version_too(
    want: str, names: set[str], version: str
) -> None:
    """nvidia-persistenced takes any newer libnvidia-cfg, the tools any newer libnvidia-container1."""
    made, coming = walked(red_hat("rocky", "9.7", "5.14.0-611.41.1.el9_7.x86_64", 1), want)
    assert made["refusals"] == []
    assert {name: coming.get(name) for name in names} == dict.fromkeys(names, version)


@pytest.mark.parametrize(("there", "asked"), [(["3.9.21"], {"python3.12"}), (["3.9.21", "3.12.9"], set())])
def test_a_python_that_is_not_there_is_asked_of_the_index_before_anything_changes(
    there: list[str], asked: set[str]
) -> None:
    facts = red_hat("rocky", "9.6", "5.14.0-570.12.1.el9_6.x86_64", 1)
    facts["python"]["interpreters"] = [
        {"path": f"/usr/bin/python{version.rpartition('.')[0]}", "version": version, "venv": True} for version in there
    ]
    draft = make_draft(facts, wish(gpuwright_want=["pytorch"]), load_rules(), request())
    assert isinstance(draft, Draft), draft
    assert {name for name in draft.packages if name.startswith("python3.")} == asked
    lost = {"kind": "missing", "text": "no package python3.12", "remedy": "-", "package": "python3.12"}
    made = finish(draft, nodes.index(problems=[lost]))
    assert "index-missing" in {row["rule"] for row in made["refusals"]}


@pytest.mark.parametrize(
    ("offered", "taken"),
    [({"3.12", "3.11"}, "3.12"), ({"3.11"}, "3.11"), (set(), "3.9")],
    ids=["9.4 and later", "9.2", "9.0"],
)
def test_a_python_that_this_minor_release_lacks_gives_way_to_the_next(offered: set[str], taken: str) -> None:
    facts = red_hat("rocky", "9.2", "5.14.0-284.30.1.el9_2.x86_64", 1)
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3.9", "version": "3.9.16", "venv": True}]
    draft, index, lacking = _asked_again(facts, offered, "pytorch")
    (environment,) = draft.context.stack["frameworks"]
    assert environment["interpreter"] == taken
    assert {name for name in draft.packages if name.startswith("python3.")} == {
        f"python{each}" for each in offered & {taken}
    }
    told = [row["text"] for row in draft.answer["why"] if row["rule"] == "frameworks.python-absent"]
    named = [each for each in ("3.12", "3.11") if f"python={each}" in lacking]
    assert told == ([f"the machine's package index has no Python {', '.join(named)}"] if named else [])
    assert not any("python" in row["text"] for row in finish(draft, index)["refusals"])


def test_a_python_that_is_asked_for_gives_way_to_none() -> None:
    facts = red_hat("rocky", "9.2", "5.14.0-284.30.1.el9_2.x86_64", 1)
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3.9", "version": "3.9.16", "venv": True}]
    draft, index, lacking = _asked_again(facts, {"3.11"}, "pytorch", "python=3.12")
    assert lacking == {}
    (row,) = [row for row in finish(draft, index)["refusals"] if "python3.12" in row["text"]]
    assert row["rule"] == "index-no-such-package"


def _asked_again(facts: Any, offered: set[str], *wants: str) -> tuple[Draft, Any, dict[str, list[str]]]:
    """The draft that the index of a machine leaves, as a session makes it: the index has all else, and these Pythons."""
    lacking: dict[str, list[str]] = {}
    for _turn in range(5):
        draft = make_draft(facts, wish(gpuwright_want=[*wants]), load_rules(), request(absent=lacking))
        assert isinstance(draft, Draft), draft
        lost = [
            name
            for name in draft.packages
            if name.startswith("python3.") and name.removeprefix("python") not in offered
        ]
        rows = {name: {"candidate": "1-1", "versions": ["1-1"]} for name in draft.packages if name not in lost}
        form = {"kind": "no-such-package", "repository": None, "remedy": "-"}
        problems = [{**form, "text": f"no repository offers {name}", "package": name} for name in lost]
        index = nodes.index(packages=rows, problems=problems)
        more = {key: there for key, there in index_query.absent(draft, index).items() if key.startswith("python=")}
        if not more:
            return draft, index, lacking
        lacking |= more
    raise AssertionError(lacking)
