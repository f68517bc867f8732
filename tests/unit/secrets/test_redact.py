"""Credentials are taken out of whatever is written or shown, and nothing else is."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "text",
    [
        "see https://docs.example/a@b and https://host:443/a@b, or write to gpu@site.example",
        "http://[::1]:80/x@y",
        "/opt//gpuwright@1.service, /dev/disk/by-id/x@y",
        '{"url":"http://mirror.example/debian","mail":"a@b.example"}',
        "Basic installation, no password needed; the token ring is a network; authentication failed",
        "key: url, fingerprint; pass 3, fail 1",
        "https://mirror.example/x?version=580&arch=x86_64",
    ],
)
def test_what_only_looks_like_one_is_left_as_it_is(text: str) -> None:
    assert redact.text(text) == text


def test_the_machine_and_what_stands_around_it_are_still_told() -> None:
    text = "Failed to fetch <'https://me:s3cr3t@a.example/x'>, (http://tok@b.example:80) and http://c.example"
    assert (
        redact.text(text)
        == "Failed to fetch <'https://***@a.example/x'>, (http://***@b.example:80) and http://c.example"
    )


def test_an_address_inside_an_address_or_json_is_found() -> None:
    inside = "https://proxy.example/?to=" + quote(f"http://me:{SECRET}@a.example/x", safe="")
    twice = "https://proxy.example/?to=" + quote(quote(f"http://me:{SECRET}@a.example/x", safe=""), safe="")
    escaped = rf"http:\/\/me:{SECRET}@a.example\/x"
    for text in (inside, twice, escaped, json.dumps([escaped])):
        assert SECRET not in redact.text(text)
        assert "a.example" in redact.text(text)


@pytest.mark.parametrize(
    "key",
    ["password", "ansible_become_password", "registry_token", "Authorization", "access_token", "passphrase", "api_key"],
)
def test_the_value_of_a_secrets_key_is_taken_out_whole(key: str) -> None:
    assert redact.document({key: SECRET, "port": 1}) == {key: "***", "port": 1}


def test_an_address_that_is_itself_the_secret_is_taken_out_by_its_key() -> None:
    hooks = {
        "hook": {"webhook": {"url": f"https://a.example/{SECRET}"}},
        "chat": {"slack": {"url": SECRET, "channel": "#gpu"}},
    }
    wish = {"monitoring_receivers": hooks, "watch_webhook": f"https://a.example/{SECRET}"}
    told = redact.document(wish)
    assert SECRET not in json.dumps(told)
    assert told["monitoring_receivers"]["chat"]["slack"] == {"url": redact.MARK, "channel": "#gpu"}
    assert redact.document({"webhook": "sent", "slack": {"channel": "#gpu"}}) == {
        "webhook": "sent",
        "slack": {"channel": "#gpu"},
    }


def test_a_proxy_without_a_scheme_is_redacted_by_its_key() -> None:
    told = redact.document({"httpProxy": f"me:{SECRET}@proxy:3128", "no_proxy": "a.example,b.example"})
    assert told == {"httpProxy": "***@proxy:3128", "no_proxy": "a.example,b.example"}


def test_keys_that_are_no_secrets_keep_their_values() -> None:
    value = {
        "key": "driver",
        "verdict": "pass",
        "pass": "3",
        "signature": "good",
        "counts": {"pass": 1},
        "password": None,
    }
    assert redact.document(value) == value


def test_an_address_is_parted_from_its_credentials() -> None:
    url = "https://me%40site:s3%2Bcr3t@mirror.example:8443/cuda/"
    assert redact.credentials(url) == ("https://mirror.example:8443/cuda/", "me@site", "s3+cr3t")
    assert redact.without_credentials(url) == "https://mirror.example:8443/cuda/"
    assert redact.credentials("https://t0ken@mirror.example/") == ("https://mirror.example/", "t0ken", "")
    assert redact.credentials("https://me:%22%23%5C%24@mirror.example/") == ("https://mirror.example/", "me", '"#\\$')
    assert redact.credentials("https://mirror.example/a@b") is None
    assert redact.credentials("/srv/my files/a@b.run") is None
    assert redact.without_credentials("/srv/a@b.run") == "/srv/a@b.run"


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}%0Amachine@mirror.example/",
        f"http://me:{SECRET}%20password@mirror.example/",
        f"http://me%0d{SECRET}:x@mirror.example/",
        f"http://me:{SECRET}%00@mirror.example/",
        f"http://me:{SECRET}%E2%80%A8@mirror.example/",
        f"http://me%3Ayou:{SECRET}@mirror.example/",
        f"http://me:{SECRET}\n@mirror.example/",
        f"http://me:{SECRET}/x@mirror.example/",
        f"http://me:{SECRET}#x@mirror.example/",
        f"http://me:{SECRET}?x@mirror.example/",
        f"http://mirror.example/?token={SECRET}",
    ],
)
def test_credentials_that_cannot_be_written_are_refused_without_being_told(url: str) -> None:
    with pytest.raises(redact.CredentialsError, match=r"Expected .* Found .* What to do: ") as refused:
        redact.credentials(url)
    assert SECRET not in str(refused.value)
    assert base64.b64encode(SECRET.encode()).decode() not in str(refused.value)


@pytest.mark.parametrize(
    "piece",
    [
        "a@b ",
        "://",
        "://a:",
        "&key=",
        "authorization ",
        "x-",
        "proxy",
        "proxy=",
        "login ",
        "%25",
        "%3A%2F%2F",
        " ",
        "'token':'",
    ],
)
def test_a_node_cannot_hold_it_up_by_what_it_says(piece: str) -> None:
    text = piece * (200_000 // len(piece)) + "@token"
    began = time.process_time()
    redact.text(text)
    # Measured: at most 0.6 s. Where each of many beginnings were searched to the end, it would be minutes.
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", ["2a", "2b", "2y"])
def test_the_hash_of_a_password_is_a_secret(kind: str) -> None:
    """Who has it can try words."""
    assert redact.text(f"users: ${kind}$10${'aB3./' * 10}abc end") == f"users: {redact.MARK} end"
