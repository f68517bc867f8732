"""How long the controller waits for a node: each module has a limit, and what is over takes nothing else along."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import limits

MODULES = {path.stem for path in (Path(__file__).parents[3] / "plugins/modules").glob("*.py")}


def test_what_looks_measures_and_installs_has_a_limit_with_what_its_own_programs_may_take() -> None:
    assert limits.seconds("node_facts", {}, 300) == 300
    assert limits.seconds("node_facts", {"timeout": 20.0}, 300) == 340
    assert limits.seconds("dcgm_diag", {"timeout": 10800}, 300) > 10840
    assert limits.seconds("package_call", {"lock_timeout": 300}, 300) >= 24 * 3600
    assert {*limits._MEASURING, *limits._INSTALLING} < MODULES


def test_a_body_that_takes_longer_ends_with_what_to_do() -> None:
    with (
        pytest.raises(
            AnsibleConnectionFailure, match=r"gpu17 gave no answer to node_facts within 1 seconds. What to do:"
        ),
        limits.within(1, "gpu17", "node_facts"),
    ):
        time.sleep(60)
    assert signal.alarm(0) == 0


def test_a_limit_of_the_task_gives_way_and_goes_on_after() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.alarm(500)
        with limits.within(3600, "gpu17", "fio"):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
        assert 400 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        # Whatever the body took: an installation of hours ends no task that has fewer.
        signal.alarm(2)
        with limits.within(3600, "gpu17", "wheels"):
            time.sleep(3)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.5
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
