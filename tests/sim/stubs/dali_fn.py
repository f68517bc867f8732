"""The operators of the stand-in for DALI."""
import types as _types

reductions = _types.SimpleNamespace(sum=lambda numbers: numbers.total())
