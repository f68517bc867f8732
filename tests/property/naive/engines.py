"""Container engines: that Docker's own comes where it is asked for and served, and never in the place of what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.property.naive.tables import row, rows

Stack = Mapping[str, Any]


def faults(machine: Any, stack: Stack) -> Iterator[str]:
    """Everything that is wrong with where the engine comes from."""
    engine = stack.get("container_toolkit", {}).get("engine", {})
    found = [each for each in stack.get("repositories", ()) if each["name"] == "docker"]
    if engine.get("source") != "docker":
        if found:
            yield "Docker's own repository is there, and nothing comes from it"
        return
    served = [each for each in rows("container_toolkit", "docker_repositories") if machine.os in each["os"]]
    if not served or engine["packages"] != served[0]["packages"]:
        yield f"Docker's own repository does not have {engine['packages']} for {machine.os}"
        return
    key = row("upstreams", "keys", id=served[0]["key"])
    if [each["key"]["fingerprint"] for each in found] != [key["fingerprint"]]:
        yield "Docker's own packages have no repository with their key"
    there = set(machine.installed or {})
    replaced = [
        each for rule in rows("container_toolkit", "docker_conflicts") for each in rule["names"] if each in there
    ]
    if replaced or (machine.docker and "docker-ce" not in there):
        yield f"Docker's own would take the place of {replaced or machine.docker}"
