#!/usr/bin/python3
"""Stand-in for Grafana, as far as gpuwright relies on it. Where each behaviour was read is in tests/sim/grafana.py; what was not says `assumed`."""

import base64
import hashlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import sys
import time

sys.path.insert(0, "/usr/share/grafana/lib")
import yaml  # noqa: E402 - the package has it in it

VERSION = "@VERSION@"
BEGUN = time.time()
FILE = re.compile(r"\$__file\{([^}]+)\}")


def fail(text):
    sys.exit(f"Error: ✗ {text}")


def said(name, default):
    """A setting, by the environment, with the text of a file where one is named."""
    value = os.environ.get(name) or default
    try:
        return FILE.sub(lambda found: pathlib.Path(found[1]).read_text().strip(), value)
    except OSError as error:
        return fail(f"got error while expanding {name} with expander 'file': {error}")


def paths(arguments):
    """What stands behind cfg:default.paths., by name."""
    found = re.findall(r"cfg:default\.paths\.(\w+)=(\S+)", " ".join(arguments))
    return {name: pathlib.Path(path) for name, path in found}


def digest(password):
    return hashlib.sha256(password.encode()).hexdigest()


class Users:
    """What is kept of the admin. That it is a file with a digest is the stand-in's."""

    def __init__(self, directory):
        self.file = directory / "grafana.db"

    def begin(self, password):
        if not self.file.exists():
            self.set(password)

    def set(self, password):
        self.file.write_text(json.dumps({"admin": digest(password)}))

    def let_in(self, header):
        kind, _, text = (header or "").partition(" ")
        if kind != "Basic":
            return False
        user, _, password = base64.b64decode(text).decode().partition(":")
        return json.loads(self.file.read_text()).get(user) == digest(password)


def documents(directory):
    """The provisioning files of a kind; ends the program where one cannot be read, as a data source's does."""
    for path in sorted(directory.glob("*.y*ml")):
        try:
            document = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            fail(f"could not parse provisioning config file: {path.name} error: {error}")
        yield document or {}


def dashboards(providers):
    """What the directories have now. One that cannot be read is named in the log, and the others count."""
    found = []
    for provider in providers:
        for path in sorted(pathlib.Path(provider["options"]["path"]).rglob("*.json")):
            try:
                document = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                print(f'level=error msg="failed to load dashboard from " file={path} error="{error}"', flush=True)
                continue
            row = {"uid": document["uid"], "title": document["title"], "type": "dash-db", "folderTitle": provider.get("folder")}
            found.append((row, document))
    return found


def serve(arguments):
    places = paths(arguments)
    users = Users(places["data"])
    address, port = said("GF_SERVER_HTTP_ADDR", ""), int(said("GF_SERVER_HTTP_PORT", "3000"))
    users.begin(said("GF_SECURITY_ADMIN_PASSWORD", "admin"))
    sources = [row for each in documents(places["provisioning"] / "datasources") for row in each.get("datasources") or ()]
    providers = [row for each in documents(places["provisioning"] / "dashboards") for row in each.get("providers") or ()]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            if path == "/api/health":
                return self.say(200, {"database": "ok", "version": VERSION})
            if path == "/metrics":
                return self.say(200, f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {BEGUN}\n")
            if not users.let_in(self.headers["Authorization"]):
                return self.say(401, {"message": "Invalid username or password"})
            known = dashboards(providers)
            by_uid = {f"/api/dashboards/uid/{row['uid']}": document for row, document in known}
            if path == "/api/datasources":
                return self.say(200, sources)
            if path == "/api/search":
                return self.say(200, [row for row, _document in known])
            if path in by_uid:
                return self.say(200, {"dashboard": by_uid[path]})
            return self.say(404, {"message": "Not found"})

        def say(self, status, answer):
            self.send_response(status)
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        def log_message(self, *arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET if address.count(".") == 3 else socket.AF_INET6

    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit(0))
    Server((address, port), Handler).serve_forever()


def reset(arguments):
    """grafana cli admin reset-admin-password --password-from-stdin."""
    if arguments[-3:] != ["admin", "reset-admin-password", "--password-from-stdin"]:
        fail(f"not of the stand-in: {arguments}")
    password = sys.stdin.readline().rstrip("\n")
    if len(password) <= 4:
        fail("new password is too short")
    users = Users(paths(arguments)["data"])
    if not users.file.exists():
        fail("could not read user (id: 1) from database")
    users.set(password)
    print("Admin password changed successfully ✔")


if __name__ == "__main__":
    {"server": serve, "cli": reset}[sys.argv[1]](sys.argv[2:])
