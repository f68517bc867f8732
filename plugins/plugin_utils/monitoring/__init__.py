# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a monitoring server gets: names of metrics, alerting rules, Alertmanager's configuration, dashboards.

``metrics.py`` is the list of names, ``alerts.py`` the table of alerts. ``make rules`` writes ``alerts.yml``, ``dashboards/*.json`` and the
chapter on alerts in ``docs/monitoring.md`` from them. What is in ``alerts.yml`` has braces of Prometheus' own templates: a role copies the
file, it does not pass it through Jinja.
"""
