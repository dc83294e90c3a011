"""deploy/ as its users see it: a real Prometheus scrapes a stack under load, and all queries find what they ask for."""

import itertools
import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import yaml

from support.archives import NEEDS_NGINX, stand_in_words
from support.prometheus import (
    DEPLOY,
    FILES,
    NEEDS_PROMETHEUS,
    POD,
    Prometheus,
    expressions,
    with_any_value,
)
from support.stack import Stack, serving

pytestmark = [
    pytest.mark.slow,
    NEEDS_PROMETHEUS,
    NEEDS_NGINX,
]
MONITOR = DEPLOY.parent / "docs" / "how-to" / "monitor.md"
SECONDS = 90.0
CLIENTS = 4
OF_A_BUSY_MACHINE = {"TfsProxySlow", "TfsProxyWorkersMissing", "TfsProxyMemoryHigh"}
"""Alerts that a machine which does other things, too, may give cause for."""

METRIC = re.compile(r"\b(?:tfs_proxy|http_server)_[a-z_]+")
INSTANCES = b'{"instances": [1.0]}'
SCRIPT = """
from prometheus_client import Counter

ANSWERS = Counter("script_answers", "Answers.", ["kind"])


def output_handler(response, context):
    if context.custom_attributes:
        raise ValueError(context.custom_attributes)
    ANSWERS.labels("good").inc()
    return response.content, "application/json"

def health(context): ...
"""


def send_one(stack: Stack, turn: int) -> None:
    """One request of a mix: answered, failed by the script, refused, TF Serving's, and given up."""
    match turn % 5:
        case 0:
            stack.invoke(INSTANCES, X_Amzn_SageMaker_Custom_Attributes="fails")
        case 1:
            stack.ask("GET", "/nothing/here")
        case 2:
            stack.ask("GET", "/v1/models/m")
        case 3:
            with socket.create_connection((stack.host, stack.port)) as link:
                link.sendall(b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        case _:
            stack.invoke(INSTANCES)


def call_grpc(stack: Stack) -> None:
    """A call that fails: the stand-in has no gRPC."""
    with grpc.insecure_channel(stack.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(b"", timeout=10)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose gunicorn has been killed once."""
    folder = tmp_path_factory.mktemp("stack")
    # With reload, so that its metric is there, too.
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_GRPC_PORT": "0", "TFS_PROXY_RELOAD": "true"}
    with serving(*stand_in_words(folder, SCRIPT), env=env) as running:
        os.kill(running.children()["gunicorn"][0], signal.SIGKILL)
        running.wait_for_log("gunicorn ended")
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def load(stack: Stack) -> Iterator[None]:
    """Clients that keep sending until the last test has ended."""
    over = threading.Event()

    def send(first: int) -> None:
        for turn in itertools.count(first):
            if over.wait(0.01):
                return
            send_one(stack, turn)
            if turn % 50 == 0:
                call_grpc(stack)

    with ThreadPoolExecutor(CLIENTS) as clients:
        sending = [clients.submit(send, first) for first in range(CLIENTS)]
        yield
        over.set()
    for one in sending:
        one.result()


@pytest.fixture(scope="module")
def prometheus(stack: Stack, load: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has scraped the stack often enough to know rates."""
    del load
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), stack)
    try:
        running.wait_ready()
        rate = "rate(http_server_request_duration_seconds_count[1m]) > 0"
        running.wait_until(lambda: running.query(rate), "it knows the rate of requests", SECONDS)
        yield running
    finally:
        running.close()


def wait_for_data(prometheus: Prometheus, queries: list[str]) -> None:
    """Wait until each of them has an answer."""
    missing = list(queries)

    def answered() -> bool:
        missing[:] = [query for query in missing if not prometheus.query(query)]
        return not missing

    try:
        prometheus.wait_until(answered, "every query has data", SECONDS)
    except AssertionError:
        raise AssertionError(f"no data: {missing}") from None


def wait_for_series(prometheus: Prometheus, series: Iterable[str]) -> None:
    """Wait until there are these, with any values of their labels: after a scrape that failed there is none."""
    wait_for_data(prometheus, [with_any_value(one) for one in sorted(series)])


def rules_of(name: str) -> list[dict[str, Any]]:
    """The rules of a file of deploy/prometheus."""
    return [rule for group in yaml.safe_load((FILES / name).read_text())["groups"] for rule in group["rules"]]


def test_a_pod_is_one_target_with_the_labels_that_the_rules_ask_for(prometheus: Prometheus) -> None:
    """However many ports it has; a pod without annotations is none."""
    (target,) = prometheus.api("targets", state="active")["activeTargets"]
    wait_for_data(prometheus, ['up{job="tfs-proxy"} == 1'])

    assert {name: target["labels"][name] for name in ("job", "namespace", "pod")} == {
        "job": "tfs-proxy",
        "namespace": "default",
        "pod": POD,
    }


def test_metrics_of_the_script_are_scraped(prometheus: Prometheus) -> None:
    """Prometheus knows the rate of its counter."""
    wait_for_data(prometheus, ['sum by (kind) (rate(script_answers_total{kind="good"}[1m])) > 0'])


def test_every_query_of_the_dashboard_has_data(prometheus: Prometheus) -> None:
    """For all jobs and instances."""
    queries = expressions(DEPLOY / "grafana" / "tfs-proxy.json")

    assert len(queries) > 20
    wait_for_data(prometheus, queries)


def test_every_recording_rule_has_data(prometheus: Prometheus) -> None:
    """And none fails."""
    wait_for_data(prometheus, [rule["record"] for rule in rules_of("rules.yml")])

    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}


def test_what_the_alerts_are_proven_with_is_what_is_scraped(prometheus: Prometheus) -> None:
    """Each series of alerts.test.yml has a name and labels that there are; a stage is a pipeline's."""
    tests = yaml.safe_load((FILES / "alerts.test.yml").read_text())["tests"]
    series = {re.sub(r', stage="\d"', "", one["series"]) for test in tests for one in test["input_series"]}

    wait_for_series(prometheus, series)


def test_alerts_see_what_is_wrong_with_this_stack(prometheus: Prometheus) -> None:
    """A fifth of its requests fail, and gunicorn was killed; nothing else is wrong with it."""
    expected = {"TfsProxyErrors", "TfsProxyGrpcErrors", "TfsProxyProcessRestarts"}

    def alerts() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.api("alerts")["alerts"]}

    prometheus.wait_until(lambda: expected <= alerts(), "the alerts are there", SECONDS)
    assert alerts() - OF_A_BUSY_MACHINE == expected


def test_the_adapter_finds_the_requests_in_flight_of_a_pod(prometheus: Prometheus) -> None:
    """By its rule's queries, filled in as it does."""
    values = yaml.safe_load((DEPLOY / "kubernetes" / "prometheus-adapter.yaml").read_text())
    (rule,) = values["rules"]["custom"]
    (series,) = prometheus.api("series", **{"match[]": rule["seriesQuery"]})
    filled = {
        "<<.GroupBy>>": "pod",
        "<<.Series>>": series["__name__"],
        "<<.LabelMatchers>>": f'namespace="default",pod="{POD}"',
    }
    query = rule["metricsQuery"]
    for name, value in filled.items():
        query = query.replace(name, value)

    ((labels, in_flight),) = prometheus.query(query)
    assert labels == {"pod": POD}
    assert 0 < in_flight <= CLIENTS


def test_the_queries_of_the_documentation_are_valid(prometheus: Prometheus) -> None:
    """Prometheus takes each, and each metric in it is scraped."""
    queries = re.findall(r"^\|[^|]+\| `([^`]+)` \|$", MONITOR.read_text(), re.MULTILINE)
    names = {name for query in queries for name in METRIC.findall(query)}

    assert len(queries) > 10
    for query in queries:
        prometheus.query(query)
    wait_for_series(prometheus, names)
