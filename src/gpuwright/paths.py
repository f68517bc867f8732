"""Where the parts of an installation lie: the collection, the programs of the own environment, the run directories."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from gpuwright.errors import BadInput, Failed

COLLECTION = Path("ansible_collections") / "gpuwright" / "node"

#: Where the system's programs are: what a user can write to must not answer in their name.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Written into every run directory; a directory without it is somebody else's and is not written over.
MARKER = ".gpuwright-run"
OWN_ENTRIES = (
    "facts",
    "plans",
    "sealed",
    "hosts",
    "progress",
    "samples",
    "steps.jsonl",
    "ansible",
    "run.json",
    "inventory.json",
    "extravars.json",
    "report.json",
    "report.html",
    "outliers.json",
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
    # A copy that goes on after a boot has them beside its library, and the system's interpreter.
    copy = Path(__file__).resolve().parents[2] / "bin"
    if (copy / "ansible-playbook").is_file():
        return copy
    # Not resolved: the interpreter of a virtual environment is a link that leads out of it.
    return Path(sys.executable).parent


#: Variables that say where a program writes.
_PLACES = ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP")


def leave_the_callers_places() -> None:
    """As root, write nowhere that another user can change: sudo may keep the caller's HOME, in which a link could lie in our way."""
    if os.geteuid() != 0:
        return
    import pwd
    import site

    make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership

    for name in _PLACES:
        given = os.environ.get(name) or "~"
        if not given.startswith("~") and ownership.offence(str(Path(given).absolute()), sticky=True):
            if name == "HOME" and site.ENABLE_USER_SITE:
                # What runs now may be installed there, for that user alone.
                os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
            del os.environ[name]
    os.environ.setdefault("HOME", pwd.getpwuid(0).pw_dir)


def judge_configuration() -> None:
    """As root, take no ansible.cfg of the working directory that somebody else may change: it can name programs and plugins.

    The user whom sudo names is trusted with it: that user began the run. Ansible takes none in a directory that everybody may write.

    Raises:
        BadInput: there is one.
    """
    path = Path.cwd() / "ansible.cfg"
    if os.geteuid() != 0 or os.environ.get("ANSIBLE_CONFIG") or not path.exists() or path.parent.stat().st_mode & 0o002:
        return
    make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership

    caller = os.environ.get("SUDO_UID", "")
    found = ownership.offence(str(path), (0, int(caller)) if caller.isdigit() else (0,))
    if found:
        raise BadInput(
            f"root would take {path} of the working directory, which another user may change: there is {found.text}",
            ["work in another directory", f"take it all the same: ANSIBLE_CONFIG={path}"],
        )


def written(name: str) -> Path:
    """A path as a person writes it; ``~`` and ``~user`` are homes. One of nobody stays as it is written, and is not there."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - Path.expanduser raises RuntimeError where there is no such user


def exists(path: Path) -> bool:
    """Whether something is there. A name that is too long, or below what may not be looked into, is nothing."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises OSError


def is_file(path: Path) -> bool:
    """Whether a file is there."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises OSError


def state_home() -> Path:
    """The user's state directory, by the XDG rules."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def run_directory(report: str | None) -> Path:
    """Where a run writes: `--report DIR`; without it a new directory under the user's state directory. Nothing is made."""
    if report is not None:
        return written(report).absolute()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return state_home() / "gpuwright" / "runs" / f"{stamp}-{os.getpid()}"


def make_run_directory(path: Path) -> Path:
    """Make the directory of one run, private to its user; one that is there keeps its mode, and what is written into it is private.

    Raises:
        BadInput: the directory cannot be made or holds something that is not ours.
    """
    make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

    try:
        made = run_directory.make(path)
        if any(made.iterdir()):
            _clear_own(made, run_directory.is_own_file(made / MARKER))
        os.close(os.open(made / MARKER, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise BadInput(
            f"the report directory {path} cannot be used: {error.strerror}", ["give another one with --report DIR"]
        ) from error
    except run_directory.RefusedError as error:
        raise BadInput(
            f"the report directory {path} must be yours alone, with all directories above it, and there is {error}",
            [
                "give a directory of your own with --report DIR; with sudo one of root's, or run without sudo and with -K"
            ],
        ) from error
    return path


def remove_run_directory(run_dir: Path) -> None:
    """Remove what a run wrote, and its directory where nothing else is in it."""
    import contextlib

    with contextlib.suppress(OSError):
        _remove_own(run_dir)
        (run_dir / MARKER).unlink(missing_ok=True)
        run_dir.rmdir()


def clear_records(run_dir: Path) -> None:
    """Drop what an earlier pass of the same run wrote about hosts, so that nothing stale is read as a result."""
    import shutil

    for name in ("facts", "plans", "sealed", "hosts", "progress"):
        shutil.rmtree(run_dir / name, ignore_errors=True)
    (run_dir / "steps.jsonl").unlink(missing_ok=True)


def _clear_own(path: Path, is_ours: bool) -> None:
    if not is_ours:
        raise BadInput(
            f"the report directory {path} is not empty and was not written by gpuwright",
            ["give an empty or a new directory with --report DIR"],
        )
    _remove_own(path)


def _remove_own(path: Path) -> None:
    import shutil

    for name in OWN_ENTRIES:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
