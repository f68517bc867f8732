# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How people come to a toolkit: /usr/local/cuda by the alternatives system, PATH, and modulefiles.

No search path of libraries is set here: one for the whole machine would beat the libraries that frameworks bring.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from ...model import sections
from ...model.errors import StepRefused
from ...model.plan import Removes
from ...model.work import File
from ..base import Context, Finding, missing_packages
from . import archive, runfile

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ...model.plan import Plan
    from ...model.stack import Stack
    from .model import CudaToolkit

LINK = "/usr/local/cuda"
#: The name under which NVIDIA's packages register their toolkits for it.
ALTERNATIVE = "cuda"
PROFILE = "/etc/profile.d/gpuwright-cuda.sh"
#: Directories below which modulefiles are written: for a site's own in Debian's and in Red Hat's packages of Lmod and environment-modules.
MODULE_DIRECTORIES = (
    "/etc/modulefiles/cuda",
    "/etc/environment-modules/modules/cuda",
    "/etc/lmod/modules/cuda",
)
_PROGRAM = "update-alternatives"
_WRITTEN = "# Written by gpuwright (role cuda). A change here is overwritten by the next run.\n"


class Link(TypedDict):
    """What the role does to /usr/local/cuda.

    ``path``: where it has to lead, by ``alternative``, the link of the alternatives system. ``register``: commands that make toolkits known
    to that system that no package has registered. ``set``: the command that chooses. ``before``: what it was, to be written down before it
    is led elsewhere the first time.
    """

    path: str
    alternative: str
    register: list[list[str]]
    set: list[str]
    before: File


def default(stack: Stack) -> CudaToolkit | None:
    """The toolkit that /usr/local/cuda has to be; None where it is left alone."""
    return next((toolkit for toolkit in stack.get("cuda") or () if toolkit.get("default")), None)


def findings(context: Context) -> list[Finding]:
    """Where people would come to another toolkit than the wished one, or to none."""
    return [*_link_findings(context), *_modulefile_findings(context)]


def _link_findings(context: Context) -> list[Finding]:
    """Nothing where the toolkit is not there yet: who installs it leads the link to it."""
    toolkit = default(context.stack)
    if toolkit is None or not _is_there(context, toolkit):
        return []
    seen = context.facts["cuda"]["default"]
    if seen["path"] == toolkit["path"]:
        return []
    there = seen["path"] or ("no link" if seen["kind"] else "absent")
    reason = f"{LINK} is {there}, wished is {toolkit['path']}"
    return [Finding("configure", reason, there, toolkit["path"], files=[LINK])]


def _is_there(context: Context, toolkit: CudaToolkit) -> bool:
    """Whether nothing of a toolkit is left to be installed."""
    if "runfile" in toolkit:
        return runfile.is_there(context.facts, toolkit)
    return not missing_packages(context, toolkit["packages"])


def _modulefile_findings(context: Context) -> list[Finding]:
    there = {file["path"] for file in context.facts["cuda"]["modulefiles"]["files"]}
    missing = [path for path in modulefiles(context.stack) if path not in there]
    stray = _stray(context)
    found = [Finding("configure", "modulefiles of the toolkits are missing", files=missing)] if missing else []
    return found + ([Finding("configure", "modulefiles are no longer wished", files=stray)] if stray else [])


def modulefiles(stack: Stack) -> list[str]:
    """The modulefiles that are wished."""
    return [path for toolkit in stack.get("cuda") or () for path in toolkit.get("modulefiles") or ()]


def _stray(context: Context) -> list[str]:
    """Modulefiles of ours that are no longer wished."""
    wished = modulefiles(context.stack)
    files = context.facts["cuda"]["modulefiles"]["files"]
    return [file["path"] for file in files if file["ours"] and file["path"] not in wished]


def files(stack: Stack) -> list[File]:
    """What is written: PATH for everybody, and one modulefile a toolkit and module system."""
    toolkits = stack.get("cuda") or ()
    written = [File(path=PROFILE, content=_PROFILE, mode="0644")] if default(stack) else []
    return written + [
        File(path=path, content=modulefile(toolkit), mode="0644")
        for toolkit in toolkits
        for path in toolkit.get("modulefiles") or ()
    ]


def absent(context: Context) -> list[str]:
    """What was written and is no longer wished."""
    return [*([] if default(context.stack) else [PROFILE]), *_stray(context)]


# Programs only: where a library is found is said by the program that needs it.
_PROFILE = f"""{_WRITTEN}if [ -d {LINK}/bin ]; then
    case ":$PATH:" in
        *:{LINK}/bin:*) ;;
        *) PATH="{LINK}/bin:$PATH"; export PATH ;;
    esac
fi
"""


def modulefile(toolkit: CudaToolkit) -> str:
    """A modulefile in Tcl, which Lmod and environment-modules read both.

    What is linked while it is loaded remembers where its libraries are (LD_RUN_PATH). LD_LIBRARY_PATH is not set: it would also reach
    programs that bring libraries of their own, such as a framework's environment.
    """
    path, version = toolkit["path"], toolkit["version"]
    return f"""#%Module1.0
{_WRITTEN}module-whatis "NVIDIA CUDA toolkit {version}"
conflict cuda
setenv CUDA_HOME {path}
setenv CUDA_PATH {path}
prepend-path PATH {path}/bin
prepend-path LIBRARY_PATH {path}/lib64
prepend-path LD_RUN_PATH {path}/lib64
"""


# /usr/local/cuda


def link(context: Context) -> Link | None:
    """What is done to /usr/local/cuda; None where it is left alone."""
    toolkit = default(context.stack)
    if toolkit is None:
        return None
    seen = context.facts["cuda"]["default"]
    before = {"path": seen["path"], "manual": bool(seen["manual"]) or seen["kind"] == "link"}
    content = f"{json.dumps(before, sort_keys=True)}\n"
    return {
        "path": toolkit["path"],
        "alternative": f"/etc/alternatives/{ALTERNATIVE}",
        "register": [_registration(path, version) for path, version in _unregistered(context).items()],
        "set": [_PROGRAM, "--set", ALTERNATIVE, toolkit["path"]],
        "before": File(path=paths.CUDA_BEFORE, content=content, mode="0644"),
    }


def _unregistered(context: Context) -> dict[str, str]:
    """Toolkits that the alternatives system does not know, by path, with their versions: those of files, those that are there already (a
    package that comes registers its own), and the one that a plain link led to, which a package would replace.
    """
    seen, there = context.facts["cuda"]["default"], context.facts["cuda"]["toolkits"] or ()
    found = {
        each["path"]: each["version"] for each in context.stack["cuda"] if "runfile" in each or _is_there(context, each)
    }
    found |= {each["path"]: each["version"] for each in there if (seen["kind"], seen["path"]) == ("link", each["path"])}
    return {path: version for path, version in found.items() if path not in seen["registered"]}


def _registration(path: str, version: str) -> list[str]:
    """The command that registers a toolkit. Its priority counts only where nobody chose: the newest toolkit has the highest."""
    return [_PROGRAM, "--install", LINK, ALTERNATIVE, path, "".join(version.split(".")[:2])]


def kept(context: Context, plan: Plan) -> list[list[str]]:
    """What leads /usr/local/cuda back that is not ours to lead: the installer of a toolkit takes it for its own."""
    if default(context.stack) or not runfile.coming(context, plan):
        return []
    seen = context.facts["cuda"]["default"]
    if seen["kind"] == "alternatives":
        return [[_PROGRAM, *(["--set", ALTERNATIVE, str(seen["path"])] if seen["manual"] else ["--auto", ALTERNATIVE])]]
    if seen["path"]:
        return [["ln", "--symbolic", "--force", "--no-dereference", seen["path"], LINK]]
    return [["rm", "--force", LINK]]


def refuse(context: Context) -> None:
    """Raise StepRefused where a link or a modulefile would take the place of what is not ours."""
    leads = default(context.stack) or runfile.coming(context)
    if leads and context.facts["cuda"]["default"]["kind"] == "other":
        raise StepRefused(
            f"Expected {LINK} to be a link, or nothing. Found something else, which may be a toolkit that was copied there. "
            f"Nothing was changed. What to do: move it (mv {LINK} /usr/local/cuda-old), or leave it as it is with cuda_default: keep, "
            "then run again."
        )
    foreign = {file["path"] for file in context.facts["cuda"]["modulefiles"]["files"] if not file["ours"]}
    taken = [path for path in modulefiles(context.stack) if path in foreign]
    if taken:
        raise StepRefused(
            f"Expected no modulefile of somebody else's at the place of ours. Found {', '.join(taken)}. Nothing was changed. "
            "What to do: move it, or leave cuda_modulefiles out, then run again."
        )


# Taking back


def former(facts: Facts) -> list[str]:
    """The command that leads /usr/local/cuda where it led before; nothing where that is done, where that toolkit is gone, or where somebody
    led it elsewhere since.
    """
    seen = facts["cuda"]["default"]
    before = seen["before"]
    if before is None or _led_since(facts):
        return []
    if not before["manual"]:
        return [_PROGRAM, "--auto", ALTERNATIVE] if seen["manual"] else []
    path = before["path"]
    is_right = path == seen["path"] and seen["manual"]
    return [_PROGRAM, "--set", ALTERNATIVE, path] if path in seen["registered"] and path and not is_right else []


def _led_since(facts: Facts) -> bool:
    """Whether somebody led it elsewhere than the seal says that it was led here."""
    sealed = cast("Sequence[CudaToolkit]", sections.sealed_stack(facts, "cuda"))
    ours = [toolkit["path"] for toolkit in sealed if toolkit.get("default")]
    return bool(ours) and facts["cuda"]["default"]["path"] not in ours


def take_back(facts: Facts) -> list[Finding]:
    """/usr/local/cuda leads elsewhere than before gpuwright came."""
    command = former(facts)
    if not command:
        return []
    there = facts["cuda"]["default"]["path"]
    after = "what the alternatives system takes by itself" if "--auto" in command else command[-1]
    return [Finding("remove", f"{LINK} was led to {there}", there, after)]


def removes(facts: Facts, _files: Sequence[str]) -> Removes:
    """The work of the role `remove`."""
    return {
        "cuda_default": former(facts),
        "cuda_toolkits": list(runfile.removals(facts)),
        "cuda_archives": archive.removals(facts),
    }
