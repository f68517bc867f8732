"""Both lines of ansible-core are tested, or the run says that they were not."""

from __future__ import annotations

import os
from importlib.metadata import version

import pytest


def test_the_newest_line_of_ansible_core_was_tested_too() -> None:
    """Set by noxfile.py, which runs the tests on both lines. Skipped by name where no Python for the newest line exists."""
    line = os.environ.get("GPUWRIGHT_NEWEST_LINE")
    if line is None:
        pytest.skip("this run is on one line only; `make unit` runs on both")
    missing = os.environ["GPUWRIGHT_NEWEST_LINE_MISSING"]
    if missing:
        pytest.skip(f"NOT TESTED ON ansible-core {line}: {missing}")


def test_this_line_is_one_that_is_supported() -> None:
    major, minor = (int(part) for part in version("ansible-core").split(".")[:2])
    assert (major, minor) >= (2, 19)
