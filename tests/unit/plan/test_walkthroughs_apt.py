"""Machines with apt as people have them: what the plan of each installs, exactly, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request, wish

UBUNTU = {
    "22.04": ("jammy", "2.35", "3.10.12"),
    "24.04": ("noble", "2.39", "3.12.3"),
    "26.04": ("resolute", "2.43", "3.14.1"),
}
SCREEN = {"desktop": True, "nvidia_screens": ["00000000:10:00.0"]}
TOOLKIT = [
    "docker.io",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
]
#: What the proof of every node measures its disks with.
PROOF = ["fio"]


def machine(system: str, release: str, device: str, *, cards: int = 1, image: str = "", **changes: Any) -> Any:
    """A machine with cards of one kind and nothing of NVIDIA on it; ``image`` is the meta package that brought its kernel."""
    gpus = [{**nodes.H100, "device": device, "bus_id": f"00000000:{number + 16:02X}:00.0"} for number in range(cards)]
    facts = nodes.bare(kernel={"running": release, "next": release, "installed": [release]}, pci={"gpus": gpus})
    version = system.removeprefix("ubuntu-")
    if version in UBUNTU:
        codename, glibc, python = UBUNTU[version]
        facts["os"] |= {"id": "ubuntu", "version": version, "codename": codename, "family": "ubuntu", "glibc": glibc}
        facts["python"]["interpreters"] = [{"path": "/usr/bin/python3", "version": python}]
        facts["packages"]["sources"][0] |= {
            "suites": [codename, f"{codename}-updates", f"{codename}-security"],
            "components": ["main", "restricted", "universe", "multiverse"],
        }
    if image:
        facts["packages"]["installed"][image] = "1"
    return nodes.merged(facts, changes)


def with_driver(facts: Any, version: str, packages: list[str], licence: str) -> Any:
    """The machine with a driver that runs: of Ubuntu's packages, else of a .run file."""
    there = dict.fromkeys(packages, f"{version}-0ubuntu0.22.04.1")
    module = {"version": version, "license": licence, "signer": None, "name": "nvidia", "path": "/nvidia.ko"}
    del facts["kernel"]["loaded"]["nouveau"]
    return nodes.merged(
        facts,
        {
            "kernel": {
                "loaded": {"nvidia": {"version": version}},
                "available": {"nvidia": module},
                "initramfs": {"blacklist_inside": True},
            },
            "driver": {
                "owner": "packages" if packages else "runfile",
                "source": "distro" if packages else "runfile",
                "packages": there,
                "loaded_version": version,
                "loaded_modules": "open" if "GPL" in licence else "proprietary",
                "user_version": version,
            },
            "packages": {"installed": there},
        },
    )


def drafted(facts: Any, *wants: str, verb: str = "up") -> Draft:
    made = make_draft(facts, wish(gpuwright_want=list(wants)), load_rules(), request(verb=verb))
    assert isinstance(made, Draft), made
    return made


def planned(facts: Any, *wants: str, verb: str = "up") -> Plan:
    draft = drafted(facts, *wants, verb=verb)
    made = finish(draft, index_of(draft))
    assert made["ok"], document.why_not(made)
    return made


def installed(made: Plan) -> list[str]:
    """The packages that a plan installs."""
    return sorted({row["name"] for change in made["changes"] for row in change["packages"]})


def frameworks(made: Plan) -> list[str]:
    return [requirement for each in made["stack"]["frameworks"] for requirement in each["requirements"]]


def warned(made: Plan) -> list[str]:
    return [row["rule"] for row in made["warnings"]]


# what people have -------------------------------------------------------------------------------------------


def test_a_desktop_with_secure_boot_on_an_oem_kernel_gets_the_signed_modules_of_that_kernel() -> None:
    facts = machine(
        "ubuntu-24.04",
        "6.17.0-1006-oem",
        "2684",  # a GeForce RTX 4090
        image="linux-image-oem-24.04d",
        boot={"secure_boot": True},
        display=SCREEN,
        sessions={"display": True},
    )
    made = planned(facts, "driver")
    assert installed(made) == sorted(
        [
            "linux-modules-nvidia-580-open-6.17.0-1006-oem",
            "linux-modules-nvidia-580-open-oem-24.04d",
            "nvidia-driver-580-open",
            *PROOF,
        ]
    )
    assert made["stack"]["driver"]["build"] == "prebuilt-signed"
    assert made["reboot"]
    # The meta package of the modules stands beside the driver in one call of apt: without it DKMS would come.
    (change,) = [each for each in made["changes"] if each["component"] == "nvidia_driver"]
    assert len(change["packages"]) == 3


def test_a_debian_workstation_gets_the_open_modules_of_nvidia() -> None:
    facts = machine("debian-13", "6.12.94+deb13-amd64", "2b85", display=SCREEN)  # a GeForce RTX 5090
    made = planned(facts, "driver", "cuda", "container-toolkit")
    assert installed(made) == sorted(
        [
            "nvidia-driver-pinning-580",
            "linux-headers-amd64",
            "nvidia-open",
            "cuda-toolkit-13-0",
            "g++",
            "docker-cli",
            *TOOLKIT,
            *PROOF,
        ]
    )


def test_eight_b200_get_what_their_nvswitches_need_of_the_fifth_generation() -> None:
    facts = machine(
        "ubuntu-24.04", "6.8.0-87-generic", "2901", cards=8, image="linux-image-generic", pci={"nvlink5": True}
    )
    made = planned(facts, "driver", "container-toolkit")
    assert installed(made) == sorted(
        [
            "nvidia-driver-pinning-580",
            "linux-headers-generic",
            "libnvidia-compute-580",
            "nvidia-utils-580",
            "nvidia-compute-utils-580",
            "libnvidia-cfg1-580",
            "libnvidia-decode-580",
            "libnvidia-encode-580",
            "nvidia-dkms-580-open",
            "nvidia-fabricmanager",
            "libnvidia-nscq",
            "nvlsm",
            "infiniband-diags",
            *TOOLKIT,
            *PROOF,
        ]
    )


def test_ubuntu_26_04_gets_its_own_long_lived_branch_and_wheels_that_it_runs_natively() -> None:
    dracut = {"initramfs": {"tool": "dracut", "path": "/boot/initrd.img-7.0.0-5-generic"}}
    made = planned(
        machine("ubuntu-26.04", "7.0.0-5-generic", "26b9", image="linux-image-generic", kernel=dracut)
    )  # an L40S
    assert installed(made) == sorted(
        [
            "linux-modules-nvidia-580-server-open-7.0.0-5-generic",
            "linux-modules-nvidia-580-server-open-generic",
            "nvidia-headless-no-dkms-580-server-open",
            "nvidia-utils-580-server",
            "libnvidia-decode-580-server",
            "libnvidia-encode-580-server",
            "cuda-toolkit-13-2",
            "g++",
            *TOOLKIT,
            *PROOF,
        ]
    )
    assert frameworks(made) == ["torch==2.14.1+cu130", "torchvision==0.29.1", "torchaudio==2.11.0"]


def test_a_virtual_machine_with_a_run_file_keeps_it() -> None:
    facts = machine(
        "ubuntu-22.04", "6.8.0-1021-aws", "20b0", image="linux-image-aws", environment={"kind": "vm"}
    )  # an A100
    facts = with_driver(facts, "570.133.20", [], "Dual MIT/GPL")
    made = planned(facts)
    assert installed(made) == sorted(["cuda-toolkit-12-8", "g++", *TOOLKIT, *PROOF])
    assert frameworks(made)[0] == "torch==2.14.1+cu126"
    assert not made["reboot"]
    # To change it is asked for, and its own uninstaller comes first.
    made = planned(facts, "driver-source=nvidia")
    assert installed(made) == sorted(
        [
            "nvidia-driver-pinning-580",
            "linux-headers-aws",
            "libnvidia-compute-580",
            "nvidia-utils-580",
            "nvidia-compute-utils-580",
            "libnvidia-cfg1-580",
            "libnvidia-decode-580",
            "libnvidia-encode-580",
            "nvidia-dkms-580-open",
            *PROOF,
        ]
    )
    steps = [each["action"] for each in made["changes"] if each["component"] == "nvidia_driver"]
    assert steps == ["configure", "remove", "install"]


# a driver of a branch that was emptied since -----------------------------------------------------------------

REAL = "535.216.01"
SERVER = [
    "linux-modules-nvidia-535-server-generic",
    "nvidia-headless-no-dkms-535-server",
    "nvidia-utils-535-server",
    "libnvidia-compute-535-server",
    "nvidia-kernel-common-535-server",
]


def before_it_was_emptied(*, ours: bool) -> Any:
    """Ubuntu 22.04 with an A100 and 535-server from when it was real; ``ours``: gpuwright put it there."""
    facts = machine("ubuntu-22.04", "5.15.0-122-generic", "20b2", image="linux-image-generic")
    facts = with_driver(facts, REAL, SERVER, "NVIDIA")
    stack = {
        "branch": "535",
        "version": None,
        "modules": "proprietary",
        "source": "distro",
        "source_reason": "asked for",
        "adopted": False,
        "packages": SERVER[:3],
    }
    if ours:
        facts["seals"] = {
            "nvidia_driver": {"state": "good", "digest": "of then", "gpus": None, "stack": stack, "packages": {}}
        }
    return facts


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("want", ["driver", "driver=535"])
def test_a_driver_of_a_branch_that_was_emptied_stays_and_that_is_told(want: str, ours: bool) -> None:
    made = planned(before_it_was_emptied(ours=ours), want)
    assert installed(made) == PROOF
    assert (made["stack"]["driver"]["version"], made["stack"]["driver"]["adopted"]) == (REAL, True)
    assert not made["reboot"]
    (told,) = [row["text"] for row in made["warnings"] if row["rule"] == "driver.transitional"]
    assert f"driver {REAL} stays" in told
    assert "bring branch 580" in told
    assert "ask for driver=580" in told


def test_an_upgrade_moves_what_is_ours_to_the_branch_that_lives() -> None:
    made = planned(before_it_was_emptied(ours=True), "driver", verb="upgrade")
    assert installed(made) == sorted(
        [
            "linux-modules-nvidia-580-server-open-5.15.0-122-generic",
            "linux-modules-nvidia-580-server-open-generic",
            "nvidia-headless-no-dkms-580-server-open",
            "nvidia-utils-580-server",
            "libnvidia-decode-580-server",
            "libnvidia-encode-580-server",
            *PROOF,
        ]
    )
    assert made["reboot"]
    assert "driver.transitional" not in warned(made)


def test_an_upgrade_says_what_to_ask_for_in_place_of_a_branch_that_was_emptied() -> None:
    asked = wish(gpuwright_want=["driver=535"])
    made = make_draft(before_it_was_emptied(ours=True), asked, load_rules(), request(verb="upgrade"))
    assert isinstance(made, dict)
    (reason,) = made["conflicts"]
    assert (reason["rule"], reason["remedy"]) == (
        "driver.transitional",
        "ask for driver=580 (580 is long-term, supported until 2028-08-04)",
    )


def test_an_upgrade_moves_nothing_of_a_driver_that_was_adopted() -> None:
    facts = before_it_was_emptied(ours=False)
    made = planned(facts, "driver")
    seal: Any = {"state": "good", "digest": made["digests"]["nvidia_driver"], "gpus": None, "packages": {}}
    facts["seals"] = {"nvidia_driver": {**seal, "stack": made["stack"]["driver"]}}
    draft = drafted(facts, "driver", verb="upgrade")
    assert not set(SERVER) & set(draft.packages)
    made = finish(draft, index_of(draft))
    assert "nvidia_driver" not in made["components"]
    assert "driver.transitional" in warned(made)


def test_a_driver_of_nvidia_of_that_branch_is_not_what_ubuntu_emptied() -> None:
    facts = before_it_was_emptied(ours=False)
    facts["driver"]["source"] = "nvidia"
    assert "driver.transitional" not in warned(planned(facts, "driver"))
