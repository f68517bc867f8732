"""CUDA toolkits from NVIDIA's local repository and of Debian's own archive, libraries as NVIDIA's tar archives: broken, healed, gone."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from tests.sim import local_repository, settings
from tests.sim.engine import docker

from .conftest import Node, Run, bare_clone
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

#: What dnf and rpm note down of what came and went.
_OF_DNF = ("/var/cache/dnf/", "/var/lib/dnf/", "/var/lib/rpm/rpmdb.sqlite")
_RELEASE, _DRIVER = "13.0.3", "580.126.20"
_HOME = "/usr/local/cuda-13.0"
_NVCC = f"{_HOME}/bin/nvcc"


def wish(machine: Node, **variables: object) -> None:
    """Wish it in the inventory; what are mappings there is added to."""
    inventory = yaml.safe_load(machine.inventory.read_text())
    of_all = inventory["all"]["vars"]
    for scope in (of_all, *inventory["all"]["hosts"].values()):
        for key, value in variables.items():
            if isinstance(value, dict) and key in scope:
                scope[key] |= value
            elif scope is of_all:
                scope[key] = value
    machine.inventory.write_text(yaml.safe_dump(inventory))


def compiled(run: Run) -> dict[str, str]:
    """What the proof of toolkits says."""
    proof = ("cuda.compile", "cuda.kernel")
    return {check["id"]: check["status"] for check in run.host["checks"] if check["id"] in proof}


def changes_nothing(machine: Node) -> None:
    again = machine.up()
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)


def nothing_is_left(machine: Node) -> None:
    """`remove` leaves the node as it was before."""
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    left = leftovers(machine.bare, machine.tree())
    assert {path: told for path, told in left.items() if not path.startswith(_OF_DNF)} == {}


# NVIDIA's local repository ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["two-h100", "rocky"])
def machine(request: pytest.FixtureRequest, make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node that the package with a local repository was installed on, as NVIDIA's guide says, and nothing else of NVIDIA's. The tests
    go through the life of its toolkit in their order.
    """
    made = make_shared_node(f"local-{request.param}", request.param)
    unpack = local_repository.unpack_rpm if request.param == "rocky" else local_repository.unpack_deb
    local = unpack(made.name, _RELEASE, _DRIVER)
    wish(
        made,
        gpuwright_want=["driver", "cuda=13.0"],
        gpuwright_mirrors={
            "nvidia": f"file://{local.place}",
            "nvidia-redist-cudnn": "file:///srv/redist",
            "nvidia-redist-nccl": "file:///srv/redist/nccl",
            "nvidia-tensorrt": "file:///srv/redist/tensorrt",
        },
        gpuwright_repository_keys={"nvidia": local.fingerprint},
    )
    return made.with_its_tree()


def test_driver_and_toolkit_come_from_the_directory(machine: Node) -> None:
    run = machine.up()
    assert run.code == 0, str(run)
    assert f"release 13.0, V{_RELEASE}" in machine.shell(f"{_NVCC} --version")
    assert _DRIVER in machine.shell("cat /proc/driver/nvidia/version")
    assert compiled(run) == {"cuda.compile": "pass", "cuda.kernel": "pass"}
    assert "g++" in machine.shell("command -v g++ || rpm -q gcc-c++ | sed s/gcc-c++/g++/")
    changes_nothing(machine)


@pytest.mark.parametrize("how", ["by its manager", "against its manager"])
def test_a_package_that_was_taken_away_comes_back(machine: Node, how: str) -> None:
    commands = {
        "by its manager": "apt-get purge -qy {0} 2>/dev/null || dnf -qy remove {0}",
        "against its manager": "dpkg --remove --force-depends {0} 2>/dev/null || rpm -e --nodeps {0}",
    }
    machine.shell(commands[how].format("cuda-nvcc-13-0"))
    assert machine.shell(f"ls {_NVCC} 2>/dev/null || true") == ""
    healed = machine.up()
    assert healed.code == 0, str(healed)
    assert f"V{_RELEASE}" in machine.shell(f"{_NVCC} --version")
    changes_nothing(machine)


def test_cut_off_while_its_packages_are_unpacked_the_next_run_completes(machine: Node) -> None:
    machine.shell(
        "apt-get purge -qy cuda-nvcc-13-0 cuda-cudart-13-0 2>/dev/null || dnf -qy remove cuda-nvcc-13-0 cuda-cudart-13-0"
    )
    machine.cut_when(f"ls {_HOME} 2>/dev/null | grep -q .")
    assert _DRIVER in machine.shell("nvidia-smi -q | grep 'Driver Version'")
    healed = machine.up()
    assert healed.code == 0, str(healed)
    assert healed.host["changes"], "nothing was cut off"
    assert f"V{_RELEASE}" in machine.shell(f"{_NVCC} --version")
    assert machine.shell("dpkg --audit 2>/dev/null || rpm -Va 'cuda-*' || true") == ""
    changes_nothing(machine)


# cuDNN as an archive ---------------------------------------------------------------------------------------------------

_VERSION, _OTHER = "9.28.0.42", "9.27.0.42"
_RECORD = "/etc/gpuwright/cudnn-13.0.json"
#: Found before the real one by root's PATH.
_TAR = "/usr/local/sbin/tar"


def offer(machine: Node, version: str) -> str:
    """Put an archive of cuDNN where the mirror has it, laid out as NVIDIA's (redistrib_9.27.0.json); return its SHA256."""
    short = version.rpartition(".")[0]
    major, minor, patch = short.split(".")
    header = f"#define CUDNN_MAJOR {major}\n#define CUDNN_MINOR {minor}\n#define CUDNN_PATCHLEVEL {patch}\n"
    files = {
        "LICENSE": "simulated\n",
        "include/cudnn.h": '#include "cudnn_version.h"\n',
        "include/cudnn_version.h": header,
        f"lib/libcudnn.so.{short}": "simulated\n",
        "lib/libcudnn_static_v9.a": "simulated\n",
    }
    links = {f"lib/libcudnn.so.{major}": f"libcudnn.so.{short}", "lib/libcudnn.so": f"libcudnn.so.{major}"}
    name = f"cudnn-linux-x86_64-{version}_cuda13-archive"
    content = _packed(name, files, links, "xz")
    _serve(machine, f"cudnn/linux-x86_64/{name}.tar.xz", content)
    return hashlib.sha256(content).hexdigest()


def _serve(machine: Node, place: str, content: bytes) -> None:
    """Put a file where the mirror has it."""
    served = _packed("srv/redist", {place: content}, {}, "")
    docker("cp", "-", f"{settings.container_name(machine.name)}:/", stdin=served)


def _packed(folder: str, files: dict[str, str] | dict[str, bytes], links: dict[str, str], way: str) -> bytes:
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{way}") as tar:  # type: ignore[call-overload]  # the way is one of its own words
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))
        for path, target in links.items():
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return stream.getvalue()


def wish_archive(machine: Node, version: str, checksum: str) -> None:
    wish(machine, cuda_cudnn=version, cuda_cudnn_source="archive", cuda_cudnn_sha256=checksum)


def cut_while_it_is_unpacked(machine: Node) -> None:
    """Cut a run off when half of the archive is unpacked: a stand-in of tar takes out the headers and waits."""
    script = (
        '#!/bin/sh\\ncase "$*" in *--extract*cudnn*) {0} "$@" --wildcards "*/include/*"; touch /run/held; sleep 600;; esac\\n'
        'exec {0} "$@"\\n'
    ).format(machine.shell("command -v tar").strip())
    machine.shell(f"printf '{script}' > {_TAR}; chmod 755 {_TAR}")
    try:
        machine.cut_when("test -e /run/held")
    finally:
        machine.shell(f"rm -f {_TAR} /run/held")
    assert json.loads(machine.shell(f"cat {_RECORD}"))["state"] == "begun"
    assert machine.shell(f"ls {_HOME}/.gpuwright-cudnn/include").split(), "nothing was unpacked"


def of_cudnn(machine: Node) -> list[str]:
    """What is there of cuDNN, and of what was fetched."""
    return machine.shell(f"find {_HOME}/ /var/lib/gpuwright/ /etc/gpuwright -name '*cudnn*' | sort").split()


def test_an_archive_with_another_checksum_is_refused_and_nothing_is_changed(machine: Node) -> None:
    machine.shell("mkdir -p /srv/redist")
    offer(machine, _OTHER)
    wish_archive(machine, _OTHER, "0" * 64)
    refused = machine.up()
    assert refused.code == 1, str(refused)
    assert "SHA256" in str(refused) or "sha256" in str(refused), str(refused)
    assert [path for path in of_cudnn(machine) if not path.startswith("/var/lib/gpuwright/")] == []


def test_cut_off_while_it_is_unpacked_the_next_run_completes(machine: Node) -> None:
    wish_archive(machine, _OTHER, offer(machine, _OTHER))
    cut_while_it_is_unpacked(machine)
    assert f"V{_RELEASE}" in machine.shell(f"{_NVCC} --version")
    healed = machine.up()
    assert healed.code == 0, str(healed)
    assert "CUDNN_MINOR 27" in machine.shell(f"cat {_HOME}/include/cudnn_version.h")
    assert machine.shell(f"readlink -f {_HOME}/lib64/libcudnn.so").strip().endswith("/lib/libcudnn.so.9.27.0")
    assert json.loads(machine.shell(f"cat {_RECORD}"))["state"] == "done"
    assert machine.shell("ls -d /var/lib/gpuwright/cuda 2>/dev/null || true") == ""
    changes_nothing(machine)


def test_another_version_takes_its_place(machine: Node) -> None:
    wish_archive(machine, _VERSION, offer(machine, _VERSION))
    run = machine.up()
    assert run.code == 0, str(run)
    assert "CUDNN_MINOR 28" in machine.shell(f"cat {_HOME}/include/cudnn_version.h")
    assert not [path for path in of_cudnn(machine) if "9.27" in path]


def test_what_a_cut_left_goes_where_it_is_no_longer_wished(machine: Node) -> None:
    wish_archive(machine, _OTHER, offer(machine, _OTHER))
    cut_while_it_is_unpacked(machine)
    wish(machine, cuda_cudnn=False, cuda_cudnn_source="auto", cuda_cudnn_sha256="auto")
    run = machine.up()
    assert run.code == 0, str(run)
    assert [row["action"] for row in run.host["changes"] if row["component"] == "cuda"] == ["repair"]
    assert of_cudnn(machine) == []
    changes_nothing(machine)


# NCCL and TensorRT as archives -----------------------------------------------------------------------------------------

_NCCL = "nccl_2.30.7-1+cuda13.3_x86_64.txz"
#: By how the system's TensorRT is packed: its version and its name. Its lib is a link.
_TENSORRT = {
    "zst": ("11.3.0.99", "TensorRT-Enterprise-11.3.0.99-Linux-x86_64-cuda-13.4-Release-external.tar.zst"),
    "gz": ("10.16.1.11", "TensorRT-10.16.1.11.Linux.x86_64-gnu.cuda-13.2.tar.gz"),
}


def packed_as(machine: Node) -> str:
    """How the TensorRT of a node is packed: no package brings zstd to Rocky here."""
    return "gz" if "rocky" in machine.name else "zst"


def offer_nccl(machine: Node) -> str:
    """Put an archive of NCCL where the mirror has it, laid out as NVIDIA's; return its SHA256."""
    files = {
        "LICENSE.txt": "simulated\n",
        "include/nccl.h": "#define NCCL_MINOR 30\n",
        "include/nccl_device.h": '#include "nccl_device/core.h"\n',
        "include/nccl_device/core.h": "// simulated\n",
        "lib/libnccl.so.2.30.7": "simulated\n",
        "lib/libnccl_static.a": "simulated\n",
        "lib/pkgconfig/nccl.pc": "simulated\n",
    }
    links = {"lib/libnccl.so.2": "libnccl.so.2.30.7", "lib/libnccl.so": "libnccl.so.2"}
    content = _packed(_NCCL.removesuffix(".txz"), files, links, "xz")
    _serve(machine, f"nccl/v2.30.7/{_NCCL}", content)
    return hashlib.sha256(content).hexdigest()


def offer_tensorrt(machine: Node) -> str:
    """Put an archive of TensorRT where the mirror has it, laid out as NVIDIA's; return its SHA256."""
    version, name = _TENSORRT[packed_as(machine)]
    short, major = version.rpartition(".")[0], version.partition(".")[0]
    lib = "targets/x86_64-linux-gnu/lib"
    files = {
        "include/NvInfer.h": "// simulated\n",
        "include/NvOnnxParser.h": "// simulated\n",
        f"{lib}/libnvinfer.so.{short}": "simulated\n",
        f"{lib}/libnvonnxparser.so.{short}": "simulated\n",
        f"{lib}/stubs/libnvinfer.so": "simulated\n",
        "targets/x86_64-linux-gnu/bin/trtexec": "simulated\n",
    }
    links = {
        "lib": lib,
        f"{lib}/libnvinfer.so.{major}": f"libnvinfer.so.{short}",
        f"{lib}/libnvinfer.so": f"libnvinfer.so.{major}",
    }
    is_gzip = name.endswith(".gz")
    place = f"tensorrt/{short}/tars/{name.removesuffix('.zst')}"
    _serve(machine, place, _packed(f"TensorRT-{version}", files, links, "gz" if is_gzip else ""))
    if not is_gzip:
        machine.shell(f"zstd --quiet --force --rm /srv/redist/{place}")
    return machine.shell(f"sha256sum /srv/redist/tensorrt/{short}/tars/{name}").split()[0]


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, str]], None]:
    """Have the rules know the checksums of stand-ins, by their names: runs are of a clone with these from then on."""

    def know(checksums: dict[str, str]) -> None:
        bare_clone(tmp_path / "clone")
        table = tmp_path / "clone/plugins/plugin_utils/rules/rules.json"
        rules = json.loads(table.read_text())
        for row in rules["libraries"]["nccl_archives"]:
            if f"nccl_{row['version']}-1+cuda{row['cuda']}_x86_64.txz" in checksums:
                row["x86_64"] = checksums[_NCCL]
        for row in rules["libraries"]["tensorrt_archives"]:
            if row["name"] in checksums:
                row |= {"sha256": checksums[row["name"]], "size": 10**6}
        table.write_text(json.dumps(rules))
        monkeypatch.setattr(settings, "CLONE", tmp_path / "clone")

    return know


def test_archives_of_other_libraries_come_beside_it(machine: Node, know: Callable[[dict[str, str]], None]) -> None:
    version, name = _TENSORRT[packed_as(machine)]
    checksums = {_NCCL: offer_nccl(machine), name: offer_tensorrt(machine)}
    wish(machine, cuda_nccl_source="archive")
    # The rules know the real one's checksum, which the stand-in has not.
    refused = machine.up()
    assert refused.code == 1, str(refused)
    assert "sha256" in str(refused).lower(), str(refused)
    assert machine.shell(f"find {_HOME}/ -name '*nccl*'") == ""
    know(checksums)
    wish(machine, cuda_tensorrt=version, cuda_tensorrt_source="archive")
    machine.shell(f"touch {_HOME}/include/NvInfer.h")
    refused = machine.up()
    assert refused.code == 1, str(refused)
    assert f"Expected no TensorRT among the files of {_HOME} but gpuwright's own." in str(refused), str(refused)
    machine.shell(f"rm {_HOME}/include/NvInfer.h")
    run = machine.up()
    assert run.code == 0, str(run)
    assert "NCCL_MINOR 30" in machine.shell(f"cat {_HOME}/include/nccl.h")
    machine.shell(f"test -f {_HOME}/include/nccl_device/core.h && test ! -e {_HOME}/lib64/pkgconfig/nccl.pc")
    assert machine.shell(f"readlink -f {_HOME}/lib64/libnccl.so").strip().endswith("/lib/libnccl.so.2.30.7")
    found = machine.shell(f"readlink -f {_HOME}/lib64/libnvinfer.so").strip()
    assert found.endswith(f"/lib/libnvinfer.so.{version.rpartition('.')[0]}")
    machine.shell(f"test -f {_HOME}/tensorrt-{version}/targets/x86_64-linux-gnu/bin/trtexec")
    for library in ("nccl", "tensorrt"):
        assert json.loads(machine.shell(f"cat /etc/gpuwright/{library}-13.0.json"))["state"] == "done"
    changes_nothing(machine)


def test_one_that_was_taken_away_comes_back(machine: Node, know: Callable[[dict[str, str]], None]) -> None:
    version, name = _TENSORRT[packed_as(machine)]
    know({_NCCL: offer_nccl(machine), name: offer_tensorrt(machine)})
    machine.shell(f"rm -r {_HOME}/nccl-2.30.7")
    healed = machine.up()
    assert healed.code == 0, str(healed)
    assert [row["to"] for row in healed.host["changes"] if row["component"] == "cuda"] == ["2.30.7"]
    machine.shell(f"test -f {_HOME}/lib64/libnccl.so && test -f {_HOME}/tensorrt-{version}/include/NvInfer.h")


def test_remove_leaves_the_local_repository_as_it_was(machine: Node) -> None:
    wish_archive(machine, _VERSION, offer(machine, _VERSION))
    assert machine.up().code == 0
    machine.shell("rm -r /srv/redist")
    nothing_is_left(machine)


# Debian's own toolkit --------------------------------------------------------------------------------------------------

_OWN = ("--gpu", "A100 SXM4 80GB", "--want", "driver", "--want", "driver-source=distro", "--want", "cuda-source=distro")
#: Of 5 GB what compiling needs nothing of: the libraries of mathematics. Their packages are there, their files are not unpacked.
_LEFT_OUT = ("libcublas*", "libcufft*", "libcurand*", "libcusolver*", "libcusparse*", "libnpp*", "libnvjpeg*")
_INSTALLED = "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' | grep '^installed ' | sort"
#: A compiler at work beside other tests, and 2 GB to load.
_LIMIT_SECONDS = 3600


@pytest.fixture(scope="module")
def debian(make_shared_node: Callable[[str, str], Node]) -> Node:
    """Debian 13 with every package as Debian has it, without a card, provisioned for one; the tests go by turns with it, in their order."""
    made = make_shared_node("own-toolkit", "debian-real-driver")
    made.limit = _LIMIT_SECONDS
    excluded = "".join(f"path-exclude=/usr/lib/x86_64-linux-gnu/{name}\\n" for name in _LEFT_OUT)
    made.shell(f"printf '{excluded}' > /etc/dpkg/dpkg.cfg.d/left-out; {_INSTALLED} > /root/installed")
    return made


def test_debians_own_nvcc_compiles_with_the_compiler_that_it_brings(debian: Node) -> None:
    run = debian.up(*_OWN)
    assert run.code == 0, str(run)
    assert "release 12.4," in debian.shell("nvcc --version")
    assert compiled(run)["cuda.compile"] == "pass", run.host["checks"]
    assert debian.shell("ls -d /usr/local/cuda 2>/dev/null || true") == ""
    debian.shell(
        "cd /tmp && printf '#include <cstdio>\\n__global__ void k() {}\\nint main() { k<<<1, 1>>>(); puts(\"hello\"); }\\n' > hello.cu"
        " && nvcc -o hello hello.cu && ./hello | grep hello && rm hello hello.cu"
    )
    again = debian.up(*_OWN)
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)


def test_debians_own_toolkit_comes_back(debian: Node) -> None:
    debian.shell("apt-get purge -qy nvidia-cuda-toolkit")
    healed = debian.up(*_OWN)
    assert healed.code == 0, str(healed)
    assert [row["action"] for row in healed.host["changes"] if row["component"] == "cuda"] == ["install"]
    assert "release 12.4," in debian.shell("nvcc --version")


def test_remove_takes_every_package_of_it_away(debian: Node) -> None:
    gone = debian.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert debian.shell(f"{_INSTALLED} | diff /root/installed -") == ""
