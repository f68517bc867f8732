"""Exporters of metrics by real systemd and the archive's real node_exporter: refused, brought, mended, after a boot, taken back."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

import pytest

from . import snapshot
from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

_GPU, _NODE = "gpuwright-gpu-exporter.service", "prometheus-node-exporter.service"
_PAIR = {"certificate": "/etc/ssl/node.pem", "key": "/etc/ssl/private/node.key"}
#: The password "scrape", as `htpasswd -nbBC 5 prometheus scrape` prints its hash.
_HASH = "$2y$05$abcdefghijklmnopqrstuuoMt/3RSWy9nt1XJ.fOvAVtRBAZkrjKK"
_SECURED = ("-e", json.dumps({"monitoring_tls": _PAIR, "monitoring_users": {"prometheus": _HASH}}))
#: All that listens on a port, by the kernel: the address, as `ss` writes it.
_LISTENS = "ss -Hltn 'sport = :{}' | awk '{{print $4}}' | sort"
_READ = """
import base64, ssl, sys, urllib.error, urllib.request
port, login, *trusted = sys.argv[1:]
request = urllib.request.Request(f"{'https' if trusted else 'http'}://127.0.0.1:{port}/metrics")
if login:
    request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
context = ssl.create_default_context(cafile=trusted[0]) if trusted else None
try:
    print(urllib.request.urlopen(request, timeout=60, context=context).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
#: Whoever writes these does so at each login and each look at packages.
_LOOKS = ("/home/gpuadmin/.ansible", "/var/log", "/var/lib/gpuwright", "/var/cache", "/var/lib/apt", "/etc/ld.so.cache")


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("exporters", "h100-ubuntu")


def up(machine: Node, *arguments: str, verb: str = "up") -> Run:
    more = ("--yes",) if verb == "up" else ()
    return machine.run(verb, *more, "--want=driver=580", "--want=monitoring=smi", *arguments)


def certificate(machine: Node, *more: str, address: str = "127.0.0.1") -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=node -days 90"
    command += (
        f" -addext subjectAltName=IP:{address} -out {_PAIR['certificate']} -keyout {_PAIR['key']} {' '.join(more)}"
    )
    machine.shell(f"mkdir -p /etc/ssl/private && {command} && chmod 600 {_PAIR['key']}")


def listens(machine: Node, port: int) -> list[str]:
    return machine.shell(_LISTENS.format(port)).split()


def page(machine: Node, port: int, login: str = "", *, tls: bool = False) -> str:
    """What is read on the node itself, by somebody who trusts the certificate; of what is refused only the status."""
    return machine.shell(f"python3 - {port} '{login}' {_PAIR['certificate'] if tls else ''} <<'END'\n{_READ}END")


def checks(machine: Node, *arguments: str, want: str = "monitoring=smi") -> dict[str, Any]:
    found = machine.run("doctor", "--want=driver=580", f"--want={want}", *arguments).host["checks"]
    return {
        each["id"].partition(".")[2]: (each["status"], each["reason"])
        for each in found
        if each["id"].startswith("monitoring.")
    }


def test_a_port_that_another_program_holds_is_refused_in_the_plan(machine: Node) -> None:
    machine.shell("systemd-run --unit=squatter python3 -m http.server --bind 127.0.0.1 9400")
    machine.shell("for i in $(seq 50); do ss -Hltn 'sport = :9400' | grep -q . && exit; sleep 0.1; done; exit 1")
    refused = up(machine, verb="plan")
    assert refused.code == 3, str(refused)
    said = str(refused)
    assert "127.0.0.1:9400 is held by python3 (squatter.service), which is no exporter of the cards" in said
    assert "set monitoring_gpu_port to a port that is free" in said
    machine.shell("systemctl stop squatter")


def test_a_certificate_that_cannot_be_served_is_refused_in_the_plan(machine: Node) -> None:
    asked = ("-e", json.dumps({"monitoring_tls": _PAIR}))
    assert f"{_PAIR['certificate']} cannot be read: No such file" in str(up(machine, *asked, verb="plan"))
    certificate(machine, "-not_before 20200101000000Z -not_after 20200301000000Z")
    refused = up(machine, *asked, verb="plan")
    assert (refused.code, f"{_PAIR['certificate']} expired on 2020-03-01T00:00:00Z" in str(refused)) == (3, True), str(
        refused
    )
    certificate(machine)
    machine.shell(f"chmod 644 {_PAIR['key']}")
    assert "is a key that everybody can read (mode 0644)" in str(up(machine, *asked, verb="plan"))


def test_an_exporter_that_somebody_else_runs_is_left_as_it_is(machine: Node) -> None:
    machine.shell("apt-get -qy install --no-install-recommends prometheus-node-exporter")
    before = machine.tree()
    run = up(machine)
    assert run.code == 0, str(run)
    told = [row["text"] for row in run.written_plan["why"] if row["rule"] == "monitoring.adopted"]
    assert told == [
        "prometheus-node (prometheus-node-exporter.service) tells the metrics of this machine on [::]:9100 already: it is left as it is"
    ]
    assert checks(machine)["node"] == ("pass", None)
    changed = [path for path in snapshot.differences(before, machine.tree()) if not path.startswith(_LOOKS)]
    assert [path for path in changed if "node-exporter" in path] == []
    assert listens(machine, 9100) == ["*:9100"]
    # Once it is gone the node gets one of ours.
    machine.shell("apt-get -qy purge prometheus-node-exporter")
    assert checks(machine)["node"] == ("warn", "prometheus-node-exporter.service does not run")


def test_they_come_and_listen_where_they_are_wished_from_their_first_moment(machine: Node) -> None:
    # Whatever listens on every address, while the package is installed, is written down.
    watching = "while sleep 0.05; do ss -Hltn 'sport = :9100 or sport = :9400' >>/root/listened; done"
    machine.shell(f"systemd-run --unit=watching sh -c {shlex.quote(watching)}")
    run = up(machine)
    machine.shell("systemctl stop watching")
    assert run.code == 0, str(run)
    assert "monitoring_exporters" in run.components
    assert "http://127.0.0.1:9400" in json.dumps(run.written_plan["why"])
    listened = {line.split()[3] for line in machine.shell("cat /root/listened").splitlines()}
    assert listened == {"127.0.0.1:9100", "127.0.0.1:9400"}
    cards = page(machine, 9400)
    assert 'DCGM_FI_DEV_FB_TOTAL{gpu="0",' in cards
    assert "gpuwright_exporter_up 1\n" in cards
    machine.shell("echo 'gpuwright_drift 0' > /var/lib/gpuwright/metrics/gpuwright.prom")
    of_machine = page(machine, 9100)
    assert "node_exporter_build_info{" in of_machine
    assert "\ngpuwright_drift 0\n" in of_machine
    assert machine.shell(f"ps -o user= -p $(systemctl show -P MainPID {_GPU})").strip() != "root"
    assert checks(machine) == {"gpu": ("pass", None), "node": ("pass", None)}


def test_while_an_exporter_is_stopped_nobody_else_gets_its_port(machine: Node) -> None:
    machine.shell(f"systemctl stop {_GPU} {_NODE}")
    squat = "runuser -u nobody -- python3 -c 'import socket; socket.create_server((\"127.0.0.1\", {}))' 2>&1; true"
    for port in (9400, 9100):
        assert "Address already in use" in machine.shell(squat.format(port))
    # A look asks nobody, for that would start it; whoever reads does.
    assert checks(machine)["node"] == ("warn", f"{_NODE} does not run")
    assert "node_exporter_build_info{" in page(machine, 9100)
    assert "gpuwright_exporter_up 1\n" in page(machine, 9400)
    assert checks(machine) == {"gpu": ("pass", None), "node": ("pass", None)}


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(machine: Node) -> None:
    again = up(machine)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = up(machine, "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_what_somebody_broke_by_hand_is_named_and_mended(machine: Node) -> None:
    machine.shell(
        f"rm /etc/systemd/system/{_NODE}.d/gpuwright.conf; systemctl daemon-reload; systemctl restart {_NODE}; true"
    )
    machine.shell(f"systemctl disable --now {_GPU}")
    # As its package has it, it would listen on every address; the port is held.
    assert listens(machine, 9100) == ["127.0.0.1:9100"]
    found = checks(machine)
    assert found["gpu"] == ("warn", f"{_GPU} does not run")
    assert found["node"] == ("warn", f"{_NODE} does not run")
    mended = up(machine)
    assert (mended.code, mended.components) == (0, {"monitoring_exporters"}), str(mended)
    assert (listens(machine, 9100), listens(machine, 9400)) == (["127.0.0.1:9100"], ["127.0.0.1:9400"])


def test_with_a_certificate_and_users_nobody_else_reads(machine: Node) -> None:
    certificate(machine)
    run = up(machine, *_SECURED)
    assert (run.code, run.components) == (0, {"monitoring_exporters"}), str(run)
    for port, mark in ((9400, "DCGM_FI_DEV_GPU_TEMP{"), (9100, "node_exporter_build_info{")):
        assert mark in page(machine, port, "prometheus:scrape", tls=True)
        assert page(machine, port, "prometheus:wrong", tls=True) == "401\n"
        assert page(machine, port, tls=True) == "401\n"
    assert checks(machine, *_SECURED) == {"gpu": ("pass", None), "node": ("pass", None), "certificate": ("pass", None)}
    again = up(machine, *_SECURED)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    # Nothing of a run has the hash, and on the node root's own file and what each service has of it.
    assert machine.shell("stat -c '%a %U' /etc/gpuwright/web.yml").strip() == "600 root"
    copies = "/run/gpuwright-web/gpuwright-node-exporter"
    assert machine.shell(f"stat -c '%a %U' {copies} {copies}/*").split("\n")[:-1] == [
        "711 root",
        *["400 prometheus"] * 3,
    ]
    assert _HASH not in json.dumps([run.written_plan, run.host, str(run)])
    assert (
        machine.shell(f"grep -rlF '{_HASH}' /etc /var/lib /var/log 2>/dev/null", check=False)
        == "/etc/gpuwright/web.yml\n"
    )


def test_a_renewed_certificate_is_shown_after_the_next_run(machine: Node) -> None:
    certificate(machine)
    assert "shows another certificate than /etc/ssl/node.pem has" in str(checks(machine, *_SECURED)["gpu"][1])
    renewed = up(machine, *_SECURED)
    assert (renewed.code, renewed.components) == (0, {"monitoring_exporters"}), str(renewed)
    assert "DCGM_FI_DEV_GPU_TEMP{" in page(machine, 9400, "prometheus:scrape", tls=True)


def test_they_go_on_after_a_boot(machine: Node) -> None:
    machine.reboot()
    for _ in range(60):
        if listens(machine, 9400) and listens(machine, 9100):
            break
        time.sleep(0.5)
    assert (listens(machine, 9100), listens(machine, 9400)) == (["127.0.0.1:9100"], ["127.0.0.1:9400"])
    plain = up(machine)
    assert (plain.code, plain.components) == (0, {"monitoring_exporters"}), str(plain)
    assert machine.shell("ls /etc/gpuwright/web.yml", check=False) == ""


def test_remove_takes_all_of_it_back(machine: Node) -> None:
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)
    left = "find /etc /usr/local /usr/lib/systemd /var/lib/gpuwright /run/systemd -name '*exporter*' -o -name 'web.yml'"
    assert machine.shell(left, check=False) == ""
    assert machine.shell("dpkg-query -W prometheus-node-exporter", check=False) == ""
    assert listens(machine, 9100) + listens(machine, 9400) == []
