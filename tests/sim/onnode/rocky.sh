#!/bin/sh
# Called by install.sh for a node in the costume of Rocky Linux 9: Debian's dnf and rpm are its package manager, apt and dpkg are out of sight.
# Arguments: <host of the vendors' packages> <address of the distribution's simulated part> <kernel packages ...>
set -eu
packages=$1
distribution=$2
shift 2
library=/usr/lib/gpuwright-sim

rm -f /etc/os-release /etc/debian_version /etc/lsb-release
cat >/etc/os-release <<'END'
NAME="Rocky Linux"
VERSION="9.7 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.7"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.7 (Blue Onyx)"
END
cp /etc/os-release /usr/lib/os-release
echo "Rocky Linux release 9.7 (Blue Onyx)" | tee /etc/rocky-release >/etc/redhat-release

# Debian's package manager goes out of sight; what only it needs goes with it. unmkinitramfs stays: the simulated boot looks with it.
for path in /usr/bin/apt* /usr/bin/dpkg* /usr/sbin/update-initramfs /usr/bin/lsinitramfs /usr/sbin/mkinitramfs /etc/apt /var/lib/apt /var/lib/dpkg \
    /etc/kernel/postinst.d/initramfs-tools /etc/kernel/postrm.d/initramfs-tools; do
    if [ -e "$path" ]; then
        mkdir -p "$library/debian${path%/*}"
        mv "$path" "$library/debian$path"
    fi
done

# rpm systems have their libraries in /usr/lib64.
mkdir -p /usr/lib64
echo /usr/lib64 >/etc/ld.so.conf.d/gpuwright-sim-lib64.conf
ldconfig

# Debian has all plugins in one package; on the real system these come as packages of their own.
for plugin in local versionlock system_upgrade leaves show_leaves; do
    rm -f /usr/lib/python3/dist-packages/dnf-plugins/$plugin.py /etc/dnf/plugins/$plugin.*
done
cat >/etc/dnf/dnf.conf <<'END'
[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
skip_if_unavailable=False
END
# rpm's plugin needs a right that a container may not have.
mkdir -p /etc/rpm
echo '%__transaction_unshare %{nil}' >/etc/rpm/macros.gpuwright-sim
mkdir -p /etc/yum.repos.d /etc/pki/rpm-gpg /etc/dnf/modules.d
python3 -c "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())" \
    "$distribution/key.pub" >/etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9
cat >/etc/yum.repos.d/rocky.repo <<END
[baseos]
name=Rocky Linux 9 - BaseOS
baseurl=$distribution/
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9
END

# As on a fresh installation: dracut for the machine it runs on, with nouveau inside.
mkdir -p /etc/dracut.conf.d
cat >/etc/dracut.conf.d/gpuwright-sim.conf <<'END'
hostonly="no"
compress="gzip"
initrdname="initramfs-${kernel}.img"
dracutmodules="base kernel-modules fs-lib"
add_drivers+=" nouveau "
END
printf '[global]\nindex-url = http://%s/whl/pypi/\ntrusted-host = %s\n' "$packages" "$packages" >/etc/pip.conf
# As there: the boot loader's words for the kernel, and no service enabled that no preset names.
echo crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M >/etc/kernel/cmdline
mkdir -p /usr/lib/systemd/system-preset
echo 'disable *' >/usr/lib/systemd/system-preset/99-default-disable.preset
dnf -qy --releasever=9 install rocky-release coreutils cpio file findutils gawk grep gzip kmod linux-firmware sed systemd tar which "$@"
dnf -q clean all
