"""What a node says is taken in at one gate: what breaks the rules is thrown away with one sentence, the rest is cleaned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge
from ansible_collections.gpuwright.node.plugins.module_utils.observe.machine import observe
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.sim import scenario, settings, tree
from tests.unit.gate import honest
from tests.unit.observe.trees import Tree

#: A tree is Debian's; what Rocky answers comes through in tests/integration/test_rocky.py.
SCENARIOS = sorted(
    path.stem for path in (settings.HERE / "scenarios").glob("*.yaml") if not path.stem.startswith("rocky")
)
ANSWERS = Path(gate.__file__).with_name("answers.json")
ESCAPE = "\x1b[2J\x1b[31m"
_NAMELESS = {key: value for key, value in honest.STACK.items() if key != "kernel_module"}


def admitted(said: str, module: str = "node_facts") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(gate.admit(module, said))
    return answer


def refused(said: str, module: str = "node_facts") -> str:
    with pytest.raises(gate.Refused) as caught:
        gate.admit(module, said)
    return str(caught.value)


def changed(path: str, value: Any) -> str:
    """What an otherwise honest node says with one value changed; a path such as `os.family` or `disks.0.mount`."""
    facts = honest.provisioned()
    *places, last = [int(part) if part.isdecimal() else part for part in path.split("/")]
    inner: Any = facts
    for place in places:
        inner = inner[place]
    inner[last] = value
    return honest.said(facts)


# --- honest nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [honest.bare(), honest.provisioned()], ids=["bare", "provisioned"])
def test_what_an_honest_node_says_comes_through_as_it_is(facts: dict[str, Any]) -> None:
    assert admitted(honest.said(facts))["facts"] == facts


def test_what_is_observed_of_a_tree_comes_through(tmp_path: Path) -> None:
    small = Tree(tmp_path)
    small.file("/etc/os-release", "ID=debian\nVERSION_ID=13\n")
    small.file("/var/lib/dpkg/status", "")
    facts = observe(Host(str(tmp_path), machine="x86_64", euid=0))
    assert admitted(honest.said(facts))["facts"] == facts


@pytest.mark.parametrize("driver", [None, {"version": "580.178.04", "open": True}], ids=["bare", "with a driver"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_observed_of_every_simulated_machine_comes_through(
    tmp_path: Path, name: str, driver: dict[str, Any] | None
) -> None:
    tree.make_root(tmp_path, scenario.load(name), driver)
    facts = observe(Host(str(tmp_path), machine="x86_64", euid=0), history=True)
    assert admitted(honest.said(facts))["facts"] == facts


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "prove/fixtures").glob("*.xml")), ids=lambda path: path.stem
)
def test_what_real_cards_say_comes_through(path: Path) -> None:
    data = parse_xml(path.read_bytes())
    facts = honest.provisioned(smi={"rc": 0, "seconds": 0.8, "error": None, "data": data})
    assert admitted(honest.said(facts))["facts"] == facts
    judged = {key: data[key] for key in ("driver_version", "cuda_version", "attached_gpus", "gpus")}
    answer = {
        "changed": False,
        **judged,
        "exit_code": 0,
        "seconds": 0.8,
        **checks.with_verdict({"checks": smi_judge.judge(data, {})}),
    }
    assert admitted(json.dumps(answer), "nvidia_smi") == answer


def test_the_index_and_a_check_come_through() -> None:
    assert admitted(json.dumps(honest.INDEX), "package_index") == honest.INDEX
    proven = {"changed": False, **checks.with_verdict({"log": ["NVRM: x"], "checks": [honest.CHECK]})}
    assert admitted(json.dumps(proven), "driver_module") == proven


@pytest.mark.parametrize("version", [None, "", 580])
def test_a_package_that_would_be_installed_in_no_version_is_refused(version: Any) -> None:
    answer = json.loads(json.dumps(honest.INDEX))
    answer["install"][0]["version"] = version
    assert "version" in refused(json.dumps(answer), "package_index")


@pytest.mark.parametrize("source", ["a b", "*", "a,b", "--setopt=x", "a\n", ""])
def test_an_id_that_dnf_would_take_for_more_than_one_source_is_refused(source: str) -> None:
    answer = json.loads(json.dumps(honest.INDEX))
    answer["problems"][1]["source"] = source
    assert "source" in refused(json.dumps(answer), "package_index")


@pytest.mark.parametrize(
    "name",
    [
        "libc6:i386",
        "kernel-core-6.12.0-55.el10.x86_64",
        "dkms-3:1.2~rc1^git-1.el9.noarch",
        "NetworkManager",
        "gcc-c++",
        "perl_X",
    ],
)
def test_names_of_packages_as_dpkg_and_rpm_have_them_come_through(name: str) -> None:
    facts = honest.provisioned()
    facts["history"]["brought"] = [name]
    facts["packages"]["installed"] = {name: "3:1.2~rc1^git20_1-1.el9"}
    assert admitted(honest.said(facts))["facts"] == facts


def test_words_of_a_login_shell_around_the_answer_are_left_out() -> None:
    said = f"Welcome to {{node}}!\n{honest.said(honest.bare())}\nbye\n"
    assert admitted(said)["facts"] == honest.bare()


def test_a_failure_comes_through_with_its_words_and_warnings() -> None:
    failure = {"failed": True, "msg": "two\nlines", "exception": "Traceback", "warnings": ["w"], "changed": False}
    assert admitted(json.dumps(failure)) == failure


def test_ansibles_own_form_of_a_warning_comes_through_and_no_other_type_of_its() -> None:
    warning = {"__ansible_type": "WarningSummary", "event": {"__ansible_type": "Event", "msg": "old Python"}}
    assert admitted(honest.said(honest.bare(), warnings=[warning]))["warnings"] == [warning]
    assert "__ansible_type" in refused(changed("containers/docker/daemon_json", {"a": {"__ansible_type": "Tag"}}))
    assert "warnings[0]" in refused(honest.said(honest.bare(), warnings=[{"__ansible_type": "ErrorSummary"}]))


#: What Ansible takes for the end of a line, or for blank, before an answer.
BLANKS = ("\t", "\v", "\f", "\r", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u3000")


@pytest.mark.parametrize("blank", BLANKS, ids=repr)
def test_what_ansible_takes_for_an_answer_is_held_against_the_schema(blank: str) -> None:
    hostile = changed("os/family", "../../../../etc/shadow")
    ends_a_line = len(f"a{blank}b".splitlines()) > 1
    told = "facts.os.family" if ends_a_line or blank == "\t" else "it is no JSON"
    assert told in refused(f"{blank}{hostile}")
    if ends_a_line:
        assert told in refused(f"hello{blank}{hostile}{blank}bye")
        assert admitted(f"hello{blank}{honest.said(honest.bare())}{blank}bye")["facts"] == honest.bare()


def test_what_is_no_answer_is_told_short_and_clean() -> None:
    with pytest.raises(gate.NoAnswer) as caught:
        gate.admit("node_facts", f"{ESCAPE}python3: not found\n" + "x" * 10**6 + "the end")
    said = str(caught.value)
    assert "\x1b" not in said
    assert "python3: not found\n" in said
    assert said.endswith("the end")
    assert len(said) < gate.MOST_WORDS + 10


# --- what would reach the controller ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("os/family", "../../../../tmp/evil", "facts.os.family is '../../../../tmp/evil', expected one of debian, redhat, other"),
        ("packages/manager", "/tmp/evil.yml", "facts.packages.manager is '/tmp/evil.yml', expected one of apt, dnf, nothing"),
        ("os/id", "debian/../..", "facts.os.id is 'debian/../..', expected the id of a system"),
        ("os/arch", "../x", "expected the architecture of a machine"),
        ("kernel/next", "6.1/../../x", "expected the release of a kernel"),
        ("kernel/running", "6.1\n", "expected the release of a kernel"),
        ("driver/user_version", f"580{ESCAPE}", "expected the version of a driver"),
        ("driver/libcuda", "/usr/../etc/shadow", "expected an absolute path without .."),
        ("driver/packages", {"nvidia\n": "1"}, "expected the name of a package"),
        ("packages/installed", {"--option": "1"}, "expected the name of a package"),
        ("seals/nvidia_driver/stack/runfile", {"name": "../x", "addresses": []}, "facts.seals.nvidia_driver.stack.runfile"),
        ("history/states/0/stack/runfile/addresses", ["file:///etc/shadow"], "expected an address"),
        ("history/states/0/stack/runfile/name", "../../etc/cron.d/x", "expected the name of NVIDIA's file"),
        ("history/states/0/stack", _NAMELESS, "stack.kernel_module is missing"),
        ("history/states/0/stack", {**honest.STACK, "module_of_next": "x"}, "stack.module_of_next is 'x', expected object"),
        ("history/states/0/stack", {**honest.STACK, "fabric": {"exact": "x"}}, "stack.fabric.packages is missing"),
        ("seals/nvidia_driver/stack/peermem", "x", "stack.peermem is 'x', expected boolean"),
        ("history/failed/0/log", "/etc/shadow", "expected the path of a kept log"),
        ("history/copies", ["../../x.deb"], "expected the name of a kept package"),
        ("seals", {"../x": honest.seal()}, "expected a word"),
        ("disks/0/free_bytes", 10**400, "expected integer or null from"),
        ("disks/0/size_bytes", True, "facts.disks[0].size_bytes is True, expected integer or null"),
        ("proof/verdict", "passed", "expected one of pass, fail, incomplete"),
        ("proof/checks/0/action", "rm", "expected one of"),
        ("pci/gpus", {}, "facts.pci.gpus is {}, expected array"),
        ("services", {"a b": {"active": None, "enabled": None}}, "expected the name of a unit of systemd"),
    ],
)  # fmt: skip
def test_a_value_that_breaks_the_rules_is_named_in_one_sentence(path: str, value: Any, told: str) -> None:
    sentence = refused(changed(path, value))
    assert told in sentence
    assert sentence.isprintable()
    assert len(sentence) < 300


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("clocks", {}, "clocks.sm_mhz is missing"),
        ("ecc", {}, "ecc.mode is missing"),
        ("fabric", {}, "fabric.state is missing"),
        ("pcie", {}, "pcie.gen is missing"),
        ("retired_pages", {"single_bit": "x"}, "retired_pages.single_bit is 'x', expected integer or null"),
        ("remapped_rows", {"banks": {"none": "x"}}, "remapped_rows.banks.none is 'x', expected integer or null"),
    ],
)
def test_a_card_of_which_a_measurement_is_missing_or_no_number_is_refused(path: str, value: Any, told: str) -> None:
    data = parse_xml((Path(__file__).parents[1] / "prove/fixtures/h100_580.xml").read_bytes())
    said = {**data, "gpus": [{**data["gpus"][0], path: value}, *data["gpus"][1:]]}
    assert told in refused(changed("smi", {"rc": 0, "seconds": 0.8, "error": None, "data": said}))


def test_each_group_of_a_card_is_asked_for_with_every_value_that_is_always_told() -> None:
    document = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='00000000:01:00.0'/></nvidia_smi_log>"
    (card,) = parse_xml(document)["gpus"]
    groups = {key: set(value) for key, value in card.items() if key != "errors" and isinstance(value, dict)}
    schema = json.loads(ANSWERS.read_text())["$defs"]["card"]
    assert set(card) == set(schema["required"])
    assert {key: set(schema["properties"][key]["required"]) for key in groups} == groups
    assert not any(schema["properties"][key]["additionalProperties"] for key in groups)


def test_the_fabric_and_the_signed_module_of_a_driver_come_through() -> None:
    fabric = {
        "packages": ["nvlsm"],
        "exact": ["nvidia-fabricmanager"],
        "services": ["a.service"],
        "modules": ["ib_umad"],
    }
    package = {"kernel": "6.8.0-45-generic", "package": "linux-modules-nvidia-580-open-6.8.0-45-generic"}
    stack = {**honest.STACK, "fabric": fabric, "peermem": True, "module_of_next": package}
    facts = admitted(changed("history/states/0/stack", stack))["facts"]
    assert facts["history"]["states"][0]["stack"] == stack


@pytest.mark.parametrize(
    "key",
    ["ansible_facts", "add_host", "add_group", "ansible_stats", "_ansible_notify", "include_variables", "skipped"],
)
def test_what_ansible_itself_would_act_on_is_refused(key: str) -> None:
    assert f"{key} is" in refused(honest.said(honest.bare(), **{key: {"host_name": "evil"}}))


def test_a_missing_fact_is_named() -> None:
    facts = honest.bare()
    del facts["os"]
    assert refused(honest.said(facts)) == "facts.os is missing"


def test_keys_that_ansible_decodes_to_types_of_its_own_are_refused_in_all_places() -> None:
    for name in ("__ansible_type", "__ansible_unsafe", "__ansible_vault"):
        assert name in refused(changed("containers/docker/daemon_json", {name: "x"}))
        assert name in refused(changed("seals/cuda/stack", {name: "x"}))


# --- how much ---------------------------------------------------------------------------------------------------------


def test_too_long_an_answer_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was read"))
    assert "41943042 characters" in refused('"' + "x" * (40 * 1024**2) + '"')
    assert "some 400002 values" in refused("[" + "[]," * 200_000 + "[]]")


@pytest.mark.parametrize("depth", [30, 900, 100_000])
def test_too_deep_an_answer_is_refused(depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    assert "within each other" in refused(honest.said(honest.bare()).replace('"root": "/"', f'"root": {deep}', 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("disks", [honest.bare()["disks"][0]] * 3000),
        ("unknown", {f"a{number}": "b" for number in range(3000)}),
        ("hostname", "h" * 5000),
        ("containers/docker/daemon_json", {"a": "b" * 70_000}),
    ],
)
def test_too_many_or_too_long_values_are_refused(path: str, value: Any) -> None:
    assert "at most" in refused(changed(path, value))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"facts": NaN}', "NaN is no number of JSON"),
        ('{"facts": Infinity}', "Infinity is no number of JSON"),
        ('{"changed": true, "cpus": 1e999}', "facts is missing"),
        ("{'a': 1}", "it is no JSON"),
        ("{}", "changed is missing"),
        ('{"failed": true, "x": 1}', "x is 1, expected nothing of that name"),
    ],
)
def test_what_is_no_answer_is_named(said: str, told: str) -> None:
    assert refused(said) == told


# --- what a terminal would act on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "kept"),
    [
        ("hostname", f"node{ESCAPE}\nroot@controller:~# ", "node\ufffd[2J\ufffd[31m root@controller:~# "),
        ("disks/0/mount", "/mnt/a\tb\u202e\u2028c\x9b", "/mnt/a b\ufffd c\ufffd"),
        ("unknown", {f"x{ESCAPE}": f"one\ntwo{ESCAPE}"}, {"x\ufffd[2J\ufffd[31m": "one\ntwo\ufffd[2J\ufffd[31m"}),
        ("proof/gpus/0/name", "H100\r\x7f\ud800", "H100 \ufffd\ufffd"),
        ("proof/checks/0/evidence", "a\r\nb\tc\x08", "a\nb\tc\ufffd"),
    ],
)
def test_free_text_is_cleaned_and_only_where_it_has_lines_they_stay(path: str, value: Any, kept: Any) -> None:
    facts: Any = admitted(changed(path, value))["facts"]
    for place in path.split("/"):
        facts = facts[int(place) if place.isdecimal() else place]
    assert facts == kept


def test_a_cleaned_key_cannot_become_one_of_ansibles() -> None:
    facts = admitted(changed("containers/docker/daemon_json", {"__ansi\x00ble_type": "Tag"}))["facts"]
    assert list(facts["containers"]["docker"]["daemon_json"]) == ["__ansi\ufffdble_type"]
