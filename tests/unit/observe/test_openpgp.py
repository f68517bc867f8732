from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils import openpgp
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
        (packet(13, b"only a name"), "no public key"),
        (packet(5, key_body(1)), "secret"),
        (packet(6, b"\x03" + key_body(1)[1:]), "version 3"),
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
