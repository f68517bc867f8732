"""The reader of a Python index, against one that is made of files."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tools import compat_index
from tools.compat_index import IndexProblem, PythonIndex, RemoteFile

from .conftest import Shelf


def test_files_of_a_project_come_with_all_that_the_page_says(shelf: Shelf) -> None:
    shelf.put("torch", "2.1.0", "cp311", "cp312", "cp312-cp312-manylinux2014_aarch64", day="2023-10-04")
    shelf.put("torch", "2.0.0", "cp311-cp311-win_amd64", yanked=True)
    files = shelf.index().files("torch")
    assert [str(each.version) for each in files] == ["2.0.0", "2.1.0", "2.1.0", "2.1.0"]
    assert (files[0].yanked, files[0].arches) == (True, frozenset())
    assert {each.uploaded for each in files[1:]} == {"2023-10-04"}
    assert {arch for each in files for arch in each.arches} == {"x86_64", "aarch64"}
    assert {python for each in files for python in each.pythons} == {"3.11", "3.12"}


def test_a_page_in_html_says_the_same(shelf: Shelf) -> None:
    shelf.form = "html"
    shelf.put("torch", "2.1.0", "cp311", day="2023-10-04", yanked=True)
    (file,) = shelf.index().files("torch")
    assert (file.version, file.uploaded, file.yanked) == (Version("2.1.0"), "2023-10-04", True)
    assert file.sha256
    assert shelf.index().metadata(file).requires == ()


def test_a_project_that_the_index_lacks_has_no_files(shelf: Shelf) -> None:
    assert shelf.index().files("torch") == []


def test_an_index_that_does_not_answer_is_named_as_the_problem(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    session = compat_index.session
    monkeypatch.setattr(compat_index, "session", lambda: session(retries=0))
    index = PythonIndex("http://127.0.0.1:9/simple/", shelf.cache)
    with pytest.raises(IndexProblem, match="page of torch"):
        index.files("torch")


def test_metadata_beside_the_wheel_is_read_and_the_wheel_is_not(shelf: Shelf) -> None:
    shelf.beside = True
    shelf.put("jax", "0.7.0", requires=["numpy>=2.0"], extras={"cuda12": ["jaxlib==0.7.0"]})
    index = shelf.index()
    said = index.metadata(index.files("jax")[0])
    assert said.extras == ("cuda12",)
    assert said.needs("numpy") == ">=2.0"
    assert said.needs("jaxlib") is None
    assert said.needs("jaxlib", extra="cuda12") == "==0.7.0"
    assert not [name for name, _ in shelf.server.asked if name.endswith(".whl")]


def test_without_it_a_wheel_is_read_by_ranges_and_never_whole(shelf: Shelf) -> None:
    shelf.put("jax", "0.7.0", requires=["numpy>=2.0"], size=500_000)
    index = shelf.index()
    assert index.metadata(index.files("jax")[0]).needs("numpy") == ">=2.0"
    asked = [ranged for name, ranged in shelf.server.asked if name.endswith(".whl")]
    assert asked
    assert all(asked)


def test_a_small_wheel_is_loaded_whole_where_there_are_no_ranges(shelf: Shelf) -> None:
    shelf.server.ranges = False
    shelf.put("jax", "0.7.0", requires=["numpy>=2.0"])
    index = shelf.index()
    assert index.metadata(index.files("jax")[0]).needs("numpy") == ">=2.0"


def test_a_large_wheel_is_not_loaded_where_there_are_no_ranges(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat_index, "SMALL", 10)
    shelf.server.ranges = False
    shelf.put("jax", "0.7.0")
    index = shelf.index()
    with pytest.raises(IndexProblem, match=r"jax-0\.7\.0.*no ranges"):
        index.metadata(index.files("jax")[0])


def test_what_was_read_once_is_not_asked_for_again(shelf: Shelf) -> None:
    shelf.put("jax", "0.7.0", requires=["numpy>=2.0"])
    index = shelf.index()
    (file,) = index.files("jax")
    index.metadata(file)
    shelf.server.asked.clear()
    assert shelf.index().metadata(file).needs("numpy") == ">=2.0"
    assert shelf.server.asked == []


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_remote_file_has_the_bytes_of_the_file(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(compat_index, "BLOCK", block)
    content = bytes(number * number % 251 for number in range(700))
    (shelf.folder / "file").write_bytes(content)
    with RemoteFile(compat_index.session(), f"{shelf.server.address}/file") as remote:
        for start, size in ((0, 5), (3, 300), (350, 1), (690, 100), (0, -1), (700, 4)):
            remote.seek(start)
            assert remote.read(size) == (content[start:] if size < 0 else content[start : start + size])
            assert remote.tell() == (700 if size < 0 else min(start + size, 700))


@pytest.mark.parametrize(
    ("tag", "pythons"),
    [
        ("cp312", {"3.12"}),
        ("cp313-cp313t-manylinux_2_28_x86_64", set()),
        ("cp313-abi3-manylinux_2_28_x86_64", {"3.13", "3.14", "3.15"}),
        ("py3-none-manylinux_2_28_x86_64", set()),
    ],
)
def test_pythons_are_those_with_the_interpreter_lock(shelf: Shelf, tag: str, pythons: set[str]) -> None:
    shelf.put("torch", "2.9.0", tag)
    assert shelf.index().files("torch")[0].pythons == pythons


def test_the_index_is_the_one_that_pip_is_configured_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    assert compat_index.address() == "https://index.example/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("HOME", "/nonexistent")
    assert compat_index.address().endswith("/simple/")


def test_certificates_are_those_that_pip_is_told_to_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("PIP_CERT", "/etc/pip.pem")
    assert compat_index.session().verify == "/etc/pip.pem"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/requests.pem")
    assert compat_index.session().verify == "/etc/requests.pem"
