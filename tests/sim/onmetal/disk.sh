#!/bin/sh
# Run once in a container of the machine's system: a disk with a boot loader from the container's own files.
# Arguments: <size of the disk in MiB> <public key of the account> <account>
set -eu
size=$1
key=$2
account=$3
root=/out/root
disk=/out/disk.raw
rm -rf $root $disk
mkdir -p $root
cp -ax / $root/ 2>/dev/null || true
rm -rf $root/out $root/.dockerenv
for directory in proc sys dev run tmp; do mkdir -p $root/$directory; done
chmod 1777 $root/tmp
echo metal >$root/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 metal\n' >$root/etc/hosts
# QEMU's own name server.
echo 'nameserver 10.0.2.3' >$root/etc/resolv.conf
home=$root/home/$account
echo "$key" >"$home/.ssh/authorized_keys"
chown "$account:" "$home/.ssh/authorized_keys"
chmod 0600 "$home/.ssh/authorized_keys"
# What module.sh made: the archive is on the disk itself, and when DKMS adds the module it finds it built.
rm -rf $root/var/lib/apt/lists
tar -C $root -xf /out/mirror.tar
library=usr/local/lib/gpuwright-sim
mkdir -p $root/$library
cp /out/built.tar $root/$library/
printf '#!/bin/sh\nexec tar -C /var/lib/dkms -xf /%s/built.tar\n' $library >$root/$library/built
chmod 0755 $root/$library/built
for module in $(tar -tf /out/built.tar | cut -d / -f 1 | sort -u); do
    # DKMS runs it from the module's own place below /usr/src.
    echo "POST_ADD=\"../../../$library/built\"" >"$root/etc/dkms/$module.conf"
done

truncate -s "${size}M" $disk
echo 'start=2048, type=83, bootable' | sfdisk --quiet --label dos $disk
# What GRUB of Debian 13 cannot read yet is left out.
mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -d $root -E offset=1048576 $disk "$((size - 1))M"
work=$(mktemp -d)
grub-mkimage -O i386-pc -o "$work/core.img" -p '(hd0,msdos1)/boot/grub' biosdisk part_msdos ext2
dd if=/usr/lib/grub/i386-pc/boot.img of=$disk bs=440 count=1 conv=notrunc status=none
dd if="$work/core.img" of=$disk bs=512 seek=1 conv=notrunc status=none
rm -rf $root /out/mirror.tar /out/built.tar "$work"
chmod 0666 $disk
