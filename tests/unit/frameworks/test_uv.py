"""What uv installs where a node's own Python index has it: the same wheels as pip, by the same settings; else pip does, and says why."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import installed_files
from ansible_collections.gpuwright.node.plugins.module_utils.packages import meter, uv, wheels
from ansible_collections.gpuwright.node.plugins.modules import wheels as module
from tests.unit.frameworks.conftest import UV, Proxy, Site
from tests.unit.frameworks.test_wheels import SECRET, digest, locked
from tests.unit.modules import run_module as call

# The real uv runs, and the real pip brings it.
pytestmark = pytest.mark.slow

Frozen = Callable[[], dict[str, str]]
Install = Callable[..., Any]


@pytest.fixture
def install(site: Site, environment: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Calls the module with the uv that the index `tools` has; the host's pip is configured for that one."""
    sha256 = digest(site.uv("tools"))
    configured(environment, site.url("tools"))
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)

    def run(*requirements: str, **options: Any) -> Any:
        named = {"version": UV, "sha256": [sha256], "directory": ".uv"}
        given = {"environment": str(environment), "requirements": list(requirements), "uv": named, **options}
        return call(module, **given)

    return run


def configured(environment: Path, index: str, *lines: str) -> None:
    """Writes the configuration of the host's pip."""
    (environment / "pip.conf").write_text("\n".join(["[global]", f"index-url = {index}", *lines, ""]))


def by(answer: Any, builder: str) -> str:
    """Holds an answer to be a success of a builder; why it was not uv."""
    assert not answer.get("failed"), answer
    assert answer["builder"] == builder, answer
    return str(answer["declined"])


# --- the same wheels ----------------------------------------------------------------------------------------------------


def test_uv_installs_what_is_asked_for_with_all_that_it_needs(
    site: Site, environment: Path, frozen: Frozen, install: Install
) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock<4"), site.wheel("own", "filelock", "3.0")
    site.wheel("own", "filelock", "4.0")
    answer = install("torch==1.0", index_url=site.url("own"))
    assert by(answer, "uv") == ""
    assert answer["changed"]
    assert set(answer["installed"]) == {"torch==1.0", "filelock==3.0"}
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "own"}
    assert wheels.pins((environment / wheels.RECORD).read_text()) == [
        wheels.Wheel("filelock", "3.0", (digest(filelock),)),
        wheels.Wheel("torch", "1.0", (digest(torch),)),
    ]


@pytest.mark.parametrize("reader", ["pip", "uv"])
def test_both_read_the_record_of_an_environment_and_make_the_same_of_it(
    site: Site, environment: Path, frozen: Frozen, install: Install, reader: str
) -> None:
    site.wheel("own", "torch", "1.0", "filelock<4")
    site.wheel("own", "filelock", "3.0")
    by(install("torch==1.0", index_url=site.url("own")), "uv")
    record = Path(shutil.copy(environment / wheels.RECORD, environment.parent))
    site.wheel("own", "filelock", "3.1")
    made = frozen()
    python = str(environment / "bin/python")
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "--yes", "torch", "filelock"], check=True)
    sync: list[str | Path] = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "sync",
        "--no-config",
        "--require-hashes",
        "--python",
        python,
    ]
    again: dict[str, list[str | Path]] = {
        "pip": [python, "-m", "pip", "install", "--no-deps", "--require-hashes", "--index-url", site.url("own"), "-r"],
        "uv": [*sync, "--cache-dir", environment.parent / "cache", "--default-index", site.url("own")],
    }
    subprocess.run([*again[reader], record], check=True)
    assert frozen() == made
    record.write_text(re.sub("sha256:.", "sha256:_", record.read_text()).replace("_", "0"))
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "--yes", "torch", "filelock"], check=True)
    assert subprocess.run([*again[reader], record], check=False).returncode != 0
    assert frozen() == {}


def test_what_it_leaves_is_whole_compiled_and_for_its_owner_to_write_alone(
    site: Site, environment: Path, install: Install
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    previous = os.umask(0o077)
    try:
        by(install("torch==1.0", index_url=site.url("own")), "uv")
    finally:
        os.umask(previous)
    (packages,) = environment.glob("lib/python3.*/site-packages")
    assert list(packages.glob("__pycache__/torch.*.pyc"))
    assert not (environment / ".lock").exists()
    assert installed_files.damage(Host(full=True), str(packages)) == []
    for path in [*packages.glob("torch*"), *packages.glob("torch*/*"), *packages.glob("__pycache__/*")]:
        assert path.stat().st_mode & 0o077 in (0o044, 0o055), path
    assert ownership.offence_below(str(environment), owners=(0, os.geteuid())) is None
    pip = [str(environment / "bin/python"), "-I", "-m", "pip", "--isolated"]
    assert subprocess.run([*pip, "check"], check=False).returncode == 0
    left = subprocess.run([*pip, "uninstall", "--yes", "torch"], check=False)
    assert left.returncode == 0
    assert not list(packages.glob("torch*"))


def test_a_second_run_leaves_the_environment_as_it_is(site: Site, environment: Path, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    install("torch==1.0", index_url=site.url("own"))
    again = install("torch==1.0", index_url=site.url("own"))
    assert by(again, "pip") == "something is installed already (torch)"
    assert (again["changed"], again["installed"]) == (False, [])


def test_each_package_comes_from_the_index_that_it_belongs_to(site: Site, frozen: Frozen, install: Install) -> None:
    site.wheel("own", "torch", "1.0+cu1", "filelock")
    site.wheel("own", "torchvision", "2.0+cu1", "torch", "numpy")
    site.wheel("mirror", "torch", "1.0+cu1", build="9")
    site.wheel("mirror", "torchvision", "2.0+zz9")
    site.wheel("mirror", "filelock", "3.0")
    site.wheel("mirror", "numpy", "2.0")
    site.wheel("own", "numpy", "9.0")
    site.files["mirror"]["uv"] = site.files["tools"]["uv"]
    site.uv("mirror")
    answer = install(
        "torch==1.0+cu1", "torchvision==2.0", index_url=site.url("own"), dependencies_url=site.url("mirror")
    )
    assert by(answer, "uv") == ""
    assert frozen() == {
        "torch==1.0+cu1": "own",
        "torchvision==2.0+cu1": "own",
        "filelock==3.0": "mirror",
        "numpy==2.0": "mirror",
    }


def test_constraints_hold_and_extras_are_asked_for(site: Site, frozen: Frozen, install: Install) -> None:
    site.wheel("own", "jax", "1.0", "numpy", 'plugin; extra == "cuda"')
    site.wheel("mirror", "numpy", "1.0")
    site.wheel("mirror", "numpy", "2.0")
    site.wheel("mirror", "plugin", "1.0")
    site.uv("mirror")
    options = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    answer = install("jax[cuda]==1.0", constraints=["numpy<2"], **options)
    assert by(answer, "uv") == ""
    assert set(frozen()) == {"jax==1.0", "numpy==1.0", "plugin==1.0"}


def test_without_an_index_the_configuration_of_the_hosts_pip_counts(
    site: Site, environment: Path, frozen: Frozen, install: Install
) -> None:
    site.wheel("site", "jax", "1.0")
    configured(environment, site.url("tools"), f"extra-index-url = {site.url('site')}", "retries = 0", "no-input = yes")
    assert by(install("jax==1.0"), "uv") == ""
    assert frozen() == {"jax==1.0": "site"}


def test_a_lock_brings_exactly_its_wheels(site: Site, frozen: Frozen, environment: Path, install: Install) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock", "more"), site.wheel("mirror", "filelock", "3.0")
    site.wheel("own", "more", "1.0")
    site.uv("mirror")
    options = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    lock = locked(torch_1_0=torch, filelock_3_0=filelock)
    lock[0]["sha256"].append("0" * 64)
    answer = install("torch==1.0", wheels=lock, **options)
    assert by(answer, "uv") == ""
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "mirror"}
    assert install("torch==1.0", wheels=lock, check=True, **options)["as_locked"]


def test_where_the_index_has_another_file_first_than_the_lock_pip_looks_for_it(
    site: Site, frozen: Frozen, install: Install
) -> None:
    torch = site.wheel("own", "torch", "1.0")
    site.wheel("mirror", "torch", "1.0", build="9")
    site.uv("mirror")
    options = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    answer = install("torch==1.0", wheels=locked(torch_1_0=torch), **options)
    assert by(answer, "pip") == "the index has another file first than the lock of torch"
    assert frozen() == {"torch==1.0": "own"}


def test_a_file_that_is_not_the_indexs_is_refused(site: Site, frozen: Frozen, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    (site.folder / "own/torch/torch-1.0-py3-none-any.whl").write_bytes(b"something else")
    answer = install("torch==1.0", index_url=site.url("own"))
    assert answer["msg"].startswith(f"Expected the files that {site.url('own')} names by their SHA-256. Found another")
    assert frozen() == {}


def test_no_code_of_a_source_runs(site: Site, frozen: Frozen, install: Install) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.source("own", "filelock", "3.0")
    answer = install("torch==1.0", index_url=site.url("own"))
    assert "Found only sources of filelock" in answer["msg"]
    assert frozen() == {}
    assert not site.canary.exists()


# --- uv itself ----------------------------------------------------------------------------------------------------------


def test_where_the_index_has_no_uv_pip_installs_and_says_why(site: Site, environment: Path, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    configured(environment, site.url("own"))
    answer = install("torch==1.0", index_url=site.url("own"))
    why = by(answer, "pip")
    assert why.startswith(f"uv {UV} could not be had from the index of the host: ERROR: ")
    assert f"No matching distribution found for uv=={UV}" in why
    assert "as_locked" not in answer


def test_another_file_of_that_name_is_not_run(site: Site, environment: Path, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    site.wheel("other", "uv", UV)
    configured(environment, site.url("other"))
    why = by(install("torch==1.0", index_url=site.url("own")), "pip")
    assert why == f"the index of the host has another file as uv {UV} than the one that is known by its SHA-256"


def test_it_is_brought_once_and_its_place_is_its_owners_alone(site: Site, environment: Path, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    aside = environment.parent / ".uv"
    (aside / "an earlier boot").mkdir(parents=True)
    by(install("torch==1.0", index_url=site.url("own")), "uv")
    assert aside.stat().st_mode & 0o777 == 0o700
    assert len(list(aside.iterdir())) == 1
    subprocess.run([environment / "bin/python", "-m", "pip", "uninstall", "-q", "--yes", "torch"], check=True)
    before = len(site.asked)
    by(install("torch==1.0", index_url=site.url("own")), "uv")
    assert not [path for path in site.asked[before:] if "uv" in path or path.endswith(".whl")]


def test_it_is_not_brought_to_where_another_may_write(site: Site, environment: Path, install: Install) -> None:
    site.wheel("own", "torch", "1.0")
    theirs = environment.parent / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    named = {"version": UV, "sha256": ["0" * 64], "directory": str(theirs / ".uv")}
    why = by(install("torch==1.0", index_url=site.url("own"), uv=named), "pip")
    assert why == f"its place is not root's alone: {theirs}, which everybody may write"
    assert not list(theirs.iterdir())


# --- by the settings of the host's pip ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no-binary = torch", "pip's configuration has no-binary, which uv does not know"),
        ("extra-index-url = file:///opt/index", "uv reads no index at file:///opt/index"),
        ("extra-index-url = http://mirror.example/simple", "pip takes nothing from http://mirror.example/simple"),
    ],
)
def test_what_uv_does_not_do_as_pip_does_is_left_to_pip(
    site: Site, environment: Path, install: Install, line: str, why: str
) -> None:
    site.wheel("tools", "jax", "1.0")
    site.source("tools", "torch", "1.0")
    configured(environment, site.url("tools"), "retries = 0", line)
    assert by(install("jax==1.0"), "pip").startswith(why)


def test_what_has_to_be_built_is_left_to_pip(site: Site, install: Install) -> None:
    site.wheel("own", "torch", "1.0", "lit")
    site.source("own", "lit", "15.0")
    answer = install("torch==1.0", index_url=site.url("own"), from_source=["lit"])
    assert by(answer, "pip") == "a source is built, which is left to pip"


def test_variables_and_files_of_a_user_do_not_count(
    site: Site, tmp_path: Path, frozen: Frozen, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    site.wheel("theirs", "filelock", "99.0")
    (tmp_path / "code").mkdir()
    conf = f'[[index]]\nurl = "{site.url("theirs")}"\n'
    for place in ("code/uv.toml", "home/.config/uv/uv.toml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(conf)
    (tmp_path / "code/sitecustomize.py").write_text(f"open({str(site.canary)!r}, 'w')\n")
    for name, value in {
        "UV_INDEX": site.url("theirs"),
        "UV_EXTRA_INDEX_URL": site.url("theirs"),
        "UV_CONFIG_FILE": str(tmp_path / "code/uv.toml"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_NO_BINARY": "1",
        "XDG_CONFIG_HOME": str(tmp_path / "home/.config"),
        "PYTHONPATH": str(tmp_path / "code"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "code")
    assert by(install("torch==1.0", index_url=site.url("own")), "uv") == ""
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "own"}
    assert not [path for path in site.asked if path.startswith("/theirs")]
    assert not (tmp_path / "cache").exists()
    assert not site.canary.exists()


def test_it_goes_by_the_proxy_that_the_node_names_for_the_index(
    site: Site, environment: Path, frozen: Frozen, install: Install, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.wheel("own", "torch", "1.0")
    monkeypatch.setenv("http_proxy", f"http://reader:{quote(SECRET, safe='')}@{proxy.place}")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    configured(environment, site.url("tools"), "trusted-host = index.example", "retries = 0")
    answer = install("torch==1.0", index_url="http://index.example/own/")
    assert by(answer, "uv") == ""
    assert frozen() == {"torch==1.0": "own"}
    assert ("http://index.example/own/torch/torch-1.0-py3-none-any.whl", True) in proxy.asked


def test_the_proxy_of_pips_configuration_goes_before(
    site: Site, environment: Path, frozen: Frozen, install: Install, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.wheel("own", "torch", "1.0")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "index.example")
    site.uv("own")
    way = f"proxy = http://reader:{quote(SECRET, safe='')}@{proxy.place}"
    configured(environment, "http://index.example/own/", "trusted-host = index.example", "retries = 0", way)
    answer = install("torch==1.0")
    assert by(answer, "uv") == ""
    assert frozen() == {"torch==1.0": "own"}
    assert {good for _address, good in proxy.asked} == {True}


@pytest.mark.parametrize("password", [SECRET, "wrong+Pl4nted"])
def test_a_password_of_an_index_is_in_no_argument_no_variable_no_message_and_no_file_that_stays(
    site: Site, environment: Path, frozen: Frozen, install: Install, password: str
) -> None:
    site.wheel("guarded/own", "torch", "1.0", "filelock", says="own")
    site.wheel("mirror", "filelock", "3.0")
    sha256 = digest(site.uv("mirror"))
    seen: list[tuple[list[str], dict[str, str]]] = []
    modes: set[int] = set()

    def watch(argv: list[str], timeout: float, env: dict[str, str]) -> run_module.Result:
        seen.append((argv, dict(env)))
        if "--config-file" in argv:
            conf = Path(argv[argv.index("--config-file") + 1])
            modes.update({conf.stat().st_mode & 0o777, conf.parent.stat().st_mode & 0o777})
        return run_module.run(argv, timeout, env)

    empty: dict[str, Any] = {name: [] for name in ("constraints", "wheels", "from_source")}
    options: Any = {
        "environment": str(environment), "requirements": ["torch==1.0"], "record": True, "pip": None, **empty,
        "index_url": site.url("guarded/own"), "dependencies_url": site.url("mirror"),
        "credentials": [{"machine": site.url("guarded").rstrip("/"), "login": "reader", "password": password}],
        "uv": {"version": UV, "sha256": [sha256], "directory": str(environment.parent / ".uv")},
    }  # fmt: skip
    if password == SECRET:
        answer = json.dumps(wheels.install(options, watch, uv.install))
        assert json.loads(answer)["builder"] == "uv", answer
        assert frozen() == {"torch==1.0": "own", "filelock==3.0": "mirror"}
    else:
        with pytest.raises(wheels.PipError) as caught:
            wheels.install(options, watch, uv.install)
        answer = str(caught.value)
        assert "401" in answer
        assert frozen() == {}
    assert modes == {0o600, 0o700}
    kept = [path for path in (environment.parent / ".uv").rglob("*") if path.is_file() and path.name != "uv"]
    told = answer + json.dumps(seen) + "".join(path.read_bytes().decode(errors="replace") for path in kept)
    assert "Pl4nted" not in told


# --- without a pip ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(environment: Path) -> Path:
    """An environment of a Python that has no ensurepip: without pip."""
    conf = (environment / "pip.conf").read_text()
    shutil.rmtree(environment)
    subprocess.run(["python3", "-m", "venv", "--without-pip", str(environment)], check=True)
    (environment / "pip.conf").write_text(conf)
    return environment


#: Where a Python has the pip that it brings along: beside ensurepip, or in a place of its own where the distribution says so.
_BROUGHT = (
    "import ensurepip, os, sysconfig; "
    "print(sysconfig.get_config_var('WHEEL_PKG_DIR') or os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'))"
)


def the_real_pip(site: Site, index: str) -> None:
    """Has an index serve the pip that the environment's Python brings along: an older one knows nothing of a newer Python."""
    place = subprocess.run(["python3", "-c", _BROUGHT], check=True, capture_output=True, text=True).stdout.strip()
    (wheel,) = Path(place).glob("pip-*.whl")
    site._add(index, "pip", (wheel.name, wheel.read_bytes()))


def test_where_there_is_no_pip_uv_is_fetched_and_brings_it(
    site: Site, frozen: Frozen, install: Install, bare: Path
) -> None:
    the_real_pip(site, "tools")
    site.wheel("own", "torch", "1.0")
    answer = install("torch==1.0", index_url=site.url("own"), pip="20.0")
    assert by(answer, "uv") == ""
    assert answer["installed"] == ["torch==1.0"]
    assert frozen() == {"torch==1.0": "own"}
    pip = [str(bare / "bin/python"), "-I", "-m", "pip", "--isolated"]
    assert subprocess.run([*pip, "check"], check=False).returncode == 0
    # What is installed later goes as ever.
    assert by(install("torch==1.0", index_url=site.url("own")), "pip") == "something is installed already (torch)"


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ("empty", "has no wheel of uv [0-9.]+ that is known"),
        ("changed", "has no wheel of uv"),
        ("no pip", "uv found no wheels"),
    ],
)
def test_where_neither_can_be_had_the_run_says_what_to_do(
    site: Site, frozen: Frozen, install: Install, bare: Path, tools: str, why: str
) -> None:
    site.wheel("own", "torch", "1.0")
    if tools == "empty":
        configured(bare, site.url("own"))
    if tools == "changed":
        (wheel,) = (site.folder / "tools").rglob("uv-*.whl")
        wheel.write_bytes(b"something else")
    answer = install("torch==1.0", index_url=site.url("own"), pip="20.0")
    assert answer["failed"]
    assert answer["gave_up"]
    assert re.search(why, answer["msg"]), answer["msg"]
    assert "python3.X-venv on Debian" in answer["msg"]
    assert frozen() == {}
    assert not list((bare.parent / ".uv").glob("*/*/bin/uv"))


# --- how far it is ------------------------------------------------------------------------------------------------------


def test_while_it_downloads_a_file_says_how_far_it_is_and_goes_with_it(
    site: Site, environment: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "SECONDS", 0.05)
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("own", "filelock", "3.0")
    place, installs = environment.parent / ".uv" / meter.FILE, uv._install
    seen: list[str] = []

    def installed(files: Any, work: Any, urls: Any) -> None:
        installs(files, work, urls)
        wait(lambda: place.exists() and not place.read_text().startswith("0 "))
        seen.append(place.read_text())

    monkeypatch.setattr(uv, "_install", installed)
    by(install("torch==1.0", index_url=site.url("own")), "uv")
    # The page of this index names no sizes, its server does.
    assert seen == [f"{len(torch + filelock)} {len(torch + filelock)}\n"]
    assert not place.exists()


def test_of_what_is_whole_all_bytes_are_there_and_of_the_rest_what_its_files_suggest(tmp_path: Path) -> None:
    sizes = {"nvidia-cublas": 600, "torch": 400, "numpy": 50}
    assert uv.arrived(str(tmp_path / "none"), sizes) == (0, 1050)
    for path, count in {"archive-v0/a/nvidia_cublas-1.dist-info/RECORD": 9, ".tmpB/torch/lib.so": 180}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"0" * count)
    assert uv.arrived(str(tmp_path), sizes) == (700, 1050)
    (tmp_path / ".tmpB/torch/large.so").write_bytes(b"0" * 10000)
    assert uv.arrived(str(tmp_path), sizes) == (600 + int(450 * 0.95), 1050)


def test_the_sizes_of_wheels_are_read_where_the_index_says_them() -> None:
    row = '[[packages]]\nname = "a"\nversion = "1.0"\nwheels = [{{ url = "http://x/a.whl", {0}hashes = {{ sha256 = "{1}" }} }}]\n'
    said = "upload-time = 2026-02-23T00:16:49Z, size = 35349300, "
    assert [file.size for file in uv.files_of(row.format(said, "a" * 64))] == [35349300]
    assert [file.size for file in uv.files_of(row.format("", "a" * 64))] == [None]


def test_each_wheel_of_an_index_is_told_with_it_and_one_of_an_address_is_not() -> None:
    row = (
        '[[packages]]\nname = "a"\nversion = "1.0"\n{}= {} url = "http://x/a.whl", hashes = {{ sha256 = "{}" }} }}{}\n'
    )
    of_index, of_other = (
        row.format(more + "wheels ", "[{", "a" * 64, "]") for more in ("", 'index = "http://other/"\n')
    )
    of_address = row.format("archive ", "{", "a" * 64, "")
    asked = [uv.files_of(each, "http://only/")[0].origin for each in (of_index, of_other, of_address)]
    assert asked == ["http://only/", "http://other/", None]
    assert uv.files_of(of_index)[0].origin is None
    assert 'index = "http://other/"\n' in uv._row(uv.files_of(of_other)[0])
    assert "index" not in uv._row(uv.files_of(of_address)[0])


def test_what_was_downloaded_is_not_asked_for_again(site: Site, environment: Path, install: Install) -> None:
    site.wheel("mirror", "torch", "1.0", "filelock<4")
    site.wheel("mirror", "filelock", "3.0")
    other = environment.with_name("other")
    subprocess.run([sys.executable, "-m", "venv", other], check=True)
    configured(other, site.url("tools"))
    fetched = []
    for place in (environment, other):
        answer = install("torch==1.0", environment=str(place), index_url=site.url("mirror"))
        assert by(answer, "uv") == ""
        assert set(answer["installed"]) == {"torch==1.0", "filelock==3.0"}
        fetched.append(len([path for path in site.asked if path.endswith(".whl") and "/mirror/" in path]))
    # To choose, uv asks each wheel for what it needs: this index has no metadata beside them. To install, it asks none again.
    assert fetched == [4, 4 + 2]


# --- cut off ------------------------------------------------------------------------------------------------------------


def processes(words: str) -> list[str]:
    """The command lines that have the words in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [each for each in found if words in each]


def wait(moment: Callable[[], object]) -> None:
    """Until it comes."""
    end = time.monotonic() + 120
    while not moment():
        assert time.monotonic() < end, "it did not come within two minutes"
        time.sleep(0.02)


@pytest.mark.parametrize("builder", ["uv", "pip"])
def test_what_installs_ends_with_the_run_that_is_killed_and_the_next_one_completes(
    site: Site, environment: Path, frozen: Frozen, install: Install, builder: str
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    program = {"version": UV, "sha256": [digest(site.uv("tools"))], "directory": ".uv"}
    options = {
        "environment": str(environment), "requirements": ["torch==1.0"], "record": True, "pip": None,
        **{name: [] for name in ("constraints", "wheels", "from_source", "credentials")},
        "index_url": site.url("own"), "dependencies_url": None, "uv": program,
    }  # fmt: skip
    room = "ansible_collections.gpuwright.node.plugins.module_utils.packages"
    how = f"from {room} import uv, wheels; wheels.install({options!r}, other=uv.install if {builder == 'uv'} else wheels.pip_alone)"
    site.held.append("filelock-3.0")
    run = subprocess.Popen([sys.executable, "-c", how], start_new_session=True)
    wait(lambda: any("filelock-3.0" in path for path in site.asked))
    assert [each for each in processes(str(environment)) if how not in each]
    run.kill()
    run.wait()
    wait(lambda: not processes(str(environment)))
    site.held.clear()
    before = len(site.asked)
    answer = install("torch==1.0", index_url=site.url("own"), **({} if builder == "uv" else {"uv": None}))
    by(answer, builder)
    assert set(frozen()) == {"torch==1.0", "filelock==3.0"}
    # What was brought stays.
    assert not [path for path in site.asked[before:] if path.startswith("/tools")]


# --- what uv says -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('wheels = [{ url = "http://x/a.whl" }]', "the index names no SHA-256 of a wheel of a 1\\.0"),
        (
            'sdist = { url = "http://x/a.tar.gz", hashes = { sha256 = "' + "a" * 64 + '" } }',
            "the index names no SHA-256",
        ),
    ],
)
def test_a_wheel_that_is_not_known_by_its_hash_is_left_to_pip(text: str, why: str) -> None:
    with pytest.raises(wheels.Declined, match=why):
        uv.files_of(f'lock-version = "1.0"\n\n[[packages]]\nname = "a"\nversion = "1.0"\n{text}\n')


def test_words_that_are_not_known_are_left_to_pip() -> None:
    with pytest.raises(wheels.Declined, match="in words that are not known"):
        uv.files_of('[[packages]]\nversion = "1.0"\nname = "a"\n')


def test_an_installation_that_ends_halfway_is_told_and_not_gone_on_with(
    site: Site, environment: Path, install: Install
) -> None:
    site.wheel("own", "torch", "1.0")
    (packages,) = environment.glob("lib/python3.*/site-packages")

    def run(argv: list[str], timeout: float, env: dict[str, str]) -> run_module.Result:
        if "install" in argv and "--config-file" in argv:
            (packages / "torch-1.0.dist-info").mkdir()
            return run_module.Result(2, "", "error: No space left on device", 0.1, None)
        return run_module.run(argv, timeout, env)

    options: Any = {
        "environment": str(environment), "requirements": ["torch==1.0"], "record": True, "pip": None,
        **{name: [] for name in ("constraints", "wheels", "from_source", "credentials")},
        "index_url": site.url("own"), "dependencies_url": None,
        "uv": {"version": UV, "sha256": [digest(site.uv("tools"))], "directory": str(environment.parent / ".uv")},
    }  # fmt: skip
    with pytest.raises(wheels.PipError, match=r"Expected uv to install torch==1\.0 .*Found: error: No space left"):
        wheels.install(options, run, uv.install)
