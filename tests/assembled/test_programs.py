"""The programs of the load, assembled by NVIDIA's own ptxas for every generation that each of its majors knows."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load_ptx as ptx

#: The distributions that bring ptxas, and what each has to know at the least: Maxwell to Hopper, Turing to Blackwell (release notes of
#: CUDA 12.9 and 13.0, "Deprecated Architectures").
ASSEMBLERS = {
    "nvidia-cuda-nvcc-cu12": ("50", "60", "61", "70", "75", "80", "86", "89", "90", "100", "120"),
    "nvidia-cuda-nvcc": ("75", "80", "86", "89", "90", "100", "103", "110", "120", "121"),
}
PROGRAMS = {
    "PLAIN": (50, (ptx.CHECK_MEMORY, ptx.COMPUTE_FMA)),
    "TENSOR": (70, (ptx.COMPUTE_MMA,)),
}


def assembler(distribution: str) -> str:
    """The ptxas of a distribution of this environment."""
    (path,) = [each for each in importlib.metadata.files(distribution) or () if each.name == "ptxas"]
    found = Path(str(path.locate()))
    found.chmod(0o755)
    return str(found)


def known(ptxas: str) -> list[str]:
    """The generations that it assembles for, without those of one card alone (sm_90a)."""
    said = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"'sm_(\d+)'", said)), key=int)


@pytest.mark.parametrize("distribution", ASSEMBLERS)
def test_each_assembler_knows_the_generations_that_it_is_here_for(distribution: str) -> None:
    assert set(ASSEMBLERS[distribution]) <= set(known(assembler(distribution)))


@pytest.mark.parametrize("distribution", ASSEMBLERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_assembled_for_every_generation(distribution: str, name: str, tmp_path: Path) -> None:
    lowest, entries = PROGRAMS[name]
    ptxas = assembler(distribution)
    source = tmp_path / "program.ptx"
    source.write_text(getattr(ptx, name))
    for generation in (each for each in known(ptxas) if int(each) >= lowest):
        target = tmp_path / f"sm_{generation}.cubin"
        command = [ptxas, "--verbose", "-arch", f"sm_{generation}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"sm_{generation}: {done.stderr}"
        assert "warning" not in done.stderr, f"sm_{generation}: {done.stderr}"
        for entry in entries:
            assert f"Compiling entry function '{entry}' for 'sm_{generation}'" in done.stderr
        spilled = re.findall(r"(\d+) bytes spill", done.stderr)
        assert set(spilled) <= {"0"}, f"sm_{generation}: {done.stderr}"
        assert target.read_bytes().startswith(b"\x7fELF")
