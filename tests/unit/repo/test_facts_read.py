"""What is observed is judged by somebody: a fact that nobody reads goes, or gets its judge."""

from __future__ import annotations

from tests.unit.repo import facts_read


def test_every_fact_has_a_reader() -> None:
    assert facts_read.unread() == []


def test_what_somebody_reads_is_found() -> None:
    found = facts_read.facts()
    assert len(found) > 400
    for name, reader in {
        "containers.runtime.no_cgroups": "plugins/plugin_utils/components/container_toolkit/judge.py",
        "kernel.compiler.built_with": "plugins/plugin_utils/health/judge_around.py",
        "names.problem": "plugins/plugin_utils/health/judge_around.py",
        "smi.data.gpus.[].pcie.width": "plugins/module_utils/measure/smi_judge.py",
        "smi.data.gpus.[].pci_id": "plugins/module_utils/observe/foreign.py",
        "smi.data.gpus.[].serial": "plugins/module_utils/measure/smi_judge.py",
        "kernel.initramfs.nouveau_inside": "plugins/plugin_utils/components/nouveau_blacklist/apply.py",
    }.items():
        assert reader in facts_read.readers(*found[name]), name


def test_a_fact_that_nobody_names_is_found_too() -> None:
    assert facts_read.readers(("boot", "colour_of_the_case"), "Boot") == []
    assert facts_read.readers(("cpus",), "Facts") == []
    assert facts_read.readers(("pci", "gpus", "[]", "numa_node"), "PciGpu") == []
