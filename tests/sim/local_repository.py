"""NVIDIA's local repository: one CUDA release with its driver, which a package unpacks to a directory of the machine, beside its key.

The .rpm as `rpm -ql` lists it in heterodb/pg-strom issue 861: /var/cuda-repo-rhel9-12-6-local with the packages, E1329FA8.pub and a
keyring, and /etc/yum.repos.d/cuda-rhel9-12-6-local.repo. The .deb as NVIDIA's guide has one install it: `dpkg -i`, then
`cp /var/cuda-repo-ubuntu2404-12-8-local/cuda-*-keyring.gpg /usr/share/keyrings/`. What else lies there for apt (Packages, Release,
InRelease) and the words of the .list and the .repo file are assumed.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import deb, node, repository, settings
from .engine import docker


@dataclass(frozen=True)
class Local:
    """One that lies on a node."""

    place: str
    fingerprint: str


def unpack_deb(name: str, release: str, driver: str) -> Local:
    """Install the package cuda-repo-… on the node NAME, as NVIDIA's guide says: `dpkg -i`."""
    title = _title("debian13", release)
    with _folder() as folder:
        key = deb.SigningKey(folder / "home", f"{title} <simulation@invalid>", folder / "key.asc")
        try:
            deb.write_repository(folder / "var", list(_packages(release, driver)), "NVIDIA, NVIDIA CUDA", key)
            package = _package(title, f"{release}-{driver}-1", folder / "var", key)
        finally:
            key.close()
        file = folder / package.file_name
        file.write_bytes(deb.archive(package))
        docker("cp", str(file), f"{settings.container_name(name)}:/root/{file.name}")
    node.shell(name, f"dpkg -i /root/{file.name} && rm /root/{file.name}")
    return Local(f"/var/{title}", key.fingerprint)


def _packages(release: str, driver: str) -> Iterator[deb.Package]:
    plan = yaml.safe_load(repository.PACKAGES.read_text())
    for _row, package in repository.stand_ins(plan, "debian13"):
        if package.version.startswith((f"{release}-", f"{driver}-")):
            yield package


def _package(title: str, version: str, folder: Path, key: deb.SigningKey) -> deb.Package:
    package = deb.Package(title, version)
    keyring = f"cuda-{key.fingerprint[-8:]}-keyring.gpg"
    package.files = {f"/var/{title}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    package.files[f"/var/{title}/{keyring}"] = _dearmoured(key.public())
    listed = f"/etc/apt/sources.list.d/{title.replace('cuda-repo-', 'cuda-')}.list"
    package.files[listed] = f"deb [signed-by=/usr/share/keyrings/{keyring}] file:///var/{title} /\n".encode()
    package.configuration.append(listed)
    return package


def _dearmoured(text: str) -> bytes:
    """The bytes of an armoured key, without its checksum."""
    body = text.partition("\n\n")[2].rpartition("\n-----END")[0]
    return base64.b64decode("".join(line for line in body.splitlines() if not line.startswith("=")))


def unpack_rpm(name: str, release: str, driver: str) -> Local:
    """The same in the costume of Rocky Linux: what the package would unpack, with the packages that are served to it."""
    title = _title("rhel9", release)
    served = repository.ensure() / "compute/cuda/repos/rhel9/x86_64"
    fingerprint = repository.build_information()["fingerprint"]
    with _folder() as folder:
        unpacked = folder / title
        unpacked.mkdir()
        for path in served.glob("*.rpm"):
            if f"-{release}-" in path.name or f"-{driver}-" in path.name:
                shutil.copy(path, unpacked)
        shutil.copy(next(served.glob("*.pub")), unpacked / f"{fingerprint[-8:]}.pub")
        (unpacked / "modules.yaml").write_text(_streams(served, driver.partition(".")[0]))
        docker("cp", str(unpacked), f"{settings.container_name(name)}:/var/{title}")
    listed = title.replace("cuda-repo-", "cuda-")
    source = f"[{listed}]\\nname={listed}\\nbaseurl=file:///var/{title}\\nenabled=1\\ngpgcheck=1\\n"
    source += f"gpgkey=file:///var/{title}/{fingerprint[-8:]}.pub\\n"
    node.shell(
        name,
        f"cd /var/{title} && createrepo_c --quiet . && modifyrepo_c --mdtype=modules modules.yaml repodata >/dev/null"
        f" && rm modules.yaml && chown -R root:root . && printf '{source}' > /etc/yum.repos.d/{listed}.repo",
    )
    return Local(f"/var/{title}", fingerprint)


def _streams(served: Path, branch: str) -> str:
    """The module streams of a driver's branch."""
    (metadata,) = (served / "repodata").glob("*.yaml")
    documents = [each for each in yaml.safe_load_all(metadata.read_text()) if each["data"]["stream"].startswith(branch)]
    return yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False)


def _title(system: str, release: str) -> str:
    major, minor = release.split(".")[:2]
    return f"cuda-repo-{system}-{major}-{minor}-local"


@contextmanager
def _folder() -> Iterator[Path]:
    """A short path: the agent's socket does not fit into a long one."""
    folder = Path(tempfile.mkdtemp(prefix="gws-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
