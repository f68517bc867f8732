"""The Python index of a node: what a real server says in JSON and in HTML, where pip would look, and what no server can make of it."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.packages import pip_settings, python_index, simple_page
from ansible_collections.gpuwright.node.plugins.modules import python_index as module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import wheel_tags
from tests.unit.modules import run_module

SECRET = "s3cr3t"
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html; charset=utf-8"
WHEEL = "torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl"
OLDER = "torch-2.14.0-cp313-cp313-manylinux_2_28_x86_64.whl"
OLDEST = "torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64.whl"
TAGS = {"3.13": wheel_tags.taken("3.13", "2.41", "x86_64")}
ABC = hashlib.sha256(b"abc").hexdigest()

Answer = tuple[int, str, bytes]


def row(name: str, **more: Any) -> dict[str, Any]:
    """A file as PEP 691 has it."""
    return {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": ABC}, **more}


def page(*rows: Any, version: str = "1.1") -> Answer:
    return 200, JSON, json.dumps({"meta": {"api-version": version}, "name": "torch", "files": rows}).encode()


def html(*anchors: str) -> Answer:
    return 200, HTML, "<!DOCTYPE html><html><body>{}</body></html>".format("\n".join(anchors)).encode()


class Server(http.server.ThreadingHTTPServer):
    """Answers by path; what it is asked for, and by whom, stays in ``asked``."""

    daemon_threads = True

    def __init__(self, answers: Mapping[str, Answer | str | Callable[[Any], None]], *, locked: bool = False) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.accepts: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805 - `self` is the server's
                header = handler.headers.get("Authorization")
                who = base64.b64decode(header.split()[1]).decode() if header else None
                self.asked.append((handler.command, handler.path, who))
                self.accepts.append(handler.headers.get("Accept"))
                answer = answers.get(handler.path, (404, HTML, b""))
                if locked and who != f"me:{SECRET}":
                    answer = (401, HTML, b"")
                if callable(answer):
                    answer(handler)
                elif isinstance(answer, str):
                    handler.send_response(302)
                    handler.send_header("Location", answer)
                    handler.end_headers()
                else:
                    status, kind, content = answer
                    handler.send_response(status)
                    handler.send_header("Content-Type", kind)
                    handler.send_header("Content-Length", str(len(content)))
                    handler.end_headers()
                    if handler.command != "HEAD":
                        handler.wfile.write(content)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

            def log_message(handler, *_words: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_arguments: Any) -> None:
        """A client that went away is what a test wanted."""

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def index(self) -> str:
        return f"http://{self.place}/simple"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")

    def make(answers: Mapping[str, Any], **more: Any) -> Server:
        made.append(Server(answers, **more))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def settings(*indexes: str, links: tuple[str, ...] = ()) -> Callable[[], pip_settings.Settings]:
    return lambda: pip_settings.Settings(list(indexes), list(links), None, None)


def question(name: str = "torch", version: str = "2.14.1", **more: Any) -> Any:
    return {"name": name, "version": version, "interpreter": "3.13", "urls": [], "source": False, **more}


def asked(*questions: Any, own: Callable[[], pip_settings.Settings], timeout: float = 20.0, **more: Any) -> list[Any]:
    """The answers, as they come through the gate."""
    options: Any = {
        "questions": [*(questions or [question()])],
        "tags": TAGS,
        "credentials": [],
        "timeout": timeout,
        **more,
    }
    answers = python_index.ask(options, own)
    through = json.loads(gate.admit("python_index", json.dumps({"changed": False, "answers": answers, "trials": []})))
    assert through["answers"] == answers
    return cast("list[Any]", through["answers"])


# --- what a page says -------------------------------------------------------------------------------------------------


def test_json_says_the_file_its_size_its_hash_and_who_may_have_it(serve: Callable[..., Server]) -> None:
    rows = [row(WHEEL, size=7, **{"requires-python": ">=3.10"}), row("torch-2.14.1.tar.gz"), row(OLDER, size=6)]
    server = serve({"/simple/torch/": page(*rows)})
    (answer,) = asked(own=settings(server.index))
    (file,) = answer["fits"]
    assert file == {
        "name": WHEEL, "version": "2.14.1", "size": 7, "sha256": ABC, "yanked": False, "requires_python": ">=3.10",
    }  # fmt: skip
    assert answer["others"] == [{"version": "2.14.0", "requires_python": None}]
    assert (answer["places"], answer["problems"]) == ([server.index], [])
    assert server.asked == [("GET", "/simple/torch/", None)]
    assert str(server.accepts[0]).startswith(JSON)


def test_html_says_the_same_and_a_server_is_asked_for_the_size(serve: Callable[..., Server]) -> None:
    server = serve(
        {
            "/simple/torch/": html(
                f'<a href="../../files/{WHEEL}#sha256={ABC}" data-requires-python="&gt;=3.10">{WHEEL}</a>',
                f'<a href="/files/{OLDER}" data-yanked="broken">{OLDER}</a>',
                f'<a href="/files/{OLDEST}" data-yanked>{OLDEST}</a>',
                '<a href="../">up</a><a name="none">none</a><a href="http://[bad">bad</a>',
            ),
            f"/files/{WHEEL}": (200, "application/zip", b"x" * 123),
        }
    )
    (answer,) = asked(own=settings(server.index + "/"))
    (file,) = answer["fits"]
    assert (file["size"], file["sha256"], file["requires_python"]) == (123, ABC, ">=3.10")
    assert answer["others"] == []
    assert server.asked[1:] == [("HEAD", f"/files/{WHEEL}", None)]


def test_a_page_makes_a_node_look_at_no_file_of_its_own(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"secret")
    server = serve({"/simple/torch/": html(f'<a href="file://{tmp_path}/{WHEEL}">x</a>')})
    (answer,) = asked(own=settings(server.index))
    assert [file["size"] for file in answer["fits"]] == [None]


def test_a_file_that_was_taken_back_is_told_and_is_no_alternative(serve: Callable[..., Server]) -> None:
    server = serve({"/simple/torch/": page(row(WHEEL, yanked="bad", size=1), row(OLDER, yanked=True))})
    (answer,) = asked(own=settings(server.index))
    assert [file["yanked"] for file in answer["fits"]] == [True]
    assert answer["others"] == []


def test_a_base_and_an_escaped_local_version_are_read(serve: Callable[..., Server]) -> None:
    name = "torch-2.14.1%2Bcu130-cp313-cp313-manylinux_2_28_x86_64.whl"
    place = "/other/"
    server = serve({"/simple/torch/": html(f'<base href="{place}">', f'<a href="{name}">x</a>')})
    (answer,) = asked(question(version="2.14.1+cu130"), own=settings(server.index))
    assert answer["fits"][0]["version"] == "2.14.1+cu130"
    assert server.asked[1][:2] == ("HEAD", place + name)


@pytest.mark.parametrize(
    ("found", "wished", "same"),
    [
        ("2.1", "2.1.0", True),
        ("2.1+cu121", "2.1", True),
        ("2.1+cu121", "2.1+cu121", True),
        ("2.1+cu-121", "2.1+cu.121", True),
        ("2.1", "2.1+cu121", False),
        ("2.1+cu118", "2.1+cu121", False),
        ("2.10", "2.1", False),
        ("2.1rc1", "2.1", False),
    ],
)
def test_the_version_that_was_asked_for_is_found_as_pip_finds_it(found: str, wished: str, same: bool) -> None:
    assert python_index.is_asked(found, wished) is same


def test_the_best_wheel_comes_first_and_what_does_not_fit_is_named(serve: Callable[..., Server]) -> None:
    names = [
        "torch-2.14.1-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "torch-2.14.1-cp39-abi3-manylinux_2_28_x86_64.whl",
        "torch-2.14.1-cp313-cp313-manylinux_2_39_x86_64.whl",
        "torch-2.14.1-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.14.1-cp313-cp313-manylinux_2_28_aarch64.whl",
        "torch-2.14.1-cp313-cp313-manylinux_2_42_x86_64.whl",
        "torch-2.14.1-cp313-cp313-win_amd64.whl",
    ]
    server = serve({"/simple/torch/": page(*(row(name, size=1) for name in names))})
    (answer,) = asked(own=settings(server.index))
    assert [file["name"] for file in answer["fits"]] == [names[2], names[0], names[1]]
    assert sorted(answer["unfit"]) == sorted(names[3:])


def test_what_is_built_from_its_source_is_looked_for_as_source(serve: Callable[..., Server]) -> None:
    rows = [row("lit-15.0.0.tar.gz", size=9), row("lit-15.0.0-py3-none-any.whl"), row("lit-16.0.tar.gz")]
    server = serve({"/simple/lit/": page(*rows)})
    (answer,) = asked(question("lit", "15.0.0", source=True), own=settings(server.index))
    assert [(file["name"], file["size"]) for file in answer["fits"]] == [("lit-15.0.0.tar.gz", 9)]
    assert [each["version"] for each in answer["others"]] == ["16.0"]


@pytest.mark.parametrize(
    "rows",
    [
        [row("../../etc/passwd"), row("torch-2.14.1.exe"), row("torch-x y-cp313-cp313-linux_x86_64.whl"), 7, None],
        [{"filename": WHEEL}, {"filename": 7, "url": "x"}, {"url": "x"}, row("other-2.14.1-py3-none-any.whl")],
        [row(f"torch-2.14.1-{'.'.join(['a'] * 80)}-{'.'.join(['b'] * 40)}-c.whl")],
    ],
)
def test_what_is_no_file_of_the_project_is_left_out(serve: Callable[..., Server], rows: list[Any]) -> None:
    server = serve({"/simple/torch/": page(*rows)})
    (answer,) = asked(own=settings(server.index))
    assert answer["fits"] == answer["others"] == answer["problems"] == []


@pytest.mark.parametrize("size", [-1, 1 << 60, 1.5, "7", True, None])
def test_a_size_that_is_none_is_asked_for(serve: Callable[..., Server], size: Any) -> None:
    given = {**row(WHEEL, size=size), "hashes": {"sha256": "Z" * 64}, "requires-python": "'; drop"}
    server = serve({"/simple/torch/": page(given), f"/files/{WHEEL}": (200, "x", b"abc")})
    (answer,) = asked(own=settings(server.index))
    (file,) = answer["fits"]
    assert (file["size"], file["sha256"], file["requires_python"]) == (3, None, None)


@pytest.mark.parametrize(
    "answer",
    [
        (200, JSON, b"{"),
        (200, JSON, b"[]"),
        (200, JSON, b'{"meta": {"api-version": "1.0"}, "files": {}}'),
        (200, JSON, b"[" * 100000),
        (200, "text/plain", b"hello"),
        (200, "application/json", b"{}"),
        page(version="2.0"),
        (500, HTML, b""),
        (401, HTML, b""),
        (403, HTML, b""),
    ],
)
def test_what_is_no_page_says_nothing_of_what_is_there(serve: Callable[..., Server], answer: Answer) -> None:
    server = serve({"/simple/torch/": answer})
    (told,) = asked(own=settings(server.index))
    assert len(told["problems"]) == 1
    assert told["fits"] == []


@pytest.mark.parametrize("error", [AssertionError, NotImplementedError, ValueError])
def test_broken_markup_is_no_page_by_whatever_name_python_calls_it(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def feed(*_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(simple_page._Page, "feed", feed)
    (told,) = asked(own=settings(serve({"/simple/torch/": html()}).index))
    assert "it is broken HTML" in told["problems"][0]


def test_an_index_without_the_project_has_answered(serve: Callable[..., Server]) -> None:
    server = serve({})
    (answer,) = asked(question("Nvidia_Dali.cuda130"), own=settings(server.index))
    assert answer["problems"] == []
    assert server.asked == [("GET", "/simple/nvidia-dali-cuda130/", None)]


def test_an_answer_is_bounded_whatever_a_page_names(serve: Callable[..., Server]) -> None:
    rows = [row(f"torch-1.{number}-py3-none-any.whl") for number in range(3000)]
    rows += [row(f"torch-2.14.1-{number}-py3-none-any.whl", size=1) for number in range(3000)]
    rows += [row(f"torch-2.14.1-{number}-cp27-none-any.whl") for number in range(3000)]
    server = serve({"/simple/torch/": page(*rows)})
    (answer,) = asked(own=settings(server.index))
    assert [len(answer[key]) for key in ("fits", "unfit", "others")] == [100, 40, 200]
    assert answer["others"][0]["version"] == "1.2999"


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_credentials_are_sent_to_their_own_index_and_stand_in_no_answer(serve: Callable[..., Server]) -> None:
    server = serve(
        {"/simple/torch/": html(f'<a href="/files/{WHEEL}">x</a>'), f"/files/{WHEEL}": (200, "x", b"abcd")}, locked=True
    )
    (answer,) = asked(own=settings(f"http://me:{SECRET}@{server.place}/simple/"))
    assert answer["fits"][0]["size"] == 4
    assert {who for _command, _path, who in server.asked} == {f"me:{SECRET}"}
    assert SECRET not in json.dumps(answer)
    assert answer["places"] == [server.index]


def test_credentials_of_the_wish_let_in_at_the_index_that_is_named(serve: Callable[..., Server]) -> None:
    server = serve({"/simple/torch/": page(row(WHEEL, size=1))}, locked=True)
    access = {"machine": server.index, "login": "me", "password": SECRET}
    (answer,) = asked(question(urls=[server.index]), own=settings("http://127.0.0.1:9/never"), credentials=[access])
    assert len(answer["fits"]) == 1
    assert answer["places"] == [server.index]


def test_a_redirect_is_followed_and_carries_no_credentials_on(serve: Callable[..., Server]) -> None:
    other = serve({"/torch/": page(row(WHEEL, size=1, url="x.whl"))})
    server = serve({"/simple/torch/": f"http://{other.place}/torch/"}, locked=True)
    (answer,) = asked(own=settings(f"http://me:{SECRET}@{server.place}/simple"))
    assert len(answer["fits"]) == 1
    assert other.asked == [("GET", "/torch/", None)]
    assert str(other.accepts[0]).startswith(JSON)


def test_one_that_is_not_let_in_says_so_without_its_password(serve: Callable[..., Server]) -> None:
    server = serve({}, locked=True)
    (answer,) = asked(own=settings(f"http://me:wr0ng@{server.place}/simple"))
    assert "401" in answer["problems"][0]
    assert answer["denied"] == [f"http://{server.place}/simple"]
    assert "wr0ng" not in json.dumps(answer)


def test_an_address_that_cannot_be_read_is_told_without_its_password() -> None:
    (answer,) = asked(own=settings(f"http://me:{SECRET}\x01@mirror.example/simple"))
    assert "Expected" in answer["problems"][0]
    assert SECRET not in json.dumps(answer)


def test_of_two_passwords_of_one_machine_each_goes_to_its_own_place_alone(serve: Callable[..., Server]) -> None:
    server = serve({"/a/torch/": html(f'<a href="/files/{WHEEL}">x</a>')}, locked=True)
    access = [
        {"machine": f"http://{server.place}/a", "login": "me", "password": SECRET},
        {"machine": f"http://{server.place}/b", "login": "other", "password": "x"},
    ]
    (answer,) = asked(
        question(urls=[f"http://{server.place}/a"]), own=settings("http://127.0.0.1:9/"), credentials=access
    )
    assert answer["fits"][0]["size"] is None
    assert [who for _command, _path, who in server.asked] == [f"me:{SECRET}", None]


@pytest.mark.parametrize(
    ("url", "trusted", "ignored"),
    [
        ("http://mirror.example/simple", [], True),
        ("http://mirror.example/simple", ["mirror.example"], False),
        ("http://mirror.example:8080/simple", ["mirror.example:8080"], False),
        ("http://mirror.example:8081/simple", ["mirror.example:8080"], True),
        ("https://mirror.example/simple", [], False),
        ("http://127.0.0.1:99/simple", [], False),
        ("http://localhost/simple", [], False),
        ("file:///simple", [], False),
        ("http://[bad", [], False),
    ],
)
def test_what_pip_ignores_is_not_asked(url: str, trusted: list[str], ignored: bool) -> None:
    own = pip_settings.Settings([url], [], None, None, trusted)
    assert own.ignores(url) is ignored
    if ignored:
        (answer,) = asked(own=lambda: own)
        assert "plain HTTP" in answer["problems"][0]


def test_each_page_is_asked_for_once_and_every_index_is(serve: Callable[..., Server]) -> None:
    first, second = serve({"/simple/torch/": page(row(OLDER))}), serve({"/simple/torch/": page(row(WHEEL, size=1))})
    answers = asked(question(), question(version="2.14.0"), own=settings(first.index, second.index))
    assert [[file["name"] for file in answer["fits"]] for answer in answers] == [[WHEEL], [OLDER]]
    assert [path for _command, path, _who in first.asked if path.endswith("/torch/")] == ["/simple/torch/"]


def test_one_index_that_does_not_answer_hides_nothing_of_the_other(serve: Callable[..., Server]) -> None:
    server = serve({"/simple/torch/": page(row(WHEEL, size=1))})
    (answer,) = asked(own=settings(server.index, "http://127.0.0.1:9/simple"))
    assert len(answer["fits"]) == len(answer["problems"]) == 1


# --- a server that does as it likes -----------------------------------------------------------------------------------


def _hang(handler: Any) -> None:
    time.sleep(5)


def _drip(handler: Any) -> None:
    """A header that never ends, a byte at a time: no single read takes long."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
    for _each in range(50):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.1)


def _endless(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", HTML)
    handler.end_headers()
    while True:
        handler.wfile.write(b"<a href='x'>" * 4096)


@pytest.mark.parametrize("answer", [_hang, _drip])
def test_a_server_that_does_not_end_is_left_behind_at_the_time_limit(
    serve: Callable[..., Server], answer: Callable[[Any], None]
) -> None:
    server, good = serve({"/simple/torch/": answer}), serve({"/simple/torch/": page(row(OLDER, size=1))})
    began = time.monotonic()
    (told,) = asked(own=settings(server.index, good.index), timeout=1.0)
    assert time.monotonic() - began < 30
    assert told["problems"]
    assert "within 1 s" in told["problems"][0]
    assert [each["version"] for each in told["others"]] == ["2.14.0"]


def test_an_answer_without_an_end_is_not_read_to_it(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_index, "_PAGE", 1 << 20)
    server = serve({"/simple/torch/": _endless})
    (told,) = asked(own=settings(server.index))
    assert told["problems"] == [f"{server.index} is larger than 1 MiB"]


def test_many_pages_together_are_bounded_too(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_index, "_TOGETHER", 1000)
    large = html(*("x" * 100 for _each in range(8)))
    server = serve({f"/simple/p{number}/": large for number in range(3)})
    told = asked(*(question(f"p{number}") for number in range(3)), own=settings(server.index))
    assert sum(bool(each["problems"]) for each in told) == 2
    assert any("together" in problem for each in told for problem in each["problems"])


# --- pip's own configuration ------------------------------------------------------------------------------------------


def test_the_machines_own_configuration_is_read_as_pip_reads_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first.conf", tmp_path / "second.conf"
    first.write_text("[global]\nindex-url = http://a/simple\nextra-index-url = http://b/simple\n  http://c/simple\n")
    second.write_text(
        "[global]\nINDEX_URL = http://d/simple\ncert = /etc/ca.pem\ntrusted-host = d a:8080\n[install]\nfind-links = /opt/wheels\n"
        "[list]\nindex-url = http://no/\n"
    )
    read = pip_settings.read([str(first), str(second), str(tmp_path / "none.conf")])
    assert read.indexes == ["http://d/simple", "http://b/simple", "http://c/simple"]
    assert (read.links, read.cert, read.proxy) == (["/opt/wheels"], "/etc/ca.pem", None)
    assert read.trusted == ["d", "a:8080"]
    assert read.of(["http://e/"]).indexes == ["http://e/"]
    assert read.of(["http://e/"]).links == ["/opt/wheels"]
    assert read.of([]) == read


def test_without_a_configuration_it_is_pips_default_and_without_an_index_none(tmp_path: Path) -> None:
    read = pip_settings.read([str(tmp_path / "none.conf")], lambda: "http://default/simple")
    assert read.indexes == ["http://default/simple"]
    (tmp_path / "pip.conf").write_text("[global]\nno-index = yes\nfind-links = /opt/wheels\n[install]\nfind-links =\n")
    read = pip_settings.read([str(tmp_path / "pip.conf")])
    assert read.of(["http://e/"]).indexes == []
    assert read.links == ["/opt/wheels"]


def test_variables_of_whoever_runs_it_count_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user.example/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://user.example/simple\n")
    assert pip_settings.read([], lambda: "http://default/simple").indexes == ["http://default/simple"]


def test_pips_default_is_what_pip_itself_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pip._internal.models.index import PyPI

    assert pip_settings.default_index() == PyPI.simple_url
    # An environment without pip is like a node that has only what environments are made with.
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare/bin/python"))
    assert pip_settings.default_index() == PyPI.simple_url
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert pip_settings.default_index() is None


def test_where_there_is_no_pip_to_ask_the_wheel_is_unverified_and_not_missing() -> None:
    own = pip_settings.read([], lambda: None)
    (answer,) = asked(own=lambda: own)
    assert answer["places"] == []
    assert "no index-url is configured" in answer["problems"][0]
    assert own.of(["http://e/"]).unknown is None


def test_a_configuration_that_cannot_be_read_is_a_problem_and_none_of_its_words_are_told(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"index-url = http://me:{SECRET}@mirror.example/\n")
    (answer,) = asked(own=lambda: pip_settings.read([str(tmp_path / "pip.conf")]))
    assert answer["problems"] == [f"pip's configuration {tmp_path}/pip.conf could not be read: it is no configuration"]


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_directory_with_wheels_is_looked_at_with_their_sizes(tmp_path: Path, form: str) -> None:
    (tmp_path / WHEEL).write_bytes(b"x" * 11)
    (tmp_path / "torchvision-0.1-py3-none-any.whl").write_bytes(b"")
    (answer,) = asked(own=settings(links=(form.format(tmp_path), str(tmp_path / "none"))))
    assert [(file["name"], file["size"]) for file in answer["fits"]] == [(WHEEL, 11)]
    assert answer["problems"] == []


def test_an_index_in_the_file_system_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "simple/torch").mkdir(parents=True)
    (tmp_path / "simple/torch/index.html").write_text(f'<a href="{WHEEL}#sha256={ABC}">x</a>')
    (tmp_path / "simple/torch" / WHEEL).write_bytes(b"x" * 5)
    answers = asked(question(), question("jax", "1"), own=settings(f"file://{tmp_path}/simple"))
    assert [file["size"] for file in answers[0]["fits"]] == [5]
    assert (answers[1]["fits"], answers[1]["problems"]) == ([], [])


def test_a_page_of_links_is_one_for_all(serve: Callable[..., Server]) -> None:
    server = serve({"/links": html(f'<a href="/f/{WHEEL}">x</a>', '<a href="/f/jax-1-py3-none-any.whl">x</a>')})
    answers = asked(question(), question("jax", "1"), own=settings(links=(f"http://{server.place}/links",)))
    assert [[file["name"] for file in answer["fits"]] for answer in answers] == [[WHEEL], ["jax-1-py3-none-any.whl"]]


# --- the module and the gate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [False, True])
def test_the_module_answers_in_check_mode_as_well(serve: Callable[..., Server], check: bool) -> None:
    server = serve({"/simple/torch/": page(row(WHEEL, size=1))})
    told = run_module(
        module, check=check, questions=[question(urls=[f"http://me:{SECRET}@{server.place}/simple"])], tags=TAGS
    )
    assert [file["name"] for file in told["answers"][0]["fits"]] == [WHEEL]
    assert SECRET not in json.dumps(told)
    # ansible-core 2.21 tells no arguments unless it is asked for them.
    assert "tags" not in told.get("invocation", {}).get("module_args", {})


def _file(**changes: Any) -> dict[str, Any]:
    file = {"name": WHEEL, "version": "2.14.1", "size": 1, "sha256": ABC, "yanked": False, "requires_python": ">=3.10"}
    return {**file, **changes}


def answer_of(**changes: Any) -> dict[str, Any]:
    """An answer of a node to one question."""
    blank = {"name": "torch", "version": "2.14.1", "places": ["http://mirror.example/simple"], "fits": [_file()]}
    return {
        **blank,
        "unfit": [],
        "others": [{"version": "2.14.0", "requires_python": None}],
        "problems": [],
        "denied": [],
        **changes,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"fits": [_file()] * 101},
        {"unfit": [WHEEL] * 41},
        {"others": [{"version": "1", "requires_python": None}] * 201},
        {"problems": ["x"] * 11},
        {"denied": ["x"] * 11},
        {"fits": [_file(name="../../etc/passwd")]},
        {"fits": [_file(name="{{ lookup('pipe', 'id') }}")]},
        {"fits": [_file(size=-1)]},
        {"fits": [_file(size=1 << 60)]},
        {"fits": [_file(size="1")]},
        {"fits": [_file(sha256="x")]},
        {"fits": [_file(yanked=None)]},
        {"fits": [_file(requires_python="$(id)")]},
        {"fits": [_file(more=1)]},
        {"fits": {}},
        {"fits": None},
        {"unfit": ["a b"]},
        {"others": [{"version": "a b", "requires_python": None}]},
        {"name": "a/b"},
        {"ansible_facts": {}},
    ],
)
def test_what_no_honest_node_answers_is_refused_at_the_gate(changes: Any) -> None:
    good = {"changed": False, "answers": [answer_of()], "trials": []}
    assert json.loads(gate.admit("python_index", json.dumps(good))) == good
    with pytest.raises(gate.Refused):
        gate.admit("python_index", json.dumps({"changed": False, "answers": [answer_of(**changes)], "trials": []}))


def test_words_of_an_index_move_no_cursor() -> None:
    said = {"changed": False, "answers": [answer_of(problems=["\x1b[2Jgone\nnext"])], "trials": []}
    (answer,) = json.loads(gate.admit("python_index", json.dumps(said)))["answers"]
    assert answer["problems"][0].isprintable()


def test_a_file_that_names_too_many_tags_costs_no_time() -> None:
    name = f"torch-2.14.1-{'.'.join('abcdefghij' * 4)}-{'.'.join('abcdefghij' * 4)}-{'.'.join('abcdefghij' * 4)}.whl"
    began = time.process_time()
    files = python_index.files_of(question(), [simple_page.Link(name, "")] * 200, TAGS)
    # Of this process alone: a busy machine makes others wait.
    assert time.process_time() - began < 1
    assert [file.rank for file in files] == [None]
