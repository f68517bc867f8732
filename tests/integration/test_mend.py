"""What somebody broke by hand is named by the next plan, mended by the next `up`, and nothing else is touched."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from .conftest import Proven

pytestmark = pytest.mark.sim

_NOUVEAU = "/etc/modprobe.d/gpuwright-nouveau.conf"
_SOURCE = "/etc/apt/sources.list.d/gpuwright-nvidia-container-toolkit.sources"
_WITHOUT_RUNTIME = (
    "import json; path = '/etc/docker/daemon.json'; config = json.load(open(path)); del config['runtimes'];"
    " config['log-level'] = 'warn'; json.dump(config, open(path, 'w'))"
)
_OLDER = "580.126.20-1"


@dataclass(frozen=True)
class Damage:
    """A thing broken by hand.

    ``command`` breaks it; ``component`` has it in its charge; ``reason`` is what the plan must say; ``mended`` is a shell
    command that succeeds once it is right.
    """

    command: str
    component: str
    reason: str
    mended: str


DAMAGES = {
    "an edited file": Damage(
        f"echo 'options nouveau modeset=1' >> {_NOUVEAU}",
        "nouveau_blacklist",
        f"{_NOUVEAU} changed",
        f"! grep modeset=1 {_NOUVEAU} && grep 'blacklist nouveau' {_NOUVEAU}",
    ),
    "a removed package source": Damage(
        f"rm {_SOURCE}",
        "container_toolkit",
        "the package source nvidia-container-toolkit is not configured",
        f"grep libnvidia-container {_SOURCE}",
    ),
    "an edited configuration": Damage(
        f'python3 -c "{_WITHOUT_RUNTIME}"',
        "container_toolkit",
        "Docker has no runtime 'nvidia' in /etc/docker/daemon.json",
        "docker info --format '{{json .Runtimes}}' | grep nvidia-container-runtime && grep warn /etc/docker/daemon.json",
    ),
    "a downgraded driver package": Damage(
        f"cd /tmp && apt-get -q download nvidia-driver-cuda={_OLDER} && dpkg -i --force-depends --force-downgrade nvidia-driver-cuda_*.deb"
        " && rm nvidia-driver-cuda_*.deb",
        "nvidia_driver",
        f"package nvidia-driver-cuda is {_OLDER} instead of 580.178.04-1",
        "dpkg-query -W -f '${Status} ${Version}' nvidia-driver-cuda | grep 'ok installed 580.178.04-1' && apt-get check",
    ),
    "a removed toolkit": Damage(
        "apt-get -qy remove cuda-toolkit-13-0",
        "cuda",
        "the toolkit's packages are missing: cuda-toolkit-13-0",
        "dpkg-query -W -f '${Status}' cuda-toolkit-13-0 | grep 'ok installed'",
    ),
    "a stopped service": Damage(
        "systemctl disable --now docker.service docker.socket",
        "container_toolkit",
        "Docker is inactive",
        "systemctl is-active docker.service && systemctl is-enabled docker.service",
    ),
    "an environment without a package": Damage(
        "/opt/gpuwright/pytorch/bin/python -m pip uninstall -qy torchaudio",
        "frameworks",
        "/opt/gpuwright/pytorch lacks torchaudio==",
        "/opt/gpuwright/pytorch/bin/python -m pip show torchaudio",
    ),
    "an environment without its files": Damage(
        "rm -rf /opt/gpuwright/pytorch/lib/python3*/site-packages/torch",
        "frameworks",
        "/opt/gpuwright/pytorch is damaged: torch is gone",
        "cd / && /opt/gpuwright/pytorch/bin/python -c 'import torch; torch.__version__'",
    ),
    "an environment that users cannot enter": Damage(
        "chmod 0700 /opt/gpuwright/pytorch",
        "frameworks",
        "/opt/gpuwright/pytorch is damaged: /opt/gpuwright/pytorch is closed to other users",
        "cd / && runuser -u nobody -- /opt/gpuwright/pytorch/bin/python -c 'import torch; torch.__version__'",
    ),
}


#: What is mended in the soak: of a file, of containers and of environments `make test` has one damage each, of packages
#: test_lock.py one that was moved, and test_roles_alone.py a toolkit that was removed.
_IN_SOAK = {
    "a downgraded driver package",
    "a removed toolkit",
    "an edited configuration",
    "a stopped service",
    "an environment without its files",
    "an environment that users cannot enter",
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=name, marks=[pytest.mark.soak(part="environments")] if name in _IN_SOAK else [])
        for name, damage in DAMAGES.items()
    ],
)
def test_what_is_broken_by_hand_is_named_and_mended_alone(proven: Proven, damage: Damage) -> None:
    machine = proven.take()
    machine.shell(damage.command)

    planned = machine.plan()
    assert planned.code == 0, str(planned)
    changes = planned.host["changes"]
    assert {change["component"] for change in changes} == {damage.component, "validate"}
    assert any(change["reason"].startswith(damage.reason) for change in changes), changes
    assert planned.host["reboot"] is False

    mended = machine.up()
    assert mended.code == 0, str(mended)
    assert mended.components == {damage.component}
    assert "validate" in mended.roles
    machine.shell(damage.mended)

    proven.put_back(machine)


# Holds the lock that apt-get takes, SECONDS long.
_HOLD = (
    "systemd-run --quiet --unit gpuwright-test-holder python3 -c"
    ' \'import fcntl, pathlib, time; lock = open("/var/lib/dpkg/lock-frontend", "w"); fcntl.lockf(lock, fcntl.LOCK_EX);'
    ' pathlib.Path("/run/gpuwright-test-held").touch(); time.sleep({seconds})\''
    " && until test -e /run/gpuwright-test-held; do sleep 0.1; done; rm /run/gpuwright-test-held"
)


@pytest.mark.soak(part="modules")
def test_only_a_plan_with_packages_waits_for_the_package_manager(proven: Proven) -> None:
    machine = proven.take()
    machine.shell(f"echo 'options nouveau modeset=1' >> {_NOUVEAU} && {_HOLD.format(seconds=600)}")
    without = machine.up("-e", "preflight_package_manager_wait=20", "-e", "preflight_package_manager_poll=2")
    assert (without.code, without.components) == (0, {"nouveau_blacklist"}), str(without)
    assert "waiting until" not in without.stderr, str(without)
    machine.shell("systemctl stop gpuwright-test-holder")

    machine.shell(DAMAGES["a removed toolkit"].command + " && " + _HOLD.format(seconds=40))
    waited = machine.up("-e", "preflight_package_manager_wait=120", "-e", "preflight_package_manager_poll=2")
    assert (waited.code, waited.components) == (0, {"cuda"}), str(waited)
    assert re.search(r"\[it-\S+\] waiting until python3 \(pid \d+\) ends", waited.stderr), str(waited)

    machine.shell(DAMAGES["a removed toolkit"].command + " && " + _HOLD.format(seconds=600))
    refused = machine.up("-e", "preflight_package_manager_wait=4", "-e", "preflight_package_manager_poll=2")
    assert refused.code == 3, str(refused)
    assert "Found, after 4 seconds: python3 (pid " in refused.host["failure"]["message"], str(refused)
    machine.shell("systemctl stop gpuwright-test-holder")
    assert machine.up().code == 0


def test_a_source_of_somebody_else_that_does_not_answer_stops_nobody(proven: Proven) -> None:
    machine = proven.take()
    foreign = "/etc/apt/sources.list.d/foreign.list"
    # A port that nobody listens at.
    machine.shell(f"echo 'deb http://127.0.0.1:9/foreign trixie main' > {foreign}; rm {_SOURCE}")
    machine.shell(DAMAGES["a removed toolkit"].command)
    mended = machine.up()
    assert (mended.code, mended.components) == (0, {"container_toolkit", "cuda"}), str(mended)
    (told,) = [row["text"] for row in mended.host["warnings"] if row["rule"] == "foreign-source"]
    assert "http://127.0.0.1:9/foreign" in told
    machine.shell(f"grep foreign {foreign} && rm {foreign}")
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_an_environment_that_a_proof_could_not_import_from_is_built_anew(proven: Proven) -> None:
    machine = proven.take()
    # All that was installed is there; what came besides is in the way of it.
    machine.shell(
        "cd /opt/gpuwright/pytorch/lib/python3*/site-packages/torch && mkdir _build && touch _build/__init__.py"
    )
    judged = machine.run("validate")
    assert judged.code == 1, str(judged)
    failed = [check["id"] for check in judged.host["checks"] if check["status"] == "fail"]
    assert "framework.import" in failed, failed

    mended = machine.up()
    assert (mended.code, mended.components) == (0, {"frameworks"}), str(mended)
    machine.shell("cd / && /opt/gpuwright/pytorch/bin/python -c 'import torch; torch.__version__'")
    proven.put_back(machine)


@pytest.mark.soak(part="environments")
def test_a_file_deep_in_an_environment_is_seen_by_validate(proven: Proven) -> None:
    machine = proven.take()
    machine.shell("cd /opt/gpuwright/pytorch/lib/python3*/site-packages/torch && echo >> _build.py")
    assert machine.up().components == set()
    judged = machine.run("validate")
    assert judged.code == 1, str(judged)
    assert [check["reason"] for check in judged.host["checks"] if check["id"] == "framework.files"] == [
        "/opt/gpuwright/pytorch is damaged: torch/_build.py has 89 bytes instead of 88"
    ]
    # It measured; what `up` would do is no change of this run.
    assert [change["component"] for change in judged.host["changes"]] == ["validate"], str(judged)
    mended = machine.up()
    assert (mended.code, mended.components) == (0, {"frameworks"}), str(mended)
    proven.put_back(machine)
