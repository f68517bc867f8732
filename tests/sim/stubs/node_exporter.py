#!/usr/bin/python3
"""Stand-in for node_exporter of EPEL, for the family of Red Hat alone: Debian's own is real there.

Options and the names of its metrics are node_exporter's (its --help and a page of 1.5.0); that it says nothing of the machine is the stand-in's.
"""

import argparse
import http.server
import pathlib
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--web.listen-address", dest="listen", default=":9100")
parser.add_argument("--web.systemd-socket", dest="handed", action="store_true")
parser.add_argument("--collector.textfile.directory", dest="textfiles", default="/var/lib/node_exporter")
asked = parser.parse_args()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = [path.read_text() for path in sorted(pathlib.Path(asked.textfiles).glob("*.prom"))]
        lines = ["# TYPE node_exporter_build_info gauge", 'node_exporter_build_info{version="@VERSION@"} 1', *told, ""]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join(lines).encode())

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET if asked.listen.rpartition(":")[0].count(".") == 3 else socket.AF_INET6


host, _colon, port = asked.listen.rpartition(":")
server = Server((host.strip("[]"), int(port)), Handler, bind_and_activate=not asked.handed)
if asked.handed:
    server.socket = socket.socket(fileno=3)
server.serve_forever()
