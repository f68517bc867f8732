#!/bin/sh
# Run once in a container of the machine's system: DKMS really compiles the distribution's driver for the machine's kernel. What is kept
# in /out: what DKMS built, and a partial mirror of the archive with the packages.
# Arguments: <packages of the driver ...>
set -eu
export DEBIAN_FRONTEND=noninteractive
sources=/etc/apt/sources.list.d/debian.sources
sed -i 's/^Components:.*/Components: main contrib non-free non-free-firmware/' $sources
apt-get update -q
apt-get install -qy --no-install-recommends "$@"
dkms status
dkms status | grep -q ': installed'
# <module>/<version>/<kernel>, without the link to the source, which the package brings.
cd /var/lib/dkms
tar -cf /out/built.tar nvidia*/[0-9]*/[0-9]*

# The mirror is signed, as the archive is: gpuwright writes a source of its own beside the machine's, for the driver's component.
keyring=/usr/share/keyrings/gpuwright-sim-mirror.gpg
mirror=/usr/share/gpuwright-sim/mirror
apt-get install -qy --no-install-recommends gpg-agent
python3 /onnode/gpuwright_sim/mirror.py
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
gpg --batch --passphrase '' --quick-gen-key 'Partial mirror' ed25519 sign never
gpg --batch --export >$keyring
for release in "$mirror"/dists/*/Release; do gpg --batch --clearsign --output "${release%/*}/InRelease" "$release"; done
sed -i "s|^Trusted:.*|Signed-By: $keyring|" $sources
apt-get update -q
tar -cf /out/mirror.tar $sources $keyring $mirror /var/lib/apt/lists
