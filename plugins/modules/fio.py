#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: fio
short_description: Measure storage with fio and judge it
version_added: "0.1.0"
description:
  - Runs fio in a private directory below O(directory), judges what it measured against what the disk has to deliver and
    removes every file again, also when it is interrupted.
  - Which disk that is, is read from C(/proc) and C(/sys) through all layers (file system, LVM, dm-crypt, RAID, multipath).
    Floors are low and a missed one is a warning; what a network, a cloud or a RAID controller gives is told and not judged.
  - A device is never touched, C(/dev) and links into it are refused, and nothing is started that would leave less than a
    tenth of the file system free.
  - A slow disk is no failure of the module; read the returned checks. A missing C(fio) is an incomplete check.
options:
  directory:
    description: Directory on the file system to measure. It must exist.
    type: path
    required: true
  profile:
    description:
      - What to run. V(quick) reads sequentially and at random for three seconds each from 256 MiB.
      - V(guide-randread), also named V(randread), is the deep-learning guides' line, C(rw=randread bs=4k ioengine=libaio
        iodepth=32 numjobs=4 direct=1 size=10G runtime=60).
      - V(seqread) and V(seqwrite) read and write in order, V(sequential) does both.
      - V(shards) reads 128 KiB at random in several files at once, as workers of a data loader do.
      - V(checkpoint) writes one file in order with C(fsync) at the end, and reads one back.
    type: str
    choices: [checkpoint, guide-randread, quick, randread, seqread, seqwrite, sequential, shards]
    default: quick
  size:
    description: Size of each job's file, such as V(10G), by 1,024. Without it the profile or the free space decides.
    type: str
  runtime:
    description: Seconds to measure.
    type: int
  ramp:
    description: Seconds to run before measuring.
    type: int
  numjobs:
    description: Jobs that run at once.
    type: int
  iodepth:
    description: Requests that each job keeps open.
    type: int
  executable:
    description: The fio to run. Looked for on the search path when it is not absolute.
    type: str
    default: fio
  timeout:
    description: Seconds after which fio is killed. Computed from size and run time when not given.
    type: int
  disk_class:
    description: The class whose floors apply. V(auto) finds the disks behind O(directory) and makes the floors of them.
    type: str
    choices: [auto, hdd, ssd, nvme, nvme3, nvme4, nvme5, md, network, virtual]
    default: auto
  expected_read_mb:
    description: Floor for reads of 128 KiB and more in MB/s, in place of the disk's.
    type: float
  expected_write_mb:
    description: Floor for writes in MB/s, in place of the disk's.
    type: float
  expected_iops:
    description: Floor for random reads of 4 KiB in operations a second, in place of the disk's.
    type: float
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Runs nothing and says so in a skipped check.
    support: full
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Measure the disk of the data sets within seconds
  gpuwright.node.fio:
    directory: /data

- name: Measure as the guides do
  gpuwright.node.fio:
    directory: /data
    profile: guide-randread

- name: Measure how long a checkpoint takes
  gpuwright.node.fio:
    directory: /checkpoints
    profile: checkpoint
  register: measured

- name: Say it in words
  ansible.builtin.debug:
    msg: "{{ measured.disk.words }}: {{ measured.meaning }}"
"""

RETURN = r"""
iops:
  description: Operations a second of the random part, else of the only one.
  returned: when something was measured
  type: float
  sample: 412000.5
bw_bytes:
  description: Bytes a second of the sequential part, else of the only one.
  returned: when something was measured
  type: int
  sample: 3521000000
clat_ns:
  description: Completion latency of the part that RV(iops) is of, in nanoseconds, with its percentiles.
  returned: when something was measured
  type: dict
  sample: {"min": 51000, "mean": 310000, "max": 9100000, "stddev": 44000, "percentiles": {"50": 305000, "99": 620000}}
disk_class:
  description: The class of the disk, given or found; none where it is not known.
  returned: always
  type: str
  sample: nvme4
disk:
  description: What stands behind the directory, the floors of its disks and where they come from.
  returned: always
  type: dict
  sample:
    words: ext4 on LVM on dm-crypt on NVMe PCIe 4.0 x4 (Example 960)
    layers: [NVMe PCIe 4.0 x4 (Example 960), dm-crypt, LVM, ext4]
    devices: [{"name": "nvme0n1", "class": "nvme4", "model": "Example 960", "link": "PCIe 4.0 x4"}]
    floors: {"seqread": 1250000000, "randread": 100000, "seqwrite": 500000000}
    floors_from: assumed
meaning:
  description: What the figures mean for the workers of a data loader and for checkpoints.
  returned: when something was measured past the page cache
  type: str
  sample: "At 2,000 MB/s a checkpoint of a model with its optimizer is written: one of 8B (105 GB) in 52 s"
parts:
  description: For each part what was run and what was measured.
  returned: always
  type: dict
  sample: {"seqread": {"engine": "libaio", "direct": true, "iops": 3358, "bw_bytes": 3521000000}}
checks:
  description: The judgement, one entry a check.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "fio.seqread", "status": "pass", "severity": "warning"}]
verdict:
  description:
    - The judgement in one word. C(fail) if a check failed; else C(incomplete) if one could not be made, or none passed; else C(pass).
  returned: always
  type: str
  sample: pass
"""

import errno
from typing import TYPE_CHECKING, Dict, List, Literal, Optional, Sequence, Tuple, TypedDict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    disk_class,
    disk_floors,
    fio_bench,
    fio_json,
    fio_meaning,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.disk_class import Layer

NUMBERS: Tuple[Literal["runtime", "ramp", "numjobs", "iodepth"], ...] = ("runtime", "ramp", "numjobs", "iodepth")
# What keeps a program from being started, and what a person does.
NOT_STARTED: Dict[Optional[int], Dict[str, str]] = {
    errno.ENOENT: {
        "reason": "fio is not installed",
        "action": "install",
        "remedy": "install the package fio (gpuwright up does), or name another with 'executable'",
    },
    errno.EACCES: {
        "reason": "this user may not execute fio",
        "action": "configure",
        "remedy": "check the mode of the file and of the directories above it, and whether its file system is mounted noexec",
    },
    errno.ENOEXEC: {
        "reason": "fio is no program that this machine can execute",
        "action": "install",
        "remedy": "reinstall the package fio: the file is damaged or for another architecture",
    },
    None: {
        "reason": "fio did not say which engines it has",
        "action": "none",
        "remedy": "run 'fio --enghelp' by hand; one that hangs waits for a disk or a network file system",
    },
}
# These keep files in memory, or answer direct reads from it.
CACHED = ("tmpfs", "ramfs", "zfs")
# Of what stands behind a directory so much is told: disks, and characters of a text.
MOST_DEVICES = 100
MOST_CHARACTERS = 2000


def main() -> None:
    """Read the options, measure, answer."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "profile": {"type": "str", "default": "quick", "choices": sorted(fio_bench.PROFILES)},
            "size": {"type": "str"},
            "runtime": {"type": "int"},
            "ramp": {"type": "int"},
            "numjobs": {"type": "int"},
            "iodepth": {"type": "int"},
            "executable": {"type": "str", "default": "fio"},
            "timeout": {"type": "int"},
            "disk_class": {
                "type": "str",
                "default": "auto",
                "choices": ["auto", "hdd", "ssd", "nvme", "nvme3", "nvme4", "nvme5", "md", "network", "virtual"],
            },
            "expected_read_mb": {"type": "float"},
            "expected_write_mb": {"type": "float"},
            "expected_iops": {"type": "float"},
        },
        supports_check_mode=True,
    )
    try:
        with fio_bench.ending_cleanly():
            result = prove(module.params, module.check_mode)
    except fio_bench.Refused as error:
        module.fail_json(msg=str(error))
    except fio_bench.Ended as error:
        module.fail_json(msg="{0}; fio was stopped and its files were removed".format(error))
    module.exit_json(changed=False, **checks.with_verdict(result))


class Options(TypedDict):
    """The options of the module."""

    directory: str
    disk_class: str
    executable: str
    profile: str
    size: Optional[str]
    iodepth: Optional[int]
    numjobs: Optional[int]
    runtime: Optional[int]
    ramp: Optional[int]
    timeout: Optional[int]
    expected_read_mb: Optional[float]
    expected_write_mb: Optional[float]
    expected_iops: Optional[float]


Device = TypedDict(
    "Device", {"name": Optional[str], "class": Optional[str], "model": Optional[str], "link": Optional[str]}
)
"""A disk: what the kernel calls it, its class, model and link of PCI Express."""


class Disk(TypedDict):
    """What stands behind the directory: in words, its layers with the lowest first, its disks, their floors and where these come from."""

    words: str
    layers: List[str]
    devices: List[Device]
    floors: Dict[str, float]
    floors_from: str


class _Answer(TypedDict):
    disk_class: Optional[str]
    disk: Disk
    parts: Dict[str, fio_bench.Measured]
    checks: List[Check]


class Answer(_Answer, total=False):
    """What the module answers, without the verdict."""

    iops: float
    clat_ns: fio_json.Latency
    bw_bytes: float
    meaning: str


def prove(params: Options, check_mode: bool) -> Answer:
    """All checks of one call, and the numbers behind them."""
    directory = fio_bench.safe_directory(params["directory"])
    parts = wanted_parts(params)
    layer = disk_class.behind(directory)
    given = None if params["disk_class"] == "auto" else params["disk_class"]
    limits = disk_floors.of_layers(layer) if given is None else disk_floors.of_class(given)
    result: Answer = {
        "disk_class": given or disk_class.class_of(layer),
        "disk": told(layer, limits),
        "parts": {},
        "checks": [],
    }
    if check_mode:
        result["checks"].append(checks.skipped("fio.runs", "nothing is measured in check mode", "warning"))
        return result
    engines, missing = find_engines(params["executable"])
    if missing:
        result["checks"].append(missing)
        return result
    # First: what a run left that was killed takes the room that this one needs.
    fio_bench.clear(directory)
    refusal, sized = fio_bench.judge_space(directory, parts)
    if refusal:
        result["checks"].append(refusal)
        return result
    try:
        measure(params, directory, sized, engines, limits, result)
        result["checks"] += disk_floors.judge(layer, given)
    except OSError as error:
        result["checks"].append(unusable_directory(directory, error))
    meanings = [str(part["meaning"]) for part in result["parts"].values() if part.get("meaning")]
    if meanings:
        result["meaning"] = ". ".join(meanings)
    return result


def told(layer: Layer, limits: disk_floors.Limits) -> Disk:
    """What stands behind the directory, for the answer."""
    devices: List[Device] = [
        {
            "name": disk.name,
            "class": disk.disk_class,
            "model": disk.model,
            "link": str(disk.link) if disk.link else None,
        }
        for disk in disk_class.disks_of(layer)[:MOST_DEVICES]
    ]
    return {
        "words": disk_class.words(layer)[:MOST_CHARACTERS],
        "layers": [name[:MOST_CHARACTERS] for name in disk_class.names(layer)[:MOST_DEVICES]],
        "devices": devices,
        "floors": dict(limits.limits),
        "floors_from": limits.source[:MOST_CHARACTERS],
    }


def wanted_parts(params: Options) -> List[fio_bench.Part]:
    """The profile's parts with the caller's changes."""
    numbers = {name: params[name] for name in NUMBERS}
    for name, number in [*numbers.items(), ("timeout", params["timeout"])]:
        if number is not None and number < (0 if name == "ramp" else 1):
            raise fio_bench.Refused("{0} must be at least {1}".format(name, 0 if name == "ramp" else 1))
    size = None if params["size"] is None else fio_bench.parse_size(params["size"])
    return fio_bench.parts_of(params["profile"], size=size, **numbers)


def find_engines(executable: str) -> Tuple[List[str], Optional[Check]]:
    """The engines to try, or the check that says why fio cannot be asked."""
    answer = run.run([executable, "--enghelp"], timeout=20)
    if answer.rc is None:
        known = NOT_STARTED.get(answer.errno, {**NOT_STARTED[None], "reason": "fio cannot be run"})
        return [], checks.incomplete("fio.runs", evidence=answer.error, **known)
    return fio_bench.engines_of(answer.out), None


def measure(
    params: Options,
    directory: str,
    parts: Sequence[fio_bench.Part],
    engines: Sequence[str],
    limits: disk_floors.Limits,
    result: Answer,
) -> None:
    """Run the parts and put their numbers and checks into ``result``."""
    kind = disk_class.file_system_of(directory)
    for part, ran in fio_bench.measure(params["executable"], directory, parts, engines, params["timeout"]):
        document, outcome = ran.pop("document"), ran
        buffered = not outcome["direct"] or kind in CACHED
        if document is None:
            result["checks"].append(
                checks.incomplete(
                    "fio." + part.name,
                    str(outcome["error"]),
                    evidence=" ".join(outcome["argv"]),
                    action="none",
                    remedy="run the command that is shown by hand, in a directory of its own",
                )
            )
        else:
            side = fio_json.side_of(part.name, document)
            if side:
                outcome = {**outcome, **side}
            outcome["version"] = document["version"]
            found = fio_json.judge(
                part.name,
                document,
                limits,
                None if part.once else part.runtime,
                floor_of(params, part.name),
                buffered,
                outcome["passed_over"],
            )
            if side and not buffered:
                meaning = fio_meaning.sentence(part.name, side["bw_bytes"], side["iops"], part.numjobs)
                outcome["meaning"] = meaning
                found = [explained(check, meaning) for check in found]
            result["checks"] += found
            put_on_top(result, part, side)
        result["parts"][part.name] = outcome


def explained(check: Check, meaning: Optional[str]) -> Check:
    """A check that passed, with what its figures mean."""
    if check["status"] == "pass":
        check["reason"] = ". ".join(each for each in (check["reason"], meaning) if each) or None
    return check


def floor_of(params: Options, part: str) -> Optional[float]:
    """What the caller wants of a part, in the unit that it is judged in."""
    figure = fio_json.FIGURES[part]
    if figure.what == "iops":
        return params["expected_iops"]
    wanted = params["expected_read_mb"] if figure.side == "read" else params["expected_write_mb"]
    return None if wanted is None else wanted * disk_floors.MB


def put_on_top(result: Answer, part: fio_bench.Part, side: Optional[fio_json.Measurement]) -> None:
    """The numbers people ask for first: operations of the random part, bandwidth of the sequential one."""
    if side is None:
        return
    random = part.rw == "randread"
    if random or "iops" not in result:
        result["iops"], result["clat_ns"] = side["iops"], side["clat_ns"]
    if not random or "bw_bytes" not in result:
        result["bw_bytes"] = side["bw_bytes"]


def unusable_directory(directory: str, error: OSError) -> Check:
    """A file system that cannot be written: read-only is a fault of the host, the rest one of the request."""
    known = fio_json.OUTCOMES.get(error.errno or 0)
    if known is None:
        return checks.incomplete(
            "fio.runs",
            "nothing can be written in {0}: {1}".format(directory, error.strerror),
            remedy="give another directory",
        )
    return checks.make(
        "fio.runs",
        known["status"],
        reason="{0}: {1}".format(directory, known["reason"]),
        action=known["action"],
        remedy=known["remedy"],
    )


if __name__ == "__main__":
    main()
