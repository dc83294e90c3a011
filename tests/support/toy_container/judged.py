"""The toy as `tfs-proxy conform` judges it."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tfs_proxy.tools.conform.judge import Judge
from tfs_proxy.tools.conform.judging import Judging, JudgingOptions
from tfs_proxy.tools.conform.requests_file import KnownRequest, KnownRequests
from tfs_proxy.tools.conform.target import Capability
from tfs_proxy.tools.conform.targets import CommandTarget

JSON = "application/json"
REQUESTS = KnownRequests(
    good=KnownRequest(JSON, b'{"instances": [1.0]}', expected_content_type=JSON),
    bad=KnownRequest(JSON, b'{"instances": '),
    slow=KnownRequest(JSON, b'{"instances": [1.0], "slow": true}'),
    streaming=KnownRequest(JSON, b'{"instances": [], "stream": true}'),
    records=KnownRequest("text/csv", b"1.0\n2.0\n3.0\n"),
)
CAPABILITIES = frozenset(Capability)
DEAF = ["env", "--ignore-signal=TERM"]
"""So is a process before it runs a line of its own: the judge's early signal must not come before that."""

TESTS = Path(__file__).parents[2]


@contextmanager
def judged(
    model: Path, fault: str = "", port: str = "{port}", start_seconds: float = 60.0
) -> Iterator[Judge]:
    """A judge of the toy with that fault; it waits less for an end than SageMaker does."""
    words = DEAF if fault == "deaf-at-start" else []
    words = [*words, sys.executable, "-m", "support.toy_container", "--port", port, "--model={model}"]
    words += ["--fault", fault] if fault else []
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    target = CommandTarget(shlex.join(words).replace("'", ""), model, env, 0)
    answer_seconds = 2.0 if fault.startswith("ws-") else 60.0
    options = JudgingOptions(model, CAPABILITIES, start_seconds, answer_seconds, stop_seconds=3.0)
    with closing(Judging(target, REQUESTS, options)) as judging:
        yield Judge(judging)
