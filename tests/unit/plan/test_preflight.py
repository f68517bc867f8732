"""What is refused right before the first change, from a plan and a node that may have changed since."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import preflight, work

from . import nodes

MIB = 1024**2
GIVEN = {"reserve": 512, "boot": 128, "framework": 6144}
PLAN: Any = {
    "host": "node",
    "error": None,
    "refusals": [],
    "conflicts": [],
    "components": ["nvidia_driver", "frameworks"],
    "changes": [],
    "stack": {"frameworks": [{"name": "pytorch", "path": "/opt/gpuwright/pytorch"}]},
    "packages": {},
    "provision_only": False,
    "cards_missing": False,
    "cpu_only": False,
    "download_bytes": 0,
    "disk_bytes": 0,
    "remove": None,
    "boots": True,
    "allow_busy": False,
    "brings": None,
    "install": [],
    "manages": {"frameworks": {"environments": ["/opt/gpuwright/pytorch"]}},
    "given": GIVEN,
}


def change(component: str, action: str = "install", **more: Any) -> dict[str, Any]:
    files = [f"/opt/gpuwright/{component}"]
    return {"component": component, "action": action, "from": None, "reason": "it is not there", "files": files, **more}


def facts(*, free_mib: int | None = 100_000, boot_mib: int | None = None, **changes: Any) -> Any:
    """A node with that much room, which tells more where it is asked."""

    def disk(mount: str, free: int | None) -> dict[str, Any]:
        return {"mount": mount, "free_bytes": None if free is None else free * MIB, "read_only": False}

    disks = [disk("/", free_mib), *([disk("/boot", boot_mib)] if boot_mib is not None else [])]
    return nodes.bare(disks=disks, **changes)


def look(found: Any, variables: Any = None, **changes: Any) -> None:
    named = [row["component"] for row in changes.get("changes", ())]
    plan: Any = {**PLAN, "components": [*PLAN["components"], *named], **changes}
    work.of_step("preflight", "look", plan, found, variables or {})


def refused(found: Any, variables: Any = None, **changes: Any) -> str:
    with pytest.raises(StepRefused) as stopped:
        look(found, variables, **changes)
    return str(stopped.value)


def test_what_a_cut_build_takes_is_room_for_the_next_one() -> None:
    full = facts(free_mib=1000)
    changes = [change("frameworks")]
    assert "MiB free on / for environments of frameworks" in refused(full, changes=changes)
    full["disks"][0]["reclaimed_bytes"] = 100_000 * MIB
    look(full, changes=changes)


def test_a_node_that_is_as_the_plan_saw_it_is_not_refused() -> None:
    look(facts(), changes=[change("nvidia_driver"), change("frameworks")])


def test_a_wish_that_could_not_be_read_is_told_as_it_is() -> None:
    assert refused(facts(), error="no such card") == "no such card"


def test_every_refusal_and_conflict_of_the_plan_is_told_with_its_remedy() -> None:
    rows = [{"rule": "no-space", "text": "/ is full", "remedy": "make room"}]
    conflicts = [{"rule": "driver.branch", "text": "no branch fits", "remedy": None}]
    said = refused(facts(), refusals=rows, conflicts=conflicts)
    assert said == (
        "Expected a plan without refusals, found 2: [no-space] / is full What to do: make room. "
        "[driver.branch] no branch fits What to do: change the wish."
    )


def _of_file(**file: str) -> Any:
    return {"driver": {"runfile": {"name": "x.run", **file}}}


def test_a_file_that_is_run_again_needs_a_checksum() -> None:
    rows = [change("nvidia_driver", "repair", reason="its module is gone")]
    said = refused(facts(), stack=_of_file(), changes=rows)
    assert "(its module is gone)" in said
    assert "nvidia_driver_runfile_sha256" in said
    look(facts(), stack=_of_file(), changes=[change("nvidia_driver", "configure")])
    look(facts(), stack=_of_file(sha256="a" * 64), changes=rows)


def test_an_ordinary_user_is_refused() -> None:
    assert "Expected to work as root on node, found an ordinary user." in refused(facts(privileged=False))


@pytest.mark.parametrize(("manager", "told"), [(None, "Found none on"), ("zypper", "Found zypper on")])
def test_a_package_manager_that_the_roles_do_not_know_is_refused(manager: str | None, told: str) -> None:
    found = facts()
    found["packages"]["manager"] = manager
    assert told in refused(found)


def test_services_need_systemd_unless_the_machine_is_only_provisioned() -> None:
    found = facts()
    found["environment"]["systemd"] = False
    assert "the plan has nvidia_driver and mig." in refused(found, components=["nvidia_driver", "mig", "cuda"])
    look(found, components=["cuda", "frameworks"])
    look(found, components=["nvidia_driver"], provision_only=True)


# --- room -------------------------------------------------------------------------------------------------------------


def test_what_is_downloaded_and_installed_has_to_fit_with_a_reserve() -> None:
    sizes = {"download_bytes": 100 * MIB, "disk_bytes": 400 * MIB}
    look(facts(free_mib=1140), components=["nvidia_driver"], **sizes)
    said = refused(facts(free_mib=1139), components=["nvidia_driver"], **sizes)
    assert "Expected 1140 MiB free on / for downloaded packages and installed packages and the initramfs" in said
    assert "What to do: free space there" in said


def test_wheels_are_no_part_of_what_the_package_manager_downloads() -> None:
    wheel = {"name": "torch", "version": "2.14.1", "download_bytes": 900 * MIB}
    changes = [change("frameworks", "repair", wheels=[wheel])]
    plan: Any = {**PLAN, "changes": changes, "download_bytes": 1000 * MIB}
    assert preflight.needs(Context(facts=facts(), stack=PLAN["stack"]), plan)[0]["bytes"] == 100 * MIB


def test_an_initramfs_needs_room_only_where_one_is_written() -> None:
    assert "on /boot for the initramfs, found 127 MiB" in refused(facts(boot_mib=127), components=["nouveau_blacklist"])
    look(facts(boot_mib=127), components=["cuda"])


@pytest.mark.parametrize(("cpu_only", "size"), [(False, 2 * 6144), (True, 2 * 1024)])
def test_an_environment_that_is_made_or_moved_needs_room(cpu_only: bool, size: int) -> None:
    rows = [change("frameworks"), change("frameworks", "upgrade")]
    # The other build, the activation, and a seal that is broken while all is right.
    rows += [
        change("frameworks", "return"),
        change("frameworks", "configure"),
        change("frameworks", "repair", files=[]),
    ]
    context = Context(facts=facts(), stack=PLAN["stack"])
    plan: Any = {**PLAN, "changes": rows, "cpu_only": cpu_only}
    needed = preflight.needs(context, plan)[2]
    assert needed == {
        "what": "environments of frameworks",
        "path": "/opt/gpuwright",
        "bytes": size * MIB,
        "files": 80_000,
    }


def test_environments_lie_where_the_stack_has_them_and_packages_where_their_manager_does() -> None:
    found = facts()
    found["packages"]["manager"] = "dnf"
    stack: Any = {"frameworks": [{"path": "/data/envs/jax"}]}
    context = Context(facts=found, stack=stack)
    assert [need["path"] for need in preflight.needs(context, PLAN)] == [
        "/var/cache/dnf",
        "/usr",
        "/data/envs",
        "/boot",
    ]


@pytest.mark.parametrize(
    ("given", "needed"), [({"reserve": "612"}, 1240), ({"reserve": 0}, 628), ({"boot": "28"}, 1040)]
)
def test_the_roles_variables_say_how_much_stays_free_and_what_an_initramfs_takes(
    given: dict[str, Any], needed: int
) -> None:
    """As text, where a person gives them with -e."""
    plan: Any = {"components": ["nvidia_driver"], "download_bytes": 100 * MIB, "disk_bytes": 400 * MIB}
    plan["given"] = {**GIVEN, **given}
    look(facts(free_mib=needed), **plan)
    assert f"Expected {needed} MiB free on / for" in refused(facts(free_mib=needed - 1), **plan)


# --- cards ------------------------------------------------------------------------------------------------------------


def seen(*kinds: str, **changes: Any) -> Any:
    processes = [{"pid": number, "name": f"process-{kind}", "type": kind} for number, kind in enumerate(kinds)]
    cards = [{"processes": processes}, {"processes": []}, {"processes": None}, {}]
    return facts(smi={"data": {"gpus": cards}}, **changes)


def held(name: str = "python3", pid: int = 812, **changes: Any) -> Any:
    """A node on which a process has a card open, and nvidia-smi does not answer."""
    return facts(smi=None, in_use={"holders": [{"pid": pid, "name": name, "devices": ["nvidia0"]}]}, **changes)


@pytest.mark.parametrize(
    ("kinds", "busy"),
    [
        (("G",), []),
        (("C+G",), []),
        (("G", "C+G"), []),
        (("C",), ["process-C"]),
        (("",), ["process-"]),
        (("M+C",), ["process-M+C"]),
        (("G", "C", "C+G"), ["process-C"]),
    ],
)
def test_the_desktops_own_processes_do_not_make_a_card_busy(kinds: tuple[str, ...], busy: list[str]) -> None:
    rows = [change("nvidia_driver", "upgrade")]
    if not busy:
        look(seen(*kinds), changes=rows)
        return
    said = refused(seen(*kinds), changes=rows)
    assert f"because the driver changes. Found what uses it: {busy[0]} (pid " in said
    assert "gpuwright_allow_busy" in said


def test_who_computes_on_one_card_and_draws_on_another_computes() -> None:
    both: Any = [{"processes": [{"pid": 7, "name": "blender", "type": kind}]} for kind in ("C", "G")]
    for cards in (both, both[::-1]):
        node = facts(smi={"data": {"gpus": cards}})
        assert "blender (pid 7)" in refused(node, changes=[change("nvidia_driver", "upgrade")])


def test_who_holds_a_card_and_draws_alone_does_not_compute() -> None:
    draws = {"holders": [{"pid": 0, "name": "firefox", "devices": ["nvidia0", "nvidia-uvm"]}]}
    look(seen("G", in_use=draws), changes=[change("nvidia_driver", "upgrade")])
    unlisted = {"holders": [{"pid": 7, "name": "python3", "devices": ["nvidia0"]}]}
    assert "python3 (pid 7)" in refused(seen("G", in_use=unlisted), changes=[change("nvidia_driver", "upgrade")])


@pytest.mark.parametrize(
    "rows",
    [
        [change("nvidia_driver", "upgrade")],
        [change("nvidia_driver", "return")],
        [change("mig", "configure", **{"from": "all-disabled"})],
        [change("reboot", "configure")],
    ],
)
def test_a_card_that_somebody_holds_is_busy_whatever_nvidia_smi_does(rows: list[dict[str, Any]]) -> None:
    assert "python3 (pid 812)" in refused(held(), changes=rows)
    look(held(), changes=rows, allow_busy=True)


@pytest.mark.parametrize("component", ["nvidia_driver", "mig", "reboot"])
def test_what_nobody_could_look_at_is_not_idle(component: str) -> None:
    rows = [change(component, "upgrade", **{"from": "x"})]
    said = refused(facts(in_use={"unread": "the open files of 3 processes could not be read"}), changes=rows)
    assert "Found that nobody can tell whether it is so: the open files of 3 processes" in said
    assert "gpuwright_allow_busy" in said


def test_a_driver_is_taken_from_running_work_only_where_that_is_allowed_or_nothing_is_taken() -> None:
    look(seen("C"), changes=[change("nvidia_driver", "upgrade")], allow_busy=True)
    for rows in ([change("nvidia_driver", "adopt")], [change("nvidia_driver", "configure")], [change("cuda")]):
        look(seen("C"), changes=rows)


@pytest.mark.parametrize(("kind", "busy"), [("G", 0), ("C", 1), ("M+C", 1), ("C+G", 1)])
def test_a_card_is_parted_anew_only_where_nothing_computes_beside_drawing_either(kind: str, busy: int) -> None:
    rows = [change("mig", "configure", **{"from": "all-disabled"})]
    if busy:
        assert "because their MIG layout changes. Found what uses it: process" in refused(seen(kind), changes=rows)
    else:
        look(seen(kind), changes=rows)
    look(seen(kind), changes=[change("mig", "configure")])


def test_cards_that_nobody_holds_are_idle_without_a_word_of_nvidia_smi() -> None:
    look(facts(smi=None), changes=[change("nvidia_driver"), change("mig", **{"from": "x"})])


def test_five_of_many_processes_are_named() -> None:
    said = refused(seen(*["C"] * 7), changes=[change("nvidia_driver")])
    assert "and 2 more" in said
    assert said.count("pid") == 5


# --- the host ---------------------------------------------------------------------------------------------------------

BOOT = [change("reboot", "configure")]


def container(engine: str = "docker", *, comes_back: bool = False) -> dict[str, Any]:
    return {"engine": engine, "id": "0123456789ab", "comes_back": comes_back}


@pytest.mark.parametrize(
    ("running", "named"),
    [
        ({"jobs": ["slurmstepd: [17.batch] (pid 9)"]}, "slurmstepd: [17.batch]"),
        ({"working": [{"engine": "docker", "what": "docker build (pid 9)"}]}, "docker build"),
        ({"containers": [container("podman")]}, "container 0123456789ab of podman"),
        ({"containers": [container(comes_back=True)]}, None),
        ({"docker_clients": 2}, None),
    ],
)
def test_a_boot_waits_for_what_the_machine_does_not_start_again(running: dict[str, Any], named: str | None) -> None:
    if named is None:
        look(facts(in_use=running), changes=BOOT)
        return
    said = refused(facts(in_use=running), changes=BOOT)
    assert f"Expected an idle host, because it is rebooted. Found what uses it: {named}" in said


def test_a_boot_that_is_left_to_the_user_ends_nothing() -> None:
    look(held(), changes=BOOT, boots=False)


@pytest.mark.parametrize(("name", "engine"), [("docker.io", "Docker"), ("containerd.io", "containerd")])
def test_packages_of_an_engine_in_use_do_not_move(name: str, engine: str) -> None:
    packages = {"installed": {name: "1"}}
    runs = facts(packages=packages, in_use={"containers": [container(comes_back=True)]})
    said = refused(runs, install=[{"name": name}])
    assert f"Expected nothing to run in {engine}, because {name} moves to another version" in said
    look(facts(packages=packages), install=[{"name": name}])
    look(facts(in_use={"containers": [container(comes_back=True)]}), install=[{"name": name}])


# --- the fabric manager, and what the package manager began -----------------------------------------------------------


def test_the_fabric_manager_is_not_restarted_under_running_work() -> None:
    fabric = {"packages": [], "exact": [], "services": ["nvidia-fabricmanager.service"], "modules": []}
    stack = {"driver": {"adopted": False, "source": "nvidia", "fabric": fabric}}
    versions = {"loaded_version": nodes.DRIVER, "user_version": nodes.DRIVER}
    rows = [change("nvidia_driver", "configure")]
    busy = held(fabric={"manager_stale": True}, driver=versions)
    assert "because nvidia-fabricmanager.service is restarted" in refused(busy, changes=rows, stack=stack)
    look(held(fabric={"manager_stale": False}, driver=versions), changes=rows, stack=stack)


@pytest.mark.parametrize(
    ("detail", "cards", "docker"),
    [
        ("packages left unfinished: unpacked: nvidia-driver-cuda", True, False),
        ("packages left unfinished: unpacked: docker.io", False, True),
        ("packages left unfinished: unpacked: users-db", False, False),
        ("dpkg was interrupted: /var/lib/dpkg/updates holds 2 unfinished steps", True, True),
    ],
)
def test_the_repair_of_packages_that_are_in_use_is_refused(*, detail: str, cards: bool, docker: bool) -> None:
    packages = {"interrupted": True, "interrupted_detail": detail}
    rows = [change("repair", "repair")]
    runs = facts(packages=packages, in_use={"containers": [container(comes_back=True)]})
    for node, is_refused in ((held(packages=packages), cards), (runs, docker)):
        if is_refused:
            assert "because the package manager goes on" in refused(node, changes=rows)
        else:
            look(node, changes=rows)


# --- what the role does before it looks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "remove", "wait"),
    [
        (["cuda"], None, True),
        (["mig", "frameworks", "reboot"], None, False),
        (["remove"], {"environments": ["/opt/gpuwright/jax"]}, True),
        (["repair"], None, True),
    ],
)
def test_it_waits_for_the_package_manager_where_packages_come_or_go(
    components: list[str], remove: Any, wait: bool
) -> None:
    plan: Any = {**PLAN, "components": components, "remove": remove}
    found = preflight.begin(Context(facts=facts(), stack=PLAN["stack"]), plan)
    assert found["wait"] is wait
    of_stack = ["/opt/gpuwright/pytorch", "/opt/gpuwright/.pytorch"] if "frameworks" in components else []
    of_removal = ["/opt/gpuwright/jax", "/opt/gpuwright/.jax"] if remove else []
    assert found["paths"] == ["/var/lib/gpuwright", "/run/gpuwright", *of_stack, *of_removal]


def test_a_kernel_that_came_while_the_run_waited_is_refused_before_the_first_change() -> None:
    found = facts()
    kernel = found["kernel"]["next"]
    rows, brings = (
        [change("nvidia_driver", "upgrade")],
        {"version": "580.1", "modules": "open", "source": "nvidia", "kernel": kernel},
    )
    look(found, changes=rows, brings=brings)
    arrived = nodes.merged(found, {"kernel": {"next": "6.99.0"}})
    told = refused(arrived, changes=rows, brings=brings)
    assert f"Expected {kernel} as the kernel that boots next" in told
    assert "Found 6.99.0" in told
    look(arrived, changes=[change("nvidia_driver", "configure")], brings=brings)
