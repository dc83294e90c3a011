"""The dashboards of deploy/: written by scripts/dashboards.py, whole, and about metrics that there are."""

import itertools
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.loading import load_script
from tfs_proxy.observe.catalogue import METRICS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GRAFANA = DEPLOY / "grafana" / "tfs-proxy.json"
CLOUDWATCH = DEPLOY / "cloudwatch" / "sagemaker-endpoint.json"
REFERENCE = ROOT / "docs" / "reference" / "sagemaker.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """scripts/dashboards.py."""
    return load_script("dashboards")


def panels() -> list[dict[str, Any]]:
    """The panels of Grafana's dashboard."""
    read: list[dict[str, Any]] = json.loads(GRAFANA.read_text())["panels"]
    return read


def widgets() -> list[dict[str, Any]]:
    """The widgets of CloudWatch's dashboard."""
    read: list[dict[str, Any]] = json.loads(CLOUDWATCH.read_text())["widgets"]
    return read


def overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    """Whether two rectangles of x, y, width and height have a cell in common."""
    (left, top, width, height), (x, y, wide, high) = one, other
    return left < x + wide and x < left + width and top < y + high and y < top + height


def test_the_dashboards_are_those_of_the_script(script: ModuleType) -> None:
    """`make dashboards` writes them."""
    for name, dashboard in script.dashboards().items():
        assert (DEPLOY / name).read_text() == script.text_of(dashboard)


def test_no_panel_covers_another() -> None:
    """On a grid of 24 columns, in both dashboards."""
    for rectangles in (
        [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels()],
        [tuple(widget[key] for key in ("x", "y", "width", "height")) for widget in widgets()],
    ):
        assert all(x + width <= 24 for x, _, width, _ in rectangles)
        assert not [pair for pair in itertools.combinations(rectangles, 2) if overlap(*pair)]


def test_grafana_tells_panels_and_queries_apart() -> None:
    """By ids and letters that are used once."""
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters))


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    """By the names of the catalogue."""
    shown = set(re.findall(r"\b(?:tfs_proxy|http_server)_[a-z_]+", GRAFANA.read_text()))
    shown = {re.sub("_(count|bucket)$", "", name) for name in shown}

    assert len(shown) > 15
    assert shown <= {metric.name for metric in METRICS}


def test_cloudwatch_is_asked_for_what_sagemaker_publishes() -> None:
    """The namespaces and names in docs/reference/sagemaker.md, with the two dimensions of an endpoint."""
    rows = r"^\| `(AWS/SageMaker|/aws/sagemaker/Endpoints)` \| `(\w+)` \|"
    published = set(re.findall(rows, REFERENCE.read_text(), re.MULTILINE))
    metrics = [
        metric
        for widget in widgets()
        if widget["type"] == "metric"
        for metric in widget["properties"]["metrics"]
    ]

    assert {(namespace, name) for namespace, name, *_ in metrics} == published
    assert {tuple(metric[2:6]) for metric in metrics} == {
        ("EndpointName", "ENDPOINT", "VariantName", "AllTraffic")
    }
    variables = json.loads(CLOUDWATCH.read_text())["variables"]
    assert {variable["pattern"]: variable["populateFrom"] for variable in variables} == {
        "ENDPOINT": "EndpointName",
        "AllTraffic": "VariantName",
    }
