"""The way past the workers: taken where it is certain, and never with another answer."""

import gzip
import json
import os
import re
import signal
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, serving_many
from support.stack import Stack, serving

pytestmark = [
    pytest.mark.tensorflow,
    NEEDS_NGINX,
]

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "invocations.json").read_text())
BODIES = {
    str(case["name"]): (case["body"], case["headers"].get(ATTRIBUTES, ""))
    for case in GOLDEN
    if case["method"] == "POST" and case["headers"].get("Content-Type", "").startswith("application/json")
}
MORE = {
    "two serving forms": '{"instances": [1.0]}\n{"instances": [2.0]}',
    "behind a comma": '{"instances": [1.0]},{"instances": [2.0]}',
    "rest of a line": '{"instances": [1.0]} x',
    "closed too often": '{"instances": [1.0]}}',
    "braces in strings": '{"instances": [1.0], "note": "}{ \\" }"}',
    "quote in a key": '{"ins\\"tances": [1.0], "instances": [3.0]}',
    "objects": '{"instances": [{"x": 1.0}, {"x": 2.0}]}',
    "not a number": '{"instances": [NaN, Infinity, -Infinity]}',
    "white space": ' \r\n\t{"instances" :\t[1.0] }\n',
    "form feed behind": '{"instances": [1.0]}\f',
    "letters beyond ASCII": '{"instances": [1.0], "note": "é"}',
    "byte order mark": '﻿{"instances": [1.0]}',
    "both forms": '{"instances": [1.0], "inputs": [1.0]}',
    "unknown signature": '{"signature_name": "no", "instances": [1.0]}',
    "wrong type": '{"instances": ["a"]}',
    "deep": '{"a":' * 5000 + "1" + "}" * 5000,
    "many objects": json.dumps({"instances": [{"x": 0.5}] * 20_000}),
    "nothing": "",
    "brace": "{",
    "null byte": '{"instances": [1.0]}\0',
}
BODIES.update({name: (body, "") for name, body in MORE.items()})
TARGETS = [
    "tfs-model-name=versions",
    "tfs-model-name=versions,tfs-model-version=1",
    "tfs-model-name=versions,tfs-model-version=01",
    "tfs-model-name=versions,tfs-model-version=9",
    "tfs-model-name=versions,tfs-method=predict",
    "tfs-method=predict,tfs-model-name=versions",
    "tfs-model-name=versions,tfs-model-name=half_plus_two",
    "tfs-model-name=%2e%2e",
    "tfs-model-name=nope",
    "trace=1",
    "trace=tfs-model-name",
    "tfs-model-name=versions/versions/1",
    " tfs-model-name=versions ",
]


def both_ways(served: Stack, body: str, attributes: str) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    """Status and body of the answer when nginx may decide, and when an Accept forces it to Python."""
    answers = []
    for accept in ("application/json", "application/json;q=1"):
        headers = {ATTRIBUTES: attributes} if attributes else {}
        answer = served.invoke(body.encode(), "application/json", Accept=accept, **headers)
        answers.append((answer.status, answer.body))
    return answers[0], answers[1]


@pytest.mark.parametrize("name", BODIES)
def test_both_ways_answer_the_same_bytes(served: Stack, name: str) -> None:
    """Whatever the body, the client can't tell which way its request took."""
    one, other = both_ways(served, *BODIES[name])

    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("is_many", [False, True])
def test_all_json_of_a_batch_job_is_one_line(saved_models: Path, *, is_many: bool) -> None:
    """Of one archive and of many, and in errors, whatever the Accept."""
    env = {"SAGEMAKER_BATCH": "true"}
    model = saved_models / "half_plus_two"
    bodies = ['{"instances": [1.0]}', "[1.0]", '{"instances": ["a"]}']
    accepts = [{}, {"Accept": "application/json"}]
    one = serving(str(model), "--model-server", "embedded", env=env)
    with serving_many(env=env) if is_many else one as batch:
        path = "/invocations"
        if isinstance(batch, MultiModelStack):
            batch.loaded("m", model)
            path = "/models/m/invoke"
        answers = [
            batch.ask("POST", path, body, {"Content-Type": "application/json", **accept})
            for accept in accepts
            for body in bodies
        ]

    assert [answer.status for answer in answers] == [200, 200, 400] * 2
    assert not any(b"\n" in answer.body for answer in answers)


def test_answers_are_packed_at_every_door(saved_models: Path) -> None:
    """TFS_PROXY_GZIP: JSON, CSV and JSON Lines of 1 KB and more, also past the workers; the same bytes inside."""
    env = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two", "TFS_PROXY_GZIP": "true"}
    infer = {"inputs": [{"name": "x", "shape": [2000], "datatype": "FP32", "data": [1.5] * 2000}]}
    bodies = {"/invocations": (many := {"instances": [1.5] * 2000}), "/v1/models/half_plus_two:predict": many}
    doors = [
        ("/invocations", ""),
        *(
            ("/invocations", f"{kind}{way}")
            for kind in ("application/json", "text/csv")
            for way in ("", ";q=1")
        ),
        ("/invocations", "application/jsonlines"),
        ("/v1/models/half_plus_two:predict", ""),
        ("/v2/models/half_plus_two/infer", ""),
    ]
    with serving(str(saved_models), "--model-server", "embedded", env=env) as stack:
        for path, accept in doors:
            body = json.dumps(bodies.get(path, infer))
            headers = {"Content-Type": "application/json", **({"Accept": accept} if accept else {})}
            plain = stack.ask("POST", path, body, headers)
            packed = stack.ask("POST", path, body, {**headers, "Accept-Encoding": "gzip"})
            assert plain.headers.get("content-encoding") is None
            assert packed.headers.get("content-encoding") == "gzip", (path, accept)
            assert gzip.decompress(packed.body) == plain.body, (path, accept)
        for path in ("/invocations", "/v1/models/half_plus_two:predict"):
            small = stack.ask("POST", path, '{"instances": [1.5]}', {"Accept-Encoding": "gzip"})
            assert (small.headers.get("content-encoding"), small.json) == (None, {"predictions": [2.75]})


@pytest.mark.parametrize("attributes", TARGETS)
def test_both_ways_read_the_attributes_alike(served: Stack, attributes: str) -> None:
    """Names, versions and methods choose the same model, malformed ones fail alike."""
    one, other = both_ways(served, '{"instances": [1.0]}', attributes)

    assert one == other


def test_several_documents_are_records_and_not_dropped(served: Stack) -> None:
    """TF Serving itself would answer the first and ignore the second."""
    answer = served.invoke(MORE["two serving forms"])

    assert answer.status == 400
    assert "Record 1" in answer.json["error"]


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ('{"instances": [1.0]}', ""),
        ('{"inputs": {"x": [1.0]}}', ""),
        ('{"instances": [{"x": 1.0}]}', "user=7"),
        ('{"instances": [1.0]}', "tfs-model-name=versions,tfs-model-version=2"),
    ],
)
def test_certain_requests_need_no_worker(served: Stack, body: str, attributes: str) -> None:
    """With every worker stopped they are still answered."""
    workers = served.children()["gunicorn"]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = served.invoke(body, **({ATTRIBUTES: attributes} if attributes else {}))
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)

    assert answer.status == 200


def test_a_refused_shape_is_explained(served: Stack) -> None:
    """What nginx has asked and was refused, Python explains; TF Serving's own API keeps its own words."""
    body = '{"instances": [[1, 2, 3]]}'
    refused = served.invoke(body, **{ATTRIBUTES: "tfs-model-name=matrix"})
    own = served.ask("POST", "/v1/models/matrix:predict", body, {"Content-Type": "application/json"})

    assert (refused.status, own.status) == (400, 400)
    assert "has shape" not in own.json["error"]
    explained, _, words = refused.json["error"].partition(" The model server says: ")
    assert explained == 'The input "m" has shape [1, 3], expected [?, 2, 2].'
    assert words.startswith(own.json["error"].partition("\n")[0])


def test_a_body_of_the_open_inference_protocol_is_answered_in_it(served: Stack) -> None:
    """The model server refuses what nginx has sent it, so that Python gets it."""
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
    answer = served.invoke(json.dumps({"inputs": [tensor]}))

    assert answer.status == 200
    assert answer.json["outputs"] == [{**tensor, "name": "y", "data": [2.5, 3.0]}]


HOSTILE_BODIES = {
    "open braces": b"{",
    "pairs of braces": b"{}",
    "closed and opened": b"}{",
    "open strings": b'{"',
    "empty strings": b'""',
    "escapes": b'{"\\',
}
LOOKED_AT = 4_000_000 - 64
GROWTH = 32 << 20


def nginx_peak(served: Stack) -> int:
    """Bytes of memory that nginx's processes had at most, together."""
    statuses = "".join(Path(f"/proc/{pid}/status").read_text() for pid in served.children()["nginx"])
    return sum(int(kilobytes) << 10 for kilobytes in re.findall(r"VmHWM:\s+(\d+)", statuses))


@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_no_body_costs_nginx_memory_or_is_logged(served: Stack, name: str) -> None:
    """The largest bodies that nginx looks at, made of what is hardest to match, leave it as it was."""
    pieces = HOSTILE_BODIES[name]
    before = nginx_peak(served)

    answer = served.invoke(b"{" + pieces * (LOOKED_AT // len(pieces)) + b"}")

    assert answer.status in {400, 413}
    assert nginx_peak(served) - before < GROWTH
    assert "pcre" not in served.log
    assert pieces.decode() * 8 not in served.log


@pytest.mark.parametrize("framed", ["by length", "by chunks"])
def test_the_model_server_is_not_bothered_with_large_bodies(served: Stack, framed: str) -> None:
    """Python refuses one that becomes too much although the model server takes nothing in."""
    body = b'{"a":[' + b"[]," * 8_000_000 + b"[]]}"
    pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
    (model_server,) = served.children()["embedded"]
    os.kill(model_server, signal.SIGSTOP)
    try:
        answer = served.ask(
            "POST",
            "/invocations",
            body if framed == "by length" else pieces,
            {"Content-Type": "application/json"},
        )
    finally:
        os.kill(model_server, signal.SIGCONT)

    assert answer.status == 413
    assert "TFS_PROXY_MAX_DECODED_TOTAL_MB" in answer.json["error"]
