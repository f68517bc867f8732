"""Puts the observations of nodes.py on the path of the planner's tests."""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
