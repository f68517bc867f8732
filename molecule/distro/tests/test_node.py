"""The node after `converge` with Debian's real packages, seen by another program than gpuwright."""

from __future__ import annotations

from typing import Any


def test_dkms_compiled_the_real_module_for_an_installed_kernel(host: Any) -> None:
    assert "installed" in host.check_output("dkms status")
    (kernel,) = [
        name for name in host.file("/lib/modules").listdir() if host.file(f"/lib/modules/{name}/updates/dkms").exists
    ]
    assert host.check_output(f"modinfo -k {kernel} -F version nvidia-current").startswith("550.")


def test_the_real_nvidia_smi_says_that_there_is_no_card(host: Any) -> None:
    answer = host.run("nvidia-smi")
    assert answer.rc == 9
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout
