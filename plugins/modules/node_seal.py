#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_seal
short_description: Keep the records of what was done to a node and proven of it
version_added: "0.1.0"
description:
  - A seal is the record of what a component manages on the node. Before the component is changed a mark takes its place, and it is
    written when it was seen to be right.
  - The lock in C(/run/gpuwright) keeps two controllers from working on one node.
options:
  state:
    description:
      - C(begun) takes the lock, puts a mark in place of the seals of the components in O(seals), and calls off what an earlier run
        left to go on after the next boot.
      - C(sealed) writes O(seals) with the values that the node really has.
      - C(proven) writes the record of the proof.
      - C(released) gives the lock back.
      - C(removed) removes every record of gpuwright on the node, and gives the lock back.
    type: str
    required: true
    choices: [begun, sealed, proven, released, removed]
  seals:
    description:
      - Components to seal, each with C(digest), C(stack), C(gpus) and C(manages); for O(state=begun) C(stack) and C(gpus) are enough.
      - C(manages) holds lists of C(files), C(light_files), C(packages), C(services) and C(environments).
    type: dict
    default: {}
  proof:
    description: Record of the proof; required for O(state=proven).
    type: dict
  owner:
    description: Who works on the node, as C(user@controller:pid); required for O(state=begun) and O(state=released).
    type: str
  remember:
    description: The driver that works before the change, with C(packages) and C(stack), for the way back; for O(state=begun).
    type: dict
  gave_way:
    description:
      - The driver that failed and that the run now returns from, with C(version), C(modules), C(source), C(kernel), C(reason) and C(time);
        for O(state=begun). It is refused for that kernel until it is asked for again.
    type: dict
  alone:
    description:
      - A role is used alone, and nobody will look again and seal; for O(state=begun). The marks say so, and are no sign of a run that was
        cut off. The lock is given back at once.
    type: bool
    default: false
  brings:
    description: Packages that the role used alone is about to install, version by name; for O(alone=true). Taking back knows them by this.
    type: dict
    default: {}
  takes_over:
    description: Owner of a run that is known to be dead; its lock is replaced.
    type: str
  failed:
    description: The run failed; with O(state=released) what it left to go on after the next boot is called off.
    type: bool
    default: false
  user:
    description:
      - Keep the records of the user who runs it, in the user's home, instead of root's. They are of environments alone, so that nothing is
        remembered of drivers and packages.
    type: bool
    default: false
  lock_seconds:
    description: Seconds after which the lock is void.
    type: int
    default: 7200
  root:
    description: Root of the tree that holds the records.
    type: path
    default: /
  timeout:
    description: Seconds that each external program may take.
    type: float
    default: 20
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Says what would change and writes nothing.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Take the node and drop the seals of what will change
  gpuwright.node.node_seal:
    state: begun
    seals:
      nvidia_driver:
        stack: "{{ gpuwright_plan.stack.driver }}"
    owner: admin@controller:4711

- name: Seal the driver
  gpuwright.node.node_seal:
    state: sealed
    seals:
      nvidia_driver:
        digest: "{{ gpuwright_plan.digests.nvidia_driver }}"
        stack: "{{ gpuwright_plan.stack.driver }}"
        gpus: ["10de:2330"]
        manages:
          files: [/etc/modprobe.d/gpuwright-nouveau.conf]
          packages: [nvidia-driver-cuda]
"""

RETURN = r"""
written:
  description: Paths of the records that were (in check mode, would be) written.
  returned: always
  type: list
  elements: str
  sample: [/var/lib/gpuwright/seals/nvidia_driver.json]
removed:
  description: Paths of the records that were (in check mode, would be) removed.
  returned: always
  type: list
  elements: str
  sample: []
"""

import time
from typing import TYPE_CHECKING, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages, services
from ansible_collections.gpuwright.node.plugins.module_utils.records import (
    data_directories,
    history,
    history_writer,
    resume,
    sealing,
    seals,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState, FailedDriver, Proof


class Options(TypedDict):
    """The options of the module."""

    state: str
    seals: dict[str, sealing.Wanted]
    proof: Proof | None
    owner: str
    remember: DriverState | None
    gave_way: FailedDriver | None
    alone: bool
    brings: dict[str, str]
    takes_over: str | None
    failed: bool
    user: bool
    lock_seconds: int
    root: str
    timeout: float


# When a seal was written is no difference of its content.
_VOLATILE = ("written",)


def _refuse_newer(host: Host, components: list[str]) -> None:
    """Raise SealError when one of the seals was written by a newer gpuwright."""
    for component in components:
        try:
            seal = seals.read(host, component)
        except seals.SealError:
            # An unreadable seal is broken; replacing it is the cure.
            continue
        if seal is not None and seals.is_newer(seal):
            raise seals.SealError(
                "{0} was sealed by gpuwright {1}, which is newer than this one; use that version or a newer one".format(
                    component, seal.get("gpuwright")
                )
            )


def drop_dead_lock(host: Host, owner: str | None, check: bool) -> None:
    """Remove the lock of a run that its own controller knows to be dead."""
    if owner and not check:
        sealing.release_lock(host, owner)


def begin(
    host: Host, wanted: dict[str, sealing.Wanted], owner: str, lock_seconds: float, check: bool, alone: bool = False
) -> list[str]:
    """Take the lock, and put a mark in place of the seals of what will change; the paths that are written."""
    _refuse_newer(host, sorted(wanted))
    lock = seals.read_lock(host)
    conflict = sealing.lock_conflict(host, lock, owner, time.time())
    if conflict:
        raise seals.SealError(conflict)
    named = [seals.path_of(component, host.places) for component in sorted(wanted)]
    if check:
        return ([] if lock and lock.get("owner") == owner else [host.places.lock]) + named
    new = sealing.take_lock(host, owner, lock_seconds)
    for component, given in sorted(wanted.items()):
        try:
            present = seals.read(host, component)
        except seals.SealError:
            present = None
        sealing.write_object(
            host, seals.path_of(component, host.places), sealing.begun(component, given, present, alone)
        )
    return ([host.places.lock] if new else []) + named


def start(host: Host, given: Options, check: bool) -> tuple[list[str], list[str]]:
    """All that comes before the first change; the paths that are written, and those that are removed."""
    drop_dead_lock(host, given["takes_over"], check)
    written = begin(host, given["seals"], given["owner"], given["lock_seconds"], check, given["alone"])
    if not check and not host.of_user:
        data_directories.begin(host, history.read(host)["brought"])
        brings = given["brings"] if given["alone"] else None
        history_writer.begin(host, given["remember"], packages.installed(host), given["gave_way"], brings)
    removed = [] if host.of_user else resume.drop(host, check)
    if given["alone"]:
        removed += release(host, given["owner"], check)
    return written, removed


def _same(old: seals.Record | None, new: seals.Record) -> bool:
    return old is not None and {k: v for k, v in old.items() if k not in _VOLATILE} == {
        k: v for k, v in new.items() if k not in _VOLATILE
    }


def seal(host: Host, wanted: dict[str, sealing.Wanted], check: bool) -> list[str]:
    """Write the seals that are not there as they should be; their paths."""
    _refuse_newer(host, sorted(wanted))
    units = {unit for given in wanted.values() for unit in (given.get("manages") or {}).get("services") or []}
    states = services.observe(services.properties(host, units)) if units else {}
    made = {
        component: sealing.make(host, component, given, packages.installed(host), states)
        for component, given in sorted(wanted.items())
    }
    written = []
    for component, record in made.items():
        try:
            present = seals.read(host, component)
        except seals.SealError:
            present = None
        if not _same(present, record):
            written.append(seals.path_of(component, host.places))
            if not check:
                sealing.write_object(host, seals.path_of(component, host.places), record)
    return written


def prove(host: Host, proof: Proof, check: bool) -> list[str]:
    """Write the record of the proof when it differs; its path."""
    record = dict(proof, schema=seals.SCHEMA)
    if proof.get("verdict") == "pass" and not check and not host.of_user:
        history_writer.works(host, proof.get("driver"))
    if seals.read_proof(host) == record:
        return []
    if not check:
        sealing.write_object(host, host.places.proof, record)
    return [host.places.proof]


def release(host: Host, owner: str, check: bool) -> list[str]:
    """Give the lock back; its path when this owner held it."""
    lock = seals.read_lock(host)
    if lock is None or lock.get("owner") != owner:
        return []
    if not check:
        sealing.release_lock(host, owner)
    return [host.places.lock]


def main() -> None:
    """Read the options, do the one thing, answer."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["begun", "sealed", "proven", "released", "removed"]},
            "seals": {"type": "dict", "default": {}},
            "proof": {"type": "dict"},
            "owner": {"type": "str"},
            "remember": {"type": "dict"},
            "gave_way": {"type": "dict"},
            "alone": {"type": "bool", "default": False},
            "brings": {"type": "dict", "default": {}},
            "takes_over": {"type": "str"},
            "failed": {"type": "bool", "default": False},
            "user": {"type": "bool", "default": False},
            "lock_seconds": {"type": "int", "default": 7200},
            "root": {"type": "path", "default": "/"},
            "timeout": {"type": "float", "default": 20},
        },
        required_if=[("state", "begun", ["owner"]), ("state", "released", ["owner"]), ("state", "proven", ["proof"])],
        supports_check_mode=True,
    )
    given = module.params
    places = paths.of_user() if given["user"] else paths.ROOTS
    host = Host(root=given["root"], timeout=given["timeout"], places=places)
    written: list[str] = []
    removed: list[str] = []
    try:
        if given["state"] == "begun":
            written, removed = start(host, given, module.check_mode)
        elif given["state"] == "sealed":
            written = seal(host, given["seals"], module.check_mode)
            if not module.check_mode and not host.of_user:
                history_writer.end(host, packages.installed(host))
        elif given["state"] == "proven":
            written = prove(host, given["proof"], module.check_mode)
        elif given["state"] == "removed":
            removed = history_writer.forget(host, module.check_mode)
        else:
            removed = release(host, given["owner"], module.check_mode)
            if given["failed"] and not host.of_user:
                removed += resume.drop(host, module.check_mode)
    except seals.SealError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(
            msg="The record could not be written: {0}. Run as {1} on a file system that is not read-only.".format(
                exc, "the user whose home it is" if host.of_user else "root"
            )
        )
    module.exit_json(changed=bool(written or removed), written=written, removed=removed)


if __name__ == "__main__":
    main()
