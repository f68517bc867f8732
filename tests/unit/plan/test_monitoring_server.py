"""The component monitoring_server: the wish, what is not as wished, what the role does, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.filter.filled import FilterModule
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server import apply as component
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server import files
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server.model import NAME, of
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import index_answer
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

ROOT = Path(__file__).resolve().parents[3]
UNITS = ("prometheus.service", "prometheus-alertmanager.service")
ON = {"active": "active", "enabled": "enabled"}
OFF = {"active": "inactive", "enabled": "not-found"}
GOOD = {"answers": True, "started": True, "loaded": True, "problem": None}
VERSIONS = {"prometheus": "2.53.3+ds1-2", "prometheus-alertmanager": "0.28.1+ds-1"}
FLEET = {
    f"gpu{number}": {"gpuwright_want": ["monitoring"], "monitoring_address": f"10.0.0.{number}"} for number in (1, 2)
}
SECRET = "n0-0ne"
MAIL = {"to": "a@example.org", "from": "b@example.org", "server": "mail.example.org:25"}
RECEIVERS = {
    "on-call": {
        "severities": "page",
        "mail": {"to": "night@example.org", "from": "gpu@example.org", "server": "mail.example.org:587", "user": "gpu", "password": SECRET},
    },
    "hook": {"webhook": {"url": f"https://desk.example.org/{SECRET}", "token": SECRET}},
    "chat": {"severities": ["page", "ticket"], "slack": {"url": f"https://hooks.slack.com/{SECRET}", "channel": "#gpu"}},
}  # fmt: skip
VARIABLES: dict[str, Any] = {
    "gpuwright_want": ["monitoring-server"],
    "monitoring_receivers": RECEIVERS,
    "monitoring_remote_write": [{"url": "https://metrics.example.org/write", "user": "gpu", "password": SECRET}],
    "monitoring_scrape": {"username": "prometheus", "password": SECRET, "ca": "/etc/ssl/fleet.pem"},
}
FILES = "/etc/gpuwright/monitoring-server-"


def bare(**changes: Any) -> Any:
    """A Debian 13 machine without cards that has nothing of a server."""
    facts = nodes.bare(services=dict.fromkeys(UNITS, OFF), **changes)
    facts["pci"]["gpus"] = []
    return facts


def served(seen: Any = None, **units: Any) -> Any:
    """The same as a server; `seen` of what its programs say, and units by their names."""
    facts = bare()
    facts["packages"]["installed"] |= VERSIONS
    facts["services"] = {"prometheus.service": ON, "prometheus-alertmanager.service": ON, **units}
    rows = [{"host": host, "job": job, "health": "up", "error": None} for host in FLEET for job in ("gpu", "node")]
    told = {"files": [], "prometheus": GOOD, "alertmanager": GOOD, "grafana": None, "targets": rows}
    facts["monitoring_server"] = {**told, **(seen or {})}
    return facts


def made(facts: Any, hosts: Any = None, **variables: Any) -> Any:
    draft = drafted(facts, hosts, **variables)
    assert isinstance(draft, Draft), draft
    return finish(draft, None)


def drafted(facts: Any, hosts: Any = None, **variables: Any) -> Any:
    wish = Wish.from_variables({**VARIABLES, **variables})
    wish = wish.with_fleet(FLEET if hosts is None else hosts, "monitor")
    request = Request(host="monitor", today=date(2026, 11, 20), only=(NAME,))
    return make_draft(facts, wish, load_rules(), request)


def changes(facts: Any, **variables: Any) -> list[Any]:
    return [row for row in made(facts, **variables)["changes"] if row["component"] == NAME]


def check(facts: Any, name: str = "monitoring.server") -> Any:
    found = {each["id"]: each for each in judge.judge(facts, made(served())["stack"])}
    return found.get(name)


# The wish


def test_the_server_alone_brings_no_driver() -> None:
    wish = Wish.from_variables({"gpuwright_want": ["monitoring-server"]}).with_defaults()
    assert (wish.monitoring_server, wish.driver, wish.frameworks) == (True, False, ())


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"monitoring_server_address": "localhost"}, "monitoring_server_address: expected an address of this machine"),
        ({"monitoring_server_port": 70000}, "monitoring_server_port: expected a port from 1 to 65535"),
        ({"monitoring_server_port": 9093}, "two programs cannot listen on one port"),
        ({"monitoring_retention_days": True}, "monitoring_retention_days: expected a number of days"),
        ({"monitoring_retention_size": "20 GiB"}, "monitoring_retention_size: expected a size in MB, GB or TB"),
        ({"monitoring_receivers": ["mail"]}, "monitoring_receivers has to map names to receivers"),
        ({"monitoring_receivers": {"a b": {"webhook": {"url": "https://a"}}}}, "expected a name of letters"),
        ({"monitoring_receivers": {"a": {"webhook": {"url": "https://a"}, "slack": {}}}}, "expected one of mail, webhook, slack"),
        ({"monitoring_receivers": {"a": {"pager": {}}}}, "there is no 'pager'"),
        ({"monitoring_receivers": {"a": {"webhook": {"url": "ftp://a"}}}}, "expected an address of a webhook that begins with https"),
        ({"monitoring_receivers": {"a": {"webhook": {"url": "https://a"}, "severities": ["all"]}}}, "severities are page, ticket, info"),
        ({"monitoring_receivers": {"a": {"mail": {**MAIL, "to": []}}}}, "expected addresses as to"),
        ({"monitoring_receivers": {"a": {"mail": {**MAIL, "server": "b"}}}}, "a host and its port as server"),
        ({"monitoring_receivers": {"a": {"mail": {**MAIL, "user": "a"}}}}, "a user and a password"),
        ({"monitoring_receivers": {"a": {"slack": {"channel": "#a"}}}}, "expected the url of Slack's incoming webhook"),
        ({"monitoring_remote_write": [{"url": "https://a", "user": "a"}]}, "expected a user and a password, a token, or none"),
        ({"monitoring_remote_write": "https://a"}, "monitoring_remote_write has to be a list"),
        ({"monitoring_scrape": {"username": "a"}}, "expected a username and a password, or neither"),
        ({"monitoring_scrape": {"ca": "fleet.pem"}}, "expected an absolute path on the server as ca"),
        ({"monitoring_grafana": "oss"}, "monitoring_grafana: expected true or false, found 'oss'"),
        ({"monitoring_grafana": True, "monitoring_grafana_port": "web"}, "monitoring_grafana_port: expected a port"),
        ({"monitoring_grafana": True, "monitoring_server_port": 3000}, "monitoring_server_port and monitoring_grafana_port are both 3000"),
        ({"monitoring_grafana": True, "monitoring_grafana_password": "admin"}, "expected 8 to 128 characters in one line"),
        ({"monitoring_grafana": True, "monitoring_grafana_password": " 12345678"}, "without blanks at its ends"),
        ({"monitoring_grafana": True, "monitoring_grafana_password": "1234\n5678"}, "in one line"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(variables: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Wish.from_variables({"gpuwright_want": ["monitoring-server"], **variables})
    with pytest.raises(BadInput, match=message):
        Wish.from_variables({"gpuwright_wish": {"gpuwright_want": ["monitoring-server"], **variables}})


@pytest.mark.parametrize("url", [f"https://gpu:{SECRET}@example.org/", f"https://example.org/?access_token={SECRET}"])
def test_an_address_with_a_secret_is_refused_without_it_being_said(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        Wish.from_variables({"monitoring_receivers": {"a": {"webhook": {"url": url}}}})
    assert "without a password or token in it" in str(caught.value)
    assert SECRET not in str(caught.value) + "".join(caught.value.suggestions)


def test_no_secret_is_in_the_wish_nor_in_a_plan() -> None:
    assert SECRET not in repr(Wish.from_variables(VARIABLES))
    assert SECRET not in json.dumps(made(bare()), default=str)


# The plan


def test_a_bare_machine_gets_the_packages_and_is_told_where_they_will_listen() -> None:
    (change,) = changes(bare())
    assert [row["name"] for row in change["packages"]] == list(VERSIONS)
    assert change["reason"].endswith("they will listen on 127.0.0.1:9090 and 127.0.0.1:9093 alone")
    (change,) = changes(bare(), monitoring_server_address="fd00::5", monitoring_server_port=80)
    assert change["reason"].endswith("they will listen on [fd00::5]:80 and [fd00::5]:9093 alone")


def test_what_runs_by_what_was_written_stays() -> None:
    assert changes(served()) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (served(**{"prometheus.service": {"active": "failed", "enabled": "enabled"}}), "prometheus.service does not run"),
        (
            served(**{"prometheus-alertmanager.service": {"active": "active", "enabled": "disabled"}}),
            "prometheus-alertmanager.service does not begin with the machine",
        ),
        (served({"prometheus": {**GOOD, "loaded": False}}), "prometheus.service has not read what was written"),
        (served({"prometheus": {**GOOD, "started": False}}), "prometheus.service was started before its unit was written"),
        (
            served({"alertmanager": {"answers": False, "started": None, "loaded": None, "problem": "timed out"}}),
            "prometheus-alertmanager.service does not answer where it should listen (timed out)",
        ),
        (
            served({"alertmanager": {**GOOD, "loaded": False, "problem": "it rejected its configuration"}}),
            "prometheus-alertmanager.service it rejected its configuration",
        ),
        (served({"files": [f"{FILES}secret-former"]}), "files are there that are wished no more"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_named(facts: Any, reason: str) -> None:
    assert [change["reason"] for change in changes(facts)] == [reason]


def test_a_server_of_somebody_else_is_left_alone_and_told() -> None:
    facts = served()
    del facts["monitoring_server"]
    refused = drafted(facts)
    assert isinstance(refused, dict)
    (conflict,) = refused["conflicts"]
    assert conflict["rule"] == "monitoring-server.foreign"
    assert "prometheus and prometheus-alertmanager is here and was not set up by gpuwright" in conflict["text"]


def test_what_is_left_of_ours_where_somebody_took_its_files_is_mended() -> None:
    facts = served()
    del facts["monitoring_server"]
    facts["seals"] = {
        NAME: {
            "state": "broken",
            "reason": "a file is gone",
            "gpuwright": "0.1.0",
            "digest": "",
            "packages": {},
            "stack": {},
        }
    }
    assert [change["reason"] for change in changes(facts)] == [
        f"{unit} runs by another configuration than gpuwright's" for unit in UNITS
    ]


def test_the_seal_is_stale_where_a_host_joins_or_a_receiver_leaves() -> None:
    digest = made(served())["digests"][NAME]
    assert made(served())["digests"][NAME] == digest
    joined = {**FLEET, "gpu3": {**FLEET["gpu1"], "monitoring_address": "10.0.0.3"}}
    assert made(served(), joined)["digests"][NAME] != digest
    assert made(served(), monitoring_receivers={})["digests"][NAME] != digest


@pytest.mark.parametrize(
    ("size", "facts", "refused"),
    [("20GB", bare(), False), ("900TB", bare(), True), ("20GB", served(), False), ("900TB", served(), True)],
)
def test_a_budget_that_the_disk_does_not_have_is_refused(size: str, facts: Any, refused: bool) -> None:
    change = {"action": "install" if component.findings(context(facts, size)) else "configure"}
    needs = component.space(change, context(facts, size))  # type: ignore[arg-type] # all that it reads
    whole = facts["disks"][0]["size_bytes"]
    assert any(need.path == files.DATA and need.size > whole for need in needs) == refused


def context(facts: Any, size: str) -> Any:
    stack = made(facts, monitoring_retention_size=size)["stack"]
    return Context(facts=facts, stack=stack)


# Grafana

BESIDE: dict[str, Any] = {"monitoring_grafana": True}
PASSWORD_FILE = f"{FILES}grafana-password"


def beside(seen: Any = GOOD, **changes: Any) -> Any:
    """A server with a Grafana that says this of itself."""
    facts = served({"grafana": seen, **changes}, **{"grafana-server.service": ON})
    facts["packages"]["installed"] |= {"grafana": "13.2.2"}
    facts["packages"]["sources"].append(source())
    return facts


def source() -> Any:
    file = "/etc/apt/sources.list.d/gpuwright-grafana.sources"
    row = {"file": file, "enabled": True, "types": ["deb"], "uris": ["https://apt.grafana.com"]}
    return {**row, "suites": ["stable"], "components": ["main"], "signed_by": None, "name": None}


def test_a_short_password_is_refused_without_it_being_said() -> None:
    with pytest.raises(BadInput) as caught:
        Wish.from_variables({**BESIDE, "monitoring_grafana_password": "qwertz"})
    assert "qwertz" not in str(caught.value) + "".join(caught.value.suggestions)


def test_no_password_of_grafana_is_in_the_wish_nor_in_a_plan() -> None:
    variables = {**VARIABLES, **BESIDE, "monitoring_grafana_password": f"{SECRET}-reads"}
    wish = Wish.from_variables(variables)
    assert wish.monitoring_server_settings
    assert wish.monitoring_server_settings["grafana"] == {"port": 3000, "password": True}
    assert SECRET not in repr(wish)
    assert SECRET not in json.dumps(made(bare(), **variables), default=str)


def test_without_the_wish_there_is_none_whatever_is_said_of_its_port() -> None:
    stack = made(bare(), monitoring_grafana=False, monitoring_grafana_port=3001)["stack"]
    assert stack["monitoring_server"]["grafana"] is None
    assert stack["repositories"] == []


def test_it_comes_from_its_own_repository_by_the_pinned_key() -> None:
    first, second = changes(bare(), **BESIDE)
    assert first["reason"] == "the package source grafana is not configured"
    assert [row["name"] for row in second["packages"]] == [*VERSIONS, "grafana"]
    assert "127.0.0.1:9090, 127.0.0.1:9093 and 127.0.0.1:3000 alone" in second["reason"]
    assert second["reason"].endswith(f"the password of Grafana's admin will be in {PASSWORD_FILE}")
    (repository,) = made(bare(), **BESIDE)["stack"]["repositories"]
    assert (repository["uris"], repository["suites"], repository["components"]) == (
        ["https://apt.grafana.com"],
        ["stable"],
        ["main"],
    )
    assert repository["key"]["url"] == "https://apt.grafana.com/gpg.key"
    assert repository["key"]["fingerprint"] == "B53AE77BADB630A683046005963FA27710458545"
    mirrored = made(bare(), **BESIDE, gpuwright_mirrors={"grafana": "https://mirror.example.org/grafana"})["stack"][
        "repositories"
    ]
    assert mirrored[0]["uris"] == ["https://mirror.example.org/grafana"]


def test_a_grafana_that_runs_by_what_was_written_stays() -> None:
    assert changes(beside(), **BESIDE) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (beside(None), "grafana-server.service runs by another configuration than gpuwright's"),
        (beside({**GOOD, "started": False, "loaded": False}), "grafana-server.service was started before its unit was written"),
        (beside({"answers": False, "started": None, "loaded": None, "problem": "refused"}),
         "grafana-server.service does not answer where it should listen (refused)"),
    ],
)  # fmt: skip
def test_what_is_not_so_of_grafana_is_named(facts: Any, reason: str) -> None:
    assert [change["reason"] for change in changes(facts, **BESIDE)] == [reason]
    judged = {each["id"]: each for each in judge.judge(facts, made(beside(), **BESIDE)["stack"])}
    assert (judged["monitoring.server"]["status"], judged["monitoring.server"]["reason"]) == ("fail", reason)


def test_one_that_is_wished_no_more_ends_before_its_files_go() -> None:
    drop_in = "/etc/systemd/system/grafana-server.service.d/gpuwright.conf"
    facts = beside(files=[PASSWORD_FILE, drop_in])
    (change,) = changes(facts)
    assert (change["files"], change["services"]) == ([PASSWORD_FILE, drop_in], ["grafana-server.service"])
    done = work(facts)
    assert (done["leaves"], done["absent"], done["admin"]) == (
        ["grafana-server.service"],
        [PASSWORD_FILE, drop_in],
        None,
    )
    assert work(beside(), **BESIDE)["leaves"] == []


def of_somebody(package: str = "grafana", **changes: Any) -> Any:
    facts = bare(**changes)
    facts["packages"]["installed"] |= {package: "12.1.1"}
    return facts


@pytest.mark.parametrize("package", ["grafana", "grafana-enterprise"])
def test_a_grafana_of_somebody_else_is_left_as_it_is_and_told(package: str) -> None:
    plan = made(of_somebody(package), **BESIDE)
    assert plan["stack"]["monitoring_server"]["grafana"] is None
    assert plan["stack"]["monitoring_server"]["packages"] == list(VERSIONS)
    (text,) = [row["text"] for row in plan["warnings"] if row["rule"] == "monitoring-server.grafana"]
    assert text.startswith(f"{package} is here and was not set up by gpuwright")
    assert "import the files in /etc/gpuwright/dashboards there" in text


def test_one_of_ours_is_known_by_what_is_left_of_it() -> None:
    sealed = of_somebody()
    seal = {"state": "broken", "reason": "a file is gone", "gpuwright": "0.1.0", "digest": "", "packages": {}}
    sealed["seals"] = {NAME: {**seal, "stack": {"grafana": {"port": 3000, "password": False}}}}
    added = of_somebody()
    added["packages"]["sources"].append(source())
    for facts in (sealed, added, beside()):
        assert "grafana" not in component.strangers(facts)
    assert component.strangers(of_somebody()) == ("grafana",)


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("unreachable", {"repository": "grafana", "package": None}),
        ("no-such-package", {"repository": None, "package": "grafana"}),
    ],
)
def test_where_it_cannot_be_had_a_person_is_told_what_there_is_without_it(kind: str, of: Any) -> None:
    problem = {"kind": kind, "text": "not there", "remedy": "check the network", "needed": True, "source": None, **of}
    draft = drafted(bare(), **BESIDE)
    index: Any = {**index_answer.NOT_ASKED, "problems": [problem]}
    (refused,) = finish(draft, index)["refusals"]
    assert refused["remedy"] == (
        "check the network; or leave monitoring_grafana out: the dashboards are files in /etc/gpuwright/dashboards, to be imported into "
        "any Grafana"
    )
    index["problems"][0] |= {"repository": "archive", "package": "prometheus"}
    (refused,) = finish(draft, index)["refusals"]
    assert refused["remedy"] == "check the network"


def test_its_unit_says_where_it_listens_and_whose_password_it_takes_and_nothing_goes_to_its_maker() -> None:
    *_others, drop_in = work(bare(), **BESIDE, monitoring_server_address="fd00::5", monitoring_grafana_port=3001)[
        "drop_ins"
    ]
    assert drop_in["path"] == "/etc/systemd/system/grafana-server.service.d/gpuwright.conf"
    for setting in (
        "GF_SERVER_HTTP_ADDR=fd00::5 GF_SERVER_HTTP_PORT=3001\n",
        f"GF_SECURITY_ADMIN_PASSWORD=$__file{{{PASSWORD_FILE}}}\n",
        "GF_USERS_ALLOW_SIGN_UP=false",
        "GF_ANALYTICS_REPORTING_ENABLED=false GF_ANALYTICS_CHECK_FOR_UPDATES=false",
    ):
        assert setting in drop_in["content"]


def test_its_files_are_read_by_its_group_and_name_the_prometheus_beside_it() -> None:
    written = {each["path"]: each for each in work(bare(), **BESIDE, monitoring_server_address="0.0.0.0")["files"]}  # noqa: S104
    sources = written["/etc/grafana/provisioning/datasources/gpuwright.yaml"]
    assert (sources["mode"], sources["group"]) == ("0640", "grafana")
    (row,) = yaml.safe_load(sources["content"])["datasources"]
    assert (row["uid"], row["url"], row["isDefault"]) == ("gpuwright", "http://127.0.0.1:9090", True)
    providers = yaml.safe_load(written["/etc/grafana/provisioning/dashboards/gpuwright.yaml"]["content"])["providers"]
    assert providers[0]["options"] == {"path": "/etc/gpuwright/dashboards"}
    assert {each["dest"] for each in work(bare())["copied"]} >= {
        f"/etc/gpuwright/dashboards/{name}.json" for name in ("fleet", "jobs")
    }


@pytest.mark.parametrize(("variables", "given"), [({}, False), ({"monitoring_grafana_password": "n0-0ne-reads"}, True)])
def test_the_role_is_told_whether_the_wish_has_a_password(variables: Any, given: bool) -> None:
    admin = work(bare(), **BESIDE, **variables)["admin"]
    assert (admin["path"], admin["group"], admin["given"]) == (PASSWORD_FILE, "grafana", given)


# The work of the role


def work(facts: Any, **variables: Any) -> Any:
    plan = made(facts, **variables)
    return component.begin(Context(facts=facts, stack=plan["stack"]), plan)


def test_the_units_name_the_address_and_what_is_kept_before_the_packages_come() -> None:
    first, second = work(bare(), monitoring_retention_days=90, monitoring_retention_size="5TB")["drop_ins"]
    assert first["path"] == "/etc/systemd/system/prometheus.service.d/gpuwright.conf"
    assert f"ConditionPathExists={FILES}prometheus.yml\n" in first["content"]
    for argument in (
        "--web.listen-address=127.0.0.1:9090",
        "--storage.tsdb.retention.time=90d",
        "--storage.tsdb.retention.size=5TB",
    ):
        assert argument in first["content"]
    asks = f"--web.config.file={FILES}alerts-web.yml --cluster.listen-address="
    assert f"--web.listen-address=127.0.0.1:9093 {asks}\n" in second["content"]


def test_secrets_are_named_by_where_they_are_in_the_variables() -> None:
    secrets = {each["path"].removeprefix(FILES): each["keys"] for each in work(bare())["secrets"]}
    assert secrets == {
        "secret-on-call": ["receivers", "on-call", "mail", "password"],
        "secret-hook": ["receivers", "hook", "webhook", "token"],
        "secret-chat": ["receivers", "chat", "slack", "url"],
        "secret-remote-write-0": ["remote_write", 0, "password"],
        "secret-scrape": ["scrape", "password"],
    }


def test_the_address_of_a_webhook_is_put_into_a_configuration_that_alertmanager_alone_reads() -> None:
    """Whoever has it speaks in our name: it is a secret, and Alertmanager takes it from a file of its own only since 0.26."""
    (configuration,) = work(bare())["private"]
    assert configuration["path"] == f"{FILES}alertmanager.yml"
    assert (configuration["mode"], configuration["group"]) == ("0640", "prometheus")
    (secret,) = configuration["secrets"]
    assert secret["keys"] == ["receivers", "hook", "webhook", "url"]
    for url in (f"https://desk.example.org/{SECRET}", "https://desk.example.org/a?b=c#d:"):
        written = yaml.safe_load(configuration["content"].replace(secret["mark"], url))
        assert [each["url"] for row in written["receivers"] for each in row.get("webhook_configs", ())] == [url]


def test_the_role_puts_each_address_in_the_place_of_its_mark() -> None:
    tasks = yaml.safe_load((ROOT / "roles/monitoring_server/tasks/configure.yml").read_text())
    (task,) = (each for each in tasks if "item.secrets" in repr(each))
    assert task["no_log"] is True
    asked = "{{ item.content | gpuwright.node.filled(item.secrets, __monitoring_server_secrets) }}"
    assert task["ansible.builtin.copy"]["content"] == asked
    (item,) = work(bare())["private"]
    written = FilterModule().filters()["filled"](item["content"], item["secrets"], {"receivers": RECEIVERS})
    assert written == item["content"].replace("@hook@", f"https://desk.example.org/{SECRET}")
    assert "@hook@" in item["content"]


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_an_address_on_another_host_is_another_wish(kind: str) -> None:
    stacks = []
    for host in ("one", "two"):
        hook = {"url": f"https://{host}.example.org/{SECRET}", **({"channel": "#gpu"} if kind == "slack" else {})}
        stacks.append(made(bare(), monitoring_receivers={"a": {kind: hook}})["digests"][NAME])
    assert stacks[0] != stacks[1]


def test_what_was_wished_before_and_is_no_more_goes() -> None:
    there = [f"{FILES}secret-former", f"{FILES}secret-hook", f"{FILES}targets-tls.json"]
    assert work(served({"files": there}))["absent"] == [f"{FILES}secret-former", f"{FILES}targets-tls.json"]


def test_every_file_is_sealed_and_may_be_taken_back() -> None:
    facts = beside()
    facts["packages"]["sources"].pop()
    plan = made(facts, **BESIDE)
    sealed = plan["manages"][NAME]
    done = work(facts, **BESIDE)
    assert done["repositories"] == ["grafana"]
    of_source = [source()["file"], "/usr/share/keyrings/gpuwright-grafana.gpg"]
    written = [
        each["path"] for each in (*done["drop_ins"], *done["secrets"], *done["private"], *done["files"], done["admin"])
    ]
    made_there = {done["login"]["path"], done["login"]["web"]}
    assert set(sealed["files"]) == {*of_source, *written, *made_there, *(each["dest"] for each in done["copied"])}
    assert [path for path in sealed["files"] if not removal.WRITTEN.fullmatch(path)] == []
    assert all(removal.UNIT.fullmatch(unit) for unit in sealed["services"])
    assert sealed["packages"] == [*VERSIONS, "grafana"]


# The proof


def test_a_server_that_is_right_passes() -> None:
    assert check(served())["status"] == "pass"
    assert check(served(), "monitoring.targets")["status"] == "pass"


def test_a_server_that_has_not_read_what_was_written_fails() -> None:
    found = check(served({"prometheus": {**GOOD, "loaded": False}}))
    assert (found["status"], found["reason"]) == ("fail", "prometheus.service has not read what was written")
    assert check(served({"prometheus": {**GOOD, "loaded": False}}), "monitoring.targets") is None


def test_an_exporter_that_does_not_answer_is_named_and_fails_nobody() -> None:
    rows = served()["monitoring_server"]["targets"]
    rows[0] |= {"health": "down", "error": "connection refused"}
    rows[1] |= {"health": "unknown"}
    found = check(served({"targets": rows[:3]}), "monitoring.targets")
    assert (found["status"], found["measured"], found["expected"]) == ("warn", 1, 4)
    assert (
        found["reason"]
        == "gpu of gpu1: connection refused; node of gpu1 was not asked yet; node of gpu2 was not asked yet"
    )


def test_what_could_not_be_seen_is_incomplete() -> None:
    unseen = served()
    unseen["unknown"] = {"services": "systemd does not run here"}
    assert check(unseen)["status"] == "incomplete"
    assert check(served({"targets": None}), "monitoring.targets")["status"] == "incomplete"


# The inventory


class Action:
    """Stands for the action plugin: it has the variables of every host as they are."""

    verb = "plan"

    def __init__(self) -> None:
        self.read: list[Any] = []

    def variables(self, given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        self.read.append(given)
        return {name: given[name] for name in names if name in given}


@pytest.mark.parametrize(("wants", "asked"), [(["monitoring-server"], True), (["lmdb"], False)])
def test_the_whole_inventory_is_read_by_the_server_and_by_nobody_else(wants: list[str], asked: bool) -> None:
    action, mine = Action(), {"gpuwright_want": wants, "gpuwright_local": True}
    hosts: dict[str, Any] = {**FLEET, "monitor": mine}
    variables = {
        "inventory_hostname": "monitor",
        "hostvars": hosts,
        "groups": {"all": list(hosts), "left": ["gpu1"]},
        **mine,
    }
    made = NodeSession(cast("Any", action), variables).draft(bare(), only=[])
    assert isinstance(made, Draft), made
    targets = of(made.context.stack)["targets"] if NAME in made.context.stack else []
    assert {each["host"] for each in targets} == (set(FLEET) if asked else set())
    assert any(host in action.read for host in FLEET.values()) is asked


def test_alertmanager_asks_for_a_password_that_prometheus_has_in_a_file() -> None:
    there = work(bare())
    login = {
        "path": f"{FILES}alerts-password",
        "web": f"{FILES}alerts-web.yml",
        "user": "gpuwright",
        "group": "prometheus",
    }
    assert there["login"] == login
    (text,) = [each["content"] for each in there["files"] if each["path"] == f"{FILES}prometheus.yml"]
    (alerting,) = yaml.safe_load(text)["alerting"]["alertmanagers"]
    assert alerting["basic_auth"] == {"username": "gpuwright", "password_file": login["path"]}
    assert {login["path"], login["web"]} <= set(made(bare())["manages"]["monitoring_server"]["files"])
    assert there["absent"] == []
