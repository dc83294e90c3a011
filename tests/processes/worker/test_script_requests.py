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


CHANNEL = """
import json
import multiprocessing
import os


STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


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
    body = data.read()
    if context.request_content_type == "application/octet-stream":
        return context.channel.unary_unary(STATUS)(body, timeout=20), "application/octet-stream"
    x = float(body)
    ask = lambda: context.predict([x])["y"].tolist()
    before, text = ask(), said_by_fork(ask)
    pool = multiprocessing.get_context("fork").Pool(2)
    doubled = pool.map(double, [x, 2])
    pool.close()
    pool.join()
    return json.dumps([before, text, doubled, ask()]), "application/json"
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("worker_class", ["gthread", "sync", "gevent"])
def test_a_script_s_channel_leads_to_the_model_server_and_may_be_open_while_it_forks(
    tmp_path: Path, saved_models: Path, worker_class: str
) -> None:
    """Its processes do what they are for, and are told at once that they can't ask; the worker goes on."""
    files, folders = {"code/inference.py": CHANNEL}, {"half": saved_models / "half_plus_two"}
    archive = str(pack(tmp_path / "model.tar.gz", files, folders))
    env = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, "SAGEMAKER_GUNICORN_WORKERS": "1"}
    with (
        serving(archive, "--model-server", "embedded", env=env) as stack,
        ThreadPoolExecutor(4) as clients,
    ):
        status = stack.invoke(b"\x0a\x06\x0a\x04half", "application/octet-stream").body
        assert status == b"\x0a\x06\x08\x01\x10\x1e\x1a\x00"  # version 1, AVAILABLE
        numbers = range(0 if worker_class == "gevent" else 24)
        answers = list(clients.map(lambda number: stack.invoke(str(number), "text/plain").json, numbers))

    for number, (before, text, doubled, after) in enumerate(answers):
        assert (before, doubled, after) == ([number / 2 + 2], [2 * number, 4], [number / 2 + 2])
        assert text == FORKED


TYPED = """
import asyncio
import dataclasses


@dataclasses.dataclass
class Row:
    x: float


async def handler(rows: list[Row], context) -> list[Row]:
    await asyncio.sleep(0.01)
    return [Row(row.x * 2) for row in rows]
"""


def test_objects_go_in_and_out_over_http(tmp_path: Path) -> None:
    """Behind nginx, many at once; a body that does not fit has the places of its faults."""
    with serving(*stand_in_words(tmp_path, TYPED)) as stack, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: stack.invoke(f'[{{"x": {number}}}]').json, range(50)))
        lines = stack.invoke('{"x": 1}\n{"x": 2}\n', "application/jsonlines")
        refused = stack.invoke('[{"x": 1}, {"x": "a"}]')
        form = stack.invoke("x=1", "application/x-www-form-urlencoded")

    assert answers == [[{"x": 2.0 * number}] for number in range(50)]
    assert (lines.json, lines.headers["content-type"]) == ([{"x": 2.0}, {"x": 4.0}], "application/json")
    assert (refused.status, [each["loc"] for each in refused.json["details"]]) == (400, [[1, "x"]])
    assert (form.status, "-H 'Content-Type: application/json'" in form.json["error"]) == (415, True)
