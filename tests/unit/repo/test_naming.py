"""A component is in its rooms: outside them the tables name it, and what else does may only become less."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tests.unit.repo import floors, naming

#: Where a component is entered: all that a new one needs outside its rooms.
TABLES = frozenset(
    {
        "plugins/plugin_utils/components/__init__.py",
    }
)
#: How many files name a component besides: the look at a node, of one that a machine has facts of its own of. A number that has fallen is
#: brought down.
BESIDES = {
    "nvidia_driver": 27,
    "nouveau_blacklist": 2,
    "gpu_settings": 1,
    "container_toolkit": 3,
    "monitoring_exporters": 1,
    "monitoring_server": 2,
}
#: Words of other things too, keys of facts and actions that a check asks for: who names one need not mean the component.
AMBIGUOUS = frozenset({"repair", "mig", "cuda", "frameworks", "fabric", "reboot"})


@pytest.mark.parametrize("component", [name for name in COMPONENTS if name not in AMBIGUOUS])
def test_what_names_a_component_outside_its_rooms_becomes_less(component: str) -> None:
    """Say it in a room of the component, and ask for it by `HOST_PARTS`, `WORDS` or `COMPONENTS`."""
    besides = [path for path in naming.outside(component) if path not in TABLES]
    assert len(besides) == BESIDES.get(component, 0), besides


def test_exceptions_are_of_components() -> None:
    assert set(BESIDES) | AMBIGUOUS <= set(COMPONENTS)


def test_a_component_is_entered_in_one_table() -> None:
    assert len(TABLES) == 1
    assert all((floors.ROOT / path).is_file() for path in TABLES)


# --- that the tests above can fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "from . import gpu_log",
        "from ..resolver.gpu_log import choose",
        "import base.gpu_log",
        "class Stack(TypedDict):\n    gpu_log: int",
        "class Wish:\n    gpu_log_days: int = 0",
        "if wish.gpu_log: pass",
        "if self.wish.gpu_log_days: pass",
        'stack["gpu_log"] = 1',
        'NAMES = ("gpu_log",)',
        'UNITS = ("gpuwright-gpu-log.timer",)',
    ],
)
def test_every_way_to_name_a_component_is_seen(source: str) -> None:
    assert "gpu_log" in set(naming.in_python(source))


@pytest.mark.parametrize(
    "source",
    [
        '"""gpu_log"""',
        "# gpu_log",
        "DOCUMENTATION = 'gpu_log'",
        "from base import gpu_log_day",
        'say("gpu_log is there")',
    ],
)
def test_what_only_a_person_reads_names_none(source: str) -> None:
    assert "gpu_log" not in set(naming.in_python(source))


def test_tasks_name_a_component_by_its_role_and_by_what_they_ask_for() -> None:
    assert {"gpu_log", "watch"} <= set(
        naming.in_yaml("name: gpuwright.node.gpu_log\nwhen: \"'watch' in components\"\n")
    )
    assert "watch" not in set(naming.in_yaml("# watch\n- name: Apply the watch\n"))


def test_a_room_is_called_after_its_component() -> None:
    rooms = (
        "components/watch/wish.py",
        "components/watch/apply.py",
        "roles/watch/tasks/work.yml",
        "base/watch_record.py",
    )
    assert [naming.is_room(path, "watch") for path in (*rooms, "base/stopwatch.py")] == [True, True, True, True, False]
