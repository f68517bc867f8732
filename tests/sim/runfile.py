"""NVIDIA's driver and its CUDA toolkits as files: shell archives with stand-in installers, libraries and compilers of a version."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

_STUBS = Path(__file__).resolve().parent / "stubs"
_EPOCH = 1763640000
_SMI = '#!/bin/sh\nexec /usr/lib/gpuwright-sim/bin/nvidia-smi "$@"\n'


def name(version: str) -> str:
    """The file's name, as NVIDIA gives it."""
    return f"NVIDIA-Linux-x86_64-{version}.run"


def place(folder: Path, version: str) -> Path:
    """Where the file of a version lies below the server's folder, at the place of the data-centre drivers."""
    return folder / "driver" / "tesla" / version / name(version)


def write(folder: Path, version: str, compiled: Callable[[str, str], bytes]) -> None:
    """Write the file and beside it its checksum. `compiled` makes a library of a version."""
    installer = (_STUBS / "nvidia-installer.py").read_text().replace("@VERSION@", version)
    members = {
        "nvidia-installer": installer.encode(),
        "nvidia-smi": _SMI.encode(),
        "libcuda.so": compiled("libcuda", version),
        "libnvidia-ml.so": compiled("libnvidia-ml", version),
    }
    head = (_STUBS / "runfile.sh").read_text().replace("@VERSION@", version)
    head = head.replace("@LINES@", str(head.count("\n") + 1))
    target = place(folder, version)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head.encode() + _archive(members))
    target.with_name(target.name + ".sha256sum").write_text(f"{checksum(target)}  {target.name}\n")


def toolkit_place(folder: Path, release: str, driver: str) -> Path:
    """Where the file of a toolkit lies below the server's folder, at the place that NVIDIA's has."""
    return folder / "compute" / "cuda" / release / "local_installers" / f"cuda_{release}_{driver}_linux.run"


def write_toolkit(folder: Path, release: str, driver: str, nvcc: str) -> None:
    """Write the file of a toolkit. `nvcc`: its compiler."""

    def of_release(name: str) -> str:
        """A stand-in, which says itself what it was read in, for this release."""
        return (_STUBS / name).read_text().replace("@RELEASE@", release).replace("@DRIVER@", driver)

    head = of_release("cuda-runfile.sh")
    head = head.replace("@LINES@", str(head.count("\n") + 1))
    members = {"cuda-installer": of_release("cuda-installer.py").encode(), "nvcc": nvcc.encode()}
    target = toolkit_place(folder, release, driver)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head.encode() + _archive(members))


def checksum(path: Path) -> str:
    """SHA256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _archive(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, content in sorted(members.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(content), _EPOCH, 0o755
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), compresslevel=1, mtime=_EPOCH)
