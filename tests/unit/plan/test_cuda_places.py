"""The component cuda: how people come to a toolkit, what is taken back, and what is left alone."""

from __future__ import annotations

import subprocess
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe import cuda as observed
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import places
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

OLD, NEW = "/usr/local/cuda-13.0", "/usr/local/cuda-13.1"
MODULES = "/etc/lmod/modules"


def node(*, path: str | None = NEW, **seen: Any) -> Any:
    """A host with two toolkits, of which the alternatives system has taken one, and Lmod."""
    facts = nodes.provisioned()
    facts["packages"]["installed"] |= {"cuda-toolkit-13-1": "13.1.1-1", "cuda-nvcc-13-1": "13.1.80-1"}
    facts["cuda"]["toolkits"] = [{"path": OLD, "version": "13.0.3"}, {"path": NEW, "version": "13.1.1"}]
    facts["cuda"]["default"] |= {"path": path, "registered": [OLD, NEW], **seen}
    facts["cuda"]["modulefiles"]["directories"] = [MODULES]
    return facts


def made(facts: Any, **variables: Any) -> Any:
    wish = Wish.from_variables({"cuda_versions": ["13.0", "13.1"], **variables})
    draft = make_draft(facts, wish, load_rules(), Request(host="node", today=date(2026, 11, 20), only=("cuda",)))
    return finish(draft, None) if isinstance(draft, Draft) else draft


def reasons(facts: Any, **variables: Any) -> list[str]:
    return [change["reason"] for change in made(facts, **variables)["changes"] if change["component"] == "cuda"]


def work(facts: Any, **variables: Any) -> Any:
    return made(facts, **variables)["work"]["cuda"]


# /usr/local/cuda ------------------------------------------------------------------------------------------------------


def test_the_newest_toolkit_is_the_default_and_nothing_is_done_where_it_is() -> None:
    assert reasons(node()) == []
    (reason,) = reasons(node(path=OLD))
    assert reason == f"/usr/local/cuda is {OLD}, wished is {NEW}"


def test_another_default_is_chosen_by_the_alternatives_system() -> None:
    (reason,) = reasons(node(), cuda_default="13.0")
    assert reason == f"/usr/local/cuda is {NEW}, wished is {OLD}"
    link = work(node(), cuda_default="13.0")["link"]
    assert link["path"] == OLD
    assert link["set"] == ["update-alternatives", "--set", "cuda", OLD]
    assert link["register"] == []
    assert link["before"] == {
        "path": paths.CUDA_BEFORE,
        "content": f'{{"manual": false, "path": "{NEW}"}}\n',
        "mode": "0644",
    }


def test_a_toolkit_whose_registration_was_taken_out_is_registered_again_and_one_that_comes_is_not() -> None:
    register = work(node(registered=[NEW]))["link"]["register"]
    assert register == [["update-alternatives", "--install", "/usr/local/cuda", "cuda", OLD, "130"]]
    comes = node(registered=[NEW])
    del comes["packages"]["installed"]["cuda-toolkit-13-0"]
    assert work(comes)["link"]["register"] == []


def test_the_toolkit_of_a_plain_link_is_registered_so_that_it_can_come_back() -> None:
    facts = node(kind="link", path="/usr/local/cuda-11.8")
    facts["cuda"]["toolkits"].append({"path": "/usr/local/cuda-11.8", "version": "11.8.0"})
    link = work(facts)["link"]
    assert [command[-2:] for command in link["register"]] == [["/usr/local/cuda-11.8", "118"]]
    assert '"manual": true, "path": "/usr/local/cuda-11.8"' in link["before"]["content"]


def test_a_toolkit_that_is_missing_is_told_once() -> None:
    facts = node(path=OLD)
    del facts["packages"]["installed"]["cuda-toolkit-13-1"]
    assert [reason for reason in reasons(facts) if "/usr/local/cuda is" in reason] == []


def test_a_default_that_is_kept_is_left_alone_and_so_is_path() -> None:
    facts = node(path=OLD)
    assert reasons(facts, cuda_default="keep") == []
    found = work(facts, cuda_default="keep")
    assert found["link"] is None
    assert places.PROFILE in found["absent"]
    assert places.PROFILE not in [file["path"] for file in found["files"]]


def test_what_is_no_link_is_never_replaced() -> None:
    context = Context(facts=node(kind="other", path=None), stack=made(node())["stack"])
    with pytest.raises(StepRefused, match="mv /usr/local/cuda"):
        cuda.refuse(context, made(node()))
    cuda.refuse(
        Context(facts=node(kind="other", path=None), stack=made(node(), cuda_default="keep")["stack"]), made(node())
    )


# PATH -----------------------------------------------------------------------------------------------------------------


def profile() -> str:
    (text,) = [file["content"] for file in work(node())["files"] if file["path"] == places.PROFILE]
    return str(text)


def test_a_shell_finds_the_programs_once_and_no_library_path_is_set(tmp_path: Any) -> None:
    (tmp_path / "cuda/bin").mkdir(parents=True)
    script = profile().replace("/usr/local/cuda", str(tmp_path / "cuda"))
    twice = f'{script}{script}printf "%s|%s" "$PATH" "$LD_LIBRARY_PATH"'
    run = subprocess.run(
        ["sh", "-eu", "-c", twice],
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == f"{tmp_path}/cuda/bin:/usr/bin:/bin|x"


def test_a_shell_without_a_toolkit_keeps_its_path(tmp_path: Any) -> None:
    script = profile().replace("/usr/local/cuda", str(tmp_path / "none"))
    run = subprocess.run(
        ["sh", "-eu", "-c", f'{script}printf %s "$PATH"'],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "/usr/bin:/bin"


# modulefiles ----------------------------------------------------------------------------------------------------------


def test_each_toolkit_has_a_modulefile_where_the_module_system_looks() -> None:
    assert "modulefiles of the toolkits are missing" in reasons(node(), cuda_modulefiles=True)
    files = {file["path"]: file["content"] for file in work(node(), cuda_modulefiles=True)["files"]}
    assert {f"{MODULES}/cuda/13.0", f"{MODULES}/cuda/13.1"} < set(files)
    text = files[f"{MODULES}/cuda/13.0"]
    assert text.startswith("#%Module1.0\n")
    assert f"prepend-path PATH {OLD}/bin\n" in text
    assert "LD_LIBRARY_PATH" not in text


def test_modulefiles_without_a_module_system_are_refused() -> None:
    facts = node()
    facts["cuda"]["modulefiles"]["directories"] = []
    (conflict,) = made(facts, cuda_modulefiles=True)["conflicts"]
    assert conflict["rule"] == "cuda.modulefiles"
    assert "environment-modules" in conflict["remedy"]


def test_modulefiles_that_are_no_longer_wished_go_and_those_of_others_stay() -> None:
    facts = node()
    ours, theirs = f"{MODULES}/cuda/13.0", f"{MODULES}/cuda/11.8"
    facts["cuda"]["modulefiles"]["files"] = [{"path": ours, "ours": True}, {"path": theirs, "ours": False}]
    assert reasons(facts) == ["modulefiles are no longer wished"]
    assert work(facts)["absent"] == [ours]


def test_a_modulefile_of_somebody_else_is_never_overwritten() -> None:
    facts = node()
    facts["cuda"]["modulefiles"]["files"] = [{"path": f"{MODULES}/cuda/13.0", "ours": False}]
    plan = made(facts, cuda_modulefiles=True)
    with pytest.raises(StepRefused, match=r"cuda/13\.0"):
        cuda.refuse(Context(facts=facts, stack=plan["stack"]), plan)


def test_all_that_is_written_may_be_removed_again() -> None:
    facts = node(before={"path": None, "manual": False})
    facts["cuda"]["modulefiles"]["directories"] = [path.removesuffix("/cuda") for path in places.MODULE_DIRECTORIES]
    named = made(facts, cuda_modulefiles=True)["manages"]["cuda"]["files"]
    assert {places.PROFILE, paths.CUDA_BEFORE, *(f"{path}/13.1" for path in places.MODULE_DIRECTORIES)} <= set(named)
    assert removal.foreign(nodes.bare(history={"files": named})) == []
    assert set(places.MODULE_DIRECTORIES) == {f"{path}/cuda" for path in observed._MODULE_SYSTEMS.values()}


# taken back -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "leads"), [(OLD, True), ("/usr/local/cuda-12.4", False)])
def test_a_default_that_somebody_led_elsewhere_since_stays(path: str, leads: bool) -> None:
    facts = node(path=path, manual=True, before={"manual": True, "path": NEW})
    facts["seals"]["cuda"] = {"state": "good", "stack": [{"version": "13.0", "path": OLD, "default": True}]}
    assert bool(places.former(facts)) is leads


@pytest.mark.parametrize(
    ("seen", "command"),
    [
        # Never led elsewhere: whoever told the alternatives system did.
        ({"manual": True, "before": None}, []),
        ({"manual": True, "before": {"manual": False, "path": NEW}}, ["--auto", "cuda"]),
        ({"manual": False, "before": {"manual": False, "path": NEW}}, []),
        ({"manual": True, "before": {"manual": True, "path": NEW}}, ["--set", "cuda", NEW]),
        ({"manual": True, "before": {"manual": True, "path": OLD}}, []),
        # Its toolkit went in the meantime.
        ({"manual": True, "before": {"manual": True, "path": "/usr/local/cuda-11.8"}}, []),
    ],
)
def test_the_default_leads_again_where_it_led_before(seen: Any, command: list[str]) -> None:
    facts = node(**{"path": OLD, **seen})
    assert cuda.COMPONENT.removes(facts, [])["cuda_default"] == (["update-alternatives", *command] if command else [])
    assert bool(places.take_back(facts)) == bool(command)
