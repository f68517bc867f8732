"""A local user without rights, on a machine that is node and controller at once: whatever lies ready for root gains nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from .conftest import Node
from .test_hosts import install

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

_HOME = "/home/mallory"
#: What runs as root and should not leaves its name here.
_OWNED = "/root/owned"
_CANARIES = ("/root/canary", "/etc/canary", f"{_HOME}/open")
_LINKS = ("probe", "seqread.0.0", "randread.0.0", "randread.1.0", ".gpuwright-run", "extravars.json", "run.json")

# Programs of every name, which go on as the real ones do; modules that Python would find in the working directory; files and links under
# names that can be foreseen, one of them held open; and, for ever, another directory in the place of each that appears in /data.
_PREPARED = f"""
    mkdir -p {_HOME}/bin {_HOME}/tmp {_HOME}/.ansible/tmp {_HOME}/.local/state/gpuwright {_HOME}/envs {_HOME}/report
    cat >{_HOME}/evil <<'END'
#!/bin/sh
name=${{0##*/}}
[ "$(/usr/bin/id -u)" != 0 ] || echo "$0 $*" >>{_OWNED}
for directory in /usr/sbin /usr/bin /sbin /bin; do [ ! -x "$directory/$name" ] || exec "$directory/$name" "$@"; done
END
    chmod 755 {_HOME}/evil
    for program in /usr/bin/* /usr/sbin/*; do ln -sf {_HOME}/evil {_HOME}/bin/${{program##*/}}; done
    for folder in /tmp {_HOME}/tmp {_HOME}/envs; do
        for name in pip venv ensurepip json zipfile ansible gpuwright; do
            mkdir -p $folder/$name
            echo "open('{_OWNED}', 'a').write(__file__)" | tee $folder/$name/__init__.py >$folder/$name/__main__.py
        done
    done
    printf '[defaults]\\ncallback_plugins = {_HOME}\\nlocal_tmp = {_HOME}/tmp\\n' | tee {_HOME}/.ansible.cfg >/tmp/ansible.cfg
    for folder in /tmp /var/tmp /run/lock /dev/shm; do
        for name in gpuwright gpuwright-apt gpuwright-dnf gpuwright-program gpuwright.lock .gpuwright-fio; do
            ln -sf /root/canary $folder/$name
        done
        mkfifo $folder/gpuwright-pipe
        ln -sf {_HOME}/open $folder/gpuwright-open
    done
    for name in {" ".join(_LINKS)}; do ln -sf /root/canary {_HOME}/report/$name; done
    cat >{_HOME}/swap <<'END'
while :; do
    for found in /data/.gpuwright-fio-*; do
        case $found in *\\** | *taken*) continue ;; esac
        mv "$found" "$found.taken" 2>/dev/null && mkdir "$found" || continue
        for name in {" ".join(_LINKS)}; do ln -s /root/canary "$found/$name"; done
    done
    sleep 0.01
done
END
"""


@pytest.fixture(scope="module")
def shared(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A machine with two cards that several people use; one of them prepared all of the above."""
    machine = make_shared_node("shared", "two-h100")
    install(machine, machine.inventory.parent)
    machine.shell("useradd --create-home --shell /bin/sh mallory; mkdir /data && chown mallory: /data")
    machine.shell("echo secret >/root/canary; echo public >/etc/canary; chmod 600 /root/canary")
    machine.shell(f"cat >/tmp/prepare <<'EOF'\n{_PREPARED}\nEOF\nrunuser -u mallory -- sh -e /tmp/prepare")
    machine.shell(f"echo >{_HOME}/open; chown mallory: {_HOME}/open")
    for lasting in (f"sh {_HOME}/swap", f"sh -c 'exec 3<>{_HOME}/open; sleep 9999'"):
        machine.shell(f"setsid runuser -u mallory -- {lasting} >/dev/null 2>&1 </dev/null &")
    return machine


def root_by_sudo_with_the_users_environment(machine: Node, words: str) -> tuple[int, dict[str, Any], str]:
    """What `sudo -E gpuwright` does in a directory of everybody's: exit code, the document, the words."""
    variables = yaml.safe_load(machine.inventory.read_text())["all"]["vars"]
    mirrors = json.dumps({name: value for name, value in variables.items() if name.startswith("gpuwright_")})
    environment = f"HOME={_HOME} TMPDIR={_HOME}/tmp PATH={_HOME}/bin:$PATH"
    line = f"/opt/gw/bin/gpuwright {words} --json -e '{mirrors}' -e validate_fio_directory=/data"
    said = machine.shell(f"cd /tmp; export {environment}; {line} 2>/root/words; code=$?; echo; echo $code")
    document, _, code = said.strip().rpartition("\n")
    return int(code), json.loads(document), machine.shell("cat /root/words")


def state(machine: Node) -> dict[str, str]:
    """What must be the same afterwards: the canaries with their times, what of root others may write, what is setuid, whose the home is."""
    writable = r"\( -perm -0002 -o -perm -4000 -o -perm -2000 \) ! -type l ! -type s ! -path '/proc/*' ! -path '/sys/*'"
    return {
        "owned": machine.shell(f"cat {_OWNED} 2>/dev/null", check=False),
        "canaries": machine.shell(f"stat -c '%n %a %U %s %Y' {' '.join(_CANARIES)}; cat {' '.join(_CANARIES)}"),
        "writable": machine.shell(f"find / -xdev -user root {writable} | sort"),
        "of root in the home": machine.shell(f"find {_HOME} /data ! -user mallory | grep -v fio- | sort", check=False),
    }


@pytest.fixture(scope="module")
def before(shared: Node) -> dict[str, str]:
    return state(shared)


def test_an_environment_in_a_users_directory_is_refused_before_anything_changes(
    shared: Node, before: dict[str, str]
) -> None:
    packages = shared.shell("dpkg-query -W")
    words = f"up --yes --want pytorch -e frameworks_path={_HOME}/envs"
    code, document, told = root_by_sudo_with_the_users_environment(shared, words)
    assert code in (1, 3), told
    assert f"Found {_HOME}, which belongs to mallory" in json.dumps(document)
    assert shared.shell("dpkg-query -W") == packages
    assert state(shared) == before


def test_a_report_in_a_users_directory_is_bad_input(shared: Node, before: dict[str, str]) -> None:
    code, document, _ = root_by_sudo_with_the_users_environment(shared, f"plan --report {_HOME}/report")
    assert code == 2
    assert f"{_HOME}, which belongs to mallory" in document["error"]
    assert state(shared) == before


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("up --yes --want driver=580 --want pytorch", {4}),
        # The driver is proven after the boot. What is measured here is what fio meets in the user's directory.
        ("validate", {1}),
    ],
)
def test_a_run_as_root_gains_the_user_nothing(
    shared: Node, before: dict[str, str], words: str, codes: set[int]
) -> None:
    code, document, told = root_by_sudo_with_the_users_environment(shared, words)
    assert code in codes, told
    if words == "validate":
        assert [row for row in document["hosts"]["localhost"]["checks"] if row["id"].startswith("fio.")]
    assert state(shared) == before


def test_an_environment_without_our_mark_stays_and_so_does_everything_else(
    shared: Node, before: dict[str, str]
) -> None:
    packages = shared.shell("dpkg-query -W")
    shared.shell("mv /opt/gpuwright/pytorch/gpuwright-constraints.txt /root/mark")
    code, document, told = root_by_sudo_with_the_users_environment(shared, "remove --yes")
    assert code in {1, 3}, told
    assert "Nothing was removed" in json.dumps(document)
    assert shared.shell("dpkg-query -W") == packages
    shared.shell("mv /root/mark /opt/gpuwright/pytorch/gpuwright-constraints.txt")
    assert state(shared) == before


def test_a_removal_gains_the_user_nothing(shared: Node, before: dict[str, str]) -> None:
    code, _, told = root_by_sudo_with_the_users_environment(shared, "remove --yes")
    assert code == 0, told
    assert shared.shell("ls -d /opt/gpuwright /var/lib/gpuwright 2>/dev/null", check=False) == ""
    assert state(shared) == before


def test_the_user_can_read_nothing_of_the_records(shared: Node) -> None:
    shared.shell("mkdir -p /var/lib/gpuwright")
    root_by_sudo_with_the_users_environment(shared, "plan")
    found = "find /var/lib/gpuwright /run/gpuwright /root /home/mallory/.local -user root -type f -readable 2>/dev/null"
    assert shared.shell(f"runuser -u mallory -- {found}", check=False) == ""
