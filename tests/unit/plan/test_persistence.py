"""The persistence daemon where its unit has no [Install], as Ubuntu's: a drop-in and a unit of ours keep it running with persistence on."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import places
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from tests.unit.plan import nodes

DAEMON, KEEPER = nvidia_driver.PERSISTENCE_SERVICE, nvidia_driver.PERSISTENCE_KEEPER
LEFT = f"{KEEPER} is left from a driver whose persistence daemon nothing enabled"
DRIVER: Any = {
    "source": "distro",
    "adopted": False,
    "packages": [],
    "pin": {"hold": []},
    "version": None,
    "branch": "580",
}


def context(keeper: str | None, active: str = "active", unit: str = "static", **variables: Any) -> Context:
    facts = nodes.provisioned()
    facts["services"] = {DAEMON: {"active": active, "enabled": unit}}
    if keeper:
        facts["services"][KEEPER] = {"active": "active", "enabled": keeper}
    return Context(facts=facts, stack={"driver": DRIVER}, variables={"nvidia_driver": variables})


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (context(None), "the persistence daemon is started by udev alone, and without persistence mode"),
        (context("not-found"), "the persistence daemon is started by udev alone, and without persistence mode"),
        (context("enabled", active="inactive"), "the persistence daemon does not run"),
        (context("enabled"), None),
        (context(None, unit="enabled"), None),
        (context("not-found", unit="enabled"), None),
        (context(None, unit="disabled"), "the persistence daemon is not enabled"),
        (context(None, nvidia_driver_persistence=False), None),
        (context("enabled", unit="enabled"), LEFT),
        (context("disabled", unit="enabled"), LEFT),
        (context("enabled", nvidia_driver_persistence=False), LEFT),
    ],
)
def test_a_daemon_that_nothing_enables_is_found(where: Context, reason: str | None) -> None:
    found = [finding.reason for finding in nvidia_driver._service_findings(where)]
    assert found == ([reason] if reason else [])


def test_cards_that_fell_off_the_bus_are_no_reason_to_take_the_keeper_away() -> None:
    where = context("enabled")
    where.facts["pci"]["gpus"] = []
    assert nvidia_driver._service_findings(where) == []


def test_drop_in_and_unit_are_sealed_where_the_daemons_own_unit_is_static() -> None:
    managed = nvidia_driver.manages(context("enabled"))
    assert set(nvidia_driver.PERSISTENCE_FILES) <= set(managed.files)
    # Taken away in this order: the keeper would start the daemon again.
    assert managed.services == [KEEPER, DAEMON]
    plain = nvidia_driver.manages(context(None, unit="enabled"))
    assert not set(nvidia_driver.PERSISTENCE_FILES) & set(plain.files)
    assert plain.services == [DAEMON]


def test_what_the_role_writes_is_what_is_sealed_and_may_be_removed() -> None:
    assert tuple(file["path"] for file in places.persistence()) == nvidia_driver.PERSISTENCE_FILES
    assert (
        f"/etc/systemd/system/{DAEMON}.d/gpuwright.conf",
        f"/etc/systemd/system/{KEEPER}",
    ) == nvidia_driver.PERSISTENCE_FILES
    assert all(removal.WRITTEN.fullmatch(path) for path in nvidia_driver.PERSISTENCE_FILES)
    assert removal.UNIT.fullmatch(KEEPER)


def test_the_drop_in_replaces_the_command_and_keeps_an_idle_daemon() -> None:
    drop_in, keeper = (file["content"].splitlines() for file in places.persistence())
    commands = [line for line in drop_in if line.startswith("ExecStart=")]
    assert commands[0] == "ExecStart="
    assert len(commands) == 2
    assert "--persistence-mode" in commands[1].split()
    assert "StopWhenUnneeded=false" in drop_in
    assert f"Upholds={DAEMON}" in keeper
