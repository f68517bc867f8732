"""The real apt against a repository that is made and signed here, in the flat form that NVIDIA's have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils import openpgp
from ansible_collections.gpuwright.node.plugins.modules import package_index
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import cuda
from tests.unit.modules import run_module

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("apt-get", "gpg", "dpkg-deb"))), reason="apt, gpg and dpkg-deb make the repository"
    ),
]


class Repository:
    """A flat repository with a key of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys = directory.parent / (directory.name + "-keys")
        self.keys.mkdir(mode=0o700)
        directory.mkdir()
        self._gpg("--quick-generate-key", "--passphrase", "", "A repository <x@y.example>", "ed25519", "sign", "never")
        (directory / "key.pub").write_bytes(self._gpg("--armor", "--export").stdout)
        self.fingerprint = openpgp.fingerprints((directory / "key.pub").read_bytes())[0]

    def _gpg(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["gpg", "--homedir", str(self.keys), "--batch", "--yes", "--pinentry-mode", "loopback", *argv],
            check=True,
            capture_output=True,
        )

    def package(self, name: str, version: str, fields: str = "") -> None:
        tree = self.directory.parent / f"build-{name}-{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@y.example>\nInstalled-Size: 5\n"
            f"{fields}Description: made up\n"
        )
        (tree / "DEBIAN/control").write_text(control)
        deb = self.directory / f"{name}_{version}_all.deb"
        subprocess.run(["dpkg-deb", "--build", str(tree), str(deb)], check=True, capture_output=True)
        digest = subprocess.run(["sha256sum", str(deb)], check=True, capture_output=True, text=True).stdout.split()[0]
        with (self.directory / "Packages").open("a") as out:
            out.write(f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n\n")

    def publish(self) -> None:
        index = self.directory / "Packages"
        digest = subprocess.run(["sha256sum", str(index)], check=True, capture_output=True, text=True).stdout.split()[0]
        release = f"Origin: made up\nDate: Fri, 01 Aug 2025 12:00:00 UTC\nSHA256:\n {digest} {index.stat().st_size} Packages\n"
        (self.directory / "Release").write_text(release)
        self._gpg("--clearsign", "--output", str(self.directory / "InRelease"), str(self.directory / "Release"))

    def stop(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self.keys), "--kill", "all"], check=False, capture_output=True)

    def source(self, **more: Any) -> dict[str, Any]:
        key = {
            "url": f"file://{self.directory}/key.pub",
            "fingerprint": self.fingerprint,
            "path": str(self.directory.parent / "absent.gpg"),
        }
        return {
            "name": "made-up",
            "uris": [f"file:{self.directory}/"],
            "suites": ["/"],
            "components": [],
            "key": {**key, **more},
        }


@pytest.fixture
def repository(tmp_path: Path) -> Any:
    made = Repository(tmp_path / "repo")
    made.package("gw-driver", "580.95.05-1", "Depends: gw-library (= 580.95.05-1)\n")
    made.package("gw-driver", "590.44.01-1", "Depends: gw-library (= 590.44.01-1)\n")
    made.package("gw-library", "580.95.05-1")
    made.package("gw-library", "590.44.01-1")
    made.package("gw-broken", "1", "Depends: gw-absent\n")
    for version in ("2.27.7-1+cuda12.8", "2.28.9-1+cuda12.9", "2.30.7-1+cuda13.2"):
        made.package("gw-nccl", version)
    made.publish()
    yield made
    made.stop()


def test_the_newest_is_offered_and_with_a_prefix_the_newest_that_begins_so(repository: Repository) -> None:
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    assert seen["problems"] == []
    assert seen["packages"]["gw-driver"] == {"candidate": "590.44.01-1", "versions": ["590.44.01-1", "580.95.05-1"]}
    assert {(item["name"], item["version"]) for item in seen["install"]} == {
        ("gw-driver", "590.44.01-1"),
        ("gw-library", "590.44.01-1"),
    }
    kept = run_module(
        package_index,
        repositories=[repository.source()],
        packages=["gw-driver"],
        keep={"gw-driver": "580.", "gw-library": "580."},
    )
    assert kept["problems"] == []
    assert {(item["name"], item["version"]) for item in kept["install"]} == {
        ("gw-driver", "580.95.05-1"),
        ("gw-library", "580.95.05-1"),
    }
    assert kept["disk_bytes"] == 2 * 5 * 1024
    assert kept["download_bytes"] == sum(path.stat().st_size for path in repository.directory.glob("*_580*.deb"))


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ({"version": None, "cuda": "12"}, "2.28.9-1+cuda12.9"),
        ({"version": None, "cuda": "13"}, "2.30.7-1+cuda13.2"),
        ({"version": "2.27.7", "cuda": "12"}, "2.27.7-1+cuda12.8"),
        ({"version": None, "generation": "2", "cuda": "12"}, "2.28.9-1+cuda12.9"),
    ],
)
def test_apt_keeps_to_the_cuda_that_stands_at_the_end_of_a_version(
    repository: Repository, library: dict[str, Any], version: str
) -> None:
    keep = cuda.version_prefixes({"nccl": {**library, "packages": ["gw-nccl"]}})
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-nccl"], keep=keep)
    assert seen["problems"] == []
    assert [item["version"] for item in seen["install"]] == [version]


def test_a_repository_signed_by_another_key_is_a_bad_signature(repository: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.stop()
    source = repository.source(url=f"file://{other.directory}/key.pub", fingerprint=other.fingerprint)
    seen = run_module(package_index, repositories=[source], packages=["gw-driver"])
    assert {(item["kind"], item["repository"]) for item in seen["problems"]} == {
        ("bad-signature", "made-up"),
        ("no-such-package", None),
    }
    assert any(f"to be signed by the key {other.fingerprint}" in item["text"] for item in seen["problems"])


def test_a_changed_index_is_a_problem_of_the_repository(repository: Repository) -> None:
    with (repository.directory / "Packages").open("a") as out:
        out.write("\n")
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    assert "made-up" in {item["repository"] for item in seen["problems"]}


def test_a_repository_that_is_not_there_is_unreachable(repository: Repository) -> None:
    source = {**repository.source(), "uris": [f"file:{repository.directory}/absent/"]}
    seen = run_module(package_index, repositories=[source], packages=["hello"])
    assert ("unreachable", "made-up") in {(item["kind"], item["repository"]) for item in seen["problems"]}


def test_a_dependency_that_nobody_offers_is_unsolvable_and_named(repository: Repository) -> None:
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-broken"])
    assert [item["kind"] for item in seen["problems"]] == ["unsolvable"]
    assert "gw-absent" in seen["problems"][0]["text"]
