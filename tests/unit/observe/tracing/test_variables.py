"""The OTEL_* variables: which switch traces on, for what share of requests, and what is refused."""

import subprocess
import sys

import pytest

from tfs_proxy.observe.tracing.choice import TraceChoice, is_divided, kept_share, marked_share, trace_choice
from tfs_proxy.values.deployment import TraceSampling
from tfs_proxy.values.installation import how_to_install

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    "environ",
    [
        ENDPOINT,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_TRACES_EXPORTER": "Console"},
        {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "false"},
    ],
)
def test_an_endpoint_or_an_exporter_switches_traces_on(environ: dict[str, str]) -> None:
    """Nothing else has to be set."""
    assert trace_choice(environ, installed=True) == TraceChoice(TraceSampling())


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "digits", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"},
    ],
)
def test_otherwise_traces_are_off_and_nothing_is_said(environ: dict[str, str]) -> None:
    assert trace_choice(environ, installed=False) == TraceChoice()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin can't be used"),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc can't be used",
        ),
    ],
)
def test_what_cannot_be_used_is_a_warning(environ: dict[str, str], words: str) -> None:
    """Serving goes on: a cluster sets these variables for all its containers."""
    choice = trace_choice(environ, installed=True)

    assert choice.sampling is None
    assert words in (choice.warning or "")


def test_a_missing_package_is_a_warning_that_says_how_to_get_it() -> None:
    warning = trace_choice(ENDPOINT, installed=False).warning or ""

    assert warning.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, and no traces are sent")
    assert how_to_install("otel") in warning


@pytest.mark.parametrize(
    ("sampler", "argument", "expected"),
    [
        ("", "0.5", TraceSampling(1.0, "followed")),
        ("always_on", "", TraceSampling(1.0, "ignored")),
        ("always_off", "", TraceSampling(0.0, "ignored")),
        ("traceidratio", "0.25", TraceSampling(0.25, "examined")),
        ("parentbased_always_on", "", TraceSampling(1.0, "followed")),
        ("parentbased_always_off", "", TraceSampling(0.0, "followed")),
        ("parentbased_traceidratio", "0.01", TraceSampling(0.01, "followed")),
        ("parentbased_traceidratio", "2", TraceSampling(1.0, "followed")),
        ("parentbased_traceidratio", "nan", TraceSampling(1.0, "followed")),
        ("parentbased_traceidratio", "much", TraceSampling(1.0, "followed")),
        ("unknown", "0.5", TraceSampling(1.0, "followed")),
    ],
)
def test_the_sampler_says_which_requests(sampler: str, argument: str, expected: TraceSampling) -> None:
    environ = {**ENDPOINT, "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}

    assert trace_choice(environ, installed=True).sampling == expected


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01, 0.0001, 0.00001, 0.12345, 0.07, 0.57])
def test_both_shares_together_are_the_one_asked_for(share: float) -> None:
    """nginx takes hundredths of a percent, and never less than is wanted."""
    sampling = TraceSampling(share)

    assert marked_share(sampling) >= share
    assert marked_share(sampling) * 10_000 == pytest.approx(round(marked_share(sampling) * 10_000))
    assert marked_share(sampling) * kept_share(sampling) == pytest.approx(share)


MODULES = (
    "tfs_proxy.commands.serve",
    "tfs_proxy.run.run",
    "tfs_proxy.run.nginx.config",
    "tfs_proxy.run.pipeline.run",
    "tfs_proxy.worker.app",
    "tfs_proxy.worker.gunicorn_workers.thread_worker",
    "tfs_proxy.observe.tracing.choice",
    "tfs_proxy.observe.tracing.parents",
)


def test_no_process_imports_opentelemetry_by_itself() -> None:
    imports = "; ".join(f"import {module}" for module in MODULES)
    code = f"import sys; {imports}; print([name for name in sys.modules if 'opentelemetry' in name])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "[]"


@pytest.mark.parametrize("share", [0.5, 0.01, 0.07, 0.57, 0.0001])
def test_a_worker_keeps_all_of_a_share_that_nginx_can_count(share: float) -> None:
    """1 % is 1 %, without a second throw of the dice."""
    assert kept_share(TraceSampling(share)) == 1.0


def test_all_or_nothing_is_not_divided() -> None:
    assert [is_divided(TraceSampling(share)) for share in (0.0, 0.5, 1.0)] == [False, True, False]
