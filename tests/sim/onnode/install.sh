#!/bin/sh
# Run once in the container that becomes a prepared node: stand-ins, boot unit, the distribution's simulated part, kernels.
# Arguments: <os> <host of the vendors' packages> <address of the distribution's simulated part, or nothing> <kernel packages ...>
set -eu
os=$1
packages=$2
distribution=$3
shift 3
library=/usr/lib/gpuwright-sim
export DEBIAN_FRONTEND=noninteractive

# One launcher a stand-in. No site packages and no `-m`: the standard library does, and the start is quicker.
launcher() { # <path> <module> [first argument ...]
    target=$1
    module=$2
    shift 2
    cat >"$target" <<END
#!/bin/sh
exec /usr/bin/python3 -I -S -c '
import sys
sys.path.insert(0, "$library")
from gpuwright_sim.$module import main
raise SystemExit(main(sys.argv[1:]))' $* "\$@"
END
    chmod 0755 "$target"
}

# A program of the distribution makes room for a stand-in that passes on what it does not simulate.
divert() { # <path>
    dpkg-divert --quiet --local --rename --divert "$1.real" --add "$1"
}

mkdir -p $library/bin /etc/gpuwright-sim /etc/gpuwright
launcher $library/bin/nvidia-smi smi
launcher $library/bin/nvidia-persistenced persistenced
launcher $library/bin/nv-fabricmanager fabricmanager
launcher $library/bin/dkms dkms
launcher $library/bin/boot boot
launcher /usr/bin/mokutil mok
for program in modprobe rmmod insmod lsmod; do
    divert /usr/sbin/$program
    launcher /usr/sbin/$program modprobe $program
done
rm -f /usr/bin/lsmod && ln -s ../sbin/lsmod /usr/bin/lsmod
divert /usr/bin/dmesg
launcher /usr/bin/dmesg modprobe dmesg
launcher /usr/sbin/update-grub grub

# The kernel's own release comes by a system call that nothing can be mounted over.
divert /usr/bin/uname
cat >/usr/bin/uname <<'END'
#!/bin/sh
real=$(/usr/bin/uname.real -r)
/usr/bin/uname.real "$@" | sed "s/$real/$(cat /proc/sys/kernel/osrelease)/"
END
chmod 0755 /usr/bin/uname

divert /usr/bin/systemd-detect-virt
cat >/usr/bin/systemd-detect-virt <<'END'
#!/bin/sh
# A simulated machine is no container, although it lives in one.
kind=none
grep -q '"machine": "kvm"' /etc/gpuwright-sim/scenario.json 2>/dev/null && kind=kvm
for word in "$@"; do
    case $word in -c | --container) kind=none ;; -q | --quiet) quiet=1 ;; esac
done
[ -n "${quiet:-}" ] || echo $kind
[ $kind != none ]
END
chmod 0755 /usr/bin/systemd-detect-virt

divert /usr/bin/fio
cat >/usr/bin/fio <<'END'
#!/bin/sh
# The real fio, unless the fault fio-fails is injected.
if grep -q fio-fails /etc/gpuwright-sim/faults.json 2>/dev/null && [ "$1" != --version ] && [ "$1" != --enghelp ]; then
    echo "fio: io_u error on file gpuwright.0.0: Input/output error: read offset=0, buflen=4096" >&2
    exit 1
fi
exec /usr/bin/fio.real "$@"
END
chmod 0755 /usr/bin/fio

mkdir -p /etc/kernel/postinst.d /etc/kernel/postrm.d
printf '#!/bin/sh\nexec update-grub\n' | tee /etc/kernel/postinst.d/zz-update-grub >/etc/kernel/postrm.d/zz-update-grub
chmod 0755 /etc/kernel/postinst.d/zz-update-grub /etc/kernel/postrm.d/zz-update-grub
# As on a machine with a boot splash: nouveau is inside the initramfs, so a blacklist outside of it does nothing.
mkdir -p /usr/share/initramfs-tools/modules.d
echo nouveau >/usr/share/initramfs-tools/modules.d/gpuwright-sim

cat >/etc/systemd/system/gpuwright-sim.service <<'END'
[Unit]
Description=Simulated machine: hardware, kernel and modules as they are after a boot
DefaultDependencies=no
# ldconfig.service would write the linker's cache over the one that the boot writes.
After=local-fs.target systemd-tmpfiles-setup-dev.service ldconfig.service
Before=sysinit.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/gpuwright-sim/bin/boot

[Install]
WantedBy=sysinit.target
END
systemctl enable --quiet gpuwright-sim.service
echo "This machine is simulated: its GPUs do not exist." >/etc/gpuwright/simulated

# Every Python that starts keeps what it compiles of a zip, see there.
python3 $library/gpuwright_sim/compiled.py

if [ "$os" = ubuntu-24.04 ]; then
    rm -f /etc/os-release /etc/debian_version
    cat >/etc/os-release <<'END'
PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.3 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=noble
END
    cp /etc/os-release /usr/lib/os-release
    printf 'DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_CODENAME=noble\nDISTRIB_DESCRIPTION="Ubuntu 24.04.3 LTS"\n' >/etc/lsb-release
    echo trixie/sid >/etc/debian_version
fi

if [ "$os" = rocky-9 ]; then
    exec sh $library/rocky.sh "$packages" "$distribution" "$@"
fi

if [ -z "$distribution" ]; then
    # Nothing but the distribution's own packages: its kernel comes from the mirror, and a driver from its non-free part.
    case "$*" in *nvidia*) sed -i 's/^Components: main$/Components: main contrib non-free non-free-firmware/' /etc/apt/sources.list.d/*.sources ;; esac
    apt-get update -q
    # A kernel of Debian 12 stays on a machine that was upgraded from it; its archive gets no point release any more, so its names stay.
    earlier=/etc/apt/sources.list.d/earlier.sources
    if ! apt-cache show "$1" >/dev/null 2>&1; then
        sed -e 's|^Suites: .*|Suites: bookworm|' -e 's|^Components: .*|Components: main|' /etc/apt/sources.list.d/debian.sources >$earlier
        apt-get update -q
        apt-get install -qy --no-install-recommends "$1" "$2"
        rm $earlier
        apt-get update -q
    fi
    apt-get install -qy --no-install-recommends "$@"
    exit 0
fi

# The host's own pip configuration names a mirror, as in an air-gapped site. It speaks plain HTTP; the administrator says that pip may use it.
printf '[global]\nindex-url = http://%s/whl/pypi/\ntrusted-host = %s\n' "$packages" "$packages" >/etc/pip.conf
python3 -c "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())" \
    "$distribution/key.pub" >/usr/share/keyrings/gpuwright-sim-distribution.asc
# Debian's part is flat; Ubuntu's is a suite of which `restricted` is not enabled yet, as on a server.
suites="Suites: /"
[ "$os" != ubuntu-24.04 ] || suites=$(printf 'Suites: noble\nComponents: main')
cat >/etc/apt/sources.list.d/gpuwright-sim-distribution.sources <<END
Types: deb
URIs: $distribution/
$suites
Signed-By: /usr/share/keyrings/gpuwright-sim-distribution.asc
END
# Kernels and DKMS come from the simulated part of the distribution, whatever the mirror has that is newer.
printf 'Package: *\nPin: release o=gpuwright-sim-distribution\nPin-Priority: 1001\n' >/etc/apt/preferences.d/gpuwright-sim-distribution
apt-get update -q -o Dir::Etc::SourceList=/dev/null
apt-get install -qy --no-install-recommends "$@"

# Debian has the command `docker` in a package of its own, Ubuntu has it inside docker.io: the costume puts it there.
if [ "$os" = ubuntu-24.04 ]; then
    archive=/usr/share/gpuwright-sim/archive
    work=$(mktemp -d)
    mkdir -p $archive
    cd "$work"
    cp /var/cache/apt/archives/docker.io_*.deb /var/cache/apt/archives/docker-cli_*.deb .
    dpkg-deb -R docker-cli_*.deb command
    dpkg-deb -R docker.io_*.deb engine
    cp -a command/usr engine/
    sed -i -e 's/^Version: \([0-9.]*\).*/Version: \1-0ubuntu1~24.04.1/' -e '/^Recommends:/d' engine/DEBIAN/control
    dpkg-deb --build -Zgzip -z1 engine $archive/docker.io.deb >/dev/null
    {
        cat engine/DEBIAN/control
        echo "Filename: ./docker.io.deb"
        echo "Size: $(stat -c %s $archive/docker.io.deb)"
        echo "SHA256: $(sha256sum $archive/docker.io.deb | cut -d ' ' -f 1)"
    } >$archive/Packages
    cd /
    rm -rf "$work"
    echo "deb [trusted=yes] file:$archive ./" >/etc/apt/sources.list.d/gpuwright-sim-costume.list
    printf 'Package: docker.io\nPin: version *-0ubuntu1~24.04.1\nPin-Priority: 1001\n' >/etc/apt/preferences.d/gpuwright-sim-costume
    apt-get update -q -o Dir::Etc::SourceList=/dev/null
fi

# apt's cache becomes a partial mirror of the archive, and the archive's own index goes: see there.
python3 $library/gpuwright_sim/mirror.py
apt-get update -q
