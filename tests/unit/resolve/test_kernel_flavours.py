"""Signed modules for every kernel flavour of Ubuntu that may boot."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .test_observed import Answer, Facts, stack

NEXT = "6.8.0-134-generic"


def ubuntu(facts: Facts, *kernels: str, images: tuple[str, ...] = (), boots: str = NEXT) -> Facts:
    """The observed machine as an Ubuntu 24.04 under Secure Boot with these kernels and image meta packages."""
    seen = copy.deepcopy(facts)
    seen["os"] |= {"id": "ubuntu", "version": "24.04", "codename": "noble", "glibc": "2.39"}
    seen["boot"]["secure_boot"] = True
    seen["kernel"] |= {"installed": sorted({*kernels, boots}), "running": boots, "next": boots}
    seen["packages"]["sources"][0] |= {"suites": ["noble"]}
    seen["packages"]["installed"] = dict.fromkeys((*images, *(f"linux-image-{kernel}" for kernel in kernels)), "1")
    return seen


def modules(answer: dict[str, Any]) -> list[str]:
    driver = stack(answer)["driver"]
    assert driver["build"] == "prebuilt-signed"
    start = "linux-modules-nvidia-580-server-open-"
    return [name.removeprefix(start) for name in driver["packages"] if name.startswith("linux-modules-")]


@pytest.mark.parametrize(
    ("kernels", "images", "boots", "series"),
    [
        ([], (), NEXT, ["generic"]),
        ([], ("linux-image-generic",), NEXT, ["generic"]),
        (["6.8.0-1021-aws"], (), NEXT, ["generic", "aws"]),
        (["6.8.0-1021-aws"], (), "6.8.0-1021-aws", ["aws"]),
        (["6.8.0-134-lowlatency", "6.8.0-1019-nvidia"], (), NEXT, ["generic", "nvidia", "lowlatency"]),
        (["6.8.0-1021-azure", "6.8.0-1022-gcp", "6.8.0-1023-oracle"], (), NEXT, ["generic", "azure", "gcp", "oracle"]),
        # The meta package tells the series better than a release does, and an older kernel of its flavour drags in none.
        (["6.8.0-50-generic"], ("linux-image-generic-hwe-24.04",), "6.14.0-33-generic", ["generic-hwe-24.04"]),
        (["6.14.0-1011-aws"], ("linux-image-aws", "linux-image-generic"), NEXT, ["generic", "aws"]),
        (["6.8.0-1021-aws"], ("linux-image-aws-lts-24.04",), NEXT, ["generic", "aws-lts-24.04"]),
        ([], ("linux-image-virtual",), NEXT, ["generic"]),
        ([], ("linux-image-unsigned-generic", "linux-image-extra-virtual"), NEXT, ["generic"]),
    ],
)
def test_every_flavour_that_may_boot_has_its_modules(
    facts: Facts, answer: Answer, kernels: list[str], images: tuple[str, ...], boots: str, series: list[str]
) -> None:
    found = modules(answer(ubuntu(facts, *kernels, images=images, boots=boots)))
    assert found == [boots, *series]


def test_the_kernel_that_boots_next_has_its_very_module(facts: Facts, answer: Answer) -> None:
    driver = stack(answer(ubuntu(facts)))["driver"]
    assert driver["module_of_next"] == {"kernel": NEXT, "package": f"linux-modules-nvidia-580-server-open-{NEXT}"}
    assert driver["pin"] == {"hold": []}


def test_a_driver_that_is_built_on_the_machine_asks_for_none(facts: Facts, answer: Answer) -> None:
    assert "module_of_next" not in stack(answer(ubuntu(facts), "driver-source=nvidia"))["driver"]


@pytest.mark.parametrize(
    ("boots", "images", "headers"),
    [
        (NEXT, ("linux-image-generic",), "generic"),
        ("6.17.0-35-generic", ("linux-image-generic-hwe-24.04",), "generic-hwe-24.04"),
        ("6.17.0-35-generic", ("linux-image-generic", "linux-image-generic-hwe-24.04"), "generic-hwe-24.04"),
        (NEXT, ("linux-image-generic", "linux-image-generic-hwe-24.04"), "generic"),
        ("6.17.0-1032-oem", ("linux-image-oem-24.04",), "oem-24.04"),
        ("6.11.0-1032-oem", ("linux-image-oem-24.04b",), "oem-24.04b"),
        ("6.8.0-1021-azure", ("linux-image-azure",), "azure"),
        ("6.8.0-1021-aws", ("linux-image-aws-lts-24.04",), "aws-lts-24.04"),
        ("6.8.0-1021-gcp", ("linux-image-gcp", "linux-image-generic"), "gcp"),
        ("6.8.0-1019-nvidia-64k", ("linux-image-nvidia-64k",), "nvidia-64k"),
        ("6.8.0-1019-nvidia", ("linux-image-nvidia", "linux-image-nvidia-64k"), "nvidia"),
        ("6.8.0-134-lowlatency", ("linux-image-lowlatency",), "lowlatency"),
        # Nothing brings newer kernels: neither do the headers.
        ("6.17.0-1032-oem", (), "6.17.0-1032-oem"),
        ("6.8.0-1019-nvidia", ("linux-image-nvidia-64k",), "6.8.0-1019-nvidia"),
    ],
)
def test_headers_follow_the_meta_package_that_brings_the_kernel(
    facts: Facts, answer: Answer, boots: str, images: tuple[str, ...], headers: str
) -> None:
    seen = ubuntu(facts, images=images, boots=boots)
    seen["boot"]["secure_boot"] = False
    driver = stack(answer(seen))["driver"]
    assert (driver["build"], driver["headers"]) == ("dkms", f"linux-headers-{headers}")


@pytest.mark.parametrize(
    ("system", "kernel", "headers", "told"),
    [
        ("debian-13", "6.14.8-2-pve", "proxmox-headers-6.14.8-2-pve", "Proxmox VE"),
        ("debian-13", "6.12.10-x64v3-xanmod1", "linux-headers-6.12.10-x64v3-xanmod1", "XanMod"),
        ("ubuntu-24.04", "6.12.10-x64v3-xanmod1", "linux-headers-6.12.10-x64v3-xanmod1", "XanMod"),
        ("debian-12", "6.12.10-1-liquorix-amd64", "linux-headers-6.12.10-1-liquorix-amd64", "Liquorix"),
        ("debian-13", "6.12.9-zabbly+", "linux-headers-6.12.9-zabbly+", "Zabbly"),
        ("ubuntu-24.04", "6.14.0-061400-generic", "linux-headers-6.14.0-061400-generic", "mainline"),
        ("ubuntu-24.04", "6.14.0-061400rc3-generic", "linux-headers-6.14.0-061400rc3-generic", "mainline"),
        ("debian-13", "6.12.107+deb13-rt-amd64", "linux-headers-rt-amd64", "IGNORE_PREEMPT_RT_PRESENCE"),
        # Which of the OEM series brings it nobody knows; the package linux-headers-oem does not exist.
        ("ubuntu-24.04", "6.17.0-1032-oem", "linux-headers-6.17.0-1032-oem", None),
        ("debian-13", "6.12.107+deb13-amd64", "linux-headers-amd64", None),
        ("ubuntu-24.04", "6.8.0-134-generic", "linux-headers-generic", None),
    ],
)
def test_a_kernel_that_is_not_the_distributions_has_headers_of_its_own(
    resolve: Answer, system: str, kernel: str, headers: str, told: str | None
) -> None:
    found = resolve("H100", system, "driver", "driver-source=nvidia", kernel=kernel)
    assert stack(found)["driver"]["headers"] == headers
    warned = [row["text"] for row in found["warnings"] if row["rule"] == "kernel.other"]
    assert [str(told) in text and kernel in text for text in warned] == [True] * (told is not None)
