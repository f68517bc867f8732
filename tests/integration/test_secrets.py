"""A whole run with planted secrets: none is left in the run's folder, its words, the node's logs, a process list or a readable file."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.sim import node, settings
from tests.sim.engine import docker

from .conftest import Node, Run, command_line, environment
from .guarded import MIRROR_HOST, PROXY_HOST, PROXY_PORT, asked, guarded

pytestmark = pytest.mark.sim

USER = "site-reader"
#: Each has a character that looks different raw, percent-encoded and in base64.
SECRETS = {
    "mirror": "Pl4nted+mirror=wq81",
    "proxy": "Pl4nted+proxy=kz27",
    "vault": "Pl4nted+vault=hx36",
    "extra": "Pl4nted+extra=tb45",
    "environment": "Pl4nted+environment=ny54",
    "sudo": "Pl4nted+sudo=rd63",
    "wrong": "Pl4nted+wrong=ms72",
}


def forms(secret: str) -> set[str]:
    """How a secret may stand somewhere: raw, percent-encoded, in base64 wherever in a text it begins."""
    found = {secret, quote(secret, safe="")}
    for before in ("", "x", "xx"):
        encoded = base64.b64encode((before + secret).encode()).decode()
        # Whole groups that hold nothing of what stands around the secret.
        first = {"": 0, "x": 2, "xx": 3}[before]
        found.add(encoded[first : len(encoded) // 4 * 4 - 4])
    return found


FORMS = {form: name for name, secret in SECRETS.items() for form in forms(secret)}


def named(text: str) -> set[str]:
    """The secrets that stand in a text, by their names."""
    return {name for form, name in FORMS.items() if form in text}


def in_folder(folder: Path) -> set[tuple[str, str]]:
    """The secrets that stand in the files of a folder, or in their names."""
    return {
        (str(path.relative_to(folder)), name)
        for path in folder.rglob("*")
        for name in named(str(path) + (path.read_text(errors="replace") if path.is_file() else ""))
    }


def on_node(machine: Node) -> set[tuple[str, str]]:
    """The secrets that stand in the node's journal, its logs, and any file that somebody else than root may read."""
    # The patterns come by stdin: a command line can be read by everybody.
    look = """cat > /root/patterns && chmod 600 /root/patterns
        journalctl --output=export --no-pager > /root/journal.export
        { find / -xdev -type f -perm /044 -size -40M; find /var/log /root/journal.export -type f; } 2>/dev/null | sort -u \\
            | tr '\\n' '\\0' | xargs -0 grep --with-filename --text --only-matching --fixed-strings --file=/root/patterns
        rm /root/patterns /root/journal.export"""
    done = docker("exec", "-i", settings.container_name(machine.name), "sh", "-c", look, check=False,
                  stdin="\n".join(FORMS).encode())  # fmt: skip
    return {(line.partition(":")[0], FORMS[line.partition(":")[2]]) for line in done.stdout.splitlines()}


class Processes(threading.Thread):
    """Reads the command line of every process, here and in the nodes' containers, again and again."""

    def __init__(self, except_of: Callable[[], int | None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.found: set[tuple[str, str]] = set()
        self.samples = 0
        self._except_of = except_of
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            for entry in Path("/proc").iterdir():
                # What a person wrote on a command line stands there by their own doing.
                if entry.name.isdigit() and int(entry.name) != self._except_of():
                    self._read(entry / "cmdline")
            self.samples += 1
            time.sleep(0.05)

    def _read(self, path: Path) -> None:
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return
        self.found |= {(words.split(" ", 1)[0], name) for name in named(words)}

    def stop(self) -> set[tuple[str, str]]:
        self._end.set()
        self.join()
        return self.found


def address(secret: str, user: str = USER) -> str:
    """The guarded mirror with its credentials, as people write it."""
    return f"http://{user}:{quote(secret, safe='')}@{MIRROR_HOST}"


def mirrors(secret: str) -> dict[str, str]:
    base = address(secret)
    return {
        "nvidia": f"{base}/compute/cuda/repos",
        "nvidia-container-toolkit": f"{base}/libnvidia-container/stable/deb",
    }


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose way to the packages and to root is guarded by passwords."""
    made = make_shared_node("secrets", "two-h100")
    with guarded(tmp_path_factory.mktemp("guarded"), mirror=(USER, SECRETS["mirror"]), proxy=(USER, SECRETS["proxy"])):
        proxy = f"http://{USER}:{quote(SECRETS['proxy'], safe='')}@{PROXY_HOST}:{PROXY_PORT}"
        content = f'Acquire::http::Proxy::{MIRROR_HOST} "{proxy}";\n'
        for path, text in (
            ("/etc/apt/apt.conf.d/90proxy", content),
            ("/root/password", f"{settings.NODE_USER}:{SECRETS['sudo']}\n"),
        ):
            docker("exec", "-i", settings.container_name(made.name), "sh", "-c", f"umask 077; cat > {path}",
                   stdin=text.encode())  # fmt: skip
        made.shell(
            f"chpasswd < /root/password; rm /root/password; sed -i s/NOPASSWD:// /etc/sudoers.d/{settings.NODE_USER}"
        )
        # A server that keeps the system's log as a file, too, as Debian's and Ubuntu's servers do.
        yield made


def inventory(machine: Node, folder: Path) -> Path:
    """The node's inventory with the credentials as a site keeps them: the passwords in a vault beside it."""
    document: dict[str, Any] = yaml.safe_load(node.inventory([machine.name]))
    variables = document["all"]["vars"]
    variables["gpuwright_mirrors"] |= {
        name: value.replace(quote(SECRETS["mirror"], safe=""), "{{ vault_mirror_password | urlencode }}")
        for name, value in mirrors(SECRETS["mirror"]).items()
    }
    variables["ansible_become_password"] = "{{ vault_sudo_password }}"
    site = folder / "inventory"
    (site / "group_vars" / "all").mkdir(parents=True)
    (site / "hosts.yml").write_text(yaml.safe_dump(document))
    kept = {
        "vault_mirror_password": SECRETS["mirror"],
        "vault_sudo_password": SECRETS["sudo"],
        "site_token": SECRETS["vault"],
    }
    vault = VaultLib([("default", VaultSecret(b"opens the vault"))])
    (site / "group_vars" / "all" / "vault.yml").write_bytes(vault.encrypt(yaml.safe_dump(kept)))
    (folder / "vault-password").write_text("opens the vault\n")
    return site / "hosts.yml"


@pytest.fixture
def site(machine: Node, tmp_path: Path) -> Callable[..., tuple[Run, set[tuple[str, str]]]]:
    """Run the command line with every secret in its place; what it said, and the processes that showed a secret."""
    where = inventory(machine, tmp_path)

    def run(*arguments: str, report: str = "report") -> tuple[Run, set[tuple[str, str]]]:
        given = [*arguments, "-i", str(where), "--vault-password-file", str(tmp_path / "vault-password")]
        given += ["-e", json.dumps({"site_extra": SECRETS["extra"]}), "--report", str(tmp_path / report)]
        hidden = f"http://{USER}:{quote(SECRETS['environment'], safe='')}@{PROXY_HOST}:{PROXY_PORT}"
        process = subprocess.Popen(
            [*command_line(), *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=settings.CLONE,
            env={**environment(), "http_proxy": hidden, "SITE_API_TOKEN": SECRETS["environment"]},
        )
        seen = Processes(lambda: process.pid)
        seen.start()
        stdout, stderr = process.communicate(timeout=600)
        found = seen.stop()
        assert seen.samples > 20
        return Run(process.returncode, stdout, stderr, tmp_path / report), found

    return run


def test_the_search_finds_what_is_planted(machine: Node, tmp_path: Path) -> None:
    planted = SECRETS["extra"]
    for number, form in enumerate(sorted(forms(planted))):
        (tmp_path / f"{number}").write_text(f"around{form}around")
        assert named(form) == {"extra"}
    assert {name for _path, name in in_folder(tmp_path)} == {"extra"}
    assert len(in_folder(tmp_path)) == len(forms(planted)) >= 3
    for pad in ("", "a", "ab"):
        assert named(base64.b64encode(f"{pad}:{planted}:{pad}".encode()).decode()) == {"extra"}
    for path, mode in (("/etc/planted", "644"), ("/etc/hidden", "600"), ("/var/log/planted", "600")):
        docker("exec", "-i", settings.container_name(machine.name), "sh", "-c",
               f"cat > {path}; chmod {mode} {path}; logger planted < {path}; cat {path} | systemd-cat",
               stdin=planted.encode())  # fmt: skip
    found = on_node(machine)
    machine.shell("rm /etc/planted /etc/hidden /var/log/planted")
    assert {("/etc/planted", "extra"), ("/var/log/planted", "extra"), ("/root/journal.export", "extra")} <= found
    assert ("/etc/hidden", "extra") not in found
    machine.shell(
        "journalctl --rotate; rm -rf /var/log/journal/*/* /run/log/journal/*/*; systemctl restart systemd-journald"
    )
    assert on_node(machine) == set()
    seen = Processes()
    seen.start()
    subprocess.run(["sh", "-c", "sleep 0.5", "sh", planted], check=True)
    assert ("sh", "extra") in seen.stop()


def test_a_run_that_fails_tells_no_secret(
    machine: Node, site: Callable[..., tuple[Run, set[tuple[str, str]]]], tmp_path: Path
) -> None:
    wish = tmp_path / "wish.yml"
    wish.write_text(yaml.safe_dump({"gpuwright_mirrors": mirrors(SECRETS["wrong"]), "gpuwright_want": ["driver=580"]}))
    run, processes = site("up", "--yes", "--wish", str(wish), "-vvvv")
    assert run.code == 3, str(run)
    assert MIRROR_HOST in run.stdout + run.stderr
    assert "401" in run.stdout + run.stderr
    assert tells_nothing(machine, run, processes) == {}


def test_a_whole_run_leaves_no_secret_behind(
    machine: Node, site: Callable[..., tuple[Run, set[tuple[str, str]]]], tmp_path: Path
) -> None:
    run, processes = site("up", "--yes", "--want", "driver=580", "--want", "container-toolkit", "-vvvv")
    assert run.code == 0, str(run)
    let_in = [line for line in asked() if line.endswith("let in")]
    # The secrets were used: packages came from the mirror, through the proxy.
    assert any(line.startswith("GET") and ".deb mirror" in line for line in let_in)
    assert any(".deb proxy" in line for line in let_in)
    assert tells_nothing(machine, run, processes) == {}
    again, processes = site(
        "up", "--yes", "--json", "--want", "driver=580", "--want", "container-toolkit", report="again"
    )
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    assert tells_nothing(machine, again, processes) == {}


def tells_nothing(machine: Node, run: Run, processes: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Every place that shows a secret, and which."""
    assert run.report
    places = {
        "words": named(run.stdout + run.stderr),
        "processes": set(processes),
        "run directory": in_folder(run.report),
        "node": on_node(machine),
    }
    return {place: found for place, found in places.items() if found}
