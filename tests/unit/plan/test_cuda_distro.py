"""The component cuda: the toolkit of the distribution's own archive, which is in /usr and leads nobody elsewhere."""

from __future__ import annotations

from datetime import date
from typing import Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

VERSION = "12.4.131~12.4.1-2"
FILE = "/etc/apt/sources.list.d/gpuwright-distro-non-free.sources"
A100 = {**nodes.H100, "device": "20b5"}


def node(*, there: bool = False) -> Any:
    """A host with A100s on Debian 13; ``there``: with what an apply brings."""
    facts = nodes.provisioned()
    facts["packages"]["installed"] |= {"nvidia-cuda-toolkit": VERSION} if there else {}
    facts["cuda"]["toolkits"] = [{"path": "/usr/lib/cuda", "version": "12.4.1"}] if there else []
    if there:
        archive = next(each for each in facts["packages"]["sources"] if "main" in each["components"])
        facts["packages"]["sources"].append({**archive, "file": FILE, "components": ["contrib", "non-free"]})
    return facts


def made(facts: Any, **variables: Any) -> Any:
    wish = Wish.from_variables({"cuda_source": "distro", **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("cuda",)))
    return finish(draft, None) if isinstance(draft, Draft) else draft


def changes(facts: Any, **variables: Any) -> list[tuple[str, str]]:
    found = made(facts, **variables)["changes"]
    return [(change["action"], change["reason"]) for change in found if change["component"] == "cuda"]


def test_it_comes_from_the_archive_and_no_link_is_touched() -> None:
    assert ("install", "the toolkit's packages are missing: nvidia-cuda-toolkit") in changes(node())
    work = made(node())["work"]["cuda"]
    (call,) = work["packages"]
    assert call["names"] == ["nvidia-cuda-toolkit"]
    assert [each["program"] for each in work["compilers"]] == ["/usr/bin/nvcc"]
    assert [each["release"] for each in work["compilers"]] == ["12.4"]
    assert (work["link"], work["files"], work["runfiles"]) == (None, [], [])
    assert work["repositories"] == ["distro-non-free"]


def test_a_second_run_finds_nothing_and_the_seal_has_its_source() -> None:
    assert changes(node(there=True)) == []
    managed = made(node(there=True))["manages"]["cuda"]
    assert managed["packages"] == ["nvidia-cuda-toolkit"]


def test_another_release_is_refused_before_anything_is_changed() -> None:
    plan = made(node(), cuda_versions=["12.8"])
    assert plan["changes"] == []
    assert {row["rule"] for row in plan["conflicts"]} == {"cuda.distro-version"}
