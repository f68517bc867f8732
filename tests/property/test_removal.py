"""A removal, for any record of a node, any observation, and any answer that does not come: it takes what is ours, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import date
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal, removal_work
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from tests.property.naive.removal import DATA, PROGRAMS, Node, faults
from tests.property.test_gate import DEFINITIONS, container, places, resolved
from tests.unit.plan import nodes

_PACKAGES = (
    *("docker.io", "docker-cli", "containerd", "docker-ce", "docker-ce-cli", "containerd.io", "podman", "dkms", "fio"),
    *(
        "nvidia-driver-cuda",
        "libcuda1",
        "nvidia-persistenced",
        "datacenter-gpu-manager-4-core",
        "grafana",
        "prometheus",
    ),
    *("grub-pc", "gpg-pubkey-d42d0685-62589a51", "nvidia-container-toolkit-base", "linux-image-6.12.94+deb13-amd64"),
)
#: What keeps data of its users, as it is installed.
_PROGRAMS = (
    *((), ("docker.io", "docker-cli", "containerd"), ("docker-ce", "docker-ce-cli", "containerd.io")),
    *(("docker.io",), ("containerd",), ("podman",), ("dkms",)),
)
_FILES = (
    *("/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources", "/usr/share/keyrings/gpuwright-nvidia.asc"),
    *("/etc/yum.repos.d/gpuwright-nvidia-cuda.repo", "/etc/modprobe.d/gpuwright-nouveau.conf"),
    *("/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/systemd/system/gpuwright-mig.service"),
    *("/etc/default/grub.d/gpuwright.cfg", "/etc/dkms/nvidia.conf", "/etc/gpuwright/mig.json"),
)
#: What a record may be made to name.
_FOREIGN = (
    *("/etc/passwd", "/etc/apt/sources.list", "/etc/apt/sources.list.d/../../passwd", "/home/alice/gpuwright.txt"),
    *("-rf", "*", "", "/opt", "/usr/lib", "/opt/gpuwright/../alice/pytorch", "ssh.service"),
)
_ENVIRONMENTS = ("/opt/gpuwright/pytorch", "/opt/gpuwright/jax", "/opt/pytorch", "/data/ai/pytorch", "/home/alice/ml/x")
#: What a copy may be of that was put aside, and what is in its place today (removal_answers).
_ASIDE = ("/etc/apt/sources.list", "/etc/passwd", "/etc/yum.repos.d/cuda.repo")
_NOW = ("absent", "same", "left", "marked", "other")
_UNITS = ("gpuwright-mig.service", "nvidia-persistenced.service", "docker.service", "containerd.service")
_STATES = ("enabled", "disabled", "not-found", "masked", None)
#: `docker system df` before its last line, as Docker 26 prints it.
_DISK_USAGE = (
    "TYPE            TOTAL     ACTIVE    SIZE      RECLAIMABLE",
    *(f"{kind:<15} 0         0         0B        0B" for kind in ("Images", "Containers", "Local Volumes")),
)
#: What each program says where it holds nothing, and where it holds something, by kind.
_SAYS = {
    ("docker", "containers"): ([], ["4f66ad9a"]),
    ("docker", "images"): ([], ["moby"]),
    ("docker", "volumes"): ([], ["users"]),
    ("docker", "networks"): ([], ["9a1c"]),
    ("docker", "plugins"): ([], ["7c2e"]),
    ("docker", "builds"): (
        [*_DISK_USAGE, "Build Cache     0         0         0B        0B"],
        [*_DISK_USAGE, "Build Cache     3         0         1.2kB     1.2kB"],
    ),
    ("ctr", "namespaces"): (["moby"], ["moby", "k8s.io"]),
    ("ctr", "containers"): ([], ["4f66ad9a"]),
    ("ctr", "images"): ([], ["docker.io/library/x:1"]),
    ("ctr", "content"): ([], ["sha256:6667b2d1"]),
    ("podman", "containers"): ([], ["4f66ad9a"]),
    ("podman", "images"): ([], ["x"]),
    ("podman", "volumes"): ([], ["users"]),
    ("dkms", "modules"): (
        ["nvidia/580.126.20, 6.12.94+deb13-amd64, x86_64: installed"],
        ["users-module/1.0, 6.12.94+deb13-amd64, x86_64: installed"],
    ),
}
#: How each kind is asked for.
_WORDS = {
    "docker": {
        "ps": "containers",
        "image": "images",
        "volume": "volumes",
        "network": "networks",
        "plugin": "plugins",
        "system": "builds",
    },
    "ctr": {"namespaces": "namespaces", "containers": "containers", "images": "images", "content": "content"},
    "podman": {"ps": "containers", "images": "images", "volume": "volumes"},
    "dkms": {"status": "modules"},
}
_REQUEST = Request(host="node", today=date(2026, 11, 20), verb="remove")
_STATE: dict[str, Any] = {
    "version": "550.1",
    "modules": "open",
    "source": "distro",
    "holds": [],
    "stack": {},
    "kernel": None,
    "proven": True,
    "time": "2026-01-01T00:00:00Z",
}


# --- what is drawn -----------------------------------------------------------------------------------------------------


def _some(values: tuple[str, ...], most: int = 6) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=most, unique=True)


def _unknowable() -> Iterator[tuple[Any, ...]]:
    """Where in an observation null stands for what nobody could see."""
    for path in places(nodes.bare()):
        schema: Any = DEFINITIONS["facts"]
        for key in path:
            held = container(schema, key)
            named = held.get("properties", {}).get(key) or held.get("additionalProperties")
            schema = held.get("items") if isinstance(key, int) else named
        if path and _nullable(schema):
            yield path


def _nullable(schema: Any) -> bool:
    schema = resolved(schema)
    types = schema.get("type", ())
    return (
        any(map(_nullable, schema.get("anyOf", ())))
        or types == "null"
        or "null" in types
        or None in schema.get("enum", ())
    )


UNKNOWABLE = tuple(_unknowable())


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """What a node keeps of earlier runs; a rare one names what no run can have written."""
    before = draw(st.one_of(st.none(), _some(_PACKAGES, 3)))
    brought = [*dict.fromkeys([*draw(st.sampled_from(_PROGRAMS)), *draw(_some(_PACKAGES, 4))])]
    record: dict[str, Any] = {
        "drivers": [],
        "failed": [],
        "original": None if before is None else {**_STATE, "packages": dict.fromkeys(before, "550.1")},
        "states": [],
        "brought": brought,
        "files": draw(_some(_FILES)),
        "environments": draw(st.one_of(st.just([]), _some(_ENVIRONMENTS, 2))),
        "services": draw(_some(_UNITS)),
        "streams": draw(st.sampled_from([None, {}, {"nvidia-driver": "550-dkms"}, {"nvidia-driver": ""}])),
        "components": draw(_some(("nvidia_driver", "container_toolkit", "cuda", "nouveau_blacklist"))),
        "copies": [],
        # Of a directory that is named here a run saw that it was not there before.
        "made": draw(st.one_of(st.just([path for path in DATA if set(DATA[path]) & {*brought}]), _some(tuple(DATA)))),
    }
    if draw(st.sampled_from([False] * 9 + [True])):
        kind = draw(st.sampled_from(("brought", "files", "environments", "services")))
        record[kind].append(draw(st.sampled_from(_FOREIGN)))
    return record


@st.composite
def machines(draw: st.DrawFn, known: bool = False) -> Node:
    """A node with a record, what is on it, and an observation of which some values are unknown.

    ``known``: every program answers that nothing is in it, nothing is unknown, and each environment has our mark.
    """
    record = draw(records())
    installed = [*record["brought"], *draw(_some(_PACKAGES))]
    runs = {name: known or draw(st.sampled_from([True, True, True, False, None])) for name in ("docker", "containerd")}
    facts = nodes.bare(
        packages={"manager": draw(st.sampled_from(["apt", "dnf"])), "installed": dict.fromkeys(installed, "1")},
        history=record,
        services={
            unit: {"active": "active", "enabled": draw(st.sampled_from(_STATES))} for unit in draw(_some(_UNITS))
        },
        containers={name: {"installed": True, "active": active} for name, active in runs.items()},
        driver={"packages": {name: "550.1" for name in installed if name.startswith(("nvidia", "libcuda"))}},
    )
    state = {
        name: "empty" if known else draw(st.sampled_from(["empty", "empty", "holds", "silent"])) for name in _WORDS
    }
    state |= {program: "silent" for program, name in (("docker", "docker"), ("ctr", "containerd")) if not runs[name]}
    holds: dict[tuple[str, str], list[str] | None] = {}
    for program, kinds in _WORDS.items():
        odd = draw(st.sampled_from([*kinds.values()]))
        for kind in kinds.values():
            empty, full = _SAYS[program, kind]
            said = {"empty": empty, "holds": full, "silent": None}[state[program]]
            holds[program, kind] = said if kind == odd else empty
    unseen = [
        path for path in DATA if state.get(PROGRAMS.get(path, ""), "silent") == "silent" or path not in record["made"]
    ]
    data = set() if known else {path for path in unseen if draw(st.booleans())}
    data |= {path for path, program in PROGRAMS.items() if state[program] == "holds"}
    marks = {f"{path}/gpuwright-constraints.txt" for path in record["environments"]}
    if not known:
        for path in draw(st.lists(st.sampled_from(UNKNOWABLE), max_size=3)):
            _forget(facts, path)
    return Node(
        facts,
        holds,
        frozenset(data),
        frozenset({*DATA, *(marks if known or draw(st.integers(0, 4)) else ())}),
        lists=tuple(draw(_some(("repo_a", "archive_b"), 2))),
        others=() if known else tuple(draw(st.sampled_from([(), (), (), (), ("users-db",)]))),
        aside=draw(st.dictionaries(st.sampled_from(_ASIDE), st.sampled_from(_NOW), max_size=2)),
        needs=tuple(draw(_some(_PACKAGES, 2))),
    )


def _forget(facts: Any, path: tuple[Any, ...]) -> None:
    """Make a value unknown, with the reason, as an observation does."""
    inner = facts
    for key in path[:-1]:
        inner = inner[key] if isinstance(inner, (dict, list)) else None
    if isinstance(inner, (dict, list)):
        inner[path[-1]] = None
        facts["unknown"][".".join(map(str, path))] = "it did not answer within 20 s"


# --- the role, without a node ------------------------------------------------------------------------------------------


def _answer(node: Node, argv: list[str]) -> dict[str, Any]:
    """What the node says to a command that reads; one that is not known here does not answer."""
    lines = _lines(node, argv)
    return {"item": argv, "rc": 1 if lines is None else 0, "stdout_lines": lines or []}


def _lines(node: Node, argv: list[str]) -> list[str] | None:
    if argv[0] in _WORDS:
        words = argv[1:]
        kind = next((kind for word, kind in _WORDS[argv[0]].items() if word in words), "")
        return node.holds.get((argv[0], kind))
    if argv[0] == "find":
        return [f"{argv[1]}/x"] if argv[1] in node.data else []
    if "purge" in argv:
        return [f"Purg {name} [1]" for name in (*argv[argv.index("purge") + 1 :], *node.others)]
    if "indextargets" in argv:
        return [f"/var/lib/apt/lists/{name}_Packages" for name in node.lists]
    if argv[:2] == ["apt-cache", "depends"] or "repoquery" in argv:
        return list(node.needs)
    return None


def _given(node: Node, ask: Any, kept: list[str]) -> dict[str, Any]:
    return {
        "answers": [_answer(node, argv) for argv in ask["commands"]],
        "there": [{"item": path, "stat": {"exists": path in node.there}} for path in ask["there"]],
        "others": list(node.others) if ask["rpms"] else [],
        "untried": None,
        "aside": [{"path": f"/var/lib/gpuwright/backup{path}", "now": now} for path, now in node.aside.items()],
        "also": [],
        "kept": kept,
    }


def decided(node: Node, plan: Any) -> Any:
    """What the role removes; None where it refuses, or ends, before the first change."""
    if plan["refusals"] or "remove" not in plan["components"]:
        return None
    context = Context(facts=node.facts, stack={})
    work: Any = removal_work.begin(context, plan)
    kept: list[str] = []
    try:
        for _turn in _PACKAGES:
            work = removal_work.goes(context, {**plan, "given": _given(node, work["ask"], kept)})
            if not work["again"]:
                return work
            kept = work["kept"]
    except StepRefused:
        return None
    raise AssertionError("the role never ends to ask")


# --- what holds --------------------------------------------------------------------------------------------------------


@given(machines())
def test_nothing_goes_that_is_not_ours_or_while_what_decides_it_is_unknown(node: Node) -> None:
    plan = removal.take_back(node.facts, _REQUEST)
    work = decided(node, plan)
    event("nothing" if work is None else "something")
    assert ([] if work is None else list(faults(node, plan, work))) == []


@settings(max_examples=settings().max_examples // 8)
@given(machines())
def test_a_record_that_nobody_could_read_changes_nothing_and_proves_nothing(node: Node) -> None:
    facts = copy.deepcopy(node.facts)
    _forget(facts, ("history",))
    plan = removal.take_back(facts, _REQUEST)
    assert (plan["changes"], plan["components"]) == ([], [])
    assert [check["status"] for check in plan["checks"]] == ["incomplete"]


@settings(max_examples=settings().max_examples // 2)
@given(machines(known=True))
def test_where_all_is_known_and_empty_what_was_brought_goes(node: Node) -> None:
    """Without this the first property would hold for a role that does nothing."""
    assume(not removal.foreign(node.facts))
    plan = removal.take_back(node.facts, _REQUEST)
    assume("remove" in plan["components"])
    work = decided(node, plan)
    assert work is not None
    record = node.facts["history"]
    before = (record["original"] or {"packages": {}})["packages"]
    brought = [
        name for name in record["brought"] if name not in before and not name.startswith(("linux-image", "grub"))
    ]
    assert sorted(work["packages"]) == sorted(brought)
    assert work["environments"] == record["environments"]
