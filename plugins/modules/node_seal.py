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
  - The lock in C(/run/gpuwright) keeps two controllers from working on one node. It lapses two hours after a run was heard of last, by the
    node's own clock since its boot.
options:
  state:
    description:
      - C(begun) takes the lock, puts a mark in place of the seals of the components in O(seals), and calls off what an earlier run
        left to go on after the next boot.
      - C(left) completes the marks of a role that was used alone and has ended, of the components in O(seals), with what it wrote.
      - C(held) says before the next change that the run goes on. It fails where another run has had the node meanwhile, and takes the lock
        again where a boot took it along.
      - C(sealed) writes O(seals) with the values that the node really has.
      - C(proven) writes the record of the proof.
      - C(released) gives the lock back.
      - C(interrupted) does the same for a run that is over, and refuses what is still on its way from it.
      - C(removed) removes every record of gpuwright on the node, and gives the lock back.
    type: str
    required: true
    choices: [begun, held, left, sealed, proven, released, interrupted, removed]
  seals:
    description:
      - Components to seal, each with C(digest), C(stack), C(gpus) and C(manages); O(state=begun) needs no C(digest), and O(state=left) the
        names alone.
      - C(manages) holds lists of C(files), C(light_files), C(packages), C(services) and C(environments).
    type: dict
    default: {}
  proof:
    description: Record of the proof; required for O(state=proven).
    type: dict
  owner:
    description:
      - Who works on the node, as C(user@controller:pid) and what tells that process from others; required for O(state=begun),
        O(state=held), O(state=released) and O(state=interrupted).
      - With another state the lock is held first, as with O(state=held).
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
  takes_over:
    description: Owner of a run that is known to be dead; its lock is replaced.
    type: str
  failed:
    description: The run failed; with O(state=released) and O(state=interrupted) what it left to go on after the next boot is called off.
    type: bool
    default: false
  user:
    description:
      - Keep the records of the user who runs it, in the user's home, instead of root's. They are of environments alone, so that nothing is
        remembered of drivers and packages.
    type: bool
    default: false
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
    run_lock,
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
    takes_over: str | None
    failed: bool
    user: bool
    root: str
    timeout: float


# States that give the node back.
_ENDS = ("released", "interrupted")

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


def begin(
    host: Host,
    wanted: dict[str, sealing.Wanted],
    owner: str,
    takes_over: str | None,
    check: bool,
    alone: bool = False,
) -> list[str]:
    """Take the lock, and put a mark in place of the seals of what will change; the paths that are written."""
    _refuse_newer(host, sorted(wanted))
    new = run_lock.take(host, owner, takes_over, check)
    for component, given in [] if check else sorted(wanted.items()):
        try:
            present = seals.read(host, component)
        except seals.SealError:
            present = None
        sealing.write_object(
            host, seals.path_of(component, host.places), sealing.begun(host, component, given, present, alone)
        )
    named = [seals.path_of(component, host.places) for component in sorted(wanted)]
    return ([host.places.lock] if new else []) + named


def start(host: Host, given: Options, check: bool) -> tuple[list[str], list[str]]:
    """All that comes before the first change; the paths that are written, and those that are removed."""
    written = begin(host, given["seals"], given["owner"], given["takes_over"], check, given["alone"])
    if not check and not host.of_user:
        mine = history.owned(host, history.read(host))
        data_directories.begin(host, mine.brought if mine else ())
        history_writer.begin(host, given["remember"], given["gave_way"], given["alone"])
    removed = [] if host.of_user else resume.drop(host, check)
    if given["alone"]:
        removed += [host.places.lock] if run_lock.release(host, given["owner"], check) else []
    return written, removed


def leave(host: Host, wanted: dict[str, sealing.Wanted], check: bool) -> list[str]:
    """Complete the marks of a role that was used alone; their paths."""
    written = []
    for component in sorted(wanted):
        mark = seals.read(host, component)
        if mark is None or not mark.get("alone"):
            continue
        written.append(seals.path_of(component, host.places))
        if not check:
            sealing.write_object(host, written[-1], sealing.left(host, mark))
    return written


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


def end(host: Host, given: Options, check: bool) -> list[str]:
    """All that comes after the last change; the paths that are removed. What another run left for the next boot is not called off."""
    lock, owner = seals.read_lock(host), given["owner"]
    calls_off = given["failed"] and not host.of_user and (lock is None or lock.get("owner") == owner)
    give_back = run_lock.end if given["state"] == "interrupted" else run_lock.release
    removed = [host.places.lock] if give_back(host, owner, check) else []
    return removed + (resume.drop(host, check) if calls_off else [])


def carry_out(host: Host, given: Options, check: bool) -> tuple[list[str], list[str]]:
    """Do what the state says; the paths that are written, and those that are removed."""
    state, owner = given["state"], given["owner"]
    if owner and state not in ("begun", *_ENDS) and not check:
        run_lock.hold(host, owner)
    if state == "begun":
        return start(host, given, check)
    if state == "left":
        return leave(host, given["seals"], check), []
    if state == "sealed":
        written = seal(host, given["seals"], check)
        if not check and not host.of_user:
            history_writer.end(host)
        return written, []
    if state == "proven" and given["proof"]:
        return prove(host, given["proof"], check), []
    if state == "removed":
        return [], history_writer.forget(host, check)
    return [], end(host, given, check) if state in _ENDS else []


def main() -> None:
    """Read the options, do the one thing, answer."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "required": True,
                "choices": ["begun", "held", "left", "sealed", "proven", *_ENDS, "removed"],
            },
            "seals": {"type": "dict", "default": {}},
            "proof": {"type": "dict"},
            "owner": {"type": "str"},
            "remember": {"type": "dict"},
            "gave_way": {"type": "dict"},
            "alone": {"type": "bool", "default": False},
            "takes_over": {"type": "str"},
            "failed": {"type": "bool", "default": False},
            "user": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
            "timeout": {"type": "float", "default": 20},
        },
        required_if=[
            *(("state", state, ["owner"]) for state in ("begun", "held", *_ENDS)),
            ("state", "proven", ["proof"]),
        ],
        supports_check_mode=True,
    )
    given = module.params
    places = paths.of_user() if given["user"] else paths.ROOTS
    host = Host(root=given["root"], timeout=given["timeout"], places=places)
    try:
        written, removed = carry_out(host, given, module.check_mode)
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
