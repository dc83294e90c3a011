"""CloudWatch's metrics of an endpoint: invocations, errors by class, latencies."""

import contextlib
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from tfs_proxy.tools.endpoint.aws_api import MODEL_ERROR, NO_ANSWER, AwsError

CLIENT_ERRORS = range(400, 500)
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BY_VARIANT = ("endpoint", "variant")


class CountedInvocation:
    """Measures the containers of one request."""

    def __init__(self, latencies: Histogram, endpoint: str, variant: str) -> None:
        self.model_seconds = 0.0
        self._latencies, self._endpoint, self._variant = latencies, endpoint, variant

    @contextlib.contextmanager
    def by_container(self, name: str) -> Iterator[None]:
        """Measures one container (ContainerLatency); their sum is ModelLatency."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.model_seconds += seconds
            self._latencies.labels(self._endpoint, self._variant, name).observe(seconds)


class VariantMetrics:
    """Counts by endpoint and variant, under CloudWatch's names in Prometheus' spelling."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._invocations = self._counter("invocations", "Requests (Invocations).")
        self._client_errors = self._counter(
            "invocation_4xx_errors", "Answers 4xx of the model (Invocation4XXErrors)."
        )
        self._server_errors = self._counter(
            "invocation_5xx_errors", "Answers 5xx of the model (Invocation5XXErrors)."
        )
        self._model_errors = self._counter(
            "invocation_model_errors", "Requests without a good answer (InvocationModelErrors)."
        )
        self._model_latency = self._histogram("model_latency", "Seconds in all containers (ModelLatency).")
        self._overhead = self._histogram("overhead_latency", "All other seconds (OverheadLatency).")
        self._containers = Histogram(
            "sagemaker_endpoint_container_latency_seconds",
            "Seconds in one container (ContainerLatency).",
            (*_BY_VARIANT, "container"),
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"sagemaker_endpoint_{name}", text, _BY_VARIANT, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"sagemaker_endpoint_{name}_seconds", text, _BY_VARIANT, registry=self._registry, buckets=_BUCKETS
        )

    @contextlib.contextmanager
    def invocation(self, endpoint: str, variant: str) -> Iterator[CountedInvocation]:
        """Counts a request while the block runs, and the error that it raises."""
        counted = CountedInvocation(self._containers, endpoint, variant)
        began = time.monotonic()
        self._invocations.labels(endpoint, variant).inc()
        try:
            yield counted
        except AwsError as error:
            self._count_error(endpoint, variant, error)
            raise
        finally:
            self._model_latency.labels(endpoint, variant).observe(counted.model_seconds)
            overhead = time.monotonic() - began - counted.model_seconds
            self._overhead.labels(endpoint, variant).observe(max(overhead, 0.0))

    def _count_error(self, endpoint: str, variant: str, error: AwsError) -> None:
        if error.code != MODEL_ERROR:
            return
        status = int(error.members.get("OriginalStatusCode", NO_ANSWER))
        by_class = self._client_errors if status in CLIENT_ERRORS else self._server_errors
        by_class.labels(endpoint, variant).inc()
        self._model_errors.labels(endpoint, variant).inc()

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def table(self) -> list[str]:
        return [
            f"{endpoint}/{variant}: {self._shown(endpoint, variant)}"
            for (endpoint, variant) in sorted(self._seen())
        ]

    def _seen(self) -> set[tuple[str, str]]:
        return {
            (sample.labels["endpoint"], sample.labels["variant"])
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "sagemaker_endpoint_invocations_total"
        }

    def _shown(self, endpoint: str, variant: str) -> str:
        def value(name: str) -> float:
            labels = {"endpoint": endpoint, "variant": variant}
            return self._registry.get_sample_value(f"sagemaker_endpoint_{name}", labels) or 0.0

        count = value("invocations_total")
        mean_ms = 1000 * value("model_latency_seconds_sum") / max(count, 1)
        overhead_ms = 1000 * value("overhead_latency_seconds_sum") / max(count, 1)
        return (
            f"{count:.0f} invocations, {value('invocation_4xx_errors_total'):.0f} answers 4xx, "
            f"{value('invocation_5xx_errors_total'):.0f} answers 5xx or none; "
            f"model {mean_ms:.1f} ms, overhead {overhead_ms:.1f} ms in the mean"
        )
