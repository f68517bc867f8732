"""What people have on a machine before gpuwright comes, and what they do while it is at work; and whether all of that is as they left it.

Everything here is somebody else's: nothing of it may be gone or changed in the end, and nothing of gpuwright's may be left untold.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.sim import settings

from .conftest import Node
from .leftovers import leftovers

#: Directories in which our files lie, or may lie: each has a neighbour of somebody else's.
_BESIDE = (
    *(
        "/etc/modprobe.d/users.conf",
        "/etc/modules-load.d/users.conf",
        "/etc/profile.d/users.sh",
        "/etc/dkms/users.conf",
    ),
    *(
        "/etc/default/grub.d/users.cfg",
        "/etc/docker/users.txt",
        "/etc/containerd/users.txt",
        "/etc/gpuwright/users.txt",
    ),
    *("/etc/systemd/system/nvidia-persistenced.service.d/users.conf", "/usr/local/libexec/gpuwright/users.txt"),
    *("/etc/systemd/system/docker.service.d/users.conf", "/opt/gpuwright/users.txt"),
    *("/usr/local/cuda-13.0/users.txt", "/etc/cdi/users.txt", "/usr/local/share/jupyter/kernels/users/kernel.json"),
)
_FILL = r"""
set -eu
put() { mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" > "$1"; }
for path in @BESIDE@; do put "$path" "# of a user"; done
# Volumes and images, without a program that could tell of them.
put /var/lib/containers/storage/volumes/users/_data/weights.bin "of podman"
put /var/lib/containers/storage/overlay-images/images.json "[]"
# A module of the user's own in DKMS, and the key that the firmware knows.
put /usr/src/users-module-1.0/dkms.conf 'PACKAGE_NAME="users-module"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="users_module"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="no"'
put /var/lib/dkms/users-module/1.0/build/users_module.ko "built by its user"
ln -s /usr/src/users-module-1.0 /var/lib/dkms/users-module/1.0/source
put /var/lib/dkms/mok.key "the private key"
put /var/lib/dkms/mok.pub "the enrolled certificate"
chmod 600 /var/lib/dkms/mok.key
python3 -m venv --without-pip /opt/users-venv
put /opt/users-venv/weights.bin "of a training"
put /etc/systemd/system/users.service "[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target"
systemctl daemon-reload
systemctl enable --quiet --now users.service
"""
#: What Kubernetes, or nerdctl, has: a blob of the namespace k8s.io, which Docker's own programs never show.
_KUBERNETES = """
put() { mkdir -p "$(dirname "$1")"; printf '%s\\n' "$2" > "$1"; }
put /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/users.txt "of the namespace k8s.io"
"""
_CONTAINERD = """
ctr namespaces create k8s.io
echo "of the namespace k8s.io" | ctr -n k8s.io content ingest --expected-size 24 users
digest=$(ctr -n k8s.io content ls -q)
ctr -n k8s.io content label "$digest" containerd.io/gc.root=users >/dev/null
"""
#: What packages that stay have made beside their files: their units switched on, the way to headers, and the stand-in of a container.
_OF_STAYING = re.compile(
    r"/etc/systemd/system/[\w-]+[.]target[.]wants/(docker|containerd)[.](service|socket)|/etc/rc\d[.]d/[SK]\d\ddocker"
    r"|/usr/lib/modules/[^/]+/build"
    r"|/usr/lib/gpuwright-sim-container"
)
#: What an engine does with its directory is its own affair; that of its users in it is told apart.
_WORKINGS = ("/var/lib/docker", "/var/lib/containerd")
#: Where the rest of that lies.
_THEIRS = (
    *("/var/lib/containers", "/var/lib/dkms/users-module", "/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"),
    *("/usr/src/users-module-1.0", "/opt/users-venv", "/etc/systemd/system/users.service"),
    *("/lib/modules/6.1.0-users/kernel", "/usr/lib/modules/6.1.0-users/kernel"),
)
#: What records of a system change with each package, and what the simulation writes at each boot.
_RECORDS = ("/var/lib/rpm/", "/var/lib/dnf/history.sqlite", "/var/cache/dnf/", "/etc/gpuwright-sim/")
_NEW = "new"


@dataclass(frozen=True)
class System:
    """How a family of systems makes, installs, holds and lists packages.

    ``sources``: a file in which a source of NVIDIA's and one of the host's stand together. ``docker``: what the wish with containers asks.
    ``volume``: a command that puts data into the engine, which then holds it. ``conflicts``: a package of ours by the wish that has it.
    """

    scenario: str
    package: Callable[[str, str, str], str]
    listed: str
    holds: str
    kernel: str
    sources: tuple[str, str]
    docker: tuple[str, ...]
    volume: tuple[str, str]
    conflicts: Mapping[str, str]


def _deb(name: str, fields: str, paths: str) -> str:
    """A shell command that makes a Debian package with some files, and installs it as its owner does: past apt where that does not work,
    since a transaction was cut off.
    """
    return f"""
set -eu
work=$(mktemp -d)
for path in {paths}; do mkdir -p "$work/p$(dirname "$path")"; echo "of {name}" > "$work/p$path"; done
mkdir -p "$work/p/DEBIAN"
printf 'Package: {name}\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: a user <user@example.org>\\nDescription: of a user\\n{fields}' \\
    > "$work/p/DEBIAN/control"
chmod 755 "$work"
dpkg-deb --root-owner-group --build "$work/p" "$work/{name}.deb" >/dev/null
apt-get -o DPkg::Lock::Timeout=300 install -qy "$work/{name}.deb" >/dev/null 2>&1 || dpkg -i "$work/{name}.deb" >/dev/null
rm -r "$work"
"""


def _rpm(name: str, fields: str, paths: str) -> str:
    """The same for an rpm."""
    return f"""
set -eu
work=$(mktemp -d)
for path in {paths}; do mkdir -p "$work/p$(dirname "$path")"; echo "of {name}" > "$work/p$path"; done
printf 'Name: {name}\\nVersion: 1.0\\nRelease: 1\\nSummary: of a user\\nLicense: none\\nBuildArch: noarch\\n{fields}' > "$work/spec"
printf '%%%%description\\nof a user\\n%%%%install\\ncp -a %s/p/. %%{{buildroot}}\\n%%%%files\\n' "$work" >> "$work/spec"
for path in {paths}; do echo "$path" >> "$work/spec"; done
rpmbuild -bb --quiet --define "_topdir $work/t" --define "_rpmdir $work" "$work/spec" >/dev/null
dnf -qy --nogpgcheck install "$work"/noarch/*.rpm >/dev/null 2>&1 || rpm -i "$work"/noarch/*.rpm
rm -rf "$work"
"""


#: NVIDIA's repository as somebody else wrote it, in one file with another source.
_NVIDIA_FOR_APT = f"deb [trusted=yes] {settings.REPOSITORY_URL}/compute/cuda/repos/debian13/x86_64/ /"
_NVIDIA_FOR_DNF = (
    f"[users-cuda]\\nname=of NVIDIA\\nbaseurl={settings.REPOSITORY_URL}/compute/cuda/repos/rhel9/x86_64\\ngpgcheck=0"
)
APT = System(
    "two-h100",
    _deb,
    "dpkg-query -W -f '${binary:Package} ${Version} ${db:Status-Abbrev}\\n'",
    "echo company-vpn hold | dpkg --set-selections",  # past apt, which does not work where a source stands twice
    "linux-image-6.1.0-users",
    (
        "/etc/apt/sources.list.d/users.list",
        "deb [trusted=yes] file:/usr/share/gpuwright-sim/mirror trixie main\\n" + _NVIDIA_FOR_APT,
    ),
    ("container-toolkit", "container-engine=docker"),
    (
        "docker volume create users >/dev/null && echo data > /var/lib/docker/volumes/users/_data/x",
        "/var/lib/docker/volumes/users",
    ),
    {"cuda": "cuda-nvcc-13-0", "containers": "nvidia-container-toolkit-base"},
)
DNF = System(
    "rocky",
    _rpm,
    "rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n'",
    "true",
    "kernel-users",
    (
        "/etc/yum.repos.d/users.repo",
        f"[users]\\nname=of a user\\nbaseurl={settings.ARCHIVE_URL}/rocky-9/\\ngpgcheck=0\\n" + _NVIDIA_FOR_DNF,
    ),
    ("container-toolkit", "container-engine=docker", "container-engine-source=docker"),
    ("echo 4f66ad9a > /var/lib/docker/simulated-images", "/var/lib/docker/simulated-images"),
    {"cuda": "cuda-nvcc-13-0", "containers": "nvidia-container-toolkit-base"},
)


@dataclass
class Strangers:
    """A node on which others are at home, and what is theirs."""

    machine: Node
    system: System
    roots: list[str] = field(default_factory=list)
    theirs: dict[str, str] = field(default_factory=dict)
    bare: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)

    # --- what they do ---------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Make the node one on which people are at home."""
        self.machine.shell(_FILL.replace("@BESIDE@", shlex.join(_BESIDE)))
        path, text = self.system.sources
        self.machine.shell(f"printf '{text}\\n' > {path}")
        self._is_theirs(*_BESIDE, *_THEIRS)
        self.install("company-tools")
        self.machine.shell(
            self.system.package(
                self.system.kernel, "", "/boot/vmlinuz-6.1.0-users /lib/modules/6.1.0-users/kernel/users.ko"
            )
        )

    def install(self, name: str, fields: str = "") -> None:
        """Install a package of somebody's own, as a second terminal does."""
        self.machine.shell(self.system.package(name, fields, f"/opt/{name}/program /etc/{name}.conf"))
        self._is_theirs(f"/opt/{name}", f"/etc/{name}.conf")
        self._has(name)

    def conflict(self, wish: str) -> None:
        """Install and hold a package that cannot be there together with one that a wish brings."""
        self.install("company-vpn", f"Conflicts: {self.system.conflicts[wish]}\\n")
        self.machine.shell(self.system.holds)
        self._has("company-vpn")

    def kubernetes(self) -> None:
        """Have containerd, and in it a namespace that is not Docker's."""
        if self.system is APT:
            self.machine.shell("apt-get install -qy --no-install-recommends containerd >/dev/null")
            self.machine.shell(_CONTAINERD)
            self._is_theirs("/var/lib/containerd/io.containerd.content.v1.content/blobs")
        else:
            self.machine.shell(_KUBERNETES)
            self._is_theirs("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1")

    def docker(self) -> None:
        """Have Docker of the distribution, with a volume in it, and stopped; there is none for dnf."""
        if self.system is APT:
            self.machine.shell("apt-get install -qy --no-install-recommends docker.io docker-cli >/dev/null")
            self.volume()

    def volume(self) -> None:
        """Put data into the engine that is there, and stop it."""
        command, path = self.system.volume
        stop = "for unit in docker.socket docker.service; do systemctl stop $unit 2>/dev/null || true; done"
        self.machine.shell(f"systemctl start docker.service && {command} && {stop}")
        self._is_theirs(path)

    def note(self, name: str) -> None:
        """Write a file where ours are."""
        path = f"/opt/gpuwright/{name}"
        self.machine.shell(f"mkdir -p /opt/gpuwright && echo 'of a user' > {path}")
        self._is_theirs(path)

    def edit(self) -> None:
        """Change the package sources, as their owner does who moves to another mirror."""
        path, text = self.system.sources
        self.machine.shell(f"printf '# moved\\n{text}\\n' > {path}")
        self._is_theirs(path)

    def remember(self) -> None:
        """What is there now is theirs."""
        self.bare, self.packages, self.units = self.machine.tree(), self._packages(), self._units()

    def _has(self, name: str) -> None:
        """A package is theirs, with its version and its hold."""
        others = {each for each in self.packages if not each.startswith(f"{name} ")}
        self.packages = others | {each for each in self._packages() if each.startswith(f"{name} ")}

    def _is_theirs(self, *roots: str) -> None:
        self.roots += roots
        if self.bare:
            self.theirs |= {path: row for path, row in self.machine.tree().items() if _below(path, roots)}

    # --- whether it is as they left it ----------------------------------------------------------------------------------

    def lost(self, *, ended: bool) -> list[str]:
        """What of theirs is gone or changed. Of their package source the plan says what becomes of it until gpuwright `ended`."""
        roots = (
            [*self.roots, self.system.sources[0]]
            if ended
            else [root for root in self.roots if root != self.system.sources[0]]
        )
        theirs = {path: row for path, row in self._expected().items() if _below(path, roots)}
        found = leftovers(theirs, self.machine.tree())
        lost = [f"{path} ({what})" for path, what in found.items() if what != _NEW]
        lost += [f"the package {each}" for each in sorted(self.packages - self._packages())]
        units = {each for each in self.units if ended or each.startswith("users.")}
        return lost + [f"the unit {each}" for each in sorted(units - self._units())]

    def left(self, told: str) -> list[str]:
        """What is not as it was before, and of which a run's words do not say that it stays. With packages that stay their accounts do."""
        packages = {each.partition(" ")[0].partition(":")[0] for each in self._packages() - self.packages}
        stays = {name for name in packages if name in told}
        files = self._files(stays)
        found = leftovers(self._expected(), self.machine.tree())
        paths = [path for path, what in found.items() if what == _NEW or not stays]
        paths = [path for path in paths if path not in files and path not in told]
        paths = [path for path in paths if not (stays and _OF_STAYING.fullmatch(path))]
        units = self._units() - self.units if not stays else set()
        return [
            *(f"{path} ({found[path]})" for path in paths if not path.startswith((*_WORKINGS, *_RECORDS))),
            *sorted(packages - stays),
            *sorted(units),
        ]

    def _expected(self) -> dict[str, str]:
        return {**self.bare, **self.theirs}

    def _packages(self) -> set[str]:
        return set(self.machine.shell(self.system.listed).splitlines())

    def _units(self) -> set[str]:
        """Unit files with their states: enabled, disabled, static."""
        lines = self.machine.shell("systemctl list-unit-files --no-legend --no-pager").splitlines()
        return {" ".join(line.split()[:2]) for line in lines}

    def _files(self, packages: Iterable[str]) -> set[str]:
        """Files of packages."""
        if not packages:
            return set()
        command = "dpkg -L" if self.system is APT else "rpm -ql"
        return set(self.machine.shell(f"{command} {' '.join(packages)}", check=False).split())


def _below(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
