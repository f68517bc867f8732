"""The real apt against a repository that is made and signed here, in the flat form that NVIDIA's have."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from ansible_collections.gpuwright.node.plugins.module_utils.packages import private_apt
from ansible_collections.gpuwright.node.plugins.modules import package_index
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
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
        # The sockets of gpg's agent lie in it, and the kernel takes paths of 107 characters for these.
        self.keys = Path(tempfile.mkdtemp(prefix="gpg"))
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
        shutil.rmtree(self.keys, ignore_errors=True)

    def source(self, **more: Any) -> Any:
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
    repository: Repository, library: Any, version: str
) -> None:
    wished: Any = {"nccl": {**library, "packages": ["gw-nccl"]}}
    keep = cuda.version_prefixes(wished)
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


# --- sources of others ------------------------------------------------------------------------------------------------

# What apt cannot read, by the file: the number that it tells and what is wrong.
BROKEN = {
    "foo.list": {
        "deb [foo\n": 1,
        "# a comment\n\ndeb [arch=amd64 http://x.example/ a b\n": 3,
        "deb http://x.example/ a b\nfoo http://x.example/ a b\n": 2,
        "deb http://x.example/\n": 1,
        "deb\n": 1,
        "deb http://x.example/ suite\n": 1,
        "deb x.example suite main\n": 1,
        "deb http://x.example/ suite/ main\n": 1,
        "deb [=amd64] http://x.example/ a b\n": 1,
        "deb [arch=] http://x.example/ a b\n": 1,
    },
    "foo.sources": {
        "Types: deb\nSuites: a\nComponents: main\n": 1,
        "Types: deb\nURIs: http://x.example\nComponents: main\n": 1,
        "Types: debb\nURIs: http://x.example\nSuites: a\nComponents: main\n": 1,
        "Types: deb\nURIs: x.example\nSuites: a\nComponents: main\n": 1,
        "Types: deb\nURIs: http://x.example\nSuites: a\nComponents:\n": 1,
        "Types: deb\nURIs: http://x.example\nSuites:\nComponents: main\n": 1,
        "Types: deb\nURIs: http://x.example\nSuites: ./ a\nComponents: main\n": 1,
        "Types: deb\nURIs: http://x.example\nSuites: ./\n\nTypes: deb\nURIs: http://x.example\nSuites: a\n": 2,
    },
}


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's own directory of sources, and no others."""
    folder = tmp_path / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    monkeypatch.setattr(private_apt, "_SOURCE_PARTS", str(folder))
    monkeypatch.setattr(private_apt, "_SOURCES", str(tmp_path / "absent"))
    return folder


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [(name, text, number) for name, texts in BROKEN.items() for text, number in texts.items()],
)
def test_a_source_that_apt_cannot_read_is_named_with_its_file_and_entry(
    repository: Repository, parts: Path, name: str, text: str, number: int
) -> None:
    (parts / name).write_text(text)
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    (problem,) = seen["problems"]
    assert problem["kind"] == "broken-source"
    entry = "line" if name.endswith(".list") else "entry"
    assert problem["text"].startswith(f"apt cannot read /etc/apt/sources.list.d/{name}, {entry} {number}: ")
    # The observation, which does not run apt, names the same.
    (told,) = packages.broken_sources(Host(root=str(parts.parents[2])))
    assert f"/etc/apt/sources.list.d/{name}, {'line' if entry == 'line' else 'stanza'} {number}: " in told


_PLACE = "http://127.0.0.1:9/debian trixie main\n"
_SIGNED = f"deb [signed-by=/etc/apt/keyrings/d.asc] {_PLACE}"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (
            {"docker.list": _SIGNED, "download.list": f"deb {_PLACE}"},
            (
                "download.list beside /etc/apt/sources.list.d/docker.list: http://127.0.0.1:9/debian trixie has no Signed-By in the one "
                "and Signed-By /etc/apt/keyrings/d.asc in the other"
            ),
        ),
        (
            {
                "a.list": _SIGNED,
                "b.sources": "Types: deb\nURIs: http://127.0.0.1:9/debian/\nSuites: x trixie\nComponents: main\nSigned-By: /k.gpg\n",
            },
            (
                "b.sources beside /etc/apt/sources.list.d/a.list: http://127.0.0.1:9/debian/ trixie has Signed-By /k.gpg in the one "
                "and Signed-By /etc/apt/keyrings/d.asc in the other"
            ),
        ),
        # Without a key before one with it: apt takes it for both.
        ({"a.list": f"deb {_PLACE}", "docker.list": _SIGNED}, None),
    ],
)
def test_sources_with_two_keys_for_one_place_are_named_by_their_files(
    repository: Repository, parts: Path, texts: dict[str, str], told: str | None
) -> None:
    for name, text in texts.items():
        (parts / name).write_text(text)
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    broken = [problem["text"] for problem in seen["problems"] if problem["kind"] == "broken-source"]
    observed = [f"apt cannot read {each}" for each in packages.broken_sources(Host(root=str(parts.parents[2])))]
    assert broken == observed == ([f"apt cannot read /etc/apt/sources.list.d/{told}"] if told else [])
    assert bool(seen["packages"]) is not bool(told)


def test_whatever_else_apt_cannot_read_of_its_sources_is_told_in_its_own_words(
    repository: Repository, parts: Path
) -> None:
    (parts / "a.list").write_text(f"deb [trusted=no] {_PLACE}")
    (parts / "b.list").write_text(f"deb [trusted=yes] {_PLACE}")
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    (problem,) = seen["problems"]
    assert problem["kind"] == "broken-source"
    assert problem["text"].startswith("apt cannot read its sources: Conflicting values set for option Trusted")


# --- what the machine's own pins keep out -----------------------------------------------------------------------------


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a text into the machine's own preferences, alone."""
    folder = tmp_path / "root/etc/apt/preferences.d"
    folder.mkdir(parents=True)
    monkeypatch.setattr(private_apt, "_PREFERENCE_PARTS", str(folder))
    monkeypatch.setattr(private_apt, "_PREFERENCES", str(folder.parent / "preferences"))
    monkeypatch.setattr(private_apt, "_OWN", Host(root=str(tmp_path / "root")))

    def put(name: str, text: str) -> None:
        (folder.parent / name).write_text(text)

    return put


_OUT = "Pin-Priority: -1\n"


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("Package: gw-driver\nPin: release *\n" + _OUT, {}),
        ("Package: gw-dri*\nPin: version *\n" + _OUT, {}),
        ("# words\nPackage: other /^gw-d/\nPin: release o=made up\n" + _OUT, {}),
        ('Package: *\nPin: origin ""\n' + _OUT, {}),
        # Of the versions that would do every one: ours come before, and would let them in.
        ("Package: gw-driver\nPin: version 580.*\n" + _OUT, {"gw-driver": "580.", "gw-library": "580."}),
        # What it needs is kept out.
        ("Package: gw-lib*\nPin: release *\n" + _OUT, {}),
    ],
)
def test_a_pin_that_keeps_a_package_out_is_named_with_its_file(
    repository: Repository, pinned: Any, text: str, keep: dict[str, str]
) -> None:
    pinned("preferences.d/first", "Package: gw-nccl\nPin: release *\n" + _OUT)
    pinned("preferences.d/no-nvidia", text)
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"], keep=keep)
    (problem,) = seen["problems"]
    assert problem["kind"] == "hidden"
    name = "gw-library" if "gw-lib" in text else "gw-driver"
    assert problem["text"].startswith(f"/etc/apt/preferences.d/no-nvidia keeps {name}"), problem
    assert text.splitlines()[-2] in problem["text"]


@pytest.mark.parametrize(
    "text",
    [
        "Package: gw-nccl\nPin: release *\n" + _OUT,
        "Package: gw-driver\nPin: version 580.*\n" + _OUT,
        "Package: gw-driver\nPin: release *\nPin-Priority: 500\n\nPackage: gw-*\nPin: release *\n" + _OUT,
        "Package: gw-driver\nPin: origin elsewhere.example\n" + _OUT,
    ],
)
def test_a_pin_that_leaves_a_version_which_would_do_is_in_nobodys_way(
    repository: Repository, pinned: Any, text: str
) -> None:
    pinned("preferences.d/other", text.replace("Package: gw-*", "Package: gw-dr*"))
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    assert seen["problems"] == []
    assert seen["packages"]["gw-driver"]["candidate"]


def test_preferences_that_apt_cannot_read_are_told_in_its_own_words(repository: Repository, pinned: Any) -> None:
    pinned("preferences.d/bad", "Package: gw-driver\nPin: version 1\n")
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    problem = seen["problems"][0]
    assert (problem["kind"], problem["text"]) == (
        "broken-source",
        "apt cannot read its preferences: No priority (or zero) specified for pin",
    )


def test_a_line_that_is_asked_for_anyway_does_not_move_the_number_of_a_broken_one(
    repository: Repository, parts: Path
) -> None:
    (parts / "foo.list").write_text(f"deb file:{repository.directory}/ /\ndeb [foo\n")
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    assert "foo.list, line 2: " in seen["problems"][0]["text"]


@pytest.mark.parametrize(
    "text", ["deb http://127.0.0.1:9/foreign trixie main\n", "deb file:/nowhere/at/all trixie main\n"]
)
def test_a_source_that_nothing_comes_from_stops_nobody(repository: Repository, parts: Path, text: str) -> None:
    (parts / "foreign.list").write_text(text)
    seen = run_module(package_index, repositories=[repository.source()], packages=["gw-driver"])
    assert seen["packages"]["gw-driver"]["candidate"] == "590.44.01-1"
    assert [problem["needed"] for problem in seen["problems"]] == [False], seen["problems"]


def test_a_source_that_something_comes_from_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its index was fetched once; it does not answer any more, and apt would take what it knows.
    found = private_apt.Problem(
        "unreachable", None, "Failed to fetch http://mirror.example/debian/dists/trixie/InRelease  no", "x"
    )
    with private_apt.PrivateApt(5) as apt:
        apt.problems = [found, found._replace(text="Failed to fetch http://other.example/dists/x/InRelease  no")]
        files = ["http://mirror.example/debian/pool/main/h/hello.deb"]
        monkeypatch.setattr(apt, "come_from", lambda _wanted, _recommends: files)
        apt.judge_others(["hello"], recommends=False)
        assert [each.needed for each in apt.problems] == [True, False]
        apt.problems = [found, private_apt.problem("no-such-package", "no repository offers hello")]
        apt.judge_others(["hello"], recommends=False)
        assert all(each.needed for each in apt.problems)


def test_sources_that_apt_reads_are_not_broken(tmp_path: Path) -> None:
    folder = tmp_path / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    (folder / "good.list").write_text(
        "# comment\ndeb [arch=amd64 signed-by=/k.gpg] http://x.example/ ./\ndeb-src http://x.example a b c # more\n"
        'deb [ arch=amd64 ] http://x.example trixie main\ndeb "http://x.example" trixie main\n'
    )
    (folder / "good.sources").write_text(
        "# only words\n\nTypes: deb deb-src\nURIs: http://x.example\nSuites: a b\nComponents: main\nSigned-By:\n -----BEGIN\n .\n x: y\n"
        "\nTypes:\n deb\nURIs:\n http://x.example\nSuites:\n d\nComponents:\n# one\n main\n"
        "\nEnabled: no\nTypes: x\n"
    )
    assert packages.broken_sources(Host(root=str(tmp_path))) == []


# --- a set that gives way to another repository's -----------------------------------------------------------------------------


def test_a_repository_is_kept_from_answering_for_what_is_not_its_own(repository: Repository) -> None:
    barred = {"release": "o=made up", "packages": ["gw-dr*"], "except": []}
    seen = run_module(
        package_index, repositories=[repository.source() | {"exclude": barred}], packages=["gw-driver", "gw-library"]
    )
    assert {problem["package"] for problem in seen["problems"]} == {"gw-driver"}
    assert seen["packages"]["gw-library"]["candidate"] == "590.44.01-1"


_THERE = """Package: gw-old
Status: install ok installed
Version: 580.99-0ubuntu0.24.04.1
Architecture: amd64
Multi-Arch: same
Provides: gw-any (= 1), gw-other
Maintainer: x
Description: x

Package: gw-old
Status: install ok installed
Version: 580.99-0ubuntu0.24.04.1
Architecture: i386
Multi-Arch: same
Maintainer: x
Description: x

Package: gw-library
Status: install ok installed
Version: 580.99-0ubuntu0.24.04.1
Architecture: amd64
Maintainer: x
Description: x

Package: gw-user
Status: install ok installed
Version: 1
Architecture: all
Depends: gw-other
Maintainer: x
Description: x
"""


def test_a_set_that_is_replaced_goes_out_as_the_new_one_comes_in(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    status.write_text(_THERE.replace("gw-other\nMaintainer", "gw-library\nMaintainer"))
    monkeypatch.setattr(private_apt, "_STATUS", str(status))
    monkeypatch.setattr(packages, "native_arch", lambda _host: "amd64")
    seen = run_module(
        package_index,
        repositories=[repository.source()],
        packages=["gw-driver"],
        keep={"/./": "590."},
        replaced=["gw-old", "gw-old:i386", "gw-library"],
    )
    assert seen["problems"] == []
    comes = {"gw-driver": "590.44.01-1", "gw-library": "590.44.01-1"}
    assert seen["exchange"] == {"comes": comes, "leaves": ["gw-old", "gw-old:i386"]}
    assert {item["name"]: item["from"] for item in seen["install"]} == {
        "gw-driver": None,
        "gw-library": "580.99-0ubuntu0.24.04.1",
    }
    gone = {row["name"]: row["version"] for row in seen["removes"]}
    assert gone["gw-old"] == "580.99-0ubuntu0.24.04.1"
    assert "gw-user" not in gone


def test_who_depends_on_what_is_replaced_is_among_what_would_go(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    status.write_text(_THERE)
    monkeypatch.setattr(private_apt, "_STATUS", str(status))
    monkeypatch.setattr(packages, "native_arch", lambda _host: "amd64")
    seen = run_module(
        package_index, repositories=[repository.source()], packages=["gw-driver"], replaced=["gw-old", "gw-old:i386"]
    )
    assert "gw-user" in [row["name"] for row in seen["removes"]], seen["problems"]


def test_the_way_back_from_files_says_what_it_takes_and_needs_no_repository(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    status.write_text(_THERE)
    monkeypatch.setattr(private_apt, "_STATUS", str(status))
    back = tmp_path / "back"
    back.mkdir()
    before = Repository(back / "repository")
    before.package("gw-library", "570.1", "Conflicts: gw-user\n")
    before.stop()
    silent = repository.source() | {"uris": ["http://127.0.0.1:9/none"]}
    seen = run_module(
        package_index,
        repositories=[silent],
        files={"gw-library": str(before.directory / "gw-library_570.1_all.deb")},
        leaves=["gw-old"],
    )
    assert seen["problems"] == []
    assert {row["name"] for row in seen["removes"]} == {"gw-old", "gw-user"}
    assert (seen["install"], seen["downgrades"]) == ([], [])


@pytest.mark.parametrize("key_is_here", [True, False])
def test_the_way_back_from_files_is_not_barred_by_a_second_source_of_the_same_place(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, key_is_here: bool
) -> None:
    """Its owner has written it beside ours again, and apt takes no source in this state. Where ours is not set up, his counts."""
    theirs, source = tmp_path / "parts", repository.source()
    theirs.mkdir()
    there = f"file:{repository.directory}/ /"
    (theirs / "users.list").write_text(f"deb [trusted=yes] {there}\n")
    if key_is_here:
        keyring = openpgp.checked((repository.directory / "key.pub").read_bytes(), repository.fingerprint)
        (tmp_path / "absent.gpg").write_bytes(keyring)
        (theirs / "gpuwright-made-up.list").write_text(f"deb [signed-by={tmp_path}/absent.gpg] {there}\n")
    monkeypatch.setattr(private_apt, "_SOURCE_PARTS", str(theirs))
    seen = run_module(
        package_index,
        repositories=[source],
        files={"gw-library": str(repository.directory / "gw-library_580.95.05-1_all.deb")},
        leaves=[],
    )
    assert seen["problems"] == []
