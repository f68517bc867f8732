"""What the tests of container engines have in common: an image of the node's own files, and what of an engine's life can be seen."""

from __future__ import annotations

import json
from typing import Any

import yaml

from .conftest import Node, Run

#: Programs of the node with what they are linked to: no registry is asked for an image.
_IMAGE = """
set -e
folder=$(mktemp -d)
mkdir -p $folder/bin $folder/usr/bin $folder/dev $folder/proc $folder/sys $folder/etc $folder/tmp
for name in sh ls sleep df; do
    program=$(command -v $name)
    cp -L $program $folder/bin/
    for library in $(ldd $program | grep -o '/[^ ]*'); do
        mkdir -p $folder$(dirname $library)
        cp -L $library $folder$library
    done
done
tar -C $folder -cf /root/image.tar .
rm -r $folder
"""
IMAGE = "localhost/probe:1"


class Engines:
    """A node on which the engines are real, what is wished on it, and what is seen of it."""

    def __init__(self, machine: Node) -> None:
        self.machine = machine

    def run(self, verb: str, engine: str, *arguments: str, **variables: object) -> Run:
        """Run with the driver and the toolkit for an engine alone."""
        wish = self.machine.inventory.with_name("wish.yml")
        wish.write_text(yaml.safe_dump(variables))
        more = ("--yes",) if verb == "up" else ()
        wanted = ("--want=driver", "--want=container-toolkit", f"--want=container-engine={engine}")
        return self.machine.run(verb, *more, *wanted, "--wish", str(wish), *arguments)

    def up(self, engine: str, *arguments: str, **variables: object) -> Run:
        """Run `up`, which has to succeed."""
        run = self.run("up", engine, *arguments, **variables)
        assert run.code == 0, str(run)
        return run

    def checks(self, engine: str, **variables: object) -> dict[str, dict[str, Any]]:
        """What `doctor` says, by the id of the check."""
        return {check["id"]: check for check in self.run("doctor", engine, **variables).host["checks"]}

    def install(self, *packages: str) -> None:
        """Install an engine as the machine's owner does."""
        self.machine.shell(f"apt-get install -qy --no-install-recommends {' '.join(packages)}")

    def image(self) -> None:
        """Make the archive of an image."""
        self.machine.shell(_IMAGE)

    def write(self, path: str, text: str, *, mode: str, owner: str) -> None:
        """Write a file as the machine's owner does."""
        self.machine.shell(
            f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{text}END\nchmod {mode} {path}; chown {owner} {path}"
        )

    def file(self, path: str) -> str:
        """What tells one state of a file from another one: mode, owner, bytes."""
        return self.machine.shell(f"stat -c '%a %U:%G' {path}; sha256sum < {path}")

    def started(self, unit: str) -> str:
        """Since when a service runs."""
        return self.machine.shell(f"systemctl show --property ExecMainStartTimestampMonotonic --value {unit}").strip()

    def count(self, *units: str) -> None:
        """Count the starts of services from now on."""
        for unit in units:
            command = f"ExecStartPost=/bin/sh -c 'echo start >> /var/log/starts-{unit}'"
            self.write(
                f"/etc/systemd/system/{unit}.d/count.conf", f"[Service]\n{command}\n", mode="0644", owner="root:root"
            )
            self.machine.shell(f": > /var/log/starts-{unit}")
        self.machine.shell("systemctl daemon-reload")

    def starts(self, unit: str) -> int:
        """How often a service was started since it is counted."""
        return int(self.machine.shell(f"wc -l < /var/log/starts-{unit}"))

    def uuids(self) -> list[str]:
        """The UUIDs of the cards that the host has."""
        return self.machine.shell("nvidia-smi --query-gpu=uuid --format=csv,noheader").split()

    def inside(self, command: str) -> list[str]:
        """The UUIDs that nvidia-smi tells inside a container, which COMMAND starts."""
        text = self.machine.shell(f"{command} nvidia-smi -L")
        return [line.rpartition("UUID: ")[2].rstrip(")") for line in text.splitlines()]

    def json(self, command: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.machine.shell(command))
