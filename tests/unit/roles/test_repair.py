"""What the role `repair` does where the driver's module does not build, and where dnf has left something."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.repair import apply as repair
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import StepRefused
from tests.unit.plan import nodes

_OLD, _NEW = "6.12.94+deb13-amd64", "6.17.8+deb13-amd64"
_MENU = {_OLD: "gnulinux-advanced-1>gnulinux-old", _NEW: "gnulinux-advanced-1>gnulinux-new"}
_SETTING = f"/etc/dkms/nvidia-{nodes.DRIVER}-{_NEW}.conf"


def failed(**changes: Any) -> dict[str, Any]:
    """A build that failed for the new kernel by its source."""
    return {
        "module": "nvidia",
        "version": nodes.DRIVER,
        "kernel": _NEW,
        "log": "/l",
        "errors": [],
        "end": [],
        "transient": False,
        "compiler": True,
        "left_out": False,
        **changes,
    }


def node(*builds: dict[str, Any], **changes: Any) -> Any:
    """A node on which the old kernel runs and has a module, and the new one boots next."""
    seen = {
        "packages": {"interrupted": True, "interrupted_detail": "nvidia-dkms is half configured"},
        "kernel": {"running": _OLD, "next": _NEW, "next_source": "GRUB_DEFAULT"},
        "dkms": {"failed": list(builds), "kernels": [_OLD], "boot_entries": dict(_MENU)},
    }
    return nodes.merged(nodes.merged(nodes.bare(), seen), changes)


def look(facts: Any, done: Any = None, dkms: str = "dkms-3.2.2", said: str = "") -> Any:
    plan = {"given": {"done": done or {}, "dkms": dkms, "said": said}}
    return repair.look(Context(facts=facts, stack={}), plan)


NOTHING = {"files": [], "configure": False, "kernels": "", "kept": "", "more": False}


@pytest.mark.parametrize(
    ("builds", "uncompilable"),
    [
        ([], False),
        ([failed()], True),
        ([failed(compiler=False)], False),
        ([failed(compiler=False), failed(kernel="6.17.9")], True),
        ([failed(kernel=_OLD)], False),
        ([failed(transient=True)], False),
    ],
)
def test_packages_are_not_configured_before_a_module_is_left_out_that_cannot_be_compiled(
    builds: list[dict[str, Any]], uncompilable: bool
) -> None:
    found = repair.begin(Context(facts=node(*builds), stack={}), {})
    assert found == {"interrupted": True, "uncompilable": uncompilable, "duplicates": []}


@pytest.mark.parametrize("interrupted", [False, None])
def test_a_package_manager_that_is_whole_or_unknown_is_not_said_to_be_interrupted(interrupted: bool | None) -> None:
    facts = node(packages={"interrupted": interrupted})
    assert repair.begin(Context(facts=facts, stack={}), {})["interrupted"] is False


# --- a module that does not build -------------------------------------------------------------------------------------


def test_a_module_is_left_out_for_the_kernel_for_which_it_does_not_build() -> None:
    found = look(node(failed(compiler=False)))
    assert (found["configure"], found["kernels"], found["more"], found["kept"]) == (True, "", True, "")
    assert found["files"] == [
        {
            "path": _SETTING,
            "content": f"# Written by gpuwright (role repair): nvidia {nodes.DRIVER} does not build for kernel {_NEW}, and its"
            " failure would\n"
            "# leave packages half configured. DKMS reads this for that version and that kernel alone; without this file it tries again.\n"
            'BUILD_EXCLUSIVE_KERNEL="^$"\n',
            "mode": "0644",
        }
    ]


@pytest.mark.parametrize(
    ("said", "skips"),
    [
        ("dkms-3.0.11", True),
        ("dkms-3.2.2", True),
        ("dkms-3.0.10", False),
        ("dkms: 2.8.7", False),
        ("", False),
    ],
)
def test_an_older_dkms_is_kept_from_failing_the_packages_of_the_kernel(said: str, skips: bool) -> None:
    found = look(node(failed(), failed(module="nvidia-open"), failed(kernel="6.17.9 $(x)")), dkms=said)
    assert found["configure"] is skips
    assert found["kernels"] == ("" if skips else f"{_NEW} '6.17.9 $(x)'")
    assert len(found["files"]) == 3


@pytest.mark.parametrize(
    "facts",
    [
        node(),
        node(failed(transient=True)),
        node(failed(kernel=_OLD)),
        node(failed(), dkms={"kernels": []}),
        node(failed(), dkms={"kernels": [_OLD, _NEW]}),
    ],
    ids=["none", "no room", "the kernel that runs", "no kernel has one", "there by now"],
)
def test_other_builds_are_left_alone(facts: Any) -> None:
    assert look(facts) == NOTHING


def test_the_kernel_that_has_a_module_is_made_the_one_that_boots_next() -> None:
    first = look(node(failed()))
    found = look(node(failed(left_out=True)), first)
    assert (found["kept"], found["more"], found["configure"], found["kernels"]) == (_OLD, True, False, "")
    assert found["files"] == [
        {
            "path": "/etc/default/grub.d/gpuwright.cfg",
            "content": "# Written by gpuwright (role repair): the newest kernel has no NVIDIA module."
            " Without this file the newest one boots.\n"
            f'if [ -e "/boot/vmlinuz-{_OLD}" ]; then GRUB_DEFAULT="{_MENU[_OLD]}"; fi\n',
            "mode": "0644",
        }
    ]
    assert look(node(failed(left_out=True), kernel={"next": _OLD}), found) == NOTHING


def test_where_that_kernel_boots_next_already_nothing_is_set() -> None:
    assert look(node(failed(), kernel={"next": _OLD}), look(node(failed()))) == NOTHING


def test_without_an_entry_of_its_own_in_the_menu_the_kernel_cannot_be_kept() -> None:
    facts = node(failed())
    facts["dkms"]["boot_entries"] = {}
    with pytest.raises(StepRefused, match="Expected an entry for kernel") as error:
        look(facts, look(node(failed())))
    assert f"instead of {_NEW}, for which the module does not build. Found: none. What to do: " in str(error.value)


def test_a_menu_that_boots_another_kernel_all_the_same_is_told() -> None:
    with pytest.raises(StepRefused, match="to boot next") as error:
        look(node(failed()), {"kept": _OLD})
    assert f"Found {_NEW} (GRUB_DEFAULT). What to do: look for what else sets GRUB_DEFAULT" in str(error.value)


# --- dnf --------------------------------------------------------------------------------------------------------------


def test_what_dnf_could_not_end_is_told_with_its_words() -> None:
    facts = node(packages={"manager": "dnf", "interrupted_detail": "two versions of nvidia-driver"})
    with pytest.raises(StepRefused) as error:
        look(facts, said="Error: no such repository")
    assert str(error.value) == (
        "Expected the package manager to finish its interrupted work. Found: two versions of nvidia-driver. Error: no such repository"
        " What to do: correct what is named (dnf check tells more; dnf remove --duplicates shows what would go), then run again."
    )


def test_where_dnf_ended_its_work_nothing_is_left() -> None:
    assert look(node(failed(), packages={"manager": "dnf", "interrupted": False})) == NOTHING
