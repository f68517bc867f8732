#!/bin/sh
# A stand-in of cuda_@RELEASE@_@DRIVER@_linux.run: like the real one a shell archive that unpacks itself into TMPDIR and starts the installer inside
# with its own arguments.
skip=@LINES@
folder=$(mktemp -d "${TMPDIR:-/tmp}/selfgz.XXXXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
tail -n +$skip "$0" | tar -xzf - -C "$folder" || { echo "Extraction failed." >&2 && exit 1; }
cd "$folder" || exit 1
./cuda-installer "$@"
exit $?
