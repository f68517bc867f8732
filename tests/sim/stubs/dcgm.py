#!/usr/bin/python3
"""Stand-ins for the programs of DCGM 4.5 and of dcgm-exporter 4.8, by the name that they are called by. No card is read: nvidia-smi's own
stand-in knows them.

nv-hostengine      options -n, --service-account, -b (NVIDIA/DCGM hostengine/src/HostEngineCommandLine.cpp); it listens on 127.0.0.1:5555
dcgmi diag -r -j   what HelperJsonBuildOutput of NVIDIA/DCGM dcgmi/Diag.cpp writes at 4.6.0, with the tests that a level has by
                   nvvs/src/NvidiaValidationSuite.cpp; a bit that sticks in the simulated memory is found
                   from level 2 on: DCGM_FR_FAULTY_MEMORY and its status (DCGM_ST_NVVS_ISOLATE_ERROR, -51), its words assumed
dcgmi profile -l   the table of NVIDIA/DCGM dcgmi/DcgmiProfile.cpp, its rows as somebody printed them of an A10
dcgm-exporter      options of NVIDIA/dcgm-exporter pkg/cmd/app.go, a page as internal/pkg/rendermetrics/render_metrics.go writes it at 4.8.2
"""

import argparse
import base64
import csv
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys

_PROFILING = {1001: "gr_engine_active", 1004: "tensor_active", 1005: "dram_active", 1009: "pcie_tx_bytes", 1010: "pcie_rx_bytes"}
_DATACENTRE = ("H100", "H200", "A100", "B200", "V100", "L40", "A10")


def cards():
    query = ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,name,driver_version,temperature.gpu,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        # The role used alone comes before the driver.
        said = ""
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.count(",") == 6]


def profiles():
    """Whether the profiling module serves the cards: those of data centres."""
    return all(any(name in card[3] for name in _DATACENTRE) for card in cards())


def engine():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", action="store_true")
    parser.add_argument("--service-account")
    parser.add_argument("-b", "--bind-interface", default="127.0.0.1")
    asked = parser.parse_args()
    with socket.create_server((asked.bind_interface, 5555)) as server:
        while True:
            server.accept()[0].close()


def dcgmi():
    if sys.argv[1:2] == ["diag"]:
        return diag()
    if sys.argv[1:] not in (["profile", "--list"], ["profile", "-l"]):
        sys.exit("this stand-in only runs the diagnostic and lists the fields of the profiling module")
    if not profiles():
        sys.exit("Error: Unable to Get supported metric groups: This request is serviced by a module of DCGM that is not currently loaded.")
    line = "+----------------+----------+------------------------------------------------------+"
    print(line, "| Group.Subgroup | Field ID | Field Tag                                            |", line, sep="\n")
    for number, tag in _PROFILING.items():
        print(f"| A.1            | {number}     | {tag:<53}|")
    print(line)


def diag():
    parser = argparse.ArgumentParser()
    parser.add_argument("-r", "--run", type=int, required=True)
    parser.add_argument("-j", "--json", action="store_true", required=True)
    asked = parser.parse_args(sys.argv[2:])
    there = cards()
    if not there:
        sys.exit("Error: Unable to complete diagnostic for group 2147483647. Return: (-37) The specified group is empty, and this operation is incompatible with an empty group.")
    broken = stuck_bit() if asked.run > 1 else False
    categories = [{"category": category, "tests": [test(name, there, broken and name == "memory") for name in names]} for category, names in tests_of(asked.run).items()]
    entities = [{"entity_id": int(card[0]), "device_id": "2330", "serial_num": f"165{card[0]}"} for card in there]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {"version": "4.5.3", "Driver Version Detected": there[0][4]},
    }
    print(json.dumps(document, indent=2))
    sys.exit(205 if broken else 0)


def stuck_bit():
    with open("/run/gpuwright-sim/cuda") as stream:
        return any(line.startswith("flip ") for line in stream)


def tests_of(level):
    stress = {3: ["memory_bandwidth", "diagnostic", "targeted_stress", "targeted_power"], 4: ["memtest", "pulse_test"]}
    found = {"Deployment": ["software"]}
    if level > 1:
        found["Hardware"], found["Integration"] = ["memory"], ["pcie"]
    if level > 2:
        found["Stress"] = [name for least, names in stress.items() if level >= least for name in names]
    return found


def test(name, there, broken):
    error = {"error_category": 7, "error_id": 52, "error_severity": 2, "warning": "Found 1 faulty memory elements on GPU 0"}
    results = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": int(card[0]), "status": "Fail" if broken and not number else "Pass"} for number, card in enumerate(there)]
    summary = {"status": "Fail" if broken else "Pass"}
    if broken:
        results[0]["warnings"] = summary["warnings"] = [error]
    return {"name": name, "results": results, "test_summary": summary}


def exporter():
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", "--collectors", default="/etc/dcgm-exporter/default-counters.csv")
    parser.add_argument("-a", "--address", default=":9400")
    parser.add_argument("--web-systemd-socket", dest="handed", action="store_true")
    parser.add_argument("-c", "--collect-interval", type=int, default=30000)
    parser.add_argument("-r", "--remote-hostengine-info")
    parser.add_argument("--web-config-file", default="")
    asked = parser.parse_args()
    if asked.remote_hostengine_info:
        host, _colon, port = asked.remote_hostengine_info.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    with open(asked.collectors) as stream:
        rows = [[cell.strip() for cell in row] for row in csv.reader(stream) if row and not row[0].startswith("#")]
    if any(len(row) != 3 for row in rows):
        sys.exit("malformed CSV record; err: expected 3 fields")
    told = [row for row in rows if row[1] != "label" and (not row[0].startswith("DCGM_FI_PROF_") or profiles())]
    web = json.load(open(asked.web_config_file)) if asked.web_config_file else {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if web.get("basic_auth_users") and not permitted(self.headers.get("Authorization"), web["basic_auth_users"]):
                self.send_response(401)
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page(told).encode())

        def log_message(self, *arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET if asked.address.rpartition(":")[0].count(".") == 3 else socket.AF_INET6

    host, _colon, port = asked.address.rpartition(":")
    server = Server((host.strip("[]"), int(port)), Handler, bind_and_activate=not asked.handed)
    if asked.handed:
        server.socket = socket.socket(fileno=3)
    if "tls_server_config" in web:
        beside = os.path.dirname(asked.web_config_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*(os.path.join(beside, web["tls_server_config"][name]) for name in ("cert_file", "key_file")))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


def permitted(header, users):
    import ctypes

    name, _colon, password = base64.b64decode((header or "").partition(" ")[2]).decode().partition(":")
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    known = users.get(name, "").encode()
    return bool(known) and crypt(password.encode(), known) == known


def page(told):
    lines = []
    for field, kind, text in told:
        lines += [f"# HELP {field} {text}", f"# TYPE {field} {kind}"]
        for index, uuid, place, name, driver, temperature, memory in cards():
            values = {"DCGM_FI_DEV_GPU_TEMP": temperature, "DCGM_FI_DEV_FB_TOTAL": memory}
            labels = f'gpu="{index}",UUID="{uuid}",pci_bus_id="{place}",device="nvidia{index}",modelName="{name}",Hostname="{socket.gethostname()}"'
            lines.append(f'{field}{{{labels},DCGM_FI_DRIVER_VERSION="{driver}"}} {values.get(field, 0)}')
    return "\n".join([*lines, ""])


{"nv-hostengine": engine, "dcgmi": dcgmi, "dcgm-exporter": exporter}[os.path.basename(sys.argv[0])]()
