"""Machines that were looked at: what is there, what is kept, what is not swapped unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from tests.unit.plan import nodes

Answer = Callable[..., dict[str, Any]]
Facts = Any


def with_driver(
    facts: Facts, version: str, *, owner: str = "packages", source: str | None = "nvidia", modules: str = "open"
) -> Facts:
    """A driver that works: packages (or a .run file) and a loaded module."""
    facts["driver"] = {
        "owner": owner,
        "source": source,
        "packages": {"nvidia-driver-cuda": f"{version}-1"} if owner == "packages" else {},
        "loaded_version": version,
        "loaded_modules": modules,
        "user_version": version,
    }
    return facts


def stack(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["ok"], answer
    found: dict[str, Any] = answer["stack"]
    return found


def test_a_bare_host_gets_the_whole_stack(facts: Facts, answer: Answer) -> None:
    found = answer(facts, "cuda", "pytorch")
    assert found["gpus"] == [{"name": "H100 SXM5 80GB", "architecture": "Hopper", "compute_capability": "9.0"}]
    assert found["assumed"] == {}
    assert stack(found)["driver"]["branch"] == "580"
    assert stack(found)["frameworks"][0]["interpreter"] == "3.13"


@pytest.mark.parametrize(
    ("version", "owner", "source"),
    [("580.95.05", "packages", "nvidia"), ("550.163.01", "packages", "distro"), ("570.211.01", "runfile", "runfile")],
)
def test_a_driver_that_is_there_and_satisfies_is_adopted(
    facts: Facts, answer: Answer, version: str, owner: str, source: str
) -> None:
    driver = stack(answer(with_driver(facts, version, owner=owner, source=source), "pytorch"))["driver"]
    assert driver["adopted"]
    assert (driver["version"], driver["packages"], driver["source"]) == (version, [], source)


@pytest.mark.parametrize(
    ("user", "loaded", "version"),
    [
        ("580.95.05", "580.82.07", "580.95.05"),
        ("580.95.05", None, "580.95.05"),
        (None, "580.82.07", "580.82.07"),
    ],
)
def test_a_driver_has_the_version_of_its_libraries_else_that_of_its_module(
    facts: Facts, answer: Answer, user: str | None, loaded: str | None, version: str
) -> None:
    there = with_driver(facts, "580.95.05")
    there["driver"] |= {"user_version": user, "loaded_version": loaded}
    there["kernel"]["available"] = {"nvidia": {"version": "580.95.05", "license": "Dual MIT/GPL"}}
    driver = stack(answer(there))["driver"]
    assert (driver["adopted"], driver["version"]) == (True, version)


def test_a_driver_that_is_there_is_adopted_though_it_could_not_be_installed_today(facts: Facts, answer: Answer) -> None:
    driver = stack(answer(with_driver(facts, "550.163.01", source="distro"), absent=["driver=550"]))["driver"]
    assert (driver["adopted"], driver["version"]) == (True, "550.163.01")


def test_an_adopted_driver_decides_what_the_rest_may_be(facts: Facts, answer: Answer) -> None:
    found = stack(answer(with_driver(facts, "550.163.01", source="distro"), "pytorch"))
    assert found["frameworks"][0]["variant"] == "cu126"


def test_an_adopted_driver_is_warned_of_when_it_is_old(facts: Facts, answer: Answer) -> None:
    found = answer(with_driver(facts, "580.95.05"))
    assert "driver.security" in {entry["rule"] for entry in found["warnings"]}


def test_a_driver_below_the_wish_of_the_same_owner_is_moved(facts: Facts, answer: Answer) -> None:
    driver = stack(answer(with_driver(facts, "575.57.08", source="nvidia"), "driver=580"))["driver"]
    assert not driver["adopted"]
    assert (driver["branch"], driver["source"]) == ("580", "nvidia")


def test_a_driver_of_another_owner_is_not_swapped_unasked(facts: Facts, answer: Answer) -> None:
    found = answer(with_driver(facts, "550.163.01", source="distro"), "driver=580")
    assert not found["ok"]
    asked = answer(with_driver(facts, "550.163.01", source="distro"), "driver=580", "driver-source=nvidia")
    assert stack(asked)["driver"]["source"] == "nvidia"


def test_a_run_file_that_does_not_satisfy_is_refused_with_the_way_out(facts: Facts, answer: Answer) -> None:
    found = answer(with_driver(facts, "535.104.05", owner="runfile", source="runfile"), "cuda=13")
    assert not found["ok"]
    assert all(entry["remedy"] for entry in found["conflicts"])
    assert "not swapped unasked" in found["conflicts"][0]["text"]


def test_a_broken_driver_is_mended_from_where_it_came(facts: Facts, answer: Answer) -> None:
    facts["driver"] |= {"owner": "packages", "source": "distro", "packages": {"nvidia-smi": "550.163.01-2"}}
    assert stack(answer(facts))["driver"]["source"] == "distro"


def test_packages_are_not_put_over_a_broken_run_file(facts: Facts, answer: Answer) -> None:
    facts["driver"] |= {"owner": "runfile", "source": "runfile"}
    assert answer(facts)["conflicts"][0]["rule"] == "driver.runfile"
    assert answer(facts, "driver-source=nvidia")["ok"]


def test_libraries_that_fit_neither_the_loaded_module_nor_that_on_disk_are_no_working_driver(
    facts: Facts, answer: Answer
) -> None:
    broken = with_driver(facts, "570.124.06", owner="runfile", source="runfile")
    broken["driver"]["user_version"] = "570.124.04"
    broken["kernel"]["available"] = {"nvidia": {"version": "570.124.06", "license": "Dual MIT/GPL"}}
    assert answer(broken)["conflicts"][0]["rule"] == "driver.runfile"
    broken["kernel"]["available"]["nvidia"]["version"] = "570.124.04"  # a boot mends it
    assert stack(answer(broken))["driver"]["adopted"]


@pytest.mark.parametrize(
    ("manager", "owner", "adopted"),
    [
        (None, "packages", False),
        ("580.82.07-1", "packages", False),
        ("580.95.05-1", "packages", True),
        (None, "runfile", True),
    ],
)
def test_a_driver_without_its_fabric_manager_gets_it_in_its_branch(
    facts: Facts, answer: Answer, manager: str | None, owner: str, adopted: bool
) -> None:
    seen = with_driver(facts, "580.95.05", owner=owner, source="nvidia" if owner == "packages" else "runfile")
    seen["pci"]["nvswitches"] = [{"bus_id": "00000000:60:00.0", "device": "22a3"}]
    seen["packages"]["installed"] = {"nvidia-fabricmanager": manager} if manager else {}
    driver = stack(answer(seen))["driver"]
    assert (driver["adopted"], driver["branch"]) == (adopted, "580")
    assert adopted or "nvidia-fabricmanager" in driver["fabric"]["packages"]
    seen["pci"]["nvswitches"] = []
    assert stack(answer(seen))["driver"]["adopted"]


def test_kernel_modules_that_do_not_bind_are_not_adopted(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"][0]["device"] = "1db1"
    driver = stack(answer(with_driver(facts, "580.95.05", modules="open")))["driver"]
    assert not driver["adopted"]
    assert driver["modules"] == "proprietary"


def test_what_gpuwright_put_there_is_not_adopted_but_kept(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": fresh}}
    again = stack(answer(with_driver(facts, "580.178.04")))["driver"]
    assert again == fresh


def test_the_stack_that_was_just_applied_speaks_before_the_seal_is_written(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts))["driver"]
    assert stack(answer(with_driver(facts, "580.178.04"), previous=fresh))["driver"] == fresh
    adopted = stack(answer(with_driver(facts, "580.178.04")))["driver"]
    assert stack(answer(with_driver(facts, "580.178.04"), previous=adopted))["driver"] == adopted


def test_after_a_cut_the_packages_tell_that_the_driver_is_gpuwrights(facts: Facts, answer: Answer) -> None:
    fresh = stack(answer(facts))["driver"]
    facts["packages"]["installed"] = dict.fromkeys(fresh["packages"], "580.178.04-1")
    again = stack(answer(with_driver(facts, "580.178.04")))["driver"]
    assert again == fresh | {"source_reason": again["source_reason"]}


def test_a_sealed_branch_stays_though_another_would_be_chosen_today(facts: Facts, answer: Answer) -> None:
    sealed = stack(answer(facts, "driver=595"))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": sealed}}
    again = stack(answer(with_driver(facts, "595.71.05")))["driver"]
    assert again["branch"] == "595"
    assert not again["adopted"]


def test_a_sealed_branch_gives_way_to_a_wish(facts: Facts, answer: Answer) -> None:
    sealed = stack(answer(facts, "driver=595"))["driver"]
    facts["seals"] = {"nvidia_driver": {"state": "good", "stack": sealed}}
    assert stack(answer(with_driver(facts, "595.71.05"), "driver=580"))["driver"]["branch"] == "580"


def test_what_the_index_does_not_have_is_left_for_the_next_best(facts: Facts, answer: Answer) -> None:
    found = stack(answer(facts, "cuda", absent=["driver=580", "cuda=13.0"]))
    assert found["driver"]["branch"] == "595"
    assert found["cuda"][0]["version"] == "13.2"
    facts["pci"]["gpus"][0]["device"] = "1db1"
    refused = answer(facts, "driver-source=nvidia", absent=["driver=580"])
    assert not refused["ok"]
    assert "driver.absent" in {entry["rule"] for entry in refused["conflicts"]}


def test_a_pci_id_that_no_row_names_is_no_error(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"][0]["device"] = "24a4"
    found = answer(facts, "pytorch")
    assert stack(found)["driver"]["modules"] == "open"
    assert found["gpus"][0]["compute_capability"] == "8.6"
    assert "gpu.unlisted" in {entry["rule"] for entry in found["warnings"]}


def test_a_card_newer_than_every_row_gets_open_modules(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"][0]["device"] = "3fff"
    found = answer(facts, "pytorch")
    assert stack(found)["driver"]["modules"] == "open"
    assert found["gpus"][0]["compute_capability"] is None


def test_the_name_that_nvidia_smi_gives_helps_where_the_id_does_not(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"][0]["device"] = "3fff"
    facts["smi"] = nodes.smi({"pci_bus_id": "00000000:3B:00.0", "name": "NVIDIA B200"})
    assert answer(facts)["gpus"][0]["name"] == "B200 SXM"


@pytest.mark.parametrize("ignore", ["00000000:3B:00.0", "3b:00.0", "GeForce RTX 5090"])
def test_an_ignored_card_decides_nothing(facts: Facts, answer: Answer, ignore: str) -> None:
    facts["pci"]["gpus"] = [
        {"bus_id": "00000000:3B:00.0", "device": "2b85"},
        {"bus_id": "00000000:5E:00.0", "device": "1db1"},
    ]
    assert not answer(facts)["ok"]
    found = answer(facts, wish={"gpuwright_gpus_ignore": [ignore]})
    assert stack(found)["driver"]["modules"] == "proprietary"


def with_a_screen(facts: Facts, old: str = "128b", held: str | None = "nouveau", screen: bool = True) -> Facts:
    """An RTX 5090, and an old card (GT 710) beside it on which the screen hangs."""
    facts["pci"]["gpus"] = [
        {"bus_id": "00000000:01:00.0", "device": old, "driver": held},
        {"bus_id": "00000000:02:00.0", "device": "2b85", "driver": held},
    ]
    facts["display"] = {"desktop": True, "nvidia_screens": ["00000000:01:00.0"] if screen else []}
    return facts


IGNORED: Any = {"gpuwright_gpus_ignore": ["00000000:01:00.0"]}


@pytest.mark.parametrize("held", ["nouveau", "nova_core", "nvidia"])
def test_no_driver_takes_the_screen_of_a_card_that_is_left_alone(facts: Facts, answer: Answer, held: str) -> None:
    """Nouveau is blacklisted for the whole machine: the GT 710, which no such branch drives, would have no driver after the boot."""
    found = answer(with_a_screen(facts, held=held), wish=IGNORED)
    assert not found["ok"]
    (row,) = found["conflicts"]
    assert row["rule"] == "driver.screen"
    assert "GeForce GT 710" in row["text"]
    assert "gpuwright_gpus_ignore" not in row["remedy"]
    assert "connect the screen to another card" in row["remedy"]


def test_a_screen_that_is_not_known_counts_as_one(facts: Facts, answer: Answer) -> None:
    facts = with_a_screen(facts, screen=False)
    assert stack(answer(facts, wish=IGNORED))["driver"]["modules"] == "open"
    facts["unknown"]["display.nvidia_screens"] = "/sys/class/drm is unreadable: [Errno 13] Permission denied"
    assert not answer(facts, wish=IGNORED)["ok"]


@pytest.mark.parametrize("held", ["vfio-pci", None])
def test_a_card_that_runs_by_neither_loses_nothing(facts: Facts, answer: Answer, held: str | None) -> None:
    assert answer(with_a_screen(facts, held=held), wish=IGNORED)["ok"]


def test_without_a_screen_the_card_that_loses_nouveau_is_told(facts: Facts, answer: Answer) -> None:
    found = answer(with_a_screen(facts, screen=False), wish=IGNORED)
    assert "driver.nouveau" in [row["rule"] for row in found["warnings"]]


def test_a_branch_that_drives_the_screen_too_is_taken(facts: Facts, answer: Answer) -> None:
    """A T4 is left alone and an H100 beside it managed: one branch drives both, and the flavour that both work with."""
    facts = with_a_screen(facts, old="1eb8")
    found = stack(answer(facts, wish=IGNORED))
    assert (found["driver"]["branch"], found["driver"]["modules"]) == ("580", "open")


def test_no_remedy_leads_to_a_dark_screen(facts: Facts, answer: Answer) -> None:
    """Two cards that clash, and the screen on one of them: that one is not offered to be left alone."""
    facts = with_a_screen(facts, old="1db1")
    (row,) = answer(facts)["conflicts"]
    assert row["rule"] == "driver.modules-cards"
    assert "gpuwright_gpus_ignore: ['00000000:02:00.0']" in row["remedy"]
    assert "'00000000:01:00.0'" not in row["remedy"].split("gpuwright_gpus_ignore")[1]
    assert "screen" in row["remedy"]


@pytest.mark.parametrize("answered", [True, False])
def test_a_number_names_the_card_that_nvidia_smi_names_so(facts: Facts, answer: Answer, answered: bool) -> None:
    """The first card is left alone: the number 1 is that of the second one, and no number of it is that of the first."""
    places = ["00000000:3B:00.0", "00000000:5E:00.0"]
    facts["pci"]["gpus"] = [{"bus_id": place, "device": "2330"} for place in places]
    if answered:
        facts["smi"] = nodes.smi(*({"pci_bus_id": place} for place in places))
    alone: dict[str, Any] = {"gpuwright_gpus_ignore": [places[0]]}
    (card,) = stack(answer(facts, wish={**alone, "mig_layout": {"1": "off"}}))["mig"]["cards"]
    assert (card["index"], card["bus_id"]) == (1, places[1])
    if not answered:
        settings = {"gpu_settings_cards": {"1": {"persistence": True}}}
        (card,) = stack(answer(facts, wish={**alone, **settings}))["gpu_settings"]["cards"]
        assert (card["index"], card["bus_id"]) == (1, places[1])
    assert not answer(facts, wish={**alone, "mig_layout": {"0": "off"}})["ok"]


def test_cards_that_are_yet_to_come_are_named(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"] = []
    assert stack(answer(facts, provision_for=["V100"]))["driver"]["modules"] == "proprietary"
    with pytest.raises(BadInput):
        answer(facts, provision_for=["V1000"])


def test_a_host_without_cards_gets_frameworks_for_the_cpu(facts: Facts, answer: Answer) -> None:
    facts["pci"]["gpus"] = []
    assert set(stack(answer(facts, "pytorch"))) == {"frameworks"}


def test_wsl_is_measured_by_the_cuda_version_that_windows_reports(facts: Facts, answer: Answer) -> None:
    facts["environment"]["kind"] = "wsl"
    facts["os"] |= {"id": "ubuntu", "version": "24.04", "codename": "noble", "glibc": "2.39"}
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3.12", "version": "3.12.3"}]
    facts["smi"] = nodes.smi(cuda="12.8")
    found = stack(answer(with_driver(facts, "572.16", owner="unknown", source=None), "cuda", "pytorch"))
    assert "driver" not in found
    assert found["cuda"][0]["version"] == "12.8"
    assert found["frameworks"][0]["variant"] == "cu126"


def test_a_simulated_node_is_a_container_that_counts_as_bare_metal(facts: Facts, answer: Answer) -> None:
    facts["environment"]["kind"] = "container"
    assert "driver" not in stack(answer(facts))
    facts["simulated"] = True
    assert "driver" in stack(answer(facts))


def test_debians_components_come_from_the_mirror_of_the_host(facts: Facts, answer: Answer) -> None:
    (repository,) = stack(answer(facts, "driver-source=distro"))["repositories"]
    assert repository["from_host"]
    assert repository["uris"] == ["http://mirror.example/debian"]
    assert repository["components"] == ["contrib", "non-free", "non-free-firmware"]
    assert repository["signed_by"] == "/usr/share/keyrings/debian-archive-keyring.gpg"
    facts["packages"]["sources"][0]["components"] = ["main", "contrib", "non-free", "non-free-firmware"]
    assert stack(answer(facts, "driver-source=distro"))["repositories"] == []


def test_an_engine_that_is_there_is_not_replaced(facts: Facts, answer: Answer) -> None:
    facts["containers"]["docker"] = {"installed": True, "version": "20.10.24"}
    found = answer(facts, "container-toolkit")
    assert stack(found)["container_toolkit"]["engine"]["packages"] == []
    assert "container-toolkit.engine" in {entry["rule"] for entry in found["warnings"]}


CONTAINERD = {"installed": True, "version": "1.7.24", "active": True, "cri": True}


@pytest.mark.parametrize(
    ("seen", "wants", "engine"),
    [
        ({}, (), {"name": "containerd", "packages": []}),
        ({"active": False}, (), {"name": "docker", "packages": ["docker.io", "docker-cli"]}),
        ({"cri": False}, (), {"name": "docker", "packages": ["docker.io", "docker-cli"]}),
        ({}, ("container-engine=docker",), {"name": "docker", "packages": ["docker.io", "docker-cli"]}),
        ({"active": False}, ("container-engine=containerd",), {"name": "containerd", "packages": []}),
        ({"installed": False}, ("container-engine=containerd",), {"name": "containerd", "packages": ["containerd"]}),
        ({}, ("container-engine=podman",), {"name": "podman", "packages": ["podman"]}),
    ],
)
def test_a_containerd_that_is_at_work_is_the_engine_where_nobody_asks_for_another(
    facts: Facts, answer: Answer, seen: Any, wants: Any, engine: Any
) -> None:
    facts["containers"]["containerd"] |= {**CONTAINERD, **seen}
    assert stack(answer(facts, "container-toolkit", *wants))["container_toolkit"]["engine"] == engine


SNAP, DESKTOP = {"elsewhere": "snap"}, {"elsewhere": "desktop"}
K3S = {"name": "k3s", "config": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"}


@pytest.mark.parametrize(
    ("docker", "kubernetes", "wants", "told", "engine"),
    [
        (SNAP, None, (), "as a snap", None),
        (SNAP, None, ("container-engine=docker",), "as a snap", None),
        (SNAP, None, ("container-engine=podman",), None, "podman"),
        ({**SNAP, "installed": True, "version": "26.1.5"}, None, (), None, "docker"),
        (DESKTOP, None, (), "Docker Desktop", None),
        (DESKTOP, None, ("container-engine-source=docker",), None, "docker"),
        ({}, K3S, (), "k3s brings a containerd of its own", None),
        ({}, K3S, ("container-engine=containerd",), "k3s brings a containerd of its own", None),
        ({}, K3S, ("container-engine=docker",), None, "docker"),
        ({"installed": True, "version": "26.1.5"}, K3S, (), None, "docker"),
    ],
)
def test_nothing_is_put_unasked_beside_an_engine_that_is_no_service_of_the_system(
    facts: Facts, answer: Answer, docker: Any, kubernetes: Any, wants: Any, told: str | None, engine: str | None
) -> None:
    facts["containers"]["docker"] |= docker
    facts["containers"]["kubernetes"] = kubernetes
    found = answer(facts, "container-toolkit", *wants)
    if told is None:
        assert stack(found)["container_toolkit"]["engine"]["name"] == engine
        return
    (conflict,) = found["conflicts"]
    assert conflict["rule"] == "container-toolkit.elsewhere"
    assert told in conflict["text"]
    assert "--want" in conflict["remedy"]


def test_the_dockers_own_containerd_is_no_engine(facts: Facts, answer: Answer) -> None:
    facts["containers"]["containerd"] |= CONTAINERD
    facts["containers"]["docker"] |= {"installed": True, "version": "26.1.5"}
    assert stack(answer(facts, "container-toolkit"))["container_toolkit"]["engine"]["name"] == "docker"


def test_a_docker_that_a_cut_left_unpacked_is_named_again_and_not_its_containerd_taken(
    facts: Facts, answer: Answer
) -> None:
    facts["containers"]["containerd"] |= CONTAINERD
    facts["packages"]["installed"]["docker.io"] = "26.1.5+dfsg1-9"
    assert stack(answer(facts, "container-toolkit"))["container_toolkit"]["engine"] == {
        "name": "docker",
        "packages": ["docker.io", "docker-cli"],
    }


def test_a_containerd_that_serves_no_kubernetes_cannot_be_asked_for(facts: Facts, answer: Answer) -> None:
    facts["containers"]["containerd"] |= {**CONTAINERD, "cri": False}
    found = answer(facts, "container-engine=containerd")
    (conflict,) = found["conflicts"]
    assert conflict["rule"] == "container-toolkit.cri"
    assert "disabled_plugins" in conflict["text"]


def test_an_old_containerd_is_told_to_have_no_cdi(facts: Facts, answer: Answer) -> None:
    facts["containers"]["containerd"] |= {**CONTAINERD, "version": "1.6.20"}
    texts = [row["text"] for row in answer(facts, "container-toolkit")["warnings"]]
    assert any("containerd 1.6.20 is older than 1.7.16" in text and "not CDI" in text for text in texts)


def test_a_python_that_is_not_there_is_asked_for(facts: Facts, answer: Answer) -> None:
    found = answer(facts, "pytorch", "python=3.11")
    assert not found["ok"]
    assert "python=3.13" in found["conflicts"][0]["remedy"]
    facts["python"]["interpreters"].append({"path": "/usr/local/bin/python3.11", "version": "3.11.9"})
    assert stack(answer(facts, "pytorch", "python=3.11"))["frameworks"][0]["interpreter"] == "3.11"


@pytest.mark.parametrize(("there", "told"), [([], "none"), (["3.13.5"], "3.13"), (["3.13.5", "3.12.3"], "3.13, 3.12")])
def test_a_python_that_is_not_there_is_refused_with_those_that_are(
    facts: Facts, answer: Answer, there: list[str], told: str
) -> None:
    facts["python"]["interpreters"] = [{"path": f"/usr/bin/python{each}", "version": each} for each in there]
    (entry,) = answer(facts, "pytorch", "python=3.11")["conflicts"]
    assert entry["text"] == f"python 3.11 is asked for, this machine has {told}; the archive of Debian 13 has no other"


def test_the_kernel_that_boots_next_decides(facts: Facts, answer: Answer) -> None:
    facts["kernel"]["next"] = "6.12.107+deb13-amd64"
    assert stack(answer(facts, "driver-source=distro"))["driver"]["modules"] == "proprietary"
    facts["kernel"]["next"] = "6.12.94+deb13-amd64"
    assert stack(answer(facts, "driver-source=distro"))["driver"]["modules"] == "open"


@pytest.mark.parametrize(
    ("installed", "way_out"),
    [
        (["6.12.80+deb13-amd64", "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"], "boot kernel 6.12.94+deb13-amd64, which is installed"),
        (["6.12.107+deb13-amd64", "6.12.117+deb13-amd64"], "boot a kernel older than 6.12.107"),
    ],
)  # fmt: skip
def test_a_kernel_for_which_the_wish_does_not_build_is_refused_with_every_way_out(
    facts: Facts, answer: Answer, installed: list[str], way_out: str
) -> None:
    facts["kernel"] |= {"next": "6.12.107+deb13-amd64", "installed": installed}
    (entry,) = answer(facts, "driver-source=distro", "driver-modules=open")["conflicts"]
    assert "do not compile on kernel 6.12.107+deb13-amd64" in entry["text"]
    assert entry["remedy"].startswith("ask for driver-modules=proprietary")
    assert way_out in entry["remedy"]


def test_headers_are_those_of_one_kernel_where_the_usual_ones_would_bring_another(facts: Facts, answer: Answer) -> None:
    alone = f"linux-headers-{facts['kernel']['next']}"
    driver = stack(answer(facts, "driver=580"))["driver"]
    assert driver["headers"] == "linux-headers-amd64"
    driver = stack(answer(facts, "driver=580", absent={"headers=linux-headers-amd64": [alone]}))["driver"]
    assert driver["headers"] == alone
    assert alone in driver["packages"]
    assert "linux-headers-amd64" not in driver["packages"]


def on(facts: Facts, system: str, version: str, python: str) -> None:
    """The same machine with another system and the Python that it comes with."""
    facts["os"] |= {"id": system, "version": version, "family": "redhat" if system == "rocky" else "debian"}
    facts["python"]["interpreters"] = [{"path": f"/usr/bin/python{python}", "version": python}]


def test_a_python_of_the_archive_is_taken_where_it_is_asked_for_and_only_there(facts: Facts, answer: Answer) -> None:
    on(facts, "ubuntu", "22.04", "3.10")
    assert stack(answer(facts, "lmdb"))["frameworks"][0]["interpreter"] == "3.10"
    assert stack(answer(facts, "lmdb", "python=3.11"))["frameworks"][0]["interpreter"] == "3.11"
    (entry,) = answer(facts, "lmdb", "python=3.12")["conflicts"]
    assert entry["text"].endswith("this machine has 3.10; the archive of Ubuntu 22.04 LTS has 3.11")


def test_a_system_says_which_pythons_its_archive_has(facts: Facts, answer: Answer) -> None:
    on(facts, "ubuntu", "24.04", "3.12")
    (entry,) = answer(facts, "lmdb", "python=3.11")["conflicts"]
    assert entry["text"].endswith("; the archive of Ubuntu 24.04 LTS has no other")
