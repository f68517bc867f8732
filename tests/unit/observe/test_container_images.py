"""Which images are seen of Docker and of Podman, and that neither is started for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import container_images, containers
from tests.unit.observe.test_containerd import Running
from tests.unit.observe.trees import FakePrograms, Tree, answer

DIGEST = "sha256:" + "0123456789abcdef" * 4
#: What Docker 26 prints.
LISTED = (
    f"nvidia/cuda\t13.0.2-base-ubuntu24.04\t{DIGEST}\nalpine\t<none>\t{DIGEST}\nlocalhost/probe\t1\t<none>\n"
    "registry.example:5000/a\t1\t<none>\n<none>\t<none>\t<none>\n"
)
#: What Podman 5 writes, shortened.
STORED = [
    {"id": "a" * 64, "digest": DIGEST, "names": ["docker.io/library/alpine:3", f"docker.io/library/alpine@{DIGEST}"]},
    {"id": "b" * 64, "names": None},
    {"id": "b" * 64, "names": 1.5},
    {"id": "b" * 64, "names": "alpine"},
    {"id": "c" * 64},
]
PLACE = "/var/lib/containers/storage/overlay-images/images.json"


def seen(host: Host, *, docker: bool = False, active: bool | None = None, podman: bool = False) -> Any:
    return container_images.observe(host, docker, active, podman, asked=True)


def test_a_docker_that_runs_tells_its_images_in_full(tree: Tree) -> None:
    programs = FakePrograms({"image ls": answer(LISTED)})
    assert seen(Running(str(tree.root), programs), docker=True, active=True)["docker"] == [
        f"docker.io/library/alpine@{DIGEST}",
        "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04",
        f"docker.io/nvidia/cuda@{DIGEST}",
        "localhost/probe:1",
        "registry.example:5000/a:1",
    ]


@pytest.mark.parametrize("active", [False, None])
def test_a_docker_that_does_not_run_is_not_asked(tree: Tree, active: bool | None) -> None:
    programs = FakePrograms()
    host = Running(str(tree.root), programs)
    assert seen(host, docker=True, active=active)["docker"] is None
    assert seen(host)["docker"] == []
    assert (programs.calls, host.unknown_facts) == ([], {})


def test_an_engine_is_looked_at_only_for_who_asks(tree: Tree) -> None:
    tree.program("/usr/bin/dockerd")
    tree.file(
        "/var/lib/dpkg/status",
        "Package: podman\nStatus: install ok installed\nVersion: 5.4.2-1\nArchitecture: amd64\n\n",
    )
    tree.file(PLACE, json.dumps(STORED))
    shown = {"docker.service": {"ActiveState": "active"}}
    for asked in (False, True):
        programs = FakePrograms({"image ls": answer(LISTED)})
        host = Running(str(tree.root), programs)
        images = containers.observe(host, shown, images=asked)["images"]
        assert [bool(images["docker"]), bool(images["podman"])] == [asked, asked]
        assert any("image ls" in " ".join(call) for call in programs.calls) is asked
        told = [host.unknown_facts.get(f"containers.images.{engine}") for engine in ("docker", "podman")]
        assert told == ([None, None] if asked else ["not looked at: nobody asked for it"] * 2)


def test_an_engine_that_is_not_there_has_none_also_where_nobody_asks(tree: Tree) -> None:
    host = tree.host()
    assert container_images.observe(host, False, None, False, asked=False) == {"docker": [], "podman": []}
    assert host.unknown_facts == {}


def test_a_docker_that_does_not_tell_is_not_without_images(tree: Tree) -> None:
    host = Running(str(tree.root), FakePrograms({"image ls": answer(rc=1, err="permission denied\n")}))
    assert seen(host, docker=True, active=True)["docker"] is None
    assert "permission denied" in host.unknown_facts["containers.images.docker"]


def test_more_images_than_anybody_can_mean_are_not_known(tree: Tree) -> None:
    many = "".join(f"a\t{number}\t<none>\n" for number in range(2001))
    host = Running(str(tree.root), FakePrograms({"image ls": answer(many)}))
    assert seen(host, docker=True, active=True)["docker"] is None
    assert "2001 images" in host.unknown_facts["containers.images.docker"]


def test_podmans_images_are_read_and_podman_is_not_called(tree: Tree) -> None:
    tree.file(PLACE, json.dumps(STORED))
    programs = FakePrograms()
    assert seen(Running(str(tree.root), programs), podman=True)["podman"] == [
        "docker.io/library/alpine:3",
        f"docker.io/library/alpine@{DIGEST}",
    ]
    assert programs.calls == []


def test_podmans_images_are_where_its_settings_say(tree: Tree) -> None:
    tree.file("/usr/share/containers/storage.conf", '[storage]\n# graphroot = "/no"\ngraphroot = "/no/more"\n')
    tree.file("/etc/containers/storage.conf", '[storage]\ndriver = "vfs"\n  graphroot = "/data/images/"\n')
    tree.file(PLACE, json.dumps(STORED))
    tree.file("/data/images/vfs-images/images.json", json.dumps([{"names": ["localhost/probe:1"]}]))
    assert seen(tree.host(), podman=True)["podman"] == ["localhost/probe:1"]


def test_a_podman_without_an_image_has_none_and_a_broken_list_is_not_known(tree: Tree) -> None:
    assert seen(tree.host(), podman=True)["podman"] == []
    tree.file(PLACE, "[{")
    host = tree.host()
    assert seen(host, podman=True)["podman"] is None
    assert "no valid JSON" in host.unknown_facts["containers.images.podman"]
