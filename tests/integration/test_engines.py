"""Real engines of the distribution: a configuration of the host's own is added to, checked, loaded by one restart, and given back.

The node is a container in which containers run: their file systems are copied (vfs, native), since overlay does not lie on overlay, and
the device nodes are real ones without a driver behind them. What hands the cards to a container is NVIDIA's, and a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node
from .engines import IMAGE, PULLED, Engines

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="containers")]

_DAEMON_JSON = "/etc/docker/daemon.json"
#: In a layout that no program writes, with keys that nobody here knows, for its owner's group alone.
_DOCKERS = """{ "log-driver" : "json-file",
  "labels":["rack=7"],
      "runtimes": {"spare": {"path": "/usr/sbin/runc"}},
  "max-concurrent-downloads": 2 }
"""
_CONFIG_TOML = "/etc/containerd/config.toml"
_CONTAINERDS = """# The rack's own words.
version = 2
oom_score = -7   # not the first one to go

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.9"  # a mirror
  enable_cdi = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
_RUNTIMES = "docker info --format '{{json .Runtimes}}'"
_DOCKER = "docker run --rm --network none"
#: Another driver than the one that Podman would take has to be given with its places.
_STORAGE = """[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
"""
_PODMAN = "PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman"
_WISHED = {"container_toolkit_images": [PULLED]}
_CHECKS = ("container.cards", "container.reload")
#: Containers of a check that nobody ended.
_LEFT = "docker ps --all --quiet --filter name=gpuwright-check"


@pytest.fixture(scope="module")
def engines(make_shared_node: Callable[[str, str], Node]) -> Engines:
    """A server with two H100 on which its owner has Docker at work, and containerd below it."""
    engines = Engines(make_shared_node("engines", "two-h100"))
    engines.install("docker.io", "docker-cli")
    engines.write(_DAEMON_JSON, _DOCKERS, mode="0640", owner="root:docker")
    engines.write(_CONFIG_TOML, _CONTAINERDS, mode="0640", owner="root:adm")
    engines.count("containerd.service", "docker.service")
    engines.machine.shell("systemctl restart containerd.service docker.service")
    engines.image()
    engines.machine.shell(f"docker import /root/image.tar {IMAGE}")
    return engines


@pytest.fixture(scope="module")
def bare(engines: Engines) -> dict[str, str]:
    """The configurations as their owner wrote them."""
    return {path: engines.file(path) for path in (_DAEMON_JSON, _CONFIG_TOML)}


def test_docker_gets_the_runtime_beside_what_its_owner_wrote(engines: Engines, bare: dict[str, str]) -> None:
    before = engines.starts("docker.service")
    # The boot that the driver waits for would load the configuration as well.
    waits = engines.run("up", "docker", "--no-reboot")
    assert waits.code == 4, str(waits)
    written = engines.json(f"cat {_DAEMON_JSON}")
    assert written["runtimes"] == {
        "spare": {"path": "/usr/sbin/runc"},
        "nvidia": {"path": "nvidia-container-runtime", "args": []},
    }
    assert (written["labels"], written["max-concurrent-downloads"]) == (["rack=7"], 2)
    assert engines.file(_DAEMON_JSON).split("\n")[0] == "640 root:docker"
    engines.machine.shell(f"dockerd --validate --config-file={_DAEMON_JSON}")
    assert {"spare", "nvidia", "runc"} <= engines.json(_RUNTIMES).keys()
    assert engines.starts("docker.service") == before + 1
    assert engines.file(_CONFIG_TOML) == bare[_CONFIG_TOML]


def test_the_next_run_changes_nothing(engines: Engines) -> None:
    engines.up("docker")
    since = engines.started("docker.service")
    again = engines.up("docker")
    assert (again.host["changes"], again.changed) == ([], 0), str(again)
    full = engines.up("docker", "--full")
    assert (full.changed, engines.started("docker.service")) == (0, since), str(full)


@pytest.mark.parametrize(
    "way", ["--device nvidia.com/gpu=all", "--gpus all", "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all"]
)
def test_a_container_of_docker_sees_the_cards_of_the_host(engines: Engines, way: str) -> None:
    assert engines.inside(f"{_DOCKER} {way} {IMAGE}") == engines.uuids()


def test_one_card_is_given_to_a_container_by_its_uuid(engines: Engines) -> None:
    first, _second = engines.uuids()
    assert engines.inside(f"{_DOCKER} --device nvidia.com/gpu={first} {IMAGE}") == [first]


def test_an_image_is_pulled_ahead_and_a_pull_that_fails_is_made_good_by_the_next_run(engines: Engines) -> None:
    failed = engines.run("up", "docker", **_WISHED)
    assert failed.code != 0, str(failed)
    assert f"Expected docker to pull {PULLED}" in str(failed), str(failed)
    assert "reaches localhost:5000" in str(failed), str(failed)
    engines.registry()
    planned = engines.run("plan", "docker", **_WISHED)
    assert f"the image {PULLED} is not there" in [change["reason"] for change in planned.host["changes"]], str(planned)
    assert engines.machine.shell(f"docker image ls --quiet {PULLED}") == ""
    engines.up("docker", **_WISHED)
    assert engines.machine.shell(f"docker image ls --quiet {PULLED}") != ""
    again = engines.up("docker", **_WISHED)
    assert (again.host["changes"], again.changed) == ([], 0), str(again)
    full = engines.up("docker", "--full", **_WISHED)
    assert full.changed == 0, str(full)
    missing = engines.run("up", "docker", container_toolkit_images=["localhost:5000/probe:2"])
    assert "correct the tag" in str(missing), str(missing)


def test_an_image_that_somebody_took_away_is_pulled_again(engines: Engines) -> None:
    engines.machine.shell(f"docker rmi {PULLED}")
    run = engines.up("docker", **_WISHED)
    assert f"the image {PULLED} is not there" in [change["reason"] for change in run.host["changes"]], str(run)
    assert engines.machine.shell(f"docker image ls --quiet {PULLED}") != ""


def test_containers_see_the_cards_and_keep_them_over_a_reload(engines: Engines) -> None:
    assert engines.proof("docker", **_WISHED) == {check: ["pass", "pass"] for check in _CHECKS}
    assert engines.machine.shell(_LEFT) == ""
    assert engines.proof("docker") == {"container.cards": ["skip"]}


def test_a_way_that_is_broken_fails_and_the_other_one_does_not(engines: Engines) -> None:
    engines.machine.shell("rm /var/run/cdi/nvidia.yaml")
    assert engines.proof("docker", **_WISHED) == {"container.cards": ["pass", "fail"], "container.reload": ["pass"]}
    engines.machine.shell("systemctl restart nvidia-cdi-refresh.service")
    engines.machine.shell("mv /usr/bin/nvidia-container-runtime-hook /root/hook")
    assert engines.proof("docker", **_WISHED) == {"container.cards": ["fail", "pass"], "container.reload": ["pass"]}
    engines.machine.shell("mv /root/hook /usr/bin/nvidia-container-runtime-hook")
    assert engines.machine.shell(_LEFT) == ""


def test_without_links_systemd_is_not_asked_to_read_its_units_again(engines: Engines) -> None:
    engines.machine.shell("find /dev/char -lname '*nvidia*' -delete")
    found = engines.proof("docker", **_WISHED)
    assert found == {"container.cards": ["pass", "pass"], "container.reload": ["incomplete"]}
    engines.up("docker", **_WISHED)
    assert engines.proof("docker", **_WISHED) == {check: ["pass", "pass"] for check in _CHECKS}


def test_no_container_is_ended_without_leave(engines: Engines) -> None:
    engines.machine.shell(f"docker run --detach --name busy --network none {IMAGE} sleep 600")
    since = engines.started("docker.service")
    waits = engines.run("up", "docker", container_toolkit_docker={"default-shm-size": "1g"})
    assert "1g" in engines.machine.shell(f"cat {_DAEMON_JSON}"), str(waits)
    assert engines.started("docker.service") == since
    assert engines.json("docker inspect busy")[0]["State"]["Running"]
    found = engines.checks("docker", container_toolkit_docker={"default-shm-size": "1g"})["container.daemon_json"]
    # As bad as the seal that is broken with it, which it explains.
    assert (found["status"], found["reason"]) == ("fail", "Docker has not read its configuration since it changed")
    engines.machine.shell("docker rm --force busy")

    engines.up("docker", container_toolkit_docker={"default-shm-size": "1g"})
    assert engines.machine.shell(f"{_DOCKER} {IMAGE} df -k /dev/shm").split()[8] == str(1 << 20)


def test_a_setting_that_is_no_longer_wished_goes(engines: Engines) -> None:
    engines.up("docker")
    assert "default-shm-size" not in engines.json(f"cat {_DAEMON_JSON}")


def test_a_file_that_somebody_broke_is_left_as_it_is(engines: Engines) -> None:
    engines.machine.shell(f"cp -p {_DAEMON_JSON} /root/daemon.json; echo '{{\"debug\": true,' > {_DAEMON_JSON}")
    broken = engines.file(_DAEMON_JSON)
    refused = engines.run("up", "docker")
    assert refused.code != 0, str(refused)
    assert "is no valid JSON" in str(refused)
    assert engines.file(_DAEMON_JSON) == broken
    engines.machine.shell(f"cp -p /root/daemon.json {_DAEMON_JSON}")
    engines.up("docker")


def test_docker_is_given_back_where_containerd_takes_its_place(engines: Engines, bare: dict[str, str]) -> None:
    engines.up("docker")
    docker, containerd = engines.starts("docker.service"), engines.starts("containerd.service")
    engines.up("containerd")
    assert engines.file(_DAEMON_JSON) == bare[_DAEMON_JSON]
    assert "nvidia" not in engines.json(_RUNTIMES)
    assert (engines.starts("docker.service"), engines.starts("containerd.service")) == (docker + 1, containerd + 1)


def test_containerd_gets_the_runtime_beside_what_its_owner_wrote(engines: Engines) -> None:
    text = engines.machine.shell(f"cat {_CONFIG_TOML}")
    assert all(line in text for line in _CONTAINERDS.splitlines() if "enable_cdi" not in line), text
    assert engines.file(_CONFIG_TOML).split("\n")[0] == "640 root:adm"
    dump = engines.machine.shell("containerd config dump")
    for words in (
        'BinaryName = "/usr/bin/nvidia-container-runtime"',
        "enable_cdi = true",
        'sandbox_image = "registry.example/pause:3.9"',
        "oom_score = -7",
    ):
        assert words in dump, dump
    assert dump.count("SystemdCgroup = true") == 2
    since = engines.started("containerd.service")
    again = engines.up("containerd", "--full")
    assert (again.changed, engines.started("containerd.service")) == (0, since), str(again)


def test_cut_off_between_containerds_configuration_and_its_restart(engines: Engines) -> None:
    wished = engines.file(_CONFIG_TOML)
    engines.write(_CONFIG_TOML, _CONTAINERDS, mode="0640", owner="root:adm")
    engines.machine.shell("systemctl restart containerd.service")
    since, starts = engines.started("containerd.service"), engines.starts("containerd.service")
    engines.cut_before_the_restart("containerd", "containerd")
    # The configuration is whole, and the engine that runs is the one that ran.
    assert engines.file(_CONFIG_TOML) == wished
    engines.machine.shell("containerd config dump; ctr version")
    assert engines.started("containerd.service") == since
    engines.up("containerd")
    assert engines.starts("containerd.service") == starts + 1
    assert engines.file(_CONFIG_TOML) == wished


def test_a_container_of_containerd_sees_the_cards_of_the_host(engines: Engines) -> None:
    engines.machine.shell(
        f"docker save --output /root/saved.tar {IMAGE}; ctr image import --snapshotter native /root/saved.tar"
    )
    start = (
        "ctr run --rm --snapshotter native --runc-binary /usr/bin/nvidia-container-runtime "
        f"--env NVIDIA_VISIBLE_DEVICES=all --env PATH=/bin:/usr/bin {IMAGE} probe"
    )
    assert engines.inside(start) == engines.uuids()


def test_a_broken_configuration_of_containerd_is_left_as_it_is(engines: Engines) -> None:
    engines.machine.shell(f"cp -p {_CONFIG_TOML} /root/config.toml; echo '[plugins' >> {_CONFIG_TOML}")
    broken = engines.file(_CONFIG_TOML)
    refused = engines.run("up", "containerd")
    assert refused.code != 0, str(refused)
    assert engines.file(_CONFIG_TOML) == broken
    engines.machine.shell(f"cp -p /root/config.toml {_CONFIG_TOML}")
    engines.up("containerd")


def test_podman_sees_the_cards_of_the_host_and_containerd_is_given_back(engines: Engines, bare: dict[str, str]) -> None:
    before = engines.starts("containerd.service")
    engines.write("/etc/containers/storage.conf", _STORAGE, mode="0644", owner="root:root")
    engines.up("podman")
    assert engines.file(_CONFIG_TOML) == bare[_CONFIG_TOML]
    assert engines.starts("containerd.service") == before + 1
    assert "nvidia-container-runtime" not in engines.machine.shell("containerd config dump")
    engines.machine.shell(f"{_PODMAN} import --quiet /root/image.tar {IMAGE}")
    start = f"{_PODMAN} run --rm --network none --env PATH=/bin:/usr/bin"
    assert engines.inside(f"{start} --device nvidia.com/gpu=all {IMAGE}") == engines.uuids()
    again = engines.up("podman", "--full")
    assert again.changed == 0, str(again)


def test_podman_pulls_an_image_ahead_and_its_containers_keep_the_cards_over_a_reload(engines: Engines) -> None:
    engines.write("/etc/containers/storage.conf", _STORAGE, mode="0644", owner="root:root")
    engines.up("podman", **_WISHED)
    assert PULLED in engines.machine.shell(f"{_PODMAN} image ls --format '{{{{.Repository}}}}:{{{{.Tag}}}}'")
    again = engines.up("podman", **_WISHED)
    assert (again.host["changes"], again.changed) == ([], 0), str(again)
    assert engines.proof("podman", **_WISHED) == {check: ["pass"] for check in _CHECKS}


def test_remove_leaves_the_engines_as_their_owner_had_them(engines: Engines, bare: dict[str, str]) -> None:
    for engine in ("containerd", "docker"):
        engines.up(engine)
    before = engines.starts("docker.service")
    run = engines.machine.run("remove", "--yes")
    assert run.code == 0, str(run)
    assert {path: engines.file(path) for path in bare} == bare
    # One restart to read it, and the boot that takes the driver out of the kernel.
    assert engines.starts("docker.service") == before + 2
    assert "nvidia" not in engines.json(_RUNTIMES)
    assert engines.machine.shell(f"{_DOCKER} {IMAGE} ls /bin/sh").strip() == "/bin/sh"
    engines.machine.shell("containerd config dump; systemctl is-active docker.service containerd.service")
