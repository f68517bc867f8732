"""The exporters of metrics: the wish, whose a port is, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_exporters import (
    resolve as monitoring_exporters,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, proven, wish

from .conftest import Resolve

NODE, GPU = "prometheus-node-exporter.service", monitoring_exporters.UNIT
HASH = "$2y$05$abcdefghijklmnopqrstuuoMt/3RSWy9nt1XJ.fOvAVtRBAZkrjKK"
PAIR = {"certificate": "/etc/ssl/node.pem", "key": "/etc/ssl/private/node.key"}


def listener(port: int, **changes: Any) -> Any:
    row = {
        "address": "127.0.0.1",
        "port": port,
        "process": "somebody",
        "user": "other",
        "unit": "theirs.service",
        "tls": False,
    }
    return {**row, "status": 200, "tells": None, "certificate": None, **changes}


def seen(*listeners: Any, drop_ins: Any = (), certificate: Any = None, **changes: Any) -> Any:
    """A node where this listens."""
    found = {"listeners": list(listeners), "drop_ins": list(drop_ins), "certificate": certificate}
    return nodes.provisioned(monitoring=found, **changes)


def made(facts: Any, **variables: Any) -> Any:
    return plan(facts, wish(gpuwright_want=["driver=580", "monitoring"], **variables))


def exporters(facts: Any, **variables: Any) -> Any:
    planned = made(facts, **variables)
    assert planned["refusals"] == []
    return planned["stack"]["monitoring_exporters"]


def conflict(facts: Any, **variables: Any) -> Any:
    (found,) = made(facts, **variables)["conflicts"]
    return found


def why(planned: Any, rule: str) -> list[str]:
    return [row["text"] for row in planned["why"] + planned["warnings"] if row["rule"] == f"monitoring.{rule}"]


# The wish


@pytest.mark.parametrize(
    ("variables", "source"),
    [
        ({"gpuwright_want": ["monitoring"]}, "auto"),
        ({"gpuwright_want": ["monitoring=smi"]}, "smi"),
        ({"monitoring_source": "auto"}, "auto"),
        ({"gpuwright_want": ["monitoring"], "monitoring_source": "smi"}, "smi"),
        ({"gpuwright_want": ["monitoring=auto"]}, "auto"),
        ({"monitoring_source": "smi"}, "smi"),
        ({"monitoring_source": ""}, None),
        ({"monitoring_source": False}, None),
        ({"monitoring_address": "10.0.0.5"}, None),
    ],
)
def test_exporters_are_wished_by_name_or_by_variable(variables: Any, source: str | None) -> None:
    assert Wish.from_variables(variables).monitoring_exporters == source


def test_without_settings_they_listen_on_the_loopback_address() -> None:
    asked = Wish.from_variables({"gpuwright_want": ["monitoring"]}).monitoring_exporters_settings
    assert (asked.address, asked.gpu_port, asked.node_port) == ("127.0.0.1", 9400, 9100)
    assert (asked.certificate, asked.key, asked.users) == (None, None, {})


def test_settings_of_the_inventory_stay_beside_a_want_of_the_command_line() -> None:
    given = {"monitoring_address": "10.0.0.5", "monitoring_gpu_port": "9401", "monitoring_tls": PAIR}
    asked = Wish.from_variables({"gpuwright_want": ["monitoring=smi"], **given})
    assert asked.monitoring_exporters == "smi"
    assert (asked.monitoring_exporters_settings.address, asked.monitoring_exporters_settings.gpu_port) == (
        "10.0.0.5",
        9401,
    )
    assert (asked.monitoring_exporters_settings.certificate, asked.monitoring_exporters_settings.key) == tuple(
        PAIR.values()
    )


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"monitoring_source": "nvml"}, "monitoring_source: expected one of .*, found 'nvml'"),
        (
            {"monitoring_address": "localhost"},
            "monitoring_address: expected an address of this machine, found 'localhost'",
        ),
        ({"monitoring_address": "10.0.0.0/8"}, "expected an address"),
        ({"monitoring_gpu_port": 0}, "monitoring_gpu_port: expected a port"),
        ({"monitoring_node_port": 65536}, "monitoring_node_port: expected a port from 1 to 65535, found 65536"),
        ({"monitoring_node_port": True}, "monitoring_node_port: expected a port"),
        ({"monitoring_node_port": 9400}, "two programs cannot listen on one port"),
        ({"monitoring_tls": "x"}, "monitoring_tls: expected the files certificate and key, found str"),
        ({"monitoring_tls": {"certificate": "/x"}}, "expected the files certificate and key, found certificate"),
        ({"monitoring_tls": {**PAIR, "key": "key.pem"}}, "expected an absolute path .* as key, found 'key.pem'"),
        ({"monitoring_tls": {**PAIR, "key": "/a/../b"}}, "expected an absolute path"),
        ({"monitoring_tls": {**PAIR, "key": "/a:%i b"}}, "expected an absolute path"),
        ({"monitoring_users": [HASH]}, "monitoring_users has to map names to hashes, found list"),
        ({"monitoring_users": {"a:b": HASH}}, "expected a name .*, found 'a:b'"),
        ({"monitoring_users": {"a": "secret"}}, "monitoring_users of a: expected a hash of bcrypt"),
        ({"monitoring_users": {"a": HASH.replace("$05$", "$15$")}}, "of a cost up to 14"),
        ({"monitoring_users": {"a": HASH + "x"}}, "expected a hash of bcrypt"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_and_no_secret_is_told(variables: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        Wish.from_variables(variables)
    assert "abcdefghij" not in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(BadInput, match=words):
        settings.refuse({"node": variables})


def test_a_hash_is_in_no_wish_and_no_plan_and_two_of_them_differ() -> None:
    first = made(seen(), monitoring_users={"prometheus": HASH})
    second = made(seen(), monitoring_users={"prometheus": HASH.replace("$05$", "$06$")})
    for planned in (first, second):
        assert "abcdefghij" not in str(planned)
    digests = [planned["digests"]["monitoring_exporters"] for planned in (first, second)]
    assert digests[0] != digests[1]


def test_a_hash_is_taken_out_of_every_record() -> None:
    assert "abcdefghij" not in redact.text(f'{{"monitoring_users": {{"prometheus": "{HASH}"}}}}')
    assert "abcdefghij" not in str(redact.document({"users": {"a": HASH, "b": [HASH]}}))


# What a machine gets


def test_a_card_of_any_kind_and_system_has_its_exporters(resolve: Resolve) -> None:
    for system, package, repository, flag in (
        ("ubuntu-24.04", "prometheus-node-exporter", None, "--web.config.file"),
        ("ubuntu-22.04", "prometheus-node-exporter", None, "--web.config"),
        ("debian-13", "prometheus-node-exporter", None, "--web.config.file"),
        ("rocky-9", "golang-github-prometheus-node-exporter", "epel", "--web.config.file"),
    ):
        stack = resolve("H100", system, "driver", "monitoring")["stack"]
        node = stack["monitoring_exporters"]["node"]
        assert (node["package"], node["repository"], node["flag"]) == (package, repository, flag)
        assert ("epel" in [row["name"] for row in stack["repositories"]]) == (repository == "epel")
        gpu = stack["monitoring_exporters"]["gpu"]
        assert (gpu["source"], gpu["port"], gpu["adopted"]) == ("smi" if system == "debian-13" else "dcgm", 9400, None)


def test_who_wishes_nothing_of_it_gets_nothing(resolve: Resolve) -> None:
    assert "monitoring_exporters" not in resolve("H100", "ubuntu-24.04", "driver")["stack"]
    assert not Wish.from_wants(["monitoring"]).nothing_wished


@pytest.mark.parametrize("system", ["ubuntu-24.04", "debian-13", "rocky-9"])
def test_a_machine_without_cards_has_the_exporter_of_the_machine_alone(resolve: Resolve, system: str) -> None:
    answer = resolve([], system, "monitoring", "lmdb")
    found = answer["stack"]["monitoring_exporters"]
    assert (found["gpu"], found["node"]["port"]) == (None, 9100)
    sources = [row["name"] for row in answer["stack"]["repositories"]]
    assert sources == (["epel"] if system == "rocky-9" else [])
    told = [row["text"] for row in answer["why"] if row["rule"] == "monitoring.listens"]
    assert told == ["metrics of this machine on http://127.0.0.1:9100, for everybody who reaches it"]
    assert "repositories" not in resolve([], system, "lmdb")["stack"]


@pytest.mark.parametrize(
    ("wants", "variables", "words"),
    [
        (["monitoring"], {}, "alone; gpuwright_gpus_expected: 0 in the inventory tells the server of metrics"),
        (["monitoring"], {"gpuwright_gpus_expected": 0}, "alone"),
        (["monitoring=dcgm"], {"gpuwright_gpus_expected": 0}, "alone, and dcgm has nothing to tell"),
        ([], {"monitoring_source": "smi", "gpuwright_gpus_expected": "0"}, "alone, and smi has nothing to tell"),
    ],
)
def test_without_cards_a_source_of_theirs_is_told_and_not_refused(
    resolve: Resolve, wants: list[str], variables: Any, words: str
) -> None:
    answer = resolve([], "debian-13", *wants, wish=variables)
    (told,) = [row["text"] for row in answer["warnings"]]
    assert told.startswith(f"no NVIDIA GPU: the exporter of this machine comes {words}")
    assert ("gpus_expected" in told) is (not variables)


def test_a_jetson_is_told_why_it_has_none(resolve: Resolve) -> None:
    answer = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", "monitoring", arch="aarch64")
    assert "monitoring_exporters" not in answer["stack"]
    assert any("nvidia-smi of a Jetson" in row["text"] for row in answer["warnings"])


def test_the_plan_says_what_listens_where_and_for_whom() -> None:
    told = why(made(seen()), "listens")
    assert told == [
        "metrics of the cards (by smi) on http://127.0.0.1:9400, of this machine on http://127.0.0.1:9100, for everybody who reaches it"
    ]
    secured = made(seen(), monitoring_address="fd00::5", monitoring_tls=PAIR, monitoring_users={"prometheus": HASH})
    assert "https://[fd00::5]:9400" in why(secured, "listens")[0]
    assert why(secured, "listens")[0].endswith("for prometheus")
    assert [why(secured, rule) for rule in ("open", "clear", "everywhere")] == [[], [], []]


@pytest.mark.parametrize(
    ("variables", "rules"),
    [
        ({}, []),
        ({"monitoring_address": "10.0.0.5"}, ["open"]),
        ({"monitoring_address": "0.0.0.0"}, ["everywhere", "open"]),  # noqa: S104 - wished by that name
        ({"monitoring_address": "10.0.0.5", "monitoring_users": {"a": HASH}}, ["clear"]),
        ({"monitoring_users": {"a": HASH}}, []),
        ({"monitoring_address": "10.0.0.5", "monitoring_users": {"a": HASH}, "monitoring_tls": PAIR}, []),
    ],
)
def test_what_others_may_read_is_a_warning(variables: Any, rules: list[str]) -> None:
    warned = made(seen(), **variables)["warnings"]
    assert [row["rule"] for row in warned if row["rule"].startswith("monitoring.")] == [
        f"monitoring.{each}" for each in rules
    ]


# Whose a port is


def test_an_exporter_of_somebody_else_is_adopted_and_told() -> None:
    facts = seen(
        listener(9400, tells="gpu", process="dcgm-exporter", unit="nvidia-dcgm-exporter.service", address="::")
    )
    planned = made(facts)
    found = planned["stack"]["monitoring_exporters"]
    assert (found["gpu"]["adopted"], found["node"]["adopted"]) == ("dcgm-exporter (nvidia-dcgm-exporter.service)", None)
    assert why(planned, "adopted") == [
        "dcgm-exporter (nvidia-dcgm-exporter.service) tells the metrics of the cards on [::]:9400 already: it is left as it is"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            "127.0.0.1:9400 is held by somebody (theirs.service), which is no exporter of the cards (its metrics are of others)",
        ),
        ({"tells": "node"}, "its metrics are of others"),
        ({"status": 401}, "(it answers with status 401)"),
        ({"status": None}, "(it does not answer)"),
        ({"unit": None}, "held by somebody, which"),
        ({"unit": None, "process": None}, "held by a program of the user other, which"),
        ({"address": "0.0.0.0"}, "0.0.0.0:9400 is held by"),  # noqa: S104 - somebody's
        ({"address": "::"}, "[::]:9400 is held by"),
        ({"address": "::ffff:127.0.0.1"}, "is held by"),
    ],
)
def test_a_port_that_something_else_holds_is_refused_with_who_it_is(changes: Any, words: str) -> None:
    found = conflict(seen(listener(9400, **changes)))
    assert found["rule"] == "monitoring.port"
    assert words in found["text"]
    assert "set monitoring_gpu_port to a port that is free" in found["remedy"]


@pytest.mark.parametrize("address", ["10.0.0.5", "::1", "192.0.2.7"])
def test_what_listens_on_another_address_is_in_nobodys_way(address: str) -> None:
    assert exporters(seen(listener(9400, address=address)))["gpu"]["adopted"] is None
    found = conflict(seen(listener(9400, address=address)), monitoring_address="0.0.0.0")  # noqa: S104 - wished by that name
    assert found["rule"] == "monitoring.port"


def test_what_is_ours_is_no_strangers() -> None:
    ours = [listener(9400, unit=GPU, tells="gpu"), listener(9100, unit=NODE, tells="node")]
    found = exporters(seen(*ours, drop_ins=[NODE]))
    assert (found["gpu"]["adopted"], found["node"]["adopted"]) == (None, None)
    # In a container nobody sees whose a socket is: it is ours while our units run.
    unseen = [{**each, "process": None, "unit": None} for each in ours]
    running = {GPU: {"active": "active", "enabled": "enabled"}, NODE: {"active": "active", "enabled": "enabled"}}
    found = exporters(seen(*unseen, drop_ins=[NODE], services=running))
    assert (found["gpu"]["adopted"], found["node"]["adopted"]) == (None, None)
    found = exporters(seen(*unseen, drop_ins=[NODE]))
    assert (found["gpu"]["adopted"], found["node"]["adopted"]) == ("a program of the user other",) * 2
    # By the seal where somebody took the drop-in away; without one it is somebody else's.
    seals = proven(seen(*ours, drop_ins=[NODE]), wish(gpuwright_want=["driver=580", "monitoring"]))["seals"]
    assert exporters(seen(*ours, seals=seals))["node"]["adopted"] is None
    assert exporters(seen(*ours))["node"]["adopted"] == f"somebody ({NODE})"


def test_a_node_exporter_that_runs_elsewhere_gets_no_other_options() -> None:
    services = {NODE: {"active": "active", "enabled": "enabled"}}
    found = conflict(seen(services=services))
    assert found["text"] == f"{NODE} tells metrics of this machine already, and not on 127.0.0.1:9100"
    assert exporters(seen(services=services, drop_ins=[NODE]))["node"]["adopted"] is None
    there = listener(9200, unit=NODE, tells="node", address="::")
    assert (
        exporters(seen(there, services=services), monitoring_node_port=9200)["node"]["adopted"] == f"somebody ({NODE})"
    )


def test_a_certificate_that_cannot_be_served_is_refused() -> None:
    bad = {
        "problem": "/etc/ssl/node.pem expired on 2020-03-01T00:00:00Z",
        "expires": "2020-03-01T00:00:00Z",
        "digest": "ab",
    }
    found = conflict(seen(certificate=bad), monitoring_tls=PAIR)
    assert (found["rule"], found["text"]) == ("monitoring.certificate", bad["problem"])
    assert "monitoring_tls" in found["remedy"]
    assert exporters(seen(certificate={**bad, "problem": None}), monitoring_tls=PAIR)["tls"] == PAIR
