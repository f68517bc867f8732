#!/bin/sh
# configure-without-autoinstall KERNEL...
#
# Finish dpkg's work without DKMS's hooks of new kernels, then have DKMS build for these kernels what it can.
#
# DKMS before 3.0.11 (Debian 12, Ubuntu 22.04) counts a module that is left out for a kernel among those that failed, and its hooks fail the
# packages of that kernel with it. A file of Debian's switches the hooks off; it is gone when this ends, however it ends.
set -u

mark=/etc/dkms/no-autoinstall
ours="Written by gpuwright (role repair)"

if [ ! -e "$mark" ] || grep -qF "$ours" "$mark"; then
    trap 'rm -f "$mark"' EXIT
    trap 'exit 1' HUP INT TERM
    echo "# $ours while packages were configured; it can be removed." >"$mark"
fi

dpkg --force-confdef --force-confold --configure --pending
status=$?

for kernel in "$@"; do
    # It fails for what is left out, and has built the others then.
    dkms autoinstall -k "$kernel" || true
done
exit "$status"
