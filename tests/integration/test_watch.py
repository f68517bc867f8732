"""A node that watches itself: by a timer of real systemd, a web and a mail server that are told, through faults, a driver that hangs, a
change by hand and a boot, and taken back.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sim import receivers

from . import snapshot
from .conftest import Node, Run
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

_TURN = "systemctl start gpuwright-watch.service"
_RECORD = "/var/lib/gpuwright/watch.json"
_FIRST = "/var/lib/gpuwright/metrics/gpuwright.prom"
_PROM = "/srv/node_exporter/gpuwright.prom"
_CONF = "/etc/systemd/system/gpuwright-watch.timer"
_SECRET = "not-to-be-seen"


@dataclass
class Watched:
    """A server with one H100 and nothing of NVIDIA, and who is told of it."""

    node: Node
    web: receivers.Web
    mail: receivers.Mail

    def up(self, *arguments: str, verb: str = "up", interval: str = "15m", **variables: str) -> Run:
        """Run with the watch alone, which brings the driver that it watches."""
        more = ("--yes",) if verb == "up" else ()
        variables["watch_webhook"] = f"{self.web.address}/{_SECRET}"
        variables |= {"watch_mail": "ops@example.com", "watch_smtp": self.mail.address}
        wanted = ("--want=driver=580", f"--want=watch={interval}", "-e", json.dumps(variables))
        return self.node.run(verb, *more, *wanted, *arguments)

    def elsewhere(self, *arguments: str, verb: str = "up") -> Run:
        """The same each minute, with the metrics among those of others."""
        return self.up(*arguments, verb=verb, interval="1m", watch_textfile_directory="/srv/node_exporter")

    def turn(self, *, fails: bool = False) -> None:
        """One turn, at once; the journal says why one fails that should not."""
        begun = self.node.shell("date +%s").strip()
        done = self.node.shell(f"{_TURN} && echo well", check=False).strip() == "well"
        said = self.node.shell(f"journalctl --quiet --output=cat -u gpuwright-watch.service --since=@{begun}")
        assert done != fails, said

    def metrics(self, path: str = _PROM) -> dict[str, float]:
        rows = (line.rpartition(" ") for line in self.node.shell(f"cat {path}").splitlines() if line[0] != "#")
        return {name: float(value) for name, _, value in rows}

    def told(self) -> tuple[list[dict[str, Any]], list[str]]:
        """What the web server got and the subjects of the letters since the last question."""
        posts = [each["json"] for each in self.web.got]
        subjects = [letter.partition("Subject: ")[2].partition("\r\n")[0] for _to, letter in self.mail.letters]
        self.web.got.clear()
        self.mail.letters.clear()
        return posts, subjects

    def waits_for_a_post(self) -> None:
        end = time.monotonic() + 150
        while not self.web.got:
            assert time.monotonic() < end, "the timer made no turn that told anything"
            time.sleep(1)


@pytest.fixture(scope="module")
def watched(
    make_shared_node: Callable[[str, str], Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    node = make_shared_node("watch", "h100-ubuntu")
    gateway = node.shell("ip route show default").split()[2]
    web, mail = receivers.Web(tmp_path_factory.mktemp("web"), gateway), receivers.Mail(gateway)
    # As `openssl rehash` names an authority that is trusted.
    asked = ["openssl", "x509", "-hash", "-noout", "-in", str(web.certificate)]
    name = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    node.shell(f"cat > /etc/ssl/certs/{name}.0 <<'END'\n{web.certificate.read_text()}END")
    with receivers.serving(web.server, mail):
        yield Watched(node.with_its_tree(), web, mail)


def test_the_watch_comes_with_the_driver_and_all_is_well(watched: Watched) -> None:
    run = watched.up()
    assert run.code == 0, str(run)
    assert "watch" in run.components
    watched.turn()
    found = watched.metrics(_FIRST)
    assert found["gpuwright_proven"] == 1
    assert (found["gpuwright_gpus"], found["gpuwright_expected_gpus"]) == (1, 1)
    assert found['gpuwright_seal_good{component="watch"}'] == 1
    assert found['gpuwright_nvlink_links{gpu="0",state="active"}'] == 18
    # By the user of node_exporter, whoever that is.
    watched.node.shell(f"runuser -u nobody -- cat {_FIRST}")
    assert watched.told() == ([], [])
    # Of a turn in which all is well nobody reads anything in the journal.
    assert watched.node.shell("journalctl --quiet --output=cat -u gpuwright-watch.service").strip() == ""


def test_the_secret_is_in_one_file_of_roots_and_nowhere_else(watched: Watched) -> None:
    assert watched.node.shell("stat -c '%a %U' /etc/gpuwright/watch-webhook").strip() == "600 root"
    found = watched.node.shell(f"grep -rl {_SECRET} /etc /var/lib/gpuwright /var/log /srv /usr/local", check=False)
    assert found.split() == ["/etc/gpuwright/watch-webhook"]
    run = watched.up("--full")
    assert run.code == 0, str(run)
    assert run.report is not None
    written = [path for path in run.report.rglob("*") if path.is_file()]
    assert not [path for path in written if _SECRET.encode() in path.read_bytes()]
    assert _SECRET not in str(run)


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(watched: Watched) -> None:
    again = watched.up()
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = watched.up("--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_a_turn_changes_nothing_but_its_record_and_the_metrics(watched: Watched) -> None:
    # A turn of the timer's own would have its directory in /tmp meanwhile.
    watched.node.shell(f"systemctl stop gpuwright-watch.timer gpuwright-watch.service; cp {_RECORD} /root/watch.json")
    before = watched.node.tree()
    watched.turn()
    changed = snapshot.differences(before, watched.node.tree())
    # That turn found the timer stopped, and told it: what follows begins as if it had not.
    watched.node.shell(f"mv /root/watch.json {_RECORD}; systemctl start gpuwright-watch.timer")
    assert [post["state"] for post in watched.told()[0]] == ["not proven"]
    ours = {path: path.rpartition("/")[0] for path in (_RECORD, _FIRST)}
    assert set(changed) == {*ours, *ours.values()}


def test_another_directory_and_another_span_are_taken_over(watched: Watched) -> None:
    run = watched.elsewhere()
    assert (run.code, run.components) == (0, {"watch"}), str(run)
    watched.turn()
    assert watched.metrics()["gpuwright_watch_interval_seconds"] == 60
    assert watched.node.shell(f"ls {_FIRST}", check=False) == ""


def test_the_timer_by_itself_tells_that_a_card_fails_and_that_it_is_well_again(watched: Watched) -> None:
    watched.node.fault("ecc")
    watched.waits_for_a_post()
    watched.turn()
    posts, subjects = watched.told()
    assert len(posts) == 1, json.dumps(posts)
    (post,) = posts
    host = watched.node.shell("hostname").strip()
    assert (post["host"], post["state"], subjects) == (host, "not proven", [f"{host} is not proven"])
    assert any(reason.startswith("ecc.") for reason in post["reasons"]), post
    assert watched.metrics()["gpuwright_proven"] == 0
    watched.node.fault("ecc", clear=True)
    watched.turn()
    (post,), subjects = watched.told()
    assert (post["state"], post["reasons"], subjects) == ("proven", [], [f"{host} is proven"])


def test_a_web_server_that_fails_is_told_by_the_doctor_and_gets_all_later(watched: Watched) -> None:
    watched.web.status = 503
    watched.node.fault("ecc")
    watched.turn(fails=True)
    watched.node.fault("ecc", clear=True)
    watched.turn(fails=True)
    assert watched.metrics()["gpuwright_watch_untold"] == 1
    said = watched.node.shell("journalctl --quiet --output=cat -u gpuwright-watch.service")
    assert "not everybody was told: the webhook answered with status 503" in said
    found = {each["id"]: each for each in watched.elsewhere(verb="doctor").host["checks"]}
    assert (found["watch.runs"]["status"], found["watch.runs"]["reason"]) == (
        "warn",
        "the last turn of gpuwright-watch.service failed",
    )
    refused, subjects = watched.told()
    assert {post["state"] for post in refused} == {"not proven"}, "the order is kept"
    assert [subject.rpartition(" is ")[2] for subject in subjects] == ["not proven", "proven"]
    watched.web.status = 200
    watched.turn()
    assert [post["state"] for post in watched.told()[0]] == ["not proven", "proven"]


def test_what_somebody_broke_by_hand_is_told_and_up_mends_it(watched: Watched) -> None:
    watched.node.shell(f"echo '# by hand' >> {_CONF}")
    watched.turn()
    (post,), _subjects = watched.told()
    assert post["reasons"][0].startswith("seals.watch: not as it was set up")
    assert "it came back 2 times within a day" in post["reasons"][-1]
    assert watched.metrics()["gpuwright_drift"] == 1
    mended = watched.elsewhere()
    assert (mended.code, mended.components) == (0, {"watch"}), str(mended)
    watched.turn()
    assert watched.metrics()["gpuwright_proven"] == 1
    assert watched.told() == ([], []), "a node that comes and goes does not tell each time that it is back"


def test_a_driver_that_hangs_is_told_and_the_turn_ends(watched: Watched) -> None:
    watched.node.fault("hanging-smi")
    watched.turn()
    assert watched.metrics()["gpuwright_proven"] == 0
    assert any("smi.runs: nvidia-smi did not answer in time" in post["text"] for post in watched.told()[0])
    watched.node.fault("hanging-smi", clear=True)
    watched.turn()
    assert watched.metrics()["gpuwright_proven"] == 1
    assert watched.node.shell("pgrep -x nvidia-smi", check=False) == ""


def test_a_trial_arrives(watched: Watched) -> None:
    said = watched.node.shell("python3 -I /usr/local/libexec/gpuwright/watch.py --try 2>&1")
    assert said.strip() == "sent: mail to ops@example.com, webhook"
    (post,), (subject,) = watched.told()
    assert post["state"] == "trial"
    assert subject.endswith("a trial of gpuwright's watch")


def test_it_goes_on_after_a_boot_and_says_that_the_proof_is_of_another_one(watched: Watched) -> None:
    watched.node.reboot()
    watched.node.shell("systemctl is-active gpuwright-watch.timer")
    watched.turn()
    assert 'gpuwright_check_incomplete{check="proof.age",gpu=""}' in watched.metrics()
    (post,), _subjects = watched.told()
    assert post["reasons"][0] == "proof.age: the host was rebooted since its last proof"
    assert watched.elsewhere().code == 0
    watched.turn()
    assert watched.metrics()["gpuwright_proven"] == 1


def test_remove_takes_all_of_it(watched: Watched) -> None:
    gone = watched.node.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert watched.node.shell("systemctl list-timers --all --no-legend 'gpuwright-*'").strip() == ""
    assert leftovers(watched.node.bare, watched.node.tree()) == {}
