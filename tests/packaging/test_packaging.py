"""gpuwright works from each form it is handed out in: wheel, editable install, bare clone, Galaxy tarball."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Environment, attempt, run

pytestmark = pytest.mark.slow

VERSION = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/gpuwright/__init__.py").read_text())[1]  # type: ignore[index]  # it is there
COLLECTION = "ansible_collections/gpuwright/node/"
COLLECTION_ENTRIES = ("galaxy.yml", "README.md", "meta", "playbooks", "plugins", "roles", "compat")
# What the tables are checked by where they are changed: in a clone.
FOR_CLONES = "compat/schema/"
RESOLVE = ("resolve", "--gpu", "H100", "--os", "debian-13", "--json")


def files_under(clone: Path) -> set[str]:
    """The files of the collection, as paths from its root."""
    found = set()
    for entry in COLLECTION_ENTRIES:
        path = clone / entry
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        found |= {str(file.relative_to(clone)) for file in files}
    return {name for name in found if not name.startswith(FOR_CLONES)}


def resolve_answer(environment: Environment, cwd: Path) -> dict[str, object]:
    outcome = run(environment.program("gpuwright"), *RESOLVE, cwd=cwd)
    answer = json.loads(outcome.stdout)
    assert isinstance(answer, dict)
    return answer


# The wheel


def test_wheel_carries_every_file_of_the_collection(wheel: Path, clone: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = {name.removeprefix(COLLECTION) for name in archive.namelist() if name.startswith(COLLECTION)}
    assert carried == files_under(clone)


def test_wheel_leaves_the_namespace_of_collections_to_everybody(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "ansible_collections/__init__.py" not in archive.namelist()


def test_wheel_is_the_same_from_the_sdist_and_from_the_tree(
    wheel: Path, clone: Path, tmp_path: Path, editable_environment: Environment
) -> None:
    """The wheel fixture was built from the sdist; this one from the tree itself."""
    run(
        editable_environment.program("python"), "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", tmp_path, clone, cwd=tmp_path,
    )  # fmt: skip
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


def test_wheel_says_its_version(wheel_environment: Environment, tmp_path: Path) -> None:
    outcome = run(wheel_environment.program("gpuwright"), "--version", cwd=tmp_path)
    assert VERSION in outcome.stdout


def test_wheel_resolves_without_host_and_network(wheel_environment: Environment, tmp_path: Path) -> None:
    answer = resolve_answer(wheel_environment, tmp_path)
    assert answer["ok"] is True


def test_wheel_sizes_and_writes_a_page_without_host_and_network(wheel_environment: Environment, tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    words = ("size", "llama-3.1-8b", "--gpu", "H100", "--json", "--html", str(page))
    answer = json.loads(run(wheel_environment.program("gpuwright"), *words, cwd=tmp_path).stdout)
    assert (answer["ok"], answer["cards"]) == (True, 1)
    assert "llama-3.1-8b" in page.read_text(encoding="utf-8")


def test_wheel_finds_its_playbook(wheel_environment: Environment, tmp_path: Path) -> None:
    site_packages = next((wheel_environment.home / "lib").glob("python3*/site-packages"))
    run(
        wheel_environment.program("ansible-playbook"), "gpuwright.node.site", "-i", "localhost,", "--syntax-check",
        cwd=tmp_path, env={**wheel_environment.path, "ANSIBLE_COLLECTIONS_PATH": str(site_packages)},
    )  # fmt: skip


# The editable install


def test_editable_install_says_its_version(editable_environment: Environment, tmp_path: Path) -> None:
    outcome = run(editable_environment.program("gpuwright"), "--version", cwd=tmp_path)
    assert VERSION in outcome.stdout


def test_editable_install_resolves_as_the_wheel_does(
    editable_environment: Environment, wheel_environment: Environment, tmp_path: Path
) -> None:
    assert resolve_answer(editable_environment, tmp_path) == resolve_answer(wheel_environment, tmp_path)


def test_editable_install_reads_the_clone_itself(
    editable_environment: Environment, clone: Path, tmp_path: Path
) -> None:
    show = "import gpuwright, ansible_collections.gpuwright.node.plugins.module_utils as m; print(gpuwright.__file__, *m.__path__)"
    shown = run(editable_environment.program("python"), "-c", show, cwd=tmp_path).stdout.split()
    assert [Path(path).resolve().is_relative_to(clone) for path in shown] == [True, True]


# The bare clone: nothing is installed but ansible-core


def test_bare_clone_needs_only_ansible_core(ansible_environment: Environment, clone: Path) -> None:
    run(
        ansible_environment.program("ansible-playbook"), "site.yml", "-i", "inventories/workstation", "--syntax-check",
        cwd=clone, env=ansible_environment.path,
    )  # fmt: skip


def test_bare_clone_works_from_another_directory(ansible_environment: Environment, clone: Path, tmp_path: Path) -> None:
    run(
        ansible_environment.program("ansible-playbook"), clone / "site.yml", "-i", clone / "inventories/workstation",
        "--syntax-check", cwd=tmp_path, env=ansible_environment.path,
    )  # fmt: skip


@pytest.mark.parametrize("playbook", sorted(path.name for path in (ROOT / "playbooks").glob("*.yml")))
def test_every_playbook_works_from_the_root_of_a_bare_clone(
    playbook: str, ansible_environment: Environment, clone: Path
) -> None:
    run(
        ansible_environment.program("ansible-playbook"), f"playbooks/{playbook}", "-i", "inventories/workstation",
        "--syntax-check", cwd=clone, env=ansible_environment.path,
    )  # fmt: skip


def test_check_mode_plans_for_this_machine(ansible_environment: Environment, clone: Path, tmp_path: Path) -> None:
    """The machine that runs the tests, whatever it is, observed for real. 2 is a machine whose plan cannot be carried out."""
    outcome = attempt(
        ansible_environment.program("ansible-playbook"), clone / "site.yml", "-i", clone / "inventories/workstation",
        "--check", "--diff", "-e", f"gpuwright_run_dir={tmp_path / 'run'}", "-e", "ansible_become=false",
        cwd=tmp_path, env={**ansible_environment.path, "XDG_STATE_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert outcome.returncode in {0, 2}, outcome.stdout + outcome.stderr
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert list(report["hosts"]) == ["localhost"]
    assert [path.name.partition(".")[0] for path in (tmp_path / "run/plans").iterdir()] == ["localhost"]
    assert "TASK [" not in outcome.stdout.partition("PLAY [Apply and prove]")[2]


def test_a_host_of_an_earlier_run_in_the_same_directory_is_not_worked_on(
    ansible_environment: Environment, clone: Path, tmp_path: Path
) -> None:
    """Nothing is changed: the lock of the one host is bad input."""
    left = tmp_path / "run/plans/elsewhere.json"
    left.parent.mkdir(parents=True)
    left.write_text(json.dumps({"host": "elsewhere", "ok": True, "components": ["cuda"]}))
    outcome = attempt(
        ansible_environment.program("ansible-playbook"), clone / "site.yml", "-i", clone / "inventories/workstation",
        "-e", f"gpuwright_run_dir={tmp_path / 'run'}", "-e", "ansible_become=false", "-e", "gpuwright_lock=/absent/lock.json",
        cwd=tmp_path, env={**ansible_environment.path, "XDG_STATE_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert outcome.returncode == 2, outcome.stdout + outcome.stderr
    assert "the lock file /absent/lock.json is not there" in outcome.stdout
    assert "elsewhere" not in outcome.stdout


@pytest.mark.parametrize("inventory", ["workstation", "fleet"])
def test_example_inventory_is_read_without_a_warning(
    inventory: str, ansible_environment: Environment, clone: Path
) -> None:
    outcome = run(
        ansible_environment.program("ansible-inventory"), "-i", f"inventories/{inventory}", "--list",
        cwd=clone, env=ansible_environment.path,
    )  # fmt: skip
    assert json.loads(outcome.stdout)["_meta"]["hostvars"]
    assert "WARNING" not in outcome.stderr


# The Galaxy tarball


def test_tarball_holds_the_collection_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = archive.getnames()
    top = {name.split("/")[0] for name in names}
    assert not [name for name in names if name.startswith(FOR_CLONES)]
    allowed = {
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "FILES.json",
        "LICENSE",
        "MANIFEST.json",
        "README.md",
        "SECURITY.md",
        "changelogs",
        "docs",
    }
    assert top - allowed == {"meta", "playbooks", "plugins", "roles", "compat"}


def test_tarball_installs_and_its_playbook_runs_by_name(
    tarball: Path, clone: Path, ansible_environment: Environment, tmp_path: Path
) -> None:
    env = {**ansible_environment.path, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    galaxy = ansible_environment.program("ansible-galaxy")
    run(galaxy, "collection", "install", "--offline", "-p", tmp_path, tarball, cwd=tmp_path, env=env)
    run(
        ansible_environment.program("ansible-playbook"), "gpuwright.node.site", "-i", "localhost,", "--syntax-check",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    documented = run(ansible_environment.program("ansible-doc"), "--list", "gpuwright.node", cwd=tmp_path, env=env)
    modules = {f"gpuwright.node.{path.stem}" for path in (clone / "plugins/modules").glob("[!_]*.py")}
    assert modules <= set(documented.stdout.split())
