"""A life of Docker from its own repository, with apt and with dnf: planned, installed, right again, gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="rocky")]

_WISH = ("--want", "driver", "--want", "container-toolkit", "--want", "container-engine-source=docker")
_PACKAGES = {
    "docker-ce": "29.1.3",
    "docker-ce-cli": "29.1.3",
    "containerd.io": "2.2.1",
    "docker-buildx-plugin": "0.30.1",
    "docker-compose-plugin": "5.0.0",
}
#: A driver of somebody else's that no index has any more, as the record of the node remembers it.
_REMEMBER = """
import json
path = "/var/lib/gpuwright/history.json"
record = json.load(open(path))
record["original"] = {"version": "570.1", "modules": "open", "source": "distro", "packages": {"nvidia-driver-570": "570.1-1"},
    "holds": [], "stack": {}, "arch": None, "kernel": None, "proven": True, "time": "2026-11-01T10:00:00+00:00"}
json.dump(record, open(path, "w"))
"""


@dataclass(frozen=True)
class System:
    """A node, its package source for Docker, and how its packages are asked for."""

    node: Node
    source: str
    query: str

    def there(self) -> set[str]:
        """Which of Docker's packages are installed."""
        return set(self.node.shell(self.query, check=False).split()) & set(_PACKAGES)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (
                "two-h100",
                "/etc/apt/sources.list.d/gpuwright-docker.sources",
                "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' | sed -n 's/ installed$//p'",
            ),
            id="apt",
        ),
        pytest.param(("rocky", "/etc/yum.repos.d/gpuwright-docker.repo", "rpm -qa --qf '%{NAME}\\n'"), id="dnf"),
    ],
)
def system(request: pytest.FixtureRequest, make_shared_node: Callable[[str, str], Node]) -> System:
    scenario, source, query = request.param
    return System(make_shared_node(f"docker-{scenario}", scenario), source, query)


def test_the_plan_has_the_versions_of_dockers_index_and_changes_nothing(system: System) -> None:
    run = system.node.plan(*_WISH)
    assert run.code == 0, str(run)
    planned = {row["name"]: row["version"] for change in run.host["changes"] for row in change["packages"]}
    for name, version in _PACKAGES.items():
        assert version in planned[name]
    assert system.there() == set()


def test_docker_comes_from_its_own_repository_and_a_second_run_changes_nothing(system: System) -> None:
    run = system.node.up(*_WISH)
    assert run.code == 0, str(run)
    assert system.there() == set(_PACKAGES)
    assert "docker/linux" in system.node.shell(f"cat {system.source}")
    system.node.shell("systemctl is-active docker.service containerd.service; systemctl is-enabled docker.service")
    assert "nvidia-container-runtime" in system.node.shell("cat /etc/docker/daemon.json")
    again = system.node.up(*_WISH, "--full")
    assert (again.code, again.changed) == (0, 0), str(again)
    unasked = system.node.up("--want", "driver", "--want", "container-toolkit", "--full")
    assert unasked.code == 0, str(unasked)
    assert system.there() == set(_PACKAGES)


def test_remove_takes_it_away_with_its_source_and_what_it_made(system: System) -> None:
    run = system.node.run("remove", "--yes")
    assert run.code == 0, str(run)
    assert system.there() == set()
    left = system.node.shell(
        f"ls -d {system.source} /etc/docker/daemon.json /var/lib/docker /var/lib/containerd; getent group docker",
        check=False,
    )
    assert left == ""


def test_a_docker_that_is_stopped_stays_with_all_that_it_holds(system: System) -> None:
    run = system.node.up(*_WISH)
    assert run.code == 0, str(run)
    system.node.shell(
        "echo 4f66ad9a > /var/lib/docker/simulated-images; echo k8s.io > /var/lib/containerd/simulated-namespaces;"
        " systemctl stop docker.socket docker.service 2>/dev/null || systemctl stop docker.service"
    )
    system.node.shell(f"python3 -c '{_REMEMBER}'")
    told = [row["text"] for row in system.node.run("remove").host["warnings"]]
    assert {"driver", "Docker", "containerd"} <= {text.partition(" ")[0] for text in told}, told
    assert "driver 570.1, which somebody else had installed, cannot come back" in told[0]
    gone = system.node.run("remove", "--yes")
    assert (gone.code, gone.host["verdict"]) == (0, "pass"), str(gone)
    assert system.there() == set(_PACKAGES)
    kept = "cat /var/lib/docker/simulated-images /var/lib/containerd/simulated-namespaces"
    assert system.node.shell(kept).split() == ["4f66ad9a", "k8s.io"]
    assert system.node.shell(
        "find /etc/apt/sources.list.d /etc/yum.repos.d -name 'gpuwright-*' -not -name 'gpuwright-sim-*' 2>/dev/null; true"
    ).split() == [system.source]
    again = system.node.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
