"""What the kernel says of a module, where there is no card."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import module_load

_BEFORE = "[    1.0] Linux version 6.12.107\n[    2.5] NVRM: No NVIDIA GPU found.\n[    3.0] virtio_net virtio0 enp0s2: renamed from eth0\n"
_SAID = (
    "[  210.1] NVRM: No NVIDIA GPU found.\n[  210.2] nvidia-nvlink: Unregistered Nvlink Core, major device number 241\n"
)
_NO_DEVICE = "modprobe: ERROR: could not insert 'nvidia_current': No such device"


def _kernel(rc: int | None, said: str, log: str, error: str | None = None) -> Callable[..., Result]:
    """A kernel that answers one modprobe so and adds LOG to what it had said before."""
    texts = [_BEFORE, _BEFORE + log]

    def call(argv: list[str], timeout: float = 20.0) -> Result:
        if argv == ["dmesg"]:
            return Result(0, texts.pop(0), "", 0.1, None)
        assert argv == ["modprobe", "nvidia-current"]
        return Result(rc, "", said, 0.1, error)

    return call


def _check(expected: int, rc: int | None, said: str, log: str, error: str | None = None) -> Check:
    outcome = module_load.load("nvidia-current", 5, _kernel(rc, said, log, error))
    return module_load.judge("nvidia-current", outcome, expected)


def test_a_module_that_finds_no_card_fails_where_one_is_expected_and_the_kernel_is_quoted() -> None:
    check = _check(1, 1, _NO_DEVICE, _SAID)
    assert (check["status"], check["severity"]) == ("fail", "fatal")
    assert (check["measured"], check["expected"], check["unit"]) == (0, 1, "cards")
    assert '"NVRM: No NVIDIA GPU found."' in str(check["reason"])
    assert "power the machine off and on" in str(check["remedy"])
    assert (
        check["evidence"]
        == "NVRM: No NVIDIA GPU found.\nnvidia-nvlink: Unregistered Nvlink Core, major device number 241"
    )


def test_the_same_is_right_where_no_card_is_there_yet() -> None:
    check = _check(0, 1, _NO_DEVICE, _SAID)
    assert check["status"] == "pass"
    assert "No NVIDIA GPU found" in str(check["reason"])


def test_what_the_kernel_said_before_is_not_held_against_the_module() -> None:
    """The words of an earlier boot step are in the log, and this time it is the signature that is wrong."""
    check = _check(0, 1, "modprobe: ERROR: could not insert 'nvidia_current': Key was rejected by service", "")
    assert check["status"] == "fail"
    assert "Secure Boot" in str(check["remedy"])


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("modprobe: ERROR: could not insert 'nvidia_current': Exec format error", "another kernel"),
        ("modprobe: FATAL: Module nvidia-current not found in directory /lib/modules/6.12.107", "builds the module"),
        ("modprobe: ERROR: could not insert 'nvidia_current': Input/output error", "read the kernel log"),
    ],
)
def test_another_refusal_fails_with_its_own_remedy(said: str, remedy: str) -> None:
    check = _check(0, 1, said, "")
    assert check["status"] == "fail"
    assert said in str(check["reason"])
    assert remedy in str(check["remedy"])


def test_a_module_that_loads_passes() -> None:
    assert _check(1, 0, "", "[ 9.0] nvidia: loading out-of-tree module taints kernel.\n")["status"] == "pass"


def test_a_modprobe_that_hangs_or_is_missing_is_not_fine() -> None:
    check = _check(0, None, "", "", "modprobe did not answer within 5 s")
    assert check["status"] == "incomplete"
    assert check["reason"] == "modprobe did not answer within 5 s"


def test_a_log_that_has_moved_on_is_taken_whole() -> None:
    texts = ["[ 1.0] gone\n", _SAID]

    def call(argv: list[str], timeout: float = 20.0) -> Result:
        return Result(0, texts.pop(0), "", 0.1, None) if argv == ["dmesg"] else Result(1, "", _NO_DEVICE, 0.1, None)

    assert len(module_load.load("nvidia-current", 5, call).log) == 2
