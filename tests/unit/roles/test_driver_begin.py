"""What the role nvidia_driver does first, decided with the plan."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import swap, version_hold
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import work as beginning
from tests.unit.plan import nodes

from .driver_steps import HEADERS, KERNEL, NAMED, PIN, driver, plan, step

EL = "5.14.0-611.41.1.el9_7.x86_64"
RUNFILE = {
    "name": "NVIDIA-Linux-x86_64-580.178.04.run",
    "addresses": ["https://mirror.example/NVIDIA-Linux-x86_64-580.178.04.run"],
    "sha256": "0" * 64,
    "arguments": ["--silent", "--dkms"],
    "with_nouveau": ["--no-nouveau-check"],
    "with_session": ["--no-x-check"],
}


def of_file(**changes: Any) -> dict[str, Any]:
    """A driver of NVIDIA's file."""
    stack = driver(
        source="runfile", version="580.178.04", build=None, packages=["dkms", "gcc"], pin={}, runfile=RUNFILE
    )
    return {**stack, **changes}


def redhat(**kernel: Any) -> Any:
    """A bare node of Red Hat's."""
    changes = {"next": EL, "installed": [EL], "headers": [], **kernel}
    return nodes.bare(os={"family": "redhat", "id": "rocky"}, packages={"manager": "dnf"}, kernel=changes)


def specs(call: Any) -> list[str]:
    return list(call["specs"])


# --- the usual way ----------------------------------------------------------------------------------------------------


def test_headers_and_pin_come_in_one_call_before_the_set() -> None:
    work = step("begin")
    assert specs(work["first"]) == [f"{HEADERS}=6.12.107-1", f"{PIN}=580.178.04-1"]
    assert work["first"]["allow_downgrade"] is True
    assert work["first"]["allow_held"] is False
    assert work["set"]["names"] == [HEADERS, *NAMED]
    assert (work["set"]["allow_downgrade"], work["set"]["allow_held"]) == (True, True)
    assert (work["installs"], work["configures"]) == (True, True)
    assert [work[place] for place in ("before", "between", "look")] == [False] * 3
    assert work["kernels"] == [KERNEL]


def test_the_headers_of_the_next_kernel_are_looked_for_where_it_is_not_known_that_they_come() -> None:
    headers = step("begin")["headers"]
    assert headers["path"] == f"/lib/modules/{KERNEL}/build"
    assert headers["question"][:1] == ["apt-cache"]
    assert headers["question"][-1] == f"linux-headers-{KERNEL}"
    assert headers["no"] == 100
    assert step("begin")["beside"] is True


@pytest.mark.parametrize(
    ("facts", "install"),
    [
        (nodes.bare(kernel={"headers": [KERNEL]}), []),
        (nodes.bare(), [nodes.coming(f"linux-headers-{KERNEL}", "6.12.94-1")]),
    ],
)
def test_they_are_not_where_they_are_there_or_come_with_the_meta_package(facts: Any, install: list[Any]) -> None:
    work = step("begin", facts, plan(install=install))
    assert work["headers"] is None
    assert work["beside"] is False


@pytest.mark.parametrize("changes", [{"headers": None}, {"build": "prebuilt-signed"}])
def test_only_a_module_that_is_built_here_needs_headers(changes: dict[str, Any]) -> None:
    work = step("begin", made=plan(driver(**changes)))
    assert work["first"]["names"] == [PIN]
    assert work["headers"] is None


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (EL, f"kernel-devel-{EL}"),
        ("5.14.0-503.14.1.el9_5.aarch64+64k", "kernel-64k-devel-5.14.0-503.14.1.el9_5.aarch64"),
        ("5.14.0-503.14.1.el9_5.x86_64+rt", "kernel-rt-devel-5.14.0-503.14.1.el9_5.x86_64"),
    ],
)
def test_the_headers_of_exactly_one_kernel_are_asked_for_by_the_name_that_rpm_knows(kernel: str, name: str) -> None:
    made = plan(driver(pin={"hold": NAMED}, headers=f"kernel-devel-matched-{kernel}", packages=NAMED))
    work = step("begin", redhat(next=kernel), made)
    assert work["headers"]["question"] == ["rpm", "--query", "--quiet", name]
    assert work["headers"]["no"] == 1
    assert work["first"]["allow_downgrade"] is False
    assert work["asks_for_pins"] is False


def test_a_family_that_nobody_knows_has_no_such_name() -> None:
    assert beginning.header_name("other", KERNEL) is None


def test_a_kernel_that_comes_whole_is_no_other_package_of_its_flavour() -> None:
    release = "5.14.0-611.49.1.el9_7.aarch64"
    whole = [f"kernel-{release}", f"kernel-64k-{release}", f"kernel-rt-{release}"]
    others = [
        "kernel-64k-core",
        "kernel-64k-devel",
        "kernel-64k-devel-matched",
        "kernel-64k-modules",
        "kernel-rt-core",
        "kernel-core",
    ]
    made = plan(
        driver(pin={}, headers="kernel-devel-matched", packages=NAMED),
        install=[nodes.coming(name, "1") for name in [*whole, *others]],
    )
    assert step("begin", redhat(), made)["first"]["names"] == ["kernel-devel-matched", *whole]


@pytest.mark.parametrize(
    ("changes", "version", "older"),
    [
        ([], None, False),
        ([], "580.178.04", True),
        ([{"component": "nvidia_driver", "action": "configure", "packages": []}], None, False),
        ([{"component": "cuda", "action": "install", "packages": []}], None, False),
        *(([{"component": "nvidia_driver", "action": each, "packages": []}], None, True) for each in ("install", "upgrade", "repair")),
    ],
)  # fmt: skip
def test_packages_go_to_older_versions_only_where_the_plan_leads_there(
    changes: list[Any], version: str | None, older: bool
) -> None:
    work = step("begin", made=plan(driver(version=version), changes=changes))
    assert work["set"]["allow_downgrade"] is older
    assert work["first"]["allow_downgrade"] is older


def test_a_member_of_the_set_that_the_plan_moves_is_named_with_it() -> None:
    row = {"component": "nvidia_driver", "action": "upgrade", "packages": [{"name": "libcuda1"}, {"name": PIN}]}
    facts = nodes.bare(driver={"lock": {"held": ["libcuda1", PIN]}})
    work = step("begin", facts, plan(changes=[row]))
    assert work["set"]["names"] == [HEADERS, *NAMED, "libcuda1"]
    # apt moves no held package that is only a dependency.
    assert work["unlock"] == ["apt-mark", "unhold", "libcuda1", PIN]
    assert work["between"] is True
    assert step("begin", facts, plan(changes=[]))["unlock"] == []
    on_dnf = redhat()
    on_dnf["driver"]["lock"]["held"] = ["libcuda1"]
    assert step("begin", on_dnf, plan(changes=[row]))["unlock"] == []


def test_the_package_sources_are_added_before_a_driver_of_ours() -> None:
    rows = [
        {"name": name, "uris": [f"http://mirror.example/{name}"], "components": [], "file": f"/etc/apt/{name}"}
        for name in ("nvidia-cuda", "nvidia-container-toolkit")
    ]
    made = plan()
    made["stack"]["repositories"] = rows
    assert step("begin", made=made)["repositories"] == ["nvidia-cuda"]
    made["stack"]["driver"]["adopted"] = True
    assert step("begin", made=made)["repositories"] == []


# --- what is rare -----------------------------------------------------------------------------------------------------


def test_it_is_looked_again_where_another_component_comes_first() -> None:
    work = step("begin", made=plan(components=["repair", "nvidia_driver"]))
    assert (work["look"], work["before"]) == (True, True)


def test_a_node_without_a_driver_in_its_stack_gets_none() -> None:
    work = step("begin", made=plan(stack=None) | {"stack": {}})
    assert [work[part] for part in ("installs", "configures", "before")] == [False] * 3


def test_an_adopted_driver_is_only_brought_to_work_and_an_images_own_is_left_alone() -> None:
    assert step("begin", made=plan(driver(adopted=True)))["installs"] is False
    assert step("begin", made=plan(driver(adopted=True)))["configures"] is True
    assert step("begin", made=plan(driver(adopted=True, source="preinstalled")))["configures"] is False


@pytest.mark.parametrize(
    ("now", "leave", "enter"),
    [
        ({}, False, True),
        ({"nvidia-driver": "570-open"}, True, True),
        ({"nvidia-driver": "580-open"}, False, False),
    ],
)
def test_another_module_stream_is_left_before_the_wished_one_is_entered(
    now: dict[str, str], leave: bool, enter: bool
) -> None:
    facts = nodes.merged(redhat(), {"packages": {"streams": now}})
    made = plan(driver(pin={"hold": [], "stream": "nvidia-driver:580-open"}), left_out=["foreign"])
    found = step("begin", facts, made)["stream"]
    if not enter:
        assert found is None
        return
    begin = ["dnf", "--assumeyes", "--quiet", "--disablerepo=foreign", "module"]
    assert found["leave"] == ([*begin, "reset", "nvidia-driver"] if leave else [])
    assert found["enter"] == [*begin, "enable", "nvidia-driver:580-open"]
    assert step("begin", facts, made)["between"] is True


def test_in_an_exchange_the_headers_come_before_it_and_the_pin_after_it() -> None:
    facts = nodes.bare(
        driver={"packages": {"nvidia-utils-580": "1", "libcuda1": "1"}},
        packages={"interrupted_detail": "dpkg was interrupted, run dpkg --configure -a"},
    )
    sets = {"comes": {"libcuda1": "580.178.04-1"}, "leaves": ["nvidia-utils-580", "gone-already"]}
    work = step("begin", facts, plan(exchange=sets))
    assert work["headers_first"]["names"] == [HEADERS]
    assert work["first"]["names"] == [PIN]
    assert work["between"] is True
    assert work["beside"] is False
    assert work["exchange"] == {
        "present": ["nvidia-utils-580", "libcuda1"],
        "comes": ["libcuda1=580.178.04-1"],
        "leaves": ["nvidia-utils-580"],
        "pending": True,
    }


def test_what_was_cut_off_while_it_was_unpacked_is_taken_out_and_not_asked_for_twice() -> None:
    exchange: swap.Exchange = {
        "present": ["a", "b", "c:i386", "libnvidia-x"],
        "comes": ["b=2", "/var/lib/gpuwright/packages/d.deb"],
        "leaves": ["a", "libnvidia-x"],
        "pending": False,
    }
    states = ["ii  libnvidia-x:amd64", "iHR a:amd64", "iHR b", "rHR c:i386", "iHR other", "iF  libnvidia-y"]
    assert swap.words(exchange, states) == {
        "take_out": ["a", "c:i386"],
        "words": ["b=2", "/var/lib/gpuwright/packages/d.deb", "libnvidia-x-"],
        "moves": ["a", "b", "c:i386", "libnvidia-x", "/var/lib/gpuwright/packages/d.deb"],
    }


def test_packages_that_take_the_place_of_nvidias_file_are_fetched_before_it_goes() -> None:
    made = plan(driver(displaces="570.86.16"))
    facts = nodes.bare(driver={"owner": "runfile"}, kernel={"headers": [KERNEL]})
    work = step("begin", facts, made)
    assert work["fetch"][:2] == ["apt-get", "--yes"]
    assert work["fetch"][-3:] == [f"{HEADERS}=6.12.107-1", *(f"{name}=580.178.04-1" for name in NAMED)]
    assert work["programs"] == ["/usr/bin/nvidia-uninstall (driver 570.86.16)"]
    assert work["beside"] is True
    # A run that was cut off has taken it away already.
    assert step("begin", nodes.bare(kernel={"headers": [KERNEL]}), made)["fetch"] == []


def test_nvidias_file_is_fetched_and_run_with_what_the_machine_asks_for() -> None:
    facts = nodes.bare(sessions={"display": True})
    work = step("begin", facts, plan(of_file(), changes=[]))
    file = work["runfile"]
    assert file["arguments"] == [
        *("--silent", "--dkms"),
        f"--kernel-name={KERNEL}",
        *("--no-nouveau-check", "--no-x-check"),
    ]
    assert (file["fetch"], file["remote"], work["before"]) == (True, True, True)
    assert file["path"] == f"/var/lib/gpuwright/packages/{RUNFILE['name']}"
    assert work["programs"] == [f"{RUNFILE['name']} {' '.join(file['arguments'])}"]
    quiet = step("begin", nodes.bare(kernel={"loaded": {"nvidia": {"version": None}}}), plan(of_file()))
    assert quiet["runfile"]["arguments"][-1] == "--no-nouveau-check"
    bare = nodes.bare()
    bare["kernel"]["loaded"] = {}
    assert step("begin", bare, plan(of_file()))["runfile"]["arguments"][-1] == f"--kernel-name={KERNEL}"


def test_a_file_on_the_controller_is_not_fetched_by_the_node() -> None:
    stack = of_file(runfile={**RUNFILE, "addresses": ["/srv/driver.run"]})
    assert step("begin", made=plan(stack))["runfile"]["remote"] is False
    nowhere = of_file(runfile={**RUNFILE, "addresses": []})
    assert step("begin", made=plan(nowhere))["runfile"]["remote"] is False


@pytest.mark.parametrize(
    ("version", "licence", "owner", "there"),
    [
        ("580.178.04", "Dual MIT/GPL", "runfile", True),
        ("580.126.20", "Dual MIT/GPL", "runfile", False),
        ("580.178.04", "NVIDIA", "runfile", False),
        ("580.178.04", "Dual MIT/GPL", "packages", False),
    ],
)
def test_the_file_is_run_where_it_did_not_bring_this_very_build(
    version: str, licence: str, owner: str, there: bool
) -> None:
    facts = nodes.provisioned(driver={"owner": owner})
    facts["kernel"]["available"]["nvidia"] |= {"version": version, "license": licence}
    assert step("begin", facts, plan(of_file()))["runfile"]["fetch"] is not there


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([], []),
        (["installed nvidia-driver-pinning-580"], []),
        (["config-files nvidia-driver-pinning-570", "installed nvidia-driver-pinning-580"], ["nvidia-driver-pinning-570"]),
    ],
)  # fmt: skip
def test_a_pin_that_gave_way_is_known_by_its_configuration(said: list[str], left: list[str]) -> None:
    assert version_hold.left_pins(said) == left


# --- the way back -----------------------------------------------------------------------------------------------------


def restore(**changes: Any) -> dict[str, Any]:
    """A return to packages, see plan/rollback.py."""
    return {
        "version": "580.126.20", "source": "nvidia", "packages": {"libcuda1": "580.126.20-1"}, "files": {},
        "install": ["libcuda1=580.126.20-1"], "remove": ["nvidia-new"], "hold": ["libcuda1"], "unhold": ["nvidia-new", "other"],
        "streams": {}, **changes,
    }  # fmt: skip


def test_on_the_way_back_a_second_source_of_the_same_place_gives_way_first() -> None:
    """apt does not work beside it, whether anything comes from there or not."""
    made = plan(restore=restore())
    made["stack"] = {
        **made["stack"],
        "repositories": [{"name": "nvidia-cuda", "displaces": [{"file": "/x"}]}, {"name": "other"}],
    }
    assert step("begin", made=made)["repositories"] == ["nvidia-cuda"]


def test_the_way_back_is_one_transaction_and_its_holds() -> None:
    work = step("begin", made=plan(restore=restore()))
    assert (work["before"], work["installs"], work["configures"]) == (True, False, True)
    assert work["restore"]["moves"] is True
    assert work["restore"]["hold"] == ["apt-mark", "hold", "libcuda1"]
    # A package that goes has no hold to take back.
    assert work["restore"]["unhold"] == ["apt-mark", "unhold", "other"]
    assert work["exchange"]["comes"] == ["libcuda1=580.126.20-1"]
    assert work["exchange"]["leaves"] == ["nvidia-new"]
    assert work["repositories"] == []
    on_dnf = step("begin", redhat(), plan(restore=restore(hold=[], unhold=[])))["restore"]
    assert (on_dnf["moves"], on_dnf["hold"], on_dnf["unhold"]) == (True, [], [])


def test_the_way_back_to_nvidias_file_runs_it_where_it_is_not_there() -> None:
    made = plan(of_file(), restore=restore(source="runfile", install=[], remove=[]))
    assert step("begin", made=made)["restore"]["moves"] is False
    assert step("begin", made=made)["runfile"]["fetch"] is True
    assert step("begin", nodes.provisioned(driver={"owner": "runfile"}), made)["runfile"]["fetch"] is False
    assert step("begin", nodes.provisioned(driver={"owner": "runfile"}), made)["restore"]["uninstalls"] is True
    # One of packages runs no file.
    assert step("begin", made=plan(of_file(), restore=restore()))["runfile"]["fetch"] is False
