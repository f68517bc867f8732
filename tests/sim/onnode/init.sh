#!/bin/sh
# The first process of a simulated node: make the control groups writable, as they are on a machine, and become systemd.
for place in /sys/fs/cgroup /sys/fs/cgroup/*; do
    if mountpoint -q "$place"; then mount -o remount,bind,rw "$place"; fi
done
# systemd 257 boots on the old control groups only when told to; on the unified ones it needs no words.
if [ -d /sys/fs/cgroup/systemd ]; then
    set -- systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1
fi
exec /sbin/init "$@"
