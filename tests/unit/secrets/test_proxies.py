"""What gpuwright fetches itself goes by the node's proxy, and nobody is told the proxy's password."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import fetch, proxies, wheels
from ansible_collections.gpuwright.node.plugins.modules import driver_file, repository_key
from tests.unit.modules import run_module

SECRET = "s3/cr@3t"
WRITTEN = "s3%2Fcr%403t"
PROXY = f"http://me:{WRITTEN}@proxy.example:3128"


def known(variables: dict[str, str] | None = None, apt: str = "", dnf: str = "") -> proxies.Settings:
    return proxies.Settings(variables or {}, proxies.parse_apt(apt), proxies.parse_dnf(dnf))


def way(url: str, settings: proxies.Settings) -> str | None:
    """Host and port of the proxy."""
    proxy = settings.proxy(url)
    return proxy.place if proxy else None


# Which proxy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("no_proxy", "host", "without"),
    [
        ("", "a.example", False),
        ("a.example", "a.example", True),
        ("a.example", "A.Example.", True),
        ("a.example", "b.a.example", True),
        (".a.example", "a.example", True),
        (".a.example.", "b.a.example", True),
        ("a.example", "ba.example", False),
        ("example", "a.example.org", False),
        ("x, a.example", "a.example", True),
        ("x a.example", "a.example", True),
        ("*", "a.example", True),
        ("x,*", "a.example", False),
        ("*.example", "a.example", False),
        ("a.example:8080", "a.example", False),
        (",,", "a.example", False),
        (".", "a.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.1/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        (".2.3", "10.1.2.3", False),
        ("10.0.0.0/99", "10.0.0.0", False),
        ("[fd00::1]", "fd00::1", True),
        ("fd00::/8", "fd00::1", True),
        ("10.0.0.0/8", "a.example", False),
        ("a.example", "", False),
    ],
)
def test_no_proxy_is_read_as_curl_reads_it(no_proxy: str, host: str, without: bool) -> None:
    assert proxies.bypassed(host, no_proxy) is without


APT = 'Acquire::http "";\nAcquire::http::Proxy "http://all:1";\n'


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("http://a/", {}, None),
        ("file:///a", {"variables": {"all_proxy": "http://p:1"}}, None),
        ("http://[broken", {"variables": {"all_proxy": "http://p:1"}}, None),
        # The variables of the task, then the package manager.
        ("http://a/", {"variables": {"http_proxy": "http://p:1"}, "apt": APT}, "p:1"),
        ("http://a/", {"variables": {"HTTP_PROXY": "http://p:1"}, "apt": APT}, "p:1"),
        ("http://a/", {"variables": {"http_proxy": "http://p:1", "HTTP_PROXY": "http://q:1"}}, "p:1"),
        ("https://a/", {"variables": {"http_proxy": "http://p:1"}, "apt": APT}, "all:1"),
        ("https://a/", {"variables": {"https_proxy": "http://p:1", "all_proxy": "http://q:1"}}, "p:1"),
        ("https://a/", {"variables": {"ALL_PROXY": "http://q:1"}}, "q:1"),
        ("http://a/", {"variables": {"http_proxy": ""}, "apt": APT}, "all:1"),
        ("http://a/", {"variables": {"no_proxy": "a"}, "apt": APT}, None),
        ("http://a/", {"variables": {"NO_PROXY": "a", "http_proxy": "http://p:1"}}, None),
        # What apt 2.6 was seen to do.
        ("https://a/", {"apt": APT}, "all:1"),
        ("https://a/", {"apt": APT + 'Acquire::https::Proxy "";\n'}, "all:1"),
        ("https://a/", {"apt": APT + 'Acquire::https::Proxy "http://s:2/";\n'}, "s:2"),
        ("https://a/", {"apt": APT + 'Acquire::https::Proxy "DIRECT";\n'}, None),
        ("https://a/", {"apt": APT + 'Acquire::https::Proxy "false";\n'}, None),
        ("http://a/", {"apt": APT + 'Acquire::http::Proxy::a "DIRECT";\n'}, None),
        ("https://a/", {"apt": APT + 'Acquire::http::Proxy::a "DIRECT";\n'}, None),
        ("http://a/", {"apt": APT + 'Acquire::https::Proxy::a "DIRECT";\n'}, "all:1"),
        ("http://b/", {"apt": APT + 'Acquire::http::Proxy::a "DIRECT";\n'}, "all:1"),
        ("http://A:8080/", {"apt": 'acquire::HTTP::proxy::A "http://one:3";\n'}, "one:3"),
        (
            "http://a/",
            {"apt": 'Acquire::http::Proxy "http://p:1"\nAcquire::http::Proxy-Auto-Detect "/x";\n"";\n'},
            None,
        ),
        # dnf.conf(5).
        ("https://a/", {"dnf": "[main]\ngpgcheck=1\nproxy = http://d:4 \n"}, "d:4"),
        ("https://a/", {"dnf": "[main]\nproxy=_none_\n"}, None),
        ("https://a/", {"dnf": "[main]\nproxy=\n"}, None),
        ("https://a/", {"dnf": "[main]\nproxy\n=x\n proxy=http://d:4\n#proxy=http://d:4\n[=\n"}, None),
        ("https://a/", {"dnf": "[main]\n[x]\nproxy=http://d:4\n"}, None),
        ("https://a/", {"dnf": "proxy=http://d:4\n"}, None),
        # How people write a proxy.
        ("http://a/", {"variables": {"http_proxy": "p:3128"}}, "p:3128"),
        ("http://a/", {"variables": {"http_proxy": "http://p"}}, "p:80"),
        ("http://a/", {"variables": {"http_proxy": "https://p"}}, "p:443"),
        ("http://a/", {"variables": {"http_proxy": "http://[fd00::1]:1"}}, "[fd00::1]:1"),
    ],
)
def test_the_first_who_names_a_proxy_counts(url: str, given: dict[str, Any], expected: str | None) -> None:
    assert way(url, known(**given)) == expected


@pytest.mark.parametrize(
    "value",
    [
        f"http://me:{SECRET}@proxy:3128",  # raw
        f"http://me:1/{SECRET}@proxy:3128",
        f"http://me:{WRITTEN}@proxy:none",
        f"http://me:{WRITTEN}@proxy:99999",
        f"http://me:{WRITTEN}@",
        f"socks5h://me:{WRITTEN}@proxy:1080",
        f"http://me:{WRITTEN}@pro xy:3128",
        f"http://me:{WRITTEN}@proxy:3128\r\nX: y",
        f"http://me:{WRITTEN}@[broken",
        f"me:{SECRET}@proxy",
    ],
)
@pytest.mark.parametrize("name", ["http_proxy", "apt", "dnf"])
def test_a_proxy_that_cannot_be_read_is_refused_by_who_named_it_and_nothing_of_it_is_told(
    name: str, value: str
) -> None:
    source = {
        "http_proxy": proxies.Settings({"http_proxy": value}, {}, {}),
        "apt": proxies.Settings({}, {"http::proxy": value}, {}),
        "dnf": proxies.Settings({}, {}, {"proxy": value}),
    }[name]
    with pytest.raises(proxies.ProxyError, match=r"^Expected .* Found .* What to do") as refused:
        source.proxy("http://a/")
    told = str(refused.value)
    assert {"http_proxy": "http_proxy", "apt": "Acquire::http::Proxy", "dnf": "/etc/dnf/dnf.conf"}[name] in told
    assert not any(part in told for part in ("s3", "3t", "me:", "1080"))


@pytest.mark.parametrize(
    "settings",
    [
        known({"http_proxy": PROXY}),
        known(apt=f'Acquire::http::Proxy "{PROXY}";\n'),
        known(dnf=f"[main]\nproxy={PROXY}\n"),
        known(dnf=f"[main]\nproxy=http://proxy.example:3128\nproxy_username = me\nproxy_password={SECRET}\n"),
    ],
    ids=["variable", "apt", "dnf", "dnf apart"],
)
def test_credentials_are_decoded_for_the_proxy_and_told_to_nobody(settings: proxies.Settings) -> None:
    proxy = settings.proxy("http://a/")
    assert proxy is not None
    assert proxy.header == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert proxy.secret_url == PROXY
    assert str(proxy).startswith("the proxy http://proxy.example:3128 (")
    assert not any(part in f"{proxy}" for part in ("me:", "s3", "3t"))


def test_a_user_alone_is_written_so_that_pip_reads_it() -> None:
    proxy = known({"http_proxy": "http://token@p:1"}).proxy("http://a/")
    assert proxy is not None
    assert (proxy.secret_url, proxy.login, proxy.password) == ("http://token:@p:1", "token", "")


@pytest.mark.parametrize(
    ("urls", "settings", "expected"),
    [
        (["https://a/"], known(), {}),
        (["https://a/"], known({"no_proxy": "b"}), {}),
        ([], known(apt=APT), {"http_proxy": "http://all:1", "https_proxy": "http://all:1", "no_proxy": ""}),
        (["http://a/"], known(apt=f'Acquire::http::Proxy::a "{PROXY}";\n'), {"http_proxy": PROXY, "no_proxy": ""}),
        (
            ["https://a/", "https://b/"],
            known({"NO_PROXY": "x,y", "https_proxy": "p:1"}, APT + 'Acquire::http::Proxy::c "DIRECT";\n'),
            {"https_proxy": "http://p:1", "http_proxy": "http://all:1", "no_proxy": "x,y,c"},
        ),
        (
            ["https://a/", "https://b/"],
            known(apt='Acquire::http::Proxy::b "http://one:1";\n'),
            {"https_proxy": "http://one:1", "no_proxy": "a"},
        ),
    ],
)
def test_a_program_that_knows_only_variables_is_led_the_same_way(
    urls: list[str], settings: proxies.Settings, expected: dict[str, str]
) -> None:
    assert proxies.variables(urls, settings) == expected


def test_a_node_with_dnf_is_asked_for_dnfs_file_and_one_with_apt_for_apts_settings(tmp_path: Path) -> None:
    (tmp_path / "etc/dnf").mkdir(parents=True)
    (tmp_path / "etc/dnf/dnf.conf").write_text("[main]\nproxy=http://d:4\n")

    def apt(_argv: Any, **_more: Any) -> Result:
        return Result(0, APT, "", 0.0, None)

    host = Host(str(tmp_path))
    assert way("http://a/", proxies.settings({}, host, apt)) is None
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    assert way("http://a/", proxies.settings({}, host, apt)) == "d:4"
    (tmp_path / "var/lib/dpkg").mkdir()
    (tmp_path / "var/lib/dpkg/status").touch()
    assert way("http://a/", proxies.settings({}, host, apt)) == "all:1"
    assert way("http://a/", proxies.settings({}, host, lambda *_, **__: Result(100, APT, "E:", 0.0, None))) is None


# Who fetches ----------------------------------------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """A proxy that answers for every host itself and asks for a password; without one in `wanted` a plain server."""

    def __init__(self, wanted: str | None, pages: dict[str, tuple[int, str, bytes]]) -> None:
        self.asked: list[tuple[str, str, str | None]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805 - `self` is the server's
                self.asked.append((handler.command, handler.path, handler.headers.get("Proxy-Authorization")))
                good = wanted is None or handler.headers.get("Proxy-Authorization") == wanted
                status, to, content = pages.get(handler.path, (404, "", b"")) if good else (407, "", b"")
                handler.send_response(status)
                if to:
                    handler.send_header("Location", to)
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)

            do_CONNECT = do_GET  # noqa: N815 - as the method is called

            def log_message(handler, *_words: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


LETS_IN = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
Make = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes servers, on a machine on which nobody names a proxy yet."""
    made: list[Server] = []
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def make(wanted: str | None = LETS_IN, **pages: Any) -> Server:
        made.append(Server(wanted, {path.replace("!", "/"): page for path, page in pages.items()}))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()
        each.server_close()


@pytest.fixture
def told_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Names a proxy in apt's own settings, or in the variables of the task."""

    def tell(source: str, server: Server, password: str = WRITTEN) -> None:
        url = f"http://me:{password}@{server.place}"
        if source == "apt":
            (tmp_path / "apt.conf").write_text(f'Acquire::http::Proxy "{url}";\n')
            monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
        else:
            monkeypatch.setenv("http_proxy", url)
            monkeypatch.setenv("HTTPS_PROXY", url)

    return tell


def secretless(*told: Any) -> None:
    text = json.dumps([str(each) for each in told])
    assert not any(form in text for form in (SECRET, WRITTEN, LETS_IN.split()[1], "wr0ng"))


SOURCES = pytest.mark.parametrize("source", ["apt", "variables"])


@SOURCES
def test_a_key_is_fetched_by_the_proxy_with_its_password(
    serve: Make, told_by: Callable[..., None], source: str
) -> None:
    proxy = serve(**{"http:!!keys.example!key": (200, "", b"the key")})
    told_by(source, proxy)
    assert fetch.fetch("http://keys.example/key", 5) == b"the key"
    assert proxy.asked == [("GET", "http://keys.example/key", LETS_IN)]


@SOURCES
def test_an_address_with_tls_is_asked_for_through_a_tunnel(
    serve: Make, told_by: Callable[..., None], source: str
) -> None:
    proxy = serve()
    told_by(source, proxy)
    with pytest.raises(fetch.FetchError, match=r"by the proxy http://127.0.0.1:\d+ \(.*404") as failed:
        fetch.fetch("https://keys.example/key", 5)
    assert proxy.asked == [("CONNECT", "keys.example:443", LETS_IN)]
    secretless(failed.value)


def test_what_apt_reaches_without_a_proxy_is_asked_for_without_one(
    serve: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy, mirror = serve(), serve(None, **{"!key": (200, "", b"the key")})
    settings = f'Acquire::http::Proxy "http://{proxy.place}"; Acquire::http::Proxy::127.0.0.1 "DIRECT";\n'
    (tmp_path / "apt.conf").write_text(settings)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    assert fetch.fetch(f"http://{mirror.place}/key", 5) == b"the key"
    assert proxy.asked == []


@SOURCES
def test_a_redirect_goes_its_own_way_and_another_host_never_hears_the_proxys_password(
    serve: Make, told_by: Callable[..., None], monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    inside = serve(None, **{"!key": (200, "", b"the key")})
    proxy = serve(**{"http:!!keys.example!moved": (302, f"http://{inside.place}/key", b"")})
    told_by(source, proxy)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch.fetch("http://keys.example/moved", 5) == b"the key"
    assert inside.asked == [("GET", "/key", None)]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the modules write into the system's log."""
    written: list[str] = []
    monkeypatch.setattr("ansible.module_utils.basic.has_journal", False)
    monkeypatch.setattr("syslog.syslog", lambda *words: written.append(str(words)))
    return written


def runfile(path: Path, content: bytes, *addresses: str, **more: Any) -> dict[str, Any]:
    return run_module(
        driver_file,
        addresses=list(addresses),
        sha256=hashlib.sha256(content).hexdigest(),
        path=str(path),
        timeout=5,
        **more,
    )


@SOURCES
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_message_and_no_log_has_the_proxys_password(
    serve: Make, told_by: Callable[..., None], log: list[str], tmp_path: Path, source: str, scheme: str
) -> None:
    for password in ("wr0ng", WRITTEN):
        told_by(source, serve(), password)
        url = f"{scheme}://keys.example/key"
        key = run_module(repository_key, url=url, fingerprint="A" * 40, path=str(tmp_path / "k"), timeout=5)
        file = runfile(tmp_path / "x.run", b"driver", url)
        assert key["failed"]
        assert file["failed"]
        assert "by the proxy http://127.0.0.1:" in key["msg"]
        assert "by the proxy http://127.0.0.1:" in file["msg"]
        assert ("407" if password == "wr0ng" else "404") in key["msg"]
        secretless(key, file, log)


def test_a_proxy_that_does_not_answer_is_named(serve: Make, told_by: Callable[..., None]) -> None:
    gone = serve()
    gone.shutdown()
    gone.server_close()
    told_by("apt", gone)
    with pytest.raises(
        fetch.FetchError, match=r"by the proxy http://127.0.0.1:\d+ \(Acquire::http::Proxy of apt\)"
    ) as failed:
        fetch.fetch("http://keys.example/key", 5)
    secretless(failed.value)


def test_a_proxy_that_cannot_be_read_ends_the_fetch_with_who_named_it(
    serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(None, **{"!key": (200, "", b"the key")})
    monkeypatch.setenv("http_proxy", f"socks5h://me:{WRITTEN}@proxy:1080")
    with pytest.raises(fetch.FetchError, match="http_proxy of the environment") as failed:
        fetch.fetch(f"http://{server.place}/key", 5)
    secretless(failed.value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch.fetch(f"http://{server.place}/key", 5) == b"the key"


# The driver's file ----------------------------------------------------------------------------------------------------


@SOURCES
def test_the_drivers_file_comes_by_the_proxy_from_the_first_address_that_has_it(
    serve: Make, told_by: Callable[..., None], tmp_path: Path, source: str
) -> None:
    content = b"driver" * 500_000
    proxy = serve(**{"http:!!two.example!x.run": (200, "", content), "http:!!one.example!x.run": (403, "", b"no")})
    told_by(source, proxy)
    path = tmp_path / "x.run"
    addresses = ("http://one.example/x.run", "http://two.example/x.run", "http://three.example/x.run")
    assert runfile(path, content, *addresses)["changed"]
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert [row[1] for row in proxy.asked] == list(addresses[:2])
    again = runfile(path, content, *addresses)
    assert not again["changed"]
    assert len(proxy.asked) == 2
    assert sorted(each.name for each in tmp_path.glob("x*")) == ["x.run"]


def test_in_check_mode_nothing_is_downloaded(serve: Make, tmp_path: Path) -> None:
    server = serve(None)
    path = tmp_path / "x.run"
    assert runfile(path, b"x", f"http://{server.place}/x.run", check=True)["changed"]
    assert server.asked == []
    path.write_bytes(b"x")
    assert not runfile(path, b"x", f"http://{server.place}/x.run", check=True)["changed"]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ((404, "", b""), r"Found it at none: http://\S+ answered 404 Not Found. What to do: ask for another version"),
        (
            (200, "", b"other"),
            r"Found d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa at .*It was not run",
        ),
        ((500, "", b""), r"^Expected to fetch the file for .*answered 500"),
    ],
    ids=["absent", "changed", "broken"],
)
def test_without_the_expected_file_nothing_stays_behind(
    serve: Make, tmp_path: Path, page: tuple[int, str, bytes], expected: str
) -> None:
    server = serve(None, **{"!x.run": page})
    (tmp_path / "x.run").write_bytes(b"before")
    answer = runfile(tmp_path / "x.run", b"driver", f"http://{server.place}/x.run")
    assert answer["failed"]
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(answer["msg"])
    assert [(each.name, each.read_bytes()) for each in tmp_path.glob("x*")] == [("x.run", b"before")]


def test_a_file_that_ends_too_early_is_no_file(tmp_path: Path, serve: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(None, **{"!x.run": (200, "", b"driver")})
    sent = http.server.BaseHTTPRequestHandler.send_header

    def longer(handler: Any, name: str, value: str) -> None:
        sent(handler, name, "100" if name == "Content-Length" else value)

    monkeypatch.setattr(http.server.BaseHTTPRequestHandler, "send_header", longer)
    answer = runfile(tmp_path / "x.run", b"driver", f"http://{server.place}/x.run")
    assert "94 bytes to come" in answer["msg"]
    assert list(tmp_path.glob("x*")) == []


# pip ------------------------------------------------------------------------------------------------------------------


@SOURCES
def test_pip_is_told_the_proxy_in_variables_and_in_no_argument(
    serve: Make, told_by: Callable[..., None], tmp_path: Path, source: str
) -> None:
    given: list[tuple[Any, dict[str, Any]]] = []

    def run(argv: Any, **more: Any) -> Result:
        given.append((argv, more))
        return Result(1, "", "ERROR: no", 0.0, None)

    told_by(source, serve())
    empty: dict[str, Any] = {name: [] for name in ("constraints", "wheels", "credentials", "from_source")}
    options: Any = {**empty, "environment": str(tmp_path), "requirements": ["jax"], "record": False, "pip": None}
    with pytest.raises(wheels.PipError) as failed:
        wheels.install(options | {"index_url": "https://index.example/simple", "dependencies_url": None}, run)
    for argv, more in given:
        assert more["env"]["https_proxy"].startswith(f"http://me:{WRITTEN}@127.0.0.1:")
        secretless(argv)
    secretless(failed.value)
    assert len(given) == 2


def test_a_proxy_that_pip_cannot_go_by_is_a_failure_before_it_runs(
    serve: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve()
    monkeypatch.setenv("https_proxy", f"socks5h://me:{WRITTEN}@proxy:1080")
    empty: dict[str, Any] = {name: [] for name in ("constraints", "wheels", "credentials", "from_source")}
    options: Any = {**empty, "environment": str(tmp_path), "requirements": ["jax"], "record": False, "pip": None}
    with pytest.raises(wheels.PipError, match="Expected https_proxy of the environment") as failed:
        wheels.install(options | {"index_url": "https://index.example/simple", "dependencies_url": None})
    assert failed.value.gave_up
    secretless(failed.value)
