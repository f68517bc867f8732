"""Tests of the whole program against simulated nodes (marker `sim`)."""
