"""What the node's package index has decides: the next best where the wish leaves it open, else a refusal that lists what is there."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as cuda
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.demand import continues
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import availability, index_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import request
from tests.unit.plan.test_walkthroughs import red_hat

V100 = "1db6"


def facts_of(device: str | None = None, system: str = "debian-13", **changes: Any) -> Any:
    facts = nodes.bare(**changes)
    facts["os"]["id"], facts["os"]["version"] = system.split("-")
    if system != "debian-13":
        facts["os"]["glibc"], facts["kernel"]["next"] = "2.39", "6.8.0-124-generic"
        facts["packages"]["sources"][0] |= {"suites": ["noble"], "components": ["main", "restricted"]}
    for card in facts["pci"]["gpus"]:
        card["device"] = device or card["device"]
    return facts


def drafted(*wants: str, facts: Any | None = None, **changes: Any) -> Draft:
    made = make_draft(facts or nodes.bare(), Wish.from_wants(wants), load_rules(), request(**changes))
    assert isinstance(made, Draft), made["conflicts"] or made["error"]
    return made


def index(draft: Draft, there: dict[str, list[str]], others: dict[str, list[str]] | None = None) -> Any:
    """An index: ``there`` has the versions of some packages, newest first, every other one is there as it is wished."""
    starts = {name: start for demand in _demands(draft) for name, start in demand.items()}
    rows = {}
    for name in draft.packages:
        versions = there.get(name, [starts.get(name) or "1-1"])
        held = [each for each in versions if continues(each, draft.keep.get(name, draft.keep.get("/./", "")))]
        candidate = next(iter(held or versions), None)
        rows[name] = {"candidate": candidate, "versions": versions}
    lost = [name for name, row in rows.items() if row["candidate"] is None]
    text = "no repository offers the package {0}"
    problems = [{"kind": "no-such-package", "text": text.format(name), "remedy": "-", "package": name} for name in lost]
    there_now = {name: row for name, row in rows.items() if row["candidate"]}
    return nodes.index(packages=there_now, others=others or {}, problems=problems)


def _demands(draft: Draft) -> list[dict[str, str]]:
    """A version that will do, by package."""
    stack = draft.context.stack
    exact = {
        name: start.replace("[.-]", "-1").replace("*", "").replace(".?", ".9")
        for name, start in cuda.version_prefixes(stack).items()
    }
    driver: Any = stack.get("driver") or {}
    build = f"{driver.get('version') or str(driver.get('branch')) + '.99.01'}-1"
    ours = dict.fromkeys(nvidia_driver.versioned_packages(driver), build) if driver else {}
    toolkit: Any = stack.get("container_toolkit") or {}
    return [exact, ours, dict.fromkeys(toolkit.get("packages", ()), "1.20.0-1")]


def refused(draft: Draft, answer: Any) -> list[Any]:
    return list(finish(draft, answer)["refusals"])


# --- a version that was asked for -------------------------------------------------------------------------------------


def test_what_the_index_has_is_not_refused() -> None:
    draft = drafted(
        "driver=580.126.20", "cuda=13.0.3", "cudnn=9.24.0.43", "nccl=2.30.7", "tensorrt", "container-toolkit"
    )
    answer = index(draft, {})
    assert index_query.absent(draft, answer) == {}
    assert refused(draft, answer) == []


def test_a_driver_build_that_the_index_lacks_is_one_refusal_with_the_builds_that_are_there() -> None:
    draft = drafted("driver=580.95.05")
    newer = ["595.112.07-1", "580.178.04-1", "580.126.20-1"]
    names = [name for name in draft.packages if name.startswith(("nvidia-driver-cuda", "nvidia-kernel"))]
    answer = index(draft, {**dict.fromkeys(names, newer), "nvidia-driver-pinning-580.95.05": []})
    assert index_query.absent(draft, answer) == {}
    (row,) = refused(draft, answer)
    assert row["rule"] == "index-version"
    assert row["text"] == (
        "wanted is driver=580.95.05, the package index of this node has "
        "nvidia-driver-cuda 595.112.07-1, 580.178.04-1, 580.126.20-1"
    )
    assert "for example driver=580.178.04; or name a mirror" in row["remedy"]


def test_a_release_of_cuda_that_the_index_lacks_is_refused_though_another_one_is_there() -> None:
    draft = drafted("cuda=13.0.3")
    (row,) = refused(draft, index(draft, {"cuda-toolkit-13-0": ["13.0.2-1"]}))
    assert "cuda=13.0.3" in row["text"]
    assert "cuda-toolkit-13-0 13.0.2-1" in row["text"]


def test_a_toolkit_of_which_the_index_has_nothing_is_a_conflict_that_lists_the_toolkits_there() -> None:
    draft = drafted("cuda=13.0.3")
    others = {
        "cuda-toolkit-13-1": ["13.1.1-1", "13.1.0-1"],
        "cuda-toolkit-13-2": ["13.2.2-1"],
        "nvidia-driver-cuda-570": ["570.1-1"],
    }
    lacking = index_query.absent(draft, index(draft, {"cuda-toolkit-13-0": []}, others))
    assert lacking == {"cuda=13.0": ["13.2.2", "13.1.1", "13.1.0"]}
    ended = make_draft(nodes.bare(), Wish.from_wants(["cuda=13.0.3"]), load_rules(), request(absent=lacking))
    assert isinstance(ended, dict)
    (row,) = ended["conflicts"]
    assert row["rule"] == "cuda.absent"
    assert "it has 13.2.2, 13.1.1, 13.1.0" in row["text"]


@pytest.mark.parametrize(
    ("want", "package", "there", "told"),
    [
        ("cudnn=9.24.0.43", "libcudnn9-cuda-13", ["9.28.0.42-1"], "cudnn=9.28.0.42"),
        ("nccl=2.30.7", "libnccl2", ["2.29.3-1+cuda13.1", "2.29.3-1+cuda12.9"], "nccl=2.29.3"),
        ("container-toolkit=1.19.1", "nvidia-container-toolkit", ["1.20.0-1"], "container-toolkit=1.20.0"),
    ],
)
def test_a_library_that_the_index_lacks_is_refused_with_the_versions_that_are_there(
    want: str, package: str, there: list[str], told: str
) -> None:
    draft = drafted("cuda=13.0", want)
    (row,) = refused(draft, index(draft, {package: there}))
    assert row["rule"] == "index-version"
    assert f"wanted is {want}" in row["text"]
    assert f"{package} {there[0]}" in row["text"]
    assert f"for example {told};" in row["remedy"]


def test_a_library_built_for_another_cuda_is_not_proposed() -> None:
    draft = drafted("cuda=13.0", "nccl=2.30.7")
    (row,) = refused(draft, index(draft, {"libnccl2": ["2.31.1-1+cuda12.9"]}))
    assert "nccl=2.31.1" not in row["remedy"]


def test_a_build_of_the_distribution_that_its_archive_no_longer_has_is_refused() -> None:
    facts = facts_of(system="ubuntu-24.04", boot={"secure_boot": True})
    open_wish = drafted("driver", facts=facts)
    build = next(
        row["build"]
        for row in load_rules()["systems"]["distro_drivers"]
        if row["os"] == "ubuntu-24.04" and row["branch"] == open_wish.context.stack["driver"]["branch"]
    )
    draft = drafted(f"driver={build}", facts=facts)
    assert draft.context.stack["driver"]["source"] == "distro"
    assert draft.keep[EVERY_PACKAGE] == f"{build}-"
    moved = {name: ["580.999.01-0ubuntu1"] for name in draft.packages if name.startswith("nvidia-")}
    (row,) = refused(draft, index(draft, moved))
    assert "580.999.01-0ubuntu1" in row["text"]


def test_an_older_container_toolkit_than_the_rules_allow_is_refused_with_what_is_there() -> None:
    draft = drafted("container-toolkit")
    (row,) = refused(draft, index(draft, {"nvidia-container-toolkit": ["1.18.2-1"]}))
    assert "wanted is container-toolkit>=1.19.1" in row["text"]
    assert "nvidia-container-toolkit 1.18.2-1" in row["text"]


def test_an_index_that_could_not_be_read_lacks_nothing() -> None:
    draft = drafted("driver=580.95.05", "cuda")
    lost = {"kind": "unreachable", "text": "http://mirror could not be reached", "remedy": "check the network"}
    answer = nodes.index(problems=[lost])
    assert index_query.absent(draft, answer) == {}
    assert [row["rule"] for row in refused(draft, answer)] == ["index-unreachable"]


# --- what the wish leaves open ----------------------------------------------------------------------------------------


def test_an_open_branch_that_the_index_lacks_gives_way_to_the_next_best() -> None:
    draft = drafted("driver")
    newer = {
        name: ["595.112.07-1"] for name in draft.packages if name.startswith(("nvidia-driver-cuda", "nvidia-kernel"))
    }
    lacking = index_query.absent(draft, index(draft, {**newer, "nvidia-driver-pinning-580": []}))
    assert lacking == {"driver=580": ["595.112.07"]}
    again = drafted("driver", absent=lacking)
    assert again.context.stack["driver"]["branch"] == "595"
    assert finish(again, None)["absent"] == lacking


def test_a_branch_that_was_asked_for_and_is_not_there_is_a_conflict_that_lists_what_is() -> None:
    lacking = {"driver=580": ["595.112.07", "590.48.01"]}
    ended = make_draft(nodes.bare(), Wish.from_wants(["driver=580"]), load_rules(), request(absent=lacking))
    assert isinstance(ended, dict)
    told = {row["rule"]: row["text"] for row in ended["conflicts"]}
    assert "no packages of driver branch 580; it has 595.112.07, 590.48.01" in told["driver.absent"]


def test_an_older_cudnn_does_where_the_last_one_that_serves_is_not_there() -> None:
    facts = facts_of(V100, "ubuntu-24.04")
    wants = ("cuda=12.8", "cudnn")
    draft = drafted(*wants, facts=facts)
    assert draft.context.stack["cudnn"]["version"] == "9.10.2.21"
    there = {name: ["9.28.0.42-1", "9.8.0.87-1", "9.5.1.17-1"] for name in draft.packages if "cudnn" in name}
    lacking = index_query.absent(draft, index(draft, there))
    assert lacking == {"cudnn=9.10.2.21": ["9.28.0.42", "9.8.0.87", "9.5.1.17"]}
    again = drafted(*wants, facts=facts, absent=lacking)
    assert again.context.stack["cudnn"]["version"] == "9.8.0.87"
    assert index_query.absent(again, index(again, there)) == {}


def test_no_cudnn_that_serves_is_a_conflict_that_lists_what_is_there() -> None:
    lacking = {"cudnn=9.10.2.21": ["9.28.0.42"]}
    wants = Wish.from_wants(["cuda=12.8", "cudnn"])
    ended = make_draft(facts_of(V100, "ubuntu-24.04"), wants, load_rules(), request(absent=lacking))
    assert isinstance(ended, dict)
    told = {row["rule"]: row["text"] for row in ended["conflicts"]}
    assert "it has 9.28.0.42" in told["cudnn.absent"]


def test_after_an_apply_what_the_index_lacked_is_still_lacking() -> None:
    """Without that the second look would want the toolkit that could not be had, and no run would converge."""
    lacking = {"cuda=13.0": ["12.9.1"]}
    facts = facts_of(system="ubuntu-24.04")
    planned = drafted("cuda", facts=facts, absent=lacking)
    applied = finish(planned, None)
    again = drafted("cuda", facts=facts, applied=applied["stack"], absent=applied["absent"])
    assert again.context.stack["cuda"] == planned.context.stack["cuda"]
    assert again.context.stack["cuda"][0]["version"] != "13.0"


# --- what is asked besides --------------------------------------------------------------------------------------------


def test_the_index_is_asked_for_what_else_there_may_be_under_other_names() -> None:
    ubuntu = drafted("driver=580", "cuda", facts=facts_of(system="ubuntu-24.04")).also
    assert {"cuda-toolkit-12-8", "cuda-toolkit-13-1", "libnvidia-compute-570", "libnvidia-compute"} <= set(ubuntu)
    assert not [name for name in drafted("container-toolkit").also if name.startswith("cuda-toolkit")]
    # A driver that is adopted stays: nothing else is looked for.
    assert availability.also({"driver": nodes.driver_stack(adopted=True)}, load_rules()) == []


# --- what is installed in another version -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "installed", "reason"),
    [
        ("cuda=13.0.2", {}, "cuda-toolkit-13-0 is 13.0.3-1, wished is CUDA 13.0.2"),
        (
            "cudnn=9.24.0.43",
            dict.fromkeys(("libcudnn9-cuda-13", "libcudnn9-dev-cuda-13", "libcudnn9-headers-cuda-13"), "9.28.0.42-1"),
            "libcudnn9-cuda-13 is 9.28.0.42-1, wished is cuDNN 9.24.0.43",
        ),
    ],
)
def test_another_version_than_the_exact_one_is_changed_to_it(want: str, installed: dict[str, str], reason: str) -> None:
    facts = nodes.provisioned(packages={"installed": installed})
    draft = drafted("cuda=13.0", want, facts=facts) if "cudnn" in want else drafted(want, facts=facts)
    (finding,) = draft.findings["cuda"]
    assert (finding.action, finding.reason) == ("upgrade", reason)


def test_any_release_does_where_none_was_asked_for() -> None:
    (finding,) = drafted("cuda=13.0", facts=nodes.provisioned()).findings["cuda"]
    assert finding.action == "adopt"


def test_packages_beside_the_driver_do_not_have_its_version() -> None:
    names = [
        "nvidia-driver-pinning-580",
        "linux-headers-amd64",
        "nvidia-driver-cuda",
        "nvidia-fabricmanager",
        "nvlsm",
        "infiniband-diags",
    ]
    stack: Any = {"source": "nvidia", "packages": names, "version": None}
    assert nvidia_driver.versioned_packages(stack) == ["nvidia-driver-cuda", "nvidia-fabricmanager"]


# --- sources of somebody else ---------------------------------------------------------------------------------------------


def silent(name: str, **more: Any) -> Any:
    row = {"kind": "unreachable", "repository": None, "text": f"{name} does not answer", "remedy": "x", "package": None}
    return {**row, "needed": False, "source": name, **more}


def test_a_source_that_is_not_needed_is_a_warning_and_left_out_of_what_dnf_does() -> None:
    draft = drafted("driver=580.126.20")
    answer = index(draft, {}) | {"problems": [silent("b"), silent("a", kind="timeout"), silent("", source=None)]}
    plan = finish(draft, answer)
    assert plan["refusals"] == []
    assert plan["left_out"] == ["a", "b"]
    assert plan["versions_verified"]
    assert len([row for row in plan["warnings"] if row["rule"] == "foreign-source"]) == 3


def test_a_source_that_is_needed_is_refused_and_stays() -> None:
    draft = drafted("driver=580.126.20")
    plan = finish(draft, index(draft, {}) | {"problems": [silent("a", needed=True)]})
    assert [row["rule"] for row in plan["refusals"]] == ["index-unreachable"]
    assert plan["left_out"] == []


# --- the compiler that nvcc works with --------------------------------------------------------------------------------


def node_of(system: str) -> Any:
    if system == "rocky":
        return red_hat("rocky", "9.7", "5.14.0-611.41.1.el9_7.x86_64", 1)
    return facts_of(system=system)


@pytest.mark.parametrize(("system", "package"), [("debian-13", "g++"), ("ubuntu-24.04", "g++"), ("rocky", "gcc-c++")])
@pytest.mark.parametrize("wants", [["cuda"], ["cuda=13.0", "cuda-source=runfile"]], ids=["packages", "file"])
def test_a_node_whose_sources_have_no_compiler_is_refused_in_the_plan(
    system: str, package: str, wants: list[str]
) -> None:
    facts = node_of(system)
    draft = drafted(*wants, facts=facts)
    (row,) = refused(draft, index(draft, {package: []}))
    assert (row["rule"], row["text"]) == ("index-no-such-package", f"no repository offers the package {package}")
    facts["packages"]["installed"][package] = "14.2.0-1"
    assert package not in drafted(*wants, facts=facts).packages


# --- a branch that the distribution has in name only ------------------------------------------------------------------

OWN = {
    "linux-modules-nvidia-580-server-open-generic": ["6.8.0-134.134"],
    "nvidia-headless-no-dkms-580-server-open": ["580.173.02-0ubuntu0.24.04.1"],
    "nvidia-utils-580-server": ["580.173.02-0ubuntu0.24.04.1"],
    "libnvidia-decode-580-server": ["580.173.02-0ubuntu0.24.04.1"],
    "libnvidia-encode-580-server": ["580.173.02-0ubuntu0.24.04.1"],
}


def of_the_distribution(*wants: str) -> Draft:
    return drafted("driver-source=distro", *wants, facts=facts_of(system="ubuntu-24.04"))


def test_the_distributions_own_branch_is_taken_as_it_is() -> None:
    draft = of_the_distribution("driver=580")
    answer = index(draft, OWN) | {
        "install": [
            {
                "name": "libnvidia-cfg1-580-server",
                "version": "580.173.02-0ubuntu0.24.04.1",
                "from": None,
                "download_bytes": 1,
            },
            {"name": "libnvidia-egl-wayland1", "version": "1:1.1.13-1", "from": None, "download_bytes": 1},
            {"name": "nvidia-settings", "version": "510.47.03-0ubuntu4", "from": None, "download_bytes": 1},
        ]
    }
    assert index_query.absent(draft, answer) == {}
    assert refused(draft, answer) == []


def test_packages_of_another_version_under_the_branchs_name_are_no_packages_of_it() -> None:
    draft = of_the_distribution("driver=580")
    moved = {"nvidia-utils-580-server": ["635.20-0ubuntu0.24.04.1"]}
    lacking = index_query.absent(draft, index(draft, OWN | moved))
    assert lacking == {"driver=580": ["nvidia-utils-580-server 635.20-0ubuntu0.24.04.1"]}
    again = make_draft(
        draft.context.facts, draft.wish, load_rules(), request(absent={key: tuple(row) for key, row in lacking.items()})
    )
    assert isinstance(again, dict)
    (conflict,) = again["conflicts"]
    assert "no packages of driver branch 580; it has nvidia-utils-580-server 635.20" in conflict["text"]
    assert conflict["remedy"] == "ask for driver=595 (595 is production, supported until 2027-03-24)"


def test_empty_packages_are_told_by_those_of_another_branch_that_they_bring() -> None:
    draft = of_the_distribution("driver=580")
    brought = [
        {"name": "nvidia-utils-635-server", "version": "635.20-0ubuntu0.24.04.1", "from": None, "download_bytes": 1}
    ]
    lacking = index_query.absent(draft, index(draft, OWN) | {"install": brought})
    assert lacking == {"driver=580": ["nvidia-utils-635-server 635.20-0ubuntu0.24.04.1"]}


def test_a_build_that_was_asked_for_by_a_name_without_content_is_refused() -> None:
    draft = of_the_distribution("driver=580.173.02")
    brought = [
        {
            "name": "linux-modules-nvidia-635-server-open-generic",
            "version": "6.8.0-140.140",
            "from": None,
            "download_bytes": 1,
        }
    ]
    (row,) = refused(draft, index(draft, OWN) | {"install": brought})
    assert row["rule"] == "index-version"
    assert "linux-modules-nvidia-635-server-open-generic 6.8.0-140.140" in row["text"]
    assert "ask for a version that is there" in row["remedy"]


_BROKEN = "/etc/apt/sources.list.d/web.list, line 1: it is not TYPE [OPTION=VALUE] ADDRESS SUITE COMPONENT"


def unreadable(entry: str = _BROKEN, **packages: Any) -> Any:
    facts = nodes.bare()
    facts["packages"] |= {"broken_sources": [entry], **packages}
    return facts


def test_sources_that_apt_was_seen_not_to_read_end_a_plan_that_could_not_ask_it() -> None:
    (row,) = refused(drafted("driver", facts=unreadable()), None)
    assert row["rule"] == "index-broken-source"
    assert row["text"] == f"apt cannot read {_BROKEN}"
    assert "remove the file" in row["remedy"]
    # Whom the index answered has apt's own word; a diagnosis has the check of it.
    draft = drafted("driver", facts=unreadable())
    assert refused(draft, index(draft, {})) == []
    assert refused(drafted("driver", facts=unreadable(), verb="doctor"), None) == []
    # dnf does without what it cannot read.
    of_dnf = red_hat("rocky", "10.1", "6.12.0-124.8.1.el10_1.x86_64", 1)
    of_dnf["packages"]["broken_sources"] = [_BROKEN]
    assert refused(drafted("driver", facts=of_dnf), None) == []


def test_a_source_that_the_plan_moves_out_of_the_way_stops_nothing() -> None:
    """Two keys for the toolkit's repository, of which one is none: that file goes."""
    at = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
    facts = unreadable(
        f"/etc/apt/sources.list.d/old.list beside /etc/apt/sources.list.d/a.list: {at}/ / has no Signed-By"
    )
    facts["packages"]["sources"].append(
        {
            "file": "/etc/apt/sources.list.d/old.list",
            "types": ["deb"],
            "uris": [f"{at}/"],
            "suites": ["/"],
            "components": [],
            "signed_by": None,
            "enabled": True,
        }
    )
    assert refused(drafted("driver", "container-toolkit", facts=facts), None) == []
    facts["packages"]["sources"].pop()
    assert len(refused(drafted("driver", "container-toolkit", facts=facts), None)) == 1
