"""Scripts that work in one thread of the operating system alone, as AWS's container has."""

from pathlib import Path

import pytest

from support.archives import stand_in_words
from support.stack import Stack

SCRIPT = """
import asyncio, signal, sqlite3
connection = sqlite3.connect(":memory:")

def database():
    return str(connection.execute("select 7").fetchone()[0])

def alarm():
    signal.signal(signal.SIGALRM, lambda *_: None)
    return "set"

def loop():
    return asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, "done"))

def handler(data, context):
    return globals()[data.read().decode()](), "text/plain"
"""
ANSWERS = {"database": "7", "alarm": "set", "loop": "done"}
CURE = "SAGEMAKER_GUNICORN_WORKER_CLASS=sync"


@pytest.mark.parametrize("worker_class", ["gthread", "sync"])
def test_the_setting_that_the_errors_name_cures_them(tmp_path: Path, worker_class: str) -> None:
    """Threads fail with a message that names the class sync, the start warns of it, and with it all works."""
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class}
    stack = Stack(*stand_in_words(tmp_path, SCRIPT), env=env)
    try:
        stack.wait_ready()
        for function, answer in ANSWERS.items():
            reply = stack.ask("POST", "/invocations", function, {"Content-Type": "text/plain"})
            if worker_class == "sync":
                assert (reply.status, reply.body.decode()) == (200, answer)
            else:
                assert reply.status == 500
                assert CURE in reply.body.decode()
        assert stack.log.count(f"set {CURE}, which multi-model mode does not have.") == (
            0 if worker_class == "sync" else 2
        )
    finally:
        stack.close()
