#!/bin/sh
# Run once in the container that becomes the system of a bare-metal machine: a real kernel, its headers, DKMS, a boot loader.
# Arguments: <kernel module that is loaded before the driver comes>
set -eu
nouveau=$1
export DEBIAN_FRONTEND=noninteractive

# Here a cut of the power does lose it: dpkg waits for each file, as everywhere.
rm /etc/dpkg/dpkg.cfg.d/gpuwright-sim

# A small initramfs that names its modules: the emulated processor packs it in seconds. As where somebody wants an early picture,
# nouveau is inside, so that a blacklist outside of it does nothing.
mkdir -p /etc/initramfs-tools/conf.d
printf 'MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n' >/etc/initramfs-tools/conf.d/gpuwright-sim
printf 'virtio_pci\nvirtio_blk\next4\n%s\n' "$nouveau" >>/etc/initramfs-tools/modules
echo "$nouveau" >/etc/modules-load.d/gpuwright-sim.conf

echo 'grub-pc grub-pc/install_devices_empty boolean true' | debconf-set-selections
apt-get update -q
apt-get install -qy --no-install-recommends linux-image-amd64 linux-headers-amd64 dkms grub-pc e2fsprogs fdisk udev
# What module.sh finds in the cache then is the driver with what it needs.
apt-get clean
python3 /onnode/gpuwright_sim/compiled.py

# An emulated processor is slow at starting programs, and of those that pack an initramfs half are udev's and the device mapper's. Nothing
# here needs what they put into it, the modules above are loaded by name; what is left of udev's part is to hand /dev over.
cd /usr/share/initramfs-tools
rm hooks/udev hooks/dmsetup scripts/init-top/udev scripts/init-bottom/udev
script=/etc/initramfs-tools/scripts/init-bottom/gpuwright-sim
cat >$script <<'SCRIPT'
#!/bin/sh
[ "$1" = prereqs ] || mount -n -o move /dev "$rootmnt/dev"
SCRIPT
chmod 0755 $script
update-initramfs -u -k all

# What a container has no use for and a machine has.
systemctl unmask systemd-udevd.service systemd-logind-varlink.socket
systemctl enable systemd-networkd.service
printf '[Match]\nName=en* eth*\n\n[Network]\nDHCP=yes\n' >/etc/systemd/network/50-gpuwright-sim.network
printf '/dev/vda1 / ext4 errors=remount-ro 0 1\n' >/etc/fstab
# An emulated processor on a busy machine is no reason to give a service up.
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStartSec=15min\nDefaultTimeoutStopSec=5min\n' >/etc/systemd/system.conf.d/gpuwright-sim.conf
# A cut of the power must be found by a journal that was written, as on a server.
mkdir -p /var/log/journal
printf 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\nGRUB_CMDLINE_LINUX="console=ttyS0 mitigations=off systemd.service_watchdogs=no"\nGRUB_TERMINAL=console\n' >/etc/default/grub
kernel=$(basename /boot/vmlinuz-*)
kernel=${kernel#vmlinuz-}
mkdir -p /boot/grub/i386-pc
cp /usr/lib/grub/i386-pc/*.mod /usr/lib/grub/i386-pc/*.lst /boot/grub/i386-pc/
cat >/boot/grub/grub.cfg <<CONFIG
set default="0"
set timeout=0
menuentry 'Debian GNU/Linux, with Linux $kernel' {
	insmod part_msdos
	insmod ext2
	set root='hd0,msdos1'
	linux	/boot/vmlinuz-$kernel root=/dev/vda1 ro console=ttyS0 mitigations=off systemd.service_watchdogs=no
	initrd	/boot/initrd.img-$kernel
}
CONFIG
