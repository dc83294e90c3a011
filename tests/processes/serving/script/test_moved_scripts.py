"""Scripts that come from AWS's container with what they expect of files, modules and processes there."""

from pathlib import Path

import pytest

from support.archives import stand_in_words
from support.stack import serving

SCRIPT = """
import multiprocessing, os, subprocess

def double(number):
    return 2 * number

def spawned():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return str(pool.map(double, [1, 2]))

def handler(data, context):
    os.chdir("/usr")
    return str(eval(data.read().decode())), "text/plain"
"""
ANSWERS = {
    "spawned()": (200, "[2, 4]", ""),
    "open(context.model_dir + '/words.txt').read()": (200, "found", ""),
    "open('/opt/ml/model/words.txt')": (
        500,
        "context.model_dir in a handler",
        "model's folder here is {home}/",
    ),
    "open('words.txt')": (500, "script's folder is Path(__file__).parent", "relative paths begin at /usr,"),
    "__import__('no_such_module')": (500, "add its package to code/requirements.txt", ""),
    "subprocess.run(['words'])": (500, "No such file or directory: 'words'\"", ""),
}


def test_what_they_expect_is_there_or_the_error_says_where(tmp_path: Path) -> None:
    """The client reads the remedy without a path of the server, which the log has."""
    if Path("/opt/ml/model").exists():
        pytest.skip("archives appear at /opt/ml/model here")
    with serving(*stand_in_words(tmp_path, SCRIPT, **{"words.txt": "found"})) as stack:
        for asked, (status, body, logged) in ANSWERS.items():
            reply = stack.invoke(asked, "text/plain")
            assert (reply.status, body in reply.body.decode()) == (status, True), reply.body
            assert str(stack.home) not in reply.body.decode()
            assert logged.format(home=stack.home) in stack.log
