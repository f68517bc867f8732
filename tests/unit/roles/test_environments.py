"""What is done with a framework's environment: made, gone on with, refused, or left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import environments
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from tests.unit.plan.nodes import bare

PATH = "/opt/gpuwright/pytorch"
PIN = "torch==2.14.1+cu130"
FITS = {"torch": "2.14.1+cu130", "pip": "25.1"}
COMPAT = "/usr/local/cuda-13.0/compat"
PIP = {"rc": 0, "out": f"pip 25.1 from {PATH}/lib/python3.12/site-packages/pip (python 3.12)"}


def wished(**changes: Any) -> frameworks.Wished:
    asked: Any = {
        "path": PATH, "interpreter": "3.12", "requirements": [PIN], "constraints": ["numpy<3"], "index_url": None,
        "loader_path": None, "rebuild": False, "restores": False, "user": False,
        **changes,
    }  # fmt: skip
    return asked


def seen(**changes: Any) -> Any:
    """An environment that is right, as a look at it says."""
    return {
        "made": True, "place": "directory", "others": 0, "unfinished": False, "packages": FITS, "loader_path": None, "loader_file": False,
        "as_locked": None, "pip": PIP, "interpreter": "/usr/bin/python3.12", "maker": {"rc": 0, "out": ""}, "fits": None, "kept": None,
        "debris": False, **changes,
    }  # fmt: skip


def nothing(**changes: Any) -> Any:
    """A place in which nothing is."""
    return seen(
        **{"made": False, "place": "nothing", "packages": {}, "pip": {"rc": None, "out": "No such file"}, **changes}
    )


def kept(**changes: Any) -> Any:
    """A build that was in use before, and is right."""
    return {
        "made": True, "unfinished": False, "packages": FITS, "loader_path": None, "as_locked": None, "pip": PIP, **changes,
    }  # fmt: skip


def test_an_environment_that_is_right_is_left_alone() -> None:
    found = frameworks.look(wished(), seen())
    assert found == {"action": "none", "unmet": [], "command": [], "lacks_maker": False, "keep": True, "tidy": False}


def test_one_that_is_not_there_is_built_for_everyone_under_its_own_name() -> None:
    found = frameworks.look(wished(), nothing())
    assert found["action"] == "build"
    assert found["command"] == [
        "/bin/sh", "-c", 'umask 022; exec "$@"', "sh", "/usr/bin/python3.12", "-I", "-m", "venv", "--prompt", "pytorch",
    ]  # fmt: skip
    assert (found["lacks_maker"], found["keep"]) == (False, False)


def test_a_user_needs_no_package_for_a_python_without_ensurepip() -> None:
    lacking = nothing(maker={"rc": 1, "out": "No module named 'ensurepip'"})
    for_all = frameworks.look(wished(), lacking)
    assert for_all["lacks_maker"]
    assert "--without-pip" not in for_all["command"]
    found = frameworks.look(wished(user=True), lacking)
    assert not found["lacks_maker"]
    assert found["command"][-1] == "--without-pip"
    assert "--without-pip" not in frameworks.look(wished(user=True), nothing())["command"]


WORKS = [
    {"packages": {}},
    {"packages": {**FITS, "torch": "2.13.0"}},
    {"packages": {**FITS, "numpy": "3.1"}},
    {"packages": {**FITS, "nvidia-dali-cuda120": "1.50"}},
    {"pip": {"rc": 0, "out": "pip 25.1 from /x (python 3.11)"}},
    {"as_locked": False},
]


@pytest.mark.parametrize(
    "changes", WORKS, ids=["lacks", "older", "breaks", "left behind", "another Python", "other wheels"]
)
def test_one_that_is_not_what_is_wished_is_built_anew_and_kept_for_it_works(changes: Mapping[str, Any]) -> None:
    found = frameworks.look(wished(), seen(**changes))
    assert (found["action"], found["keep"]) == ("build", True)
    assert found["command"]


@pytest.mark.parametrize(
    "changes",
    [
        {"unfinished": True},
        {"pip": {"rc": 1, "out": "No module named pip"}},
        {"pip": {"rc": None, "out": "No such file"}},
        {"made": False, "unfinished": True, "others": 3},
    ],
    ids=["cut off", "no pip", "no Python", "cut off early"],
)
def test_one_that_does_not_work_is_built_anew_and_not_kept(changes: Mapping[str, Any]) -> None:
    found = frameworks.look(wished(), seen(**changes))
    assert (found["action"], found["keep"]) == ("build", False)


def test_one_that_the_plan_condemns_is_built_anew_and_not_kept() -> None:
    found = frameworks.look(wished(rebuild=True), seen())
    assert (found["action"], found["keep"]) == ("build", False)


def test_one_that_is_made_of_the_wheels_of_the_lock_stays() -> None:
    assert frameworks.look(wished(), seen(as_locked=True))["action"] == "none"


OLD = {"packages": {**FITS, "torch": "2.13.0"}}


def test_the_build_that_was_in_use_before_is_returned_to_where_it_is_what_is_wished() -> None:
    found = frameworks.look(wished(), seen(**OLD, place="build", kept=kept()))
    assert (found["action"], found["command"], found["keep"]) == ("return", [], True)
    assert frameworks.look(wished(rebuild=True), seen(kept=kept()))["keep"] is False


@pytest.mark.parametrize(
    "changes", [*WORKS, {"unfinished": True}, {"loader_path": COMPAT}, {"pip": {"rc": None, "out": ""}}]
)
def test_one_that_is_not_what_is_wished_is_not_returned_to(changes: Mapping[str, Any]) -> None:
    assert frameworks.look(wished(), seen(**OLD, kept=kept(**changes)))["action"] == "build"


def test_a_rollback_returns_to_what_is_kept_though_nothing_is_unmet() -> None:
    assert frameworks.look(wished(), seen(kept=kept()))["action"] == "none"
    assert frameworks.look(wished(restores=True), seen(kept=kept()))["action"] == "return"
    for broken in (None, kept(made=False), kept(packages={})):
        with pytest.raises(StepRefused, match="to be kept and whole"):
            frameworks.look(wished(restores=True), seen(kept=broken))


def test_what_a_cut_left_is_taken_away_by_itself_where_nothing_is_built() -> None:
    assert frameworks.look(wished(), seen(debris=True))["tidy"]
    assert not frameworks.look(wished(), nothing(debris=True))["tidy"]


def test_a_link_of_ours_that_leads_nowhere_is_filled() -> None:
    assert frameworks.look(wished(), nothing(place="build"))["action"] == "build"


@pytest.mark.parametrize("rc", [1, None])
def test_the_package_that_makes_environments_is_only_asked_for_where_one_is_made(rc: int | None) -> None:
    lacking = {"maker": {"rc": rc, "out": "No module named ensurepip"}}
    assert frameworks.look(wished(), nothing(**lacking))["lacks_maker"]
    assert not frameworks.look(wished(), seen(**lacking))["lacks_maker"]


@pytest.mark.parametrize("asked", ["pip", "maker"])
def test_a_python_that_dies_is_no_answer(asked: str) -> None:
    with pytest.raises(StepRefused, match=r"^Expected .*Found: killed\. What to do: "):
        frameworks.look(wished(), nothing(**{asked: {"rc": -11, "out": "killed"}}))


@pytest.mark.parametrize("place", [{"others": 2}, {"place": "other"}])
def test_what_is_somebody_elses_is_refused(place: Mapping[str, Any]) -> None:
    with pytest.raises(
        StepRefused,
        match=r"^Expected .* Found \d other files in it\. What to do: move them away, or set frameworks_path",
    ):
        frameworks.look(wished(), nothing(**{"place": "directory", **place}))


def test_an_empty_directory_is_filled() -> None:
    assert frameworks.look(wished(), nothing(place="directory"))["action"] == "build"


@pytest.mark.parametrize(
    ("wish", "changes", "action"),
    [
        (COMPAT, {"loader_path": COMPAT, "loader_file": True}, "none"),
        (COMPAT, {}, "activate"),
        (None, {"loader_path": COMPAT, "loader_file": True}, "activate"),
        (None, {"loader_path": COMPAT, "loader_file": True, "unfinished": True}, "build"),
    ],
    ids=["as wished", "not yet", "no more", "not in the new build"],
)
def test_its_activation_is_set_or_taken_back(wish: str | None, changes: Mapping[str, Any], action: str) -> None:
    assert frameworks.look(wished(loader_path=wish), seen(**changes))["action"] == action


def test_a_thing_that_is_no_requirement_is_refused() -> None:
    with pytest.raises(StepRefused, match="not a requirement"):
        frameworks.look(wished(requirements=["not a requirement at all"]), seen())


# --- after pip said that it is done ---------------------------------------------------------------------------------------


def test_what_pip_brought_is_accepted_where_it_is_all_and_fits() -> None:
    fits = {"rc": 0, "out": "No broken requirements found."}
    assert frameworks.installed(wished(), seen(unfinished=True, fits=fits))["action"] == "swap"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"packages": {}},
            rf"Expected {PATH} to have {PIN.replace('+', '.')}\. Found after pip said it was done, .*index of the host",
        ),
        (
            {"loader_path": COMPAT},
            rf"Expected {PATH}/gpuwright-cuda-compat.sh to put nothing first\. Found {COMPAT}\. What to do",
        ),
        (
            {"fits": {"rc": 1, "out": "torch requires numpy"}},
            r"Expected .* to fit each other\. Found.*torch requires numpy\. What to do",
        ),
    ],
)
def test_what_pip_left_out_is_refused(changes: Mapping[str, Any], words: str) -> None:
    with pytest.raises(StepRefused, match=words):
        frameworks.installed(wished(), seen(**changes))


def test_the_index_that_lacks_it_is_named() -> None:
    with pytest.raises(StepRefused, match=r"the index https://index\.example has these versions"):
        frameworks.installed(wished(index_url="https://index.example"), seen(packages={}))


# --- with the plan --------------------------------------------------------------------------------------------------------


def begin(facts: Any = None, rebuild: tuple[str, ...] = (), **changes: Any) -> Any:
    framework: Any = {
        "name": "pytorch", "version": "2.14.1", "path": PATH, "interpreter": "3.12", "requirements": [PIN],
        "constraints": ["numpy<3", "nvidia-cudnn-cu13==9.24"], "loader_path": None, **changes,
    }  # fmt: skip
    plan: Any = {"packages": {"python3.12-venv": "3.12.3-1"}, "install": [], "rebuild": list(rebuild), "builds": {}}
    context = Context(facts=facts or bare(), stack={"frameworks": [framework]})
    begun: Any = frameworks.COMPONENT.steps["begin"](context, plan)
    return begun["environments"][PATH]


def test_the_files_of_an_environment_are_data() -> None:
    work = begin()
    assert work["owned"] == [PATH, "/opt/gpuwright/.pytorch"]
    assert work["files"][0] == {
        "path": "gpuwright-constraints.txt", "content": "numpy<3\nnvidia-cudnn-cu13==9.24\n", "mode": "0644",
    }  # fmt: skip
    assert [file["path"] for file in work["files"][1:]] == [
        "lib/python3.12/site-packages/_gpuwright_stays.py",
        "lib/python3.12/site-packages/_gpuwright_stays.pth",
    ]
    assert work["activation"] == {"files": [], "lines": [], "absent": ["gpuwright-cuda-compat.sh"]}
    assert work["remedy"].startswith(f"move {PATH} away, ")
    assert work["time"] == bare()["time"]
    assert begin(constraints=None)["files"][0]["content"] == "\n"


def test_the_libraries_of_cuda_compat_are_put_first_by_a_file_that_the_activation_reads() -> None:
    activation = begin(loader_path=COMPAT)["activation"]
    (file,) = activation["files"]
    assert (file["path"], file["mode"]) == ("gpuwright-cuda-compat.sh", "0644")
    assert file["content"].endswith(f'\nexport LD_LIBRARY_PATH="{COMPAT}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n')
    loader = f"{PATH}/gpuwright-cuda-compat.sh"
    assert activation["lines"] == [{"path": "bin/activate", "line": f'[ ! -r "{loader}" ] || . "{loader}"'}]
    assert activation["absent"] == []


def test_the_package_that_makes_environments_is_the_familys() -> None:
    assert begin()["maker"]["specs"] == ["python3.12-venv=3.12.3-1"]
    facts = bare()
    facts["os"]["family"], facts["packages"]["manager"] = "redhat", "dnf"
    assert begin(facts)["maker"]["names"] == ["python3.12"]


def test_what_the_plan_rebuilds_is_told() -> None:
    assert (begin()["rebuild"], begin(rebuild=(PATH,))["rebuild"]) == (False, True)


# --- the look itself ------------------------------------------------------------------------------------------------------


class Programs:
    """Every Python answers, but for those whose path has a word in it."""

    def __init__(self, **answers: Result) -> None:
        self.answers = answers
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str], **_options: Any) -> Result:
        self.calls.append(argv)
        return next(
            (result for word, result in self.answers.items() if word in argv), Result(0, "yes\n", "", 0.1, None)
        )


def looked(path: Path, programs: Programs | None = None, **changes: Any) -> environments.Environment:
    options: Any = {"path": str(path), "interpreter": "3.99", "wheels": [], "installed": False, **changes}
    found = environments.look(options, run=programs or Programs())
    # The module's answer passes the gate as it is.
    answer = {"changed": False, "environment": found}
    assert json.loads(gate.admit("environment_info", json.dumps(answer))) == answer
    return found


def make(path: Path) -> Path:
    packages = path / "lib/python3.12/site-packages/torch-2.14.1+cu130.dist-info"
    packages.mkdir(parents=True)
    (path / "pyvenv.cfg").write_text("version = 3.12.3\n")
    return path


def test_a_place_with_nothing_in_it(tmp_path: Path) -> None:
    found = looked(tmp_path / "pytorch")
    assert (found["made"], found["place"], found["others"], found["unfinished"]) == (False, "nothing", 0, False)
    assert found["interpreter"] == "/usr/bin/python3.99"
    assert (found["as_locked"], found["fits"]) == (None, None)


def test_a_place_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "pytorch/.hidden").mkdir(parents=True)
    (tmp_path / "pytorch/file").touch()
    assert looked(tmp_path / "pytorch")["others"] == 2
    (tmp_path / "link").symlink_to(tmp_path / "pytorch")
    assert looked(tmp_path / "link")["place"] == "other"


def test_an_environment_with_the_mark_of_a_cut_beside_it(tmp_path: Path) -> None:
    make(tmp_path / "pytorch")
    (tmp_path / ".pytorch.unfinished").touch()
    found = looked(tmp_path / "pytorch")
    assert (found["made"], found["unfinished"], found["others"]) == (True, True, 0)
    assert found["packages"] == {"torch": "2.14.1+cu130"}


def test_its_activation_and_its_wheels(tmp_path: Path) -> None:
    path = make(tmp_path / "pytorch")
    (path / environments.LOADER_FILE).write_text(f'export LD_LIBRARY_PATH="{COMPAT}${{LD_LIBRARY_PATH}}"\n')
    wheel = {"name": "torch", "version": "2.14.1+cu130", "sha256": ["0" * 64]}
    found = looked(path, wheels=[wheel])
    assert (found["loader_file"], found["loader_path"], found["as_locked"]) == (True, COMPAT, False)


def test_what_its_programs_say(tmp_path: Path) -> None:
    gone = Result(None, "", "", 0.0, "could not be run", errno=2)
    late = Result(None, "", "", 600.0, "did not end")
    programs = Programs(**{"--version": gone, "check": Result(1, "torch requires numpy\n", "", 0.1, None), "-c": late})
    found = looked(make(tmp_path / "pytorch"), programs, installed=True)
    assert found["pip"] == {"rc": None, "out": "could not be run"}
    assert found["maker"] == {"rc": -1, "out": "did not end"}
    assert found["fits"] == {"rc": 1, "out": "torch requires numpy"}
    assert programs.calls[0] == [f"{tmp_path}/pytorch/bin/python", "-I", "-m", "pip", "--isolated", "--version"]
