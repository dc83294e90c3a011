"""The adaptive limit of a running stack, under more load than its script can carry."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.archives import NEEDS_NGINX, pack, without_nginx
from support.scraping import scrape
from support.stack import Stack, serving

SCRIPT = """
import threading, time
one_at_a_time = threading.Lock()

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    with one_at_a_time:
        time.sleep(0.02)
    return data
"""

FRONTS = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    pytest.param(without_nginx(), id="gunicorn"),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, id="sync"),
]


@pytest.fixture(scope="module", params=FRONTS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker, whose script answers 50 requests a second."""
    archive = pack(tmp_path_factory.mktemp("model") / "model.tar.gz", {"code/inference.py": SCRIPT})
    env = {"TFS_PROXY_ADAPTIVE_LIMIT": "100ms", **request.param}
    with serving(str(archive), "--model-server", "/nowhere", env=env) as running:
        yield running


def test_what_can_not_be_answered_in_time_is_refused(stack: Stack) -> None:
    """With 503 and Retry-After, and nothing fails otherwise; probes are answered, and so is a later request.

    The log counts refusals, and has no line for each.
    """
    codes: Counter[int] = Counter()
    retry: set[str] = set()

    def client(_number: int) -> None:
        for _ in range(10):
            answer = stack.invoke("1,2\n", "text/csv")
            codes[answer.status] += 1
            if answer.status == 503:
                retry.add(answer.headers["retry-after"])

    with ThreadPoolExecutor(24) as clients:
        done = list(map(clients.submit, [client] * 24, range(24)))
        assert stack.ask("GET", "/ping").status == 200
        for future in done:
            future.result()
    assert set(codes) == {200, 503}
    assert retry == {"1"}
    assert stack.invoke("1,2\n", "text/csv").status == 200
    assert "TFS_PROXY_ADAPTIVE_LIMIT=100ms" in stack.log
    assert "Traceback" not in stack.log
    assert "status=503" not in stack.log


def test_metrics_have_the_limit(stack: Stack) -> None:
    """At least one for each worker."""
    stack.wait_until(
        lambda: scrape(stack).total("tfs_proxy_adaptive_limit_requests") >= 1, "the worker has told its limit"
    )
