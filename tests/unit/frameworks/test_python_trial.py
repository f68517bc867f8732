"""Whether what an environment is asked for can be met together, tried by the real uv: nothing is installed, and no source is built."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.packages import pip_settings, uv
from ansible_collections.gpuwright.node.plugins.module_utils.packages import python_trial as trial
from ansible_collections.gpuwright.node.plugins.modules import python_index as module
from tests.unit.frameworks.conftest import UV, Site
from tests.unit.frameworks.test_wheels import SECRET, digest
from tests.unit.modules import run_module as call

pytestmark = pytest.mark.slow

PROJECT = "/opt/gpuwright/project"
Try = Callable[..., Any]


@pytest.fixture
def tried(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Tries requirements with the index `own`, by the uv that the index `tools` has; the host's pip is configured for that one."""
    sha256 = digest(site.uv("tools"))
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nindex-url = {site.url('tools')}\n")
    monkeypatch.setattr(pip_settings, "FILES", (str(conf),))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)

    def run(*requirements: str, constraints: tuple[str, ...] = (), **options: Any) -> Any:
        asked = {
            "environment": PROJECT,
            "python": platform.python_version(),
            "requirements": list(requirements),
            "constraints": list(constraints),
            "urls": [site.url("own")],
            **options,
        }
        named = {"version": UV, "sha256": [sha256]}
        answer = call(module, questions=[], tags={}, trials=[asked], uv=named)
        (found,) = answer["trials"]
        assert not list((tmp_path / "temporary").iterdir())
        return found

    return run


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the uv of the tests as it lies there: to fetch it is most of what a try takes."""
    program = str(Path(sys.executable).with_name("uv"))
    monkeypatch.setattr(uv, "fetch_program", lambda *_: program)


def test_what_can_be_met_is_told_as_that(site: Site, tried: Try) -> None:
    site.wheel("own", "jax", "1.0", "numpy>=2")
    site.wheel("own", "numpy", "2.0")
    site.wheel("own", "numpy", "1.0")
    assert tried("jax==1.0", "numpy") == {"environment": PROJECT, "problem": None, "clash": None, "sources": []}


@pytest.mark.usefixtures("quick")
def test_a_clash_is_told_in_uvs_words(site: Site, tried: Try) -> None:
    site.wheel("own", "jax", "1.0", "numpy>=2")
    site.wheel("own", "numpy", "2.0")
    site.wheel("own", "numpy", "1.0")
    site.wheel("own", "jax", "0.9")
    found = tried("jax==1.0", "numpy<2")
    assert found["problem"] is None
    assert found["clash"].startswith("Because jax>=1.0 depends on numpy>=2 and you require jax==1.0")
    assert "\n" not in found["clash"]
    assert tried("jax==1.0", constraints=("numpy<2",))["clash"]


@pytest.mark.usefixtures("quick")
def test_all_that_has_a_source_alone_is_told_with_what_needs_it(site: Site, tried: Try) -> None:
    site.wheel("own", "hydra", "1.0", "antlr4==4.9.*", "other")
    site.source("own", "antlr4", "4.9.3")
    site.source("own", "other", "1.0")
    found = tried("hydra==1.0")
    assert (found["problem"], found["clash"]) == (None, None)
    assert sorted(each["name"] for each in found["sources"]) == ["antlr4", "other"]
    assert all("hydra==1.0" in each["words"] and "hint" not in each["words"] for each in found["sources"])
    assert not site.canary.exists()
    assert tried("hydra==1.0", built=["antlr4"])["sources"] == [
        row for row in found["sources"] if row["name"] == "other"
    ]


@pytest.mark.usefixtures("quick")
def test_what_pip_takes_and_uv_does_not_is_no_clash(site: Site, tried: Try) -> None:
    site.wheel("own", "instrument", "1.0", "api==2.0b1")
    site.wheel("own", "api", "2.0b1")
    site.wheel("own", "api", "1.0")
    assert tried("instrument==1.0")["clash"] is None


@pytest.mark.usefixtures("quick")
def test_the_indexes_count_together(site: Site, tried: Try) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("tools", "filelock", "3.0")
    assert "filelock was not found" in tried("torch==1.0")["clash"]
    assert tried("torch==1.0", urls=[site.url("own"), ""])["clash"] is None


@pytest.mark.parametrize("where", ["nobody", "no uv"])
def test_what_cannot_be_tried_is_told_with_the_reason_and_is_no_clash(site: Site, tried: Try, where: str) -> None:
    urls = {"nobody": "http://127.0.0.1:9/simple/", "no uv": site.url("own")}
    site.wheel("own", "torch", "1.0")
    reasons = {"nobody": "127.0.0.1:9/simple", "no uv": "has no wheel of uv"}
    found = tried("torch==1.0", tools=urls[where])
    assert reasons[where] in found["problem"]
    assert (found["clash"], found["sources"]) == (None, [])
    if where == "nobody":
        found = tried("torch==1.0", urls=[urls[where]])
        assert "uv said: error:" in found["problem"]
        assert found["clash"] is None


@pytest.mark.usefixtures("quick")
def test_no_more_time_is_taken_than_there_is(site: Site, tried: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    site.wheel("own", "torch", "1.0")
    site.held.append("torch")
    monkeypatch.setattr(trial, "_SECONDS", 3.0)
    found = tried("torch==1.0")
    site.held.clear()
    assert found["problem"]
    assert found["clash"] is None


@pytest.mark.usefixtures("quick")
def test_no_password_is_in_an_answer(site: Site, tried: Try) -> None:
    address = site.url("guarded").replace("://", f"://reader:{SECRET}@")
    found = tried("torch==1.0", urls=[address])
    assert SECRET not in str(found)
    assert "guarded" in str(found)
