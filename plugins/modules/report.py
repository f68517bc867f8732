# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Write the report of a run
version_added: "0.1.0"
description:
  - Collects what each host has to say about itself in the run directory on the controller, and makes C(report.json),
    C(report.html) and C(junit.xml) of it.
  - Compares hosts and cards with their like. C(outliers.json) and the page name those that are slower or hotter than the others, or have
    another version or setting. It is no part of a verdict.
  - It runs on the controller alone and touches no host. Several hosts may call it at the same time.
options:
  state:
    description:
      - V(open) refuses variables of the hosts that cannot be meant, and makes the run directory. V(host) writes the record of one host.
        V(close) makes the report of all records; of the verb status it prints the table.
      - V(open) and V(close) are for C(run_once).
    type: str
    required: true
    choices: [open, host, close]
  run_dir:
    description:
      - The run directory. Without it the variable C(gpuwright_run_dir) decides, and without that V(open) makes a new one
        in the user's state directory.
    type: path
  verb:
    description: What is run. Without it the variable C(gpuwright_verb) decides.
    type: str
  record:
    description: All values of a host in one dictionary. The options below win over it.
    type: dict
  verdict:
    description: The host's verdict. Found from its checks when not given.
    type: str
    choices: [pass, fail, incomplete, skip]
  reached:
    description: Whether the host was reached.
    type: bool
  changed:
    description: Whether anything was changed on the host.
    type: bool
  changes:
    description: What was changed, as the plan names it.
    type: list
    elements: dict
  checks:
    description: Every check of the host.
    type: list
    elements: dict
  reboot:
    description: Whether the host still has to be rebooted.
    type: bool
  left:
    description: Components that wait for that reboot, each with its C(component) and C(reason).
    type: list
    elements: dict
  resume:
    description: Whether the machine goes on by itself after it, with C(prepared), C(why_not), C(unit) and C(report).
    type: dict
  rescue:
    description: What helps if a screen stays black after it.
    type: list
    elements: str
  failure:
    description: What failed, with C(task), C(message) and C(component).
    type: dict
  returned:
    description: To what the host was rolled back, with C(version), C(failure), C(verdict) and C(environments).
    type: dict
  error:
    description: Why the wish for the host cannot be understood.
    type: str
  suggestions:
    description: What may have been meant instead.
    type: list
    elements: str
  simulated:
    description: Whether the host is a simulated one.
    type: bool
  summary:
    description: What the host is, as the plan sums it up.
    type: dict
  gpus:
    description: The host's cards.
    type: list
    elements: raw
  seconds:
    description: How long the host took.
    type: float
  stack:
    description: What was resolved for the host.
    type: dict
  warnings:
    description: Warnings of the resolver.
    type: list
    elements: raw
  why:
    description: The resolver's decisions.
    type: list
    elements: raw
  refusals:
    description: Why nothing was begun on the host.
    type: list
    elements: raw
  conflicts:
    description: Why the wish cannot be met.
    type: list
    elements: raw
  skipped:
    description: Why there was nothing to do on the host.
    type: str
  measurements:
    description: Numbers behind the checks, such as C(fio), the RV(gpuwright.node.fio#module:parts) of M(gpuwright.node.fio).
    type: dict
  unreachable:
    description: Hosts that could not be reached, with the reason. For V(close).
    type: dict
  failed:
    description: Hosts without a credible record, with the reason. For V(close).
    type: dict
  not_reached:
    description: Hosts that the run never came to. For V(close).
    type: list
    elements: str
attributes:
  check_mode:
    description: The report of a run in check mode is written too.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Open the run
  gpuwright.node.report:
    state: open
    verb: validate
  run_once: true
  register: run

- name: Write the host's record
  gpuwright.node.report:
    state: host
    run_dir: "{{ run.run_dir }}"
    checks: "{{ cards.checks + storage.checks }}"
    measurements:
      fio: "{{ storage.parts }}"

- name: Make the report
  gpuwright.node.report:
    state: close
    run_dir: "{{ run.run_dir }}"
  run_once: true
"""

RETURN = r"""
run_dir:
  description: The run directory.
  returned: for open and close
  type: str
  sample: /home/ada/.local/state/gpuwright/runs/20261120T120000Z-4711
verdict:
  description: The verdict of the host, or of the run.
  returned: for host and close
  type: str
  sample: pass
host:
  description: The host whose record was written.
  returned: for host
  type: str
  sample: node01
counts:
  description: How many hosts have which verdict.
  returned: for close
  type: dict
  sample: {"fail": 0, "incomplete": 0, "pass": 8, "skip": 0, "unreachable": 0, "not_reached": 0}
waiting:
  description: Hosts that have something to change and that the run has not come to. None in check mode, or where the run applies nothing.
  returned: for close
  type: list
  elements: str
  sample: [node02, node03]
ended:
  description: Whether the report is the last one; else the run has more to do on a host.
  returned: for close
  type: bool
  sample: true
report:
  description: The report as JSON.
  returned: for close
  type: str
  sample: /home/ada/.local/state/gpuwright/runs/20261120T120000Z-4711/report.json
html:
  description: The report for people.
  returned: for close
  type: str
  sample: /home/ada/.local/state/gpuwright/runs/20261120T120000Z-4711/report.html
junit:
  description: The report for test servers.
  returned: for close
  type: str
  sample: /home/ada/.local/state/gpuwright/runs/20261120T120000Z-4711/junit.xml
"""
