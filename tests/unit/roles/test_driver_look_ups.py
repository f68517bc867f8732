"""What the tasks of the role nvidia_driver look up is what its steps say: a key that no step has would fail on a node only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from tests.unit.plan import nodes

from .driver_steps import driver, plan, step
from .test_driver_begin import RUNFILE, of_file, redhat, restore
from .test_driver_module import FABRIC, after, back, loaded, with_daemon

ROLE = Path(__file__).resolve().parents[3] / "roles/nvidia_driver"
_LOOK_UP = re.compile(r"__nvidia_driver_(work|now|runfile)\.(\w+(?:\.\w+)*)")


def begun() -> Iterator[Mapping[str, Any]]:
    """What `begin` says of the usual run and of each rare one."""
    stream = driver(pin={"hold": [], "stream": "nvidia-driver:580-open"})
    yield step("begin", redhat(), plan(stream))
    yield step("begin", made=plan(exchange={"comes": {"libcuda1": "1"}, "leaves": []}))
    yield step("begin", made=plan(driver(displaces="570.1")))
    yield step("begin", made=plan(restore=restore()))


def looked() -> Iterator[Mapping[str, Any]]:
    """What the steps in the middle say of each."""
    yield step("installed")
    yield step("installed", nodes.provisioned())
    yield step("verified", after(), plan(driver(packages=[], pin={})))
    yield step("verified", loaded(None))
    yield step("ready", with_daemon("static"))
    yield step("ready", with_daemon("enabled", "enabled"))
    yield step("ready", made=plan(driver(fabric=FABRIC, peermem=True)))
    yield step("restored", made=plan(restore=back()))


def has(data: Any, path: list[str]) -> bool:
    """Whether data has what is looked up; what is None there or in a list is left to another sample."""
    if not path:
        return True
    return isinstance(data, Mapping) and path[0] in data and has(data[path[0]], path[1:])


def test_every_look_up_of_the_tasks_is_a_key_of_a_step() -> None:
    samples = {
        "work": list(begun()),
        "now": list(looked()),
        "runfile": [step("begin", made=plan(of_file(runfile=RUNFILE)))["runfile"]],
    }
    text = "\n".join(path.read_text() for path in [*ROLE.glob("tasks/*.yml"), ROLE / "vars/main.yml"])
    found = set(_LOOK_UP.findall(text))
    assert len(found) > 60
    assert [
        f"{name}.{path}"
        for name, path in sorted(found)
        # systemd's state is left out where nothing is started, and the role says so.
        if not path.endswith(".unit.state") and not any(has(sample, path.split(".")) for sample in samples[name])
    ] == []


def test_the_tasks_ask_for_every_step_and_for_no_other() -> None:
    text = "\n".join(path.read_text() for path in ROLE.glob("tasks/*.yml"))
    assert set(re.findall(r"(?:    step|__nvidia_driver_step): (\w+)\n", text)) == set(nvidia_driver.STEPS)
