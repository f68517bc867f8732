# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An interrupted package manager: nothing else can work before it is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Component, Context, Finding

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, FailedBuild


def wanted(context: Context) -> bool:
    return bool(context.facts["packages"]["interrupted"])


def findings(context: Context) -> list[Finding]:
    detail = context.facts["packages"].get("interrupted_detail")
    builds = [_build(context, build) for build in unbuildable(context.facts)]
    reason = f"the package manager was interrupted: {detail or 'unfinished packages'}"
    return [
        Finding("repair", "; ".join([reason, *builds]), files=[_setting(build) for build in unbuildable(context.facts)])
    ]


def unbuildable(facts: Facts) -> list[FailedBuild]:
    """Builds of the module that failed for a kernel that does not run, where another kernel has a module and can go on booting."""
    dkms = facts["dkms"]
    kernel = facts["kernel"]
    return [
        build
        for build in dkms["failed"]
        if not build["transient"]
        and build["kernel"] != kernel["running"]
        and build["kernel"] not in dkms["kernels"]
        and dkms["kernels"]
    ]


def kernel_kept(facts: Facts) -> str | None:
    """The kernel that the repair makes the one that boots next; None where it leaves that as it is."""
    builds = unbuildable(facts) if facts["packages"]["interrupted"] else []
    if facts["kernel"]["next"] not in [build["kernel"] for build in builds]:
        return None
    return str(facts["dkms"]["kernels"][-1])


def _build(context: Context, build: FailedBuild) -> str:
    kernel, kept = build["kernel"], context.facts["dkms"]["kernels"][-1]
    return (
        f"{build['module']} {build['version']} did not build for kernel {kernel};"
        f" {kernel} is left out of its builds{'' if build['compiler'] else ' where it fails again'}"
        f" and {kept}, which has the module, boots next. Ways out: --want driver-modules=proprietary where the card allows it, a driver"
        f" that knows {kernel}, or the older kernel"
    )


def _setting(build: FailedBuild) -> str:
    return f"/etc/dkms/{build['module']}-{build['version']}-{build['kernel']}.conf"


COMPONENT = Component("repair", wanted, findings, mends=True)
