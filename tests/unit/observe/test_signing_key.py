"""The key with which DKMS signs: where it is, and whether the firmware accepts it."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import signing_key, system
from tests.unit.observe.trees import Tree

KEY = b"0\x82\x03\x21" + bytes(range(200))
VARIABLES = "/sys/firmware/efi/efivars/"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"


@pytest.fixture
def secure(tree: Tree) -> Tree:
    """A Debian machine with DKMS's key and a firmware that knows others."""
    tree.file("/var/lib/dkms/mok.pub", KEY)
    tree.file(f"{VARIABLES}MokListRT-{SHIM}", b"\x06\0\0\0another certificate")
    return tree


def test_a_key_in_shims_list_is_enrolled(secure: Tree) -> None:
    secure.file(f"{VARIABLES}MokListRT-{SHIM}", b"\x06\0\0\0header" + KEY)
    assert signing_key.observe(secure.host(), "debian") == {"path": "/var/lib/dkms/mok.pub", "state": "enrolled"}


def test_a_key_in_the_firmwares_own_list_is_enrolled(secure: Tree) -> None:
    secure.file(f"{VARIABLES}db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", b"\x27\0\0\0header" + KEY)
    assert signing_key.observe(secure.host(), "debian")["state"] == "enrolled"


def test_a_key_that_waits_for_shims_menu_is_pending(secure: Tree) -> None:
    secure.file(f"{VARIABLES}MokNew-{SHIM}", b"\x07\0\0\0header" + KEY)
    assert signing_key.observe(secure.host(), "debian")["state"] == "pending"


def test_a_key_in_no_list_is_not_enrolled(secure: Tree) -> None:
    assert signing_key.observe(secure.host(), "debian")["state"] == "not-enrolled"


def test_before_dkms_made_a_key_it_is_absent_and_its_place_is_named(tree: Tree) -> None:
    assert signing_key.observe(tree.host(), "debian") == {"path": "/var/lib/dkms/mok.pub", "state": "absent"}
    assert signing_key.observe(tree.host(), "ubuntu") == {"path": "/var/lib/shim-signed/mok/MOK.der", "state": "absent"}


def test_the_place_that_dkms_is_told_counts(secure: Tree) -> None:
    secure.file("/etc/dkms/framework.conf", '# comment\nmok_certificate="/etc/keys/site.der"\n')
    assert signing_key.observe(secure.host(), "debian") == {"path": "/etc/keys/site.der", "state": "absent"}


def test_a_certificate_in_text_form_is_compared_by_its_content(secure: Tree) -> None:
    text = base64.encodebytes(KEY).decode()
    secure.file("/var/lib/dkms/mok.pub", f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n")
    secure.file(f"{VARIABLES}MokListRT-{SHIM}", b"\x06\0\0\0header" + KEY)
    assert signing_key.observe(secure.host(), "debian")["state"] == "enrolled"


def test_without_any_list_it_is_unknown_not_refused(tree: Tree) -> None:
    tree.file("/var/lib/dkms/mok.pub", KEY)
    host = tree.host()
    assert signing_key.observe(host, "debian")["state"] is None
    assert "boot.signing_key" in host.unknown_facts


def test_a_tool_of_the_sites_own_is_not_judged(secure: Tree) -> None:
    secure.file("/etc/dkms/framework.conf.d/site.conf", "sign_tool=/opt/sign\n")
    assert signing_key.observe(secure.host(), "debian")["state"] is None


def test_it_is_looked_for_only_under_secure_boot(secure: Tree) -> None:
    variable = f"{VARIABLES}SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    secure.file(variable, b"\x06\0\0\0\x00")
    assert system.boot(secure.host(), "debian")["signing_key"] is None
    secure.file(variable, b"\x06\0\0\0\x01")
    found = system.boot(secure.host(), "debian")["signing_key"]
    assert found is not None
    assert found["state"] == "not-enrolled"
