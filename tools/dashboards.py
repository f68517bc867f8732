# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The dashboards: who burns, who idles, who is broken; then one machine, one card, its disks, its jobs.

A panel is a row of a table: its title, its queries, its unit, its limits. A click leads from the fleet to the machine, from there to the
card.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog import builder
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
COLOURS = ("green", "orange", "red")
WIDTH = 24

#: Seven bits of the mask of throttle reasons, by what a person calls them (nvml.h).
THROTTLES = {
    "power cap": 4,
    "hardware slowdown": 8,
    "sync boost": 16,
    "heat (driver)": 32,
    "heat (hardware)": 64,
    "power brake": 128,
}

_FLEET = 'host=~"$host"'
_NODE = 'host="$host"'
_CARD = 'host="$host",gpu="$gpu"'
_DISKS = 'fstype!~"tmpfs|ramfs|squashfs|overlay|iso9660|nsfs|fuse.*"'
_KEEP = "${__url_time_range}&${datasource:queryparam}"


class Query(NamedTuple):
    """A query and what its series are called."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One panel: `kind` is stat (a number), lines, or table (one row a series of labels, one column a query)."""

    title: str
    kind: str
    queries: tuple[Query, ...]
    unit: str = units.Short
    limits: tuple[float, ...] = ()
    width: int = 12
    height: int = 8
    low_is_bad: bool = False
    highest: float | None = None
    link: str = ""
    units_of_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


def all_dashboards() -> dict[str, models.Dashboard]:
    """Return each dashboard by the name of its file."""
    return {
        "fleet": _dashboard("fleet", "Fleet", [_hosts("DCGM_FI_DEV_GPU_UTIL", several=True)], fleet()),
        "node": _dashboard("node", "Node", [_hosts("up")], node()),
        "card": _dashboard("card", "Card", [_hosts("DCGM_FI_DEV_GPU_UTIL"), _gpus()], card()),
        "storage": _dashboard("storage", "Storage", [_hosts("node_filesystem_size_bytes", several=True)], storage()),
        "jobs": _dashboard("jobs", "Jobs", [_hosts("DCGM_FI_DEV_GPU_UTIL", several=True)], jobs()),
    }


def uid(name: str) -> str:
    """Return the identity of a dashboard, which links name."""
    return f"gpuwright-{name}"


def fleet() -> list[Panel]:
    """Who burns, who idles, who is broken."""
    to_node = f"/d/{uid('node')}?var-host=${{__data.fields.host}}&{_KEEP}"
    to_card = f"/d/{uid('card')}?var-host=${{__data.fields.host}}&var-gpu=${{__data.fields.gpu}}&{_KEEP}"
    util = f"DCGM_FI_DEV_GPU_UTIL{{{_FLEET}}}"
    return [
        _number("Machines that answer", f'sum(max by (host) (up{{job="node",{_FLEET}}}))', width=4),
        _number(
            "Machines that do not", f'sum(max by (host) (up{{job="node",{_FLEET}}}) == bool 0)', limits=(1, 3), width=4
        ),
        _number(
            "Cards that are missing",
            f"sum(max by (host) (gpuwright_expected_gpus{{{_FLEET}}}) - max by (host) (gpuwright_gpus{{{_FLEET}}}))",
            limits=(1, 2),
            width=4,
        ),
        _number("Cards that work", f"sum(max by (host, gpu) ({util}) > bool 5)", width=4),
        _number("Cards that idle", f"sum(max by (host, gpu) ({util}) <= bool 5)", width=4),
        _number(
            "Power of the cards", f"sum(max by (host, gpu) (DCGM_FI_DEV_POWER_USAGE{{{_FLEET}}}))", units.Watt, width=4
        ),
        Panel(
            "Who is broken: alerts that fire",
            "table",
            (
                Query(
                    f'max by (alertname, severity, host, gpu, job, xid, mountpoint) (ALERTS{{alertstate="firing",{_FLEET}}})',
                    "now",
                ),
            ),
            link=to_node,
            width=WIDTH,
            columns=("fires",),
        ),
        Panel(
            "Who burns: the hottest cards",
            "table",
            (Query(f"topk(10, max by (host, gpu) (DCGM_FI_DEV_GPU_TEMP{{{_FLEET}}}))", "temperature"),),
            units.Celsius,
            (80, 85),
            link=to_card,
            columns=("temperature",),
        ),
        Panel(
            "Who idles: memory held, nothing computed for an hour",
            "table",
            (
                Query(
                    f"max by (host, gpu) (DCGM_FI_DEV_FB_USED{{{_FLEET}}}) > 2048 and max by (host, gpu) (max_over_time({util}[1h])) < 1",
                    "held",
                ),
            ),
            units.Mebibytes,
            link=to_card,
            columns=("memory",),
        ),
        Panel(
            "Machines",
            "table",
            (
                Query(f"avg by (host) ({util})", "utilisation"),
                Query(
                    f"100 * sum by (host) (DCGM_FI_DEV_FB_USED{{{_FLEET}}}) / sum by (host) (DCGM_FI_DEV_FB_TOTAL{{{_FLEET}}})",
                    "memory",
                ),
                Query(f"max by (host) (DCGM_FI_DEV_GPU_TEMP{{{_FLEET}}})", "temperature"),
                Query(f"sum by (host) (DCGM_FI_DEV_POWER_USAGE{{{_FLEET}}})", "power"),
                Query(f"max by (host) (gpuwright_drift{{{_FLEET}}})", "drift"),
                Query(f"time() - max by (host) (gpuwright_proof_timestamp_seconds{{{_FLEET}}})", "age of the proof"),
                Query(f'max by (host) (gpuwright_proof_verdict{{verdict="pass",{_FLEET}}})', "proof passed"),
            ),
            link=to_node,
            width=WIDTH,
            height=12,
            columns=("utilisation", "memory", "hottest card", "power", "drift", "age of the proof", "proof passed"),
            units_of_columns=(
                units.Percent,
                units.Percent,
                units.Celsius,
                units.Watt,
                units.Short,
                units.Seconds,
                units.BoolYesNo,
            ),
        ),
        Panel(
            "Utilisation by machine",
            "lines",
            (Query(f"avg by (host) ({util})", "{{host}}"),),
            units.Percent,
            highest=100,
        ),
        Panel(
            "Power by machine",
            "lines",
            (Query(f"sum by (host) (DCGM_FI_DEV_POWER_USAGE{{{_FLEET}}})", "{{host}}"),),
            units.Watt,
        ),
        Panel(
            "Drivers",
            "table",
            (Query(f"count by (driver, driver_branch, kernel, os) (gpuwright_info{{{_FLEET}}})", "machines"),),
            width=WIDTH,
            columns=("machines",),
        ),
    ]


def node() -> list[Panel]:
    """One machine: its state, its cards side by side, its processors, memory and network."""
    to_card = f"/d/{uid('card')}?var-host=${{__data.fields.host}}&var-gpu=${{__data.fields.gpu}}&{_KEEP}"
    by_card = "max by (host, gpu)"
    return [
        _number("Answers", f"max by (host) (up{{{_NODE}}})", units.BoolYesNo, (1,), low_is_bad=True, width=4),
        _number(
            "Cards that are missing",
            f"max by (host) (gpuwright_expected_gpus{{{_NODE}}}) - max by (host) (gpuwright_gpus{{{_NODE}}})",
            limits=(1,),
            width=4,
        ),
        _number("Components that drifted", f"max by (host) (gpuwright_drift{{{_NODE}}})", limits=(1,), width=4),
        _number(
            "Age of the proof",
            f"time() - max by (host) (gpuwright_proof_timestamp_seconds{{{_NODE}}})",
            units.Seconds,
            width=4,
        ),
        _number(
            "Up since", f"1000 * max by (host) (node_boot_time_seconds{{{_NODE}}})", units.DateTimeFromNow, width=4
        ),
        _number(
            "The driver's branch ends",
            f"1000 * max by (host) (gpuwright_driver_end_of_life_timestamp_seconds{{{_NODE}}})",
            units.DateTimeFromNow,
            width=4,
        ),
        Panel(
            "Cards",
            "table",
            (
                Query(f"{by_card} (DCGM_FI_DEV_GPU_UTIL{{{_NODE}}})", "utilisation"),
                Query(f"{by_card} (DCGM_FI_DEV_FB_USED{{{_NODE}}})", "memory"),
                Query(f"{by_card} (DCGM_FI_DEV_GPU_TEMP{{{_NODE}}})", "temperature"),
                Query(f"{by_card} (DCGM_FI_DEV_POWER_USAGE{{{_NODE}}})", "power"),
                Query(f"{by_card} (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_NODE}}})", "uncorrectable errors"),
                Query(f"{by_card} (DCGM_FI_DEV_ROW_REMAP_PENDING{{{_NODE}}})", "remapping waits"),
            ),
            link=to_card,
            width=WIDTH,
            columns=("utilisation", "memory", "temperature", "power", "uncorrectable errors", "remapping waits"),
            units_of_columns=(units.Percent, units.Mebibytes, units.Celsius, units.Watt, units.Short, units.BoolYesNo),
        ),
        Panel(
            "Alerts that fire",
            "table",
            (
                Query(
                    f'max by (alertname, severity, gpu, job, xid, mountpoint) (ALERTS{{alertstate="firing",{_NODE}}})',
                    "now",
                ),
            ),
            columns=("fires",),
        ),
        Panel(
            "Quick checks that fail",
            "table",
            (Query(f"max by (check, severity, gpu) (gpuwright_check_failed{{{_NODE}}}) == 1", "now"),),
            columns=("fails",),
        ),
        Panel(
            "Utilisation of the cards",
            "lines",
            (Query(f"max by (gpu) (DCGM_FI_DEV_GPU_UTIL{{{_NODE}}})", "card {{gpu}}"),),
            units.Percent,
            highest=100,
        ),
        Panel(
            "Temperature of the cards",
            "lines",
            (Query(f"max by (gpu) (DCGM_FI_DEV_GPU_TEMP{{{_NODE}}})", "card {{gpu}}"),),
            units.Celsius,
            (80, 85),
        ),
        Panel(
            "Processors",
            "lines",
            (
                Query(
                    f'100 * (1 - avg(rate(node_cpu_seconds_total{{mode="idle",{_NODE}}}[$__rate_interval])))', "busy"
                ),
                Query(
                    f'100 * avg(rate(node_cpu_seconds_total{{mode="iowait",{_NODE}}}[$__rate_interval]))',
                    "waiting for a disk",
                ),
            ),
            units.Percent,
            highest=100,
        ),
        Panel(
            "Memory of the machine",
            "lines",
            (
                Query(f"node_memory_MemTotal_bytes{{{_NODE}}} - node_memory_MemAvailable_bytes{{{_NODE}}}", "used"),
                Query(f"node_memory_MemTotal_bytes{{{_NODE}}}", "all"),
            ),
            units.BytesIEC,
        ),
        Panel(
            "Network",
            "lines",
            (
                Query(f'sum(rate(node_network_receive_bytes_total{{device!="lo",{_NODE}}}[$__rate_interval]))', "in"),
                Query(f'sum(rate(node_network_transmit_bytes_total{{device!="lo",{_NODE}}}[$__rate_interval]))', "out"),
            ),
            units.BytesPerSecondIEC,
        ),
        Panel(
            "Xid since boot",
            "table",
            (Query(f"max by (xid, pci_bus_id) (gpuwright_xid_total{{{_NODE}}})", "lines"),),
            columns=("lines",),
        ),
        Panel(
            "Links of NVLink",
            "lines",
            (Query(f'max by (gpu) (gpuwright_nvlink_links{{state="active",{_NODE}}})', "card {{gpu}}"),),
        ),
        Panel("Load", "lines", (Query(f"node_load1{{{_NODE}}}", "load"),)),
    ]


def card() -> list[Panel]:
    """One card."""
    bits = tuple(
        Query(f"floor(max(DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{_CARD}}}) / {bit}) % 2", name)
        for name, bit in THROTTLES.items()
    )
    return [
        _number("Utilisation", f"max(DCGM_FI_DEV_GPU_UTIL{{{_CARD}}})", units.Percent, width=4),
        _number(
            "Memory",
            f"100 * max(DCGM_FI_DEV_FB_USED{{{_CARD}}}) / max(DCGM_FI_DEV_FB_TOTAL{{{_CARD}}})",
            units.Percent,
            width=4,
        ),
        _number("Temperature", f"max(DCGM_FI_DEV_GPU_TEMP{{{_CARD}}})", units.Celsius, (80, 85), width=4),
        _number("Power", f"max(DCGM_FI_DEV_POWER_USAGE{{{_CARD}}})", units.Watt, width=4),
        _number("Uncorrectable errors", f"max(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_CARD}}})", limits=(1,), width=4),
        _number("Last Xid", f"max(DCGM_FI_DEV_XID_ERRORS{{{_CARD}}})", width=4),
        _lines(
            "Utilisation", units.Percent, ("DCGM_FI_DEV_GPU_UTIL", "computing"), ("DCGM_FI_DEV_MEM_COPY_UTIL", "memory")
        ),
        _lines("Memory", units.Mebibytes, ("DCGM_FI_DEV_FB_USED", "used"), ("DCGM_FI_DEV_FB_FREE", "free")),
        _lines(
            "Temperature",
            units.Celsius,
            ("DCGM_FI_DEV_GPU_TEMP", "processor"),
            ("DCGM_FI_DEV_MEMORY_TEMP", "memory"),
            ("DCGM_FI_DEV_SLOWDOWN_TEMP", "slows down at"),
        ),
        _lines(
            "Power", units.Watt, ("DCGM_FI_DEV_POWER_USAGE", "drawn"), ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "limit")
        ),
        Panel(
            "Clocks",
            "lines",
            (
                Query(f"1e6 * max(DCGM_FI_DEV_SM_CLOCK{{{_CARD}}})", "processor"),
                Query(f"1e6 * max(DCGM_FI_DEV_MEM_CLOCK{{{_CARD}}})", "memory"),
            ),
            units.Hertz,
        ),
        Panel("Why the clocks are low", "lines", bits, units.BoolYesNo, highest=1),
        _lines(
            "PCIe",
            units.Short,
            ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "lanes"),
            ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "lanes that are possible"),
            ("DCGM_FI_DEV_PCIE_LINK_GEN", "generation"),
            ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "generation that is possible"),
        ),
        _lines(
            "Memory errors",
            units.Short,
            ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "corrected"),
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "uncorrectable"),
            ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "rows remapped, corrected"),
            ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "rows remapped, uncorrectable"),
            ("DCGM_FI_DEV_ROW_REMAP_PENDING", "remapping waits"),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "remapping failed"),
        ),
        Panel("Links of NVLink", "lines", (Query(f"max by (state) (gpuwright_nvlink_links{{{_CARD}}})", "{{state}}"),)),
    ]


def storage() -> list[Panel]:
    """Where data lies: what is full, what is slow."""
    to_node = f"/d/{uid('node')}?var-host=${{__data.fields.host}}&{_KEEP}"
    one = "max by (host, mountpoint)"
    used = f"100 * (1 - {one} (node_filesystem_avail_bytes{{{_DISKS},{_FLEET}}}) / {one} (node_filesystem_size_bytes{{{_DISKS},{_FLEET}}}))"
    return [
        Panel(
            "File systems",
            "table",
            (
                Query(used, "used"),
                Query(f"{one} (node_filesystem_avail_bytes{{{_DISKS},{_FLEET}}})", "free"),
                Query(f"{one} (node_filesystem_size_bytes{{{_DISKS},{_FLEET}}})", "size"),
                Query(
                    f"100 * (1 - {one} (node_filesystem_files_free{{{_DISKS},{_FLEET}}}) "
                    f"/ {one} (node_filesystem_files{{{_DISKS},{_FLEET}}} > 0))",
                    "files",
                ),
                Query(f"{one} (node_filesystem_readonly{{{_DISKS},{_FLEET}}})", "read-only"),
            ),
            limits=(90, 97),
            link=to_node,
            width=WIDTH,
            height=10,
            columns=("used", "free", "size", "files used", "read-only"),
            units_of_columns=(units.Percent, units.BytesIEC, units.BytesIEC, units.Percent, units.BoolYesNo),
        ),
        Panel(
            "Class of each disk",
            "table",
            (Query(f"max by (host, mountpoint, class) (gpuwright_disk_class_info{{{_FLEET}}})", "is"),),
            columns=("is",),
        ),
        Panel("Used", "lines", (Query(used, "{{host}} {{mountpoint}}"),), units.Percent, (90, 97), highest=100),
        Panel(
            "Read",
            "lines",
            (Query(f"sum by (host) (rate(node_disk_read_bytes_total{{{_FLEET}}}[$__rate_interval]))", "{{host}}"),),
            units.BytesPerSecondIEC,
        ),
        Panel(
            "Written",
            "lines",
            (Query(f"sum by (host) (rate(node_disk_written_bytes_total{{{_FLEET}}}[$__rate_interval]))", "{{host}}"),),
            units.BytesPerSecondIEC,
        ),
        Panel(
            "The busiest disk of each machine",
            "lines",
            (
                Query(
                    f"100 * max by (host) (rate(node_disk_io_time_seconds_total{{{_FLEET}}}[$__rate_interval]))",
                    "{{host}}",
                ),
            ),
            units.Percent,
            (80, 95),
            width=WIDTH,
            highest=100,
        ),
    ]


def jobs() -> list[Panel]:
    """Who uses the cards, where the exporter knows: a job of Slurm (hpc_job), a container of Kubernetes (namespace, pod)."""
    slurm, pods = f'hpc_job!="",{_FLEET}', f'pod!="",{_FLEET}'

    def both(name: str, by: str, labels: str) -> tuple[Query, ...]:
        mean, held = f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}", f"DCGM_FI_DEV_FB_USED{{{labels}}}"
        return (
            Query(f"count by ({by}) ({mean})", f"cards of a {name}"),
            Query(f"avg by ({by}) ({mean})", "utilisation"),
            Query(f"sum by ({by}) ({held})", "memory"),
            Query(f"sum by ({by}) (DCGM_FI_DEV_POWER_USAGE{{{labels}}})", "power"),
        )

    columns = ("cards", "utilisation", "memory", "power")
    of_columns = (units.Short, units.Percent, units.Mebibytes, units.Watt)
    return [
        Panel(
            "Jobs of Slurm",
            "table",
            both("job", "hpc_job", slurm),
            width=WIDTH,
            columns=columns,
            units_of_columns=of_columns,
        ),
        Panel(
            "Containers",
            "table",
            both("container", "namespace, pod", pods),
            width=WIDTH,
            columns=columns,
            units_of_columns=of_columns,
        ),
        Panel(
            "Utilisation by job",
            "lines",
            (Query(f"avg by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{{{slurm}}})", "{{hpc_job}}"),),
            units.Percent,
            highest=100,
        ),
        Panel(
            "Utilisation by container",
            "lines",
            (Query(f"avg by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{{{pods}}})", "{{namespace}}/{{pod}}"),),
            units.Percent,
            highest=100,
        ),
        Panel(
            "Cards that no job or container is named for",
            "lines",
            (Query(f'count by (host) (DCGM_FI_DEV_GPU_UTIL{{hpc_job="",pod="",{_FLEET}}})', "{{host}}"),),
            width=WIDTH,
        ),
    ]


def _number(
    title: str,
    query: str,
    unit: str = units.Short,
    limits: tuple[float, ...] = (),
    *,
    low_is_bad: bool = False,
    width: int = 6,
) -> Panel:
    return Panel(title, "stat", (Query(query, title),), unit, limits, width, 4, low_is_bad)


def _lines(title: str, unit: str, *fields: tuple[str, str]) -> Panel:
    return Panel(title, "lines", tuple(Query(f"max({name}{{{_CARD}}})", legend) for name, legend in fields), unit)


def _dashboard(
    name: str, title: str, variables: Sequence[builder.Builder[models.VariableModel]], panels: Sequence[Panel]
) -> models.Dashboard:
    """Return a dashboard with its variables, its panels from left to right, and links to the others."""
    board = (
        builders.Dashboard(f"GPU: {title}")
        .uid(uid(name))
        .tags(["gpuwright"])
        .editable()
        .refresh("1m")
        .time("now-6h", "now")
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(
            builders.DashboardLink("GPU")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["gpuwright"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in variables:
        board = board.with_variable(variable)
    for number, (panel, place) in enumerate(zip(panels, _places(panels), strict=True), 1):
        board = board.with_panel(_shown(panel).id(number).grid_pos(place))
    return board.build()


def _places(panels: Sequence[Panel]) -> list[models.GridPos]:
    """From left to right, a new line where the next one does not fit."""
    places, x, y, tallest = [], 0, 0, 0
    for panel in panels:
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        places.append(models.GridPos(h=panel.height, w=panel.width, x=x, y=y))
        x, tallest = x + panel.width, max(tallest, panel.height)
    return places


def _hosts(metric: str, *, several: bool = False) -> builders.QueryVariable:
    variable = _variable("host", "machine", f"label_values({metric}, host)")
    return variable.multi(True).include_all(True).all_value(".*") if several else variable


def _gpus() -> builders.QueryVariable:
    return _variable("gpu", "card", 'label_values(DCGM_FI_DEV_GPU_UTIL{host="$host"}, gpu)')


def _variable(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NUMERICAL_ASC)
    )


def _thresholds(panel: Panel) -> builders.ThresholdsConfig:
    """Colours by the limits, the worst at the top; where low is bad, from the bottom."""
    colours = tuple(reversed(COLOURS[: 1 + len(panel.limits)])) if panel.low_is_bad else COLOURS
    if len(panel.limits) == 1:
        colours = ("red", "green") if panel.low_is_bad else ("green", "red")
    steps = [
        models.Threshold(value=value, color=colour)
        for value, colour in zip((None, *panel.limits), colours[: 1 + len(panel.limits)], strict=True)
    ]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _target(query: Query, number: int) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id("ABCDEFGHIJ"[number])
        .datasource(SOURCE)
        .expr(query.expression)
        .legend_format(query.legend)
    )


def _stat(panel: Panel) -> stat.Panel:
    shown = (
        stat.Panel()
        .title(panel.title)
        .datasource(SOURCE)
        .unit(panel.unit)
        .thresholds(_thresholds(panel))
        .no_value("not told")
    )
    reduced = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    return (
        shown.reduce_options(reduced)
        .graph_mode(common.BigValueGraphMode.NONE)
        .with_target(_target(panel.queries[0], 0).instant())
    )


def _timeseries(panel: Panel) -> timeseries.Panel:
    shown = (
        timeseries.Panel().title(panel.title).datasource(SOURCE).unit(panel.unit).thresholds(_thresholds(panel)).min(0)
    )
    if panel.highest is not None:
        shown = shown.max(panel.highest)
    if panel.limits:
        shown = shown.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.LINE)
        )
    for number, query in enumerate(panel.queries):
        shown = shown.with_target(_target(query, number).range())
    return shown


def _table(panel: Panel) -> table.Panel:
    """One row for each set of labels; each query is a column with its name and its unit."""
    shown = table.Panel().title(panel.title).datasource(SOURCE).no_value("none")
    for number, query in enumerate(panel.queries):
        shown = shown.with_target(_target(query, number).instant().format(PromQueryFormat.TABLE))
    value = "Value" if len(panel.queries) == 1 else "Value #{}"
    names = {value.format("ABCDEFGHIJ"[number]): column for number, column in enumerate(panel.columns)}
    hidden = {"Time": True}
    shown = shown.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    shown = shown.with_transformation(
        models.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "renameByName": names})
    )
    for column, unit in zip(panel.columns, panel.units_of_columns or (panel.unit,) * len(panel.columns), strict=True):
        shown = shown.override_by_name(column, [models.DynamicConfigValue(id_val="unit", value=unit)])
    if panel.limits and panel.columns:
        cell = {"type": "color-text"}
        steps = _thresholds(panel).build()
        shown = shown.override_by_name(
            panel.columns[0],
            [models.DynamicConfigValue("thresholds", steps), models.DynamicConfigValue("custom.cellOptions", cell)],
        )
    if panel.link:
        link = {"title": "show", "url": panel.link}
        for column in ("host", "gpu"):
            shown = shown.override_by_name(column, [models.DynamicConfigValue("links", [link])])
    return shown


def _shown(panel: Panel) -> stat.Panel | timeseries.Panel | table.Panel:
    if panel.kind == "stat":
        return _stat(panel)
    return _table(panel) if panel.kind == "table" else _timeseries(panel)
