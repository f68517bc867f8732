# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge the builds of the driver's module that DKMS left as failed: what the build said is the cause, and has its own remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version

from ..components.view import UP, View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import FailedBuild

#: What gcc and clang say of an option that is newer than they are.
_UNKNOWN_OPTION = re.compile(r"\b(?:unrecognized command[- ]line option|unknown argument)\b", re.IGNORECASE)
#: What the shell and make say of a program that is not there, as module_utils/observe/dkms.py keeps it.
_NO_PROGRAM = re.compile(r"^(?:\S*sh: (?:[^:]{1,20} )?\d{1,6}|make(?:\[\d{1,3}\])?): (?P<name>[\w+.-]{1,40}): ")
#: Packages of the programs that a module is built with, where they are not called as these, in Debian's family and in Red Hat's.
_PROGRAMS = {
    "g++": ("g++", "gcc-c++"),
    "c++": ("g++", "gcc-c++"),
    "cc": ("gcc", "gcc"),
    "ld": ("binutils", "binutils"),
    "ld.bfd": ("binutils", "binutils"),
    "ld.lld": ("lld", "lld"),
    "pahole": ("pahole", "dwarves"),
    "xz": ("xz-utils", "xz"),
}


class _Told(NamedTuple):
    """What a line of a build means: the cause, and what helps ({kernel} is that of the build)."""

    line: str
    cause: str
    remedy: str


_ANOTHER_COMPILER = "the compiler is another one than that which built the kernel"
_HEADERS = (
    "install the headers of that kernel again (apt-get install --reinstall linux-headers-{kernel}, or dnf reinstall "
    "kernel-devel-{kernel})"
)
# The first that matches decides. Sources: kernel-open/conftest.sh of NVIDIA's open modules (its sanity checks); Makefile, scripts/ and
# tools/objtool of Linux; what gcc, clang and kmodsign say of what they lack.
_TOLD = (
    _Told(
        r"PREEMPT_RT (?:kernel|sanity check)|does not support real-time kernels",
        "this kernel is a real-time one (PREEMPT_RT), for which the driver is not built",
        "boot a kernel of the distribution without it; with IGNORE_PREEMPT_RT_PRESENCE=1 in the environment of dkms it is built, "
        "which NVIDIA does not support",
    ),
    _Told(
        r"Xen (?:kernel|sanity check)",
        "this kernel is one of Xen, for which the driver is not built",
        "boot a kernel without Xen; with IGNORE_XEN_PRESENCE=1 in the environment of dkms it is built, which NVIDIA does not support",
    ),
    # Each module of the driver names its licence (github rui314/mold, issue 729).
    _Told(
        r"missing MODULE_LICENSE\(\)|\b(?:mold|gold): (?:fatal|error)",
        "the linker did not put the module together as the kernel's build needs it: /usr/bin/ld mostly is another than GNU's (mold, gold)",
        "see where it leads (readlink -f /usr/bin/ld), and give ld back to GNU's linker, ld.bfd (apt-get install --reinstall binutils; "
        "alternatives --set ld /usr/bin/ld.bfd)",
    ),
    _Told(
        r"GPL-(?:incompatible module|only symbol)",
        "this kernel gives what the module asks for to free (GPL) modules alone",
        "take the open modules where the card allows them (--want driver-modules=open), a newer build of the driver, or a kernel of the "
        "distribution as it is",
    ),
    _Told(
        r"Kernel configuration is invalid|autoconf\.h|auto\.conf are missing|No rule to make target '?`?modules|/build: No such file"
        r"|fixdep|(?:tools/objtool/)?objtool: (?:not found|No such file)|Module\.symvers.{0,6} is missing"
        r"|modpost: (?:not found|No such file)"
        r"|scripts/\S{1,40}: (?:not found|No such file|Exec format error)",
        "the headers of that kernel are not there as a whole, or were made for another machine",
        _HEADERS,
    ),
    _Told(
        r"incompatible gcc/plugin versions|Compiler version check failed|code model kernel does not support PIC mode",
        _ANOTHER_COMPILER,
        "install the compiler that built it (CONFIG_CC_VERSION_TEXT in /boot/config-{kernel}), and its plugin headers "
        "(gcc-NN-plugin-dev); where the last numbers alone differ, IGNORE_CC_MISMATCH=1 in the environment of dkms builds it all the same",
    ),
    _Told(
        r"'-mllvm'|'-f(?:split-lto-unit|lto=thin)'|-mretpoline-external-thunk|ld\.lld: (?:not found|command not found|No such file)",
        "the kernel was built by clang, and the module is to be built by gcc",
        "install clang, lld and llvm, and build it by them (LLVM=1 in the environment of dkms); or boot a kernel of the distribution",
    ),
    _Told(
        r"'bool' cannot be defined via 'typedef'|'(?:bool|false|true)' is a keyword with|cannot use keyword '(?:bool|false|true)'",
        "the compiler takes the source as C23 (gcc 15 and newer do), which is older than that",
        "take a newer build of the driver, or install gcc-14 and build it by that",
    ),
    _Told(
        r"please install libelf-dev|<gelf\.h>|gelf\.h: No such file",
        "the headers of libelf are not there",
        "install libelf-dev (elfutils-libelf-devel)",
    ),
    _Told(
        r"MOK\.(?:priv|key|der|pub)|sign-file: |SSL error:.{0,80}(?:sign-file|fopen)",
        "the key that is to sign the module cannot be read",
        "make one (update-secureboot-policy --new-key, or dkms generate_mok), enrol it (mokutil --import) and boot",
    ),
    _Told(
        r"^(?!.*No space).*: Permission denied|Operation not permitted",
        "a program of the build may not be run, or a file not be written",
        "see how /tmp and /var/lib/dkms are mounted (noexec), and whose files are there",
    ),
)


def judge_builds(view: View) -> list[Check]:
    """No kernel came for which the driver's module did not build; one check a build that failed, with the end of its log."""
    result = []
    for build in view.get("dkms.failed") or ():
        kernel, kept = build["kernel"], [name for name in view.get("dkms.kernels") or () if name != build["kernel"]]
        if kernel in (view.get("dkms.kernels") or ()):
            continue  # it was built afterwards
        harmless = build["left_out"] and kernel != view.get("kernel.next")
        result.append(
            checks.failed(
                "driver.build",
                "warning" if harmless else "critical",
                measured=f"{build['module']} {build['version']}",
                expected=f"a module for kernel {kernel}",
                reason=_build_reason(view, build, kept),
                evidence="\n".join([*build["errors"], *build["end"]]),
                action="install",
                remedy=_build_remedy(view, build, kept),
            )
        )
    return result


def judge_records(view: View) -> list[Check]:
    """DKMS has the source of each module that it knows: it ends at one that has none, whosever it is, before it builds the driver's."""
    gone, kernel = view.get("dkms.without_source") or (), view.get("kernel.next")
    if not gone:
        return []
    built = kernel is None or "nvidia" in (view.get("kernel.available") or {})
    places = " ".join(gone)
    return [
        checks.failed(
            "driver.dkms",
            "warning" if built else "critical",
            measured=gone,
            reason=f"DKMS knows a module whose source is gone ({places}), and ends there (Could not locate dkms.conf): "
            + ("a kernel that comes gets no module" if built else f"kernel {kernel} got no module"),
            action="configure",
            remedy=f"sudo rm -r {places}, then sudo dkms autoinstall{'' if built else f' -k {kernel}'}; where it is a module that you "
            "need, install its package again",
        )
    ]


def _build_reason(view: View, build: FailedBuild, kept: Sequence[str]) -> str:
    """Which build failed, by what, and what the next boot means for it."""
    kernel = build["kernel"]
    told = _told(build)
    line = told[1] if told else next(iter(build["errors"]), "")
    said = f" ({line.strip()})" if line else ""
    text = f"the module {build['module']} {build['version']} did not build for kernel {kernel}{said}"
    lacking = _lacking(build)
    if lacking:
        text += f": the program {lacking} is not there"
    if _older_compiler(build):
        text += f": the compiler is older than {_built_with(view, build) or 'the one'} that the kernel was built with"
    elif told and not lacking:
        text += f": {told[0].cause}"
        built_with = _built_with(view, build) if told[0].cause == _ANOTHER_COMPILER else None
        text += f" ({built_with})" if built_with else ""
    elif build["compiler"]:
        text += ": the source of this driver does not go with that kernel"
    if kernel == view.get("kernel.next"):
        return f"{text}. This kernel boots next: after a reboot there is no driver"
    return f"{text}; {view.get('kernel.next')} boots next" + (
        ", which has a module" if view.get("kernel.next") in kept else ""
    )


def _lacking(build: FailedBuild) -> str | None:
    """The program that the build did not find."""
    return next((found["name"] for found in map(_NO_PROGRAM.match, build["errors"]) if found), None)


def _told(build: FailedBuild) -> tuple[_Told, str] | None:
    """What the build said of its cause, with the line that says it; None where it is the source that the compiler refused."""
    lines = [*build["errors"], *build["end"]]
    found = ((each, line) for each in _TOLD for line in lines if re.search(each.line, line))
    return None if build["transient"] else next(found, None)


def _older_compiler(build: FailedBuild) -> bool:
    """Whether the compiler did not know an option: the kernel hands the module those that its own compiler knows."""
    return _told(build) is None and any(_UNKNOWN_OPTION.search(line) for line in build["errors"])


def _built_with(view: View, build: FailedBuild) -> str | None:
    """The compiler of the kernel of a build ("gcc 12.3"), which is seen of the kernel that boots next."""
    return view.get("kernel.compiler.built_with") if build["kernel"] == view.get("kernel.next") else None


def _build_remedy(view: View, build: FailedBuild, kept: Sequence[str]) -> str:
    if build["transient"]:
        return f"make room (disk or memory), then {UP.removeprefix('run ')}"
    lacking = _lacking(build)
    if lacking:
        names = _PROGRAMS.get(lacking, (lacking, lacking))
        package = names[view.get("os.family") == "redhat"]
        return f"install {package}, then {UP.removeprefix('run ')}, which builds the module again; the whole log is {build['log']}"
    if _older_compiler(build):
        family, _space, version = (_built_with(view, build) or "").partition(" ")
        named = (
            f"{family}-{numeric_version.major(version)}"
            if version
            else f"the compiler that /boot/config-{build['kernel']} names"
        )
        return f"install {named}, then {UP.removeprefix('run ')}; the whole log is {build['log']}"
    told = _told(build)
    if told:
        return f"{told[0].remedy.format(kernel=build['kernel'])}, then {UP.removeprefix('run ')}; the whole log is {build['log']}"
    stay = f"stay on {kept[-1]}, which {UP.removeprefix('run ')} sees to; or " if kept else "boot an older kernel; or "
    return (
        f"{stay}take the proprietary modules where the card allows them (--want driver-modules=proprietary), or a driver that knows "
        f"kernel {build['kernel']}; the whole log is {build['log']}"
    )
