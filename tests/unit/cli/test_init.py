"""`gpuwright init`: what it writes is what the other verbs take, as it is and with everything in it switched on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager

from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from gpuwright import knowledge
from tests.unit.cli.conftest import FakeAnsible, plan_record

CHECK_WISH = knowledge.check_wish  # the fixture `ansible` takes it away


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def switched_on(text: str) -> str:
    """Each line that is offered as a comment, taken."""
    return re.sub(r"^( *)# (- \S+|[a-z_]+:|  [a-z]+: http)", r"\1\2", text, flags=re.MULTILINE)


def hosts_of(path: Path) -> dict[str, dict[str, Any]]:
    """What Ansible reads of an inventory: each host with its variables."""
    loader = DataLoader()
    found = InventoryManager(loader, [str(path)])
    variables = VariableManager(loader, found)
    everything = {host.name: variables.get_vars(host=host, include_hostvars=False) for host in found.get_hosts()}
    assert {of.get("ansible_user") for of in everything.values()} <= {None, "deploy"}
    return {host: {name: of[name] for name in of if settings.ours(name)} for host, of in everything.items()}


def test_a_wish_for_this_machine_is_what_up_takes(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "check_wish", CHECK_WISH)
    done = gpuwright("init")
    assert (done.code, done.out) == (0, "")
    assert "gpuwright plan --wish wish.yml" in done.err
    ansible.plans = {"localhost": plan_record("localhost")}
    assert gpuwright("plan", "--wish", "wish.yml").code == 0
    (request,) = ansible.requests
    assert Wish.from_variables(request.extra_vars) == Wish().with_defaults()

    text = (here / "wish.yml").read_text()
    offered = switched_on(text)
    assert offered.count("\n#") < text.count("\n#")
    (here / "all.yml").write_text(offered)
    assert gpuwright("plan", "--wish", "all.yml").code == 0
    asked = Wish.from_variables(ansible.requests[-1].extra_vars)
    assert (asked.driver_branch, asked.gpus_expected, len(asked.frameworks), len(asked.mirrors)) == ("580", 2, 5, 2)


def test_an_inventory_of_hosts_is_what_ansible_and_the_run_take(gpuwright: Callable[..., Any], here: Path) -> None:
    done = gpuwright("init", "node[01:03].example.com", "10.0.0.7", "on", "node01.example.com", "-o", "my.yml")
    assert done.code == 0
    assert "gpuwright plan -i my.yml" in done.err
    hosts = hosts_of(here / "my.yml")
    assert set(hosts) == {*(f"node0{number}.example.com" for number in (1, 2, 3)), "10.0.0.7", "on"}
    settings.refuse(hosts)
    assert all(Wish.from_variables(of) == Wish().with_defaults() for of in hosts.values())

    (here / "all.yml").write_text(switched_on((here / "my.yml").read_text()))
    hosts = hosts_of(here / "all.yml")
    settings.refuse(hosts)
    assert hosts["on"]["gpuwright_serial"] == [1, "25%"]
    assert hosts["on"]["nvidia_driver_reboot"] is False


def test_this_machine_in_an_inventory_is_never_rebooted_and_needs_no_ssh(
    gpuwright: Callable[..., Any], here: Path
) -> None:
    assert gpuwright("init", "localhost").code == 0
    entry = yaml.safe_load((here / "inventory.yml").read_text())["all"]["hosts"]["localhost"]
    assert (entry["ansible_connection"], entry["gpuwright_local"]) == ("local", True)


@pytest.mark.parametrize("words", [[], ["node1"]])
def test_a_file_that_is_there_is_only_written_over_when_told(
    gpuwright: Callable[..., Any], here: Path, words: list[str]
) -> None:
    path = here / "mine.yml"
    path.write_text("mine\n")
    done = gpuwright("init", *words, "-o", "mine.yml", "--json")
    assert done.code == 2
    assert "mine.yml is there already" in done.json["error"]
    assert path.read_text() == "mine\n"
    done = gpuwright("init", *words, "-o", "mine.yml", "--force", "--json")
    assert done.json == {"ok": True, "kind": "inventory" if words else "wish", "file": "mine.yml"}
    assert path.read_text().startswith("---\n")


@pytest.mark.parametrize("words", [[], ["--force"]])
@pytest.mark.parametrize("leads_to", ["elsewhere/theirs.yml", "elsewhere/absent.yml"])
def test_a_link_is_not_written_through(
    gpuwright: Callable[..., Any], here: Path, words: list[str], leads_to: str
) -> None:
    (here / "elsewhere").mkdir()
    (here / "elsewhere/theirs.yml").write_text("theirs\n")
    (here / "wish.yml").symlink_to(here / leads_to)
    done = gpuwright("init", *words)
    assert (done.code, done.err.count("\n")) == (2, 2)
    assert "wish.yml is a symbolic link and is not written over" in done.err
    assert [(path.name, path.read_text()) for path in (here / "elsewhere").iterdir()] == [("theirs.yml", "theirs\n")]
    assert (here / "wish.yml").is_symlink()


def test_what_is_no_file_is_not_written_over(gpuwright: Callable[..., Any], here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "folder").mkdir()
    for name in ("pipe", "folder"):
        done = gpuwright("init", "--force", "-o", name)
        assert done.code == 2
        assert f"{name} is no regular file" in done.err


def test_a_file_is_replaced_by_one_of_its_mode(gpuwright: Callable[..., Any], here: Path) -> None:
    path, other_name = here / "wish.yml", here / "other.yml"
    path.write_text("mine\n")
    path.chmod(0o640)
    other_name.hardlink_to(path)
    assert gpuwright("init", "--force").code == 0
    assert (path.stat().st_mode & 0o777, other_name.read_text()) == (0o640, "mine\n")
    assert sorted(each.name for each in here.iterdir()) == ["other.yml", "wish.yml"]


@pytest.mark.parametrize(
    "name", ["all", "ungrouped", "node1,node2", "a b", "x: {}", "{{ lookup('pipe', 'id') }}", "", "né"]
)
def test_what_is_no_name_of_a_host_is_refused(gpuwright: Callable[..., Any], here: Path, name: str) -> None:
    done = gpuwright("init", name)
    assert done.code == 2
    assert "is no name of a host" in done.err
    assert list(here.iterdir()) == []


def test_a_place_that_is_not_there_is_told(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("init", "-o", "absent/wish.yml")
    assert done.code == 2
    assert "absent/wish.yml cannot be written: No such file" in done.err
