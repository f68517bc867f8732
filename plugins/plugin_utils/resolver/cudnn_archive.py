# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cuDNN as NVIDIA's tar archive, in each toolkit's own directory: toolkits of several CUDA major versions have each the one that serves it.

compat/cudnn.yaml (archives) has them with their checksums; none is unpacked without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..model.stack import CudaToolkit, Cudnn, CudnnArchive
from ..rules import Row, Rules
from ..wish import Wish
from . import cudnn, upstreams
from .log import Entry, Log, Unresolved, conflict
from .machine import Machine
from .part import DISTRO

_SOURCE = "compat/cudnn.yaml (archives)"
#: What an architecture is called there.
_ARCH = {"x86_64": "x86_64", "aarch64": "sbsa"}


def choose(toolkits: Sequence[CudaToolkit], machine: Machine, wish: Wish, log: Log) -> Cudnn:
    """Return the archive of each toolkit: of the version that was asked for, else the newest that serves its CUDA and the cards.

    Raises Unresolved with every reason.
    """
    if not toolkits or any(each.get("source") == DISTRO for each in toolkits):
        text = "an archive of cuDNN is put into a toolkit's own directory, and " + (
            "the distribution's has none" if toolkits else "no toolkit is wished"
        )
        raise Unresolved(
            conflict("cudnn.archive-place", text, _SOURCE, "use cudnn-source=packages, or wish a toolkit of NVIDIA's")
        )
    _refuse_several(toolkits, wish)
    reasons: list[Entry] = []
    found: list[CudnnArchive] = []
    for toolkit in toolkits:
        row = _row(toolkit, machine, wish, log.rules)
        if row is None:
            reasons.append(_none(toolkit, machine, wish, log.rules))
            continue
        found.append(_archive(toolkit, row, machine, wish, log.rules))
        text = f"cuDNN {row['version']} for CUDA {row['cuda_major']}, as NVIDIA's archive, in {toolkit['path']}"
        log.decided("cudnn.archive", text, "the wish" if wish.cudnn_sha256 else log.cite("cudnn", row))
    if reasons:
        raise Unresolved(*reasons)
    newest = max((each["version"] for each in found), key=numeric_version.key)
    return {"version": newest, "packages": [], "archives": found}


def _refuse_several(toolkits: Sequence[CudaToolkit], wish: Wish) -> None:
    """Raise Unresolved where the checksum of one archive is given and it does not say of which."""
    majors = {numeric_version.major(each["version"]) for each in toolkits}
    if wish.cudnn_sha256 and (len(majors) > 1 or wish.cudnn_version is None):
        text = "cuda_cudnn_sha256 is of one archive: of one version of cuDNN, for one CUDA major version"
        remedy = (
            "name the version too (cuda_cudnn: 9.10.2.21), and wish toolkits of one CUDA major version, or leave it out"
        )
        raise Unresolved(conflict("cudnn.archive-several", text, "the wish", remedy))


def _row(toolkit: CudaToolkit, machine: Machine, wish: Wish, rules: Rules) -> Row | None:
    """Return the newest archive that serves a toolkit and the cards."""
    known = [_given(toolkit, machine, wish)] if wish.cudnn_sha256 else rules["cudnn"]["archives"]
    rows = [row for row in _serving(known, toolkit, machine, rules) if wish.cudnn_version in (None, row["version"])]
    return max(rows, key=lambda row: numeric_version.key(row["version"]), default=None)


def _given(toolkit: CudaToolkit, machine: Machine, wish: Wish) -> Row:
    """Return the archive whose checksum the wish has."""
    major = numeric_version.major(toolkit["version"])
    return {"version": wish.cudnn_version, "cuda_major": major, machine.arch: wish.cudnn_sha256}


def _serving(archives: Sequence[Row], toolkit: CudaToolkit, machine: Machine, rules: Rules) -> list[Row]:
    major = numeric_version.major(toolkit["version"])
    capabilities = [card.compute_capability for card in machine.cards if card.compute_capability]
    lasts = [row["last"] for row in cudnn.limits(capabilities, [major], rules["cudnn"]["ceilings"])]
    firsts = [
        row["first"]
        for row in rules["cudnn"]["floors"]
        if row.get("cuda_major") == major
        or any(numeric_version.at_least(each, row.get("from_compute_capability") or "99") for each in capabilities)
    ]
    return [
        row
        for row in archives
        if row["cuda_major"] == major
        and all(numeric_version.at_least(last, row["version"]) for last in lasts)
        and all(numeric_version.at_least(row["version"], first) for first in firsts)
    ]


def _none(toolkit: CudaToolkit, machine: Machine, wish: Wish, rules: Rules) -> Entry:
    """Return why there is no archive for a toolkit."""
    there = [row["version"] for row in _serving(rules["cudnn"]["archives"], toolkit, machine, rules)]
    if wish.cudnn_sha256:
        text = f"cuDNN {wish.cudnn_version} does not serve CUDA {toolkit['version']} and the cards"
        remedy = f"leave cuda_cudnn_sha256 out and use cudnn={there[-1]}" if there else "use cudnn-source=packages"
        return conflict("cudnn.archive", text, _SOURCE, remedy)
    asked = f"cuDNN {wish.cudnn_version}" if wish.cudnn_version else "cuDNN"
    text = f"no checksum is known of an archive of {asked} that serves CUDA {toolkit['version']} and the cards, and none is unpacked unseen"
    known = f"use cudnn={there[-1]}, or cudnn-source=packages" if there else "use cudnn-source=packages"
    remedy = f"{known}, or set cuda_cudnn_sha256 to what `sha256sum` says of an archive that you trust"
    return conflict("cudnn.archive", text, _SOURCE, remedy)


def _archive(toolkit: CudaToolkit, row: Row, machine: Machine, wish: Wish, rules: Rules) -> CudnnArchive:
    arch = _ARCH[machine.arch]
    name = f"cudnn-linux-{arch}-{row['version']}_cuda{row['cuda_major']}-archive.tar.xz"
    return {
        "path": toolkit["path"],
        "version": row["version"],
        "name": name,
        "addresses": [f"{upstreams.url('nvidia-redist-cudnn', wish, rules)}/cudnn/linux-{arch}/{name}"],
        "sha256": row[machine.arch],
    }
