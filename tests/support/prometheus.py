"""A real Prometheus with the files of deploy/prometheus, beside a stack that it scrapes."""

import contextlib
import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from support.ports import free_port
from support.running import LOOPBACK, RunningProcess
from support.stack import Stack

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = DEPLOY / "prometheus"
NEEDS_PROMETHEUS = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="Prometheus is not installed"
)
SERIES = re.compile(r"^([a-z_:]+)\{([^}]*)\}$")
LABEL = re.compile(r"(\w+) *(?:=~|!=|!~|=)")
POD = "tfs-proxy-1"


class Prometheus(RunningProcess):
    """It scrapes ``stack`` as the pod of deploy/kubernetes by deploy/prometheus/kubernetes.yml, but every second."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(configuration(stack.port)))
        port = free_port()
        words = [
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        super().__init__(["prometheus", *words], port=port)

    def is_ready(self) -> bool:
        """Whether it takes queries."""
        with contextlib.suppress(OSError):
            return self.ask("GET", "/-/ready").status == 200
        return False

    def api(self, path: str, **parameters: str) -> Any:
        """What /api/v1 answers; fails with its words if it refuses."""
        answer = self.ask("GET", f"/api/v1/{path}?{urlencode(parameters)}")
        assert answer.status == 200, (parameters, answer.body)
        return answer.json["data"]

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """The labels and values of an expression now, those that are no numbers left out."""
        samples = [
            (one["metric"], float(one["value"][1])) for one in self.api("query", query=expression)["result"]
        ]
        return [(labels, value) for labels, value in samples if not math.isnan(value)]


def with_any_value(series: str) -> str:
    """A selector of series that have the labels of ``series``."""
    matched = SERIES.match(series)
    if matched is None:
        return series
    labels = ",".join(f'{label}!=""' for label in LABEL.findall(matched[2]))
    return f"{matched[1]}{{{labels}}}"


def configuration(port: int) -> dict[str, Any]:
    """deploy/prometheus/kubernetes.yml, with one pod in place of Kubernetes, which Debian's build can't ask."""
    config: dict[str, Any] = yaml.safe_load((FILES / "kubernetes.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FILES / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    del job["kubernetes_sd_configs"]
    job["static_configs"] = [
        {"targets": ["a-port-of-the-pod:1", "another-one:1"], "labels": pod_labels(port)},
        {"targets": ["a-pod-without-annotations:1"]},
    ]
    return config


def pod_labels(port: int) -> dict[str, str]:
    """What Kubernetes would say about a pod of the Deployment whose container listens on ``port``."""
    deployment = yaml.safe_load((DEPLOY / "kubernetes" / "deployment.yaml").read_text())
    metadata = deployment["spec"]["template"]["metadata"]
    named = {
        **{f"annotation_{name}": value for name, value in metadata["annotations"].items()},
        **{f"label_{name}": value for name, value in metadata["labels"].items()},
        "annotation_prometheus.io/port": str(port),
        "ip": LOOPBACK,
        "name": POD,
        "phase": "Running",
    }
    labels = {f"__meta_kubernetes_pod_{re.sub('[./-]', '_', name)}": value for name, value in named.items()}
    return {**labels, "__meta_kubernetes_namespace": "default"}


def expressions(dashboard: Path) -> list[str]:
    """Every query of a dashboard of Grafana's, with all jobs and instances chosen."""
    text = json.loads(dashboard.read_text())
    queries = [target["expr"] for panel in text["panels"] for target in panel.get("targets", ())]
    for variable, value in {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}.items():
        queries = [query.replace(variable, value) for query in queries]
    return queries
