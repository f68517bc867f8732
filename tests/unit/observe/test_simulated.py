"""What apt says that it would do: what comes, what goes, what turns back, and what of it is nobody's to take."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import deb_version, simulated

SAID = """\
The following packages will be REMOVED:
  company-vpn old:i386
Inst dkms (3.2.2-1 Debian:13 [all])
Inst libcuda1 [570.1-1] (580.95.05-1 x [amd64]) []
Inst libfoo [2:1.0-1] (1:9.0-1 x [amd64])
Inst kept [1.0-1] (1.1-1 x [amd64])
Remv company-vpn [7.1]
Purg old:i386 [1]
Conf dkms (3.2.2-1)
"""


def test_a_simulation_tells_what_comes_what_is_replaced_and_what_goes() -> None:
    install, removes = simulated.parse(SAID)
    assert install[:2] == [
        {"name": "dkms", "version": "3.2.2-1", "from": None},
        {"name": "libcuda1", "version": "580.95.05-1", "from": "570.1-1"},
    ]
    assert removes == [{"name": "company-vpn", "version": "7.1"}, {"name": "old:i386", "version": "1"}]
    assert simulated.downgrades(install) == ["libfoo"]


def test_what_goes_beyond_is_told_with_its_versions() -> None:
    assert simulated.beyond(SAID, ["kept"], ["old"]) == [
        "it removes company-vpn 7.1",
        "it downgrades libfoo 2:1.0-1 -> 1:9.0-1",
        "it changes kept 1.0-1 -> 1.1-1, which is on hold",
    ]
    assert simulated.beyond(SAID, ["kept"], ["old", "company-vpn", "libfoo", "kept"]) == []


VERSIONS = (
    *("1", "1.0", "1.0-0", "1.0-1", "1.0~rc1-1", "1.0+dfsg-1", "1.0a", "1.0.1", "1:0.1", "2:0.1-3", "0:1.0"),
    *("580.95.05-1", "580.126.20-1", "580.126.20-1ubuntu1", "580.126.20-0ubuntu0.24.04.1", "1.0-1~bpo12+1"),
    *("1.0-1+b1", "2024.01.01", "20240109+1", "1:1.1.13-1", "1.0-1-2", "1.10", "1.9", "1.0~~", "1.0~"),
)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="asks the real dpkg")
@pytest.mark.parametrize("one", VERSIONS)
def test_versions_stand_in_dpkgs_own_order(one: str) -> None:
    pairs = " ".join(f"dpkg --compare-versions '{one}' lt '{other}' && echo 1 || echo 0;" for other in VERSIONS)
    said = subprocess.run(["sh", "-c", pairs], capture_output=True, text=True, check=True).stdout.split()
    assert [deb_version.is_older(one, other) for other in VERSIONS] == [each == "1" for each in said]
