"""How hard a proof is, as the command line takes it: what becomes which variable of the role `validate`, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.modules import gpu_load
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import loading
from gpuwright import completions, parser
from gpuwright.errors import BadInput
from tests.unit.cli.conftest import FakeAnsible, plan_record, result_record

if TYPE_CHECKING:
    from collections.abc import Callable

ROLE = Path(__file__).parents[3] / "roles" / "validate"
OPTIONS = ("--profile", "--for", "--busy", "--boots")


@pytest.fixture
def proof(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> Callable[..., dict[str, Any]]:
    """Prove a host with these options; what reached the role `validate` of them."""
    ansible.plans = {"a": plan_record("a", changes=[])}
    ansible.results = {"a": result_record("a")}

    def call(*words: str) -> dict[str, Any]:
        done = gpuwright("validate", *words)
        assert done.code == 0, done.err
        return {name: value for name, value in ansible.requests[-1].extra_vars.items() if name.startswith("validate_")}

    return call


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ([], {}),
        (["--profile", "quick"], {"validate_profile": "quick"}),
        (["--profile", "standard"], {"validate_profile": "standard"}),
        (["--profile", "burn-in"], {"validate_profile": "burn-in"}),
        (["--profile=burn-in", "--for=12h"], {"validate_profile": "burn-in", "validate_seconds": 43_200}),
        (["--busy"], {"validate_busy": True}),
        (["--profile", "standard", "--busy"], {"validate_profile": "standard", "validate_busy": True}),
        (["--boots", "3"], {"validate_boots": 3}),
        (["--boots", "0"], {"validate_boots": 0}),
        (["--boots", "10"], {"validate_boots": 10}),
        (
            ["--boots", "2", "--busy", "--for", "90m", "--profile", "burn-in"],
            {"validate_profile": "burn-in", "validate_seconds": 5400, "validate_busy": True, "validate_boots": 2},
        ),
    ],
)
def test_each_option_becomes_a_variable_and_what_is_not_said_is_left_to_the_inventory(
    proof: Callable[..., dict[str, Any]], words: list[str], variables: dict[str, Any]
) -> None:
    assert proof(*words) == variables


def test_every_variable_is_one_of_the_role(proof: Callable[..., dict[str, Any]]) -> None:
    given = proof("--profile", "burn-in", "--for", "1h", "--busy", "--boots", "1")
    specs = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    types = {"str": str, "int": int, "bool": bool}
    assert {name: type(value) for name, value in given.items()} == {name: types[specs[name]["type"]] for name in given}
    assert len(given) == len(OPTIONS)


def test_a_time_is_a_number_with_its_unit() -> None:
    times = {"300s": 300, "5m": 300, "90m": 5400, "1h": 3600, "12h": 43_200, "1d": 86_400, "7d": 604_800, "010m": 600}
    for text, seconds in times.items():
        assert parser.parse(["validate", "--for", text]).duration == seconds


NO_TIMES = (
    "0", "0s", "0h", "12", "3600", "-1h", "-5m", "1.5h", "1e3s", "h", "hour", "an hour", "12 h", "12h ", "1h30m", "12H", "1w", "",
    "299s", "4m", "8d", "169h", "604801s", "999999d", "9999999s", "9" * 400 + "h", "１２h", "12h\n", "nan", "inf", "{{ 7 * 7 }}h",
)  # fmt: skip
NO_BOOTS = ("-1", "11", "99", "100", "1.0", "two", "", " 1", "1\n", "９", "1e1", "all")


def test_what_is_no_time_from_five_minutes_to_a_week_is_refused() -> None:
    for text in NO_TIMES:
        with pytest.raises(BadInput, match="expected a time from 5m to 7d, such as 90m or 12h"):
            parser.parse(["validate", "--profile", "burn-in", f"--for={text}"])


def test_what_is_no_number_of_boots_is_refused() -> None:
    for text in NO_BOOTS:
        with pytest.raises(BadInput, match="expected a number of boots from 0 to 10"):
            parser.parse(["validate", f"--boots={text}"])


REFUSED = [
    (["--profile", "burn-in", "--for", "0h"], "expected a time from 5m to 7d"),
    (["--boots", "11"], "expected a number of boots from 0 to 10"),
    (["--for", "1h"], "--for is how long a burn-in takes"),
    (["--for", "1h", "--profile", "standard"], "--for is how long a burn-in takes"),
    (["--for", "1h", "--profile", "quick", "--busy"], "--for is how long a burn-in takes"),
    (["--busy", "--profile", "quick"], "--busy is about cards that are loaded, and quick loads none"),
    (["--user", "--profile", "standard"], "the cards and the kernel log are root's to prove"),
    (["--user", "--profile", "quick"], "the cards and the kernel log are root's to prove"),
    (["--user", "--busy"], "the cards and the kernel log are root's to prove"),
    (["--user", "--boots", "0"], "the cards and the kernel log are root's to prove"),
    (["--profile", "hard"], "invalid choice: 'hard'"),
    (["--profile", "burnin"], "invalid choice: 'burnin'"),
    (["--profile"], "expected one argument"),
    (["--for"], "expected one argument"),
    (["--busy=yes"], "ignored explicit argument 'yes'"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_cannot_be_meant_is_refused_before_the_first_host(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, words: list[str], said: str
) -> None:
    done = gpuwright("validate", *words)
    assert (done.code, done.out, ansible.requests) == (2, "", [])
    assert done.err.count(said) == 1
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("words", "said"), REFUSED[:3])
def test_a_refusal_is_one_document_with_json(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, words: list[str], said: str
) -> None:
    done = gpuwright("validate", "--json", *words)
    assert (done.code, done.json["ok"], ansible.requests) == (2, False, [])
    assert said in done.json["error"]


def test_a_misspelt_profile_names_the_near_one_and_a_time_without_burn_in_how_it_is_said(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    assert "did you mean burn-in?" in gpuwright("validate", "--profile", "burnin").err
    assert "gpuwright validate --profile burn-in --for 12h" in gpuwright("validate", "--for", "12h").err
    assert not ansible.requests


@pytest.mark.parametrize("verb", ["up", "plan", "doctor"])
def test_only_a_proof_is_told_how_hard_it_is(verb: str) -> None:
    for words in (["--profile", "standard"], ["--for", "1h"], ["--busy"], ["--boots", "1"]):
        with pytest.raises(BadInput, match="unrecognized arguments"):
            parser.parse([verb, *words])


def test_profiles_and_times_are_those_of_the_role_and_of_the_load() -> None:
    words = parser.build_parser().parse_args(["validate", "--for", "7d", "--profile", "burn-in"])
    specs = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert specs["validate_profile"]["choices"] == list(loading.PROFILES)
    for there in (True, False):
        given = loading.asked({"validate_profile": "burn-in", "validate_seconds": words.duration})
        assert loading.time_of(given, diagnostic=there).driver <= gpu_load.MOST_SECONDS


def test_help_and_completions_have_the_options(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("validate", "--help")
    assert done.code == 0
    for word in (*OPTIONS, *loading.PROFILES, "90m, 12h", "default: quick", "default: 1h", "at most 10"):
        assert word in " ".join(done.out.split())
    for shell in completions.SHELLS:
        script = completions.script(shell).read_text(encoding="utf-8")
        of_verb = script[script.index("validate_option") :]
        assert all(word in of_verb for word in (*OPTIONS, *loading.PROFILES))


def test_json_has_what_was_measured_where_something_was(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    told = {"load": [{"gpu": "0", "looks": 9}], "framework_loads": [{"name": "pytorch"}]}
    ansible.plans = {name: plan_record(name, changes=[]) for name in ("a", "b")}
    ansible.results = {"a": result_record("a", measurements=told), "b": result_record("b", measurements={})}
    hosts = gpuwright("validate", "--json", "-i", "a,b").json["hosts"]
    assert hosts["a"]["measurements"] == told
    assert "measurements" not in hosts["b"]
