"""The OTEL_* variables that switch traces on, and the parent of a request: two carriers, nothing malformed."""

import subprocess
import sys

import pytest

from tfs_proxy.observe.traces import marked_share, parent_in, trace_sampling
from tfs_proxy.values.deployment import TraceSampling

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "Console", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_SDK_DISABLED": "false"}, True),
        ({}, False),
        ({"OTEL_SERVICE_NAME": "digits", "OTEL_TRACES_SAMPLER": "always_on"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_an_endpoint_or_an_exporter_switches_traces_on(
    environ: dict[str, str], on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else has to be set, and nothing is said without them."""
    assert trace_sampling(environ) == (TraceSampling() if on else None)
    assert not caplog.records


@pytest.mark.parametrize("variable", ["OTEL_TRACES_EXPORTER=zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"])
def test_values_that_cannot_be_used_are_a_warning(variable: str, caplog: pytest.LogCaptureFixture) -> None:
    """Serving goes on: a cluster sets these variables for all its containers."""
    name, _, value = variable.partition("=")

    assert trace_sampling({**ENDPOINT, name: value}) is None
    assert f"{variable} can't be used, and no traces are sent: it must be" in caplog.text


@pytest.mark.parametrize(
    ("sampler", "argument", "expected"),
    [
        ("", "0.5", TraceSampling(1.0, "followed")),
        ("always_on", "", TraceSampling(1.0, "ignored")),
        ("always_off", "", TraceSampling(0.0, "ignored")),
        ("traceidratio", "0.25", TraceSampling(0.25, "examined")),
        ("parentbased_always_off", "", TraceSampling(0.0, "followed")),
        ("parentbased_traceidratio", "0.01", TraceSampling(0.01, "followed")),
        *(("parentbased_traceidratio", odd, TraceSampling(1.0, "followed")) for odd in ("2", "nan", "much")),
        ("unknown", "0.5", TraceSampling(1.0, "followed")),
    ],
)
def test_the_sampler_says_which_requests(sampler: str, argument: str, expected: TraceSampling) -> None:
    environ = {**ENDPOINT, "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}

    assert trace_sampling(environ) == expected


def test_nginx_takes_hundredths_of_a_percent() -> None:
    """And never less than is asked for."""
    assert [marked_share(TraceSampling(share)) for share in (0.07, 0.57, 0.00001)] == [0.07, 0.57, 0.0001]


def test_no_process_imports_opentelemetry_by_itself() -> None:
    """Only a worker that makes spans does."""
    modules = ("commands.serve", "run.run", "run.pipeline.row", "worker.app", "observe.traces")
    imports = "; ".join(f"import tfs_proxy.{module}" for module in modules)
    code = f"{imports}; import tfs_proxy.worker.gunicorn_workers.thread_worker, sys; print(list(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "opentelemetry" not in output


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER, OTHER = f"00-{TRACE}-{SPAN}-01", f"00-{'1' * 32}-{'2' * 16}-00"
ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        HEADER.upper(),
        HEADER + "-more",
        HEADER + ",",
        HEADER + "\x00",
        f"{HEADER}, {HEADER}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        "<script>alert(1)</script>",
        "0" * 20_000,
    ],
)
def test_a_malformed_traceparent_does_not_count(hostile: str) -> None:
    """The next carrier is looked at, and a new trace begins if none tells of one."""
    assert parent_in({"traceparent": hostile}) == {}
    assert parent_in({ATTRIBUTES: f"traceparent={hostile.partition(',')[0]}-"}) == {}
    assert parent_in({"traceparent": hostile, ATTRIBUTES: f"traceparent={OTHER}"}) == {"traceparent": OTHER}


@pytest.mark.parametrize(
    "attributes",
    [
        f"traceparent={HEADER}",
        f"tfs-model-name=m, traceparent = {HEADER} ,b=c",
        f"a=traceparent=1,traceparent={HEADER},traceparent={OTHER}",
    ],
)
def test_custom_attributes_carry_a_parent(attributes: str) -> None:
    """SageMaker lets no other header of a tracer's through; the first one counts, even if it is malformed.

    Headers of their own come first.
    """
    own = {"traceparent": OTHER, "tracestate": "a=b"}
    assert parent_in({**own, ATTRIBUTES: attributes}) == own
    assert parent_in({ATTRIBUTES: attributes}) == {"traceparent": HEADER}
    assert parent_in({ATTRIBUTES: f"traceparent=x,{attributes}"}) == {}
