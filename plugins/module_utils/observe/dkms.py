# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What DKMS left: builds of NVIDIA's module that failed, and the kernels that have one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import bootloader

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Dkms, FailedBuild

#: The last lines of a build log that are passed on: make says there what stopped it.
LOG_LINES = 12
_LINE = 1_000

_TREE = "/var/lib/dkms"
# Where DKMS puts the modules of a kernel on Debian and Ubuntu; on Fedora and Red Hat; and where Red Hat's weak-modules links those that a
# kernel shares with another. Source: dell/dkms, dkms.in 793fdab, override_dest_module_location and do_install.
_PLACES = ("updates/dkms", "extra", "weak-updates")
# DKMS before 3.1.4 writes "MODULE-VERSION" there, where the two cannot be told apart; the path of the log tells them.
_TITLE = re.compile(r"make\.log for \S+ for kernel (\S+)")
_PLACE = re.compile(_TREE + r"/([^/]+)/([^/]+)/build/make\.log")
# Where it keeps a version of a module; names that are none of a module are nobody's to remove.
_RECORD = re.compile(_TREE + r"(?:/[A-Za-z0-9_][A-Za-z0-9_.+~:-]{0,120}){2}")
_MOST = 100
# A kernel that the system's own upgrade brings is built for in the system's language. The words are those of the catalogues of gcc 12 and
# glibc 2.36; make translates its word between the brackets and the status.
_ERROR_WORDS = "error|fejl|Fehler|σφάλμα|virhe|erreur|greška|エラー|fout|ошибка|грешка|fel|hata|помилка|lỗi|错误|錯誤"
_COMPILER = re.compile(
    rf"\berror: |^\S+:\d+: (?:[^\s:：]{{1,20}} )?[^\s:：]{{0,4}}(?:{_ERROR_WORDS})(?: [^:：]{{1,20}})? ?[:：]",
    re.IGNORECASE,
)
_MAKE = re.compile(r"\*\*\* \[[^\[\]]*\] \S+ \d+|\bError \d+")
# A program of the build that is not there, as bash says it ("/bin/sh: line 1: g++: command not found"), dash, and make itself: their own
# words are in the system's language.
_NO_PROGRAM = re.compile(
    r"^(?:\S*/)?(?:ba|da)?sh: (?:[^:]{1,20} )?\d{1,6}: [\w+.-]{1,40}: "
    r"|^make(?:\[\d{1,3}\])?: [\w+.-]{1,40}: No such file or directory"
)
# What NVIDIA's own tests before the build say (conftest.sh), and the kernel's Makefile: that ends it long before the last lines.
_TEST = re.compile(r"^(?:ERROR: |\*\*\* (?!\[)|.{1,80}\bcheck failed[:.]?$|Unable to \w+ )")
# Neither the disk nor the memory had room, or the compiler was killed for it.
_NO_ROOM = (
    "No space left on device|Cannot allocate memory|Killed",
    "kein Speicherplatz mehr verfügbar|Nicht genügend Hauptspeicher|Getötet",
    "Aucun espace disponible|Ne peut allouer de la mémoire|Processus arrêté",
    "No queda espacio en el dispositivo|No se pudo asignar memoria|Terminado [(]killed[)]",
    "Spazio esaurito|Impossibile allocare memoria|Ucciso",
    "Não há espaço disponível|Sem espaço livre no dispositivo|Não foi possível alocar memória|Impossível alocar memória|Morto",
    "не осталось свободного места|Невозможно выделить память|Убито",
    "Недостатньо місця на пристрої|Не вдалося розподілити пам|Вбито",
    "Brak miejsca na urządzeniu|Nie można przydzielić pamięci|Unicestwiony",
    "Na zařízení není volné místo|Nelze alokovat paměť|Zabit [(]SIGKILL[)]",
    "Geen ruimte meer over|Onvoldoende geheugen beschikbaar|Geëlimineerd",
    "Enheten är full|Kan inte allokera minne|Dödad",
    "Ikke mere plads på enheden|Kan ikke tildele hukommelse|Dræbt",
    "Laitteella ei ole tilaa jäljellä|Muistin varaaminen ei onnistu|Tapettu",
    "Aygıt üzerinde boş yer yok|Bellek ayrılamadı|Süreç durduruldu",
    "Không có đủ chỗ trống trên thiết bị|Không thể cấp phát bộ nhớ|Bị buộc kết thúc",
    "デバイスに空き領域がありません|メモリを確保できません|強制終了",
    "장치에 남은 공간이 없음|메모리를 할당할 수 없습니다|죽었음",
    "设备上没有空间|无法分配内存|已杀死",
    "裝置上已無多餘空間|無法配置記憶體|強制結束",
)
_TRANSIENT = re.compile("|".join(_NO_ROOM))


def failed_build(text: str, path: str) -> FailedBuild | None:
    """What the log of a build tells: its module, version and kernel, and its end. None for a text that is no such log.

    ``transient``: it was not the source that failed, but the disk or the memory. ``compiler``: the compiler refused the source, and
    would again.
    """
    title, place = _TITLE.search(text[:400]), _PLACE.fullmatch(path)
    if title is None or place is None:
        return None
    lines = [line[:_LINE] for line in text.splitlines() if line.strip()]
    transient = _TRANSIENT.search(text) is not None
    refused = [line for line in lines if _COMPILER.search(line)]
    errors = [line for line in lines if _NO_PROGRAM.search(line) or _TEST.search(line)]
    errors += [line for line in lines if _COMPILER.search(line) or _MAKE.search(line)]
    return {
        "module": place[1],
        "version": place[2],
        "kernel": title[1],
        "log": path,
        "errors": errors[:3],
        "end": lines[-LOG_LINES:],
        "transient": transient,
        "compiler": not transient and bool(refused),
        "left_out": False,
    }


def left_out_by(build: FailedBuild) -> str:
    """The file in which DKMS is told to leave this build of a module out: for this version and kernel alone."""
    return "/etc/dkms/{module}-{version}-{kernel}.conf".format(**build)


def _without_source(host: Host) -> list[str]:
    """The directories of DKMS that have no source: it ends at the first of them, and builds for no kernel that comes."""
    if not host.glob(_TREE + "/nvidia*"):
        return []
    places = [place for place in host.glob(_TREE + "/*/*", "dkms.without_source") if _RECORD.fullmatch(place)]
    gone = [place for place in places if host.link(place + "/source") and not host.exists(place + "/source/dkms.conf")]
    return gone[:_MOST]


def observe(host: Host, kernels: list[str]) -> Dkms:
    """The part `dkms`. Where a build goes well, DKMS takes its directory away: a log that is still there is one that did not."""
    failed = []
    for path in host.glob(_TREE + "/nvidia*/*/build/make.log", "dkms.failed"):
        found = failed_build(host.read(path, "dkms.failed") or "", path)
        if found is not None:
            found["left_out"] = host.exists(left_out_by(found))
            failed.append(found)
    built = [
        name
        for name in kernels
        if any(host.glob(f"/lib/modules/{name}/{place}/nvidia*.ko*", "dkms.kernels") for place in _PLACES)
    ]
    return {
        "failed": failed,
        "without_source": _without_source(host),
        "kernels": sorted(built, key=versions.key),
        "boot_entries": bootloader.grub_entries(host) if failed else {},
    }
