"""What is generated from the table of alerts is what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring import alert_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts
from tools import build_monitoring

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/monitoring.md").read_text()


def test_rules_and_page_are_what_the_table_says() -> None:
    command = [sys.executable, str(ROOT / "tools/build_monitoring.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_page_that_says_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "monitoring.md"
    page.write_text(PAGE.replace("| page |", "| ticket |", 1))
    monkeypatch.setattr(build_monitoring, "PAGE", page)
    monkeypatch.setattr(build_monitoring, "RULES", tmp_path / "alerts.yml")
    assert build_monitoring.main(["--check"]) == 1
    assert build_monitoring.main([]) == 0
    assert build_monitoring.main(["--check"]) == 0
    assert page.read_text() == PAGE


def test_page_without_its_marks_is_not_written_over() -> None:
    with pytest.raises(SystemExit, match="lost its marks"):
        build_monitoring.build("# Something else\n")


def test_each_alert_has_a_row_and_the_paragraph_that_its_message_names() -> None:
    for alert in alerts():
        assert f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} |" in PAGE
        assert alert_rules.anchor(alert) == f"docs/monitoring.md#{alert.name.lower()}"
        assert len(re.findall(rf"^### {alert.name}$", PAGE, re.MULTILINE)) == 1


def test_page_has_no_template_left() -> None:
    chapter = PAGE.partition(build_monitoring.BEGIN)[2].partition(build_monitoring.END)[0]
    assert "### GpuLost" in chapter
    assert "{{" not in chapter
