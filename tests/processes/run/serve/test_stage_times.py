"""The times of the stages that a request passes, as /metrics counts them."""

import os
import signal
from pathlib import Path

from support.archives import NEEDS_NGINX, stand_in_words
from support.scraping import scrape
from support.stack import serving

pytestmark = NEEDS_NGINX
INSTANCES = b'{"instances": [1.0, 2.0]}'
STAGES = "tfs_proxy_stage_duration_seconds_count"
SCRIPT = """
def input_handler(data, context):
    return data.read()


def output_handler(response, context):
    return response.content, "application/json"
"""


def test_stages_of_requests_are_timed_and_outlive_the_worker(tmp_path: Path) -> None:
    """Those that a request passes; a worker that is killed takes no more along than its last second."""
    with serving(*stand_in_words(tmp_path, SCRIPT)) as stack:
        for _ in range(3):
            assert stack.invoke(INSTANCES).status == 200
        stack.wait_until(
            lambda: scrape(stack).total(STAGES, stage="write", model="m") == 3, "the third is counted"
        )
        before = scrape(stack)
        for pid in stack.workers():
            os.kill(pid, signal.SIGKILL)
        stack.wait_until(
            lambda: stack.is_ready() and stack.invoke(INSTANCES).status == 200, "it answers again"
        )
        stack.wait_until(
            lambda: scrape(stack).total(STAGES, stage="write", model="m") >= 4, "the fourth is counted"
        )

    for name in ("read", "input_handler", "model_server", "output_handler", "write"):
        assert before.total(STAGES, stage=name, model="m") == 3
    assert before.total("tfs_proxy_stage_duration_seconds_sum", stage="model_server") > 0
