"""A script's own calls of the model server: by `requests` over the worker's connections, and by its channel."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import pack, stand_in_words
from support.stack import serving
from tfs_proxy.serving.upstream.grpc_channels import FORKED

TELLS = """
    parent = open(f"/proc/{os.getppid()}/maps").read()
    answer = requests.post(context.rest_uri, data=data.read())
    return json.dumps({
        "status": answer.status_code,
        "is pooled": requests.api.request.__module__,
        "in the master": "charset_normalizer" in parent,
    }), "application/json"
"""
AT_TOP = f"import json, os\nimport requests\ndef handler(data, context):{TELLS}"
IN_HANDLER = f"import json, os\ndef handler(data, context):\n    import requests{TELLS}"
BY_OTHERS = f"import json, os\nfrom caller import requests_of\ndef handler(data, context):\n    requests = requests_of(){TELLS}"


@pytest.mark.parametrize(
    ("script", "worker_class", "in_master"),
    [
        (AT_TOP, "gthread", True),
        (IN_HANDLER, "gthread", True),
        (BY_OTHERS, "gthread", False),
        (AT_TOP, "sync", False),
        (AT_TOP, "gevent", False),
    ],
    ids=["at the top", "in the handler", "in another module", "sync", "gevent"],
)
def test_requests_of_a_script_go_over_the_pool(
    tmp_path: Path, script: str, worker_class: str, in_master: bool
) -> None:
    """The master imports them for all workers, which are threads, if the script says that it needs them."""
    other = "def requests_of():\n    import requests\n    return requests\n"
    words = stand_in_words(tmp_path, script, **{"code/caller.py": other})
    with serving(*words, env={"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class}) as stack:
        answer = stack.invoke('{"instances": [1]}').json

    assert answer == {
        "status": 200,
        "is pooled": "tfs_proxy.serving.upstream.pooled_requests",
        "in the master": in_master,
    }


ASKS = """
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


def handler(data, context):
    return context.channel.unary_unary(STATUS)(data.read(), timeout=20), "application/octet-stream"
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("worker_class", ["sync", "gevent"])
def test_a_script_s_channel_leads_to_the_model_server(
    tmp_path: Path, saved_models: Path, worker_class: str
) -> None:
    """Under gevent, too; threads have it in the contract."""
    files, folders = {"code/inference.py": ASKS}, {"half": saved_models / "half_plus_two"}
    archive = str(pack(tmp_path / "model.tar.gz", files, folders))
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class}
    with serving(archive, "--model-server", "embedded", env=env) as stack:
        answers = [stack.invoke(b"\x0a\x06\x0a\x04half", "application/octet-stream") for _ in range(3)]

    assert [answer.body for answer in answers] == [
        b"\x0a\x06\x08\x01\x10\x1e\x1a\x00"
    ] * 3  # version 1, AVAILABLE


FORKS = """
import json
import multiprocessing
import os


def double(number):
    return 2 * number


def said_by_fork(ask):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            ask()
        except Exception as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as said:
        return said.read()


def handler(data, context):
    x = float(data.read())
    ask = lambda: context.predict([x])["y"].tolist()
    before, text = ask(), said_by_fork(ask)
    pool = multiprocessing.get_context("fork").Pool(2)
    doubled = pool.map(double, [x, 2])
    pool.close()
    pool.join()
    return json.dumps([before, text, doubled, ask()]), "application/json"
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("worker_class", ["gthread", "sync"])
def test_a_script_forks_while_its_worker_s_channel_is_open(
    tmp_path: Path, saved_models: Path, worker_class: str
) -> None:
    """Its processes do what they are for, and are told at once that they can't ask; the worker goes on."""
    files, folders = {"code/inference.py": FORKS}, {"half": saved_models / "half_plus_two"}
    archive = str(pack(tmp_path / "model.tar.gz", files, folders))
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, "SAGEMAKER_GUNICORN_WORKERS": "1"}
    with (
        serving(archive, "--model-server", "embedded", env=env) as stack,
        ThreadPoolExecutor(4) as clients,
    ):
        answers = list(clients.map(lambda number: stack.invoke(str(number), "text/plain").json, range(24)))

    for number, (before, text, doubled, after) in enumerate(answers):
        assert (before, doubled, after) == ([number / 2 + 2], [2 * number, 4], [number / 2 + 2])
        assert text == FORKED
