# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which kernel the boot loader will start next: GRUB's menu, or entries of the boot loader specification.

Which one is in charge, its own variable in the firmware says (LoaderInfo, of the boot loader interface): a file that another one has left
behind says nothing. What cannot be told is unknown.
"""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Iterator, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

_GRUB_DIRECTORIES = ("/boot/grub", "/boot/grub2")
#: Where the partition of the firmware may be mounted.
_PARTITIONS = ("/boot", "/efi", "/boot/efi")
_EFIVARS = "/sys/firmware/efi/efivars/{}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_GRUB, _SYSTEMD_BOOT = "GRUB", "systemd-boot"
#: The tries that are left of an entry that is counted, in its file's name (systemd's automatic boot assessment).
_TRIES = re.compile(r"\+\d+(?:-\d+)?(?=\.(?:conf|efi)$)")
_ENTRY_DIRECTORIES = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")

# The beginning of a line whose end, the brace, was taken away: a pattern for both would take minutes for a long line that is none.
_OPENER = re.compile(r"""(menuentry|submenu|function)\s+(?:'((?:[^']|'\\'')*)'|"([^"]*)"|(\S+))""")
_ID = re.compile(r"""(?:\$\{?menuentry_id_option\}?|--id)\s+(?:'([^']*)'|"([^"]*)"|(\S+))""")
_LINUX = re.compile(r"^[ \t]*linux(?:16|efi)?\s+(\S+)", re.MULTILINE)
_DEFAULT = re.compile(r"""^[ \t]*set[ \t]+default=["']?([^"'\n]*)["']?[ \t]*$""", re.MULTILINE)


class Choice(NamedTuple):
    """What the boot loader will start."""

    release: str | None
    """Kernel release, or None when the chosen entry starts no Linux kernel of this machine."""
    source: str
    """Words for people: which entry of which file."""


class Entry:
    """An entry of GRUB's menu: a kernel or a submenu."""

    def __init__(self, kind: str, title: str, entry_id: str | None) -> None:
        self.kind = kind
        self.title = title
        self.entry_id = entry_id
        self.body: list[str] = []
        self.entries: list[Entry] = []


def parse_grub(text: str) -> list[Entry]:
    """Menu entries of a grub.cfg, submenus with their own entries inside."""
    top = Entry("submenu", "", None)
    stack = [top]
    for line in text.splitlines():
        words = line.strip()
        opened = _OPENER.match(words[:-1]) if words.endswith("{") else None
        if opened:
            kind, single, double, bare = opened.groups()
            title = next(value for value in (single, double, bare) if value is not None).replace("'\\''", "'")
            named = _ID.search(words[:-1], opened.end())
            entry = Entry(kind, title, next((value for value in named.groups() if value), None) if named else None)
            if kind != "function":
                stack[-1].entries.append(entry)
            stack.append(entry)
        elif re.match(r"function\s+\S+$", words):
            stack.append(Entry("function", "", None))
        elif words == "}":
            if len(stack) > 1:
                stack.pop()
        else:
            stack[-1].body.append(line)
    return top.entries


def parse_grubenv(text: str) -> dict[str, str]:
    """Variables of GRUB's environment block."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


def default_of(config: str, env: dict[str, str], fallback: str | None = None) -> str:
    """The text that names GRUB's default entry.

    A grub.cfg sets it twice: to `next_entry` (once, where the environment has one) and else to the standing default,
    which may be `${saved_entry}`. `fallback` (GRUB_DEFAULT of /etc/default/grub) counts only where the file sets none.
    """
    if env.get("next_entry"):
        return env["next_entry"]
    standing = [value for value in _DEFAULT.findall(config) if "next_entry" not in value]
    chosen = standing[-1] if standing else (fallback or "0")
    if "saved_entry" in chosen or chosen == "saved":
        chosen = env.get("saved_entry", "")
    return chosen or "0"


def pick(entries: list[Entry], wanted: str) -> Entry | None:
    """The entry that a default such as `0`, `1>2`, a title, an id, or a path of these names. GRUB's fallback is the first."""
    chosen = None
    menu = entries
    for part in re.split(r"(?<!>)>(?!>)", wanted):
        step = part.replace(">>", ">")
        if step.isdigit():
            chosen = menu[int(step)] if int(step) < len(menu) else None
        else:
            chosen = next((entry for entry in menu if step in (entry.entry_id, entry.title)), None)
        if chosen is None:
            break
        menu = chosen.entries
    if chosen is None:
        chosen = entries[0] if entries else None
    while chosen is not None and chosen.kind == "submenu":
        chosen = chosen.entries[0] if chosen.entries else None
    return chosen


def release_of_image(host: Host, image: str) -> str | None:
    """Kernel release told by the name of a kernel image: "/vmlinuz-6.1.0-9-amd64". A link without number is followed."""
    name = os.path.basename(image)
    if not re.match(r"^(?:vmlinuz|vmlinux|Image|kernel|linux)-", name):
        for directory in ("", "/boot"):
            target = host.link(directory + image) if image.startswith("/") else None
            if target:
                name = os.path.basename(target)
                break
    found = re.match(r"^(?:vmlinuz|vmlinux|Image|kernel|linux)-(.+)$", name)
    return found.group(1) if found else None


def _grub_default_setting(host: Host) -> str | None:
    found = re.search(r"""^[ \t]*GRUB_DEFAULT=["']?([^"'\n]*)""", host.read("/etc/default/grub") or "", re.MULTILINE)
    return found.group(1).strip() if found else None


def _from_grub(host: Host, directory: str, config: str, env: dict[str, str]) -> Choice | None:
    entries = parse_grub(config)
    if not entries:
        return None
    path = directory + "/grub.cfg"
    wanted = default_of(config, env, _grub_default_setting(host))
    entry = pick(entries, wanted)
    if entry is None:
        return None
    source = f"GRUB default entry {wanted!r} ({entry.title}) of {path}"
    image = _LINUX.search("\n".join(entry.body))
    release = release_of_image(host, image.group(1)) if image else None
    return Choice(release, source)


def _bls_entries(host: Host, directory: str) -> list[dict[str, str]]:
    """Entries of a directory, in the order in which the boot loader shows them: the newest first."""
    entries = []
    for path in host.glob(directory + "/*.conf", "kernel.next"):
        entry = {"id": _TRIES.sub("", os.path.basename(path))[: -len(".conf")]}
        for line in (host.read(path, "kernel.next") or "").splitlines():
            words = line.split(None, 1)
            if len(words) == 2 and not line.startswith("#"):
                entry.setdefault(words[0], words[1].strip())
        if "linux" in entry:
            entries.append(entry)
    # A rescue image has no version of its own and comes last.
    return sorted(
        entries,
        key=lambda entry: ("rescue" not in entry["id"], versions.key(entry.get("version") or entry["id"])),
        reverse=True,
    )


def _from_bls(host: Host, directory: str, wanted: str) -> Choice | None:
    entries = _bls_entries(host, directory)
    if not entries:
        return None
    chosen = entries[0]
    if wanted.isdigit() and int(wanted) < len(entries):
        chosen = entries[int(wanted)]
    for entry in entries:
        if wanted in (entry["id"], entry["id"] + ".conf", entry.get("title")):
            chosen = entry
    release = release_of_image(host, chosen["linux"]) or chosen.get("version")
    return Choice(release, "boot loader entry {} of {}".format(chosen["id"], directory))


def _systemd_boot_default(host: Host, directory: str) -> str:
    """`default` of systemd-boot's loader.conf, without the pattern's star."""
    found = re.search(r"^default\s+(\S+)", host.read(os.path.dirname(directory) + "/loader.conf") or "", re.MULTILINE)
    return found.group(1) if found else ""


def grub_entries(host: Host) -> dict[str, str]:
    """How GRUB's default names the entry of each kernel that has one of its own (the first of the menu starts whatever is newest)."""
    if (in_charge(host) or "").startswith(_SYSTEMD_BOOT):
        return {}
    config = next((text for place in _GRUB_DIRECTORIES if (text := host.read(place + "/grub.cfg")) is not None), "")
    found: dict[str, str] = {}
    for entry, path in _walk(parse_grub(config), ""):
        image = _LINUX.search("\n".join(entry.body))
        release = release_of_image(host, image.group(1)) if image else None
        name = entry.entry_id or entry.title
        if release and release in name and "recovery" not in name:
            found.setdefault(release, path)
    return found


def _walk(entries: list[Entry], above: str) -> Iterator[tuple[Entry, str]]:
    """Every entry that starts something, with the path that names it."""
    for entry in entries:
        path = above + (entry.entry_id or entry.title).replace(">", ">>")
        if entry.kind == "submenu":
            yield from _walk(entry.entries, path + ">")
        else:
            yield entry, path


def may_start(host: Host) -> list[str]:
    """Releases that the boot loader may start without anybody at its menu: the next time, and from then on."""
    choices = (next_kernel(host), next_kernel(host, once=False))
    return list(dict.fromkeys(choice.release for choice in choices if choice and choice.release))


def _environment(host: Host, directory: str, once: bool) -> dict[str, str]:
    """GRUB's environment block; without `once` as it is after the next boot, which uses up an entry for one boot only."""
    env = parse_grubenv(host.read(directory + "/grubenv") or "")
    return env if once else {name: value for name, value in env.items() if name != "next_entry"}


def _variable(host: Host, name: str) -> str:
    """A text of the boot loader interface: four bytes of attributes, then UTF-16; empty where there is none."""
    content = host.read_bytes(_EFIVARS.format(name), "kernel.next") or b""
    return content[4:].decode("utf-16-le", "replace").rstrip("\0")


def _installed_beside(host: Host) -> bool:
    """Whether both boot loaders have left files, so that these do not say which one is in charge."""
    there = any(host.glob(place + "/EFI/systemd/systemd-boot*.efi") for place in _PARTITIONS)
    return there and any(host.exists(place + "/grub.cfg") for place in _GRUB_DIRECTORIES)


def in_charge(host: Host) -> str | None:
    """The boot loader that started this machine, as it says itself; empty where it says nothing, None where files of two are there then."""
    told = _variable(host, "LoaderInfo")
    return told or (None if _installed_beside(host) else "")


def _from_systemd_boot(host: Host, once: bool) -> Choice | None:
    """What systemd-boot starts: an entry for one boot, the default in the firmware, that of loader.conf, or the first of its menu."""
    entries = {
        entry["id"] + ".conf": (entry, directory)
        for directory in _ENTRY_DIRECTORIES
        for entry in _bls_entries(host, directory)
    }
    images = {
        _TRIES.sub("", os.path.basename(path)): path
        for place in _PARTITIONS
        for path in host.glob(place + "/EFI/Linux/*.efi", "kernel.next")
    }
    there = [*entries, *images]
    for wanted in _wished(host, once):
        if wanted.startswith("auto-"):
            return Choice(None, f"systemd-boot's default {wanted}")
        chosen = next((name for name in there if fnmatch.fnmatchcase(name.lower(), wanted.lower())), None)
        if chosen:
            return _chosen(host, chosen, entries, images)
    if len(there) > 1 and images:
        return Choice(None, "the first of systemd-boot's menu, which has unified kernel images and no default,")
    return _chosen(host, there[0], entries, images) if there else None


def _wished(host: Host, once: bool) -> list[str]:
    """What names systemd-boot's default, the first that is there counts."""
    variables = [*(["LoaderEntryOneShot"] if once else []), "LoaderEntryDefault"]
    wanted = [_variable(host, name) for name in variables]
    wanted += [_systemd_boot_default(host, directory) for directory in _ENTRY_DIRECTORIES]
    last = _variable(host, "LoaderEntryLastBooted")
    return [last if each == "@saved" else each for each in wanted if each and (each != "@saved" or last)]


def _chosen(host: Host, name: str, entries: dict[str, tuple[dict[str, str], str]], images: dict[str, str]) -> Choice:
    if name in entries:
        entry, directory = entries[name]
        release = release_of_image(host, entry["linux"]) or entry.get("version")
        return Choice(release, f"systemd-boot's entry {name} of {directory}")
    # Its name has the release where kernel-install made it; what is inside is not unpacked.
    known = sorted((each for each in host.names("/lib/modules") if each in name), key=len)
    return Choice(known[-1] if known else None, f"systemd-boot's unified kernel image {images[name]}")


def next_kernel(host: Host, once: bool = True) -> Choice | None:
    """What the boot loader starts next; None where no boot loader's configuration is to be seen.

    Without `once` what it starts from then on: an entry that was chosen for one boot only (`grub-reboot`) does not count.
    """
    loader = in_charge(host)
    if loader is None:
        return Choice(None, "GRUB or systemd-boot, which are both installed,")
    if loader.startswith(_SYSTEMD_BOOT):
        return _from_systemd_boot(host, once)
    if loader and not loader.startswith(_GRUB):
        return Choice(None, f"the boot loader {loader}")
    for directory in _GRUB_DIRECTORIES:
        config = host.read(directory + "/grub.cfg", "kernel.next")
        if config is None:
            continue
        if "blscfg" in config:
            env = _environment(host, directory, once)
            choice = _from_bls(host, _ENTRY_DIRECTORIES[0], default_of(config, env, _grub_default_setting(host)))
            if choice:
                return choice
        choice = _from_grub(host, directory, config, _environment(host, directory, once))
        if choice:
            return choice
    return _from_systemd_boot(host, once)
