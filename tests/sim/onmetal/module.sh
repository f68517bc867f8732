#!/bin/sh
# Run once in a container of the machine's system: DKMS really compiles the distribution's driver for the machine's kernel. What is kept
# in /out: what DKMS built, and the packages.
# Arguments: <packages of the driver ...>
set -eu
export DEBIAN_FRONTEND=noninteractive
sed 's/^Components:.*/Components: contrib non-free non-free-firmware/' /etc/apt/sources.list.d/debian.sources >/etc/apt/sources.list.d/driver.sources
apt-get update -q
rm -f /etc/apt/apt.conf.d/docker-clean
apt-get install -qy --no-install-recommends -o APT::Keep-Downloaded-Packages=true "$@"
dkms status
dkms status | grep -q ': installed'
mkdir -p /out/archives
cp /var/cache/apt/archives/*.deb /out/archives/
# <module>/<version>/<kernel>, without the link to the source, which the package brings.
cd /var/lib/dkms
tar -cf /out/built.tar nvidia*/[0-9]*/[0-9]*
