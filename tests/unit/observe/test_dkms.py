"""What DKMS left of a build that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import bootloader, dkms

_OLD, _NEW = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"
_LOG = f"""DKMS (dkms-3.2.2) make.log for nvidia-current-open/550.163.01 for kernel {_NEW} (x86_64)
Wed Nov 18 20:11:40 UTC 2026

Building module(s)
# command: make -j2 KERNEL_UNAME={_NEW} modules
nvidia/nv-pci.c:292:13: error: too few arguments to function 'pci_resize_resource'
make[2]: *** [scripts/Makefile.build:249: nvidia/nv-pci.o] Error 1

# exit code: 2
"""
_GRUB = f"""set default="0"
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-0c5d' {{
	linux	/boot/vmlinuz-{_NEW} root=UUID=0c5d ro quiet
}}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-0c5d' {{
	menuentry 'Debian GNU/Linux, with Linux {_NEW}' $menuentry_id_option 'gnulinux-{_NEW}-advanced-0c5d' {{
		linux	/boot/vmlinuz-{_NEW} root=UUID=0c5d ro quiet
	}}
	menuentry 'Debian GNU/Linux, with Linux {_OLD}' $menuentry_id_option 'gnulinux-{_OLD}-advanced-0c5d' {{
		linux	/boot/vmlinuz-{_OLD} root=UUID=0c5d ro quiet
	}}
	menuentry 'Debian GNU/Linux, with Linux {_OLD} (recovery mode)' $menuentry_id_option 'gnulinux-{_OLD}-recovery-0c5d' {{
		linux	/boot/vmlinuz-{_OLD} root=UUID=0c5d ro single
	}}
}}
"""


def _write(root: Path, files: dict[str, str]) -> Host:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(str(root))


def _node(root: Path, log: str = _LOG) -> Host:
    return _write(
        root,
        {
            "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log": log,
            f"var/lib/dkms/nvidia-current-open/550.163.01/{_OLD}/x86_64/log/make.log": _LOG,
            f"lib/modules/{_OLD}/updates/dkms/nvidia-current-open.ko.xz": "",
            f"lib/modules/{_NEW}/modules.dep": "",
            "boot/grub/grub.cfg": _GRUB,
        },
    )


def test_a_failed_build_is_told_with_its_kernel_the_error_and_the_end_of_its_log(tmp_path: Path) -> None:
    seen = dkms.observe(_node(tmp_path), [_OLD, _NEW])
    (build,) = seen["failed"]
    assert (build["module"], build["version"], build["kernel"]) == ("nvidia-current-open", "550.163.01", _NEW)
    assert "pci_resize_resource" in build["errors"][0]
    assert build["end"][-1] == "# exit code: 2"
    assert not build["transient"]
    assert build["compiler"]
    assert not build["left_out"]
    assert seen["kernels"] == [_OLD]
    assert seen["boot_entries"][_OLD] == f"gnulinux-advanced-0c5d>gnulinux-{_OLD}-advanced-0c5d"


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: line 1: g++: command not found",
        "/bin/sh: 1: g++: not found",
        "/bin/sh: Zeile 1: g++: Kommando nicht gefunden.",
        "make[1]: g++: No such file or directory",
    ],
)
def test_a_program_that_the_build_did_not_find_comes_first(tmp_path: Path, line: str) -> None:
    lines = "make[1]: *** [Makefile:219: _out/dp_auxretry.o] Error 127\n" + line + "\n# exit code: 2\n"
    log = f"DKMS make.log for nvidia-open/570.124.06 for kernel {_NEW} (x86_64)\n{lines}"
    (build,) = dkms.observe(_node(tmp_path, log), [_NEW])["failed"]
    assert build["errors"][0] == line
    assert not build["compiler"], "another compiler would build it"


@pytest.mark.parametrize("place", ["extra", "weak-updates"])
def test_a_kernel_has_its_module_where_red_hats_dkms_puts_it(tmp_path: Path, place: str) -> None:
    host = _write(tmp_path, {f"lib/modules/{_OLD}/{place}/nvidia.ko.xz": "", f"lib/modules/{_NEW}/modules.dep": ""})
    assert dkms.observe(host, [_OLD, _NEW])["kernels"] == [_OLD]


def test_the_log_of_an_older_dkms_is_read_too(tmp_path: Path) -> None:
    """As DKMS 3.0 begins it (Debian 12, Ubuntu 24.04)."""
    older = _LOG.replace("DKMS (dkms-3.2.2) make.log", "DKMS make.log").replace("open/550", "open-550")
    assert "for nvidia-current-open-550.163.01 for" in older
    (build,) = dkms.observe(_node(tmp_path, older), [_OLD, _NEW])["failed"]
    assert (build["module"], build["version"], build["kernel"]) == ("nvidia-current-open", "550.163.01", _NEW)


def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path) -> None:
    full = _LOG.replace(
        "error: too few arguments to function 'pci_resize_resource'", "fatal error: No space left on device"
    )
    (build,) = dkms.observe(_node(tmp_path, full), [_OLD, _NEW])["failed"]
    assert (build["transient"], build["compiler"]) == (True, False)


#: How gcc 12, make 4.3 and glibc 2.36 say it, by their catalogues (packages gcc-12-locales, make and libc-l10n of Debian 12).
_LANGUAGES = {
    "de": (
        "Fehler: zu wenige Argumente für Funktion »f«",
        ": {}] Fehler 1",
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    ),
    "fr": (
        "erreur: trop peu d'arguments pour la fonction « f »",
        " : {}] Erreur 1",
        "Aucun espace disponible sur le périphérique",
    ),
    "es": ("error: faltan argumentos para la función ‘f’", ": {}] Error 1", "No queda espacio en el dispositivo"),
    "ru": (
        "ошибка: слишком мало аргументов в вызове «f»",
        ": {}] Ошибка 1",
        "На устройстве не осталось свободного места",
    ),
    "ja": ("エラー: 関数 ‘f’ への引数が少なすぎます", ": {}] エラー 1", "デバイスに空き領域がありません"),
    "zh_CN": ("错误：提供给函数‘f’的实参太少", "：{}] 错误 1", "设备上没有空间"),
    "zh_TW": ("錯誤：提供給函式「f」的引數太少", "：{}] 錯誤 1", "裝置上已無多餘空間"),
    "C.UTF-8": ("error: too few arguments to function ‘f’", ": {}] Error 1", "No space left on device"),
}


@pytest.mark.parametrize("language", _LANGUAGES)
def test_the_log_of_a_compiler_that_speaks_another_language_is_read(tmp_path: Path, language: str) -> None:
    error, status, full = _LANGUAGES[language]
    localised = _LOG.replace("error: too few arguments to function 'pci_resize_resource'", error)
    localised = localised.replace(": nvidia/nv-pci.o] Error 1", status.format("nvidia/nv-pci.o"))
    (build,) = dkms.observe(_node(tmp_path, localised), [_OLD, _NEW])["failed"]
    assert (build["transient"], build["compiler"], len(build["errors"])) == (False, True, 2)
    (build,) = dkms.observe(_node(tmp_path, localised.replace(error, full)), [_OLD, _NEW])["failed"]
    assert (build["transient"], build["compiler"]) == (True, False)


def test_a_warning_of_a_compiler_that_speaks_another_language_refuses_nothing(tmp_path: Path) -> None:
    warned = (
        _LOG.partition("nvidia/nv-pci.c")[0] + "nvidia/nv-pci.c:292:13: Warnung: Variable »f« wird nicht verwendet\n"
    )
    (build,) = dkms.observe(_node(tmp_path, warned), [_OLD, _NEW])["failed"]
    assert (build["transient"], build["compiler"], build["errors"]) == (False, False, [])


def test_a_build_that_was_cut_off_may_go_well_the_next_time(tmp_path: Path) -> None:
    (build,) = dkms.observe(_node(tmp_path, _LOG.partition("nvidia/nv-pci.c")[0]), [_OLD, _NEW])["failed"]
    assert (build["transient"], build["compiler"]) == (False, False)


def test_a_build_that_is_left_out_says_so(tmp_path: Path) -> None:
    host = _node(tmp_path)
    _write(tmp_path, {f"etc/dkms/nvidia-current-open-550.163.01-{_NEW}.conf": ""})
    assert dkms.observe(host, [_OLD, _NEW])["failed"][0]["left_out"]


def test_a_version_whose_source_is_gone_is_told_whosever_it_is(tmp_path: Path) -> None:
    host = _node(tmp_path)
    _write(tmp_path, {"usr/src/nvidia-580/dkms.conf": "", "usr/src/empty/Makefile": ""})
    for name, source in (
        ("nvidia/580", "/usr/src/nvidia-580"),
        ("nvidia/570", "/usr/src/nvidia-570"),
        ("xpadneo/0.9", "/usr/src/empty"),
        ("evil/$(reboot)", "/usr/src/nothing"),
    ):
        place = tmp_path / "var/lib/dkms" / name
        place.mkdir(parents=True)
        (place / "source").symlink_to(source)
    (tmp_path / "var/lib/dkms/nvidia/kernel-6.1-x86_64").symlink_to("580")
    gone = dkms.observe(host, [_OLD, _NEW])["without_source"]
    assert gone == ["/var/lib/dkms/nvidia/570", "/var/lib/dkms/xpadneo/0.9"]


def test_the_modules_of_others_are_nobodys_matter_where_dkms_builds_no_driver(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dkms/xpadneo/0.9").mkdir(parents=True)
    (tmp_path / "var/lib/dkms/xpadneo/0.9/source").symlink_to("/usr/src/xpadneo-0.9")
    assert dkms.observe(Host(str(tmp_path)), [_OLD])["without_source"] == []


def test_a_machine_without_dkms_has_nothing_to_tell(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert dkms.observe(host, [_OLD]) == {"failed": [], "without_source": [], "kernels": [], "boot_entries": {}}
    assert not host.unknown_facts


def test_a_log_that_dkms_did_not_write_is_not_believed(tmp_path: Path) -> None:
    assert dkms.observe(_node(tmp_path, "make: nothing to be done\n"), [_OLD, _NEW])["failed"] == []


def test_the_first_entry_of_the_menu_is_not_taken_for_the_kernel_it_starts_now(tmp_path: Path) -> None:
    """It starts whatever is the newest, so as a default it holds nothing."""
    entries = bootloader.grub_entries(_node(tmp_path))
    assert entries == {name: f"gnulinux-advanced-0c5d>gnulinux-{name}-advanced-0c5d" for name in (_NEW, _OLD)}
