"""The toolkit's unit writes the specification for a driver whose module it does not know, once the role's setting names it."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import cdi

from .conftest import Node, Proven

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
#: As the packages of Debian's open modules call it.
_MODULE = "nvidia-current-open"


def _refreshed(machine: Node) -> tuple[str, bool]:
    """How a start of the unit ends, and whether there is a specification then."""
    machine.shell(
        f"rm -f {_SPECIFICATION}; systemctl daemon-reload; systemctl reset-failed nvidia-cdi-refresh.service 2>/dev/null; "
        "systemctl restart nvidia-cdi-refresh.service",
        check=False,
    )
    result = machine.shell("systemctl show --property Result --value nvidia-cdi-refresh.service").strip()
    return result, machine.shell(f"ls {_SPECIFICATION} 2>/dev/null", check=False) != ""


def test_the_specification_is_written_for_debians_open_modules(proven: Proven) -> None:
    machine = proven.take()
    assert _refreshed(machine) == ("success", True)

    kernel = machine.shell("uname -r").strip()
    path = machine.shell(f"modinfo -k {kernel} -F filename nvidia").strip()
    machine.shell(f"mv {path} {path.replace('nvidia.ko', f'{_MODULE}.ko')}; depmod {kernel}")
    assert _refreshed(machine) == ("exec-condition", False)

    machine.shell(f"mkdir -p $(dirname {cdi.SETTING}); cat > {cdi.SETTING} <<'END'\n{cdi.text(_MODULE)}END")
    assert _refreshed(machine) == ("success", True)

    machine.shell(
        f"rm -r $(dirname {cdi.SETTING}); mv {path.replace('nvidia.ko', f'{_MODULE}.ko')} {path}; depmod {kernel}"
    )
    assert _refreshed(machine) == ("success", True)
    proven.put_back(machine)
