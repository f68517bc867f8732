from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests import tables
from tests.sim import deb, repository, wheels

PLAN = tables.read(Path(repository.__file__).parent / "packages.yaml")


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared libraries are compiled only when a repository is built; the index needs no compiler."""
    monkeypatch.setattr(repository, "compiled", lambda name, version, *_more: b"library")


def packages_of(name: str) -> dict[tuple[str, str], deb.Package]:
    return {(package.name, package.version): package for _row, package in repository.stand_ins(PLAN, name)}


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("name", list(PLAN["repositories"]))
def test_every_exact_dependency_inside_a_repository_is_there(name: str) -> None:
    found = packages_of(name)
    for package in found.values():
        for alternatives in package.fields.get("Depends", "").split(","):
            exact = re.findall(r"([a-z0-9.+-]+) \(= ([^)]+)\)", alternatives)
            assert not exact or set(exact) & found.keys(), f"{package.name} wants {alternatives}"


@pytest.mark.usefixtures("without_compiler")
def test_without_a_pin_apt_would_prefer_the_newer_branch() -> None:
    versions = [version for name, version in packages_of("debian13") if name == "nvidia-driver-cuda"]
    assert {version.split(".")[0] for version in versions} == {"580", "595"}


@pytest.mark.usefixtures("without_compiler")
def test_the_pinning_package_holds_its_branch_above_everything() -> None:
    package = packages_of("debian13")["nvidia-driver-pinning-580", "580.178.04-1"]
    text = package.files["/etc/apt/preferences.d/nvidia-driver-pinning-580"].decode()
    assert "Pin: version 580.*" in text
    assert "Pin-Priority: 1000" in text


@pytest.mark.usefixtures("without_compiler")
def test_the_rules_name_no_driver_package_that_the_repository_lacks() -> None:
    rules = yaml.safe_load((Path(repository.__file__).parents[2] / "compat/packages.yaml").read_text())
    for family, name in (("debian", "debian13"), ("ubuntu", "ubuntu2404")):
        carried = {package for package, _ in packages_of(name)}
        for row in rules["driver"]:
            if (
                row["from"] == "nvidia"
                and row["family"] == family
                and int(row["first_branch"]) <= 580 <= int(row["last_branch"] or 10**6)
            ):
                missing = {package.format(branch="580") for package in row["packages"]} - carried
                assert not missing, f"{name} lacks {missing}"


def small_package() -> deb.Package:
    return deb.Package(
        "demo",
        "1.0-1",
        {"Depends": "libc6"},
        files={"/usr/bin/demo": b"#!/bin/sh\n"},
        executables={"/usr/bin/demo"},
        links={"/usr/bin/other": "demo"},
    )


def members_of(content: bytes) -> dict[str, bytes]:
    assert content.startswith(b"!<arch>\n")
    found, at = {}, 8
    while at < len(content):
        name, size = content[at : at + 16].decode().strip(), int(content[at + 48 : at + 58])
        found[name] = content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def test_a_package_is_an_archive_that_dpkg_knows() -> None:
    members = members_of(deb.archive(small_package()))
    assert list(members) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(members["data.tar.gz"])) as data:
        assert data.getmember("./usr/bin/demo").mode == 0o755
        assert data.getmember("./usr/bin/other").linkname == "demo"


def test_the_same_package_gives_the_same_bytes() -> None:
    assert deb.archive(small_package()) == deb.archive(small_package())


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_dpkg_reads_the_control_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.deb"
    path.write_bytes(deb.archive(small_package()))
    assert (
        subprocess.run(["dpkg-deb", "-f", path, "Depends"], capture_output=True, text=True, check=True).stdout
        == "libc6\n"
    )


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_a_repository_is_signed_by_the_key_it_offers(tmp_path: Path) -> None:
    home = deb.temporary_home()
    key = deb.SigningKey(home, "test <test@invalid>", tmp_path / "kept.asc")
    try:
        deb.write_repository(tmp_path / "r", [small_package()], "here", key)
        index = (tmp_path / "r/Packages").read_bytes()
        assert gzip.decompress((tmp_path / "r/Packages.gz").read_bytes()) == index
        assert hashlib.sha256(index).hexdigest() in (tmp_path / "r/InRelease").read_text()
        checked = subprocess.run(
            ["gpg", "--homedir", home, "--status-fd", "1", "--verify", tmp_path / "r/InRelease"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"VALIDSIG {key.fingerprint}" in checked.stdout
    finally:
        key.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_a_key_that_was_kept_is_the_same_in_the_next_build(tmp_path: Path) -> None:
    fingerprints = []
    for _ in range(2):
        home = deb.temporary_home()
        key = deb.SigningKey(home, "test <test@invalid>", tmp_path / "kept.asc")
        fingerprints.append(key.fingerprint)
        key.close()
        shutil.rmtree(home, ignore_errors=True)
    assert fingerprints[0] == fingerprints[1]
    assert (tmp_path / "kept.asc").stat().st_mode & 0o077 == 0


def test_a_wheel_names_what_it_requires_and_records_its_files() -> None:
    name, content = wheels.wheel(
        "nvidia-cudnn-cu13", "9.24.0.43", ["nvidia-cublas"], {"x/__init__.py": b""}, "py3-none-any", {"all": ["y"]}
    )
    assert name == "nvidia_cudnn_cu13-9.24.0.43-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        metadata = archive.read("nvidia_cudnn_cu13-9.24.0.43.dist-info/METADATA").decode()
        record = archive.read("nvidia_cudnn_cu13-9.24.0.43.dist-info/RECORD").decode()
    assert "Requires-Dist: nvidia-cublas\n" in metadata
    assert 'Requires-Dist: y; extra == "all"' in metadata
    assert "x/__init__.py,sha256=" in record


def test_every_requirement_of_a_stub_wheel_is_on_the_index() -> None:
    common = set(PLAN["wheels"]["common"])
    for variant in wheels.INDEXES:
        carried = common | set(PLAN["wheels"][variant])
        for entry in PLAN["wheels"][variant].values():
            extras = [requirement for values in entry.get("extras", {}).values() for requirement in values]
            for requirement in [*entry.get("requires", []), *extras]:
                project = wheels.normalise(re.split(r"[\[<>=~! ]", requirement)[0])
                assert project in carried, f"{variant} lacks {project}"
