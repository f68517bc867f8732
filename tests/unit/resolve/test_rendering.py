"""Our variables in templates: what can never be rendered is refused before the first host, and what has to wait is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import EncryptedString, VaultSecretsContext
from ansible.template import Templar, trust_as_template

from ansible_collections.gpuwright.node.plugins.action.report import ActionModule
from ansible_collections.gpuwright.node.plugins.plugin_utils import report

CIPHERTEXT = "$ANSIBLE_VAULT;1.1;AES256\n33363138\n"


class HostVars(dict[str, dict[str, Any]]):
    """As Ansible's own, which is a mapping with the variables as they are written behind one more method."""

    def raw_get(self, host: str) -> dict[str, Any]:
        return self[host]


def trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: trusted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [trusted(inner) for inner in value]
    return trust_as_template(value) if type(value) is str else value


def opened(
    monkeypatch: pytest.MonkeyPatch, hosts: dict[str, Any], play: dict[str, Any] | None = None, lost: str = ""
) -> Any:
    """What opening a run answers over hosts with these variables, as the task of the first of them."""
    monkeypatch.setattr(report, "open_run", lambda path, _verb: path)
    everything = HostVars({host: trusted({"inventory_hostname": host, **of}) for host, of in hosts.items()})
    first = next(iter(hosts))
    magic = {
        "hostvars": everything,
        "ansible_play_hosts_all": list(hosts),
        "ansible_play_hosts": [host for host in hosts if host != lost],
    }
    variables = {**everything[first], **trusted(play or {}), **magic}
    loader = DataLoader()
    action = ActionModule(
        task=SimpleNamespace(args={"state": "open"}),
        connection=None,
        play_context=None,
        loader=loader,
        templar=Templar(loader=loader, variables=variables),
        shared_loader_obj=None,
    )
    return action._open({"state": "open"}, variables)


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ansible has it where no vault password was given."""
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext([]))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("gpuwright_serial", "{{ nope }}", "'nope' is undefined"),
        ("gpuwright_want", ["cuda", "driver={{ mine }}"], "'nope' is undefined"),
        ("gpuwright_mirrors", {"nvidia": "http://{{ nope }}/"}, "'nope' is undefined"),
        ("cuda_versions", "{{ 1 +", "Syntax error in template"),
        ("nvidia_driver_branch", "{{ 580 | nofilter }}", "nofilter"),
        ("reboot_timeout", "{{ lookup('file', '/nowhere/at/all') }}", "The lookup plugin 'file' failed"),
        ("gpuwright_wish", {"cuda_versions": ["{{ 1 / 0 }}"]}, "division by zero"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_can_never_be_rendered_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any, reason: str, first: bool
) -> None:
    bad = {name: value, "mine": "{{ nope }}"}
    answer = opened(monkeypatch, {"n1": bad, "n2": {}} if first else {"n2": {}, "n1": bad})
    assert answer["failed"]
    assert answer["msg"].startswith(f"{name} cannot be rendered: ")
    assert reason in answer["msg"]
    assert answer["msg"].endswith(" (n1)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia_driver_branch", "{{ omit }}"),
        ("nvidia_driver_branch", "{{ nope | default(omit) }}"),
        ("nvidia_driver_branch", EncryptedString(ciphertext=CIPHERTEXT)),
        ("nvidia_driver_branch", "{{ secret }}"),
        ("nvidia_driver_branch", "{{ '580' if ansible_facts.distribution == 'Debian' else '570' }}"),
        ("nvidia_driver_branch", "{{ by_os }}"),
        ("reboot_timeout", "{{ 900 if gpuwright_plan.reboot else 60 }}"),
        ("frameworks_path", "/opt/{{ hostvars['n2'].registered.name }}"),
        ("frameworks_path", "/opt/{{ of_the_play }}"),
        ("frameworks_path", "/opt/{{ inventory_hostname }}"),
        ("my_own", "{{ nope }}"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_known_later_or_elsewhere_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any, first: bool
) -> None:
    good = {
        name: value,
        "by_os": "{{ ansible_distribution }}",
        "secret": EncryptedString(ciphertext=CIPHERTEXT),
    }
    answer = opened(monkeypatch, {"n1": good, "n2": {}} if first else {"n2": {}, "n1": good}, {"of_the_play": "x"})
    assert "failed" not in answer, answer


def test_a_host_that_an_earlier_play_lost_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"n1": {"cuda_versions": ["12.8"]}, "n2": {"cuda_versions": "{{ registered_by_the_earlier_play }}"}}
    assert "failed" in opened(monkeypatch, hosts)
    assert "failed" not in opened(monkeypatch, hosts, lost="n2")


def test_no_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    value = "{{ lookup('file', 'https://me:hidden@mirror/' ~ 'x' * 500) }}"
    message = opened(monkeypatch, {"n1": {"gpuwright_mirrors": {"nvidia": value}}})["msg"]
    assert "gpuwright_mirrors cannot be rendered" in message
    assert "hidden" not in message
    assert len(message) < 300
