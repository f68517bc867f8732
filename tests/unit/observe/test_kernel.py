from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import bootloader, kernel
from ansible_collections.gpuwright.node.plugins.module_utils.observe.machine import observe
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nouveau_blacklist import (
    apply as nouveau_blacklist,
)
from tests.sim.onnode.gpuwright_sim import elf
from tests.unit.observe.trees import FakePrograms, Tree, answer

OLD, NEW = "6.8.0-45-generic", "6.8.0-101-generic"

GRUB = """
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
else
   set default="DEFAULT"
fi
function savedefault {
  saved_entry="${chosen}"
}
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-1' {
	recordfail
	linux	/boot/vmlinuz-6.8.0-101-generic root=UUID=1 ro
	initrd	/boot/initrd.img-6.8.0-101-generic
}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-1' {
	menuentry 'Ubuntu, with Linux 6.8.0-101-generic' $menuentry_id_option 'gnulinux-101-advanced-1' {
		linux	/boot/vmlinuz-6.8.0-101-generic root=UUID=1 ro
	}
	menuentry 'Ubuntu, with Linux 6.8.0-101-generic (recovery mode)' $menuentry_id_option 'gnulinux-101-recovery-1' {
		linux	/boot/vmlinuz-6.8.0-101-generic root=UUID=1 ro recovery
	}
	menuentry 'Ubuntu, with Linux 6.8.0-45-generic' $menuentry_id_option 'gnulinux-45-advanced-1' {
		linux	/boot/vmlinuz-6.8.0-45-generic root=UUID=1 ro
	}
}
menuentry 'Windows Boot Manager' $menuentry_id_option 'osprober-efi-1' {
	chainloader /EFI/Microsoft/Boot/bootmgfw.efi
}
"""


def with_kernels(tree: Tree) -> Tree:
    for release in (OLD, NEW):
        tree.file(f"/boot/vmlinuz-{release}")
        tree.file(f"/lib/modules/{release}/modules.dep")
    tree.file("/proc/sys/kernel/osrelease", OLD + "\n")
    return tree


@pytest.mark.parametrize(
    ("default", "release"),
    [
        ("0", NEW),
        ("1>2", OLD),
        ("1", NEW),
        ("gnulinux-advanced-1>gnulinux-45-advanced-1", OLD),
        ("Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-45-generic", OLD),
        ("an entry that was removed", NEW),
        ("1>9", NEW),
    ],
)
def test_the_default_of_grub_names_the_next_kernel(tree: Tree, default: str, release: str) -> None:
    with_kernels(tree).file("/boot/grub/grub.cfg", GRUB.replace("DEFAULT", default))
    seen = kernel.observe(tree.host())
    assert seen["next"] == release
    assert "/boot/grub/grub.cfg" in (seen["next_source"] or "")


def test_a_saved_entry_and_a_next_entry_are_read_from_the_environment_block(tree: Tree) -> None:
    with_kernels(tree).file("/boot/grub/grub.cfg", GRUB.replace("DEFAULT", "${saved_entry}"))
    tree.file("/boot/grub/grubenv", "# GRUB Environment Block\nsaved_entry=1>2\n####")
    assert kernel.observe(tree.host())["next"] == OLD
    tree.file(
        "/boot/grub/grubenv",
        "# GRUB Environment Block\nsaved_entry=0\nnext_entry=gnulinux-advanced-1>gnulinux-45-advanced-1\n##",
    )
    assert kernel.observe(tree.host())["next"] == OLD
    tree.file("/boot/grub/grubenv", "# GRUB Environment Block\n")
    assert kernel.observe(tree.host())["next"] == NEW


def test_every_kernel_that_may_boot_with_nobody_at_the_menu_is_named_with_its_module(tree: Tree) -> None:
    with_kernels(tree).file("/boot/grub/grub.cfg", GRUB.replace("DEFAULT", "0"))
    tree.file(f"/lib/modules/{NEW}/modules.dep", "updates/dkms/nvidia.ko:\n")
    tree.file(
        f"/lib/modules/{NEW}/updates/dkms/nvidia.ko",
        elf.nvidia("nvidia", "580.95.05", NEW, open_source=True),
    )
    seen = kernel.observe(tree.host())
    assert list(seen["may_boot"]) == [NEW]
    assert seen["may_boot"][NEW] == seen["available"]["nvidia"]
    assert seen["available"]["nvidia"]["version"] == "580.95.05"
    # For one boot only: the one after it is the standing default's again.
    tree.file(
        "/boot/grub/grubenv", "# GRUB Environment Block\nnext_entry=gnulinux-advanced-1>gnulinux-45-advanced-1\n##"
    )
    seen = kernel.observe(tree.host())
    assert list(seen["may_boot"]) == [OLD, NEW]
    assert seen["may_boot"][OLD] is None
    module = seen["may_boot"][NEW]
    assert module is not None
    assert module["version"] == "580.95.05"


def test_grub_default_of_etc_counts_only_where_grub_cfg_sets_none() -> None:
    assert bootloader.default_of('set default="2"\n', {}, "saved") == "2"
    assert bootloader.default_of("menuentry", {"saved_entry": "x"}, "saved") == "x"
    assert bootloader.default_of("menuentry", {}, None) == "0"


def test_a_default_that_starts_no_linux_leaves_the_next_kernel_unknown_but_guessed(tree: Tree) -> None:
    with_kernels(tree).file("/boot/grub/grub.cfg", GRUB.replace("DEFAULT", "2"))
    host = tree.host()
    seen = kernel.observe(host)
    assert seen["next"] == NEW
    assert "Windows" in host.unknown_facts["kernel.next"]


def test_boot_loader_entries_are_ordered_by_version_not_by_text(tree: Tree) -> None:
    tree.file("/boot/grub2/grub.cfg", 'set default="${saved_entry}"\ninsmod blscfg\nblscfg\n')
    for release in ("5.14.0-70.el9.x86_64", "5.14.0-503.el9.x86_64"):
        tree.file(
            f"/boot/loader/entries/abc-{release}.conf",
            f"title Rocky ({release})\nversion {release}\nlinux /vmlinuz-{release}\n",
        )
    tree.file(
        "/boot/loader/entries/abc-0-rescue.conf", "title rescue\nversion 0-rescue-abc\nlinux /vmlinuz-0-rescue-abc\n"
    )
    assert kernel.observe(tree.host())["next"] == "5.14.0-503.el9.x86_64"
    tree.file("/boot/grub2/grubenv", "saved_entry=abc-5.14.0-70.el9.x86_64\n")
    assert kernel.observe(tree.host())["next"] == "5.14.0-70.el9.x86_64"


EFIVARS = "/sys/firmware/efi/efivars/{}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def with_systemd_boot(tree: Tree, **variables: str) -> Tree:
    """Both kernels as entries of systemd-boot, which started the machine; a grub.cfg was left behind."""
    with_kernels(tree).file("/boot/grub/grub.cfg", GRUB.replace("DEFAULT", "0"))
    for release in (OLD, NEW):
        tree.file(
            f"/boot/loader/entries/abc-{release}.conf", f"title Linux\nversion {release}\nlinux /abc/{release}/linux\n"
        )
    for name, text in {"LoaderInfo": "systemd-boot 257", **variables}.items():
        tree.file(EFIVARS.format(name), b"\x06\x00\x00\x00" + f"{text}\0".encode("utf-16-le"))
    return tree


def next_of(tree: Tree) -> str | None:
    return kernel.observe(tree.host())["next"]


def test_the_default_in_the_firmware_goes_before_that_of_a_file_and_a_left_grub_says_nothing(tree: Tree) -> None:
    tree = with_systemd_boot(tree, LoaderEntryDefault=f"abc-{OLD}.conf")
    tree.file("/boot/loader/loader.conf", f"timeout 3\ndefault abc-{NEW}*\n")
    assert next_of(tree) == OLD
    assert list(kernel.observe(tree.host())["may_boot"]) == [OLD]
    assert bootloader.grub_entries(tree.host()) == {}


def test_a_pattern_of_loader_conf_names_an_entry_and_without_one_it_is_the_newest(tree: Tree) -> None:
    tree = with_systemd_boot(tree)
    assert next_of(tree) == NEW
    tree.file("/boot/loader/loader.conf", f"default *{OLD}*\n")
    assert next_of(tree) == OLD


def test_an_entry_for_one_boot_is_next_and_the_default_after_it(tree: Tree) -> None:
    tree = with_systemd_boot(tree, LoaderEntryOneShot=f"abc-{OLD}.conf", LoaderEntryDefault=f"abc-{NEW}.conf")
    seen = kernel.observe(tree.host())
    assert (seen["next"], list(seen["may_boot"])) == (OLD, [OLD, NEW])


def test_the_last_one_that_was_booted_is_the_default_where_it_is_saved(tree: Tree) -> None:
    assert next_of(with_systemd_boot(tree, LoaderEntryDefault="@saved", LoaderEntryLastBooted=f"abc-{OLD}.conf")) == OLD


def test_a_unified_image_tells_its_kernel_by_its_name_and_is_unknown_without(tree: Tree) -> None:
    tree = with_systemd_boot(tree, LoaderEntryDefault=f"abc-{OLD}.efi")
    tree.file(f"/efi/EFI/Linux/abc-{OLD}+2-1.efi", b"MZ")
    assert next_of(tree) == OLD
    tree.file("/efi/EFI/Linux/arch-linux.efi", b"MZ")
    tree.file(EFIVARS.format("LoaderEntryDefault"), b"\x06\x00\x00\x00" + "arch-linux.efi\0".encode("utf-16-le"))
    host = tree.host()
    kernel.observe(host)
    assert "arch-linux.efi" in host.unknown_facts["kernel.next"]


def test_images_without_a_default_have_no_first_one_that_is_known(tree: Tree) -> None:
    tree = with_systemd_boot(tree)
    tree.file(f"/efi/EFI/Linux/abc-{OLD}.efi", b"MZ")
    host = tree.host()
    kernel.observe(host)
    assert "unified kernel images" in host.unknown_facts["kernel.next"]


@pytest.mark.parametrize("default", ["auto-windows", "auto-reboot-to-firmware-setup"])
def test_a_default_that_is_no_linux_is_not_guessed_silently(tree: Tree, default: str) -> None:
    host = with_systemd_boot(tree, LoaderEntryDefault=default).host()
    kernel.observe(host)
    assert default in host.unknown_facts["kernel.next"]


def test_two_boot_loaders_of_which_none_says_that_it_is_in_charge_are_unknown(tree: Tree) -> None:
    with_systemd_boot(tree, LoaderInfo="").file("/boot/EFI/systemd/systemd-bootx64.efi", b"MZ")
    host = tree.host()
    kernel.observe(host)
    assert "both installed" in host.unknown_facts["kernel.next"]
    tree.file(EFIVARS.format("LoaderInfo"), b"\x06\x00\x00\x00" + "GRUB 2.12\0".encode("utf-16-le"))
    assert next_of(tree) == NEW


def test_without_boot_loader_the_newest_installed_kernel_is_next(tree: Tree) -> None:
    seen = kernel.observe(with_kernels(tree).host())
    assert (seen["next"], seen["next_source"]) == (NEW, "newest installed kernel")
    assert seen["installed"] == [OLD, NEW]


def test_without_any_kernel_the_running_one_is_next(tree: Tree) -> None:
    tree.file("/proc/sys/kernel/osrelease", OLD)
    assert kernel.observe(tree.host())["next"] == OLD


def test_modules_of_a_removed_kernel_make_no_installed_kernel(tree: Tree) -> None:
    with_kernels(tree).file("/lib/modules/6.9.0-1-generic/modules.dep")
    assert kernel.observe(tree.host())["installed"] == [OLD, NEW]


def test_headers_are_those_that_a_module_can_be_built_with(tree: Tree) -> None:
    tree.file(f"/usr/src/linux-headers-{NEW}/.config")
    tree.directory("/usr/src/linux-headers-6.8.0-101")
    tree.link(f"/lib/modules/{OLD}/build", f"/usr/src/linux-headers-{OLD}")
    assert kernel.headers(tree.host()) == [NEW]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0", "gcc 13.2"),
        ("Linux version 6.1.0 (x@y) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld) #1", "gcc 12.2"),
        ("gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)", "gcc 11.4"),
        ("clang version 18.1.3", "clang 18.1"),
        ("something else", None),
    ],
)
def test_the_compiler_of_a_kernel_is_read_from_its_own_words(text: str, said: str | None) -> None:
    assert kernel.compiler_text(text) == said


def test_the_compiler_on_the_machine_is_the_one_of_the_kernels_major_version(tree: Tree) -> None:
    tree.file(f"/boot/config-{NEW}", 'CONFIG_CC_VERSION_TEXT="gcc-13 (Debian 13.3.0-1) 13.3.0"\n')
    with_kernels(tree).packages({"gcc": "4:14.2.0-1", "gcc-14": "14.2.0-19", "gcc-13": "13.3.0-13"})
    tree.program("/usr/bin/gcc-14")
    tree.link("/usr/bin/gcc", "gcc-14")
    assert kernel.observe(tree.host())["compiler"] == {"built_with": "gcc 13.3", "available": "14.2"}
    tree.program("/usr/bin/gcc-13")
    assert kernel.observe(tree.host())["compiler"]["available"] == "13.3"


def test_loaded_modules_come_from_sysfs_and_only_gpu_modules_count(tree: Tree) -> None:
    tree.file("/sys/module/nvidia/version", "580.95.05\n")
    tree.file("/sys/module/nvidia/initstate", "live\n")
    tree.file("/sys/module/nouveau/initstate", "going\n")
    tree.directory("/sys/module/nova_core")
    tree.directory("/sys/module/ext4")
    assert kernel.loaded(tree.host()) == {"nova_core": {"version": None}, "nvidia": {"version": "580.95.05"}}


def test_debians_module_name_is_found_for_the_next_kernel(tree: Tree) -> None:
    with_kernels(tree).file(
        f"/lib/modules/{NEW}/modules.dep", "updates/dkms/nvidia-current.ko.xz:\nkernel/drivers/video/nvidiafb.ko:\n"
    )
    path = f"{tree.root}/lib/modules/{NEW}/updates/dkms/nvidia-current.ko.xz"
    programs = FakePrograms(
        {
            "modinfo": answer(
                f"filename:       {path}\nversion:        550.163.01\nlicense:        NVIDIA\nsigner:         DKMS key\nparm: x:y\n"
            )
        }
    )
    found = kernel.available(tree.host(programs), NEW)
    assert found == {
        "nvidia": {
            "name": "nvidia-current",
            "version": "550.163.01",
            "license": "NVIDIA",
            "signer": "DKMS key",
            "path": path,
        }
    }
    assert programs.calls == [["modinfo", "-b", str(tree.root), "-k", NEW, "nvidia-current"]]


def test_a_module_that_is_listed_and_gone_is_none(tree: Tree) -> None:
    """As modinfo of kmod 34.2 answers."""
    with_kernels(tree).file(f"/lib/modules/{NEW}/modules.dep", "updates/dkms/nvidia.ko:\n")
    path = f"/lib/modules/{NEW}/updates/dkms/nvidia.ko"
    error = "modinfo: ERROR: could not get modinfo from 'nvidia': No such file or directory\n"
    host = tree.host(FakePrograms({"modinfo": answer(f"filename:       {path}\n", err=error, rc=1)}))
    assert kernel.available(host, NEW) == {}


@pytest.mark.parametrize(
    ("listed", "there", "found"),
    [
        ("", "extra/nvidia.ko.xz", True),
        ("", "updates/dkms/nvidia.ko", True),
        ("extra/nvidia.ko.xz:\n", "extra/nvidia.ko.xz", False),
        ("", "kernel/drivers/net/ethernet/nvidia/forcedeth.ko", False),
    ],
)
def test_a_module_that_the_list_does_not_name_is_told(tree: Tree, listed: str, there: str, found: bool) -> None:
    with_kernels(tree).file(f"/lib/modules/{NEW}/modules.dep", "kernel/fs/ext4.ko:\n" + listed)
    tree.file(f"/lib/modules/{NEW}/{there}", "module")
    assert kernel.unlisted(tree.host(), NEW) == (f"/lib/modules/{NEW}/{there}" if found else None)


def test_a_kernel_without_the_module_costs_no_program(tree: Tree) -> None:
    with_kernels(tree).file(f"/lib/modules/{NEW}/modules.dep", "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\n")
    programs = FakePrograms()
    assert kernel.available(tree.host(programs), NEW) == {}
    assert programs.calls == []


def test_a_modinfo_that_fails_makes_the_module_unknown(tree: Tree) -> None:
    with_kernels(tree).file(f"/lib/modules/{NEW}/modules.dep", "updates/nvidia.ko:\n")
    tree.program("/usr/sbin/modinfo")
    host = tree.host()
    assert kernel.available(host, NEW) == {}
    assert "modinfo" in host.unknown_facts["kernel.available"]


def test_the_initramfs_is_searched_for_nouveau_and_the_blacklist(tree: Tree) -> None:
    with_kernels(tree).file(f"/boot/initrd.img-{NEW}")
    tree.program("/usr/bin/lsinitramfs")
    tree.file("/etc/modprobe.d/gpuwright-nouveau.conf", "blacklist nouveau\n")
    listing = "usr/lib/modules/x/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst\netc/modprobe.d/gpuwright-nouveau.conf\n"
    host = tree.host(FakePrograms({"lsinitramfs": answer(listing)}))
    seen = kernel.initramfs(host, NEW)
    kernel.look_inside(host, seen)
    assert (seen["nouveau_inside"], seen["blacklist_inside"]) == (True, True)


@pytest.mark.parametrize(
    ("listed", "image", "file", "current"),
    [
        ("etc/modprobe.d/gpuwright-nouveau.conf", 10, 10, True),
        ("etc/modprobe.d/gpuwright-nouveau.conf", 10, 11, False),
        ("etc/modprobe.d/gpuwright-nouveau.conf", 10, None, False),
        ("etc/modprobe.d/of-somebody-else.conf", 10, 10, False),
    ],
)
def test_our_blacklist_is_current_where_it_is_inside_and_not_newer_than_the_image(
    tree: Tree, listed: str, image: int, file: int | None, current: bool
) -> None:
    os.utime(with_kernels(tree).file(f"/boot/initrd.img-{NEW}"), (image, image))
    tree.program("/usr/bin/lsinitramfs")
    if file is not None:
        os.utime(tree.file(nouveau_blacklist.BLACKLIST, "blacklist nouveau\n"), (file, file))
    host = tree.host(FakePrograms({"lsinitramfs": answer(listed)}))
    seen = kernel.initramfs(host, NEW)
    kernel.look_inside(host, seen)
    assert seen["blacklist_current"] is current


@pytest.mark.parametrize(
    ("programs", "tool"),
    [
        (["update-initramfs", "mkinitramfs"], "update-initramfs"),
        (["update-initramfs", "mkinitramfs", "dracut"], "update-initramfs"),
        (["update-initramfs", "dracut"], "dracut"),
        (["dracut"], "dracut"),
        ([], None),
    ],
)
def test_the_initramfs_is_made_by_the_program_that_makes_it_here(
    tree: Tree, programs: list[str], tool: str | None
) -> None:
    for name in programs:
        tree.program(f"/usr/sbin/{name}")
    assert kernel.initramfs(tree.host(FakePrograms({})), NEW)["tool"] == tool


def test_the_initramfs_is_listed_only_for_who_asks(tree: Tree) -> None:
    """A run's roles look at the node some twenty times; each listing unpacks the whole of it several times."""
    with_kernels(tree).file(f"/boot/initrd.img-{NEW}")
    tree.h100("0000:1b:00.0")
    tree.program("/usr/bin/lsinitramfs")
    for asked in (False, True):
        programs = FakePrograms({"lsinitramfs": answer("etc/modprobe.d/other.conf\n")})
        facts = observe(tree.host(programs), initramfs=asked)
        assert facts["kernel"]["initramfs"]["blacklist_inside"] is (False if asked else None)
        assert ("kernel.initramfs.nouveau_inside" in facts["unknown"]) is not asked
        assert any("lsinitramfs" in call[0] for call in programs.calls) is asked


def test_an_initramfs_that_cannot_be_listed_is_unknown(tree: Tree) -> None:
    with_kernels(tree).file(f"/boot/initrd.img-{NEW}")
    host = tree.host(FakePrograms({"lsinitr": answer("", 1, "cannot open")}))
    seen = kernel.initramfs(host, NEW)
    kernel.look_inside(host, seen)
    assert (seen["nouveau_inside"], seen["blacklist_current"]) == (None, None)
    assert "cannot open" in host.unknown_facts["kernel.initramfs.blacklist_current"]
    assert "cannot open" in host.unknown_facts["kernel.initramfs.nouveau_inside"]


@pytest.mark.parametrize("ending", [".ko", ".ko.xz", ".ko.gz"])
def test_without_modinfo_the_modules_own_file_tells(tree: Tree, ending: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {".ko": bytes, ".ko.xz": lzma.compress, ".ko.gz": gzip.compress}
    pack = packers[ending]
    path = f"/lib/modules/{NEW}/updates/dkms/nvidia{ending}"
    with_kernels(tree).file(path, pack(elf.nvidia("nvidia", "580.95.05", NEW, open_source=True)))
    lines = f"updates/dkms/nvidia-modeset{ending}: updates/dkms/nvidia{ending}\nupdates/dkms/nvidia{ending}:\n"
    tree.file(f"/lib/modules/{NEW}/modules.dep", lines)
    host = tree.host()
    assert kernel.available(host, NEW) == {
        "nvidia": {"name": "nvidia", "version": "580.95.05", "license": "Dual MIT/GPL", "signer": None, "path": path}
    }
    assert host.unknown_facts == {}


@pytest.mark.parametrize(
    ("ending", "content"),
    [(".ko", b"\x7fELF\x02\x01 cut"), (".ko", b"no module"), (".ko.xz", b"junk"), (".ko.zst", b"x")],
)
def test_a_module_file_that_cannot_be_read_is_unknown(tree: Tree, ending: str, content: bytes) -> None:
    path = f"/lib/modules/{NEW}/updates/nvidia{ending}"
    with_kernels(tree).file(path, content)
    tree.file(f"/lib/modules/{NEW}/modules.dep", f"updates/nvidia{ending}:\n")
    host = tree.host()
    assert kernel.available(host, NEW) == {}
    assert path in host.unknown_facts["kernel.available"]


def test_a_signed_module_without_modinfo_has_an_unknown_signer(tree: Tree) -> None:
    path = f"/lib/modules/{NEW}/updates/nvidia.ko"
    with_kernels(tree).file(
        path, elf.nvidia("nvidia", "580.95.05", NEW, open_source=True) + b"signature~Module signature appended~\n"
    )
    tree.file(f"/lib/modules/{NEW}/modules.dep", "updates/nvidia.ko:\n")
    host = tree.host()
    assert kernel.available(host, NEW)["nvidia"]["signer"] is None
    assert "kernel.available.nvidia.signer" in host.unknown_facts


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (
            "/etc/modprobe.d/blacklist-nvidia.conf",
            "# a switch\nalias  nvidia off\nalias nvidia-drm off\n",
            "alias nvidia off",
        ),
        ("/lib/modprobe.d/x.conf", "  blacklist nvidia\n", "blacklist nvidia"),
        ("/etc/modprobe.d/y.conf", "install nvidia /bin/false\n", "install nvidia /bin/false"),
        ("/proc/cmdline", "ro quiet module_blacklist=nouveau,nvidia splash\n", "module_blacklist=nouveau,nvidia"),
        ("/proc/cmdline", "ro modprobe.blacklist=nvidia\n", "modprobe.blacklist=nvidia"),
    ],
)
def test_what_keeps_the_module_out_is_told_with_its_file(tree: Tree, path: str, text: str, line: str) -> None:
    tree.file(path, text)
    assert kernel.kept_out(tree.host()) == [{"file": path, "line": line}]


def test_what_leaves_the_module_alone_is_not_told(tree: Tree) -> None:
    tree.file(
        "/etc/modprobe.d/nvidia.conf",
        "blacklist nouveau\nalias nvidia nvidia-current\nblacklist nvidia-drm\n#blacklist nvidia\noptions nvidia NVreg_x=1\n"
        "install nvidia /sbin/modprobe -i nvidia-current $CMDLINE_OPTS\n",
    )
    tree.file("/proc/cmdline", "modprobe.blacklist=nouveau nvidia-drm.modeset=1 quiet\n")
    assert kernel.kept_out(tree.host()) == []
    assert "kept_out" not in kernel.observe(tree.host())
