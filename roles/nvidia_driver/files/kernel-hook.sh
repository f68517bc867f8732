#!/bin/sh
# Written by gpuwright (role nvidia_driver). A change here is overwritten by the next run.
#
# Called when a kernel or its headers come or go: by /etc/kernel/{postinst,header_postinst,postrm}.d, or by kernel-install from
# /etc/kernel/install.d. The kernel that boots next must have NVIDIA's module. Where it has none, DKMS is asked once more; where that fails
# too, the newest kernel that has one stays the default, and the journal and the next login say so. As soon as the newest kernel has a
# module, the setting is taken back. It never makes the installation of a kernel fail.
#
# As aa-gpuwright it is called before DKMS, whose own hook may end the installation there and then: the setting is written beforehand, for
# whoever makes the boot menu anew afterwards, and taken back by zz-gpuwright.
#
#   zz-gpuwright [KERNEL]   look, and set what is needed      zz-gpuwright forget   take every setting back (the driver is removed)
set -u
early=
root=${GPUWRIGHT_ROOT:-}
setting=$root/etc/default/grub.d/gpuwright.cfg
pinned=$root/var/lib/gpuwright/kernel-hook/default
motd=$root/etc/motd.d/gpuwright-kernel
grub=$root/boot/grub/grub.cfg
info=$root/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f
program=$root/etc/kernel/postinst.d/zz-gpuwright
[ -e "$program" ] || program=$root/etc/kernel/install.d/95-gpuwright.install

say() { # <text> [priority]
    printf 'gpuwright: %s\n' "$1" >&2
    logger -t gpuwright-kernel -p "user.${2:-notice}" -- "$1" 2>/dev/null
}

# --- kernels and modules

# Installed kernels, the newest first, as the boot menu sorts them.
kernels() {
    for image in "$root"/boot/vmlinuz-* "$root"/lib/modules/*/vmlinuz; do
        case $image in
        *\** | *rescue* | *.old | *.dpkg-*) ;;
        */lib/modules/*) image=${image%/vmlinuz} && echo "${image##*/}" ;;
        *) echo "${image##*/vmlinuz-}" ;;
        esac
    done | sort -Vru
}

# The kernel that the boot menu starts without our setting: the one that its owner chose, else the newest.
default_kernel() {
    choice=
    if [ "$(loader)" = grubby ]; then
        choice=$(grubby --default-kernel 2>/dev/null)
        [ "$choice" != "$(cat "$pinned" 2>/dev/null)" ] || choice=
    elif [ "$(loader)" = grub ] && [ ! -e "$setting" ]; then
        choice=$(sed -n 's/^[[:space:]]*set default="\([^"]*\)".*/\1/p' "$grub" | grep -v next_entry | tail -n 1)
        # shellcheck disable=SC2016 # the dollar sign is GRUB's
        [ "$choice" != '${saved_entry}' ] || choice=$(sed -n 's/^saved_entry=//p' "${grub%.cfg}env" 2>/dev/null)
    fi
    for kernel in $(kernels); do
        case $choice in *"gnulinux-$kernel-"* | *"/vmlinuz-$kernel") echo "$kernel" && return 0 ;; esac
    done
    kernels | head -n 1
}

# The version that the driver's libraries have; nothing where none is seen.
library_version() {
    for path in $(ldconfig -p 2>/dev/null | sed -n 's/.*libnvidia-ml\.so\.1 .*64.* => //p'); do
        readlink -f "$path" | sed -n 's/.*libnvidia-ml\.so\.\([0-9][0-9]*\.[0-9.]*\)$/\1/p'
    done | head -n 1
}

# The version of NVIDIA's module for a kernel, where modprobe would find everything to load it; else nothing.
module_version() { # <kernel>
    for name in nvidia nvidia-current nvidia-current-open; do
        version=$(modinfo -k "$1" -F version "$name" 2>/dev/null)
        if [ -n "$version" ] && modprobe -n -q -S "$1" "$name" >/dev/null 2>&1; then
            echo "$version"
            return 0
        fi
    done
}

has_module() { # <kernel>
    version=$(module_version "$1")
    [ -n "$version" ] && { [ -z "$wanted" ] || [ "$version" = "$wanted" ]; }
}

build() { # <kernel>
    command -v dkms >/dev/null 2>&1 || return 0
    say "kernel $1 has no NVIDIA module${wanted:+ $wanted}; asking DKMS for it"
    dkms autoinstall -k "$1" 2>&1 </dev/null | while read -r line; do say "dkms: $line" info; done
}

# --- boot loaders

loader() {
    # The one that started the machine says so in the firmware (UTF-16): a GRUB that was left behind decides nothing then.
    if sed 's/\x00//g' "$info" 2>/dev/null | grep -aq systemd-boot; then
        echo systemd-boot
    elif [ -e "$grub" ] && command -v update-grub >/dev/null 2>&1; then
        echo grub
    elif command -v grubby >/dev/null 2>&1; then
        echo grubby
    elif command -v bootctl >/dev/null 2>&1 && bootctl is-installed >/dev/null 2>&1; then
        echo systemd-boot
    fi
}

# The id of a kernel's ordinary entry in GRUB's menu, its submenu before it. The first entry of the menu never is it: that one starts
# whatever is the newest.
grub_entry() { # <kernel>
    awk -v kernel="$1" '
        function id(line) {
            if (!match(line, /(\$menuentry_id_option|\$\{menuentry_id_option\}|--id)[ \t]+[^ \t{]+/)) return ""
            line = substr(line, RSTART, RLENGTH)
            sub(/^[^ \t]+[ \t]+/, "", line)
            gsub(/["\047]/, "", line)
            return line
        }
        /^[ \t]*submenu[ \t]/ { menu = id($0) }
        /^}/ { menu = "" }
        /^[ \t]*menuentry[ \t]/ {
            name = id($0)
            if (!index(name, "gnulinux-" kernel "-advanced-")) next
            print (menu == "" ? name : menu ">" name)
            exit
        }' "$grub"
}

grub_starts() { # <entry>
    grep -Fq "set default=\"$1\"" "$grub"
}

keep_by_grub() { # <kernel>
    entry=$(grub_entry "$1")
    if [ -z "$entry" ]; then
        update-grub >/dev/null 2>&1
        entry=$(grub_entry "$1")
    fi
    [ -n "$entry" ] || return 1
    mkdir -p "${setting%/*}"
    # Void where this program or that kernel is gone.
    cat >"$setting.new" <<END
# Written by gpuwright ($program): the newest kernel has no NVIDIA module.
if [ -x "$program" ] && [ -e "$root/boot/vmlinuz-$1" ]; then GRUB_DEFAULT="$entry"; fi
END
    mv "$setting.new" "$setting"
    # Before DKMS the menu does not know the new kernel yet.
    [ -z "$early" ] || return 0
    grub_starts "$entry" || update-grub >/dev/null 2>&1
    grub_starts "$entry"
}

entry_file() { # <kernel>: its file among the entries that systemd-boot reads
    for entry in "$root"/boot/loader/entries/*.conf "$root"/efi/loader/entries/*.conf "$root"/boot/efi/loader/entries/*.conf; do
        if [ "$(sed -n 's/^version[[:space:]]*//p' "$entry" 2>/dev/null)" = "$1" ]; then
            echo "${entry##*/}"
            return 0
        fi
    done
    return 1
}

keep() { # <kernel>: true when the boot menu starts it now
    case $(loader) in
    grub) keep_by_grub "$1" ;;
    grubby) remember "$root/boot/vmlinuz-$1" && grubby --set-default "$root/boot/vmlinuz-$1" >/dev/null 2>&1 ;;
    systemd-boot) entry=$(entry_file "$1") && remember "$entry" && bootctl set-default "$entry" >/dev/null 2>&1 ;;
    *) return 1 ;;
    esac
}

remember() { # <what was set>
    mkdir -p "${pinned%/*}" && printf '%s\n' "$1" >"$pinned"
}

restore() {
    rm -f "$motd"
    # Red Hat's systems have this directory of their own.
    [ ! -e "$root/etc/debian_version" ] || rmdir "${motd%/*}" 2>/dev/null
    [ -e "$setting" ] || [ -e "$pinned" ] || return 0
    if [ -e "$setting" ]; then
        entry=$(sed -n 's/.*GRUB_DEFAULT="\(.*\)"; fi$/\1/p' "$setting")
        rm -f "$setting"
        if grub_starts "$entry"; then update-grub >/dev/null 2>&1; fi
    fi
    if [ -e "$pinned" ]; then
        case $(loader) in
        # Where another kernel was made the default since then, that one stays it.
        grubby) [ "$(grubby --default-kernel 2>/dev/null)" != "$(cat "$pinned")" ] ||
            grubby --set-default "$root/boot/vmlinuz-$(kernels | head -n 1)" >/dev/null 2>&1 ;;
        systemd-boot) bootctl set-default "" >/dev/null 2>&1 ;;
        esac
        rm -f "$pinned"
        rmdir "${pinned%/*}" 2>/dev/null
    fi
    say "the boot menu starts its own default kernel again"
}

warn() { # <what happened>
    say "$1" warning
    mkdir -p "${motd%/*}"
    printf 'gpuwright: %s\n' "$1" >"$motd"
    chmod 0644 "$motd"
}

# --- the decision, from the state alone: it does not matter how often and in which order it is called

decide() { # [kernel that was installed]
    wanted=$(library_version)
    next=$(default_kernel)
    [ -n "$next" ] || return 0
    for kernel in $(printf '%s\n' "${1:-}" "$next" | sort -u); do
        if [ -z "$early" ] && [ -d "$root/lib/modules/$kernel" ] && ! has_module "$kernel"; then
            build "$kernel"
        fi
    done
    if has_module "$next"; then
        restore
        return 0
    fi
    what="kernel $next has no NVIDIA module${wanted:+ $wanted}${early:+ yet}"
    out="install the headers of $next, read the end of the newest make.log under /var/lib/dkms, or take another driver (gpuwright plan)"
    out="$out; then run $program"
    for kernel in $(kernels); do
        has_module "$kernel" || continue
        if keep "$kernel"; then
            warn "$what; the machine goes on booting $kernel, which has one. What to do: $out"
        else
            warn "$what and boots next; this boot loader could not be told to start $kernel, which has one. What to do: choose $kernel in \
the boot menu; $out"
        fi
        return 0
    done
    warn "$what, and no other installed kernel has one: the next boot is one without the driver. What to do: $out"
}

main() {
    umask 022
    case ${0##*/} in aa-*) early=1 ;; esac
    case ${0%/*} in */postrm.d) set -- ;; esac
    case ${1:-} in
    forget) restore ;;
    # kernel-install's words.
    add) decide "${2:-}" ;;
    remove) decide ;;
    *) decide "${1:-}" ;;
    esac
}

(main "$@") || say "the check of the kernel's NVIDIA module ended in the middle" warning
exit 0
