"""containerd as the engine: what its configuration gets, that nothing else in it moves, and how it is taken back."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import cdi, containerd, toml
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

PROGRAM = "/usr/bin/nvidia-container-runtime"
#: What Debian's package of containerd 1.6 and 1.7 brings.
DEBIAN = """version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd"
"""
#: As kubeadm's guide has it, with the comments of its owner.
KUBERNETES = """# ours, by hand
version = 2
[plugins."io.containerd.grpc.v1.cri"]  # the pause image
  sandbox_image = "registry.example/pause:3.10"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
VERSION_3 = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
FILES = {"debian": DEBIAN, "kubernetes": KUBERNETES, "version 1": '[plugins.cri]\n  sandbox_image = "x"\n', "empty": ""}
SEEN: dict[str, Any] = {
    "installed": True,
    "version": "1.7.24",
    "active": True,
    "config": {"runtime": PROGRAM, "default_runtime": "runc", "cdi": True, "imports": [containerd.CONFIG]},
    "config_loaded": True,
    "marked": [containerd.CONFIG],
}
#: Docker's containers lie in containerd, too.
IN_USE: dict[str, Any] = {"containers": [{"engine": "docker", "id": "0123456789ab", "comes_back": True}]}
UNIT = {"containerd.service": {"active": "active", "enabled": "enabled"}}


def node(**seen: Any) -> Any:
    """A node whose engine is containerd; it is right but for ``seen``."""
    facts = nodes.provisioned(services=UNIT)
    facts["containers"]["docker"] |= {"installed": False, "version": None, "active": False, "daemon_json": None}
    facts["containers"]["docker"]["config_loaded"] = None
    facts["packages"]["installed"] = {
        name: version for name, version in facts["packages"]["installed"].items() if not name.startswith("docker")
    } | {"containerd": "1.7.24~ds1-6"}
    facts["containers"]["containerd"] |= {**SEEN, **seen}
    return facts


def planned(facts: Any, **wished: Any) -> Any:
    request = Request(host="node", today=date(2026, 11, 20), only=("container_toolkit",), inputs={})
    only = ("container_toolkit",)
    drafted = make_draft(facts, Wish.from_variables(wished).with_defaults().with_roles(only), load_rules(), request)
    assert isinstance(drafted, Draft), drafted
    return finish(drafted, None)


def installed(facts: Any, text: str = DEBIAN, *, engine: str = "auto", check: bool = False, **variables: Any) -> Any:
    plan = planned(facts, container_toolkit_engine=engine)
    plan["given"] = {"check": check, "content": base64.b64encode(text.encode()).decode()}
    inputs = {"container_toolkit": {f"container_toolkit_{name}": value for name, value in variables.items()}}
    return work.of_step("container_toolkit", "installed", plan, facts, inputs)


def reasons(facts: Any, **wished: Any) -> list[str]:
    return [row["reason"] for row in planned(facts, **wished)["changes"] if row["component"] == "container_toolkit"]


def runtime(text: str, section: str = "io.containerd.grpc.v1.cri") -> Any:
    return tomllib.loads(text)["plugins"][section]["containerd"]["runtimes"]["nvidia"]


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.1.0"])
@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_file_is_added_to_and_given_back_byte_for_byte(text: str, version: str, default: bool) -> None:
    new, own = containerd.configured(text, version, default=default)
    assert own == ""
    assert containers.MARKS.search(new)
    assert toml.restored(new) == text
    assert containerd.configured(new, version, default=default) == (new, "")
    for line in text.splitlines():
        assert line in new


def test_what_others_changed_since_stays_when_it_is_given_back() -> None:
    new, _ = containerd.configured(KUBERNETES, "1.7.24", default=True)
    theirs = new.replace("pause:3.10", "pause:3.11") + "oom_score = 1\n"
    assert toml.restored(theirs) == KUBERNETES.replace("pause:3.10", "pause:3.11") + "oom_score = 1\n"


def test_the_runtime_has_the_control_groups_of_the_hosts_runc() -> None:
    new, _ = containerd.configured(KUBERNETES, "1.7.24", default=False)
    assert runtime(new) == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"SystemdCgroup": True, "BinaryName": PROGRAM},
    }
    assert "enable_cdi = true # gpuwright\n" in new
    assert '    default_runtime_name = "runc"\n' in new


def test_the_runtime_leaves_control_groups_to_systemd_where_the_kubelet_does() -> None:
    new, _ = containerd.configured(DEBIAN, "1.7.24", default=False, systemd=True)
    assert runtime(new)["options"] == {"SystemdCgroup": True, "BinaryName": PROGRAM}
    (file,) = installed(node(marked=[], kubelet_cgroups="systemd"))["files"]
    assert runtime(file["content"])["options"]["SystemdCgroup"] is True
    (file,) = installed(node(marked=[], kubelet_cgroups="cgroupfs"))["files"]
    assert "SystemdCgroup" not in file["content"]


def test_a_runtime_of_others_that_pods_do_not_stay_in_is_told_where_nothing_is_done() -> None:
    def told(**seen: Any) -> list[str]:
        plan = planned(node(config=seen.pop("config", SEEN["config"]), **seen), container_toolkit_engine="containerd")
        return [row["text"] for row in plan["warnings"] if row["rule"] == "container_toolkit.unmended"]

    assert told(kubelet_cgroups="systemd") == [f"{containerd.UNMANAGED}. What to do: {containerd.MANAGE}"]
    assert told(kubelet_cgroups="systemd", config={**SEEN["config"], "systemd_cgroup": True}) == []
    assert told(kubelet_cgroups="cgroupfs") == []
    # The role that adds the runtime leaves them to systemd itself.
    assert told(kubelet_cgroups="systemd", config={**SEEN["config"], "runtime": None}) == []


def test_runc_is_named_where_the_file_named_no_runtime_because_containerd_1_forgets_it_then() -> None:
    new, _ = containerd.configured(DEBIAN, "1.6.20", default=False)
    runtimes = tomllib.loads(new)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert set(runtimes) == {"runc", "nvidia"}
    assert "enable_cdi" not in new


def test_a_line_that_says_otherwise_is_put_out_of_force() -> None:
    new, _ = containerd.configured(KUBERNETES, "1.7.24", default=True)
    assert '#gpuwright#     default_runtime_name = "runc"\ndefault_runtime_name = "nvidia" # gpuwright\n' in new


def test_a_runtime_of_the_hosts_own_stays() -> None:
    theirs = KUBERNETES + (
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/opt/nvidia"\n'
    )
    new, _ = containerd.configured(theirs, "1.6.20", default=False)
    assert new == theirs


def test_from_2_on_it_has_a_file_of_our_own_where_the_main_file_imports_it() -> None:
    new, own = containerd.configured(VERSION_3, "2.2.0", default=True)
    assert new == VERSION_3
    assert tomllib.loads(own) == {
        "version": 3,
        "plugins": {
            "io.containerd.cri.v1.runtime": {
                "containerd": {
                    "default_runtime_name": "nvidia",
                    "runtimes": {
                        "nvidia": {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": PROGRAM}}
                    },
                }
            }
        },
    }
    assert containers.MARKS.search(own)
    assert containerd.configured(VERSION_3, "1.7.24", default=False)[1] == ""


def test_cdi_that_was_switched_off_is_switched_on() -> None:
    off = VERSION_3 + "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n"
    _, own = containerd.configured(off, "2.2.0", default=False)
    assert tomllib.loads(own)["plugins"]["io.containerd.cri.v1.runtime"]["enable_cdi"] is True


@pytest.mark.parametrize(
    "text",
    ["x = [", "version = 2\nplugins = {}\n", 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\ncontainerd = 1\n'],
)
def test_a_file_that_cannot_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(toml.Unmergeable):
        containerd.configured(text, "1.7.24", default=False)
    found = installed(node(), text)
    assert "What to do" in found["refusal"]
    assert [row for row in found["files"] if "containerd" in row["path"]] == []


@pytest.mark.skipif(shutil.which("containerd") is None, reason="containerd is not installed")
@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_containerd_itself_reads_it_and_tells_the_runtime(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(containerd.configured(text, "1.6.20", default=True)[0])
    told = subprocess.run(
        ["containerd", "--config", path, "config", "dump"], capture_output=True, text=True, check=True
    )
    found = containers.parse_dump(told.stdout)
    assert (found["runtime"], found["default_runtime"]) == (PROGRAM, "nvidia")


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_a_containerd_that_is_right_needs_nothing() -> None:
    assert reasons(node()) == []


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"config": None}, "has no runtime 'nvidia'"),
        ({"config": {**SEEN["config"], "runtime": None}}, "has no runtime 'nvidia'"),
        ({"config": {**SEEN["config"], "cdi": False}}, "has CDI switched off"),
        ({"config_loaded": False}, "has not loaded its configuration"),
    ],
)
def test_what_it_lacks_is_in_the_plan(seen: Any, reason: str) -> None:
    (found,) = reasons(node(**seen))
    assert reason in found


def test_an_old_containerd_is_not_asked_for_cdi() -> None:
    old = node(version="1.6.20", config={**SEEN["config"], "cdi": None})
    assert reasons(old) == []
    (warned,) = [row["text"] for row in planned(old)["warnings"] if row["rule"] == "container-toolkit.engine"]
    assert "containerd 1.6.20 is older than" in warned
    assert "use the nvidia runtime, not CDI" in warned


def test_an_engine_that_is_no_longer_wished_is_given_back() -> None:
    facts = nodes.provisioned()
    facts["containers"]["containerd"] |= SEEN
    assert "from an earlier run" in reasons(facts)[0]
    assert planned(facts)["work"]["container_toolkit"]["reads"] == containerd.CONFIG
    new, _ = containerd.configured(KUBERNETES, "1.7.24", default=False)
    (file,) = [row for row in installed(facts, new)["files"] if row["path"] == containerd.CONFIG]
    assert file["content"] == KUBERNETES
    (engine,) = [row for row in installed(facts, new)["engines"] if row["unit"] == "containerd"]
    assert (engine["enabled"], engine["state"]) == (None, "restarted")
    facts["in_use"] |= IN_USE
    (engine,) = [row for row in installed(facts, new)["engines"] if row["unit"] == "containerd"]
    assert (engine["state"], engine["left"]) == (None, True)
    facts["in_use"] |= {"containers": []}
    facts["containers"]["containerd"]["marked"] = []
    assert reasons(facts) == []


def test_the_file_of_our_own_goes_where_it_is_not_wished() -> None:
    facts = node(version="2.2.0", marked=[containerd.DROP_IN])
    assert containerd.DROP_IN in installed(facts, KUBERNETES)["absent"]
    assert containerd.DROP_IN not in installed(facts, VERSION_3)["absent"]


# --- the work ---------------------------------------------------------------------------------------------------------


def test_the_file_is_checked_by_containerd_and_keeps_its_mode() -> None:
    (file,) = installed(node(marked=[]))["files"]
    assert (file["path"], "mode" in file) == (containerd.CONFIG, False)
    assert file["validate"] == "containerd --config %s config dump"
    assert installed(node(marked=[]))["kept"] == [
        {"src": containerd.CONFIG, "dest": f"/var/lib/gpuwright/backup{containerd.CONFIG}.before"}
    ]
    (new,) = installed(node(marked=[]), "")["files"]
    assert new["mode"] == "0644"
    assert installed(node(marked=[]), "")["kept"] == []


@pytest.mark.parametrize(
    ("wished", "idle", "busy"),
    [("auto", "restarted", "started"), (True, "restarted", "restarted"), (False, "started", "started")],
)
def test_it_is_restarted_over_containers_that_run_only_where_that_is_wished(wished: Any, idle: str, busy: str) -> None:
    for running, state in (({}, idle), (IN_USE, busy)):
        facts = node(marked=[])
        facts["in_use"] |= running
        (engine,) = installed(facts, restart_docker=wished)["engines"]
        assert (engine["unit"], engine["enabled"]) == ("containerd", True)
        assert (engine["state"], engine["left"]) == (state, state == "started")


def test_a_second_run_writes_nothing() -> None:
    new, _ = containerd.configured(DEBIAN, "1.7.24", default=False)
    found = installed(node(), new)
    (engine,) = found["engines"]
    assert (found["files"], engine["state"], found["refusal"]) == ([], "started", None)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"config": None, "config_error": "(2, 1): unterminated array"}, "(2, 1): unterminated array"),
        (
            {
                "version": "1.7.24",
                "config": {**SEEN["config"], "runtime": None, "imports": [containerd.CONFIG, "/x.toml"]},
            },
            "imported files (/x.toml)",
        ),
    ],
)
def test_a_configuration_that_would_not_work_is_refused_before_the_first_package(seen: Any, text: str) -> None:
    refusal = planned(node(**seen), container_toolkit_engine="containerd")["work"]["container_toolkit"]["refusal"]
    if "config_error" in seen:
        assert reasons(node(**seen), container_toolkit_engine="containerd") == [
            f"containerd cannot read its configuration ({text}): nothing is put into it before {containerd.CONFIG} is corrected by hand"
        ]
    assert text in refusal
    assert "What to do" in refusal


def test_the_seal_names_the_files_that_bear_our_marks() -> None:
    facts = node()
    managed = COMPONENTS["container_toolkit"].sealed(Context(facts=facts, stack=planned(facts)["stack"]))
    assert containerd.CONFIG in managed.files
    assert "/etc/docker/daemon.json" not in managed.files
    assert managed.services == ["containerd.service", cdi.LINKS]


def test_remove_gives_the_file_back_and_restarts_it_where_it_stays() -> None:
    removes = COMPONENTS["container_toolkit"].removes
    given: Any = removes(node(), [])["containerd"]
    assert (given["path"], given["patterns"], given["restart"]) == (containerd.CONFIG, list(toml.PATTERNS), True)
    assert removes(node(marked=[]), [])["containerd"] is None
    assert removes(nodes.provisioned(), [])["containerd"] is None
