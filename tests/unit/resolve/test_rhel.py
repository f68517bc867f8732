"""RHEL, Rocky Linux and AlmaLinux: names, module streams, locks, repositories and signed modules."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine, systems
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import FACTS, TODAY, Resolve

KERNEL = "5.14.0-611.41.1.el9_7.x86_64"


def stack_of(answer: Any) -> Any:
    assert answer["ok"], answer["conflicts"]
    return dict(answer["stack"])


def observed(rules: Any, system: str, *wants: str, **changes: Any) -> Any:
    identity, version = system.rsplit("-", 1)
    facts: Any = {**FACTS, "os": {**FACTS["os"], "id": identity, "version": version, "family": "redhat"}}
    facts["pci"] = {**FACTS["pci"], "gpus": [{"bus_id": "00000000:18:00.0", "vendor": "10de", "device": "2330"}]}
    facts["kernel"] = {**FACTS["kernel"], "next": KERNEL, "running": KERNEL, **changes.pop("kernel", {})}
    facts["packages"] = {**FACTS["packages"], "sources": changes.pop("sources", [])}
    facts["packages"]["installed"] = changes.pop("installed", {})
    given = changes.pop("wish", {})
    facts["boot"] = {**FACTS["boot"], **changes}
    wish = Wish.from_variables({"gpuwright_want": list(wants), **given}, rules)
    where = machine.machine_from_facts(facts, wish, rules, today=TODAY)
    return resolver.resolve(where, wish, rules)


def source(name: str, file: str = "/etc/yum.repos.d/x.repo") -> Any:
    uris = [f"http://mirror.example/{name}"]
    return {"name": name, "file": file, "types": ["rpm"], "uris": uris, "suites": [], "components": [], "enabled": True}


@pytest.mark.parametrize(
    ("card", "desktop", "names", "stream"),
    [
        ("H100", False, ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"], "nvidia-driver:580-open"),
        ("V100", False, ["nvidia-driver-cuda", "kmod-nvidia-latest-dkms"], "nvidia-driver:580-dkms"),
        ("H100", True, ["nvidia-open"], "nvidia-driver:580-open"),
        ("V100", True, ["cuda-drivers"], "nvidia-driver:580-dkms"),
    ],
)
@pytest.mark.parametrize("system", ["rhel-8", "rocky-9", "almalinux-9"])
def test_names_and_stream_follow_the_set_and_the_modules(
    resolve: Resolve, system: str, card: str, desktop: bool, names: list[str], stream: str
) -> None:
    driver = stack_of(resolve(card, system, "driver", desktop=str(desktop).lower()))["driver"]
    headers = "kernel-devel" if system == "rhel-8" else "kernel-devel-matched"
    assert driver["packages"] == ["python3-dnf-plugin-versionlock", headers, *names]
    assert driver["pin"] == {"hold": names, "stream": stream, "plugin": "python3-dnf-plugin-versionlock"}


def test_rhel_10_has_no_streams_and_its_key_is_known_by_its_text(resolve: Resolve) -> None:
    answer = resolve("H100", "rocky-10", "driver=580")
    key = stack_of(answer)["repositories"][0]["key"]
    text = "afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb"
    assert key["fingerprint"] == f"text-sha256:{text}:CDF6BA43"
    assert key["url"].endswith("/rhel10/x86_64/CDF6BA43.pub")
    keys = {"gpuwright_repository_keys": {"nvidia": "0" * 40}}
    given = resolve("H100", "rocky-10", "driver=580", wish=keys)
    assert stack_of(given)["repositories"][0]["key"]["fingerprint"] == "0" * 40
    pin = stack_of(answer)["driver"]["pin"]
    assert pin == {
        "hold": ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        "plugin": "python3-dnf-plugin-versionlock",
    }
    assert "os.unconfirmed" in [row["rule"] for row in answer["warnings"]]


def test_a_minor_release_is_the_same_system(rules: Any, resolve: Resolve) -> None:
    assert resolve("H100", "rocky-9.6", "driver")["os"] == "rocky-9"
    assert observed(rules, "rhel-9.7", "driver")["os"] == "rhel-9"
    assert resolve("H100", "ubuntu-22.04", "driver")["os"] == "ubuntu-22.04"


@pytest.mark.parametrize(
    ("system", "headers"),
    [("rocky-9.6", "kernel-devel-matched"), ("almalinux-10.1", "kernel-devel-matched"), ("rocky-8.10", "kernel-devel")],
)
def test_the_headers_are_those_of_exactly_the_kernel_that_boots_next(rules: Any, system: str, headers: str) -> None:
    """DKMS has dnf take kernel-devel-matched, which of the newest kernel brings that kernel's core alone."""
    keys = {"gpuwright_repository_keys": {"nvidia": "0" * 40}}
    driver = stack_of(observed(rules, system, "driver", wish=keys))["driver"]
    assert driver["headers"] == f"{headers}-{KERNEL}"
    assert driver["headers"] in driver["packages"]


def test_dkms_is_content_with_the_matched_headers_of_another_kernel_and_those_of_the_next_come_alone(
    rules: Any,
) -> None:
    """Only one version of kernel-devel-matched can be there: naming another one would move it."""
    other = "5.14.0-611.49.1.el9_7"
    for there, headers in (
        ({"kernel-devel-matched": other, f"kernel-devel-matched-{other}.x86_64": other}, f"kernel-devel-{KERNEL}"),
        (
            dict.fromkeys(("kernel-devel-matched", f"kernel-devel-matched-{KERNEL}"), KERNEL),
            f"kernel-devel-matched-{KERNEL}",
        ),
    ):
        assert stack_of(observed(rules, "rocky-9.6", "driver", installed=there))["driver"]["headers"] == headers


FLAVOURED = "5.14.0-503.14.1.el9_5.aarch64"


@pytest.mark.parametrize(
    ("system", "flavour", "headers"),
    [
        ("rocky-9.5", "64k", "kernel-64k-devel-matched"),
        ("almalinux-10.1", "64k", "kernel-64k-devel-matched"),
        ("rocky-9.5", "rt", "kernel-rt-devel"),
        ("rhel-10.0", "rt", "kernel-rt-devel"),
    ],
)
def test_the_headers_of_a_flavoured_kernel_have_its_flavour_in_their_name(
    rules: Any, system: str, flavour: str, headers: str
) -> None:
    """DKMS asks for kernel-64k-devel-matched and kernel-rt-devel; no package has +64k or +rt in its release."""
    keys = {"gpuwright_repository_keys": {"nvidia": "0" * 40}}
    driver = stack_of(observed(rules, system, "driver", kernel={"next": f"{FLAVOURED}+{flavour}"}, wish=keys))["driver"]
    assert driver["headers"] == f"{headers}-{FLAVOURED}"
    assert driver["headers"] in driver["packages"]


def test_the_matched_headers_of_a_flavour_give_way_as_the_usual_ones_do(rules: Any) -> None:
    kernel = {"next": f"{FLAVOURED}+64k"}
    for there, headers in (
        ({"kernel-64k-devel-matched": "5.14.0-570.el9"}, f"kernel-64k-devel-{FLAVOURED}"),
        ({"kernel-devel-matched": "5.14.0-570.el9"}, f"kernel-64k-devel-matched-{FLAVOURED}"),
    ):
        found = stack_of(observed(rules, "rocky-9.5", "driver", kernel=kernel, installed=there))
        assert found["driver"]["headers"] == headers


@pytest.mark.parametrize(
    ("headers", "newest"),
    [
        (f"kernel-devel-matched-{KERNEL}", "kernel-devel-matched"),
        (f"kernel-64k-devel-matched-{FLAVOURED}", "kernel-64k-devel-matched"),
        (f"kernel-devel-{KERNEL}", None),
        (f"kernel-rt-devel-{FLAVOURED}", None),
        ("kernel-devel-matched", None),
        ("linux-headers-amd64", None),
    ],
)
def test_the_newest_headers_are_of_the_same_flavour(headers: str, newest: str | None) -> None:
    assert systems.headers_of_newest(headers) == newest


@pytest.mark.parametrize(
    ("system", "followed"), [("ol-9.6", "rocky-9"), ("ol-10", "rocky-10"), ("linuxmint-22.1", "ubuntu-24.04")]
)
def test_a_derivative_is_served_by_the_system_that_it_follows_and_says_so(
    resolve: Resolve, system: str, followed: str
) -> None:
    answer, other = resolve("H100", system, "driver"), resolve("H100", followed, "driver")
    assert stack_of(answer) == stack_of(other)
    assert answer["os"] == followed
    warned = {row["rule"]: row for row in answer["warnings"]}
    assert followed in warned["os.derived"]["text"]
    assert warned["os.derived"]["source"]
    assert "os.derived" not in [row["rule"] for row in other["warnings"]]


def test_a_kernel_for_which_it_does_not_hold_is_refused_with_the_other_kernel(rules: Any) -> None:
    for kernel, rule in ((KERNEL, None), ("6.12.0-100.28.2.2.el9uek.x86_64", "os.derived")):
        facts = {"next": kernel, "running": kernel}
        answer = observed(rules, "ol-9.6", "driver", kernel=facts)
        assert [row["rule"] for row in answer.get("conflicts", [])] == ([rule] if rule else [])
    assert answer["conflicts"][0]["text"].startswith(f"Oracle Linux 9 with the kernel {kernel} is not served: its ")
    assert "kernel-uek-devel" in answer["conflicts"][0]["text"]
    assert "grubby --set-default" in answer["conflicts"][0]["remedy"]


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("amzn-2023", "Amazon Linux 2023 is not served: NVIDIA has a repository for it (amzn2023)"),
        (
            "pop-24.04",
            "Pop!_OS is not served: it is made from Ubuntu, and its kernels and NVIDIA packages are System76's",
        ),
        ("linuxmint-6", "linuxmint-6 is not served"),
    ],
)
def test_what_is_not_known_to_hold_is_refused_with_what_is_known(resolve: Resolve, system: str, words: str) -> None:
    (refused,) = resolve("H100", system, "driver")["conflicts"]
    assert words in refused["text"]
    assert refused["remedy"]


def test_repositories_are_files_of_dnf_with_pinned_keys(rules: Any, resolve: Resolve) -> None:
    stack = stack_of(resolve("H100", "rocky-9", "driver", "container-toolkit"))
    rows = {row["name"]: row for row in stack["repositories"]}
    assert {name: row["file"] for name, row in rows.items()} == {
        name: f"/etc/yum.repos.d/gpuwright-{name}.repo" for name in ("nvidia-cuda", "nvidia-container-toolkit", "epel")
    }
    assert rows["nvidia-cuda"]["key"]["fingerprint"] == "610C7B14E068A878070DA4E99CD0A493D42D0685"
    assert rows["nvidia-cuda"]["uris"] == ["https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/"]
    assert rows["nvidia-container-toolkit"]["uris"][0].endswith("/stable/rpm/x86_64/")
    assert {name: row["signed"] for name, row in rows.items()} == {
        "nvidia-cuda": "packages",
        "nvidia-container-toolkit": "index",
        "epel": "packages",
    }
    mirrors = {"gpuwright_mirrors": {"nvidia": "http://m.example/cuda", "epel": "http://m.example/epel"}}
    stack = stack_of(resolve("H100", "almalinux-8", "driver", wish=mirrors))
    uris = {row["name"]: row["uris"][0] for row in stack["repositories"]}
    assert uris == {
        "nvidia-cuda": "http://m.example/cuda/rhel8/x86_64/",
        "epel": "http://m.example/epel/8/Everything/x86_64/",
    }


def test_epel_of_the_machine_is_used_as_it_is(rules: Any) -> None:
    names = [row["name"] for row in stack_of(observed(rules, "rocky-9.6", "driver"))["repositories"]]
    assert names == ["nvidia-cuda", "epel"]
    there = observed(rules, "rocky-9.6", "driver", sources=[source("epel")])
    assert [row["name"] for row in stack_of(there)["repositories"]] == ["nvidia-cuda"]


def test_libraries_have_the_names_of_rpm(resolve: Resolve) -> None:
    stack = stack_of(resolve("H100", "rocky-9", "cuda=13.0", "cudnn", "nccl", "tensorrt"))
    assert stack["cuda"][0]["packages"] == ["cuda-toolkit-13-0"]
    assert stack["cudnn"]["packages"] == [
        "libcudnn9-cuda-13",
        "libcudnn9-devel-cuda-13",
        "libcudnn9-headers-cuda-13",
    ]
    assert stack["nccl"]["packages"] == ["libnccl", "libnccl-devel"]
    assert "libnvinfer-headers-devel" in stack["tensorrt"]["packages"]
    assert not any(name.endswith("-dev") for name in stack["tensorrt"]["packages"])


@pytest.mark.parametrize("engine", ["docker", "containerd"])
def test_an_engine_that_the_system_does_not_have_is_refused_with_one_that_it_has(resolve: Resolve, engine: str) -> None:
    (conflict,) = resolve("H100", "rocky-9", f"container-engine={engine}")["conflicts"]
    assert conflict["rule"] == "container-toolkit.engine"
    assert f"has no {engine} of its own" in conflict["text"]
    assert "use container-engine=podman" in conflict["remedy"]


@pytest.mark.parametrize(
    ("system", "wants", "refused"),
    [
        ("rocky-8", ("container-toolkit",), True),
        ("debian-12", ("container-engine=podman",), True),
        ("ubuntu-24.04", ("container-engine=podman",), True),
        ("ubuntu-24.04", ("container-engine=podman", "container-toolkit=1.18.2"), False),
        ("ubuntu-24.04", ("container-engine=podman", "container-toolkit=1.19"), True),
        ("debian-13", ("container-engine=podman",), False),
        ("rocky-9", ("container-toolkit",), False),
        ("debian-12", ("container-toolkit",), False),
    ],
)
def test_a_podman_that_does_not_read_what_the_toolkit_writes_is_refused_whoever_names_it(
    resolve: Resolve, system: str, wants: tuple[str, ...], refused: bool
) -> None:
    found = resolve("H100", system, *wants)
    assert found["ok"] is not refused
    if refused:
        (conflict,) = found["conflicts"]
        assert "is older than 5.1.0" in conflict["text"]
        assert "container-engine=docker" in conflict["remedy"]


def test_containers_get_podman_where_there_is_no_docker(rules: Any, resolve: Resolve) -> None:
    engine = stack_of(resolve("H100", "rocky-9", "container-toolkit"))["container_toolkit"]["engine"]
    assert engine == {"name": "podman", "packages": ["podman"]}
    assert (
        stack_of(resolve("H100", "debian-13", "container-toolkit"))["container_toolkit"]["engine"]["name"] == "docker"
    )


@pytest.mark.parametrize(
    ("system", "signed"),
    [("rhel-10.0", False), ("rhel-10.1", True), ("almalinux-9.6", True), ("rocky-9.6", False), ("rhel-9.6", False)],
)
def test_with_secure_boot_signed_modules_come_first_where_the_distribution_has_them(
    resolve: Resolve, system: str, signed: bool
) -> None:
    keys = {"gpuwright_repository_keys": {"nvidia": "0" * 40}}
    answer = resolve("H100", system, "driver", secure_boot="true", wish=keys)
    driver = stack_of(answer)["driver"]
    assert (driver["source"], driver["build"]) == (("distro", "prebuilt-signed") if signed else ("nvidia", "dkms"))
    rules_of_warnings = [row["rule"] for row in answer["warnings"]]
    assert ("repository.signed" in rules_of_warnings) == signed
    assert ("driver.secure-boot" in rules_of_warnings) != signed


def test_signed_modules_need_the_repository_that_the_machine_has_to_have(rules: Any) -> None:
    answer = observed(rules, "almalinux-9.6", "driver", secure_boot=True)
    assert [row["rule"] for row in answer["conflicts"]] == ["repository.signed"]
    assert "dnf install almalinux-release-nvidia-driver" in answer["conflicts"][0]["remedy"]
    there = observed(rules, "almalinux-9.6", "driver", secure_boot=True, sources=[source("almalinux-nvidia")])
    assert stack_of(there)["driver"]["source"] == "distro"


def test_the_end_of_support_says_what_goes_on(resolve: Resolve) -> None:
    late = {"today": TODAY.replace(year=2029, month=7)}
    told = {row["rule"]: row["text"] for row in resolve("H100", "rhel-8", "driver", **late)["warnings"]}
    assert "extended life cycle support goes on until 2032-05-31" in told["os.end-of-life"]
    told = {row["rule"]: row["text"] for row in resolve("H100", "rocky-8", "driver", **late)["warnings"]}
    assert "goes on" not in told["os.end-of-life"]
