"""A project's own requirements: how its file is read, what of it is a wish, and where it cannot be met beside the frameworks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.resolve import required
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.wish import project_of, projects
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.wish import Requirement
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock, machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

Resolve = Callable[..., Any]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """written(requirements="torch==2.7.1", more="pandas"): the files, and the path of the first one."""

    def write(**files: str) -> str:
        names = {"pyproject": "pyproject.toml"}
        paths = [tmp_path / names.get(name, f"{name}.txt") for name in files]
        for path, text in zip(paths, files.values(), strict=True):
            path.write_text(text)
        return str(paths[0])

    return write


@pytest.fixture
def wanted(written: Callable[..., str]) -> Callable[..., str]:
    """The same as --want takes it."""
    return lambda **files: f"project={written(**files)}"


def rows(answer: Any) -> list[Any]:
    assert answer["ok"], answer
    found: list[Any] = answer["stack"]["frameworks"]
    return found


# reading -----------------------------------------------------------------------------------------------


def test_what_a_file_names_is_followed_with_its_lines(written: Any) -> None:
    path = written(
        requirements="# mine\ntorch==2.7.1\nnumpy \\\n  <2.3  # old\n-r more.txt\n-c limits.txt\n",
        more="pandas>=2\n",
        limits="scipy<2\n",
    )
    found = projects.read(path, None)
    assert found.environment == "project"
    assert [(each.text.replace(" ", ""), each.origin) for each in found.requirements] == [
        ("torch==2.7.1", "requirements.txt:2"),
        ("numpy<2.3", "requirements.txt:3"),
        ("pandas>=2", "more.txt:1"),
    ]
    assert found.constraints == (Requirement("scipy<2", "limits.txt:1"),)


@pytest.mark.parametrize(
    ("line", "told", "instead"),
    [
        ("--index-url https://index.example/simple", "the option --index-url", "gpuwright_mirrors"),
        ("--extra-index-url=https://index.example", "the option --extra-index-url", "gpuwright_mirrors"),
        ("numpy==2.2 --hash=sha256:00", "the option --hash", "--hashes FILE"),
        ("-e .", "the option -e", "make a wheel of it"),
        ("--pre", "the option --pre", "remove the option"),
        ("./wheels/mine.whl", "expected a requirement such as", "make a wheel of it"),
        ("mine @ https://files.example/mine.whl", "mine comes from an address", "make a wheel of it"),
        (
            "mine @ https://files.example/cu1/mine-2.6.0%2Bcu1-cp312-cp312-linux_x86_64.whl",
            "from an address",
            "mine==2.6.0+cu1",
        ),
        ("git+https://example.org/mine", "expected a requirement such as", "make a wheel of it"),
        ("{{ lookup('env', 'HOME') }}", "found the template", ""),
    ],
)
def test_what_chooses_where_wheels_come_from_is_refused_by_its_line(
    written: Any, line: str, told: str, instead: str
) -> None:
    with pytest.raises(BadInput, match=r"^requirements\.txt:2: ") as refused:
        projects.read(written(requirements=f"numpy\n{line}\n"), None)
    assert told in refused.value.message
    assert instead in " ".join(refused.value.suggestions)


def test_files_that_name_each_other_are_refused(written: Any) -> None:
    with pytest.raises(BadInput, match=r"names requirements\.txt, which names it in turn"):
        projects.read(written(requirements="-r more.txt\n", more="-r requirements.txt\n"), None)


PYPROJECT = """\
[project]
name = "mine"
requires-python = ">=3.12"
dependencies = [
  "torch>=2.6",
  "pandas",
]
"""


def test_a_pyproject_says_its_dependencies_and_its_python(written: Any) -> None:
    found = projects.read(written(pyproject=PYPROJECT), "research")
    assert found.environment == "research"
    assert [each.origin for each in found.requirements] == ["pyproject.toml:5", "pyproject.toml:6"]
    assert found.python == Requirement(">=3.12", "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.poetry]\n", "no table \\[project\\]"),
        ('[project]\ndynamic = ["dependencies"]\n', "are dynamic"),
        ("[project]\ndependencies = 3\n", "has to be a list, found int"),
        ("[project\n", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
        ('[project]\nrequires-python = "new"\n', "has to be a range"),
        ('[project]\ndependencies = ["numpy\\n--pre"]\n', "--pre|one line"),
    ],
)
def test_a_pyproject_without_plain_dependencies_is_refused(written: Any, text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        projects.read(written(pyproject=text), None)


def test_a_directory_stands_for_the_one_file_in_it(written: Any, tmp_path: Path) -> None:
    written(requirements="pandas\n")
    assert projects.read(str(tmp_path), None).requirements[0].text == "pandas"
    written(pyproject=PYPROJECT)
    with pytest.raises(BadInput, match=r"has pyproject\.toml and requirements\.txt"):
        projects.read(str(tmp_path), None)


# where it says that wheels come from -------------------------------------------------------------------


def pytorch_index(rules: Any) -> str:
    return next(str(row["url"]) for row in rules["upstreams"]["rows"] if row["name"] == "pytorch")


@pytest.mark.parametrize(
    ("line", "variant"),
    [
        ("--extra-index-url {}/cu124", "cu124"),
        ("--index-url={}/cu124/", "cu124"),
        ("-i {}/cpu", "cpu"),
        ("-f {}/torch_stable.html", None),
        ("--find-links {}/cu118/torch_stable.html", "cu118"),
        ("--extra-index-url {0}/cu118\n--extra-index-url {0}/cu124", None),
    ],
)
def test_the_index_of_pytorch_in_a_file_says_which_variant_is_wished(
    written: Any, wanted: Any, rules: Any, line: str, variant: str | None
) -> None:
    text = f"torch==2.6.0\n{line.format(pytorch_index(rules))}\npandas\n"
    found = projects.read(written(requirements=text), None)
    assert [(each.text, each.variant) for each in found.requirements] == [
        ("torch==2.6.0", variant),
        ("pandas", variant),
    ]
    assert Wish.from_wants([wanted(requirements=text)]).frameworks[0].variant == variant
    again = projects.read(written(requirements=text), None)
    Path(written(requirements=text)).with_name("a.json").write_text(json.dumps(projects.document(again)))
    kept = projects.read(str(Path(written(requirements=text)).with_name("a.json")), None)
    assert [each.variant for each in kept.requirements] == [variant, variant]


def test_a_variant_that_a_line_names_itself_goes_before_that_of_the_index(wanted: Any, rules: Any) -> None:
    text = f"--extra-index-url {pytorch_index(rules)}/cu118\ntorch==2.6.0+cu124\n"
    assert Wish.from_wants([wanted(requirements=text)]).frameworks[0].variant == "cu124"


UV = """\
[project]
name = "mine"
dependencies = ["torch==2.7.1", "pandas", "mine-too"]
[project.optional-dependencies]
gpu = []
[tool.uv]
constraint-dependencies = ["numpy<2.3"]
[tool.uv.sources]
{sources}
[[tool.uv.index]]
name = "of-torch"
url = "{index}/cu118"
explicit = true
[[tool.uv.index]]
name = "ours"
url = "https://me:secret@index.example/simple"
{explicit}
"""


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ('torch = { index = "of-torch" }', [("torch==2.7.1", "cu118")]),
        ('torch = [{ index = "of-torch", extra = "gpu" }]', [("torch==2.7.1", None)]),
        (
            """torch = [{ index = "ours", marker = "os_name != 'posix'" }, { index = "of-torch", marker = "sys_platform == 'linux'" }]""",
            [("torch==2.7.1", "cu118")],
        ),
        (
            'torch = [{ index = "of-torch", marker = "platform_machine == \'x86_64\'" }]',
            [
                ('torch==2.7.1 ; platform_machine == "x86_64"', "cu118"),
                ('torch==2.7.1 ; platform_machine == "aarch64"', None),
            ],
        ),
    ],
)
def test_the_sources_of_uv_that_name_pytorchs_index_are_followed(
    written: Any, rules: Any, sources: str, expected: list[tuple[str, str | None]]
) -> None:
    text = UV.format(sources=sources, index=pytorch_index(rules), explicit="explicit = true")
    found = projects.read(written(pyproject=text), None)
    assert [(each.text, each.variant) for each in found.requirements if each.text.startswith("torch")] == expected
    assert [each.text for each in found.constraints] == ["numpy<2.3"]
    assert found.notes == ()


def test_an_extra_that_is_asked_for_brings_its_source(written: Any, rules: Any) -> None:
    sources = 'torch = [{ index = "of-torch", extra = "gpu" }]'
    path = written(pyproject=UV.format(sources=sources, index=pytorch_index(rules), explicit="explicit = true"))
    assert projects.read(f"{path}[gpu]", None).requirements[0].variant == "cu118"


def test_an_index_that_is_not_followed_is_told_without_its_password(resolve: Resolve, written: Any, rules: Any) -> None:
    text = UV.format(sources='mine-too = { index = "ours" }', index=pytorch_index(rules), explicit="")
    found = projects.read(written(pyproject=text), None)
    assert [each.origin for each in found.notes] == ["pyproject.toml", "pyproject.toml:3"]
    assert "index.example" in found.notes[0].text
    assert "takes mine-too from" in found.notes[1].text
    assert "secret" not in str(found.notes)
    answer = resolve("RTX 4090", "ubuntu-24.04", f"project={written(pyproject=text)}")
    assert [row["text"] for row in answer["warnings"] if row["rule"] == "frameworks.project-source"] == [
        each.text for each in found.notes
    ]


@pytest.mark.parametrize("source", ["git = 'https://example.org/mine'", "path = '../mine'", "workspace = true"])
def test_a_requirement_that_uv_takes_from_no_index_is_refused_by_its_line(
    written: Any, rules: Any, source: str
) -> None:
    text = UV.format(sources=f"mine-too = {{ {source} }}", index=pytorch_index(rules), explicit="explicit = true")
    with pytest.raises(BadInput, match=r"pyproject\.toml:3: \[tool\.uv\.sources\] takes mine-too from"):
        projects.read(written(pyproject=text), None)


@pytest.mark.parametrize(
    ("name", "told", "instead"),
    [
        ("environment.yml", "a file of conda", "is torch==2.6.0+cu124 there"),
        ("conda.yaml", "a file of conda", "requirements.txt"),
        ("Pipfile", "a file of pipenv", "pipenv requirements"),
        ("poetry.lock", "a lock of poetry", "poetry export"),
        ("uv.lock", "is a lock", "pyproject.toml"),
        ("setup.py", "to nobody who does not run it", "requirements.txt"),
    ],
)
@pytest.mark.parametrize("as_directory", [True, False])
def test_a_file_of_another_program_is_named_with_which_is_served(
    tmp_path: Path, name: str, told: str, instead: str, *, as_directory: bool
) -> None:
    (tmp_path / name).write_text("name: demo\n")
    with pytest.raises(BadInput, match=re.escape(name)) as refused:
        projects.read(str(tmp_path if as_directory else tmp_path / name), None)
    assert told in refused.value.message
    assert "served are requirements.txt and pyproject.toml" in refused.value.message
    assert instead in " ".join(refused.value.suggestions)


# again -------------------------------------------------------------------------------------------------


def test_what_was_read_is_read_again_from_its_document(written: Any, tmp_path: Path) -> None:
    whole = projects.read(written(requirements="torch==2.7.1\npandas\n-c limits.txt\n", limits="scipy<2\n"), "x")
    copy = tmp_path / "project-0.json"
    copy.write_text(json.dumps(projects.document(whole)))
    again = projects.read(str(copy), "x")
    assert [each.text for each in again.requirements] == ["torch==2.7.1", "pandas"]
    assert [each.text for each in again.constraints] == ["scipy<2"]


def test_a_second_project_in_one_environment_is_refused(wanted: Any) -> None:
    want = wanted(requirements="torch\n")
    with pytest.raises(BadInput, match="the environment project has a project already") as refused:
        Wish.from_wants([want, want])
    assert refused.value.suggestions[0].startswith("project@research=")
    assert len(Wish.from_wants([want, want.replace("project=", "project@vision=")]).projects) == 2


# extras and groups -------------------------------------------------------------------------------------

PARTS = """\
[project]
name = "My.Project"
dependencies = ["torch>=2.6"]

[project.optional-dependencies]
cli = ["rich>=13"]
Web_UI = ["flask"]
all = ["my-project[cli,web-ui]", "pandas"]

[dependency-groups]
Test = ["pytest >=8", {include-group = "lint"}]
lint = ["ruff"]
broken = [{include-group = "round"}]
round = [{include-group = "broken"}]
"""


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ("", []),
        ("[cli]", ["rich>=13"]),
        ("[cli,web.ui]", ["rich>=13", "flask"]),
        ("[all]", ["pandas", "rich>=13", "flask"]),
        (":lint", ["ruff"]),
        (":test", ["pytest>=8", "ruff"]),
        (":test, lint", ["pytest>=8", "ruff", "ruff"]),
        ("[cli]:lint", ["rich>=13", "ruff"]),
    ],
)
def test_its_extras_and_groups_are_asked_for_behind_its_path(written: Any, asked: str, more: list[str]) -> None:
    path = written(pyproject=PARTS)
    found = projects.read(f"{path}{asked}", None)
    assert [each.text for each in found.requirements] == ["torch>=2.6", *more]


@pytest.mark.parametrize(
    ("asked", "told", "instead"),
    [
        ("[docs]", "has no extra docs, it has all, cli, web-ui", "[web-ui]"),
        (":docs", "has no group docs, it has broken, lint, round, test", ":test"),
        (":broken", "the dependency group broken cannot be read: Cyclic", ""),
    ],
)
def test_one_that_is_not_there_is_refused_with_those_that_are(
    written: Any, asked: str, told: str, instead: str
) -> None:
    path = written(pyproject=PARTS)
    with pytest.raises(BadInput, match=re.escape(told)) as refused:
        projects.read(f"{path}{asked}", None)
    assert not instead or f"project={path}{instead}" in refused.value.suggestions


def test_a_directory_with_extras_or_groups_stands_for_its_pyproject(written: Any, tmp_path: Path) -> None:
    written(pyproject=PARTS, requirements="numpy\n")
    assert [each.text for each in projects.read(f"{tmp_path}[cli]", None).requirements] == ["torch>=2.6", "rich>=13"]
    with pytest.raises(BadInput, match=r"requirements\.txt has no extras and no groups"):
        projects.read(f"{tmp_path}/requirements.txt[cli]", None)


def test_a_file_of_groups_alone_is_read_where_one_is_asked_for(written: Any) -> None:
    path = written(pyproject='[dependency-groups]\ngpu = ["torch"]\n')
    assert [(each.text, each.origin) for each in projects.read(f"{path}:gpu", None).requirements] == [
        ("torch", "pyproject.toml:2")
    ]
    for without in ("", "[cli]", "[cli]:gpu"):
        with pytest.raises(BadInput, match="no table"):
            projects.read(f"{path}{without}", None)


def test_extras_that_only_a_build_tool_can_tell_are_refused_where_one_is_asked_for(written: Any) -> None:
    path = written(pyproject='[project]\nname = "mine"\ndynamic = ["optional-dependencies"]\n')
    assert projects.read(path, None).requirements == ()
    with pytest.raises(BadInput, match="its optional-dependencies are dynamic"):
        projects.read(f"{path}[cli]", None)


def test_what_looks_like_extras_is_a_path_where_that_is_there(tmp_path: Path) -> None:
    odd = tmp_path / "a[cli]:test"
    odd.write_text("numpy\n")
    assert [each.text for each in projects.read(str(odd), None).requirements] == ["numpy"]


def test_an_older_packaging_is_told_to_whoever_asks_for_groups(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.dependency_groups", None)
    path = written(pyproject=PARTS)
    assert len(projects.read(f"{path}[cli]", None).requirements) == 2
    with pytest.raises(BadInput, match=r"packaging 26\.1 or newer") as refused:
        projects.read(f"{path}:test", None)
    assert refused.value.suggestions == ["pip install 'packaging>=26.1'"]


def test_extras_and_groups_are_wished_in_every_way_that_a_project_is(written: Any) -> None:
    path = f"{written(pyproject=PARTS)}[cli,web-ui]:lint"
    wished = Wish.from_wants([f"project={path}"])
    assert [each.text for each in wished.projects[0].requirements] == ["rich>=13", "flask", "ruff"]
    assert Wish.from_variables({"frameworks_project": path}) == wished
    assert Wish.from_variables({"gpuwright_want": f"project={path}, cuda"}).projects == wished.projects
    (named,) = Wish.from_variables({"frameworks_environments": {"vision": [f"project={path}"]}}).projects
    assert named.environment == "vision"
    read = project_of(f"project@vision={path}")
    assert read
    assert [each.text for each in read.requirements] == ["torch>=2.6", "rich>=13", "flask", "ruff"]


# wishing -----------------------------------------------------------------------------------------------


def test_its_frameworks_are_wished_and_the_rest_is_beside_them(wanted: Any) -> None:
    wish = Wish.from_wants([wanted(requirements="torch==2.7.1\npandas>=2\n")])
    (framework,) = wish.frameworks
    assert (framework.key, framework.specifier, framework.origin) == (
        "pytorch@project",
        "==2.7.1",
        "requirements.txt:1",
    )
    assert [each.text for each in wish.projects[0].requirements] == ["pandas>=2"]


def test_a_release_that_never_existed_is_refused_by_its_line(wanted: Any) -> None:
    with pytest.raises(BadInput, match=r"torch==2\.7\.9 \(requirements\.txt:1\)"):
        Wish.from_wants([wanted(requirements="torch==2.7.9\n")])


def test_a_wish_beside_the_file_holds_together_with_it(written: Any) -> None:
    path = written(requirements="torch>=2.5\n")
    for wants in (["pytorch@project<2.8", f"project={path}"], [f"project={path}", "pytorch@project<2.8"]):
        (framework,) = Wish.from_wants(wants).frameworks
        assert sorted(framework.specifier.split(",")) == ["<2.8", ">=2.5"]


def test_a_project_alone_is_a_wish_and_brings_no_defaults(written: Any) -> None:
    wish = Wish.from_wants([f"project={written(requirements='pandas')}"])
    assert wish.with_defaults() == wish
    assert wish.with_roles(["frameworks"]) == wish


def test_what_is_wanted_on_the_command_line_takes_the_place_of_a_variables_project(written: Any) -> None:
    variables = {"frameworks_project": written(requirements="torch==2.7.1\npandas\n")}
    wish = Wish.from_variables({**variables, "gpuwright_want": ["jax"]})
    assert ([each.key for each in wish.frameworks], wish.projects) == (["jax"], ())


def test_the_variable_is_read_as_the_want_is(written: Any) -> None:
    path = written(requirements="torch==2.7.1\npandas\n")
    assert Wish.from_variables({"frameworks_project": path}) == Wish.from_wants([f"project={path}"])
    assert Wish.from_variables({"frameworks_project": "auto"}).projects == ()


# resolving ---------------------------------------------------------------------------------------------


def test_the_wheels_of_its_framework_fit_the_card(resolve: Resolve, written: Any) -> None:
    path = written(requirements="torch==2.7.1\ntorchvision\npandas>=2\n-c limits.txt\n", limits="scipy<2\n")
    (row,) = rows(resolve("H100", "ubuntu-24.04", f"project={path}"))
    assert row["requirements"][0] == "torch==2.7.1+cu128"
    assert row["path"] == "/opt/gpuwright/project"
    assert row["others"] == ["pandas>=2"]
    assert "scipy<2" in row["constraints"]


def test_a_release_is_chosen_that_fits_what_the_file_pins_beside_it(resolve: Resolve, written: Any) -> None:
    path = written(requirements="torchvision==0.21.0\n")
    (row,) = rows(resolve("H100", "ubuntu-24.04", "pytorch@project", f"project={path}"))
    assert row["version"] == "2.6.0"


def test_two_lines_that_do_not_go_together_are_named_with_the_nearest_that_do(resolve: Resolve, wanted: Any) -> None:
    answer = resolve("H100", "ubuntu-24.04", wanted(requirements="torch==2.7.1\ntorchvision==0.21.0\n"))
    (conflict,) = answer["conflicts"]
    assert conflict["rule"] == "frameworks.together"
    assert "requirements.txt:2 asks for torchvision==0.21.0" in conflict["text"]
    assert "torch==2.6.0 in requirements.txt:1" in conflict["remedy"]


def test_two_frameworks_that_pin_one_library_are_told_by_it_and_not_by_a_build_for_another_cuda(
    resolve: Resolve, wanted: Any
) -> None:
    lines = wanted(requirements="tensorflow[and-cuda]==2.15.1\ntorch==2.4.1\n")
    told = resolve("A100", "ubuntu-22.04", lines, "python=3.10")["conflicts"]
    assert "tensorflow 2.15.1 asks for nvidia-cudnn-cu12==8.9.4.25" in told[0]["text"]
    assert "goes with nvidia-cudnn-cu12==9.1.0.70" in told[0]["text"]
    assert not any("is built with CUDA 11" in each["text"] for each in told)


def test_where_a_release_has_no_build_for_the_cuda_beside_it_that_is_the_reason(resolve: Resolve, wanted: Any) -> None:
    lines = wanted(requirements="tensorflow[and-cuda]==2.15.1\ntorch==2.0.1+cu118\n")
    told = resolve("A100", "ubuntu-22.04", lines, "python=3.10")["conflicts"]
    assert "torch 2.0.1+cu118 is built with CUDA 11, tensorflow 2.15.1 with CUDA 12" in told[0]["text"]


def test_a_pin_without_code_for_the_card_names_the_nearest_release_and_the_line(resolve: Resolve, wanted: Any) -> None:
    answer = resolve("RTX 5090", "ubuntu-24.04", wanted(requirements="torch==2.3.1\n"))
    (conflict,) = answer["conflicts"]
    assert "no code for the GeForce RTX 5090" in conflict["text"]
    assert conflict["remedy"].startswith("ask for torch==2.7.0 in requirements.txt:1")


FROZEN = """\
filelock==3.16.1
nvidia-cublas-cu12==12.4.5.8
nvidia-cudnn-cu12==9.1.0.70
nvidia-nccl-cu12==2.21.5
torch==2.6.0
torchvision==0.21.0
triton==3.2.0
"""


def test_what_pip_froze_is_dropped_by_its_lines_and_a_newer_release_asked_for(
    resolve: Resolve, written: Any, wanted: Any
) -> None:
    (conflict,) = resolve("RTX 5090", "ubuntu-24.04", wanted(requirements=FROZEN))["conflicts"]
    first = re.match(
        r"drop the pins of what comes with PyTorch \(requirements\.txt:([0-9,-]+)\) and ask for (\S+) in requirements\.txt:(\d+)",
        conflict["remedy"],
    )
    assert first is not None, conflict["remedy"]
    assert first[1] == "2-4,6-7"
    lines = FROZEN.splitlines()
    lines[int(first[3]) - 1] = first[2]
    dropped = {2, 3, 4, 6, 7}
    mended = "\n".join(line for number, line in enumerate(lines, start=1) if number not in dropped)
    (row,) = rows(resolve("RTX 5090", "ubuntu-24.04", wanted(requirements=mended)))
    assert row["requirements"][0].startswith(f"{first[2]}+")
    assert row["others"] == ["filelock==3.16.1"]


def test_what_pip_froze_stays_where_its_release_serves_the_card(resolve: Resolve, wanted: Any) -> None:
    (row,) = rows(resolve("RTX 4090", "ubuntu-24.04", wanted(requirements=FROZEN)))
    assert row["requirements"][0] == "torch==2.6.0+cu124"
    assert "triton==3.2.0" in row["others"]


def test_what_the_index_has_no_wheels_of_is_warned_of_by_its_line(resolve: Resolve, wanted: Any) -> None:
    text = "torch==2.6.0\nflash_attn==2.7.4.post1\nbitsandbytes\ndeepspeed\nmamba-ssm; platform_machine == 'aarch64'\n"
    answer = resolve("RTX 4090", "ubuntu-24.04", wanted(requirements=text))
    told = [row["text"] for row in answer["warnings"] if row["rule"] == "frameworks.without-wheels"]
    assert [each.partition(" asks for ")[0] for each in told] == ["requirements.txt:2", "requirements.txt:4"]
    assert "wheels of its makers: github Dao-AILab/flash-attention" in told[0]
    assert "into /opt/gpuwright/project" in told[0]


@pytest.mark.parametrize(
    ("torch", "line", "made", "instead"),
    [
        (
            "2.2.0",
            "causal-conv1d==1.1.1",
            "for 1.1.1 are for torch >=1.12,<2.2, not for 2.2.0",
            "they have 1.5.0.post8",
        ),
        ("2.2.0", "mamba-ssm==1.1.1", "for 1.1.1 are for torch >=1.12,<2.2, not for 2.2.0", "they have 2.2.6.post2"),
        ("2.2.0", "causal-conv1d==1.1.3", None, None),
        ("2.4.0", "flash-attn==2.5.8", "for 2.5.8 are for torch >=1.12,<2.4, not for 2.4.0", "they have 2.8.3.post1"),
        ("2.11.0", "mamba-ssm==2.3.2.post1", "are for torch >=2.6,<2.11, not for 2.11.0", None),
        ("2.14.1", "causal-conv1d==1.7.0", None, None),
        ("2.2.0", "causal-conv1d", None, None),
    ],
)
def test_builds_of_a_source_for_another_torch_are_told_with_those_for_this_one(
    resolve: Resolve, wanted: Any, torch: str, line: str, made: str | None, instead: str | None
) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", wanted(requirements=f"torch=={torch}\n{line}\n"))
    (told,) = [row["text"] for row in answer["warnings"] if row["rule"] == "frameworks.without-wheels"]
    said, _words, remedy = told.partition(" What to do: ")
    assert ("the wheels of its makers for" in said) == (made is not None)
    assert made is None or made in said
    assert ("they have" in remedy) == (instead is not None)
    assert instead is None or remedy.endswith(instead)


@pytest.mark.parametrize(
    "text", ["torch==2.3.0+cpu\n", "--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.3.0\n"]
)
def test_a_file_that_takes_the_build_for_the_processor_is_told_on_a_machine_with_cards(
    resolve: Resolve, wanted: Any, text: str
) -> None:
    def told(word: Any) -> list[str]:
        answer = resolve("RTX 3090", "ubuntu-22.04", word)
        assert answer["ok"]
        return [row["text"] for row in answer["warnings"] if row["rule"] == "frameworks.processor"]

    (warning,) = told(wanted(requirements=text))
    assert "with which no card computes" in warning
    assert warning.endswith("out of requirements.txt: then a build for the card is chosen (cu118, cu121)")
    assert told("torch==2.3.0+cpu") == told(wanted(requirements="torch==2.3.0\n")) == []


def test_another_index_may_have_what_the_public_one_has_no_wheels_of(resolve: Resolve, wanted: Any) -> None:
    wish = {"gpuwright_mirrors": {"pypi": "https://index.example/simple"}}
    answer = resolve("RTX 4090", "ubuntu-24.04", wanted(requirements="torch==2.6.0\nflash-attn\n"), wish=wish)
    assert not [row for row in answer["warnings"] if row["rule"] == "frameworks.without-wheels"]


def test_a_project_without_a_framework_says_how_one_is_named(resolve: Resolve, written: Any) -> None:
    path = written(requirements="pandas\n")
    (conflict,) = resolve("H100", "ubuntu-24.04", f"project={path}")["conflicts"]
    assert conflict["rule"] == "frameworks.project"
    assert conflict["remedy"].endswith("--want pytorch@project")
    (row,) = rows(resolve("H100", "ubuntu-24.04", "lmdb@project", f"project={path}"))
    assert row["others"] == ["pandas"]


def test_markers_hold_for_the_python_and_the_architecture_of_the_node(resolve: Resolve, written: Any) -> None:
    path = written(
        requirements="torch==2.7.1; python_version < '3.12'\ntorch==2.8.0; python_version >= '3.12'\n"
        "uvloop; platform_machine == 'x86_64'\npywin32; sys_platform == 'win32'\n"
    )
    (newer,) = rows(resolve("H100", "ubuntu-24.04", f"project={path}"))
    assert (newer["version"], newer["others"]) == ("2.8.0", ["uvloop"])
    (older,) = rows(resolve("H100", "debian-12", f"project={path}"))
    assert older["version"] == "2.7.1"
    (other,) = rows(resolve("GH200", "ubuntu-24.04", f"project={path}", arch="aarch64"))
    assert "others" not in other


def test_a_python_that_the_project_does_not_run_on_is_refused(resolve: Resolve, written: Any) -> None:
    path = written(pyproject=PYPROJECT)
    (conflict,) = resolve("H100", "debian-12", f"project={path}")["conflicts"]
    assert conflict["rule"] == "frameworks.project-python"
    assert "pyproject.toml asks for Python >=3.12, this machine has 3.11" in conflict["text"]
    assert rows(resolve("H100", "ubuntu-24.04", f"project={path}"))


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("numpy==2.1", "numpy<2", False),
        ("numpy==1.26", "numpy<2", True),
        ("torch==2.7.1", "torch==2.7.1+cu128", True),
        ("torch==2.7.1+cu126", "torch==2.7.1+cu128", False),
        ("torch>=2.7", "torch==2.6.0+cu124", False),
        ("numpy>=1", "numpy<3", True),
    ],
)
def test_requirements_agree_as_far_as_one_is_a_pin(one: str, other: str, together: bool) -> None:
    assert required.agree(one, other) is together
    assert required.agree(other, one) is together


# locking -----------------------------------------------------------------------------------------------


def test_a_lock_holds_what_a_project_requires(rules: Any, written: Any) -> None:
    path = written(requirements="torch==2.7.1\npandas>=2\n")
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", {}, rules)
    wish = Wish.from_wants([f"project={path}"], rules)
    document: Any = lock.check(lock.make(where, wish, rules, wants=[], version="1"))
    (row,) = document["stack"]["frameworks"]
    assert (row["environment"], row["others"]) == ("project", ["pandas>=2"])
    held = lock.as_wish(document, {})
    assert [each.key for each in held.frameworks] == ["pytorch@project"]
    assert [each.text for each in held.projects[0].requirements] == ["pandas>=2"]
    row["others"] = ["pandas --index-url https://evil.example"]
    with pytest.raises(BadInput, match="--index-url"):
        lock.check(document)
