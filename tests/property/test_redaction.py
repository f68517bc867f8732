"""Credentials are taken out of whatever is written or shown, whatever they look like; and nothing else is."""

from __future__ import annotations

import json
import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact

#: What no text around has, so that what is found again is the planted one.
secrets = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "+/=:@%&?#!$~ ;,'"), min_size=6, max_size=30
).map(lambda word: f"Zq{word}Qz")
#: What may stand around an address.
around = st.text(st.sampled_from("ab 01.,;:()[]{}<>\"'\n-/"), max_size=20)
plain = st.text(st.sampled_from(string.ascii_letters + string.digits + " .,:;()[]{}<>\"'\n-/_*"), max_size=80)


def mangled(where: str, secret: str) -> str:
    return where.replace("SECRET", quote(secret, safe=""))


ADDRESSES = (
    "https://user:SECRET@mirror.example/cuda/",
    "https://SECRET@mirror.example:8443/cuda/",
    "http://user:SECRET@[2001:db8::1]:80/x",
    "http://SECRET:@mirror.example",
    "socks5h://user:SECRET@proxy:1080",
    "https://mirror.example/x?token=SECRET",
    "https://mirror.example/x?a=1&X-Amz-Signature=SECRET&b=2",
    "https://mirror.example/x?X-Amz-Credential=SECRET",
    "https://mirror.example/x?a=1&amp;sig=SECRET&amp;b=2",
    "https://mirror.example/x?X-Goog-Signature=SECRET#part",
    "https://mirror.example/x?Access_Token=SECRET",
    "https://mirror.example/x?password=SECRET",
    "http_proxy=user:SECRET@proxy:3128",
    '"https_proxy": "user:SECRET@proxy:3128"',
    'Acquire::http::Proxy "http://user:SECRET@proxy:3128";',
    "Authorization: Basic SECRET",
    "proxy-authorization: Bearer SECRET",
    "X-JFrog-Art-Api-Key: SECRET",
    "Cookie: session=SECRET",
    '{"ansible_password": "SECRET", "port": 22}',
    "{'client_secret': 'SECRET'}",
    "machine http://mirror.example login SECRET password SECRET",
    "machine mirror.example\n  login user\n  password SECRET",
    "[repository]\nusername=SECRET\npassword = SECRET\n",
)


@pytest.mark.parametrize("address", ADDRESSES)
@given(secret=secrets, before=around, after=around)
def test_a_planted_secret_never_survives(address: str, secret: str, before: str, after: str) -> None:
    planted = quote(secret, safe="")
    told = redact.text(f"{before}\n{mangled(address, secret)} {after} {mangled(address, secret)}")
    assert planted not in told
    assert redact.MARK in told
    assert redact.text(told) == told


@given(
    secret=st.text(
        st.sampled_from(string.ascii_letters + string.digits + "+/=:@%&?#!$~;,'()[]"), min_size=6, max_size=30
    ).map(lambda word: f"Zq{word}Qz")
)
@example("Zq/word?with#everythingQz")
@example("Zqword/Qz")
@example("Zqword:///Qz")
def test_a_password_that_nobody_encoded_does_not_survive_either(secret: str) -> None:
    for address in (f"http://user:{secret}@mirror.example/x", f"'http://user:{secret}@mirror.example'"):
        told = redact.text(address)
        assert secret not in told
        assert "Qz" not in told


@given(plain)
def test_a_text_without_credentials_is_left_as_it_is(text: str) -> None:
    assert redact.text(text) == text


leaves = st.none() | st.booleans() | st.integers() | plain
documents = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3))


@given(documents)
def test_a_document_without_credentials_is_left_as_it_is(value: Any) -> None:
    assert redact.document(value) == value


@given(documents, secrets, st.sampled_from(ADDRESSES))
def test_a_document_is_searched_in_its_texts_and_its_keys(value: Any, secret: str, address: str) -> None:
    planted = mangled(address, secret)
    told = json.dumps(redact.document({"a": [value, {planted: {"b": planted}}]}))
    assert quote(secret, safe="") not in told
    assert redact.document(json.loads(told)) == json.loads(told)
