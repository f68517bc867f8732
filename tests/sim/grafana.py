"""What the stand-in of Grafana Labs' package carries. It is never the real one: that cannot be had here.

Read in grafana/grafana:

- packaging/deb/systemd/grafana-server.service@0471472a: the unit, its user, its working directory; the program and its arguments as
  public copies of later units have them (/usr/share/grafana/bin/grafana server, with cfg:default.paths.provisioning).
- packaging/deb/control/postinst@03ff8dd4: the user, who owns what, /etc/grafana with the modes 755 and 640 for root and the group
  grafana; nothing is started. packaging/deb/control/prerm@3b764a1c: the unit is stopped and disabled. There is no postrm: a purge leaves
  /etc/grafana, /var/lib/grafana and the user.
- pkg/setting/setting.go@00000650 and expanders.go@0524cbaf: GF_SECTION_KEY wins over the file, $__file{} is the text of a file without
  blanks at its ends, and a file that is not there ends the program.
- pkg/services/provisioning/provisioning.go@0111696e and dashboards/config_reader.go@0524cbaf: files *.yaml and *.yml; one that cannot be
  read ends the program. dashboards/file_reader.go@00555663: *.json below the path; one that cannot be read is logged, the others count.
- pkg/cmd/grafana-cli/commands/reset_password_command.go@01e609d6: the password from stdin, four characters are too few.

assumed: the answers of the HTTP API (/api/health, /api/datasources, /api/search, /api/dashboards/uid, and /metrics with
process_start_time_seconds and without a password), by its documentation; that dashboards are looked at with each question, where the
real one waits ten seconds.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from . import deb

_PROGRAM = "/usr/share/grafana/bin/grafana"
#: As the real one it has in itself what reads YAML: PyYAML, as it is here.
_LIBRARY = "/usr/share/grafana/lib/yaml"
_SETTINGS = """\
GRAFANA_USER=grafana
GRAFANA_GROUP=grafana
LOG_DIR=/var/log/grafana
DATA_DIR=/var/lib/grafana
CONF_FILE=/etc/grafana/grafana.ini
PLUGINS_DIR=/var/lib/grafana/plugins
PROVISIONING_CFG_DIR=/etc/grafana/provisioning
"""
_UNIT = f"""\
[Unit]
Description=Grafana instance, a stand-in

[Service]
EnvironmentFile=/etc/default/grafana-server
User=grafana
Group=grafana
Type=simple
Restart=on-failure
WorkingDirectory=/usr/share/grafana
ExecStart={_PROGRAM} server --config=${{CONF_FILE}} --packaging=deb cfg:default.paths.logs=${{LOG_DIR}} \\
  cfg:default.paths.data=${{DATA_DIR}} cfg:default.paths.plugins=${{PLUGINS_DIR}} cfg:default.paths.provisioning=${{PROVISIONING_CFG_DIR}}
TimeoutStopSec=20
UMask=0027

[Install]
WantedBy=multi-user.target
"""
_CONFIGURED = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent group grafana >/dev/null || groupadd --system grafana
id grafana >/dev/null 2>&1 || useradd --system --gid grafana --home-dir /usr/share/grafana --no-create-home --shell /bin/false grafana
mkdir -p /var/log/grafana /var/lib/grafana /etc/grafana
chown -R grafana:grafana /var/log/grafana /var/lib/grafana
[ -f /etc/grafana/grafana.ini ] || cp /usr/share/grafana/conf/sample.ini /etc/grafana/grafana.ini
for kind in dashboards datasources plugins access-control alerting; do
    mkdir -p /etc/grafana/provisioning/$kind
done
chown -Rh root:grafana /etc/grafana/*
find /etc/grafana -type f -exec chmod 640 {} ';'
find /etc/grafana -type d -exec chmod 755 {} ';'
systemctl daemon-reload || true
"""
_LEAVES = """\
#!/bin/sh
[ "$1" != remove ] || { systemctl stop grafana-server || true; systemctl disable grafana-server || true; }
"""


def fill(package: deb.Package, words: dict[str, str]) -> None:
    """The package grafana."""
    text = (Path(__file__).parent / "stubs/grafana.py").read_text().replace("@VERSION@", words["build"])
    package.files |= {
        _PROGRAM: text.encode(),
        "/usr/share/grafana/conf/sample.ini": b"; settings, all of them in comments\n",
        "/etc/default/grafana-server": _SETTINGS.encode(),
        "/usr/lib/systemd/system/grafana-server.service": _UNIT.encode(),
    }
    package.files |= {f"{_LIBRARY}/{path.name}": path.read_bytes() for path in Path(yaml.__file__).parent.glob("*.py")}
    package.executables.add(_PROGRAM)
    package.configuration.append("/etc/default/grafana-server")
    package.scripts |= {"postinst": _CONFIGURED, "prerm": _LEAVES}
