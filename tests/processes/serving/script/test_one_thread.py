"""Scripts that work in one thread of the operating system alone, as AWS's container has."""

from pathlib import Path

import pytest

from support.archives import stand_in_words
from support.stack import serving

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
    """Threads fail with a message that names the class sync, with which all works."""
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class}
    is_sync = worker_class == "sync"
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        for function, answer in ANSWERS.items():
            reply = stack.invoke(function, "text/plain")
            assert reply.status == (200 if is_sync else 500)
            assert (answer if is_sync else CURE) in reply.body.decode()
