"""What is said of Debian's archive is held against it: on a small archive of files, which the real apt reads."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim import deb, image
from tools import world, world_archive
from tools.world_archive import Archive, ArchiveProblem, security_mirror

SYSTEM = {
    "os": "debian-13", "family": "debian", "codename": "trixie", "glibc": "2.41", "python": "3.13", "gcc": "14", "gcc_also": ["13"],
    "kernel": "6.12", "docker": ["docker.io"], "docker_version": "26.1.5",
}  # fmt: skip
HEADERS = {"family": "debian", "arch": "x86_64", "flavour": "default", "headers": "linux-headers-amd64"}
SET = {"from": "distro", "family": "debian", "set": "compute"}
SETS = [
    {**SET, "modules": "proprietary", "kernel_module": "nvidia-current", "packages": ["nvidia-smi", "nvidia-kernel-dkms"]},
    {**SET, "modules": "open", "kernel_module": "nvidia-current-open", "packages": ["nvidia-smi", "nvidia-open-kernel-dkms"]},
]  # fmt: skip
DRIVER = {"os": "debian-13", "branch": "550", "build": "550.163.01", "components": ["contrib", "non-free"]}
TABLES = {"systems": {"rows": [SYSTEM], "headers": [HEADERS], "distro_drivers": [DRIVER]}, "packages": {"driver": SETS}}
STAND_IN = {"name": "dkms", "depends": "kmod", "provides": "dkms-autopkgtest (= {version})", "without": "patch"}

#: Name to version, relations and component of what the archive has.
PACKAGES: dict[str, dict[str, str]] = {
    "libc6": {"Version": "2.41-12+deb13u5"},
    "python3": {"Version": "3.13.5-1"},
    "gcc": {"Version": "4:14.2.0-1"},
    "gcc-13": {"Version": "13.3.0-1"},
    "gcc-14": {"Version": "14.2.0-1"},
    "gcc-14-base": {"Version": "14.2.0-1"},
    "linux-image-amd64": {"Version": "6.12.107-1"},
    "linux-headers-amd64": {"Version": "6.12.107-1"},
    "docker.io": {"Version": "26.1.5+dfsg1-9"},
    "nvidia-smi": {"Version": "550.163.01-2", "Section": "non-free/utils"},
    "nvidia-kernel-dkms": {"Version": "550.163.01-2", "Section": "non-free/kernel", "Depends": "dkms"},
    "nvidia-open-kernel-dkms": {"Version": "550.163.01-2", "Section": "contrib/kernel", "Depends": "dkms"},
    "nvidia-kernel-support": {"Version": "550.163.01-2", "Section": "non-free/kernel"},
    "nvidia-open-kernel-support": {"Version": "550.163.01-2", "Section": "contrib/kernel"},
    "dkms": {"Version": "3.2.2-1", "Depends": "kmod, patch", "Provides": "dkms-autopkgtest (= 3.2.2-1)"},
    "kmod": {"Version": "34-1"},
    "patch": {"Version": "2.8-1"},
}
FILES = {
    "nvidia-kernel-support": (
        "/etc/nvidia/current/nvidia-modprobe.conf", "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n",
    ),
    "nvidia-open-kernel-support": (
        "/etc/nvidia/current-open/nvidia-modprobe.conf", "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n",
    ),
}  # fmt: skip

Make = Callable[..., Archive]


@pytest.fixture
def archive(tmp_path: Path) -> Make:
    """archive(libc6=None, dkms={"Depends": "kmod"}): PACKAGES with these changed; None is not there."""
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not installed")

    def make(files: dict[str, tuple[str, str]] | None = None, **changed: dict[str, str] | None) -> Archive:
        place = tmp_path / "archive"
        place.mkdir()
        stanzas = []
        named = {name.replace("_", "-"): fields for name, fields in changed.items()}
        for name in {**PACKAGES, **named}:
            change = named.get(name, {})
            if change is None:
                continue
            fields = {**PACKAGES.get(name, {}), **change}
            section, version = fields.pop("Section", "libs"), fields.pop("Version")
            package = deb.Package(name, version, fields)
            for path, text in [found for found in [(files or FILES).get(name)] if found]:
                package.files[path] = text.encode()
            content = deb.archive(package)
            (place / package.file_name).write_bytes(content)
            control = package.control().replace("Section: non-free/libs", f"Section: {section}")
            sha = hashlib.sha256(content).hexdigest()
            stanzas.append(f"{control}Filename: ./{package.file_name}\nSize: {len(content)}\nSHA256: {sha}\n")
        (place / "Packages").write_text("\n".join(stanzas))
        made = Archive(tmp_path / "apt", f"deb [trusted=yes] file:{place} ./\n")
        made.update()
        return made

    return make


def found(archive: Archive, entry: dict[str, Any] | None = None) -> dict[tuple[str, str], tuple[str, str, bool]]:
    """The differences of the tables above and of a stand-in, by row and field."""
    group = {"repositories": ["distribution-debian-13"], "builds": ["3.2.2"], "version": "{build}-1"}
    rows = world.differences("debian-13", TABLES, {"groups": [{**group, "packages": [entry or STAND_IN]}]}, archive)
    return {(each.row, each.field): (each.ours, each.archive, each.moved) for each in rows}


def test_rows_that_are_true_make_no_difference(archive: Make) -> None:
    assert found(archive()) == {}


@pytest.mark.parametrize(
    ("changed", "row", "field", "told"),
    [
        ({"libc6": {"Version": "2.42-1"}}, "debian-13", "glibc", ("2.41", "libc6 2.42", False)),
        ({"python3": {"Version": "3.14.0-1"}}, "debian-13", "python", ("3.13", "python3 3.14.0", False)),
        ({"gcc": {"Version": "4:15.1.0-1"}}, "debian-13", "gcc", ("14", "gcc 15.1.0", False)),
        ({"gcc_13": None}, "debian-13", "gcc_also", ("13, 14", "14", False)),
        ({"docker.io": {"Version": "27.0.1-1"}}, "debian-13", "docker_version", ("26.1.5", "docker.io 27.0.1", False)),
        ({"linux_image_amd64": {"Version": "6.13.1-1"}}, "debian-13", "kernel", ("6.12", "linux-image-amd64 6.13.1", False)),
        ({"linux_headers_amd64": None}, "debian-13 default", "headers", ("linux-headers-amd64", "no package", False)),
        ({"nvidia_smi": {"Version": "550.170.01-1"}}, "debian-13", "build", ("550.163.01", "550.170.01", True)),
        ({"nvidia_smi": {"Version": "550.100.01-1"}}, "debian-13", "build", ("550.163.01", "550.100.01", False)),
        ({"nvidia_smi": {"Version": "570.10.01-1"}}, "debian-13", "build", ("550.163.01", "570.10.01", False)),
        ({"nvidia_smi": {"Section": "contrib/utils"}, "nvidia_kernel_dkms": {"Section": "contrib/kernel"}},
         "debian-13", "components", ("contrib, non-free", "contrib", False)),
        ({"nvidia_open_kernel_dkms": {"Depends": "firmware-nvidia-gsp (= 1)"}},
         "debian-13", "modules", ("open, proprietary", "proprietary", False)),
        ({"nvidia_kernel_dkms": None}, "debian-13 compute proprietary", "packages", ("nvidia-kernel-dkms", "no package", False)),
        ({"dkms": None}, "dkms", "name", ("3.2.2-1", "no package", False)),
        ({"dkms": {"Version": "3.2.3-1", "Provides": "dkms-autopkgtest (= 3.2.3-1)"}}, "dkms", "version", ("3.2.2-1", "3.2.3-1", True)),
        ({"dkms": {"Version": "3.2.1-1", "Provides": "dkms-autopkgtest (= 3.2.1-1)"}}, "dkms", "version", ("3.2.2-1", "3.2.1-1", False)),
        ({"dkms": {"Depends": "kmod, patch, make"}}, "dkms", "Depends", ("", "+ make", False)),
        ({"dkms": {"Depends": "patch"}}, "dkms", "Depends", ("+ kmod", "", False)),
        ({"dkms": {"Provides": "x"}}, "dkms", "Provides", ("+ dkms-autopkgtest (= {version})", "+ x", False)),
    ],
)  # fmt: skip
def test_a_row_that_the_archive_contradicts_is_told(
    archive: Make, changed: dict[str, Any], row: str, field: str, told: tuple[str, str, bool]
) -> None:
    assert found(archive(**changed))[row, field] == told


def test_a_package_with_its_build_in_its_name_has_moved_on(archive: Make) -> None:
    rows = found(archive(), {"name": "linux-image-{build}-amd64"})
    assert rows == {("linux-image-3.2.2-amd64", "name"): ("3.2.2-1", "no package", True)}


def test_a_module_of_another_name_is_told(archive: Make) -> None:
    path, text = FILES["nvidia-kernel-support"]
    files = {**FILES, "nvidia-kernel-support": (path, text.replace("nvidia-current", "nvidia"))}
    rows = found(archive(files))
    assert rows == {("debian-13 compute proprietary", "kernel_module"): ("nvidia-current", "nvidia", False)}


def test_a_unit_that_the_stand_in_lacks_is_told_unless_its_row_says_so(archive: Make) -> None:
    made = archive({**FILES, "dkms": ("/usr/lib/systemd/system/dkms.service", "[Unit]\n")})
    assert found(made) == {("dkms", "units"): ("none", "dkms.service", False)}
    assert found(made, {**STAND_IN, "without": "patch, dkms.service"}) == {}


@pytest.mark.parametrize(
    ("rows", "code"), [([], 0), ([("a", True)], 0), ([("a", True), ("b", False)], 1)], ids=["none", "moved on", "wrong"]
)
def test_only_a_wrong_row_fails(
    rows: list[tuple[str, bool]], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [world.Difference("systems", name, "field", "1", "2", moved) for name, moved in rows]
    monkeypatch.setattr(world, "sources_of", lambda codename: "")
    monkeypatch.setattr(Archive, "update", lambda self: None)
    monkeypatch.setattr(world, "differences", lambda system, *_rest: told if system == "debian-13" else [])
    assert world.main([]) == code
    said = capsys.readouterr().out
    assert ("WRONG" in said) is (code == 1)
    assert ("moved on │" in said) is bool(rows)


def test_an_archive_that_cannot_be_read_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not installed")
    monkeypatch.setattr(world, "sources_of", lambda codename: f"deb [trusted=yes] file:{tmp_path}/nothing ./\n")
    assert world.main([]) == 2
    assert "apt could not read the archive" in capsys.readouterr().err


def test_without_a_mirror_in_apts_sources_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(image, "debian_mirror", lambda: None)
    with pytest.raises(ArchiveProblem, match="expected a Debian mirror"):
        world_archive.sources_of("trixie")
    monkeypatch.setattr(image, "debian_mirror", lambda: "http://mirror.invalid/debian")
    monkeypatch.setattr(world_archive, "_SOURCES", (tmp_path / "none", tmp_path))
    with pytest.raises(ArchiveProblem, match="security updates"):
        world_archive.sources_of("trixie")
    (tmp_path / "a.list").write_text("deb http://s.invalid/debian-security bookworm-security main\n")
    lines = world_archive.sources_of("trixie").splitlines()
    assert [line.split()[2:4] for line in lines] == [
        ["http://mirror.invalid/debian", "trixie"],
        ["http://mirror.invalid/debian", "trixie-updates"],
        ["http://s.invalid/debian-security", "trixie-security"],
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("deb http://a.invalid/debian bookworm main\ndeb [arch=amd64] http://a.invalid/s bookworm-security main\n", "http://a.invalid/s"),
        ("URIs: http://a.invalid/debian\nSuites: bookworm\n\n# elsewhere\nURIs: http://a.invalid/s\nSuites: bookworm-security\n", "http://a.invalid/s"),
        ("# deb http://a.invalid/s bookworm-security main\ndeb http://a.invalid/debian bookworm main\n", None),
    ],
)  # fmt: skip
def test_the_mirror_of_security_updates_is_read_in_either_format(text: str, address: str | None) -> None:
    assert security_mirror(text) == address
