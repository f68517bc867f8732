from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.modules import repository_key
from tests.unit.modules import run_module


def key_body(number: int) -> bytes:
    """A public key of version 4 that no one has the secret to: RSA with a made-up modulus."""
    modulus = bytes([0x80 | number]) + bytes(31)
    return b"\x04" + number.to_bytes(4, "big") + b"\x01" + b"\x01\x00" + modulus + b"\x00\x11\x01\x00\x01"


def packet(kind: int, body: bytes, new: bool = False) -> bytes:
    if new:
        return bytes([0xC0 | kind, len(body)]) + body
    return bytes([0x80 | kind << 2 | 1]) + len(body).to_bytes(2, "big") + body


def key_file(*numbers: int, new: bool = False) -> bytes:
    """Each key with a user id and a subkey behind it."""
    return b"".join(
        packet(6, key_body(n), new) + packet(13, b"Someone <x@y.example>", new) + packet(14, key_body(n + 100), new)
        for n in numbers
    )


def fingerprint(number: int) -> str:
    body = key_body(number)
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()


def armoured(data: bytes, headers: str = "Version: x\n") -> bytes:
    lines = base64.encodebytes(data).decode()
    return (
        f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n{headers}\n{lines}=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n".encode()
    )


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    "wrap",
    [lambda data: data, armoured, lambda data: armoured(data, ""), lambda data: armoured(data).replace(b"\n", b"\r\n")],
)
def test_primary_keys_are_found_in_every_form_of_file(new: bool, wrap: object) -> None:
    assert callable(wrap)
    assert openpgp.fingerprints(wrap(key_file(1, 2, new=new))) == [fingerprint(1), fingerprint(2)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "<!DOCTYPE"),
        (key_file(1)[:-3], "cut off"),
        (packet(13, b"only a name"), "not begin with a public key"),
        (packet(12, b"\x06\x00"), "no public key"),
        (packet(5, key_body(1)), "secret"),
        (packet(6, b"\x03" + key_body(1)[1:]), "version 3"),
        (key_file(1) + packet(7, key_body(2)), "secret"),
        (packet(13, b"Someone") + key_file(1), "not begin with a public key"),
        (key_file(1) + packet(8, b"\x01packed"), "kind 8, which no public key has"),
        (key_file(1) + packet(11, b"b\x00\x00\x00\x00\x00text"), "kind 11"),
        (key_file(1) + b"\xcd\xe3x", "unknown length"),
        (key_file(1) + b"tail", "damaged: no packet begins"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----\n", "damaged"),
    ],
)
def test_what_is_no_key_file_is_refused_with_a_reason(data: bytes, words: str) -> None:
    with pytest.raises(openpgp.KeyFileError, match=words):
        openpgp.fingerprints(data)


def test_a_foreign_key_beside_the_expected_one_is_a_mismatch() -> None:
    assert openpgp.mismatch(key_file(1), fingerprint(1)) is None
    text = openpgp.mismatch(key_file(1, 2), fingerprint(1))
    assert text == f"expected the key {fingerprint(1)}, found {fingerprint(2)}"


def test_a_short_key_id_is_no_fingerprint() -> None:
    spaced = " ".join(fingerprint(1)[at : at + 4] for at in range(0, 40, 4)).lower()
    assert openpgp.normalise(spaced) == fingerprint(1)
    with pytest.raises(openpgp.KeyFileError, match="short key id"):
        openpgp.normalise(fingerprint(1)[-16:])


def text_of(data: bytes, key: int = 1) -> str:
    """What is expected of a key file whose text is known and whose fingerprint is not."""
    lines = [line for line in data.splitlines(keepends=True) if not line.startswith(b"Version")]
    return f"text-sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}:{fingerprint(key)[-8:]}"


def test_a_key_file_is_known_by_its_text_where_its_fingerprint_was_never_read() -> None:
    file = armoured(key_file(1))
    assert openpgp.checked(file, text_of(file)) == key_file(1)
    # The line of the program that made the armour is no part of it.
    assert openpgp.mismatch(armoured(key_file(1), "Version: y\n"), text_of(file)) is None
    assert "whose text has the SHA-256" in str(openpgp.mismatch(file + b"\n", text_of(file)))
    assert "whose text has the SHA-256" in str(openpgp.mismatch(armoured(key_file(2)), text_of(file)))
    # The right text of another key than its name says, or of two.
    assert fingerprint(1) in str(openpgp.mismatch(file, text_of(file, key=2)))
    two = armoured(key_file(1, 2))
    assert fingerprint(2) in str(openpgp.mismatch(two, text_of(two)))
    for wrong in ("text-sha256:0:" + fingerprint(1)[-8:], text_of(file)[:-9]):
        with pytest.raises(openpgp.KeyFileError, match="is no fingerprint"):
            openpgp.normalise(wrong)


def test_gpg_agrees_about_a_real_keyring(tmp_path: Path) -> None:
    keyring = next(iter(sorted(Path("/usr/share/keyrings").glob("*archive-keyring.gpg"))), None)
    if keyring is None or shutil.which("gpg") is None:
        pytest.skip("no keyring or no gpg here")
    listing = subprocess.run(
        ["gpg", "--homedir", str(tmp_path), "--with-colons", "--show-keys", str(keyring)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    primary, found = False, []
    for line in listing.splitlines():
        fields = line.split(":")
        if fields[0] == "pub":
            primary = True
        elif fields[0] == "fpr" and primary:
            found.append(fields[9])
            primary = False
    if not found:
        pytest.skip("gpg does not list keys here")
    assert openpgp.fingerprints(keyring.read_bytes()) == found


# What another reader of the same file would find in it


@dataclass(frozen=True)
class Key:
    """A key that gpg made: its file in both forms."""

    fingerprint: str
    data: bytes
    text: str


def gpg(home: Path, *words: str) -> bytes:
    """What gpg says, with a home of its own."""
    home.mkdir(mode=0o700, exist_ok=True)
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


def new_key(home: Path, name: str) -> Key:
    """A key of that name, made in that home of gpg's."""
    words = (
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
        "--quick-generate-key",
        name,
        "rsa2048",
        "sign",
        "never",
    )
    gpg(home, *words)
    data = gpg(home, "--export", name)
    (found,) = openpgp.fingerprints(data)
    return Key(found, data, gpg(home, "--armor", "--export", name).decode())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Key]:
    """Makes a key of that name, once."""
    return cache(partial(new_key, tmp_path_factory.mktemp("keys") / "home"))


BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def _with_colons(ours: Key, theirs: Key) -> str:
    """One armour with both, the second one's lines with a character that base64 has not."""
    filling = bytes(-(len(ours.data) + 2) % 3)
    front = ours.data + bytes([0xB0, len(filling)]) + filling
    behind = (f"{line[:4]}:{line[4:]}\n" for line in base64.encodebytes(theirs.data).decode().splitlines())
    return f"{BEGIN}\n\n{base64.encodebytes(front).decode()}{''.join(behind)}{END}\n"


# Files in which our parser finds the first key alone, and that gpg or rpm takes both keys from.
SECOND_KEYS: dict[str, Callable[[Key, Key], str]] = {
    "a second armour without its end": lambda ours, theirs: ours.text + theirs.text.replace(END, ""),
    "a second armour with another end": lambda ours, theirs: (
        ours.text + theirs.text.replace(END, "-----END PGP PUBLIC KEY-----")
    ),
    "a second armour of another kind": lambda ours, theirs: (
        ours.text + theirs.text.replace("PUBLIC KEY BLOCK", "PRIVATE KEY BLOCK")
    ),
    "a second armour in lines of another system": lambda ours, theirs: ours.text + theirs.text.replace("\n", "\r"),
    "characters that base64 has not": _with_colons,
}


@pytest.mark.parametrize("form", ["binary", "armoured"])
@pytest.mark.parametrize("attack", SECOND_KEYS)
def test_gpg_finds_no_key_in_our_keyring_but_the_checked_one(
    made: Callable[[str], Key], tmp_path: Path, attack: str, form: str
) -> None:
    ours, theirs = made("repository"), made("stranger")
    (tmp_path / "key.pub").write_text(SECOND_KEYS[attack](ours, theirs), newline="")
    path = tmp_path / "keyring"
    answer = run_module(
        repository_key, url=f"file://{tmp_path}/key.pub", fingerprint=ours.fingerprint, path=str(path), form=form
    )
    if attack == "characters that base64 has not":
        assert "the armour of the key file is damaged" in answer["msg"]
        assert not path.exists()
        return
    gpg(tmp_path / "home", "--import", str(path))
    listed = gpg(tmp_path / "home", "--list-keys", "--with-colons").decode()
    assert [line.split(":")[9] for line in listed.splitlines() if line.startswith("uid")] == ["repository"]


def test_gpg_reads_our_armour_and_its_checksum(made: Callable[[str], Key], tmp_path: Path) -> None:
    ours = made("repository")
    (tmp_path / "key.asc").write_bytes(openpgp.armour(openpgp.keyring(ours.text.encode())))
    assert gpg(tmp_path / "home", "--dearmor", "--output", "-", str(tmp_path / "key.asc")) == openpgp.keyring(ours.data)
    checksum = (tmp_path / "key.asc").read_text().splitlines()[-2]
    assert checksum == ours.text.splitlines()[-2] or openpgp.keyring(ours.data) != ours.data
    gpg(tmp_path / "home", "--import", str(tmp_path / "key.asc"))
    assert gpg(tmp_path / "home", "--export", "--export-options", "export-minimal") == ours.data


def test_what_no_key_needs_is_left_out_with_the_signatures_of_it() -> None:
    signature = packet(2, b"\x04\x13\x01\x08" + bytes(20))
    picture, note = packet(17, b"picture", new=True), packet(12, b"\x06\x00")
    primary = packet(6, key_body(1))
    rest = key_file(1).removeprefix(primary)
    given = primary + note + rest + signature + note + signature + picture + signature + signature
    assert openpgp.keyring(given) == primary + rest + signature + signature


def test_a_revocation_is_handed_on_for_apt_and_rpm_to_judge(made: Callable[[str], Key], tmp_path: Path) -> None:
    name, home = "revoked", tmp_path / "home"
    new_key(home, name)
    (revocation,) = (home / "openpgp-revocs.d").glob("*.rev")
    revocation.write_text(revocation.read_text().replace(":-----BEGIN", "-----BEGIN"))
    gpg(home, "--import", str(revocation))
    (tmp_path / "keyring").write_bytes(openpgp.keyring(gpg(home, "--export", name)))
    listed = gpg(tmp_path / "other", "--with-colons", "--show-keys", str(tmp_path / "keyring")).decode()
    assert listed.splitlines()[0].startswith("pub:r:")


# The module


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "key.pub").write_bytes(armoured(key_file(1)))
    return {
        "url": f"file://{tmp_path}/key.pub",
        "fingerprint": fingerprint(1),
        "path": str(tmp_path / "keyrings/x.gpg"),
    }


def test_the_keyring_is_written_in_binary_for_all_to_read(options: dict[str, Any]) -> None:
    assert run_module(repository_key, **options)["changed"] is True
    path = Path(options["path"])
    assert path.read_bytes() == key_file(1)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["x.gpg"]


def test_a_keyring_that_is_known_by_its_text_is_compared_with_the_file_anew(options: dict[str, Any]) -> None:
    options["fingerprint"] = text_of(Path(options["url"].removeprefix("file://")).read_bytes())
    told = run_module(repository_key, check=True, **options)
    assert (told["changed"], Path(options["path"]).exists()) == (True, False)
    seen = run_module(repository_key, **options)
    assert (seen["changed"], seen["fingerprint"]) == (True, fingerprint(1))
    again = run_module(repository_key, **options)
    assert (again["changed"], again["fingerprint"]) == (False, fingerprint(1))
    assert run_module(repository_key, check=True, **options)["changed"] is False
    # One of another key, with the same short name or not, does not stay.
    Path(options["path"]).write_bytes(key_file(7))
    assert run_module(repository_key, **options)["changed"] is True
    Path(options["url"].removeprefix("file://")).write_bytes(armoured(key_file(2)))
    assert run_module(repository_key, **options)["failed"] is True
    assert Path(options["path"]).read_bytes() == key_file(1)


def test_check_mode_writes_no_keyring(options: dict[str, Any]) -> None:
    assert run_module(repository_key, check=True, **options)["changed"] is True
    assert not Path(options["path"]).exists()


def test_a_right_keyring_is_kept_without_asking_the_network(options: dict[str, Any]) -> None:
    run_module(repository_key, **options)
    options["url"] = "file:///nonexistent"
    assert run_module(repository_key, **options)["changed"] is False
    assert run_module(repository_key, check=True, **options)["changed"] is False


def test_a_keyring_with_a_second_key_is_replaced(options: dict[str, Any]) -> None:
    path = Path(options["path"])
    path.parent.mkdir()
    path.write_bytes(key_file(1, 2))
    answer = run_module(repository_key, **options)
    assert (answer["changed"], answer["previous"]) == (True, [fingerprint(1), fingerprint(2)])
    assert path.read_bytes() == key_file(1)


def test_a_wrong_key_is_refused_and_the_old_keyring_stays(options: dict[str, Any], tmp_path: Path) -> None:
    path = Path(options["path"])
    path.parent.mkdir()
    path.write_bytes(key_file(7))
    (tmp_path / "key.pub").write_bytes(armoured(key_file(1, 2)))
    answer = run_module(repository_key, **options)
    assert answer["failed"] is True
    assert fingerprint(1) in answer["msg"]
    assert fingerprint(2) in answer["msg"]
    assert path.read_bytes() == key_file(7)


def test_an_address_that_does_not_answer_is_named(options: dict[str, Any]) -> None:
    options["url"] = "http://127.0.0.1:9/key.pub"
    answer = run_module(repository_key, timeout=5, **options)
    assert answer["failed"] is True
    assert "127.0.0.1:9" in answer["msg"]


def test_a_keyring_for_rpm_has_an_armour_and_one_for_apt_has_none(options: dict[str, Any]) -> None:
    path = Path(options["path"])
    for form, armour in (("armoured", True), ("binary", False), ("armoured", True)):
        seen = run_module(repository_key, **options, form=form)
        assert seen["changed"] is True
        assert path.read_bytes().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----") is armour
        assert run_module(repository_key, **options, form=form)["changed"] is False
