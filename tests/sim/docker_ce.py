"""What the stand-ins of Docker's own packages carry, and of Rocky's Podman: programs that answer as an engine without anything in it, and
units that run.

A file /var/lib/docker/simulated-images is what the engine holds, an id a line, and /var/lib/containerd/simulated-namespaces the namespaces
of containerd. What the programs say and do besides is assumed;
the real engines are those of the distribution, in tests/integration/test_engines.py.
"""

from __future__ import annotations

from . import deb

_DOCKER = """#!/bin/sh
case "$1 $2" in
    "--version "*) echo "Docker version @VERSION@, a stand-in" ;;
    "image ls") cat /var/lib/docker/simulated-images 2>/dev/null ;;
    "system df") printf '%s\\n' "TYPE TOTAL ACTIVE SIZE RECLAIMABLE" "Images 0 0 0B 0B" "Build Cache 0 0 0B 0B" ;;
esac
exit 0
"""
_CTR = """#!/bin/sh
case "$1" in
    namespaces) cat /var/lib/containerd/simulated-namespaces 2>/dev/null ;;
esac
exit 0
"""
_PODMAN = """#!/bin/sh
[ "$1" != --version ] || echo "podman version @VERSION@"
exit 0
"""
_DOCKERD = """#!/bin/sh
[ "$1" != --validate ] || exec python3 -m json.tool "${2#--config-file=}" /dev/null
mkdir -p /var/lib/docker
exec sleep infinity
"""
_CONTAINERD = """#!/bin/sh
case "$1" in
    --version) echo "containerd containerd.io v@VERSION@ simulated" ;;
    config) cat /etc/containerd/config.toml ;;
    *) mkdir -p /var/lib/containerd; exec sleep infinity ;;
esac
"""
_UNIT = """[Unit]
Description=@NAME@, a stand-in
@MORE@
[Service]
ExecStart=/usr/bin/@PROGRAM@

[Install]
WantedBy=multi-user.target
"""
#: docker/containerd-packaging, common/containerd.toml: what Docker does not use of containerd is switched off.
_CONFIG = 'disabled_plugins = ["cri"]\n'
#: docker/docker-ce-packaging, deb/common/docker-ce.postinst and rpm/SPECS/docker-ce.spec.
GROUP = "getent group docker >/dev/null || groupadd --system docker"


def _program(package: deb.Package, name: str, text: str, words: dict[str, str]) -> None:
    package.files[f"/usr/bin/{name}"] = text.replace("@VERSION@", words["build"]).encode()
    package.executables.add(f"/usr/bin/{name}")


def unit(program: str, title: str, more: str = "") -> str:
    """A unit that runs a program."""
    return _UNIT.replace("@PROGRAM@", program).replace("@NAME@", title).replace("@MORE@", more)


# As moby's own unit: it brings containerd up.
DOCKER_UNIT = unit("dockerd", "Docker", "After=containerd.service\nWants=containerd.service\n")
CONTAINERD_UNIT = unit("containerd", "containerd")


def engine(package: deb.Package, words: dict[str, str]) -> None:
    """docker-ce, without its unit."""
    _program(package, "dockerd", _DOCKERD, words)


def command(package: deb.Package, words: dict[str, str]) -> None:
    """docker-ce-cli."""
    _program(package, "docker", _DOCKER, words)


def containerd(package: deb.Package, words: dict[str, str]) -> None:
    """containerd.io, without its unit."""
    _program(package, "containerd", _CONTAINERD, words)
    _program(package, "ctr", _CTR, words)
    package.files["/etc/containerd/config.toml"] = _CONFIG.encode()
    package.configuration.append("/etc/containerd/config.toml")


def podman(package: deb.Package, words: dict[str, str]) -> None:
    """Podman, which has no service."""
    _program(package, "podman", _PODMAN, words)
