"""The shared image of a simulated node: Debian with systemd, ssh and Python, cached by the digest of its recipe.

The base is made by debootstrap from the mirror that this machine itself uses; on a machine that is no Debian the registry
that Docker is set up for is asked. Nothing here names a server.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from . import settings
from .engine import docker, docker_text
from .shell import SimulationError, run, say

# A node as an administrator would find it after a plain installation: nothing of NVIDIA, no container engine.
PACKAGES = (
    "systemd", "systemd-sysv", "libpam-systemd", "dbus", "openssh-server", "sudo", "kmod", "iproute2", "procps", "pciutils",
    "initramfs-tools", "zstd", "gzip", "cpio", "ca-certificates", "gpg", "gpgv", "python3", "python3-apt", "python3-venv",
    "iptables", "fio", "util-linux", "less",
)  # fmt: skip
# Fetched but not installed, for the node's partial mirror: what roles and tests install for real.
FETCHED = (
    "docker.io", "docker-cli", "podman", "uidmap", "passt", "gcc", "libc6-dev", "make", "infiniband-diags", "unattended-upgrades",
    "grub-common", "build-essential", "prometheus", "prometheus-alertmanager", "prometheus-node-exporter",
    "ufw", "firewalld",
)  # fmt: skip

_KEYRINGS = ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp")


def ensure() -> str:
    """The image's full name; it is built first where it is not there."""
    name = f"{settings.IMAGE}:{recipe_digest()}"
    with settings.locked("image"):
        return _ensure(name)


def _ensure(name: str) -> str:
    if docker("image", "inspect", name, check=False).returncode == 0:
        return name
    say(f"building the node image {name} (once; about a minute)")
    base = _base()
    say(f"installing {len(PACKAGES)} packages into it")
    _provision(base, name)
    say(f"the node image is {docker_text('image', 'inspect', '--format', '{{.Size}}', name)} bytes")
    return name


def recipe_digest() -> str:
    """Twelve hex digits over everything that decides what the image holds."""
    parts = (settings.recipe(Path(__file__)), settings.NODE_USER, *(str(path) for path in _host_apt_settings()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


# --------------------------------------------------------------------------------------------------------------------
# The base
# --------------------------------------------------------------------------------------------------------------------


def _base() -> str:
    """An image with no more than Debian's minimal system."""
    name = f"{settings.IMAGE}-base:{settings.DEBIAN_RELEASE}"
    if docker("image", "inspect", name, check=False).returncode == 0:
        return name
    mirror = debian_mirror()
    if mirror is None:
        pulled = f"debian:{settings.DEBIAN_RELEASE}-slim"
        say(f"this machine has no Debian mirror in its apt sources: pulling {pulled}")
        if docker("pull", pulled, check=False).returncode != 0:
            raise SimulationError(
                "no base for the node image: this machine's apt sources name no Debian mirror, and no registry answers "
                f"for {pulled}. Set GPUWRIGHT_SIM_MIRROR to the address of a Debian mirror"
            )
        return pulled
    _debootstrap(mirror, name)
    return name


def debian_mirror() -> str | None:
    """The Debian mirror that this machine's own apt sources name."""
    given = os.environ.get("GPUWRIGHT_SIM_MIRROR")
    if given:
        return given
    if "ID=debian" not in Path("/etc/os-release").read_text().split():
        return None
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        if path.is_file():
            found = mirror_of_sources(path.read_text(errors="replace"))
            if found is not None:
                return found
    return None


def mirror_of_sources(text: str) -> str | None:
    """The address of the first source, of either format, that serves a whole Debian release (component main, no suite of updates)."""
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.lstrip().startswith("#")]
        fields = dict(line.split(":", 1) for line in lines if re.match(r"^[A-Za-z-]+:", line))
        if _serves_a_release(fields) and "Signed-By" in fields:
            return fields["URIs"].split()[0] if "debian-archive" in fields["Signed-By"] else None
        for line in lines:
            match = re.match(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", line)
            if match and "main" in match[3].split() and re.fullmatch(r"[a-z]+", match[2]):
                address = match[1].rstrip("/")
                if address.endswith("/debian"):
                    return address
    return None


def _serves_a_release(fields: dict[str, str]) -> bool:
    """Whether a deb822 stanza names binary packages of the component main, and not the updates for security alone."""
    of_main = "deb" in fields.get("Types", "").split() and "main" in fields.get("Components", "").split()
    return of_main and not any("security" in suite for suite in fields.get("Suites", "").split())


def _debootstrap(mirror: str, name: str) -> None:
    program = shutil.which("debootstrap", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise SimulationError("debootstrap is not installed: `apt-get install debootstrap`")
    say(f"debootstrap of Debian {settings.DEBIAN_RELEASE} (about half a minute)")
    root = Path(tempfile.mkdtemp(prefix="gpuwright-sim-root-"))
    try:
        keyring = [f"--keyring={path}" for ring in _KEYRINGS if (path := Path("/usr/share/keyrings") / ring).exists()][
            :1
        ]
        command = [program, "--variant=minbase", *keyring, settings.DEBIAN_RELEASE, str(root), mirror]
        run(command if os.geteuid() == 0 else ["sudo", *command])
        archive = root.with_suffix(".tar")
        packing = ["tar", "-C", str(root), "-cf", str(archive), "."]
        run(packing if os.geteuid() == 0 else ["sudo", *packing])
        docker("import", archive, name)
        run(["rm", "-f", archive] if os.geteuid() == 0 else ["sudo", "rm", "-f", archive])
    finally:
        run(["rm", "-rf", root] if os.geteuid() == 0 else ["sudo", "rm", "-rf", root], check=False)


# --------------------------------------------------------------------------------------------------------------------
# What goes on top
# --------------------------------------------------------------------------------------------------------------------

_PROVISION = """
set -eu
export DEBIAN_FRONTEND=noninteractive
{files}
{sources}
# What is fetched stays, and apt's lists stay readable: an image from a registry has apt throw away the one and pack the other.
rm -f /etc/apt/apt.conf.d/docker-clean /etc/apt/apt.conf.d/docker-gzip-indexes
# Descriptions that nobody reads double apt's cache, which it makes anew at each change of its lists.
echo 'Acquire::Languages "none";' > /etc/apt/apt.conf.d/99gpuwright-sim
# A container's disk does not lose what its kernel has: no file needs to be waited for.
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/gpuwright-sim
apt-get update -q
apt-get install -qy --no-install-recommends {packages}
apt-get install -qy --download-only --no-install-recommends {fetched}
echo COMPRESSLEVEL=1 > /etc/initramfs-tools/conf.d/gpuwright-sim
useradd --create-home --shell /bin/bash {user}
echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{user}
chmod 0440 /etc/sudoers.d/{user}
install -d -m 0700 -o {user} -g {user} /home/{user}/.ssh
update-ca-certificates >/dev/null 2>&1 || true
# A container has no hardware clock, no consoles and no swap; units for them only wait or fail.
systemctl mask getty.target console-getty.service systemd-logind-varlink.socket apt-daily.timer apt-daily-upgrade.timer \\
  systemd-firstboot.service systemd-udevd.service systemd-networkd-wait-online.service
systemctl enable ssh.service
rm -f /etc/machine-id /var/lib/dbus/machine-id
: > /etc/machine-id
"""


def _provision(base: str, name: str) -> None:
    container = f"{settings.CONTAINER_PREFIX}image-build"
    docker("rm", "-f", container, check=False)
    sources = ""
    mirror = debian_mirror()
    if mirror is not None:
        sources = f"cat > /etc/apt/sources.list.d/debian.sources <<'END'\n{node_sources(mirror)}END\nrm -f /etc/apt/sources.list\n"
    script = _PROVISION.format(
        files=_files(), sources=sources, packages=" ".join(PACKAGES), fetched=" ".join(FETCHED), user=settings.NODE_USER
    )
    docker("create", "--name", container, "--label", settings.INSTANCE_LABEL, base, "sh", "-c", script)
    try:
        done = docker("start", "--attach", container, check=False)
        if done.returncode != 0:
            raise SimulationError(f"the node image could not be provisioned:\n{(done.stderr + done.stdout)[-2000:]}")
        docker("commit", "--change", "ENV container=docker", "--change", 'CMD ["/sbin/init"]',
               "--change", f"LABEL {settings.LABEL}=image", container, name)  # fmt: skip
    finally:
        docker("rm", "-f", container, check=False)


def node_sources(mirror: str) -> str:
    """The node's own apt sources: the host's mirror, Debian's release with its updates."""
    suites = f"{settings.DEBIAN_RELEASE} {settings.DEBIAN_RELEASE}-updates"
    return (
        f"Types: deb\nURIs: {mirror}\nSuites: {suites}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )


def _files() -> str:
    """Shell lines that write this machine's apt settings into the container."""
    lines = []
    for source, target in _host_apt_settings().items():
        content = base64.b64encode(source.read_bytes()).decode()
        lines.append(f"mkdir -p {Path(target).parent}; echo {content} | base64 -d > {target}")
    return "\n".join(lines)


def _host_apt_settings() -> dict[Path, str]:
    """Files of this machine without which a container may not reach the mirror: proxies of apt, own certificates."""
    found: dict[Path, str] = {}
    for path in sorted(Path("/etc/apt/apt.conf.d").glob("*")) if Path("/etc/apt/apt.conf.d").is_dir() else []:
        if path.is_file() and re.search(r"Acquire::https?::Proxy", path.read_text(errors="replace"), re.IGNORECASE):
            found[path] = f"/etc/apt/apt.conf.d/{path.name}"
    own = Path("/usr/local/share/ca-certificates")
    if own.is_dir():
        found.update({path: f"/usr/local/share/ca-certificates/{path.name}" for path in sorted(own.glob("*.crt"))})
    return found
