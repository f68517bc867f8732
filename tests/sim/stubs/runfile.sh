#!/bin/sh
# A stand-in of NVIDIA-Linux-x86_64-@VERSION@.run: like the real one a shell archive that unpacks itself and starts the installer inside.
skip=@LINES@
case " $* " in
*" --check "*) echo "Verifying archive integrity... OK" && exit 0 ;;
*" --info "*) echo "Identification: NVIDIA Accelerated Graphics Driver for Linux-x86_64 @VERSION@" && exit 0 ;;
esac
folder=$(mktemp -d /tmp/makeself.XXXXXXXX) || exit 1
trap 'rm -rf "$folder"' EXIT
tail -n +$skip "$0" | tar -xzf - -C "$folder" || { echo "Unable to unpack the archive" >&2 && exit 1; }
cd "$folder" || exit 1
./nvidia-installer "$@"
exit $?
