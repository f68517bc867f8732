# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report in JUnit's XML, for the servers that show test results: a suite a host, a case a check."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import records

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.report import Record, Report

_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def render(report: Report) -> bytes:
    """The document. Failed is a failure, incomplete an error, skipped is skipped; a warning passes and says so in its output."""
    root = ET.Element("testsuites", {"name": _clean(f"gpuwright {report.get('verb') or ''}".strip())})
    for host, record in report["hosts"].items():
        _suite(root, host, record, report)
    lost = {host: f"unreachable: {reason}" for host, reason in report["unreachable"].items()}
    lost |= dict.fromkeys(report["not_reached"], "the run stopped before it came to this host")
    for host, reason in lost.items():
        suite = ET.SubElement(root, "testsuite", {"name": _clean(host)})
        _problem(_case(suite, host, "host.reached"), "error", reason, None)
        _count(suite)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _suite(root: ET.Element, host: str, record: Record, report: Report) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": _clean(host)})
    if report.get("started"):
        suite.set("timestamp", _clean(report["started"]))
    if record.get("seconds") is not None:
        suite.set("time", _clean(record["seconds"]))
    _checks(suite, host, record)
    if record["failure"]:
        _problem(_case(suite, host, "run.failed"), "failure", record["failure"]["message"], None)
    _rollback(suite, host, record)
    rows: dict[str, Sequence[object]] = {"refusals": record["refusals"], "conflicts": record["conflicts"]}
    for kind, entries in rows.items():
        for entry in entries:
            told = entry if isinstance(entry, dict) else {"text": entry}
            _problem(
                _case(suite, host, f"run.{kind[:-1]}"), "failure", str(told.get("text")), str(told.get("remedy") or "")
            )
    if not len(suite):
        case = _case(suite, host, "host.verdict")
        if record["verdict"] == "skip":
            ET.SubElement(case, "skipped", {"message": _clean(record["skipped"] or "nothing to prove")})
        elif record["verdict"] != "pass":
            _problem(case, "error", f"the verdict is {record['verdict']} without a check", None)
    _count(suite)


def _rollback(suite: ET.Element, host: str, record: Record) -> None:
    """A case for a rollback: what it led to is there, or it failed."""
    told = records.rollback(record)
    if not told:
        return
    case, back = _case(suite, host, "run.rollback"), record["returned"]
    if back and back["failure"]:
        _problem(case, "failure", told, None)
    elif back and back["verdict"] != "pass":
        _problem(case, "error", told, None)
    else:
        ET.SubElement(case, "system-out").text = _clean(told)


def _checks(suite: ET.Element, host: str, record: Record) -> None:
    """A case for each check; of a host that stays as it is one for all that passed."""
    if record.get("whole"):
        counted = ", ".join(f"{count} {status}" for status, count in record["counts"].items() if count)
        told = f"stays as it is: {counted}; all of it: {record['whole']}"
        ET.SubElement(_case(suite, host, "host.stays"), "system-out").text = _clean(told)
    for check in record["checks"]:
        _check(_case(suite, host, check["id"], check["gpu"]), check)


def _case(suite: ET.Element, host: str, check_id: str, gpu: str | int | None = None) -> ET.Element:
    name = check_id if gpu is None else f"{check_id} [{gpu}]"
    return ET.SubElement(suite, "testcase", {"classname": _clean(host), "name": _clean(name)})


def _check(case: ET.Element, check: Check) -> None:
    status, reason = check["status"], check["reason"] or check["id"]
    if status in ("fail", "incomplete"):
        _problem(case, "failure" if status == "fail" else "error", reason, _details(check))
    elif status == "skip":
        ET.SubElement(case, "skipped", {"message": _clean(reason)})
    elif status == "warn":
        ET.SubElement(case, "system-out").text = _clean(f"warning: {reason}\n{_details(check)}")


def _details(check: Check) -> str:
    lines = [
        f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
        for key in ("measured", "expected", "unit", "evidence", "action", "remedy")
        if (value := check.get(key)) is not None
    ]
    return "\n".join(lines)


def _problem(case: ET.Element, kind: str, message: str, details: str | None) -> None:
    ET.SubElement(case, kind, {"message": _clean(message)}).text = _clean(details or message)


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))


def _clean(value: object) -> str:
    return _ILLEGAL.sub("\ufffd", str(value))
