"""promtool and amtool, and the rules as a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring import alert_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts, recorded
from tests.sim import unpacked

Call = Callable[..., subprocess.CompletedProcess[str]]
# The Go programs live for seconds: collecting their garbage less often saves a sixth of their time.
_ENVIRONMENT = {**os.environ, "GOGC": "400"}


def caller(program: Path) -> Call:
    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=300, env=_ENVIRONMENT
        )

    return call


@pytest.fixture(scope="session")
def promtool() -> Call:
    return caller(unpacked.program("promtool"))


@pytest.fixture(scope="session")
def amtool() -> Call:
    return caller(unpacked.program("amtool"))


@pytest.fixture(scope="session")
def rules_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "alerts.yml"
    file.write_text(alert_rules.rules_file(alerts(), recorded()))
    return file


@pytest.fixture
def rules_hold(promtool: Call, rules_file: Path, tmp_path: Path) -> Callable[..., str]:
    """Run the tests of one group, with the rules asked once a minute or as told; return what promtool says of those that do not hold."""

    def hold(group: dict[str, Any], every: str = "1m") -> str:
        file = tmp_path / "test.yml"
        document = {
            "rule_files": [str(rules_file)],
            "evaluation_interval": every,
            "tests": [{"interval": "1m", **group}],
        }
        file.write_text(yaml.safe_dump(document, width=10000))
        done = promtool("test", "rules", file)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    return hold
