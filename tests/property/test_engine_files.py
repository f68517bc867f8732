"""The configuration of a container engine, whatever its owner wrote there: each foreign key stays, a broken file is never written."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import tables
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import (
    containerd,
    docker,
    toml,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.daemon_json import DAEMON_JSON

CRI = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_names = st.sampled_from(
    ["root", "state", "nvidia", "runc", "a.b", "ü", "x y", "options", "enable_cdi", "version", 'q"']
)
_texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
_scalars = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), _texts, st.floats(allow_nan=False, allow_infinity=False)
)
_values = st.one_of(_scalars, st.lists(_scalars, max_size=3))
_tables = st.recursive(
    st.dictionaries(_names, _values, max_size=4),
    lambda inner: st.dictionaries(_names, st.one_of(_values, inner), max_size=4),
    max_leaves=12,
)


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """A file as people write them: some with sections of what serves Kubernetes, with comments, indents and ends of lines of any kind."""
    version = draw(st.sampled_from([None, 2, 3]))
    says: dict[str, Any] = {} if version is None else {"version": version}
    says |= {key: value for key, value in draw(_tables).items() if key not in ("version", "plugins")}
    runtimes = draw(
        st.sampled_from(
            [
                {},
                {"runc": {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}}},
                {"own": {"x": 1}},
            ]
        )
    )
    serves = {**draw(_tables), "containerd": {"default_runtime_name": draw(_texts), "runtimes": runtimes}}
    if draw(st.booleans()):
        says["plugins"] = {CRI[version or 1]: serves, "io.containerd.internal.v1.opt": {"path": "/opt"}}
    tables = toml.flat(says)
    indent, end = draw(st.sampled_from(["", "  ", "\t"])), draw(st.sampled_from(["\n", "\r\n"]))
    comment = draw(st.sampled_from(["", "# ours", "  # [plugins.cri] ", "\n"]))
    lines = [f"{indent}{line}" for line in toml.rendered(tables).splitlines() if line]
    spread = [each for line in lines for each in ([line, comment] if comment else [line])]
    return end.join(spread) + draw(st.sampled_from(["", end]))


def kept(now: Any, before: Any, touched: tuple[tuple[str, ...], ...], path: tuple[str, ...] = ()) -> bool:
    """Whether each key is there with its value, but for those that were asked for."""
    if path in touched:
        return True
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            key in now and kept(now[key], value, touched, (*path, key)) for key, value in before.items()
        )
    return bool(now == before)


@given(configurations(), st.sampled_from(["1.6.20", "1.7.24", "2.1.0"]), st.booleans())
@example("", "1.7.24", False)
def test_each_key_of_containerds_configuration_stays_and_each_byte_comes_back(
    text: str, version: str, default: bool
) -> None:
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
        raise
    try:
        new, own = containerd.configured(text, version, default=default)
    except toml.Unmergeable:
        return
    now = tomllib.loads(new)
    section = ("plugins", CRI.get(before.get("version", 1 if before else 2), CRI[3]))
    touched: tuple[tuple[str, ...], ...] = ((*section, "enable_cdi"), (*section, "containerd", "default_runtime_name"))
    touched += ((*section, "containerd", "runtimes", "nvidia", "options", "BinaryName"),)
    assert kept(now, before, touched)
    assert toml.restored(new) == text
    assert containerd.configured(new, version, default=default) == (new, own)
    nvidia = tables.table(
        tables.combined(now, tomllib.loads(own)), *section, "containerd", "runtimes", "nvidia", "options"
    )
    assert nvidia["BinaryName"]


@given(configurations(), st.data())
def test_a_broken_configuration_of_containerd_is_never_written(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    broken = (
        text[:place] + data.draw(st.sampled_from(["[", '"', "=", "'''", "]", "\x00", "a = 1\na = 2\n"])) + text[place:]
    )
    try:
        tomllib.loads(broken)
    except tomllib.TOMLDecodeError:
        pass
    else:
        assume(False)
    with pytest.raises(toml.Unmergeable, match="no valid TOML"):
        containerd.configured(broken, "1.7.24", default=True)


_json = st.recursive(
    st.one_of(st.none(), _scalars),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=10,
)
_foreign = st.dictionaries(
    st.one_of(_texts, st.sampled_from(["runtimes", "features", "log-opts", "default-runtime"])), _json, max_size=5
)


@given(_foreign, st.booleans())
def test_each_key_of_dockers_configuration_stays(before: dict[str, Any], default: bool) -> None:
    now = json.loads(json.dumps(docker.with_runtime(before, {"default-runtime": "nvidia"} if default else {})))
    assert docker.has_runtime({"daemon_json": now})  # type: ignore[typeddict-item] # no more of it is looked at
    touched = (("runtimes", "nvidia"), *([("default-runtime",)] if default else []))
    # What stands in the place of the runtimes and is no object is no runtime: Docker would not start with it.
    touched += () if isinstance(before.get("runtimes"), dict) else (("runtimes",),)
    assert kept(now, json.loads(json.dumps(before)), touched)
    assert docker.with_runtime(now, {"default-runtime": "nvidia"} if default else {}) == now


@given(_foreign, _foreign)
def test_what_was_put_into_a_table_is_taken_out_again_to_the_last_key(
    before: dict[str, Any], wished: dict[str, Any]
) -> None:
    put = tables.lacking(before, wished)
    now = tables.combined(before, wished)
    had = tables.replaced(before, put)
    assert tables.lacking(now, wished) == {}
    assert tables.taken_out(now, put, had) == before
    assert tables.taken_out({**now, "of others": 1}, put, had) == {**before, "of others": 1}


@given(_foreign, st.data())
def test_a_broken_configuration_of_docker_is_never_written(before: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(before, indent=2)
    place = data.draw(st.integers(0, len(text)))
    broken = text[:place] + data.draw(st.sampled_from(["{", '"', ",", "]", "\x00", "//"])) + text[place:]
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, DAEMON_JSON[1:])
        path.parent.mkdir(parents=True)
        path.write_text(broken, encoding="utf-8")
        seen = containers.observe(Host(root), {})["docker"]
    try:
        there = json.loads(broken)
    except ValueError:
        there = None
    assert seen["daemon_json"] == there
    facts: Any = {"containers": {"docker": seen}, "unknown": {}}
    assert (docker.refusal(facts) is None) is isinstance(there, dict)
