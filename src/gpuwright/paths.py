"""Where the parts of an installation lie: the collection, the programs of the own environment, the run directories."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from gpuwright.errors import BadInput, Failed

COLLECTION = Path("ansible_collections") / "gpuwright" / "node"

# Written into every run directory; a directory without it is somebody else's and is not written over.
MARKER = ".gpuwright-run"
OWN_ENTRIES = (
    "facts",
    "plans",
    "hosts",
    "ansible",
    "run.json",
    "inventory.json",
    "extravars.json",
    "report.json",
    "report.html",
    "junit.xml",
)


@cache
def collections_root() -> Path:
    """The directory that holds `ansible_collections`: site-packages of a wheel, `collections` of a clone.

    Raises:
        Failed: the collection is not there; the installation is broken.
    """
    package = Path(__file__).resolve().parent
    for root in (package.parent, package.parent.parent / "collections"):
        if (root / COLLECTION / "playbooks").is_dir() or (root / COLLECTION / "plugins").is_dir():
            return root
    raise Failed(
        f"the Ansible collection gpuwright.node was looked for next to {package} and is not there",
        ["install gpuwright again"],
    )


def make_collection_importable() -> None:
    """Put the own collection first on the import path: a stale copy elsewhere must not answer for this version."""
    root = str(collections_root())
    if root not in sys.path:
        sys.path.insert(0, root)


def playbook(verb: str) -> Path:
    """The playbook of a verb.

    Raises:
        Failed: this installation has none of that name.
    """
    path = collections_root() / COLLECTION / "playbooks" / f"{verb}.yml"
    if not path.is_file():
        raise Failed(f"the playbook {path} is missing", ["install gpuwright again"])
    return path


def clone_root() -> Path | None:
    """The root of the repository when run from a clone, else nothing."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "tests" / "sim").is_dir() and (root / "galaxy.yml").is_file() else None


def programs() -> Path:
    """The directory of the own environment's programs (`ansible-playbook`)."""
    # Not resolved: the interpreter of a virtual environment is a link that leads out of it.
    return Path(sys.executable).parent


def state_home() -> Path:
    """The user's state directory, by the XDG rules."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def make_run_directory(report: str | None) -> Path:
    """Make the directory of one run, private to its user.

    Args:
        report: `--report DIR`; without it a new directory under the user's state directory.

    Raises:
        BadInput: the directory cannot be made or holds something that is not ours.
    """
    if report is None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = state_home() / "gpuwright" / "runs" / f"{stamp}-{os.getpid()}"
    else:
        path = Path(report).expanduser().absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            _clear_own(path)
        (path / MARKER).touch(mode=0o600)
    except OSError as error:
        raise BadInput(
            f"the report directory {path} cannot be used: {error.strerror}", ["give another one with --report DIR"]
        ) from error
    return path


def clear_records(run_dir: Path) -> None:
    """Drop what an earlier pass of the same run wrote about hosts, so that nothing stale is read as a result."""
    import shutil

    for name in ("facts", "plans", "sealed", "hosts"):
        shutil.rmtree(run_dir / name, ignore_errors=True)


def _clear_own(path: Path) -> None:
    import shutil

    if not (path / MARKER).is_file():
        raise BadInput(
            f"the report directory {path} is not empty and was not written by gpuwright",
            ["give an empty or a new directory with --report DIR"],
        )
    for name in OWN_ENTRIES:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
