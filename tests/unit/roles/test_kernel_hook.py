"""The kernel hook itself, in a root of its own, with the programs that it asks replaced on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[3] / "roles/nvidia_driver/files/kernel-hook.sh"
OLD, NEW, NEWER = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64", "6.12.117+deb13-amd64"
UUID = "0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11"
VERSION = "550.163.01"

#: A module is a file modules/NAME with its version inside, below /lib/modules/KERNEL.
MODINFO = """#!/bin/sh
cat "$GPUWRIGHT_ROOT/lib/modules/$2/modules/$5" 2>/dev/null || { echo "modinfo: ERROR: Module $5 not found." >&2; exit 1; }
"""
MODPROBE = """#!/bin/sh
[ "$1 $2 $3" = "-n -q -S" ] && [ -e "$GPUWRIGHT_ROOT/lib/modules/$4/modules/$5" ] && [ ! -e "$GPUWRIGHT_ROOT/lib/modules/$4/broken" ]
"""
DKMS = """#!/bin/sh
echo "dkms $*" >>"$GPUWRIGHT_ROOT/calls"
[ -e "$GPUWRIGHT_ROOT/builds" ] || { echo "Error! Bad return status for module build on kernel: $3 (x86_64)" >&2; exit 10; }
mkdir -p "$GPUWRIGHT_ROOT/lib/modules/$3/modules" && cat "$GPUWRIGHT_ROOT/builds" >"$GPUWRIGHT_ROOT/lib/modules/$3/modules/nvidia"
"""
#: The menu as the real grub-mkconfig 2.12 writes it, by the same settings.
UPDATE_GRUB = f"""#!/bin/sh
echo update-grub >>"$GPUWRIGHT_ROOT/calls"
GRUB_DEFAULT=$(cat "$GPUWRIGHT_ROOT/grub-default" 2>/dev/null || echo 0)
[ ! -e "$GPUWRIGHT_ROOT/etc/default/grub.d/gpuwright.cfg" ] || . "$GPUWRIGHT_ROOT/etc/default/grub.d/gpuwright.cfg"
entry() {{
    printf "%smenuentry 'GNU/Linux, with Linux %s' --class os \\$menuentry_id_option 'gnulinux-%s-%s-{UUID}' {{\\n" "$1" "$2" "$2" "$3"
    printf "%s\\tlinux /boot/vmlinuz-%s ro\\n%s}}\\n" "$1" "$2" "$1"
}}
{{
    echo 'if [ "${{next_entry}}" ] ; then'
    echo '   set default="${{next_entry}}"'
    echo else
    echo "   set default=\\"$GRUB_DEFAULT\\""
    echo fi
    kernels=$(ls "$GPUWRIGHT_ROOT/boot" | sed -n s/vmlinuz-//p | sort -Vr)
    printf "menuentry 'GNU/Linux' --class os \\$menuentry_id_option 'gnulinux-simple-{UUID}' {{\\n\\tlinux x\\n}}\\n"
    printf "submenu 'Advanced options' \\$menuentry_id_option 'gnulinux-advanced-{UUID}' {{\\n"
    for kernel in $kernels; do entry "	" $kernel advanced; entry "	" $kernel recovery; done
    echo "}}"
}} >"$GPUWRIGHT_ROOT/boot/grub/grub.cfg"
"""
LDCONFIG = """#!/bin/sh
cat "$GPUWRIGHT_ROOT/ldconfig" 2>/dev/null || true
"""
LOGGER = """#!/bin/sh
echo "$*" >>"$GPUWRIGHT_ROOT/journal"
"""


class Machine:
    """A root with kernels, modules and a boot menu, and the hook in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "fakes"
        for name, text in (
            ("modinfo", MODINFO),
            ("modprobe", MODPROBE),
            ("dkms", DKMS),
            ("ldconfig", LDCONFIG),
            ("logger", LOGGER),
        ):
            self.program(name, text)
        # Nothing but these fakes and the plain tools: the machine that runs the test has boot loaders of its own.
        for name in (
            "awk",
            "cat",
            "chmod",
            "grep",
            "head",
            "ls",
            "mkdir",
            "mv",
            "readlink",
            "rm",
            "rmdir",
            "sed",
            "sh",
            "sort",
            "tail",
        ):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        (root / "boot/grub").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "etc/debian_version").touch()
        self.hook = self.install("etc/kernel/postinst.d/zz-gpuwright")

    def install(self, path: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOOK, place)
        place.chmod(0o755)
        return place

    def program(self, name: str, text: str) -> None:
        self.bin.mkdir(exist_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def grub(self) -> None:
        self.program("update-grub", UPDATE_GRUB)
        self.run_program("update-grub")
        (self.root / "calls").unlink()

    def run_program(self, name: str) -> None:
        subprocess.run([str(self.bin / name)], env=self.environment, check=True)

    def kernel(self, release: str, module: str | None = None, name: str = "nvidia") -> None:
        (self.root / f"boot/vmlinuz-{release}").touch()
        folder = self.root / "lib/modules" / release / "modules"
        folder.mkdir(parents=True, exist_ok=True)
        if module:
            (folder / name).write_text(f"{module}\n")

    def libraries(self, version: str) -> None:
        folder = self.root / "usr/lib"
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / f"libnvidia-ml.so.{version}"
        library.touch()
        link = folder / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
        (self.root / "ldconfig").write_text(f"\tlibnvidia-ml.so.1 (libc6,x86-64) => {link}\n")

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "GPUWRIGHT_ROOT": str(self.root)}

    def call(self, *words: str, hook: Path | None = None) -> str:
        done = subprocess.run(
            [str(hook or self.hook), *words], capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def default(self) -> str:
        text = (self.root / "boot/grub/grub.cfg").read_text()
        (found,) = [
            line.split('"')[1] for line in text.splitlines() if "set default=" in line and "next_entry" not in line
        ]
        return found

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def motd(self) -> str:
        path = self.root / "etc/motd.d/gpuwright-kernel"
        return path.read_text() if path.exists() else ""

    @property
    def setting(self) -> Path:
        return self.root / "etc/default/grub.d/gpuwright.cfg"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.libraries(VERSION)
    made.kernel(OLD, VERSION)
    return made


def pinned(release: str) -> str:
    return f"gnulinux-advanced-{UUID}>gnulinux-{release}-advanced-{UUID}"


def test_a_kernel_with_its_module_changes_nothing(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW, VERSION, "nvidia-current")
    assert machine.call(NEW) == ""
    assert (machine.calls, machine.motd, machine.setting.exists()) == ([], "", False)


def test_a_kernel_without_module_is_built_for_once_more(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    (machine.root / "builds").write_text(VERSION + "\n")
    machine.call(NEW)
    assert machine.calls == [f"dkms autoinstall -k {NEW}"]
    assert (machine.default, machine.motd) == ("0", "")


def test_where_nothing_builds_the_newest_kernel_with_a_module_stays_the_default(machine: Machine) -> None:
    machine.kernel("6.12.63+deb13-amd64", VERSION)
    machine.grub()
    machine.kernel(NEW)
    said = machine.call(NEW)
    assert machine.default == pinned(OLD)
    assert f"kernel {NEW} has no NVIDIA module {VERSION}; the machine goes on booting {OLD}" in machine.motd
    assert "What to do" in machine.motd
    assert machine.motd in said
    journal = (machine.root / "journal").read_text()
    assert "user.warning" in journal
    assert "Bad return status for module build" in journal


def test_the_setting_is_taken_back_when_a_later_kernel_has_a_module(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    assert machine.default == pinned(OLD)
    machine.kernel(NEWER, VERSION)
    machine.call(NEWER)
    assert (machine.default, machine.motd, machine.setting.exists()) == ("0", "", False)
    assert list(machine.root.glob("etc/default/grub.d/*")) == []
    assert not (machine.root / "etc/motd.d").exists()


def test_the_setting_is_taken_back_when_the_headers_come_after_the_kernel(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    (machine.root / "builds").write_text(VERSION + "\n")
    machine.call(NEW, hook=machine.install("etc/kernel/header_postinst.d/zz-gpuwright"))
    assert (machine.default, machine.motd) == ("0", "")


def test_the_setting_is_taken_back_when_the_kernel_without_module_is_removed(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    (machine.root / f"boot/vmlinuz-{NEW}").unlink()
    calls = len(machine.calls)
    machine.call(NEW, hook=machine.install("etc/kernel/postrm.d/zz-gpuwright"))
    assert (machine.default, machine.motd) == ("0", "")
    assert not any(call.startswith("dkms") for call in machine.calls[calls:])


def test_to_be_called_again_changes_nothing(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    before = (machine.default, machine.setting.read_text(), machine.motd)
    calls = machine.calls.count("update-grub")
    machine.call()
    assert (machine.default, machine.setting.read_text(), machine.motd) == before
    assert machine.calls.count("update-grub") == calls


def test_where_dkms_ends_the_kernels_installation_the_next_menu_starts_the_old_kernel(machine: Machine) -> None:
    machine.grub()
    early = machine.install("etc/kernel/postinst.d/aa-gpuwright")
    machine.kernel(NEW)
    machine.call(NEW, hook=early)
    assert machine.calls == []  # neither DKMS nor a menu: that is not yet the time
    # DKMS's hook fails here, and run-parts calls no other. Later somebody makes the menu anew.
    machine.run_program("update-grub")
    assert machine.default == pinned(OLD)
    assert f"{NEW} has no NVIDIA module {VERSION} yet; the machine goes on booting {OLD}" in machine.motd


def test_where_dkms_succeeds_the_early_setting_is_taken_back_without_a_menu_of_its_own(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW, hook=machine.install("etc/kernel/postinst.d/aa-gpuwright"))
    machine.kernel(NEW, VERSION)
    machine.call(NEW)
    assert (machine.calls, machine.motd, machine.setting.exists()) == ([], "", False)


def test_a_module_of_another_version_than_the_libraries_does_not_count(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW, "535.261.03")
    machine.call(NEW)
    assert machine.default == pinned(OLD)


def test_a_module_whose_parts_modprobe_does_not_find_does_not_count(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW, VERSION)
    (machine.root / "lib/modules" / NEW / "broken").touch()
    machine.call(NEW)
    assert machine.default == pinned(OLD)


def test_without_libraries_any_version_counts(machine: Machine) -> None:
    (machine.root / "ldconfig").unlink()
    machine.grub()
    machine.kernel(NEW, "535.261.03")
    assert machine.call(NEW) == ""


@pytest.mark.parametrize("chosen", [f"gnulinux-advanced-{UUID}>gnulinux-{OLD}-advanced-{UUID}", "saved"])
def test_a_default_that_the_owner_chose_and_that_has_a_module_is_left_alone(machine: Machine, chosen: str) -> None:
    if chosen == "saved":
        (machine.root / "boot/grub/grubenv").write_text(f"# GRUB Environment Block\nsaved_entry={pinned(OLD)}\n")
        chosen = "${saved_entry}"
    (machine.root / "grub-default").write_text(chosen)
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    assert (machine.default, machine.motd, machine.setting.exists()) == (chosen, "", False)


def test_the_setting_is_void_where_the_hook_or_the_kernel_is_gone(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    machine.hook.unlink()
    machine.run_program("update-grub")
    assert machine.default == "0"


def test_forget_takes_everything_back(machine: Machine) -> None:
    machine.grub()
    machine.kernel(NEW)
    machine.call(NEW)
    machine.call("forget")
    assert (machine.default, machine.motd, machine.setting.exists()) == ("0", "", False)


def test_where_no_kernel_has_a_module_the_boot_loader_is_left_alone(machine: Machine) -> None:
    machine.grub()
    (machine.root / "lib/modules" / OLD / "modules/nvidia").unlink()
    machine.kernel(NEW)
    machine.call(NEW)
    assert machine.default == "0"
    assert "no other installed kernel has one" in machine.motd


def test_an_unknown_boot_loader_is_only_warned_of(machine: Machine) -> None:
    machine.kernel(NEW)
    machine.call(NEW)
    assert "could not be told" in machine.motd
    assert f"choose {OLD} in the boot menu" in machine.motd


def test_a_boot_loader_that_does_not_obey_is_told(machine: Machine) -> None:
    machine.grub()
    machine.program("update-grub", "#!/bin/sh\nexit 1\n")
    machine.kernel(NEW)
    machine.call(NEW)
    assert "could not be told" in machine.motd


def test_red_hats_boot_loader_is_set_by_grubby_and_only_our_own_setting_is_taken_back(machine: Machine) -> None:
    store = machine.root / "default-kernel"
    grubby = f'#!/bin/sh\n[ "$1" = --default-kernel ] && exec cat {store}\necho "$2" >{store}\n'
    machine.program("grubby", grubby)
    machine.hook.unlink()
    plugin = machine.install("etc/kernel/install.d/95-gpuwright.install")
    boot = f"{machine.root}/boot/vmlinuz-"
    machine.kernel(NEW)
    store.write_text(f"{boot}{NEW}\n")
    machine.call("add", NEW, "/boot/entry", "/image", hook=plugin)
    assert store.read_text() == f"{boot}{OLD}\n"
    # kernel-install makes the next kernel the default itself; that is the owner's setting and stays.
    machine.kernel(NEWER, VERSION)
    store.write_text(f"{boot}{NEWER}\n")
    machine.call("add", NEWER, "/boot/entry", "/image", hook=plugin)
    assert (store.read_text(), machine.motd) == (f"{boot}{NEWER}\n", "")
    assert not (machine.root / "var/lib/gpuwright/kernel-hook").exists()
    assert str(plugin) not in machine.motd


def test_red_hats_boot_loader_starts_the_kernel_again_once_its_module_is_there(machine: Machine) -> None:
    store = machine.root / "default-kernel"
    machine.program("grubby", f'#!/bin/sh\n[ "$1" = --default-kernel ] && exec cat {store}\necho "$2" >{store}\n')
    boot = f"{machine.root}/boot/vmlinuz-"
    machine.kernel(NEW)
    store.write_text(f"{boot}{NEW}\n")
    machine.call("add", NEW)
    assert store.read_text() == f"{boot}{OLD}\n"
    machine.kernel(NEW, VERSION)
    machine.call("add", NEW)
    assert store.read_text() == f"{boot}{NEW}\n"


def test_systemd_boot_is_set_by_the_name_of_the_entry(machine: Machine) -> None:
    machine.program("bootctl", '#!/bin/sh\n[ "$1" = is-installed ] || echo "$*" >>"$GPUWRIGHT_ROOT/bootctl"\n')
    entries = machine.root / "boot/loader/entries"
    entries.mkdir(parents=True)
    for release in (OLD, NEW):
        (entries / f"4c5d-{release}.conf").write_text(f"title Linux\nversion    {release}\nlinux /vmlinuz-{release}\n")
    machine.kernel(NEW)
    machine.call(NEW)
    assert (machine.root / "bootctl").read_text() == f"set-default 4c5d-{OLD}.conf\n"
    machine.kernel(NEW, VERSION)
    machine.call(NEW)
    assert (machine.root / "bootctl").read_text().splitlines()[1:] == ["set-default "]


def test_a_broken_machine_never_makes_the_kernels_installation_fail(machine: Machine) -> None:
    for name in ("modinfo", "modprobe", "dkms", "ldconfig", "logger"):
        machine.program(name, "#!/bin/sh\nexit 127\n")
    for name in ("sort", "sed", "mkdir"):
        (machine.bin / name).unlink()
    machine.kernel(NEW)
    machine.call(NEW)  # asserts the exit status


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_hook_is_clean() -> None:
    done = subprocess.run(["shellcheck", str(HOOK)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_grub_that_was_left_behind_decides_nothing_beside_systemd_boot(machine: Machine) -> None:
    machine.grub()
    machine.program("bootctl", '#!/bin/sh\n[ "$1" = is-installed ] || echo "$*" >>"$GPUWRIGHT_ROOT/bootctl"\n')
    entries = machine.root / "boot/loader/entries"
    entries.mkdir(parents=True)
    (entries / f"4c5d-{OLD}.conf").write_text(f"title Debian\nversion    {OLD}\n")
    info = machine.root / "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    info.parent.mkdir(parents=True)
    info.write_bytes(b"\x06\x00\x00\x00" + "systemd-boot 257\0".encode("utf-16-le"))
    machine.kernel(NEW)
    machine.call(NEW)
    assert (machine.root / "bootctl").read_text() == f"set-default 4c5d-{OLD}.conf\n"
    assert not (machine.root / "etc/default/grub.d/gpuwright.cfg").exists()
