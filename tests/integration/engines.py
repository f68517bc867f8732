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
#: A registry of one image, as engines pull it (OCI distribution specification, pull): the archive above as its only layer.
_REGISTRY = """
import gzip, hashlib, http.server, json

def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()

def described(kind, data):
    return {"mediaType": "application/vnd.oci.image." + kind, "digest": digest(data), "size": len(data)}

with open("/root/image.tar", "rb") as stream:
    tar = stream.read()
layer = gzip.compress(tar, 1, mtime=0)
layers = {"type": "layers", "diff_ids": [digest(tar)]}
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers}).encode()
manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": described("config.v1+json", config), "layers": [described("layer.v1.tar+gzip", layer)]}).encode()
FOUND = {"/v2/": b"{}"}
for data, kind in ((manifest, "manifests"), (config, "blobs"), (layer, "blobs")):
    FOUND["/v2/probe/%s/%s" % (kind, digest(data))] = data
FOUND["/v2/probe/manifests/1"] = manifest

class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = FOUND.get(self.path)
        self.send_response(404 if data is None else 200)
        data = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}' if data is None else data
        manifests = "/manifests/" in self.path
        self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json" if manifests else "application/octet-stream")
        self.send_header("Docker-Content-Digest", digest(data))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Registry).serve_forever()
"""
#: The image as the registry has it.
PULLED = "localhost:5000/probe:1"


class Engines:
    """A node on which the engines are real, what is wished on it, and what is seen of it."""

    def __init__(self, machine: Node) -> None:
        self.machine = machine

    def run(self, verb: str, engine: str, *arguments: str, **variables: object) -> Run:
        """Run with the driver and the toolkit for an engine alone."""
        wish = self.machine.inventory.with_name("wish.yml")
        wish.write_text(yaml.safe_dump(variables))
        more = ("--yes",) if verb == "up" else ()
        return self.machine.run(verb, *more, *_wanted(engine), "--wish", str(wish), *arguments)

    def cut_before_the_restart(self, engine: str, unit: str) -> None:
        """Cut `up` off as soon as it asks systemd to restart a unit, which does not come to that."""
        stand_in, held = "/usr/local/sbin/systemctl", "/run/held"
        real = self.machine.shell("command -v systemctl").strip()
        script = f'#!/bin/sh\ncase "$*" in *restart*{unit}*) touch {held}; sleep 600;; esac\nexec {real} "$@"\n'
        self.write(stand_in, script, mode="0755", owner="root:root")
        try:
            self.machine.cut_when(f"test -e {held}", *_wanted(engine))
        finally:
            self.machine.shell(f"rm -f {stand_in} {held}")

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

    def registry(self) -> None:
        """Serve the image on the node; Docker takes a registry of the machine itself without TLS, and Podman where it is told."""
        self.write("/root/registry.py", _REGISTRY, mode="0600", owner="root:root")
        self.write(
            "/etc/containers/registries.conf.d/probe.conf",
            '[[registry]]\nlocation = "localhost:5000"\ninsecure = true\n',
            mode="0644",
            owner="root:root",
        )
        listens = "for turn in $(seq 100); do ss -ltn | grep -q :5000 && exit; sleep 0.1; done; exit 1"
        unit = "[Service]\nExecStart=/usr/bin/python3 /root/registry.py\n[Install]\nWantedBy=multi-user.target\n"
        self.write("/etc/systemd/system/registry.service", unit, mode="0644", owner="root:root")
        self.machine.shell(f"systemctl enable --now registry.service; {listens}")

    def proof(self, engine: str, **variables: object) -> dict[str, list[str]]:
        """How the checks of containers end in a proof, by their id, in the order of the ways."""
        found: dict[str, list[str]] = {}
        checks = self.run("validate", engine, **variables).host["checks"]
        # A proof has its worst check first, whichever way it is of.
        for check in sorted(checks, key=lambda each: "--gpus" not in str(each["reason"])):
            if check["id"] in ("container.cards", "container.reload"):
                found.setdefault(check["id"], []).append(check["status"])
        return found

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


def _wanted(engine: str) -> tuple[str, ...]:
    return ("--want=driver", "--want=container-toolkit", f"--want=container-engine={engine}")
