"""What the last proof of a host measured of its cards: no job on them reaches more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import paths, runs
from gpuwright.sizing.timing import Measured
from gpuwright.sizing.units import GB, TERA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.report.loads import Device

#: Runs that prove, of which the newest are looked into: to open the records of more takes longer than to answer.
_PROVE = ("validate", "up", "upgrade")
_MOST_RUNS = 20


def cards(host: str) -> dict[str, Measured]:
    """What each model of card on a host reached in its last proof under load, its slowest card; none where there was no such proof."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import loads, run_directory

    for run in [each for each in runs.known() if each.verb in _PROVE][:_MOST_RUNS]:
        path = run_directory.document(run.path / "hosts", host)
        record = (run_directory.read_json(path) if path else None) or {}
        measurements = record.get("measurements")
        told = measurements.get("framework_loads") if isinstance(measurements, dict) else None
        devices = [device for row in loads.shaped(told) for device in row["devices"] if device["kind"] == "card"]
        if devices:
            day = (run.started or run.name)[:10]
            return {name: _slowest([each for each in devices if each["name"] == name], day) for name in _names(devices)}
    return {}


def _names(devices: list[Device]) -> list[str]:
    return list(dict.fromkeys(device["name"] for device in devices))


def _slowest(devices: list[Device], day: str) -> Measured:
    products = [_positive(device["tflops"], TERA) for device in devices]
    precisions = set.intersection(*map(set, products))
    copies = [max(_positive(device["bandwidth_gbs"], GB).values(), default=0.0) for device in devices]
    return Measured(
        products={precision: min(each[precision] for each in products) for precision in precisions},
        bandwidth=min(copies),
        day=day,
    )


def _positive(figures: Mapping[str, float], unit: float) -> dict[str, float]:
    return {name: value * unit for name, value in figures.items() if value > 0}
