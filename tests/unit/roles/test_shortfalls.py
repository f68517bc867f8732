"""What is missing on the disks and in an environment."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import shortfalls

MIB = 1024**2


def disk(mount: str, free_mib: int | None, **rest: Any) -> Any:
    return {"mount": mount, "free_bytes": None if free_mib is None else free_mib * MIB, "read_only": False, **rest}


def need(path: str, mib: int, what: str = "packages") -> Any:
    return {"what": what, "path": path, "bytes": mib * MIB}


def test_enough_room_is_no_shortfall() -> None:
    assert shortfalls.on_disks([need("/usr", 100)], [disk("/", 200)], reserve=100 * MIB) == []


def test_the_reserve_must_stay_free() -> None:
    (sentence,) = shortfalls.on_disks([need("/usr", 100)], [disk("/", 200)], reserve=101 * MIB)
    assert sentence == "Expected 201 MiB free on / for packages, found 200 MiB."


def test_needs_on_one_file_system_add_up() -> None:
    needs = [need("/usr", 100), need("/var/cache/apt", 100, "downloads")]
    (sentence,) = shortfalls.on_disks(needs, [disk("/", 150)], reserve=0)
    assert "200 MiB free on / for packages and downloads, found 150 MiB" in sentence


def test_needs_on_different_file_systems_are_apart() -> None:
    needs = [need("/usr", 100), need("/var/cache/apt", 100)]
    assert shortfalls.on_disks(needs, [disk("/", 150), disk("/var", 150)], reserve=0) == []


def test_a_path_that_is_not_there_yet_counts_where_it_will_be() -> None:
    (sentence,) = shortfalls.on_disks([need("/opt/gpuwright", 100)], [disk("/", 500), disk("/opt", 10)], reserve=0)
    assert "on /opt " in sentence


def test_a_mount_point_with_the_same_beginning_is_another_one() -> None:
    assert shortfalls.on_disks([need("/optional", 100)], [disk("/", 500), disk("/opt", 1)], reserve=0) == []


def test_a_boot_file_system_needs_no_reserve() -> None:
    assert shortfalls.on_disks([need("/boot", 100)], [disk("/", 1), disk("/boot", 100)], reserve=500 * MIB) == []


def test_nothing_to_write_needs_nothing() -> None:
    assert shortfalls.on_disks([need("/usr", 0)], [disk("/", 0)], reserve=500 * MIB) == []


def test_a_read_only_file_system_is_a_shortfall() -> None:
    (sentence,) = shortfalls.on_disks([need("/usr", 1)], [disk("/", 500, read_only=True)], reserve=0)
    assert "read-only" in sentence


def test_files_count_beside_bytes() -> None:
    needs: list[Any] = [{**need("/opt/gpuwright", 1), "files": 40_000}]
    (sentence,) = shortfalls.on_disks(needs, [disk("/", 500, free_files=39_999)], reserve=0)
    assert "40000 more files (inodes) on /" in sentence
    assert shortfalls.on_disks(needs, [disk("/", 500, free_files=40_000)], reserve=0) == []
    assert shortfalls.on_disks(needs, [disk("/", 500, free_files=None)], reserve=0) == []


def test_whatever_is_written_needs_a_file() -> None:
    (sentence,) = shortfalls.on_disks([need("/usr", 1)], [disk("/", 500, free_files=0)], reserve=0)
    assert "(inodes) on / for packages, found 0" in sentence


def test_a_place_lies_where_the_disk_says_so() -> None:
    disks = [disk("/", 1), disk("/data", 500, places=["/var/cache/dnf"])]
    assert shortfalls.on_disks([need("/var/cache/dnf", 100)], disks, reserve=0) == []


@pytest.mark.parametrize("disks", [[], [disk("/", None)]])
def test_an_unknown_disk_is_a_shortfall_and_not_fine(disks: list[Any]) -> None:
    assert len(shortfalls.on_disks([need("/usr", 1)], disks, reserve=0)) == 1


def test_an_environment_with_everything_lacks_nothing() -> None:
    packages = {"torch": "2.14.1+cu130", "nvidia-cudnn-cu13": "9.24.0.43"}
    assert shortfalls.in_environment(["torch==2.14.1+cu130"], packages, ["nvidia_cudnn_cu13==9.24.0.43"]) == []


def test_an_empty_environment_lacks_every_requirement_but_breaks_no_constraint() -> None:
    assert shortfalls.in_environment(["torch==2.14.1"], {}, ["numpy==2.0"]) == ["torch==2.14.1"]


def test_a_local_version_counts_where_the_requirement_names_one() -> None:
    packages = {"torch": "2.14.1+cpu"}
    assert shortfalls.in_environment(["torch==2.14.1"], packages, []) == []
    assert shortfalls.in_environment(["torch==2.14.1+cu130"], packages, []) == ["torch==2.14.1+cu130"]


def test_a_constraint_on_an_installed_package_must_hold() -> None:
    assert shortfalls.in_environment([], {"numpy": "1.26.4"}, ["numpy==2.0"]) == ["numpy==2.0"]


def test_extras_do_not_change_what_is_looked_for() -> None:
    assert shortfalls.in_environment(["jax[cuda12]==0.4.35"], {"jax": "0.4.35"}, []) == []


def test_names_are_compared_as_python_compares_them() -> None:
    assert shortfalls.in_environment(["Typing_Extensions==4.12"], {"typing-extensions": "4.12"}, []) == []


def test_a_thing_that_is_no_requirement_is_an_error_with_its_text() -> None:
    with pytest.raises(ValueError, match="not a requirement at all"):
        shortfalls.in_environment(["not a requirement at all"], {}, [])
