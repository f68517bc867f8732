"""What root's pip installs: wheels, each from the index that it belongs to, by the hashes of a lock; nothing on a user's word."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.packages import wheels as pip
from ansible_collections.gpuwright.node.plugins.modules import wheels
from tests.unit.frameworks.conftest import Proxy, Site
from tests.unit.modules import run_module as call

# The real pip runs, several times.
pytestmark = pytest.mark.slow

Frozen = Callable[[], dict[str, str]]
SECRET = "Pl4nted+secret/81"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def asked(environment: Path, *requirements: str, **options: Any) -> Any:
    """The module's options, for the function behind it."""
    given = {"environment": str(environment), "requirements": list(requirements), "record": True}
    empty: dict[str, Any] = {name: [] for name in ("constraints", "wheels", "credentials", "from_source")}
    return {**given, **empty, "index_url": None, "dependencies_url": None, "pip": None, **options}


def install(environment: Path, *requirements: str, **options: Any) -> Any:
    return call(wheels, environment=str(environment), requirements=list(requirements), **options)


# --- no code of a source runs ------------------------------------------------------------------------------------------


def test_a_newer_source_beside_a_wheel_is_not_built(site: Site, environment: Path, frozen: Frozen) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    site.source("own", "filelock", "99.0")
    answer = install(environment, "torch==1.0", index_url=site.url("own"))
    assert set(answer["installed"]) == {"filelock==3.0", "torch==1.0"}
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "own"}
    assert not site.canary.exists()


def test_what_there_is_only_a_source_of_is_refused_by_its_name_and_nothing_is_installed(
    site: Site, environment: Path, frozen: Frozen
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.source("own", "filelock", "3.0")
    answer = install(environment, "torch==1.0", index_url=site.url("own"))
    assert answer["failed"]
    assert answer["msg"].startswith(
        f"Expected wheels of everything that {environment} needs. Found only sources of filelock on {site.url('own')}"
    )
    assert frozen() == {}
    assert not site.canary.exists()


def test_requirements_that_do_not_go_together_are_told_as_pip_knows_them_and_the_index_is_not_blamed(
    site: Site, environment: Path, frozen: Frozen
) -> None:
    site.wheel("own", "jax", "0.10", "numpy>=2")
    site.wheel("own", "numpy", "1.26")
    site.wheel("own", "numpy", "2.3")
    asked: Any = {"requirements": ["jax==0.10"], "index_url": site.url("own")}
    answer = call(wheels, environment=str(environment), constraints=["numpy<2"], **asked)
    assert answer["failed"]
    assert "jax 0.10 depends on numpy>=2; The user requested (constraint) numpy<2. What to do" in answer["msg"]
    assert "can be reached" not in answer["msg"]
    assert frozen() == {}
    # What the remedy says: the limit is left out.
    assert "numpy==2.3" in call(wheels, environment=str(environment), constraints=[], **asked)["installed"]


def test_a_user_is_not_told_that_code_would_run_as_root(
    site: Site, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.source("own", "lit", "3.0")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = install(environment, "lit", index_url=site.url("own"))["msg"]
    assert "Found only sources of lit" in said
    assert "as root" not in said
    assert "in a run of your own: gpuwright up --user … --allow-source lit" in said


def test_a_source_is_built_where_the_tables_name_it(site: Site, environment: Path) -> None:
    site.wheel("own", "torch", "1.0", "lit", "filelock")
    site.source("own", "lit", "15.0")
    site.wheel("own", "filelock", "3.0")
    answer = install(environment, "torch==1.0", index_url=site.url("own"), from_source=["lit"])
    assert "lit==15.0" in answer["installed"]
    assert site.canary.exists()


def test_pip_itself_is_replaced_by_a_wheel_alone(site: Site, environment: Path) -> None:
    site.source("own", "pip", "99.0")
    answer = install(environment, "pip>=99", index_url=site.url("own"), record=False)
    assert "Found only sources of pip" in answer["msg"]
    assert not site.canary.exists()


def test_a_pip_that_is_too_old_is_brought_first_from_the_index_of_the_dependencies(
    site: Site, environment: Path
) -> None:
    site.wheel("own", "torch", "1.0")
    site.source("mirror", "pip", "99.0")
    urls = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    kept = install(environment, "torch==1.0", pip="20.0", **urls)
    assert kept["installed"] == ["torch==1.0"]
    refused = install(environment, "torch==1.0", pip="99.0", **urls)
    assert "Found only sources of pip on" in refused["msg"]
    assert refused["gave_up"]


@pytest.mark.parametrize(("version", "resumes"), [("25.0.1", False), ("25.1", True), ("26.3", True)])
def test_a_pip_that_can_goes_on_with_a_download_that_was_cut_off(tmp_path: Path, version: str, resumes: bool) -> None:
    there = tmp_path / "lib" / "python3.11" / "site-packages" / f"pip-{version}.dist-info"
    there.mkdir(parents=True)
    (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pip\nVersion: {version}\n")
    commands: list[list[str]] = []

    def run(argv: list[str], **_options: Any) -> run_module.Result:
        commands.append(argv)
        return run_module.Result(0, "", "", 0.0, None)

    pip.install(asked(tmp_path, "torch==1.0", record=False), run)
    assert ["--resume-retries" in command for command in commands] == [resumes]


# --- each package from one index --------------------------------------------------------------------------------------


def test_a_package_of_the_frameworks_own_index_is_never_taken_from_the_other_one(
    site: Site, environment: Path, frozen: Frozen
) -> None:
    site.wheel("own", "torch", "1.0+cu1", "filelock")
    site.wheel("own", "torchvision", "2.0+cu1", "torch", "numpy")
    site.wheel("mirror", "torch", "1.0+cu1", build="9")
    site.wheel("mirror", "torchvision", "2.0+zz9")
    site.wheel("mirror", "filelock", "3.0")
    site.wheel("mirror", "numpy", "2.0")
    site.wheel("own", "numpy", "9.0")
    answer = install(
        environment,
        "torch==1.0+cu1",
        "torchvision==2.0",
        index_url=site.url("own"),
        dependencies_url=site.url("mirror"),
    )
    assert not answer.get("failed"), answer
    assert frozen() == {
        "torch==1.0+cu1": "own",
        "torchvision==2.0+cu1": "own",
        "filelock==3.0": "mirror",
        "numpy==2.0": "mirror",
    }


@pytest.mark.parametrize("section", ["global", "install"])
def test_an_index_that_is_named_is_the_only_one_whatever_the_host_has_besides(
    site: Site, environment: Path, frozen: Frozen, section: str
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    site.wheel("public", "filelock", "99.0")
    (environment / "pip.conf").write_text(f"[{section}]\nextra-index-url = {site.url('public')}\n")
    install(environment, "torch==1.0", index_url=site.url("own"))
    assert frozen()["filelock==3.0"] == "own"
    assert not [path for path in site.asked if path.startswith("/public")]


def test_without_one_the_hosts_own_configuration_counts(site: Site, environment: Path, frozen: Frozen) -> None:
    site.wheel("site", "jax", "1.0")
    (environment / "pip.conf").write_text(f"[global]\nindex-url = {site.url('site')}\n")
    install(environment, "jax==1.0")
    assert frozen() == {"jax==1.0": "site"}


def test_files_and_variables_of_a_user_do_not_count(
    site: Site, environment: Path, frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    site.wheel("theirs", "filelock", "99.0")
    theirs = f"[global]\nindex-url = {site.url('theirs')}\nextra-index-url = {site.url('theirs')}\n"
    for place in ("home/.config/pip/pip.conf", "home/.pip/pip.conf", "xdg/pip/pip.conf"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(theirs)
    (environment / "pip.conf").write_text(f"[global]\nindex-url = {site.url('own')}\n")
    (tmp_path / "code").mkdir()
    for name in ("sitecustomize.py", "pip.py", "json.py"):
        (tmp_path / "code" / name).write_text(f"open({str(site.canary)!r}, 'w')\n")
    for name, value in {
        "XDG_CONFIG_HOME": str(tmp_path / "home/.config"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "PIP_CONFIG_FILE": str(tmp_path / "home/.pip/pip.conf"),
        "PIP_EXTRA_INDEX_URL": site.url("theirs"),
        "PIP_INDEX_URL": site.url("theirs"),
        "PIP_NO_BINARY": ":all:",
        "PYTHONPATH": str(tmp_path / "code"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "code")
    answer = install(environment, "torch==1.0")
    assert not answer.get("failed"), answer
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "own"}
    assert not site.canary.exists()
    assert not [path for path in site.asked if path.startswith("/theirs")]


# --- by the node's proxy ------------------------------------------------------------------------------------------------


@pytest.fixture
def named(proxy: Proxy, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Names the proxy in apt's settings, with the password; no variable names one."""
    for variable in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    (environment / "pip.conf").write_text("[global]\ntrusted-host = index.example\nretries = 0\n")

    def write(password: str) -> None:
        text = f'Acquire::http::Proxy::index.example "http://reader:{quote(password, safe="")}@{proxy.place}";\n'
        (tmp_path / "apt.conf").write_text(text)

    return write


def test_pip_goes_by_the_proxy_that_the_node_names_for_its_index(
    site: Site, environment: Path, frozen: Frozen, proxy: Proxy, named: Callable[[str], None]
) -> None:
    site.wheel("own", "torch", "1.0")
    named(SECRET)
    answer = install(environment, "torch==1.0", index_url="http://index.example/own/")
    assert not answer.get("failed"), answer
    assert frozen() == {"torch==1.0": "own"}
    assert ("http://index.example/own/torch/torch-1.0-py3-none-any.whl", True) in proxy.asked


def test_a_proxy_that_refuses_pip_is_told_without_its_password(
    site: Site, environment: Path, proxy: Proxy, named: Callable[[str], None]
) -> None:
    site.wheel("own", "torch", "1.0")
    named("wr0ng")
    answer = install(environment, "torch==1.0", index_url="http://index.example/own/")
    assert answer["failed"]
    assert "407" in answer["msg"]
    assert "wr0ng" not in json.dumps(answer)
    assert {good for _address, good in proxy.asked} == {False}


# --- by hash -------------------------------------------------------------------------------------------------------


def locked(**files: bytes) -> list[dict[str, Any]]:
    """The lock of wheels, written torch_1_0=b'…'."""
    rows = []
    for written, data in files.items():
        name, version = written.split("_", 1)
        rows.append({"name": name, "version": version.replace("_", "."), "sha256": [digest(data)]})
    return rows


def test_a_lock_brings_exactly_its_wheels_however_new_others_are(site: Site, environment: Path, frozen: Frozen) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("own", "filelock", "3.0")
    site.wheel("own", "filelock", "3.1")
    answer = install(
        environment, "torch==1.0", index_url=site.url("own"), wheels=locked(torch_1_0=torch, filelock_3_0=filelock)
    )
    assert not answer.get("failed"), answer
    assert set(frozen()) == {"torch==1.0", "filelock==3.0"}


def test_a_lock_over_two_indexes_takes_each_wheel_from_its_own(site: Site, environment: Path, frozen: Frozen) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("mirror", "filelock", "3.0")
    options = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    answer = install(environment, "torch==1.0", **options, wheels=locked(torch_1_0=torch, filelock_3_0=filelock))
    assert not answer.get("failed"), answer
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "mirror"}


def test_where_two_indexes_have_a_locked_name_its_hash_decides(site: Site, environment: Path, frozen: Frozen) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("mirror", "filelock", "3.0")
    site.wheel("mirror", "torch", "1.0", build="9")
    site.wheel("own", "filelock", "3.0", build="9")
    options = {"index_url": site.url("own"), "dependencies_url": site.url("mirror")}
    install(environment, "torch==1.0", **options, wheels=locked(torch_1_0=torch, filelock_3_0=filelock))
    assert frozen() == {"torch==1.0": "own", "filelock==3.0": "mirror"}


def test_a_file_that_is_not_the_locks_is_refused_and_nothing_is_installed(
    site: Site, environment: Path, frozen: Frozen
) -> None:
    torch = site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0", says="changed")
    reviewed = locked(torch_1_0=torch, filelock_3_0=b"what was reviewed")
    answer = install(environment, "torch==1.0", index_url=site.url("own"), wheels=reviewed)
    assert answer["failed"]
    assert answer["msg"].startswith(
        "Expected the files that the lock names by their SHA-256. Found another one: filelock==3.0 from "
    )
    assert "make the lock anew" in answer["msg"]
    assert frozen() == {}


def test_a_file_that_is_not_the_indexs_is_refused_too(site: Site, environment: Path, frozen: Frozen) -> None:
    site.wheel("own", "torch", "1.0")
    (site.folder / "own/torch/torch-1.0-py3-none-any.whl").write_bytes(b"something else")
    answer = install(environment, "torch==1.0", index_url=site.url("own"))
    assert answer["msg"].startswith(
        f"Expected the files that {site.url('own')} names by their SHA-256. Found another one"
    )
    assert frozen() == {}


@pytest.mark.parametrize("hashes", [True, False])
def test_what_an_environment_is_made_of_is_recorded_with_hashes(site: Site, environment: Path, hashes: bool) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("own", "filelock", "3.0")
    if not hashes:
        for page in (site.folder / "own").glob("*/index.html"):
            page.write_text(re.sub(r"#sha256=\w+", "", page.read_text()))
    install(environment, "torch==1.0", index_url=site.url("own"))
    path = environment / "gpuwright-wheels.txt"
    assert path.stat().st_mode & 0o777 == 0o644
    assert pip.pins(path.read_text()) == [
        pip.Wheel("filelock", "3.0", (digest(filelock),)),
        pip.Wheel("torch", "1.0", (digest(torch),)),
    ]


@pytest.mark.parametrize(
    ("archive", "sha256"),
    [
        ({"hashes": {"sha256": "a" * 64}, "hash": f"sha256={'a' * 64}"}, ("a" * 64,)),  # pip 23.1 and newer
        ({"hash": f"sha256={'a' * 64}"}, ("a" * 64,)),  # pip 23.0, which Debian 12 has
        ({"hash": "sha512=b"}, ()),
        ({}, ()),
    ],
)
def test_the_hash_of_a_wheel_is_read_from_the_report_of_any_pip(
    tmp_path: Path, archive: Any, sha256: tuple[str, ...]
) -> None:
    row = {"metadata": {"name": "torch", "version": "1.0"}, "download_info": {"archive_info": archive}}
    (tmp_path / "report").write_text(json.dumps({"install": [row]}))
    assert pip._reported(str(tmp_path / "report")) == [pip.Wheel("torch", "1.0", sha256)]


def test_a_repair_keeps_what_is_known_of_the_rest_and_a_second_run_changes_nothing(
    site: Site, environment: Path
) -> None:
    site.wheel("own", "torch", "1.0", "filelock")
    site.wheel("own", "filelock", "3.0")
    install(environment, "torch==1.0", index_url=site.url("own"))
    path = environment / "gpuwright-wheels.txt"
    before, old = path.read_text(), path.stat()
    again = install(environment, "torch==1.0", index_url=site.url("own"))
    assert (again["changed"], again["installed"], path.stat()) == (False, [], old)
    (packages,) = environment.glob("lib/python3.*/site-packages")
    (packages / "filelock-3.0.dist-info").rename(packages / "gone")
    mended = install(environment, "torch==1.0", index_url=site.url("own"))
    assert mended["installed"] == ["filelock==3.0"]
    assert path.read_text() == before
    # What somebody put there by hand has no hash that is known.
    (packages / "other-1.0.dist-info").mkdir()
    (packages / "other-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    site.wheel("own", "jax", "1.0")
    install(environment, "jax==1.0", index_url=site.url("own"))
    assert pip.Wheel("other", "1.0", ()) in pip.pins(path.read_text())


def test_an_environment_is_as_locked_only_where_every_file_is_known_to_be_the_locks(
    site: Site, environment: Path
) -> None:
    torch, filelock = site.wheel("own", "torch", "1.0", "filelock"), site.wheel("own", "filelock", "3.0")
    own, wished = site.url("own"), locked(torch_1_0=torch, filelock_3_0=filelock)

    def as_locked(wheels_wished: list[dict[str, Any]]) -> bool:
        answer = install(environment, "torch==1.0", check=True, index_url=own, wheels=wheels_wished)
        assert answer["changed"] is not answer["as_locked"]
        return bool(answer["as_locked"])

    assert not as_locked(wished)
    install(environment, "torch==1.0", index_url=own)
    assert as_locked(wished)
    several = [{**row, "sha256": ["0" * 64, *row["sha256"]]} for row in wished]
    assert as_locked(several)
    asked_before = len(site.asked)
    assert not install(environment, "torch==1.0", index_url=own, wheels=several)["changed"]
    assert len(site.asked) == asked_before
    assert not as_locked(wished[:1])
    assert not as_locked([*wished, {"name": "numpy", "version": "2.0", "sha256": ["0" * 64]}])
    assert not as_locked([wished[0], {**wished[1], "sha256": ["0" * 64]}])
    (packages,) = environment.glob("lib/python3.*/site-packages")
    (packages / "filelock-3.0.dist-info").rename(packages / "filelock-3.1.dist-info")
    assert not as_locked(wished)
    (packages / "filelock-3.1.dist-info").rename(packages / "filelock-3.0.dist-info")
    (environment / pip.RECORD).write_text("--index-url http://evil.example\n")
    assert not as_locked(wished)
    assert install(environment, "torch==1.0", index_url=own, wheels=wished)["changed"]
    assert as_locked(wished)


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("password", [SECRET, "wrong+Pl4nted"])
def test_a_password_of_an_index_is_in_no_argument_no_variable_no_message_and_no_file_that_stays(
    site: Site, environment: Path, frozen: Frozen, password: str
) -> None:
    site.wheel("guarded/own", "torch", "1.0", says="own")
    seen: list[tuple[list[str], dict[str, str]]] = []
    modes: set[int] = set()

    def watch(argv: list[str], timeout: float, env: dict[str, str]) -> run_module.Result:
        seen.append((argv, dict(env)))
        conf = Path(env["PIP_CONFIG_FILE"])
        modes.update({conf.stat().st_mode & 0o777, conf.parent.stat().st_mode & 0o777})
        return run_module.run(argv, timeout, env)

    credentials = [{"machine": site.url("guarded").rstrip("/"), "login": "reader", "password": password}]
    options = asked(environment, "torch==1.0", index_url=site.url("guarded/own"), credentials=credentials)
    if password == SECRET:
        answer = json.dumps(pip.install(options, watch))
        assert frozen() == {"torch==1.0": "own"}
    else:
        with pytest.raises(pip.PipError) as caught:
            pip.install(options, watch)
        answer = str(caught.value)
        assert frozen() == {}
        # pip tells its log alone.
        assert "401" in answer
    assert seen
    assert modes == {0o600, 0o700}
    assert not Path(seen[0][1]["PIP_CONFIG_FILE"]).parent.exists()
    told = answer + json.dumps(seen) + "".join(path.read_text() for path in environment.glob("gpuwright-*"))
    assert "Pl4nted" not in told


def test_a_password_in_the_words_of_pip_is_not_told_on(site: Site, environment: Path) -> None:
    def tells(*_words: object, **_more: object) -> run_module.Result:
        return run_module.Result(1, "", f"ERROR: http://reader:{SECRET}@mirror.example/own is no address", 0.1, None)

    with pytest.raises(pip.PipError, match=r"ERROR: http://\*\*\*@mirror\.example/own is no address") as caught:
        pip.install(asked(environment, "torch==1.0", index_url=site.url("own")), tells)
    assert "Pl4nted" not in str(caught.value)


def test_credentials_go_to_the_address_that_they_are_for_alone() -> None:
    mine = [{"machine": "http://mirror.example/whl", "login": "a", "password": "b/c"}]
    assert "http://a:b%2Fc@mirror.example/whl/cu130" in pip.configuration(["http://mirror.example/whl/cu130"], mine)
    for other in (
        "http://mirror.example/whl-other",
        "http://mirror.example.evil.example/whl",
        "https://mirror.example/whl",
    ):
        assert f"index-url = {other}\n" in pip.configuration([other], mine)


@pytest.mark.parametrize("turn", [1, -1])
def test_an_index_below_another_address_has_its_own_credentials(turn: int) -> None:
    given = [
        {"machine": "http://mirror.example/whl", "login": "a", "password": "b"},
        {"machine": "http://mirror.example/whl/pypi", "login": "c", "password": "d"},
    ]
    urls = ["http://mirror.example/whl/cu130", "http://mirror.example/whl/pypi"]
    told = pip.configuration(urls, given[::turn])
    assert "index-url = http://a:b@mirror.example/whl/cu130\n" in told
    assert "extra-index-url = http://c:d@mirror.example/whl/pypi\n" in told


@pytest.mark.parametrize(("login", "password", "written"), [("t", "", "t"), ("", "p", ":p"), ("t", "p", "t:p")])
def test_a_login_and_a_password_alone_stay_what_they_are(login: str, password: str, written: str) -> None:
    given = [{"machine": "http://mirror.example", "login": login, "password": password}]
    assert f"index-url = http://{written}@mirror.example/own\n" in pip.configuration(
        ["http://mirror.example/own"], given
    )


# --- pip gives up -----------------------------------------------------------------------------------------------------


def test_a_damaged_cache_is_passed_by_at_the_second_attempt(site: Site, environment: Path, frozen: Frozen) -> None:
    site.wheel("own", "torch", "1.0")
    turns: list[list[str]] = []

    def once(argv: list[str], timeout: float, env: dict[str, str]) -> run_module.Result:
        turns.append(argv)
        if "--no-cache-dir" not in argv:
            return run_module.Result(2, "", "zlib.error: Error -3", 0.1, None)
        return run_module.run(argv, timeout, env)

    options = asked(environment, "torch==1.0", index_url=site.url("own"))
    assert pip.install(options, once)["changed"]
    assert len(turns) == 2
    assert frozen() == {"torch==1.0": "own"}


def test_an_index_that_lacks_a_version_is_named(site: Site, environment: Path) -> None:
    site.wheel("own", "torch", "1.0")
    answer = install(environment, "torch==2.0", index_url=site.url("own"))
    assert answer["msg"].startswith(
        f"Expected pip to install torch==2.0 into {environment}. Found: ERROR: Could not find"
    )
    assert f"look whether {site.url('own')} can be reached" in answer["msg"]


def test_the_hosts_own_index_stands_beside_others_where_it_is_named_by_nothing() -> None:
    assert pip.configuration(["https://torch.example", ""], []) == (
        "[install]\nextra-index-url = https://torch.example\n"
    )
    assert pip.configuration([""], []) == ""
    options: Any = {
        "requirements": ["torch==2"], "index_url": "https://torch.example", "dependencies_url": "", "wheels": [],
        "environment": "/opt/x",
    }  # fmt: skip
    own, rest = pip.turns(options)
    assert (own.urls, own.dependencies) == (["https://torch.example"], False)
    assert (rest.urls, rest.dependencies) == ([""], True)
    locked: Any = {**options, "wheels": [{"name": "torch", "version": "2", "sha256": ["0" * 64]}]}
    (turn,) = pip.turns(locked)
    assert turn.urls == ["https://torch.example", ""]


def test_of_a_lock_pip_takes_nothing_that_has_no_hash(tmp_path: Path) -> None:
    turn = pip.Turn(["torch==1.0"], [], dependencies=False, hashes=True)
    assert "--require-hashes" in pip.command(turn, asked(tmp_path), str(tmp_path))
    assert "--require-hashes" not in pip.command(turn._replace(hashes=False), asked(tmp_path), str(tmp_path))
