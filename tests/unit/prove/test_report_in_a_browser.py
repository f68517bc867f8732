"""The report as a browser lays it out, where there is one: no word breaks inside, at any width of the window."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import loads
from tests.sim import engine
from tests.unit.prove import loaded

BROWSER = os.environ.get("GPUWRIGHT_BROWSER") or next(filter(None, map(shutil.which, engine.BROWSERS)), None)
WIDTHS = [320, 360, 420, 500, 600, 640, 720, 800, 900, 1024, 1100, 1200, 1280, 1366, 1440, 1600, 1920, 2560]

# In each frame: every word that has its letters on more than one line, unless what it is part of (a path) is wider than the page;
# and whether the page scrolls sideways.
_MEASURE = """
const found = [];
const place = (page, text, start, length) => {
  const range = page.createRange();
  range.setStart(text, start);
  range.setEnd(text, start + length);
  return [...range.getClientRects()].filter(part => part.width > 0);
};
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, room = page.querySelector("main").clientWidth * 0.8;
  for (const each of page.querySelectorAll("details")) { each.open = true; each.style.contentVisibility = "visible"; }
  const root = page.scrollingElement;
  if (root.scrollWidth > root.clientWidth) found.push([frame.width, "scrolls", root.scrollWidth]);
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    for (const token of text.data.matchAll(/\\S+/g)) {
      const parts = place(page, text, token.index, token[0].length);
      if (parts.reduce((sum, part) => sum + part.width, 0) > room) continue;
      for (const word of token[0].matchAll(/[A-Za-z0-9_.]+/g)) {
        const tops = place(page, text, token.index + word.index, word[0].length).map(part => Math.round(part.top / 4));
        if (new Set(tops).size > 1) found.push([frame.width, "breaks", word[0]]);
      }
    }
}
document.title = JSON.stringify(found);
"""


def page_of(tmp_path: Path) -> str:
    """A report with everything that a page can have, of ordinary length."""
    run = report.open_run(tmp_path / "run", "up")
    remedy = "read the kernel log for 'RmInitAdapter failed' and for a card that needs the open kernel modules"
    changes = [
        {
            "component": component,
            "action": action,
            "from": "580.95.05-1ubuntu1",
            "to": "580.126.20-1ubuntu1",
            "reason": reason,
        }
        for component, action, reason in (
            (
                "nvidia_driver",
                "upgrade",
                "the wish names the branch 580 and the newest build of its packages is not installed " * 3,
            ),
            (
                "container_toolkit",
                "configure",
                "/etc/docker/daemon.json does not name the runtime of the container toolkit",
            ),
            ("nouveau_blacklist", "install", "the module nouveau is inside of the initial file system"),
        )
    ]
    record: dict[str, Any] = {
        "checks": [
            checks.failed(
                "kernel.xid",
                "fatal",
                gpu="00000000:3B:00.0",
                measured=3,
                expected=0,
                reason="Xid 79: the card has fallen off",
                evidence="NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
                remedy=remedy,
            ),
            checks.incomplete(
                "framework.import", "the environment's interpreter /opt/gpuwright/pytorch/bin/python cannot be run"
            ),
            checks.passed("temperature.gpu", measured=40, expected=80, unit="Celsius", gpu="0"),
            checks.passed("fio.seqread", measured=3500.5, unit="MB/s"),
            checks.skipped(
                "nvlink.links", "this machine has one card, and a link needs two of them that are connected " * 2
            ),
        ],
        "changes": changes,
        "failure": {
            "task": "Load the module",
            "message": "modprobe: could not insert 'nvidia'",
            "component": "nvidia_driver",
        },
        "refusals": [
            {
                "rule": "driver.branch_unsupported",
                "text": "no driver of this branch",
                "source": "NVIDIA",
                "remedy": remedy,
            }
        ],
        "why": [
            {"text": "branch 580: a production branch that supports every card of the machine", "rule": "driver.branch"}
        ],
        "warnings": [
            {
                "text": "the driver is below the lowest version without a published vulnerability",
                "rule": "driver.security",
            }
        ],
        "left": [{"component": "reboot", "reason": "nouveau holds the card"}],
        "rescue": ["ssh to desk and run: gpuwright rollback --yes"],
        "stack": {
            "driver": {"branch": "580", "version": "580.126.20"},
            "frameworks": [{"name": "pytorch", "version": "2.14.1+cu130"}],
        },
        "summary": {"os": {"name": "Ubuntu 24.04.3 LTS"}, "kernel": {"running": "6.8.0-45-generic"}},
        "gpus": [{"name": "NVIDIA H100 80GB HBM3"}] * 2,
        "measurements": {"fio": {"seqread": {"iops": 5, "clat_ns": {"percentiles": {"99": 1000, "50": 10}}}}},
    }
    report.write_host(run, "training_node_with_a_long_name_0017", record)
    record["measurements"] |= {"load": loaded.cards(2), "framework_loads": loads.of_results([loaded.result(2)])}
    report.write_host(run, "gpu01", record)
    lost = {"training_node_with_a_long_name_0018": "the connection was refused on port 22 after three attempts " * 3}
    report.aggregate(run, unreachable=lost, not_reached=["training_node_with_a_long_name_0019"])
    return (run / "report.html").read_text(encoding="utf-8")


def faults_of(page: str, tmp_path: Path) -> list[list[Any]]:
    """What the browser finds: the width of the window, the fault, and the word or the width that is needed."""
    # The page itself allows no script; the frames are asked from outside, and the policy would hold there too.
    framed = html.escape(re.sub(r"<meta http-equiv[^>]*>", "", page), quote=True)
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{framed}"></iframe>' for width in WIDTHS)
    outer = tmp_path / "outer.html"
    outer.write_text(f'{frames}<script>addEventListener("load", () => {{{_MEASURE}}})</script>', encoding="utf-8")
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
    ]
    told = subprocess.run(
        [*command, outer.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True
    )
    title = re.search(r"<title>(.*?)</title>", told.stdout.decode())
    assert title, "the browser measured nothing"
    found: list[list[Any]] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed (apt-get install chromium-headless-shell)")
def test_no_word_breaks_inside_and_nothing_scrolls_sideways_at_any_width(tmp_path: Path) -> None:
    assert faults_of(page_of(tmp_path), tmp_path) == []


def test_no_cell_of_a_table_may_become_narrower_than_a_word() -> None:
    """What a browser would see, held where there is none: with `anywhere` a column may shrink to a letter."""
    style = (Path(report.__file__).parent / "report.html.j2").read_text(encoding="utf-8").partition("</style>")[0]
    cells = [body for names, body in re.findall(r"([^{}]+)\{([^{}]*)\}", style) if re.search(r"\bt[dh]\b", names)]
    assert cells
    assert not [body for body in cells if "anywhere" in body or "word-break" in body]
