from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from ansible_collections.gpuwright.node.plugins.module_utils.packages import private_apt
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError
from ansible_collections.gpuwright.node.plugins.modules import package_index
from tests.unit.modules import run_module
from tests.unit.observe.test_openpgp import fingerprint, key_file
from tests.unit.observe.trees import answer

REPOSITORY: Any = {
    "name": "nvidia-cuda",
    "uris": ["http://mirror.example/debian13/x86_64/"],
    "suites": ["/"],
    "components": [],
    "key": {
        "url": "http://mirror.example/key.pub",
        "fingerprint": fingerprint(1),
        "path": "/nonexistent/gpuwright.gpg",
    },
}

KEY = key_file(1)

POLICY = """\
nvidia-driver-cuda:
  Installed: 570.1-1
  Candidate: 580.95.05-1
  Version table:
     590.44.01-1 500
        500 http://mirror.example/debian13/x86_64  Packages
     580.95.05-1 1001
        500 http://mirror.example/debian13/x86_64  Packages
 *** 570.1-1 100
        100 /var/lib/dpkg/status
gone:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


def test_candidates_and_offered_versions_are_read_from_the_policy() -> None:
    assert private_apt.parse_policy(POLICY) == {
        "nvidia-driver-cuda": {"candidate": "580.95.05-1", "versions": ["590.44.01-1", "580.95.05-1"]}
    }


def test_sizes_are_read_of_stanzas() -> None:
    stanzas = "Package: hello\nInstalled-Size: 277\nSize: 53080\n\nPackage: b\nDescription: x\n"
    assert private_apt.parse_sizes(stanzas, "Size") == {"hello": 53080}
    assert private_apt.installed_sizes(stanzas) == {"hello": 277 * 1024}


def test_every_package_is_pinned_by_the_names_that_have_such_a_version(tmp_path: Path) -> None:
    path = tmp_path / "mirror_Packages"
    path.write_text(
        "Package: libcuda1\nSource: nvidia\nVersion: 580.95.05-1\n\n"
        "Package: libcuda1\nVersion: 590.1-1\n\n"
        "Package: newer\nVersion: 590.580.1-1\n\n"
        "Version: 580.1-1\nPackage: backwards\n\n"
        "Origin: x\nVersion: 580.3-1\n\n"
        "Package: last\nVersion: 580.2-1\n"
    )
    assert private_apt.of_versions(str(path), "580.") == {
        ("libcuda1", "580.95.05-1"),
        ("backwards", "580.1-1"),
        ("last", "580.2-1"),
    }
    assert private_apt.of_versions(str(path), "580.95.*") == {("libcuda1", "580.95.05-1")}
    path.write_text("")
    assert private_apt.of_versions(str(path), "580.") == set()


def test_what_is_half_done_goes_out_of_the_record_in_its_own_architecture_alone() -> None:
    form = "Package: {0}\nStatus: install ok {2}\nArchitecture: {1}\nVersion: 1\nDepends: {3}\n"
    rows = [
        ("libcuda1", "amd64", "installed", "libc6"),
        ("libcuda1", "i386", "half-configured", "libc6"),
        ("data", "all", "unpacked", "libc6"),
        ("tool", "amd64", "half-installed", "libc6"),
        ("user", "amd64", "installed", "libcuda1 (>= 1)"),
    ]
    status = "\n".join(form.format(*row) for row in rows)
    names = private_apt.unfinished(status, "amd64")
    assert names == ["libcuda1:i386", "data", "tool"]
    left = packages.parse_dpkg_status(private_apt.without_packages(status, names, "amd64"), "amd64")
    assert sorted(left) == ["libcuda1", "user"]
    # Whatever its architecture, who depends on it by its name loses the relation where it counts as installed.
    told = private_apt.finished(status)
    assert "Depends: libcuda1" not in told
    assert {each.state for each in packages.parse_dpkg_status(told, "amd64").values()} == {"installed"}


@pytest.mark.parametrize(
    ("listed", "pinned"),
    [("mirror_Packages", "Package: libcuda1\nPin: version 580.*"), ("mirror_Packages.lz4", "Package: /./\nPin: version 580.*")],
    ids=["plain", "compressed"],
)  # fmt: skip
def test_the_lists_say_what_every_package_is(
    listed: str, pinned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / listed).write_text("Package: libcuda1\nVersion: 580.95.05-1\n")
    monkeypatch.setattr(private_apt, "_LISTS", str(tmp_path))
    apt = FakeApt(policy=answer(POLICY))
    ask(apt, ["nvidia-driver-cuda"], keep={"/./": "580.", "fabric": "580.95"})
    assert apt.preferences.count("Package: ") == len({"every", "fabric"})
    assert f"{pinned}\nPin-Priority: 1001\n" in apt.preferences
    assert "Package: fabric\nPin: version 580.95*\n" in apt.preferences


def test_every_package_comes_from_its_repository_though_another_has_a_newer_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {
        "nvidia_Packages": [("libcuda1", "580.95.05-1"), ("both", "580.95.05-1"), ("libcuda1", "595.1-1")],
        "archive_Packages": [
            ("libcuda1", "580.99-0ubuntu0.24.04.1"),
            ("both", "580.95.05-1"),
            ("alone", "580.99-0ubuntu0.24.04.1"),
        ],
    }
    for name, rows in lists.items():
        (tmp_path / name).write_text("\n".join(f"Package: {name}\nVersion: {version}\n" for name, version in rows))
    monkeypatch.setattr(private_apt, "_LISTS", str(tmp_path))
    targets = f"{tmp_path}/nvidia_Packages http://mirror.example/nvidia/\n{tmp_path}/archive_Packages http://mirror.example/archive/\n"
    out = "Package: libcuda1\nPin: version 580.99-0ubuntu0.24.04.1\nPin-Priority: -1\n"
    for origin, barred in (["http://mirror.example/nvidia"], out), ([], ""):
        apt = FakeApt(policy=answer(POLICY), indextargets=answer(targets))
        ask(apt, ["libcuda1"], keep={"/./": "580."}, origin=origin)
        # The first that fits a version of a package counts.
        assert apt.preferences.partition("Package: alone")[0].strip() == barred.strip()


@pytest.mark.parametrize(
    ("line", "kind", "repository"),
    [
        (
            "W: Failed to fetch http://mirror.example/debian13/x86_64/InRelease  Could not resolve 'mirror.example'",
            "unreachable",
            "nvidia-cuda",
        ),
        (
            "E: The repository 'http://mirror.example/debian13/x86_64  Release' is not signed.",
            "bad-signature",
            "nvidia-cuda",
        ),
        (
            "W: GPG error: http://mirror.example/debian13/x86_64  InRelease: NO_PUBKEY 12",
            "bad-signature",
            "nvidia-cuda",
        ),
        ("W: Failed to fetch http://other.example/dists/x/InRelease  Connection timed out", "timeout", None),
        ("E: Could not get lock /x/lock", "lock", None),
    ],
)
def test_each_complaint_of_an_update_becomes_a_problem_of_its_repository(
    line: str, kind: str, repository: str | None
) -> None:
    (found,) = private_apt.problems_of_update(
        "Hit:1 http://x\n" + line + "\nW: Some index files failed to download.\n",
        {"http://mirror.example/debian13/x86_64/": "nvidia-cuda"},
    )
    assert (found.kind, found.repository) == (kind, repository)
    assert found.remedy


SHA_1 = """\
W: OpenPGP signature verification failed: file:/srv/old  InRelease: Sub-process /usr/bin/sqv returned an error code (1), error message is: \
Signing key on 1594E8795712F847CD1C5FC6421826CA374BB435 is not bound:
           No binding signature at time 2026-11-29T19:37:54Z
  because: Policy rejected non-revocation signature (PositiveCertification) requiring second pre-image resistance
  because: SHA1 is not considered secure since 2026-02-01T00:00:00Z
"""
"""apt 3.0.4 of Debian 13 on a key that gpg 2.2 bound by SHA-1; its verifier breaks the lines, apt 3.0.4 puts them into one."""
UNSIGNED = "E: The repository 'file:/srv/old  InRelease' is not signed.\n"


@pytest.mark.parametrize("text", [SHA_1 + UNSIGNED, UNSIGNED + SHA_1, UNSIGNED + SHA_1.replace("\n ", "") + "\n"])
def test_why_a_signature_is_not_taken_is_told_with_what_mends_it(text: str) -> None:
    (found,) = private_apt.problems_of_update(text, {})
    assert found.kind == "bad-signature"
    assert found.text.endswith("because: SHA1 is not considered secure since 2026-02-01T00:00:00Z")
    assert "is not bound: No binding signature" in found.text
    assert "bound by SHA-1" in found.remedy
    (other,) = private_apt.problems_of_update(UNSIGNED, {})
    assert "SHA-1" not in other.remedy


def test_what_apt_cannot_read_of_its_sources_is_told_alone_with_the_machines_paths() -> None:
    text = "W: a\nE: Unable to parse /tmp/own/sources.list.d/x.list\nE: The list of sources could not be read.\n"
    (found,) = private_apt.problems_of_update(text, {}, "/tmp/own")
    assert (found.kind, found.text) == (
        "broken-source",
        "apt cannot read its sources: Unable to parse /etc/apt/sources.list.d/x.list",
    )


def test_habits_of_the_machines_own_sources_are_no_problem() -> None:
    text = "W: Target Packages (main) is configured multiple times in /etc/apt/a:1 and b:1\nN: Skipping acquire\n"
    assert private_apt.problems_of_update(text, {}) == []


def test_sources_at_an_asked_place_are_left_out_of_both_formats() -> None:
    asked = {("http://mirror.example/debian13/x86_64", "/")}
    lines = "deb http://a.example trixie main\ndeb [signed-by=/old.gpg] http://mirror.example/debian13/x86_64/ /\n"
    assert private_apt.without(lines, "x.list", asked) == "deb http://a.example trixie main\n\n"
    stanzas = (
        "Types: deb\nURIs: http://mirror.example/debian13/x86_64/\nSuites: /\nSigned-By: /old.gpg\n\n"
        "Types: deb\nURIs: http://a.example\nSuites: trixie\nComponents: main\n"
    )
    left = private_apt.without(stanzas, "x.sources", asked)
    assert "mirror.example" not in left
    assert "a.example" in left


def test_what_is_kept_is_a_pin_stronger_than_an_installed_version() -> None:
    assert (
        private_apt.preferences({"nvidia-driver-cuda": "580."})
        == "Package: nvidia-driver-cuda\nPin: version 580.*\nPin-Priority: 1001\n"
    )


class FakeApt:
    """apt's programs; remembers the sources that it was given."""

    def __init__(self, **answers: Result) -> None:
        self.answers = answers
        self.stanza = ""
        self.preferences = ""
        self.directory: Path | None = None

    def __call__(self, argv: Sequence[str], timeout: float, env: dict[str, str] | None = None) -> Result:
        assert 0 < timeout <= 60
        if list(argv) == ["apt-config", "dump"]:
            return answer('Acquire::http::Proxy "http://proxy.example:3128";\nAPT::Update::Post-Invoke:: "rm -rf /";\n')
        assert env is not None
        self.directory = Path(env["APT_CONFIG"]).parent
        config = Path(env["APT_CONFIG"]).read_text()
        assert "proxy.example" in config
        assert "rm -rf" not in config
        self.stanza = (self.directory / "sources.list.d/gpuwright-asked.sources").read_text()
        word = next(word for word in ("update", "policy", "show", "-s", "indextargets") if word in argv)
        if word == "policy":
            self.preferences = (self.directory / "preferences").read_text()
        return self.answers.get(word.strip("-"), answer())


def ask(
    apt: FakeApt,
    packages: list[str],
    key: bytes | FetchError = KEY,
    also: Sequence[str] = (),
    keep: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    def getter(url: str, timeout: float, credentials: Any) -> bytes:
        if isinstance(key, FetchError):
            raise key
        return key

    return private_apt.ask([REPOSITORY], packages, keep or {}, 60, runner=apt, getter=getter, also=also, **more)


def test_the_key_of_a_repository_is_fetched_checked_and_named_in_its_source() -> None:
    apt = FakeApt(
        policy=answer(POLICY),
        s=answer("Inst nvidia-driver-cuda [570.1-1] (580.95.05-1 x [amd64])\n"),
        show=answer("Package: nvidia-driver-cuda\nVersion: 580.95.05-1\nSize: 1000\n"),
    )
    seen = ask(apt, ["nvidia-driver-cuda"])
    assert "URIs: http://mirror.example/debian13/x86_64/\nSuites: /\nSigned-By: " in apt.stanza
    assert seen["packages"]["nvidia-driver-cuda"]["candidate"] == "580.95.05-1"
    assert seen["download_bytes"] == 1000
    assert seen["disk_bytes"] is None
    assert seen["problems"] == []
    assert apt.directory is not None
    assert not apt.directory.exists()


def test_a_repository_with_a_wrong_key_is_not_asked() -> None:
    apt = FakeApt(policy=answer(""))
    seen = ask(apt, ["nvidia-driver-cuda"], key_file(2))
    assert apt.stanza.strip() == ""
    assert [item["kind"] for item in seen["problems"]] == ["wrong-key", "no-such-package"]
    assert fingerprint(2) in seen["problems"][0]["text"]


def test_a_key_that_cannot_be_fetched_is_a_problem_of_its_repository() -> None:
    seen = ask(FakeApt(), ["nvidia-driver-cuda"], FetchError("no route", timed_out=True))
    assert (seen["problems"][0]["kind"], seen["problems"][0]["repository"]) == ("timeout", "nvidia-cuda")


def test_a_version_that_is_not_offered_is_named_with_those_that_are() -> None:
    seen = ask(FakeApt(policy=answer(POLICY)), ["nvidia-driver-cuda=585.1-1"])
    assert seen["problems"][0]["kind"] == "no-such-package"
    assert "580.95.05-1" in seen["problems"][0]["text"]


def test_a_package_of_another_architecture_alone_is_named_with_it() -> None:
    other = POLICY.replace("nvidia-driver-cuda:", "nvidia-driver-cuda:arm64:", 1)
    assert other != POLICY
    (problem,) = ask(FakeApt(policy=answer(other)), ["nvidia-driver-cuda"])["problems"]
    assert problem["kind"] == "no-such-package"
    assert problem["text"].endswith("for this machine's architecture; it is there for arm64")


def test_what_is_asked_for_besides_is_told_and_neither_installed_nor_missed() -> None:
    seen = ask(FakeApt(policy=answer(POLICY)), [], also=["nvidia-driver-cuda", "nvidia-driver-cuda-570"])
    assert seen["packages"] == {}
    assert seen["others"] == {}, "nothing was asked for, so nothing else is looked for"
    seen = ask(FakeApt(policy=answer(POLICY)), ["no-such"], also=["nvidia-driver-cuda", "nvidia-driver-cuda-570"])
    assert seen["packages"] == {}
    assert seen["others"].keys() == {"nvidia-driver-cuda"}
    assert "580.95.05-1" in seen["others"]["nvidia-driver-cuda"]
    assert [item["package"] for item in seen["problems"]] == ["no-such"]


def test_packages_that_contradict_each_other_are_unsolvable_and_sizes_are_unknown() -> None:
    failed = answer(
        "The following packages have unmet dependencies:\n a : Depends: b but it is not going to be installed\n",
        100,
        "E: Unable to correct problems, you have held broken packages.\n",
    )
    seen = ask(FakeApt(policy=answer(POLICY), s=failed), ["nvidia-driver-cuda"])
    assert seen["problems"][0]["kind"] == "unsolvable"
    assert "Depends: b" in seen["problems"][0]["text"]
    assert seen["download_bytes"] is None


def test_an_update_that_hangs_is_a_timeout() -> None:
    seen = ask(FakeApt(update=Result(None, "", "", 60.0, "apt-get did not answer within 60 s")), ["x"])
    assert [item["kind"] for item in seen["problems"]] == ["timeout"]


def test_a_list_that_an_apt_replaces_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    for name in ("a_Packages", "b_Packages"):
        (lists / name).write_text(name)
    monkeypatch.setattr(private_apt, "_LISTS", str(lists))
    real = os.access

    def access(path: str, mode: int) -> bool:
        """The other apt is quicker by a moment."""
        answer = real(path, mode)
        Path(path).unlink() if path.endswith("a_Packages") else None
        return answer

    monkeypatch.setattr(os, "access", access)
    with private_apt.PrivateApt(timeout=5) as apt:
        copied = Path(apt._at("state", "lists"))
        copied.mkdir(parents=True)
        apt._copy_lists()
        assert [each.name for each in copied.iterdir()] == ["b_Packages"]


def snapshot(*roots: str) -> dict[str, tuple[int, int, int, str]]:
    """Every file with its times, size and digest."""
    found = {}
    for root in roots:
        for path in sorted(Path(root).rglob("*")):
            status = path.lstat()
            digest = (
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and status.st_size < 1 << 24 else ""
            )
            found[str(path)] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, digest)
    return found


@pytest.mark.slow
def test_the_real_apt_answers_and_the_machine_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A place of its own: another run's directory in /var/tmp is not this test's business.
    monkeypatch.setattr(private_apt, "_ROOMY", str(tmp_path))
    if shutil.which("apt-get") is None:
        pytest.skip("no apt here")
    places = ("/var/lib/apt", "/var/cache/apt", "/var/log/apt", "/etc/apt", "/var/lib/dpkg/updates")
    before = snapshot(*places)
    seen = run_module(package_index, packages=["hello"], timeout=60)
    assert snapshot(*places) == before
    if any(item["kind"] in {"unreachable", "timeout"} for item in seen["problems"]):
        pytest.skip("the machine's package sources do not answer")
    assert seen["changed"] is False
    assert seen["packages"]["hello"]["candidate"] in seen["packages"]["hello"]["versions"]
    assert list(tmp_path.iterdir()) == []


def test_a_repository_without_name_is_refused() -> None:
    assert "name and uris" in run_module(package_index, repositories=[{"uris": ["http://x"]}])["msg"]
