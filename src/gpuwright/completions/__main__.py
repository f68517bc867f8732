"""`python -m gpuwright.completions` writes the scripts anew after the options changed."""

from __future__ import annotations

from gpuwright.completions import SHELLS, generate, script

for shell in SHELLS:
    script(shell).write_text(generate(shell), encoding="utf-8")
