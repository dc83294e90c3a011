"""CloudWatch's dashboard of a SageMaker endpoint as a value: `WIDGETS` has its metrics.

Metrics of invocations are in the namespace AWS/SageMaker, those of instances in /aws/sagemaker/Endpoints, all
with the dimensions EndpointName and VariantName (docs/how-to/monitor.md says how to install it).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ENDPOINT, VARIANT, REGION = "ENDPOINT", "AllTraffic", "us-east-1"
"""What CloudWatch's variables replace, and the region that `sed` does."""

INVOCATIONS, INSTANCES = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
COLUMNS, HEIGHT = 24, 6


@dataclass(frozen=True)
class Widget:
    """One graph: metrics of a namespace as name and statistic."""

    title: str
    namespace: str
    metrics: Sequence[tuple[str, str]]
    label: str
    width: int = 8


WIDGETS = (
    Widget(
        "Invocations", INVOCATIONS, [("Invocations", "Sum"), ("InvocationsPerInstance", "Sum")], "requests"
    ),
    Widget(
        "Errors",
        INVOCATIONS,
        [("Invocation4XXErrors", "Sum"), ("Invocation5XXErrors", "Sum"), ("InvocationModelErrors", "Sum")],
        "requests",
    ),
    Widget("Requests at a time", INVOCATIONS, [("ConcurrentRequestsPerModel", "Maximum")], "requests"),
    Widget(
        "Time in the container",
        INVOCATIONS,
        [("ModelLatency", statistic) for statistic in ("p50", "p90", "p99")],
        "microseconds",
    ),
    Widget(
        "Time in SageMaker itself",
        INVOCATIONS,
        [("OverheadLatency", statistic) for statistic in ("p50", "p90", "p99")],
        "microseconds",
    ),
    Widget(
        "CPU (100 % is one core), memory, disk",
        INSTANCES,
        [(f"{kind}Utilization", "Maximum") for kind in ("CPU", "Memory", "Disk")],
        "percent",
    ),
    Widget(
        "GPU",
        INSTANCES,
        [("GPUUtilization", "Maximum"), ("GPUMemoryUtilization", "Maximum")],
        "percent",
    ),
)


def dashboard() -> dict[str, Any]:
    """The body of the dashboard, as `aws cloudwatch put-dashboard` takes it."""
    return {"variables": list(_variables()), "widgets": [*_graphs(), _log()]}


def _variables() -> Iterator[dict[str, Any]]:
    for pattern, dimension in ((ENDPOINT, "EndpointName"), (VARIANT, "VariantName")):
        yield {
            "type": "pattern",
            "pattern": pattern,
            "inputType": "select",
            "id": dimension,
            "label": dimension,
            "visible": True,
            "search": f'{{{INVOCATIONS},EndpointName,VariantName}} MetricName="Invocations"',
            "populateFrom": dimension,
        }


def _graphs() -> Iterator[dict[str, Any]]:
    left = top = 0
    for widget in WIDGETS:
        if left + widget.width > COLUMNS:
            left, top = 0, top + HEIGHT
        yield {
            "type": "metric",
            "x": left,
            "y": top,
            "width": widget.width,
            "height": HEIGHT,
            "properties": {
                "title": widget.title,
                "region": REGION,
                "view": "timeSeries",
                "period": 60,
                "metrics": [_metric(widget.namespace, *metric) for metric in widget.metrics],
                "yAxis": {"left": {"min": 0, "label": widget.label, "showUnits": False}},
            },
        }
        left += widget.width


def _metric(namespace: str, name: str, statistic: str) -> list[Any]:
    shown = {"stat": statistic, "label": f"{name} {statistic}"}
    return [namespace, name, "EndpointName", ENDPOINT, "VariantName", VARIANT, shown]


def _log() -> dict[str, Any]:
    """What the container has logged as wrong, in CloudWatch's log group of the endpoint."""
    query = (
        f"SOURCE '{INSTANCES}/{ENDPOINT}' | fields @timestamp, @logStream, @message"
        " | filter @message like /(?i)(error|warning|critical)/ | sort @timestamp desc | limit 50"
    )
    top = HEIGHT * (1 + sum(widget.width for widget in WIDGETS) // COLUMNS)
    return {
        "type": "log",
        "x": 0,
        "y": top,
        "width": COLUMNS,
        "height": HEIGHT,
        "properties": {"title": "Errors in the log", "region": REGION, "view": "table", "query": query},
    }
