"""What the exporter of cards costs on a node with eight of them, as ratios.

    python -m benchmarks.gpu_exporter [--seconds N] [--rounds N]

Processor time of the program, as it runs on a node, by the time that passes: with its default interval and one reader at the same pace.
nvidia-smi is a stand-in that prints a file, and what it takes itself is not counted; each sample's document has the lists of clocks that
a real one has. Then the time of an answer, as a multiple of what one without a body takes, by the same library alone and by the exporter.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import http.server
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_exporter
from tests.sim import bundled, scenario
from tests.sim.onnode.gpuwright_sim import smi

CARDS = 8
#: Clocks that a real card offers, with each of some clocks of its memory: most of what nvidia-smi prints.
OFFERED, OF_MEMORY = 120, 4


def answer() -> str:
    """What nvidia-smi says of eight cards at work."""
    cards = [{"card": "h100", "bus_id": f"0000:{0x18 + number * 0x1D:02x}:00.0"} for number in range(CARDS)]
    gpus = scenario.expand({"gpus": cards}, "node")["gpus"]
    text = smi.xml(gpus, "580.178.04", {}, "now", "Completed")
    begin, end = text.index("<supported_clocks>"), text.index("</supported_clocks>")
    clocks = "".join(
        f"\t\t\t\t<supported_graphics_clock>{210 + 15 * number} MHz</supported_graphics_clock>\n"
        for number in range(OFFERED)
    )
    offered = f"\t\t\t<supported_mem_clock>\n{clocks}\t\t\t</supported_mem_clock>\n" * OF_MEMORY
    return text.replace(text[begin:end], f"<supported_clocks>\n{offered}")


def read(port: int, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> bytes:
    link = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)
    )
    with contextlib.closing(link):
        link.request("GET", "/metrics", headers=headers)
        said = link.getresponse()
        if said.status != 200:
            raise SystemExit(f"gpu_exporter: nothing to measure, the answer has the status {said.status}")
        return said.read()


# --------------------------------------------------------------------------------------------------------------------
# Processor time
# --------------------------------------------------------------------------------------------------------------------


def processor(pid: int) -> float:
    """Seconds that a process has had, without those of its children (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """MiB that a process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))


@contextlib.contextmanager
def program(text: str) -> Iterator[tuple[int, int]]:
    """The exporter as on a node: its process and its port."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        replaced = {'"/dev/dxg"': '"/dev/null"', '_PATH = "': f'_PATH = "{place}:'}
        (place / "gpu_exporter.py").write_text(bundled.script("monitoring_exporters", replaced))
        (place / "answer.xml").write_text(text)
        (place / "nvidia-smi").write_text(f"#!/bin/sh\nexec cat {place}/answer.xml\n")
        (place / "nvidia-smi").chmod(0o755)
        # Without what is installed: the program has its own.
        command = [sys.executable, "-S", str(place / "gpu_exporter.py"), "--listen=127.0.0.1:0"]
        environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
            line = running.stderr.readline() if running.stderr else ""
            if "port" not in line:
                raise SystemExit(f"gpu_exporter: it does not serve: {line}")
            try:
                yield running.pid, int(line.split(" ")[-1])
            finally:
                running.terminate()


def cost(text: str, seconds: int) -> dict[str, float]:
    with program(text) as (pid, port):
        # Starting is not what it does all day.
        time.sleep(2)
        begun, had = time.monotonic(), processor(pid)
        while time.monotonic() - begun < seconds:
            time.sleep(min(gpu_exporter.INTERVAL, seconds))
            if b"DCGM_FI_DEV_GPU_TEMP{" not in read(port, {}):
                raise SystemExit("gpu_exporter: nothing to measure, no card is told")
        taken, passed = processor(pid) - had, time.monotonic() - begun
        return {"a minute": taken / passed * 60, "of the time": taken / passed, "memory": memory(pid)}


# --------------------------------------------------------------------------------------------------------------------
# Time of an answer
# --------------------------------------------------------------------------------------------------------------------


class Empty(http.server.BaseHTTPRequestHandler):
    """The floor, by the library alone."""

    def do_GET(self) -> None:
        """Say that there is nothing."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def serving(server: http.server.HTTPServer) -> Iterator[int]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: str) -> ssl.SSLContext:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(" "), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    return context


def answers(text: str, rounds: int) -> dict[str, float]:
    """The median of each, in seconds. They take turns; the first round warms up and does not count."""
    exporter = gpu_exporter.Exporter(3600, lambda _arguments: (0, text), lambda: None, lambda: True)
    exporter.turn()
    crypt = gpu_exporter.crypt()
    users = gpu_exporter.Users({"reader": (crypt(b"secret", b"$2y$10$abcdefghijklmnopqrstuu") or b"").decode()}, crypt)
    basic = {"Authorization": "Basic " + base64.b64encode(b"reader:secret").decode()}
    here: Any = ("127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        tls = certificate(folder)
        client = ssl.create_default_context(cafile=f"{folder}/cert.pem")
        empty = stack.enter_context(serving(http.server.ThreadingHTTPServer(here, Empty)))
        bare = stack.enter_context(serving(gpu_exporter.Server(here, bytes)))
        plain = stack.enter_context(serving(gpu_exporter.Server(here, exporter.page)))
        known_user = stack.enter_context(serving(gpu_exporter.Server(here, exporter.page, users=users)))
        secret = stack.enter_context(serving(gpu_exporter.Server(here, exporter.page, tls, users)))
        asked: dict[str, Callable[[], bytes]] = {
            "an empty body, library": lambda: read(empty, {}),
            "an empty body": lambda: read(bare, {}),
            "eight cards": lambda: read(plain, {}),
            "eight cards, a user": lambda: read(known_user, basic),
            "eight cards, a user, TLS": lambda: read(secret, basic, client),
        }
        taken: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(rounds + 1):
            for name, question in asked.items():
                begun = time.perf_counter()
                question()
                if number:
                    taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the exporter of cards costs on a node with eight of them.")
    parser.add_argument("--seconds", type=int, default=120, help="for how long its processor time is counted")
    parser.add_argument("--rounds", type=int, default=300, help="answers of each kind")
    options = parser.parse_args()
    text = answer()
    exporter = gpu_exporter.Exporter(3600, lambda _arguments: (0, text), lambda: None, lambda: True)
    exporter.turn()
    print(
        f"nvidia-smi says {len(text) / 1024:.0f} KiB of {CARDS} cards, the page has {len(exporter.page()) / 1024:.0f} KiB"
    )
    found = answers(text, options.rounds)
    floor = found["an empty body"]
    for name, seconds in found.items():
        print(f"{name:<26}{seconds * 1000:7.2f} ms {seconds / floor:7.2f} x")
    used = cost(text, options.seconds)
    print(
        f"processor time a minute   {used['a minute'] * 1000:7.0f} ms {used['of the time']:9.4%} of one processor, "
        f"memory at most {used['memory']:.0f} MiB"
    )


if __name__ == "__main__":
    main()
