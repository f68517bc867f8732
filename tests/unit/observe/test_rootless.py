"""What containers of users without root need, as files of a machine tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers, rootless


def machine(root: Path, **files: str) -> Host:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(str(root))


PASSWD = """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/:/usr/sbin/nologin
alice:x:1000:1000:,,,:/home/alice:/bin/bash
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
strange name:x:1001:1001::/:/bin/sh
broken:x:1002
"""


def test_people_and_their_ranges_are_read(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        etc__passwd=PASSWD,
        etc__subuid="alice:100000:65536\n1001:165536:65536\n# a comment\nDOM\\bob:300000:10\nx:1\n",
        etc__subgid="alice:100000:65536\n",
    )
    seen = rootless.observe(host)
    assert seen["users"] == {"alice": 1000}
    assert seen["uids"] == [
        {"owner": "alice", "first": 100000, "count": 65536},
        {"owner": "1001", "first": 165536, "count": 65536},
        {"owner": "_", "first": 300000, "count": 10},
    ]
    assert seen["gids"] == seen["uids"][:1]
    assert seen["added"] == {"uids": [], "gids": []}


def test_what_was_given_is_what_the_record_names_and_the_files_have(tmp_path: Path) -> None:
    text = '{"uids": [{"owner": "alice", "first": 1, "count": 2}, {"owner": "bob", "first": 9, "count": 2}], "gids": 7}'
    host = machine(
        tmp_path,
        etc__subuid="alice:1:2\ncarol:9:2\n",
        etc__subgid="alice:1:2\n",
        **{"var__lib__gpuwright__rootless.json": text},
    )
    assert rootless.observe(host)["added"] == {"uids": [{"owner": "alice", "first": 1, "count": 2}], "gids": []}


def test_a_broken_record_is_told(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"var__lib__gpuwright__rootless.json": "{"})
    assert rootless.observe(host)["added"] == {"uids": [], "gids": []}
    assert "is no valid JSON" in host.unknown_facts["containers.rootless"]


def test_what_the_kernel_allows_is_read(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        proc__sys__user__max_user_namespaces="63000\n",
        proc__sys__kernel__unprivileged_userns_clone="0\n",
        proc__sys__kernel__apparmor_restrict_unprivileged_userns="1\n",
        **{"etc__apparmor.d__podman": "profile\n"},
    )
    seen = rootless.observe(host)
    assert (seen["max_namespaces"], seen["clone"], seen["apparmor"], seen["profile"]) == (63000, False, True, True)


def test_a_kernel_without_these_settings_says_nothing(tmp_path: Path) -> None:
    seen = rootless.observe(Host(str(tmp_path)))
    assert (seen["max_namespaces"], seen["clone"], seen["apparmor"], seen["profile"]) == (None, None, None, False)
    assert seen["users"] == {}


_UNIT = "home__alice__.config__systemd__user__docker.service"
_MOUNT = "36 25 0:32 / {} rw - {} {} rw\n"


@pytest.mark.parametrize(
    ("files", "mounts", "users"),
    [
        ({_UNIT: ""}, "", ["alice"]),
        ({_UNIT: ""}, _MOUNT.format("/home", "ext4", "/dev/sda2"), ["alice"]),
        ({_UNIT: ""}, _MOUNT.format("/home", "nfs4", "server:/home"), None),
        ({_UNIT: ""}, _MOUNT.format("/home/bob", "autofs", "/etc/auto.home"), None),
        ({_UNIT: ""}, _MOUNT.format("/home/alice/x", "fuse", "x"), None),
        ({_UNIT.replace("alice", "strange name"): ""}, "", None),
        ({"home__alice__.config__docker__daemon.json": "{}"}, "", None),
        ({}, "", None),
    ],
)
def test_who_has_a_unit_of_docker_without_root_is_seen(
    tmp_path: Path, files: dict[str, str], mounts: str, users: list[str] | None
) -> None:
    assert rootless.observe(machine(tmp_path, proc__1__mountinfo=mounts, **files)).get("docker") == users


@pytest.mark.parametrize("link", ["", ".config", ".config/systemd", ".config/systemd/user/docker.service"])
def test_no_link_in_a_home_is_followed(tmp_path: Path, link: str) -> None:
    host = machine(tmp_path, **{_UNIT.replace("home__alice", "elsewhere"): ""})
    at = tmp_path / "home/alice" / link
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(tmp_path / "elsewhere" / link)
    assert at.exists()
    assert "docker" not in rootless.observe(host)


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ('{"auths": {}, "currentContext": "desktop-linux"}', True),
        ('{"currentContext":"default"}', False),
        ('{"note": "desktop-linux"}', False),
        ("", False),
    ],
)
@pytest.mark.parametrize("home", ["root", "home__alice"])
def test_whose_docker_asks_docker_desktop_is_seen(tmp_path: Path, home: str, text: str, goes: bool) -> None:
    host = machine(tmp_path, **{f"{home}__.docker__config.json": text})
    place = f"/{home}/.docker/config.json".replace("__", "/")
    assert containers._to_desktop(host) == ([place] if goes else [])


def test_a_link_to_another_docker_is_not_followed(tmp_path: Path) -> None:
    host = machine(tmp_path, elsewhere='{"currentContext": "desktop-linux"}')
    (tmp_path / "home/alice/.docker").mkdir(parents=True)
    (tmp_path / "home/alice/.docker/config.json").symlink_to(tmp_path / "elsewhere")
    assert containers._to_desktop(host) == []
