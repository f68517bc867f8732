"""How many examples, and which: the same ones each time, unless more are asked for."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

# Set: that many examples for each property, drawn anew in each run. Not set: a few hundred, the same in each run.
MORE = "GPUWRIGHT_PROPERTY_EXAMPLES"
set_hypothesis_home_dir(Path(__file__).resolve().parents[2] / ".cache" / "hypothesis")
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "same", derandomize=True, database=None, max_examples=200, deadline=None, suppress_health_check=_QUIET
)
settings.register_profile(
    "more", max_examples=int(os.environ.get(MORE) or 1), deadline=None, print_blob=True, suppress_health_check=_QUIET
)
settings.load_profile("more" if os.environ.get(MORE) else "same")
