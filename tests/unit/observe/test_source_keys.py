"""The keys of apt's sources: which there are, and why apt takes none of a file."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.observe import apt_proxies, packages
from tests.unit.observe.trees import Tree

#: Two keys that gpg made: one of 2023-08-24 for two years, and one without an end.
EXPIRED = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEZOadgBYJKwYBBAHaRw8BAQdA3PBOyvrtHdL/Fmo8nYXPkvzy6kTNAOlgrRDh
UyJli9u0JkEgcHVibGlzaGVyIDxub2JvZHlAcHVibGlzaGVyLmludmFsaWQ+iJYE
ExYIAD4WIQTrOHrwUWnWgDibGikdNtki8aym8wUCZOadgAIbAwUJA8JnAAULCQgH
AgYVCgkICwIEFgIDAQIeAQIXgAAKCRAdNtki8aym8ytQAQCdFm8lAQQur1GKb+pm
qC2AhDKcK5ERLHAXtinajyGYEgEAoEfh+V5BfSdnug/sMMvVXexsYCtQIDPCyJ00
VPZJgwk=
=GTEs
-----END PGP PUBLIC KEY BLOCK-----
"""
LASTING = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw59fhYJKwYBBAHaRw8BAQdAu013bd8RJFF1tFATZN6vu1ifWnlJaqJuj2x3
w6+ZRWS0KkFub3RoZXIgcHVibGlzaGVyIDxub2JvZHlAYW5vdGhlci5pbnZhbGlk
PoiQBBMWCAA4FiEETuqky55JmwZd2+NdFbB0tzBwj1kFAmsOfX4CGwMFCwkIBwIG
FQoJCAsCBBYCAwECHgECF4AACgkQFbB0tzBwj1lZEgD/XFjdxbO2KLjKT1Iryl1a
dL/qvZfeaxbHHJXH2QhARCcA/i4Jdfa9lhQlNjtr2sX6In22VcQKn3ONOA2Ux5IL
6XQL
=bFxU
-----END PGP PUBLIC KEY BLOCK-----
"""
FIRST, SECOND = "EB387AF05169D680389B1A291D36D922F1ACA6F3", "4EEAA4CB9E499B065DDBE35D15B074B730708F59"
#: Two years after 2023-08-24 00:00:00 UTC, as gpg tells it.
END = 1755907200


def seen(tree: Tree, path: str, content: str | bytes, *, mode: int | None = None, apt: str = "2.6.1") -> Any:
    tree.packages({"apt": apt})
    tree.file(path, content, mode)
    tree.file("/etc/apt/sources.list", f"deb [signed-by={path}] http://a.example/x trixie main\n")
    return packages.observe(tree.host())["sources"][0]


def test_the_end_of_a_key_is_read_as_gpg_reads_it() -> None:
    both = (EXPIRED + LASTING).encode()
    assert openpgp.fingerprints(both) == [FIRST, SECOND]
    assert openpgp.expired(both, END) == {FIRST: END}
    assert openpgp.expired(both, END - 1) == {}


@pytest.mark.parametrize("cut", [40, 90, 150])
def test_a_key_that_is_cut_off_is_no_key(cut: int) -> None:
    data = openpgp.binary(EXPIRED.encode())[:cut]
    with pytest.raises(openpgp.KeyFileError):
        openpgp.expired(data, END)


@pytest.mark.parametrize(
    ("name", "content", "mode", "apt", "fault"),
    [
        ("a.asc", LASTING, None, "2.6.1", None),
        ("a.gpg", openpgp.binary(LASTING.encode()), None, "2.6.1", None),
        ("a.gpg", LASTING, None, "2.6.1", "form"),
        ("a.gpg", LASTING, None, "3.0.3", None),
        ("a.key", LASTING, None, "2.6.1", "form"),
        ("a.gpg", "", None, "2.6.1", "empty"),
        ("a.asc", "<!DOCTYPE html>", None, "2.6.1", "none"),
        ("a.asc", LASTING, 0o640, "2.6.1", "closed"),
    ],
)
def test_why_apt_takes_no_key_of_a_file(
    tree: Tree, name: str, content: str | bytes, mode: int | None, apt: str, fault: str | None
) -> None:
    source = seen(tree, f"/usr/share/keyrings/{name}", content, mode=mode, apt=apt)
    assert source.get("key_fault") == fault
    assert source.get("keys") == ([SECOND] if fault in (None, "form") else None)
    assert "key_expired" not in source


def test_a_directory_that_only_root_may_enter_closes_its_keys(tree: Tree) -> None:
    tree.directory("/etc/apt/keyrings").chmod(0o700)
    assert seen(tree, "/etc/apt/keyrings/a.asc", LASTING)["key_fault"] == "closed"


def test_a_file_is_expired_where_no_key_of_it_is_good(tree: Tree) -> None:
    assert seen(tree, "/k/a.asc", EXPIRED)["key_expired"] == "2025-08-23"
    assert "key_expired" not in seen(tree, "/k/a.asc", EXPIRED + LASTING)


def test_a_source_that_names_no_key_has_those_that_are_trusted_for_all(tree: Tree) -> None:
    tree.packages({})
    tree.file("/etc/apt/sources.list", "deb http://a.example/x trixie main\n")
    tree.file("/etc/apt/trusted.gpg.d/a.asc", LASTING)
    tree.file("/etc/apt/trusted.gpg.d/b.gpg", "no key")
    assert packages.observe(tree.host())["sources"][0]["keys"] == [SECOND]


# The proxies of apt on the machine itself


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Acquire::http::Proxy "http://127.0.0.1:3142";\n', [("127.0.0.1", 3142)]),
        ('Acquire::https::Proxy "http://localhost:3128/";\n', [("localhost", 3128)]),
        ('Acquire::http { Proxy "http://127.0.0.1:3142"; };\n', [("127.0.0.1", 3142)]),
        ('Acquire::http {\n  Proxy "http://user:word@127.0.0.1:3142";\n};\n', [("127.0.0.1", 3142)]),
        ('Acquire::http::Proxy "http://proxy.example:3128";\n', []),
        ('// Acquire::http::Proxy "http://127.0.0.1:3142";\n', []),
        ('Acquire::http::Proxy "DIRECT";\n', []),
    ],
)
def test_proxies_on_the_machine_itself_are_read(text: str, found: list[tuple[str, int]]) -> None:
    assert apt_proxies.parse(text) == found


def test_a_proxy_that_takes_connections_is_not_silent(tree: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert apt_proxies.answers("127.0.0.1", port)
    assert not apt_proxies.answers("127.0.0.1", port)
    # Of the files of another machine nobody can say.
    tree.file("/etc/apt/apt.conf.d/00proxy", f'Acquire::http::Proxy "http://127.0.0.1:{port}";\n')
    assert apt_proxies.silent(tree.host()) == []
