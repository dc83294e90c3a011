"""What a script measures with prometheus_client, in /metrics: of all workers, and of those that were killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack, without_nginx
from support.multi_model import script_model, serving_many
from support.scraping import scrape, scrape_open_metrics
from support.stack import Stack, serving

SCRIPT = """
import os

from prometheus_client import Counter, Gauge, Histogram

IMAGES = Counter("images", "Images.", ["size", "model"])
TABLES = Gauge("tables", "Tables that are loaded.")
SECONDS = Histogram("scoring_seconds", "Time of scores.", buckets=(1, 5))
TABLES.set(3)
Counter("tfs_proxy_ready", "A name of ours.").inc()


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    IMAGES.labels(data.decode(), "mine").inc()
    SECONDS.observe(2)
    return str(os.getpid()), "text/plain"
"""
FRONTS = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
]
LEFT_OUT = "metrics of the script are left out of /metrics"


@pytest.fixture(scope="module", params=FRONTS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers; each takes one request at a time, so that both of two clients' are asked."""
    archive = pack(tmp_path_factory.mktemp("script") / "model.tar.gz", {"code/inference.py": SCRIPT})
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "SAGEMAKER_GUNICORN_THREADS": "1", **request.param}
    with serving(str(archive), env=env) as running:
        running.wait_until(lambda: scrape(running).total("tables") == 6, "both workers have loaded")
        yield running


def files(stack: Stack) -> set[str]:
    return {file.name for file in stack.home.glob("*/metrics/*.db")}


def test_a_killed_worker_loses_no_count_and_leaves_no_file(stack: Stack) -> None:
    """Counters and histograms keep their sums, a Gauge is the sum of those that live; a damaged file harms none."""
    for size in ("small", "large", 'a"\\\n'):
        assert stack.invoke(size, content_type="text/plain").status == 200
    names, killed = files(stack), stack.workers()[-1]
    assert {f"gauge_all_{pid}.db" for pid in stack.workers()} <= names
    for damaged in ("counter_1.db", f"histogram_{os.getpid()}.db"):
        next(stack.home.glob("*/metrics")).joinpath(damaged).write_bytes(b"\x7f" * 4096)
    os.kill(killed, signal.SIGKILL)
    stack.wait_until(lambda: len(set(stack.workers()) - {killed}) == 2, "another worker is there")
    stack.wait_until(lambda: stack.is_ready() and scrape(stack).total("tables") == 6, "it has loaded")

    for metrics in (scrape(stack), scrape_open_metrics(stack)):
        assert metrics.total("images_total") == metrics.total("scoring_seconds_bucket", le="5.0") == 3
        assert metrics.total("images_total", size='a"\\\n', model="mine") == 1
        assert metrics.total("scoring_seconds_bucket", le="1.0") == 0
        assert (metrics.total("scoring_seconds_sum"), metrics.total("scoring_seconds_count")) == (6, 3)
        assert metrics.total("tfs_proxy_ready") == 1
        assert not [
            family.name for family in metrics.families if family.name.startswith(("python", "process"))
        ]
    assert not {name for name in files(stack) if str(killed) in name}
    for reason in ("the name 'tfs_proxy_ready'", "a file can't be read"):
        assert stack.log.count(f"{LEFT_OUT}: {reason}") == 1


@NEEDS_NGINX
def test_many_models_have_a_label(tmp_path: Path) -> None:
    """The same name may be another kind of metric in another model: that is left out; a label is renamed."""
    other = SCRIPT.replace('Gauge("tables"', 'Counter("tables"').replace("TABLES.set", "TABLES.inc")
    with serving_many() as stack:
        for name, script in {"one": SCRIPT, "two": SCRIPT, "three": other}.items():
            stack.loaded(name, script_model(tmp_path / f"{name}.tar.gz", script))
            assert stack.invoke_model(name, "x").status == 200
            scrape(stack)
        stack.wait_until(lambda: scrape(stack).total("images_total") == 3, "all are shown")
        metrics = scrape_open_metrics(stack)
        stack.unload("one")
        stack.wait_until(lambda: scrape(stack).total("images_total") == 2, "the unloaded one is gone")

    assert metrics.total("images_total", model="one", exported_model="mine", size="x") == 1
    assert {labels["model"] for labels, _ in metrics.values("tables")} == {"one", "two"}
    assert metrics.total("tables_total") == 0
