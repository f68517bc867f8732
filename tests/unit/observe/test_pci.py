from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.observe import pci
from tests.unit.observe.trees import Tree


def test_a_gpu_is_described(tree: Tree) -> None:
    tree.h100()
    assert pci.observe(tree.host())["gpus"] == [
        {
            "bus_id": "00000000:3B:00.0",
            "vendor": "10de",
            "device": "2330",
            "class": "0302",
            "revision": "a1",
            "driver": "nvidia",
        }
    ]


def test_gpus_come_in_the_order_of_their_bus_ids(tree: Tree) -> None:
    tree.h100("0001:05:00.0")
    tree.h100("0000:e1:00.0")
    tree.h100("0000:3b:00.0")
    assert [gpu["bus_id"] for gpu in pci.observe(tree.host())["gpus"]] == [
        "00000000:3B:00.0",
        "00000000:E1:00.0",
        "00000001:05:00.0",
    ]


def test_audio_functions_other_vendors_and_switches_are_told_apart(tree: Tree) -> None:
    tree.pci("0000:01:00.0", "0x10de", "0x2684", "0x030000")
    tree.pci("0000:01:00.1", "0x10de", "0x22ba", "0x040300")
    tree.pci("0000:02:00.0", "0x10de", "0x22a3", "0x068000")
    tree.pci("0000:03:00.0", "0x1002", "0x744c", "0x030000")
    tree.pci("0000:04:00.0", "0x1a03", "0x2000", "0x030000")
    seen = pci.observe(tree.host())
    assert [gpu["device"] for gpu in seen["gpus"]] == ["2684"]
    assert seen["nvswitches"] == [{"bus_id": "00000000:02:00.0", "device": "22a3"}]
    assert seen["other_gpus"] == [{"vendor": "1002", "device": "744c", "bus_id": "00000000:03:00.0", "name": None}]


def test_a_gpu_that_no_driver_holds_has_none(tree: Tree) -> None:
    tree.pci("0000:01:00.0", "0x10de", "0x2684", "0x030000")
    assert pci.observe(tree.host())["gpus"][0]["driver"] is None


def test_the_fifth_nvlink_is_told_by_the_vpd_of_an_infiniband_port(tree: Tree) -> None:
    tree.h100()
    tree.pci("0000:40:00.0", "0x15b3", "0x1021", "0x020700", vpd="\x82..V0\x06SW_MNG..")
    assert pci.observe(tree.host())["nvlink5"] is True


def test_ordinary_infiniband_is_no_nvlink(tree: Tree) -> None:
    tree.h100()
    tree.pci("0000:40:00.0", "0x15b3", "0x1021", "0x020700", vpd="ConnectX-7")
    assert pci.observe(tree.host())["nvlink5"] is False


def test_a_system_without_pci_says_so(tree: Tree) -> None:
    host = tree.host()
    assert pci.observe(host)["gpus"] == []
    assert "pci" in host.unknown_facts


_TAKES_OFF = 'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="%s", ATTR{power/control}="auto", ATTR{remove}="1"\n'


def test_rules_of_udev_that_take_cards_off_the_bus_are_told(tree: Tree) -> None:
    assert "removed_by" not in pci.observe(tree.host())
    tree.file("/lib/udev/rules.d/50-remove-nvidia.rules", "# Automatically generated\n\n" + _TAKES_OFF % "0x03[0-9]*")
    tree.file("/etc/udev/rules.d/60-card.rules", 'ATTR{vendor}=="0x10de", ATTR{remove}="1"\n')
    tree.file("/etc/udev/rules.d/70-audio.rules", _TAKES_OFF % "0x040300" + _TAKES_OFF % "0x0c0330")
    tree.file("/etc/udev/rules.d/71-off.rules", "# " + _TAKES_OFF % "0x030000")
    tree.file("/etc/udev/rules.d/72-amd.rules", (_TAKES_OFF % "0x030000").replace("10de", "1002"))
    tree.file("/etc/udev/rules.d/80-nvidia-pm.rules", 'ATTR{vendor}=="0x10de", ATTR{power/control}="auto"\n')
    assert pci.observe(tree.host())["removed_by"] == [
        "/lib/udev/rules.d/50-remove-nvidia.rules",
        "/etc/udev/rules.d/60-card.rules",
    ]


def test_a_rule_of_udev_that_another_of_its_name_replaces_is_none(tree: Tree) -> None:
    tree.file("/lib/udev/rules.d/50-remove-nvidia.rules", _TAKES_OFF % "0x03[0-9]*")
    tree.file("/etc/udev/rules.d/50-remove-nvidia.rules", "")
    assert "removed_by" not in pci.observe(tree.host())
