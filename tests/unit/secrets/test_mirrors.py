"""Credentials of mirrors: the plan never has them, and who fetches gets those of its own machine."""

from __future__ import annotations

import base64
import http.server
import importlib
import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.filter import credentials as filters
from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages, rpm
from ansible_collections.gpuwright.node.plugins.module_utils.packages import (
    dnf_python,
    fetch,
    private_apt,
    private_dnf,
)
from ansible_collections.gpuwright.node.plugins.module_utils.packages import sources as packages_sources
from ansible_collections.gpuwright.node.plugins.modules import package_index, package_sources, repository_key
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import sources
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import credentials
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.modules import run_module
from tests.unit.resolve.conftest import resolve, rules

__all__ = ["resolve", "rules"]  # the fixtures of the resolver's own tests

ROOT = Path(__file__).resolve().parents[3]
SECRET = "s3cr3t"
MIRROR = f"http://me:{SECRET}@mirror.example/cuda"
ACCESS = {"machine": "http://mirror.example/cuda", "login": "me", "password": SECRET}


@pytest.mark.parametrize("system", ["debian-13", "rocky-9"])
def test_what_the_resolver_says_has_no_credentials(resolve: Callable[..., dict[str, Any]], system: str) -> None:
    names = ("nvidia", "nvidia-container-toolkit", "epel", "pytorch", "pypi", "nvidia-runfile")
    wish = {"gpuwright_mirrors": {name: f"https://me:{SECRET}@mirror.example/{name}/" for name in names}}
    answer = resolve("H100", system, "driver", "cuda", "container-toolkit", "pytorch", "jax", wish=wish)
    assert answer["ok"]
    assert SECRET not in json.dumps(answer)
    addresses = [url for row in answer["stack"]["repositories"] for url in row["uris"]]
    assert addresses
    assert all(url.startswith("https://mirror.example/") for url in addresses)
    assert len(credentials.of_variables(addresses, wish)) == len({url.split("/")[3] for url in addresses})


def test_nor_has_the_address_of_the_drivers_file(resolve: Callable[..., dict[str, Any]]) -> None:
    wish = {
        "nvidia_driver_source": "runfile",
        "nvidia_driver_runfile": f"https://{SECRET}@mirror.example/NVIDIA-Linux-x86_64-580.178.04.run",
        "nvidia_driver_version": "580.178.04",
        "nvidia_driver_runfile_sha256": "a" * 64,
    }
    answer = resolve("H100", "debian-13", "driver", wish=wish)
    assert answer["ok"]
    assert SECRET not in json.dumps(answer)
    addresses = answer["stack"]["driver"]["runfile"]["addresses"]
    assert credentials.of_variables(addresses, wish) == [{"machine": addresses[0], "login": SECRET, "password": ""}]


@pytest.mark.parametrize("written", ["%0Amachine", "%20x", "/x", "#x", "\n"])
@pytest.mark.parametrize("place", ["gpuwright_mirrors", "nvidia_driver_runfile", "gpuwright_wish"])
def test_credentials_that_would_break_out_of_their_file_are_refused_by_the_wish(place: str, written: str) -> None:
    url = f"http://me:{SECRET}{written}@mirror.example/x"
    value: Any = {"gpuwright_mirrors": {"nvidia": url}, "nvidia_driver_runfile": url}
    variables = {"gpuwright_wish": value} if place == "gpuwright_wish" else {place: value[place]}
    with pytest.raises(BadInput, match=r"Expected .* Found .* What to do") as refused:
        Wish.from_variables(variables)
    assert SECRET not in str(refused.value)


def test_only_what_an_address_needs_is_handed_out_and_the_first_counts() -> None:
    given = {"nvidia": MIRROR, "pypi": "https://a:b@pypi.example/simple"}
    of = filters.FilterModule().filters()["credentials"]
    assert of(["http://mirror.example/cuda/debian13/"], [{"x": "http://other:x@mirror.example/cuda/"}], given) == [
        {"machine": "http://mirror.example/cuda", "login": "other", "password": "x"}
    ]
    assert of(["http://elsewhere.example/cuda"], given, "", None, {}) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://mirror.example.evil.example/cuda/x",
        "http://mirror.example/cudaother/x",
        "https://mirror.example/cuda/x",
        "http://mirror.example:81/cuda/x",
        "http://x@mirror.example/cuda/x",
        "http://mirror.example/cuda/../private/x",
        "http://mirror.example/cuda/x/%2e%2E/../private",
        "http://mirror.example/cuda/x\\..\\private",
    ],
)
def test_credentials_are_for_no_other_place(url: str) -> None:
    assert redact.access(url, [ACCESS]) is None


def test_dots_in_a_name_lead_nowhere() -> None:
    assert redact.access("http://mirror.example/cuda/a..b/x.1..2.deb", [ACCESS]) == tuple(ACCESS.values())


def test_of_two_machines_the_nearer_one_counts() -> None:
    near = {"machine": "http://mirror.example/cuda/debian13", "login": "near", "password": ""}
    assert redact.access("http://mirror.example/cuda/debian13/x", [ACCESS, near]) == tuple(near.values())
    assert redact.access("http://mirror.example/cuda/x", [near, ACCESS]) == tuple(ACCESS.values())


#: The modules that take credentials, each with the options that it cannot do without.
TAKING: dict[str, dict[str, Any]] = {
    "driver_file": {"addresses": ["http://b/x"], "sha256": "a" * 64, "path": "/x"},
    "package_index": {"packages": []},
    "package_sources": {"sources": []},
    "python_index": {"questions": [], "tags": {}},
    "repository_key": {"url": "http://b/x", "fingerprint": "A" * 40, "path": "/x"},
    "wheels": {"environment": "/x", "requirements": []},
}


def test_the_modules_that_take_credentials_are_known() -> None:
    texts = {path.stem: path.read_text() for path in sorted((ROOT / "plugins/modules").glob("*.py"))}
    assert [name for name, text in texts.items() if '"credentials": redact.OPTION' in text] == list(TAKING)
    assert [name for name, text in texts.items() if "- gpuwright.node.credentials\n" in text] == list(TAKING)


# Who fetches ----------------------------------------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """Answers 401 to who is not let in, and sends who asks for /moved to another server."""

    def __init__(self, content: bytes = b"", moved_to: str = "") -> None:
        self.asked: list[tuple[str, str | None]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805 - `self` is the server's
                header = handler.headers.get("Authorization")
                words = base64.b64decode(header.split()[1]).decode() if header else None
                self.asked.append((handler.path, words))
                moved = handler.path.endswith("/moved") and moved_to
                handler.send_response(302 if moved else 200 if words == f"me:{SECRET}" else 401)
                if moved:
                    handler.send_header("Location", moved_to)
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)

            def log_message(handler, *_words: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def access(self, password: str = SECRET) -> dict[str, str]:
        return {"machine": self.url, "login": "me", "password": password}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def make(*content: Any, **more: Any) -> Server:
        made.append(Server(*content, **more))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def test_a_key_is_fetched_with_the_credentials_and_a_redirect_does_not_carry_them_on(
    server: Callable[..., Server],
) -> None:
    other = server(b"elsewhere")
    mirror = server(b"the key", moved_to=f"{other.url}/x")
    assert fetch.fetch(f"{mirror.url}/key", 5, [mirror.access()]) == b"the key"
    with pytest.raises(fetch.FetchError, match="401"):
        fetch.fetch(f"{mirror.url}/moved", 5, [mirror.access()])
    assert mirror.asked == [("/key", f"me:{SECRET}"), ("/moved", f"me:{SECRET}")]
    assert other.asked == [("/x", None)]


@pytest.mark.parametrize(
    "place", ["http://mirror.example/key", "HTTP://mirror.example/key", "ftp://mirror.example/key"]
)
def test_no_redirect_leads_from_https_to_what_others_may_change(place: str) -> None:
    asked = urllib.request.Request("https://mirror.example/key")
    with pytest.raises(urllib.error.URLError, match="leads from https to"):
        fetch._Redirect().redirect_request(asked, None, 302, "moved", {}, place)
    assert fetch._Redirect().redirect_request(asked, None, 302, "moved", {}, "https://other.example/key") is not None


def test_a_file_without_an_end_is_not_fetched_to_it(
    server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LARGEST", 4)
    mirror = server(b"12345")
    with pytest.raises(fetch.FetchError, match="it has more than 0 GiB"):
        fetch.download(f"{mirror.url}/file", str(tmp_path / "file"), credentials=[mirror.access()])
    assert not (tmp_path / "file").exists()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the modules write into the system's log."""
    written: list[str] = []
    monkeypatch.setattr("ansible.module_utils.basic.has_journal", False)
    monkeypatch.setattr("syslog.syslog", lambda *words: written.append(str(words)))
    return written


def test_the_modules_answer_and_log_without_credentials(
    server: Callable[..., Server], log: list[str], tmp_path: Path
) -> None:
    mirror = server(b"no key")
    for access in (mirror.access(), mirror.access("wr0ng"), mirror.access("401")):
        key = run_module(
            repository_key,
            url=f"{mirror.url}/key",
            fingerprint="A" * 40,
            path=str(tmp_path / "k"),
            credentials=[access],
        )
        assert key["failed"]
        assert mirror.url in key["msg"]
        row: Any = {
            "name": "x",
            "uris": [f"{mirror.url}/"],
            "key": {"url": f"{mirror.url}/key", "fingerprint": "A" * 40},
        }
        index = run_module(package_index, repositories=[row], packages=[], credentials=[access], timeout=10)
        listed: Any = {**ROW, "key": {**KEY, "url": f"{mirror.url}/key"}, "file": "/x"}
        source = sources.source(listed, "apt", with_access=True)
        added = run_module(package_sources, sources=[source], credentials=[access])
        assert added["failed"]
        told = json.dumps([key, index, added]) + "".join(log)
        assert SECRET not in told
        assert "wr0ng" not in told
        # Ansible would leave its own mark: of a password such as `401` every 401 would be one.
        assert "********" not in json.dumps([key, index])
    assert "answered 401" in key["msg"]
    assert "credentials=NOT_LOGGING_PARAMETER" in "".join(log)
    assert {words for _path, words in mirror.asked} == {f"me:{SECRET}", "me:wr0ng", "me:401"}


def test_a_mirror_that_does_not_let_in_is_said_to_ask_for_a_password() -> None:
    (found,) = private_apt.problems_of_update(
        "E: Failed to fetch http://mirror.example/cuda/InRelease  401  Unauthorized [IP: 1.2.3.4 80]", {}
    )
    assert found.kind == "unreachable"
    assert "USER:PASSWORD@" in redact.text(found.remedy)


def test_the_real_apt_reads_what_is_written_for_it_and_sends_it_nowhere_else(
    server: Callable[..., Server], tmp_path: Path
) -> None:
    mirror, other = server(), server()
    for folder in ("lists/partial", "cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    access = {**mirror.access(), "machine": f"{mirror.url}/cuda"}
    (tmp_path / "auth.conf").write_text("# a comment\n" + private_apt.auth_conf([access]))
    places = (f"{mirror.url}/cuda/debian13/", f"{mirror.url}/cudaother/", f"{other.url}/cuda/")
    (tmp_path / "sources.list").write_text("".join(f"deb [trusted=yes] {place} ./\n" for place in places))
    settings = {
        "Dir::Etc::netrc": tmp_path / "auth.conf",
        "Dir::Etc::netrcparts": "/nonexistent",
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": "/nonexistent",
        "Dir::State::lists": tmp_path / "lists",
        "Dir::Cache": tmp_path / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::http::Proxy": "DIRECT",
    }
    (tmp_path / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")}
    subprocess.run(["apt-get", "update"], env=environment, capture_output=True, check=False)
    assert {words for path, words in mirror.asked if path.startswith("/cuda/")} == {f"me:{SECRET}"}
    assert {words for path, words in mirror.asked if path.startswith("/cudaother/")} == {None}
    assert {words for _path, words in other.asked} == {None}


def test_dnf_is_asked_with_the_credentials_of_the_repository() -> None:
    given: list[dict[str, Any]] = []

    def runner(argv: Any, **more: Any) -> Any:
        given.append(json.loads(Path(argv[-1]).read_text()))
        return type("Result", (), {"ok": False, "error": "no", "err": "", "rc": 1})()

    row: Any = {"name": "x", "uris": ["http://mirror.example/cuda/x/"], "key": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dnf_python, "python_of_dnf", lambda *_: "python3")
        private_dnf.ask([row, row | {"uris": ["http://b/"]}], ["p"], {}, 5, runner=runner, credentials=[ACCESS])
    assert [(each["username"], each["password"]) for each in given[0]["repositories"]] == [("me", SECRET), ("", "")]


# What lies on the node ------------------------------------------------------------------------------------------------


ROW = {"name": "x", "uris": ["http://mirror.example/cuda/x/"], "suites": ["/"], "components": [], "signed": "packages"}
KEY = {"url": "http://mirror.example/cuda/x/k", "fingerprint": "A" * 40, "path": "/k"}


def added(tmp_path: Path, manager: str, access: dict[str, str] | None) -> dict[str, str]:
    """What lies on a machine after a source was added, by path."""
    row: Any = {**ROW, "key": KEY, "file": "/etc/x.source"}
    source: Any = dict(sources.source(row, manager, with_access=access is not None))
    machine = packages_sources.Machine(root=str(tmp_path), runner=lambda *_, **_more: Result(0, "", "", 0.0, None))
    source["key"] = None
    packages_sources.add(machine, source, [access] if access else [], 0)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    secret = [path for path in files if SECRET in path.read_text()]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secret)
    return {str(path.relative_to(tmp_path)): path.read_text() for path in files}


def test_the_file_for_apt_has_the_mirrors_of_one_repository(tmp_path: Path) -> None:
    path = "etc/apt/auth.conf.d/gpuwright-x.conf"
    text = added(tmp_path, "apt", ACCESS)[path]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == private_apt.auth_conf([ACCESS]).splitlines()
    token = {**ACCESS, "password": ""}
    assert added(tmp_path, "apt", token)[path].splitlines()[1:] == private_apt.auth_conf([token]).splitlines()
    elsewhere = {**ACCESS, "machine": "http://elsewhere.example/"}
    assert list(added(tmp_path, "apt", elsewhere)) == ["etc/x.source"]


def test_the_source_of_dnf_names_variables_and_not_what_is_in_them(tmp_path: Path) -> None:
    found = added(tmp_path, "dnf", ACCESS)
    assert found["etc/dnf/vars/gpuwright_x_login"] == "me\n"
    assert found["etc/dnf/vars/gpuwright_x_password"] == f"{SECRET}\n"
    assert "username=$gpuwright_x_login\npassword=$gpuwright_x_password\n" in found["etc/x.source"]
    assert SECRET not in found["etc/x.source"]
    again = added(tmp_path, "dnf", None)
    assert list(again) == ["etc/x.source"], "what the mirror asked for is there no more"
    assert "password" not in again["etc/x.source"]


def tasks_of(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        inner = [each for key in ("block", "rescue", "always") for each in row.get(key) or ()]
        yield from tasks_of(inner) if inner else (row,)


def test_no_task_that_has_credentials_is_logged() -> None:
    """A module of ours takes them in an option that is not; a task that has them elsewhere needs `no_log`."""
    files = [yaml.safe_load(path.read_text()) or {} for path in (ROOT / "roles").glob("*/vars/*.yml")]
    rows = [(name, str(value)) for each in files for name, value in each.items()]
    names = [name for name, value in rows if "gpuwright.node.credentials" in value]
    assert names
    ours = {f"gpuwright.node.{name}" for name in TAKING}
    seen = 0
    for path in (ROOT / "roles").glob("*/tasks/*.yml"):
        for task in tasks_of(yaml.safe_load(path.read_text()) or []):
            given = {key: value for key, value in task.items() if key not in ("when", "no_log", "name")}
            seen += any(name in json.dumps(given) for name in names)
            for module in ours & set(given):
                given[module] = {key: value for key, value in given[module].items() if key != "credentials"}
            if any(name in json.dumps(given) for name in (*names, "gpuwright.node.credentials")):
                assert task.get("no_log") is True, (path, task["name"])
    assert seen


@pytest.mark.parametrize("name", TAKING)
def test_the_option_with_credentials_is_in_no_log(name: str, log: list[str]) -> None:
    module = importlib.import_module(f"ansible_collections.gpuwright.node.plugins.modules.{name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact, "taken", lambda module: module.exit_json())
        run_module(module, credentials=[ACCESS], **TAKING[name])
    (invoked,) = (words for words in log if "Invoked with" in words)
    assert "credentials=NOT_LOGGING_PARAMETER" in invoked
    assert SECRET not in invoked


def test_an_observation_has_no_credentials_and_knows_the_place_all_the_same() -> None:
    one = packages.parse_one_line(f"deb [signed-by=/k] {MIRROR}/ ./", "/a.list")
    two = packages.parse_deb822(f"Types: deb\nURIs: {MIRROR}/ http://b/\nSuites: ./\n", "/a.sources")
    three = rpm.parse_yum_repo(f"[x]\nbaseurl={MIRROR}/\npassword={SECRET}\n", "/a.repo")
    assert SECRET not in json.dumps([one, two, three])
    assert [row["uris"][0] for row in (*one, *two, *three)] == ["http://mirror.example/cuda/"] * 3
    assert packages.parse_one_line("deb http://[broken ./ x", "/a.list")[0]["uris"] == ["http://[broken"]
