# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Jupyter kernel of an environment: a file by which every Jupyter of the machine finds it, whoever started that."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.observe import jupyter_kernels

if TYPE_CHECKING:
    from ...model.work import File
    from .model import FrameworkEnvironment


class Kernel(TypedDict):
    """What is done for the kernel of an environment: its directory and file, or what goes where none is wished."""

    directories: list[str]
    files: list[File]
    absent: list[str]


NOTHING: Kernel = {"directories": [], "files": [], "absent": []}
#: They go with the last kernel, where nothing else is inside.
DIRECTORIES = tuple(
    str(each)
    for each in (PurePosixPath(jupyter_kernels.DIRECTORY), *PurePosixPath(jupyter_kernels.DIRECTORY).parents)[:2]
)


def file(directory: str) -> str:
    """The file of a kernel in its directory."""
    return f"{directory}/{jupyter_kernels.FILE}"


def content(framework: FrameworkEnvironment) -> str:
    """What Jupyter reads: the environment's Python by its own path, so that a new kernel runs in the build that is in use then."""
    path, first = framework["path"], framework.get("loader_path")
    kernel = {
        "argv": [f"{path}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python {framework['interpreter']} ({PurePosixPath(path).name}, gpuwright)",
        "language": "python",
        # Not with what the server has behind it: where that is nothing, Jupyter leaves "${LD_LIBRARY_PATH}" as it stands.
        **({"env": {"LD_LIBRARY_PATH": first}} if first else {}),
        "metadata": {"debugger": True},
    }
    return f"{json.dumps(kernel, indent=1)}\n"


def work(framework: FrameworkEnvironment) -> Kernel:
    """What the role does for the kernel of an environment."""
    directory = framework.get("kernel")
    if not directory:
        return {"directories": [], "files": [], "absent": [jupyter_kernels.directory(framework["path"])]}
    written: File = {"path": file(directory), "content": content(framework), "mode": "0644"}
    return {"directories": [directory], "files": [written], "absent": []}
