"""How settings of Docker are wished, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit.wish import (
    docker as docker_settings,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

Resolve = Callable[..., dict[str, Any]]
MEMLOCK = {"Name": "memlock", "Hard": -1, "Soft": -1}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"log-driver": "json-file"}, {"log-driver": "json-file"}),
        (
            {"log-opts": {"max-size": "50m", "max-file": 3, "compress": True}},
            {"log-opts": {"max-size": "50m", "max-file": "3", "compress": "true"}},
        ),
        ({"data-root": "/data/docker"}, {"data-root": "/data/docker"}),
        ({"default-shm-size": "8g"}, {"default-shm-size": "8g"}),
        ({"default-ulimits": {"memlock": "unlimited"}}, {"default-ulimits": {"memlock": MEMLOCK}}),
        ({"default-ulimits": {"memlock": -1}}, {"default-ulimits": {"memlock": MEMLOCK}}),
        (
            {"default-ulimits": {"stack": {"soft": 1024, "hard": 67108864}}},
            {"default-ulimits": {"stack": {"Name": "stack", "Hard": 67108864, "Soft": 1024}}},
        ),
        ({"registry-mirrors": "https://mirror.example"}, {"registry-mirrors": ["https://mirror.example"]}),
        (
            {"proxies": {"https-proxy": "http://proxy.example:3128", "no-proxy": ["localhost", ".example"]}},
            {"proxies": {"https-proxy": "http://proxy.example:3128", "no-proxy": "localhost,.example"}},
        ),
        ({"live-restore": "yes"}, {"live-restore": True}),
    ],
)
def test_settings_are_read_into_dockers_own_form(written: Any, read: Any) -> None:
    assert docker_settings.read(written) == read
    assert Wish.from_variables({"container_toolkit_docker": written}).container_toolkit_docker == read


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (["log-driver"], "has to map settings"),
        ({"hosts": ["tcp://0.0.0.0"]}, "'hosts' is no setting that can be wished"),
        ({"log-driver": True}, "is no log driver"),
        ({"log-opts": "50m"}, "write options such as"),
        ({"data-root": "docker"}, "is no absolute path"),
        ({"data-root": "/data/../etc"}, "is no absolute path"),
        ({"default-shm-size": "much"}, "is no size"),
        ({"default-ulimits": {"memlock": "much"}}, "is no limit"),
        ({"default-ulimits": {"memlock": {"soft": 1}}}, "write a number, unlimited"),
        ({"registry-mirrors": ["mirror"]}, "is no address"),
        (
            {"proxies": {"https-proxy": "http://user:secret@proxy.example:3128"}},
            "with a user or a password is not written",
        ),
        ({"proxies": {"ftp-proxy": "x"}}, "write some of http-proxy"),
        ({"live-restore": "perhaps"}, "expected true or false"),
    ],
)
def test_what_cannot_be_a_setting_is_told_and_never_its_password(written: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text) as refused:
        docker_settings.read(written)
    assert "secret" not in str(refused.value)


def settings(**given: Any) -> dict[str, Any]:
    return {"container_toolkit_wanted": True, "container_toolkit_docker": given}


def test_the_stack_has_the_settings_of_docker(resolve: Resolve) -> None:
    found = resolve("H100", "debian-13", wish=settings(**{"live-restore": True}))
    assert found["stack"]["container_toolkit"]["engine"]["settings"] == {"live-restore": True}
    assert "settings" not in resolve("H100", "debian-13", "container-toolkit")["stack"]["container_toolkit"]["engine"]


def test_settings_of_docker_need_docker(resolve: Resolve) -> None:
    (conflict,) = resolve("H100", "debian-13", "container-engine=podman", wish=settings(**{"live-restore": True}))[
        "conflicts"
    ]
    assert conflict["rule"] == "container-toolkit.settings"
    assert "the engine is podman" in conflict["text"]


@pytest.mark.parametrize(("os", "refused"), [("debian-12", True), ("debian-13", False)])
def test_a_docker_that_does_not_know_a_setting_is_not_given_it(resolve: Resolve, os: str, refused: bool) -> None:
    found = resolve("H100", os, wish=settings(proxies={"https-proxy": "http://proxy.example:3128"}))
    texts = [row["text"] for row in found.get("conflicts", ())]
    assert texts == (
        ["docker 20.10.24 does not start with the setting proxies, which came with 23.0"] if refused else []
    )
