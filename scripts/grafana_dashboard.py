"""Grafana's dashboard as a value: `SECTIONS` has its panels, everything else is their layout.

A new metric is a line in `SECTIONS`; `make dashboards` writes the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 38
COLUMNS = 24
HEIGHT = 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
OURS = 'job=~"$job",instance=~"$instance"'
"""What every selector names: the variables at the top of the dashboard."""

RATE = "[$__rate_interval]"
REQUESTS = "http_server_request_duration_seconds"
ROUTE = "{{stage}} {{http_route}}"


@dataclass(frozen=True)
class Panel:
    """One panel: queries with their legends; ``unit`` is Grafana's name of it, ``view`` its kind of panel."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    width: int = 8
    view: str = "timeseries"
    description: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Section:
    """A title and the panels below it, from left to right."""

    title: str
    panels: Sequence[Panel]


def _gauge(labels: str, metric: str, aggregate: str = "sum") -> str:
    return f"{aggregate} by ({labels}) ({metric}{{{OURS}}})"


def _rate(labels: str, metric: str, matchers: str = "") -> str:
    return f"sum by ({labels}) (rate({metric}{{{OURS}{matchers}}}{RATE}))"


def _quantile(share: float) -> str:
    return f"histogram_quantile({share}, {_rate('stage, http_route, le', f'{REQUESTS}_bucket')})"


def _share(statuses: str) -> str:
    """The share of requests with these statuses, a regular expression; 0 if there are others only."""
    some = _rate("stage", f"{REQUESTS}_count", f',http_response_status_code=~"{statuses}"')
    every = _rate("stage", f"{REQUESTS}_count")
    return f"({some} or 0 * {every}) / ({every} > 0)"


_REQUESTS = Section(
    "Requests",
    (
        Panel(
            "Requests a second",
            [
                (
                    _rate("stage, http_route, http_response_status_code", f"{REQUESTS}_count"),
                    f"{ROUTE} {{{{http_response_status_code}}}}",
                )
            ],
            "reqps",
        ),
        Panel(
            "Share of errors",
            [
                (_share("5.."), "{{stage}} ours (5xx)"),
                (_share("4.."), "{{stage}} of clients (4xx)"),
                (_share("499"), "{{stage}} did not wait (499)"),
            ],
            "percentunit",
            description="A client that does not wait counts among 4xx, too.",
        ),
        Panel(
            "Requests in flight",
            [(_gauge("instance, stage", "tfs_proxy_requests_in_flight"), "{{instance}} {{stage}}")],
            description="Those that wait for a worker are among them. The autoscaler follows this.",
        ),
        Panel(
            "Half of the requests are faster, 99 of 100 are faster",
            [(_quantile(0.5), f"{ROUTE} p50"), (_quantile(0.99), f"{ROUTE} p99")],
            "s",
        ),
        Panel(
            "gRPC calls a second by status",
            [(_rate("stage, grpc_status", "tfs_proxy_grpc_requests_total"), "{{stage}} {{grpc_status}}")],
            "reqps",
            description="0 is OK. The HTTP status of all of them is 200.",
        ),
        Panel(
            "Probes a second",
            [(_rate("path, status", "tfs_proxy_probe_requests_total"), "{{path}} {{status}}")],
            "reqps",
            description="/ping and /metrics, which are not among the requests.",
        ),
    ),
)
_HEALTH = Section(
    "Health",
    (
        Panel("Ready", [(_gauge("job", "tfs_proxy_ready"), "{{job}}")], width=4, view="stat"),
        Panel("Phase", [(_gauge("phase", "tfs_proxy_phase"), "{{phase}}")], width=4, view="stat"),
        Panel(
            "Workers",
            [
                (_gauge("stage", "tfs_proxy_workers_configured"), "{{stage}} configured"),
                (_gauge("stage", "tfs_proxy_workers"), "{{stage}} alive"),
                (_gauge("stage", "tfs_proxy_workers_stuck"), "{{stage}} stuck in the script"),
            ],
        ),
        Panel(
            "Processes and workers that were started again",
            [
                (
                    _gauge("instance, stage, process, reason", "tfs_proxy_process_restarts_total"),
                    "{{instance}} {{stage}} {{process}} {{reason}}",
                ),
                (
                    _gauge("instance, stage", "tfs_proxy_worker_starts_total"),
                    "{{instance}} {{stage}} worker starts",
                ),
            ],
            description="Totals since the start; the first workers count as starts.",
        ),
    ),
)
_PROCESSES = Section(
    "Processes",
    (
        Panel(
            "Memory",
            [
                (
                    _gauge("stage, process", "tfs_proxy_process_resident_memory_bytes"),
                    "{{stage}} {{process}}",
                ),
                (_gauge("instance", "tfs_proxy_memory_limit_bytes", "max"), "limit of {{instance}}"),
            ],
            "bytes",
        ),
        Panel(
            "Cores in use",
            [(_rate("stage, process", "tfs_proxy_process_cpu_seconds_total"), "{{stage}} {{process}}")],
            stacked=True,
        ),
        Panel(
            "Open files and connections",
            [(_gauge("stage, process", "tfs_proxy_process_open_files"), "{{stage}} {{process}}")],
        ),
    ),
)
_MODELS = Section(
    "Models and start",
    (
        Panel(
            "Models",
            [
                (
                    _gauge("stage, model, version, state", "tfs_proxy_model_state"),
                    "{{stage}} {{model}} {{version}} {{state}}",
                )
            ],
            view="stat",
            description="How many model servers report this state.",
        ),
        Panel(
            "Seconds until a model was available",
            [
                (
                    _gauge("stage, model, version", "tfs_proxy_model_load_seconds", "max"),
                    "{{stage}} {{model}} {{version}}",
                )
            ],
            "s",
        ),
        Panel(
            "Seconds of the start's steps",
            [(_gauge("stage, step", "tfs_proxy_startup_seconds", "max"), "{{stage}} {{step}}")],
            "s",
        ),
        Panel(
            "Versions",
            [(_gauge("version, python", "tfs_proxy_build_info"), "{{version}}, Python {{python}}")],
            view="stat",
        ),
    ),
)
SECTIONS = (_REQUESTS, _HEALTH, _PROCESSES, _MODELS)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "tfs-proxy",
        "title": "tfs-proxy",
        "tags": ["tfs-proxy"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    yield _choice("job", "label_values(tfs_proxy_build_info, job)")
    yield _choice("instance", 'label_values(tfs_proxy_build_info{job=~"$job"}, instance)')


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for section in SECTIONS:
        number += 1
        yield _row(section.title, number, top)
        top += 1
        left = 0
        for panel in section.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + HEIGHT
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": HEIGHT})
            left += panel.width
        top += HEIGHT


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    position = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": position,
        "panels": [],
    }


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    look = _line(panel) if panel.view == "timeseries" else _STAT
    return {
        "id": number,
        "type": panel.view,
        "title": panel.title,
        "description": panel.description,
        "gridPos": position,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **look["defaults"]}, "overrides": []},
        "options": look["options"],
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


_STAT: dict[str, Any] = {
    "defaults": {},
    "options": {"textMode": "value_and_name", "reduceOptions": {"calcs": ["lastNotNull"]}},
}


def _line(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.stacked else "none"}
    return {
        "defaults": {"custom": {"fillOpacity": 10, "stacking": stacking}},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
    }
