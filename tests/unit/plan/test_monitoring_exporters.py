"""The component monitoring_exporters: what is not as wished, what the role does, and what is told of it."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_metrics
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.gpu_log import apply as gpu_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_exporters import (
    apply as monitoring_exporters,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_exporters import units
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_hosts import want, wsl
from tests.unit.plan.test_lock import made as of_lock
from tests.unit.plan.test_planner import index_of, plan
from tests.unit.resolve.test_monitoring import HASH, PAIR, listener

GPU, NODE = "gpuwright-gpu-exporter.service", "prometheus-node-exporter.service"
_DCGM, _ENGINE = "nvidia-dcgm-exporter.service", "nvidia-dcgm.service"
GPU_PORT, DCGM_PORT, NODE_PORT = units.SOCKETS
ON = {"active": "active", "enabled": "enabled"}
OFF_FOR_GOOD = {"active": "inactive", "enabled": "not-found"}
PACKAGE = {"prometheus-node-exporter": "1.9.0-1"}
GOOD = {"problem": None, "expires": "2090-01-01T00:00:00Z", "digest": "ab" * 32}
OURS = (listener(9400, unit=GPU, tells="gpu"), listener(9100, unit=NODE, tells="node"))


def host(*listeners: Any, services: Any = None, certificate: Any = None, **changes: Any) -> Any:
    """A node on which both exporters are right, but for what is given."""
    there = {GPU: ON, GPU_PORT: ON, NODE: ON, NODE_PORT: ON, **(services or {})}
    found = {"listeners": list(listeners or OURS), "drop_ins": [NODE], "certificate": certificate}
    facts = nodes.provisioned(services=there, monitoring=found, **changes)
    facts["packages"]["installed"] |= PACKAGE
    return facts


def bare() -> Any:
    """A node without any of it."""
    return nodes.provisioned(monitoring={"listeners": [], "drop_ins": [], "certificate": None})


def made(facts: Any, **variables: Any) -> Any:
    wish = Wish.from_variables({"gpuwright_want": ["driver=580", "monitoring=smi"], **variables})
    request = Request(host="node", today=date(2026, 11, 20), only=("monitoring_exporters",))
    draft = make_draft(facts, wish, load_rules(), request)
    assert isinstance(draft, Draft), draft
    return finish(draft, index_of(draft) if draft.packages else None)


def reasons(facts: Any, **variables: Any) -> list[str]:
    planned = made(facts, **variables)
    return [change["reason"] for change in planned["changes"] if change["component"] == "monitoring_exporters"]


def work(facts: Any, **variables: Any) -> Any:
    return made(facts, **variables)["work"]["monitoring_exporters"]


def checks(facts: Any, **variables: Any) -> dict[str, Any]:
    stack = made(host(), **variables)["stack"]
    found = judge.judge(facts, stack)
    return {
        each["id"].partition(".")[2]: (each["status"], each["reason"])
        for each in found
        if each["id"].startswith("monitoring.")
    }


def test_exporters_that_run_where_they_are_wished_have_nothing_to_say() -> None:
    assert reasons(host()) == []
    assert checks(host()) == {"gpu": ("pass", None), "node": ("pass", None)}


def test_every_address_of_ipv4_may_be_a_socket_for_ipv6_too() -> None:
    wide = [{**each, "address": "::"} for each in OURS]
    assert reasons(host(*wide), monitoring_address="0.0.0.0") == []  # noqa: S104 - wished by that name
    narrow = [{**each, "address": "0.0.0.0"} for each in OURS]  # noqa: S104
    assert reasons(host(*narrow), monitoring_address="::") != []


def test_a_package_that_is_missing_is_installed_with_all_that_is_written() -> None:
    planned = made(bare())
    (change,) = [row for row in planned["changes"] if row["component"] == "monitoring_exporters"]
    assert change["reason"] == "missing packages: prometheus-node-exporter"
    assert change["services"] == [GPU_PORT, GPU, NODE_PORT, NODE]
    assert set(change["files"]) == {
        *(f"/etc/systemd/system/{name}" for name in (GPU, GPU_PORT, NODE_PORT)),
        f"/etc/systemd/system/{NODE}.d/gpuwright.conf",
        "/usr/local/libexec/gpuwright/gpu_exporter.py",
    }
    (call,) = planned["work"]["monitoring_exporters"]["packages"]
    assert call["names"] == ["prometheus-node-exporter"]


def test_a_package_that_no_index_has_is_refused_with_what_to_do() -> None:
    facts = bare()
    wish = Wish.from_variables({"gpuwright_want": ["driver=580", "monitoring"]})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20)))
    assert isinstance(draft, Draft), draft
    (refusal,) = finish(draft, index_of(draft, prometheus_node_exporter=None))["refusals"]
    assert "wanted is node_exporter" in refusal["text"]


OFF = {"active": "inactive", "enabled": "enabled"}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (lambda: host(services={GPU: OFF}), f"{GPU} does not run"),
        (lambda: host(services={NODE: {"active": "failed", "enabled": "enabled"}}), f"{NODE} does not run"),
        (lambda: host(services={NODE: {**ON, "enabled": "disabled"}}), f"{NODE} does not start with the machine"),
        (lambda: host(services={NODE_PORT: OFF}), f"{NODE_PORT} does not run"),
        (lambda: host(OURS[1]), f"{GPU} does not listen on 127.0.0.1, port 9400"),
        (lambda: host(OURS[0], {**OURS[1], "address": "::"}), f"{NODE} listens on ::, wished is 127.0.0.1"),
        (lambda: host({**OURS[0], "tls": True}, OURS[1]), f"{GPU} speaks TLS, wished is the other"),
        (lambda: host({**OURS[0], "status": 401}, OURS[1]), f"{GPU} asks for a password, wished is the other"),
    ],
)
def test_what_is_not_as_wished_is_named_and_told_by_the_doctor(facts: Any, reason: str) -> None:
    assert reasons(facts()) == [reason]
    assert ("warn", reason) in checks(facts()).values()


SECURED: Any = {"monitoring_tls": PAIR, "monitoring_users": {"prometheus": HASH}}


def secured(**changes: Any) -> Any:
    rows = [
        {**row, "tls": True, "status": 401, "tells": None, "certificate": GOOD["digest"], **changes} for row in OURS
    ]
    return host(*rows, certificate=GOOD)


def test_who_may_read_and_by_which_certificate_is_held_against_the_wish() -> None:
    assert reasons(secured(), **SECURED) == []
    assert checks(secured(), **SECURED) == {
        "gpu": ("pass", None),
        "node": ("pass", None),
        "certificate": ("pass", None),
    }
    (told,) = reasons(secured(status=200, tells="gpu"), **SECURED)
    assert told.startswith(f"{GPU} asks nobody for a password, wished is the other; {NODE}")
    (told,) = reasons(secured(tls=False, certificate=None), **SECURED)
    assert told.startswith(f"{GPU} speaks no TLS, wished is the other")
    (told,) = reasons(secured(certificate="cd" * 32), **SECURED)
    assert told.startswith(f"{GPU} shows another certificate than {PAIR['certificate']} has")


def test_what_did_not_answer_now_is_told_and_not_restarted() -> None:
    silent = host({**OURS[0], "status": None, "tls": None}, OURS[1])
    assert reasons(silent) == []
    assert checks(silent)["gpu"] == ("warn", "what listens on 127.0.0.1, port 9400 does not answer")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tells": "metrics"}, "has no metrics of the cards"),
        ({"status": 500, "tells": None}, "answers with status 500"),
    ],
)
def test_an_exporter_that_tells_nothing_of_a_card_is_told(changes: Any, words: str) -> None:
    status, reason = checks(host({**OURS[0], **changes}, OURS[1]))["gpu"]
    assert (status, words in reason) == ("warn", True)


def test_what_nobody_could_look_at_is_incomplete() -> None:
    facts = host()
    del facts["monitoring"]
    assert checks(facts) == {
        "gpu": ("incomplete", "it is not known what listens: nobody looked"),
        "node": ("incomplete", "it is not known what listens: nobody looked"),
    }
    assert reasons(facts) == []
    assert checks(host(unknown={"services": "systemctl show failed"}))["gpu"][0] == "incomplete"
    assert checks(host(), **SECURED)["certificate"][0] == "incomplete"


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ({**GOOD, "problem": "/etc/ssl/node.pem expired on 2020-03-01T00:00:00Z"}, "expired on 2020"),
        ({**GOOD, "expires": "2020-03-01T00:00:00Z"}, "the certificate expires on 2020-03-01T00:00:00Z"),
    ],
)
def test_a_certificate_that_ends_is_told_before_nobody_can_read(certificate: Any, words: str) -> None:
    status, reason = checks(host(certificate=certificate), **SECURED)["certificate"]
    assert (status, words in reason) == ("warn", True)


def test_the_units_listen_where_wished_and_nowhere_else() -> None:
    there = work(bare(), monitoring_address="fd00::5", monitoring_gpu_port=9401)
    ours, its_port, drop_in, port = (each["content"] for each in there["files"])
    assert "gpu_exporter.py --listen=[fd00::5]:9401\n" in ours
    assert f"\nListenStream=[fd00::5]:9401\nFreeBind=yes\nService={GPU}\n" in its_port
    assert f"\nListenStream=[fd00::5]:9100\nFreeBind=yes\nService={NODE}\n" in port
    assert f"\nSockets={GPU_PORT}\n" in ours
    assert f"\nSockets={NODE_PORT}\n" in drop_in
    assert "DynamicUser=yes\n" in ours
    # nvidia-smi needs both.
    assert not any(word in ours for word in ("PrivateDevices", "ProtectProc", "DevicePolicy"))
    assert "ExecStart=\nExecStart=/usr/bin/prometheus-node-exporter --web.systemd-socket " in drop_in
    assert "--collector.textfile.directory=/var/lib/gpuwright/metrics\n" in drop_in
    assert "ExecStartPre" not in ours + drop_in
    elsewhere = work(bare(), watch_textfile_directory="/var/lib/node_exporter")["files"][2]["content"]
    assert "--collector.textfile.directory=/var/lib/node_exporter\n" in elsewhere
    assert (there["web"], there["users"], "/etc/gpuwright/web.yml" in there["absent"]) == (None, [], True)
    own = (GPU_PORT, GPU, NODE_PORT, NODE)
    assert there["units"] == [{"name": name, "enabled": True, "state": "started"} for name in own]
    assert (there["address"], there["waits"]) == ("fd00::5", [])


def test_certificate_and_users_reach_the_programs_as_copies_of_their_own() -> None:
    there = work(bare(), **SECURED)
    for name, file in zip(("gpuwright-gpu-exporter", "gpuwright-node-exporter"), there["files"][::2], strict=True):
        place = f"/run/gpuwright-web/{name}"
        assert f"RuntimeDirectory={name}\nRuntimeDirectoryMode=0700\n" in file["content"]
        (command,) = re.findall(r"^ExecStartPre=[+]/bin/sh -euc '(.*)'$", file["content"], re.MULTILINE)
        assert f"; install -m 0400 -o $$user /etc/gpuwright/web.yml {place}/web.yml; " in command
        assert command.endswith(f"install -m 0400 -o $$user {PAIR['key']} {place}/tls.key")
        # Where the service's user may write, root only looks whose it is.
        assert re.findall(rf"[^;]*/run/{name}\b[^;]*", command) == [f"user=$$(stat -c %%u /run/{name})"]
        assert f"={place}/web.yml\n" in file["content"]
    assert there["web"] == {"tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"}}
    assert (there["users"], "/etc/gpuwright/web.yml" in there["absent"]) == (["prometheus"], False)
    assert units.WEB in made(bare(), **SECURED)["manages"]["monitoring_exporters"]["files"]
    assert "abcdefghij" not in str(there)


@pytest.mark.parametrize("laid", ["pipe", "link"])
def test_what_a_services_account_lays_in_the_way_of_its_copies_gets_nothing_of_roots(tmp_path: Path, laid: str) -> None:
    """What root runs at each start of the service, run for real in other directories. A pipe of root's stands for a disk."""
    if os.geteuid() != 0:
        pytest.skip("only root writes for another account")
    name, account = "gpuwright-node-exporter", 65534
    content = next(
        file["content"]
        for file in work(bare(), monitoring_users={"prometheus": HASH})["files"]
        if name in file["content"]
    )
    own, users, device = tmp_path / "run" / name, tmp_path / "web.yml", tmp_path / "device"
    own.mkdir(parents=True, mode=0o700)
    os.chown(own, account, account)
    users.write_text("a secret of root's")
    os.mkfifo(device, 0o600)
    for copy in ("web.yml", "tls.crt", "tls.key"):
        (own / copy).symlink_to(device) if laid == "link" else os.mkfifo(own / copy)
    heard = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in (device, own / "web.yml")]
    (command,) = re.findall(r"^ExecStartPre=[+]/bin/sh (.*)$", content, re.MULTILINE)
    script = (
        command.replace("$$", "$")
        .replace("%%", "%")
        .replace(units.WEB, str(users))
        .replace("/run/", f"{tmp_path}/run/")
    )
    subprocess.run(["/bin/sh", *shlex.split(script)], check=False, timeout=20)
    said = [os.read(descriptor, 100) for descriptor in heard]
    for descriptor in heard:
        os.close(descriptor)
    assert said == [b"", b""]
    (written,) = (tmp_path / "run").glob(f"*/{name}/web.yml")
    assert (written.read_text(), written.stat().st_uid, stat.S_IMODE(written.stat().st_mode)) == (
        "a secret of root's",
        account,
        0o400,
    )
    assert written.parent.stat().st_uid == 0


def test_what_runs_by_other_files_than_those_that_are_there_is_started_again() -> None:
    states = [(unit["name"], unit["state"]) for unit in work(host(OURS[0], {**OURS[1], "address": "::"}))["units"]]
    of_node = [(name, state) for state in ("stopped", "started") for name in (NODE_PORT, NODE)]
    assert states == [(GPU_PORT, "started"), (GPU, "started"), *of_node]


def test_an_old_node_exporter_opens_its_port_itself() -> None:
    facts = bare()
    facts["os"] = {**facts["os"], "id": "ubuntu", "version": "22.04", "codename": "jammy", "name": "Ubuntu 22.04"}
    there = work(facts)
    assert NODE_PORT not in str(there["files"])
    assert any("--web.listen-address=127.0.0.1:9100 " in each["content"] for each in there["files"])
    assert [unit["name"] for unit in there["units"]] == [GPU_PORT, GPU, NODE]
    assert there["waits"] == [9100]


def test_what_somebody_else_runs_is_left_as_it_is() -> None:
    theirs = host(listener(9400, tells="gpu"), listener(9100, tells="node"), services={GPU: OFF, NODE: OFF})
    theirs["packages"]["installed"].pop("prometheus-node-exporter")
    assert reasons(theirs) == []
    there = work(theirs)
    assert (there["files"], there["units"], there["packages"], there["programs"]) == ([], [], [], [])
    managed = made(theirs)["manages"]["monitoring_exporters"]
    assert (managed["files"], managed["services"]) == ([], [])
    stack = made(theirs)["stack"]
    found = {each["id"]: each["status"] for each in judge.judge(theirs, stack)}
    assert (found["monitoring.gpu"], found["monitoring.node"]) == ("pass", "pass")
    gone = {each["id"]: each["reason"] for each in judge.judge(bare(), stack)}
    assert gone["monitoring.gpu"] == "nothing listens on 127.0.0.1, port 9400"


def test_in_an_image_nothing_is_started() -> None:
    planned = made(bare())
    image = Context(facts=bare(), stack=planned["stack"], provision_only=True)
    begun = monitoring_exporters.begin(image, planned)
    assert (begun["units"], begun["waits"]) == ([], [])
    assert monitoring_exporters.manages(image).services == []


# A host without cards


def cardless(*listeners: Any, **changes: Any) -> Any:
    """A host without cards on which the machine's exporter is right, but for what is given."""
    facts = nodes.bare(
        pci={"gpus": []},
        services={NODE: ON, NODE_PORT: ON, GPU: OFF_FOR_GOOD, GPU_PORT: OFF_FOR_GOOD, **changes.pop("services", {})},
        monitoring={"listeners": list(listeners or OURS[1:]), "drop_ins": [NODE], "certificate": None},
        **changes,
    )
    facts["packages"]["installed"] |= PACKAGE
    return facts


NO_CARDS: Any = {"gpuwright_gpus_expected": 0, "gpuwright_want": ["driver", "cuda", "pytorch", "watch", "monitoring"]}


def test_a_host_without_cards_gets_the_exporter_of_the_machine_and_nothing_else() -> None:
    facts = cardless()
    facts["packages"]["installed"].clear()
    planned = plan(facts, Wish.from_variables(NO_CARDS))
    assert planned["components"] == ["monitoring_exporters", "validate"]
    change = planned["changes"][0]
    assert (change["reason"], change["services"]) == ("missing packages: prometheus-node-exporter", [NODE_PORT, NODE])
    assert change["files"] == [f"/etc/systemd/system/{name}" for name in (f"{NODE}.d/gpuwright.conf", NODE_PORT)]
    there = planned["work"]["monitoring_exporters"]
    assert (there["programs"], there["waits"], there["leaves"]) == ([], [], [])
    assert there["units"] == [{"name": name, "enabled": True, "state": "started"} for name in (NODE_PORT, NODE)]
    assert planned["manages"]["monitoring_exporters"]["services"] == [NODE_PORT, NODE]
    assert list(planned["stack"]) == ["monitoring_exporters", "repositories"]
    assert "metrics and the storage proof" in planned["warnings"][0]["text"]


def test_on_a_host_without_cards_it_is_judged_and_mended_as_anywhere() -> None:
    assert reasons(cardless(), **NO_CARDS) == []
    stack = made(cardless(), **NO_CARDS)["stack"]

    def told(facts: Any) -> Any:
        found = {each["id"]: (each["status"], each["reason"]) for each in judge.judge(facts, stack)}
        return {name: found[name] for name in found if name.startswith("monitoring.")}

    assert told(cardless()) == {"monitoring.node": ("pass", None)}
    wide = cardless({**OURS[1], "address": "::"})
    words = f"{NODE} listens on ::, wished is 127.0.0.1"
    assert reasons(wide, **NO_CARDS) == [words]
    assert told(wide) == {"monitoring.node": ("warn", words)}
    idle = cardless(services={NODE: OFF})
    assert reasons(idle, **NO_CARDS) == [f"{NODE} does not run"]


def test_where_the_cards_are_gone_for_good_their_exporter_ends() -> None:
    left = cardless(*OURS, services={GPU: ON, GPU_PORT: ON, gpu_log.SERVICE: OFF_FOR_GOOD, gpu_log.TIMER: OFF_FOR_GOOD})
    there = work(left, **NO_CARDS)
    assert there["leaves"] == [GPU_PORT, GPU]
    assert {
        f"/etc/systemd/system/{GPU}",
        f"/etc/systemd/system/{GPU_PORT}",
        "/usr/local/libexec/gpuwright/gpu_exporter.py",
    } <= {*there["absent"]}
    of_dcgm = cardless(services={GPU: OFF_FOR_GOOD, DCGM_PORT: ON, _DCGM: ON, _ENGINE: ON})
    of_dcgm["monitoring"]["drop_ins"] = [_DCGM, _ENGINE, NODE]
    assert work(of_dcgm, **NO_CARDS)["leaves"] == [DCGM_PORT, _DCGM, _ENGINE]
    # Somebody else's stays, and so does the program of another unit.
    of_dcgm["monitoring"]["drop_ins"] = [NODE]
    assert work(of_dcgm, **NO_CARDS)["leaves"] == []


def test_cards_that_are_expected_and_gone_are_a_failure_whatever_else_is_wished() -> None:
    planned = plan(cardless(), Wish.from_variables({**NO_CARDS, "gpuwright_gpus_expected": 2}))
    assert (planned["verdict"], planned["changes"], planned["stack"]) == ("fail", [], {})


def test_a_lock_of_what_cards_get_does_not_hold_a_host_without_them() -> None:
    held = of_lock("driver", "cuda")
    asked = lock.as_wish(held, {"gpuwright_gpus_expected": 0, "monitoring_source": "smi"})
    draft = make_draft(cardless(), asked, load_rules(), Request(host="node", today=date(2026, 11, 20), lock=held))
    assert isinstance(draft, Draft), draft
    assert list(draft.answer["stack"]) == ["monitoring_exporters", "repositories"]


def test_in_wsl_it_needs_systemd() -> None:
    (refusal,) = plan(wsl(systemd=False), want("monitoring"))["refusals"]
    assert (refusal["rule"], "monitoring_exporters needs systemd" in refusal["text"]) == ("needs-systemd", True)


def test_remove_takes_the_units_and_their_files() -> None:
    files = made(bare(), **SECURED)["manages"]["monitoring_exporters"]["files"]
    record = {
        "files": files,
        "services": [GPU_PORT, GPU, NODE_PORT, NODE],
        "brought": [*PACKAGE],
        "components": ["monitoring_exporters"],
        "failed": [],
        "recorded": True,
    }
    facts = nodes.provisioned(history=record)
    assert removal.foreign(facts) == []
    there = removal.work(facts)
    assert (there["files"], there["services"], there["packages"]) == (
        files,
        [GPU_PORT, GPU, NODE_PORT, NODE],
        [*PACKAGE],
    )


# DCGM


_OF_DCGM = {
    "datacenter-gpu-manager-4-core": "1:4.5.3-1",
    "datacenter-gpu-manager-4-cuda13": "1:4.5.3-1",
    "datacenter-gpu-manager-4-proprietary": "1:4.5.3-1",
    "datacenter-gpu-manager-4-proprietary-cuda13": "1:4.5.3-1",
    "datacenter-gpu-manager-exporter": "4.8.2-1",
}
_DCGM_WISH: Any = {"gpuwright_want": ["driver=580", "monitoring=dcgm"]}


def with_dcgm(
    *listeners: Any, services: Any = None, packages: Any = None, drop_ins: Any = (_DCGM, _ENGINE, NODE)
) -> Any:
    """A node of a system that DCGM is for, on which it is right but for what is given."""
    off = dict.fromkeys((GPU, GPU_PORT), OFF_FOR_GOOD)
    there = {_DCGM: ON, DCGM_PORT: ON, _ENGINE: ON, NODE: ON, NODE_PORT: ON, **off, **(services or {})}
    rows = listeners or ({**OURS[0], "unit": _DCGM}, OURS[1])
    facts = nodes.provisioned(
        os={"id": "ubuntu", "version": "24.04", "codename": "noble", "name": "Ubuntu 24.04", "family": "debian"},
        services=there,
        monitoring={"listeners": list(rows), "drop_ins": list(drop_ins), "certificate": None},
    )
    facts["packages"]["installed"] |= {**PACKAGE, **_OF_DCGM, **(packages or {})}
    return facts


def test_dcgm_that_runs_has_nothing_to_say() -> None:
    assert reasons(with_dcgm(), **_DCGM_WISH) == []


def test_the_host_engine_has_to_run_too() -> None:
    assert reasons(with_dcgm(services={_ENGINE: OFF}), **_DCGM_WISH) == [f"{_ENGINE} does not run"]


def test_a_dcgm_below_the_floor_is_moved() -> None:
    old = with_dcgm(packages={"datacenter-gpu-manager-4-core": "1:4.4.2-1"})
    (change,) = [row for row in made(old, **_DCGM_WISH)["changes"] if row["component"] == "monitoring_exporters"]
    assert (change["action"], change["reason"]) == (
        "upgrade",
        "datacenter-gpu-manager-4-core is 1:4.4.2-1, brought is 4.5.3 or newer",
    )


def test_the_drop_in_of_dcgm_says_where_it_listens_and_asks_the_host_engine() -> None:
    there = work(with_dcgm(services={_ENGINE: OFF}), monitoring_address="10.0.0.5", **_DCGM_WISH)
    fields, drop_in, port, engine, _node, _its_port = there["files"]
    assert f"\nListenStream=10.0.0.5:9400\nFreeBind=yes\nService={_DCGM}\n" in port["content"]
    assert f"\nSockets={DCGM_PORT}\n" in drop_in["content"]
    assert engine["path"] == f"/etc/systemd/system/{_ENGINE}.d/gpuwright.conf"
    assert (
        "ExecStart=\nExecStart=/usr/bin/dcgm-exporter --collectors=/etc/gpuwright/dcgm-fields.csv --web-systemd-socket "
        in drop_in["content"]
    )
    assert "--remote-hostengine-info=127.0.0.1:5555\n" in drop_in["content"]
    assert "\nRequires=nvidia-dcgm.service\n" in drop_in["content"]
    assert "\nDCGM_FI_DEV_FB_TOTAL, gauge, Framebuffer memory in all (in MiB).\n" in fields["content"]
    assert list(dict.fromkeys(unit["name"] for unit in there["units"])) == [_ENGINE, DCGM_PORT, _DCGM, NODE_PORT, NODE]
    made_first = {"/etc/systemd/system", *(each["path"] for each in there["directories"])}
    assert {each["path"].rpartition("/")[0] for each in there["files"]} - made_first == set()
    # The host engine has others who ask it: it is neither stopped nor taken back alone.
    own = [DCGM_PORT, _DCGM, NODE_PORT, NODE]
    assert there["readers"] == own
    assert made(with_dcgm(), **_DCGM_WISH)["manages"]["monitoring_exporters"]["services"] == own
    secured_too = work(with_dcgm(), **SECURED, **_DCGM_WISH)["files"][1]["content"]
    assert "--web-config-file=/run/gpuwright-web/gpuwright-gpu-exporter/web.yml\n" in secured_too


def test_who_changes_the_source_has_the_other_one_ended_first() -> None:
    smi = with_dcgm(
        OURS[0],
        OURS[1],
        services={GPU: ON, GPU_PORT: ON, _DCGM: OFF, DCGM_PORT: OFF_FOR_GOOD, _ENGINE: OFF},
        drop_ins=[NODE],
    )
    there = work(smi, **_DCGM_WISH)
    assert there["leaves"] == [GPU_PORT, GPU]
    assert f"/etc/systemd/system/{GPU}" in there["absent"]
    back = work(with_dcgm())
    assert back["leaves"] == [DCGM_PORT, _DCGM, _ENGINE]
    # A host engine that ran before is somebody else's, and stays.
    assert work(with_dcgm(drop_ins=[_DCGM, NODE]))["leaves"] == [DCGM_PORT, _DCGM]
    assert f"/etc/systemd/system/{_DCGM}.d/gpuwright.conf" in back["absent"]
    # Somebody else's is nobody's to end.
    assert work(with_dcgm(OURS[1], services={_DCGM: OFF}, drop_ins=[NODE]))["leaves"] == []


def test_the_fields_have_what_alerts_and_dashboards_need() -> None:
    """Each line that is no comment is one of CSV with three columns, which nothing quotes."""
    text = work(with_dcgm(services={_ENGINE: OFF}), **_DCGM_WISH)["files"][0]["content"]
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {3}
    names = {row[0].strip() for row in rows}
    assert len(names) == len(rows)
    for name in ("GPU_UTIL", "FB_TOTAL", "ENFORCED_POWER_LIMIT", "SLOWDOWN_TEMP", "PCIE_MAX_LINK_WIDTH", "CLOCK_THROTTLE_REASONS",
                 "XID_ERRORS", "ECC_DBE_VOL_TOTAL", "ROW_REMAP_PENDING", "FABRIC_MANAGER_STATUS"):  # fmt: skip
        assert f"DCGM_FI_DEV_{name}" in names
    # Our own exporter tells no name that this one does not.
    assert {name for name, *_rest in gpu_metrics.METRICS} <= names
    # Somebody else's host engine runs: without those of the profiling module.
    theirs = with_dcgm(OURS[1], drop_ins=[NODE], services={_DCGM: OFF})
    assert "DCGM_FI_PROF_" in text
    assert "\nDCGM_FI_PROF_" not in work(theirs, **_DCGM_WISH)["files"][0]["content"]
