"""Status and first words of the refusals that docs/reference/http.md names, as they were recorded."""

import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from contract.conftest import Check, Start
from contract.doors import JSON, LISTENS, LOOPBACK, ONE, Answer, Running, first_words, until
from contract.stacks import KEY

pytestmark = pytest.mark.tensorflow

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
MEGABYTES = b"a" * 3_000_000
PARTS = b'--x\r\nContent-Disposition: form-data; name="nope"\r\n\r\n1\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=x"}


def chosen(attributes: str) -> dict[str, str]:
    """Headers with custom attributes."""
    return {**JSON, ATTRIBUTES: attributes}


POSTS: Mapping[str, tuple[str | bytes, Mapping[str, str]]] = {
    "400 not JSON": ("nonsense", JSON),
    "400 empty": ("", JSON),
    "400 not of the type": ('{"instances": ["a"]}', JSON),
    "400 shape": ('{"instances": [[[1.0, 2.0, 3.0]]]}', chosen("tfs-model-name=matrix")),
    "400 unknown input": ('{"instances": [{"z": 1.0}]}', JSON),
    "400 csv": ("a,b\n", {"Content-Type": "text/csv"}),
    "400 form": (PARTS, FORM),
    "400 form of many parts": (PARTS * 10_000, FORM),
    "400 form of no such input": (PARTS + b"--x--", FORM),
    "400 attribute twice": (ONE, chosen("tfs-model-name=versions,tfs-model-name=bytes")),
    "400 version and label": (
        ONE,
        chosen("tfs-model-name=versions,tfs-model-version=1,tfs-model-label=stable"),
    ),
    "400 version": (ONE, chosen("tfs-model-name=versions,tfs-model-version=x")),
    "400 signature": (ONE, chosen("tfs-signature-name=nope")),
    "400 method": (ONE, chosen("tfs-method=explain")),
    "400 method of the model": (ONE, chosen("tfs-method=classify")),
    "400 not gzip": ("plain", {**JSON, "Content-Encoding": "gzip"}),
    "404 model": (ONE, chosen("tfs-model-name=nope")),
    "404 version": (ONE, chosen("tfs-model-name=versions,tfs-model-version=7")),
    "label": (ONE, chosen("tfs-model-name=versions,tfs-model-label=nope")),
    "406": (ONE, {**JSON, "Accept": "image/png"}),
    "413": (MEGABYTES, JSON),
    "415 type": ("<a/>", {"Content-Type": "application/xml"}),
    "415 encoding": (ONE, {**JSON, "Content-Encoding": "br"}),
}
PATHS: Mapping[str, tuple[str, str]] = {
    "404 path": ("GET", "/nope"),
    "404 many models": ("GET", "/models"),
    "405 invocations": ("GET", "/invocations"),
    "405 ping": ("POST", "/ping"),
    "405 metrics": ("DELETE", "/metrics"),
    "405 v1": ("PUT", "/v1/models/half_plus_two:predict"),
    "404 v1 model": ("GET", "/v1/models/nope"),
    "404 v1": ("GET", "/v1"),
    "404 v2": ("GET", "/v2/nope"),
    "404 v2 model": ("GET", "/v2/models/nope"),
    "404 v2 version": ("GET", "/v2/models/versions/versions/7/ready"),
    "400 v2 infer": ("POST", "/v2/models/half_plus_two/infer"),
    "404 v2 repository": ("POST", "/v2/repository/index"),
    "404 v2 statistics": ("GET", "/v2/models/half_plus_two/stats"),
    "405 v2": ("POST", "/v2/health/live"),
    "405 live": ("POST", "/live"),
}
V1_AND_V2 = ("/v1/models/half_plus_two:predict", "/v2/models/half_plus_two/infer")
LINES: Mapping[str, bytes] = {
    "400 no HTTP": b"nonsense\r\n\r\n",
    "400 length": b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: ten\r\n\r\n",
    "400 chunk": b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "400 no host": b"GET /ping HTTP/1.1\r\n\r\n",
    "413 chunked": b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"%x\r\n" % len(MEGABYTES)
    + MEGABYTES
    + b"\r\n0\r\n\r\n",
    "413 declared": b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n",
    "414": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "431": b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "501 coding": b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: magic\r\n\r\n",
    "version of HTTP": b"GET /ping HTTP/7.5\r\nHost: localhost\r\n\r\n",
    "405 unknown method": b"BREW /invocations HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
CASES = [*POSTS, *PATHS, *LINES]


def ask(running: Running, name: str) -> Answer:
    """Send the request of a case."""
    if name in LINES:
        return running.raw(LINES[name])
    if name in PATHS:
        method, path = PATHS[name]
        return running.ask(method, path, "{}" if method == "POST" else None, JSON)
    return running.ask("POST", "/invocations", *POSTS[name])


SCRIPT: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "500 raises": ("text/x-raise", {}),
    "500 unsendable": ("application/json", {"Accept": "text/x-unsendable"}),
    "422 HTTPError": ("text/x-refuse", {}),
    "502 dies": ("text/x-die", {}),
    "504 script": ("text/x-hang", {}),
    "400 model server": ("text/plain", {}),
}
TOO_LARGE = b"\x12\xc0\x8d\xb7\x01" + MEGABYTES
"""A message whose second field is as long as that."""
GRPC = {
    "tensorflow.serving.ModelService/HandleReloadConfigRequest": b"",
    "tensorflow.serving.PredictionService/Predict": TOO_LARGE,
    "inference.GRPCInferenceService/ModelInfer": TOO_LARGE,
    "inference.GRPCInferenceService/ModelMetadata": b"\x0a\x04nope",
    "inference.GRPCInferenceService/RepositoryModelLoad": b"",
    "made.up.Service/Call": b"",
}
DOORS = (
    "POST /invocations",
    "POST /v1/models/half_plus_two:predict",
    "GET /v1/models/half_plus_two",
    "POST /v2/models/half_plus_two/infer",
    "GET /v2",
    "GET /metrics",
    "GET /openapi.json",
    "GET /execution-parameters",
    "GET /console/facts.json",
    "GET /nope",
    "GET /",
    "GET /console/main.js",
    "GET /ping",
    "GET /live",
    "GET /v2/health/ready",
    "OPTIONS /invocations",
)
CLOSED = {
    "404 v1 closed": "/v1/models/half_plus_two",
    "404 v2 closed": "/v2",
    "404 v2 health": "/v2/health/live",
}


def refused(answer: Answer) -> tuple[int, str]:
    """Status and first words of a refusal, which is JSON with a sentence and carries the id of its request."""
    assert answer.headers["content-type"].startswith("application/json"), answer
    assert isinstance(answer.json["error"], str)
    assert answer.json.keys() - {"details"} == {"error"}
    assert answer.headers["x-request-id"]
    return answer.status, answer.first_words


@pytest.mark.parametrize("name", CASES)
def test_refusals_without_a_script(
    front: Running, request: pytest.FixtureRequest, recorded: Check, name: str
) -> None:
    """Whoever refuses: nginx, a worker, the supervisor or the model server."""
    answer = ask(front, name)
    status, words = refused(answer)

    recorded("refusals", f"{request.node.callspec.params['front']}: {name}", [status, words])
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    "name", ["400 not JSON", "400 not of the type", "400 form of no such input", "400 csv"]
)
def test_places_of_faults(front: Running, recorded: Check, name: str) -> None:
    """Records of a body for /invocations count from 0, before the input; other doors don't tell them."""
    details = ask(front, name).json["details"]
    elsewhere = [front.ask("POST", path, "nonsense", JSON).json for path in V1_AND_V2]

    assert all(isinstance(each["msg"], str) for each in details)
    recorded("refusals", f"places: {name}", [each["loc"] for each in details])
    assert [set(answer) for answer in elsewhere] == [{"error"}] * 2


def test_a_head_that_does_not_arrive_is_given_up(stacks: Start) -> None:
    """After 10 s nginx closes the connection."""
    with socket.create_connection((LOOPBACK, stacks("nginx").port), 60) as link:
        link.sendall(b"POST /invocations HTTP/1.1\r\nHost: localhost\r\n")

        assert link.recv(4096) == b""


@pytest.mark.parametrize("name", GRPC)
def test_refusals_of_grpc(front: Running, request: pytest.FixtureRequest, recorded: Check, name: str) -> None:
    """Code and first words: methods that are not published, and messages that are too large."""
    with grpc.insecure_channel(front.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/{name}")(GRPC[name], timeout=60)

    key = f"grpc, {request.node.callspec.params['front']}: {name}"
    recorded("refusals", key, [caught.value.code().name, first_words(caught.value.details())])


@pytest.mark.parametrize("name", SCRIPT)
def test_refusals_behind_a_script(stacks: Start, recorded: Check, name: str) -> None:
    """What it raises and returns, and how it ends."""
    kind, headers = SCRIPT[name]
    answer = stacks("script").invoke("nonsense" if kind == "text/plain" else ONE, kind, **headers)

    recorded("refusals", f"script: {name}", list(refused(answer)))


def test_a_model_server_that_does_not_answer_in_time_is_a_504(
    stacks: Start, recorded: Check, tmp_path: Path
) -> None:
    """TFS_PROXY_REQUEST_TIMEOUT_SECONDS, which the model server and its caller count alike: either may say so."""
    attributes = {ATTRIBUTES: "tfs-model-name=gate"}
    mark = json.dumps({"instances": [str(tmp_path / "mark")]})
    answer = stacks("script").invoke(mark, "text/plain", **attributes)
    (tmp_path / "open").touch()

    status, words = refused(answer)
    assert words in {"Timed out waiting", "The model server"}
    recorded("refusals", "script: 504 model server", [status])


@pytest.mark.parametrize("door", [*DOORS, "grpc"])
def test_doors_that_ask_for_a_key(stacks: Start, recorded: Check, door: str) -> None:
    """TFS_PROXY_API_KEYS: what is answered without one, and with one."""
    running = stacks("keyed")
    if door == "grpc":
        with grpc.insecure_channel(running.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=60)
        recorded("refusals", "keyed: grpc", [caught.value.code().name, first_words(caught.value.details())])
        return
    method, path = door.split()
    without, wanted = running.ask(method, path, None, JSON), {**JSON, "X-Api-Key": KEY}
    words = list(refused(without)) if without.status == 401 else [without.status]
    recorded("refusals", f"keyed: {door}", [*words, running.ask(method, path, None, wanted).status])
    assert without.headers.get("www-authenticate") == ("Bearer" if without.status == 401 else None)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_doors(stacks: Start, recorded: Check, name: str) -> None:
    """TFS_PROXY_DOORS=none."""
    recorded("refusals", f"script: {name}", list(refused(stacks("script").ask("GET", CLOSED[name]))))


def test_a_full_queue_of_batches_is_a_503(stacks: Start, recorded: Check, tmp_path: Path) -> None:
    """One request is being answered, one waits, and of the others some are refused; those two are answered."""
    running = stacks("queue")
    answers: list[Answer] = []

    def send(number: int) -> None:
        answers.append(running.invoke(json.dumps({"instances": [str(tmp_path / str(number))]})))

    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(send, number)
        until(lambda: any(answer.status == 503 for answer in answers), "a request is refused")
        (tmp_path / "open").touch()
    (busy,) = {refused(answer) for answer in answers if answer.status != 200}

    assert any(answer.status == 200 for answer in answers)
    recorded("refusals", "bare: 503 queue", list(busy))


def loading(folder: Path, env: Mapping[str, str] | None = None) -> Running:
    """A run whose script is never loaded."""
    (folder / "code").mkdir()
    hanging = "import time\ntime.sleep(600)\ndef model_fn(model_dir): return None\n"
    (folder / "code" / "inference.py").write_text(hanging)
    return Running("serve", str(folder), env={"TFS_PROXY_STOP_SECONDS": "1", **(env or {})})


def test_during_the_start_everything_is_a_503(recorded: Check, tmp_path: Path) -> None:
    """The port accepts at once, and says why nothing is served; SIGTERM ends it with 0."""
    running = loading(tmp_path)
    try:
        running.port = int(running.named(LISTENS))
        for path, method in (("/ping", "GET"), ("/invocations", "POST")):
            answer = running.ask(method, path, ONE if method == "POST" else None, JSON)
            recorded("refusals", f"start: {path}", [answer.status, answer.first_words.split()[0]])
        assert running.ask("GET", "/v2/health/ready").json == {"live": True, "ready": False}
        assert running.ask("GET", "/metrics").status == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
    finally:
        running.close()


def test_refusals_of_tls(recorded: Check, tmp_path: Path) -> None:
    """Without it, and without a client's certificate, from the start on; health checks need none."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    of_server = ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", *of_server], check=True, capture_output=True
    )
    variables = {"CERTIFICATE": certificate, "KEY": key, "CLIENT_CA": certificate}
    env = {f"TFS_PROXY_TLS_{name}": str(path) for name, path in variables.items()}
    trusting, proving = ssl.create_default_context(cafile=certificate), ssl.create_default_context()
    for context in (trusting, proving):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    proving.load_cert_chain(certificate, key)
    running = loading(tmp_path, env)
    try:
        running.port = int(running.named(r"listening on https://[\d.]+:(\d+)"))
        recorded("refusals", "tls: 400 plain", list(refused(running.ask("GET", "/ping"))))
        refusal = refused(running.ask("POST", "/invocations", ONE, JSON, tls=trusting))
        recorded("refusals", "tls: 403 certificate", list(refusal))
        assert running.ask("GET", "/ping", tls=trusting).status == 503
        assert running.ask("GET", "/metrics", tls=proving).status == 200
    finally:
        running.close()


def test_all_that_is_recorded_is_asked(recorded: Check) -> None:
    """No row outlives its case."""
    path = Path(__file__).parent / "recorded" / "refusals.json"
    rows = {
        name.partition(": ")[2] for name in json.loads(path.read_text()) if name.startswith(("nginx", "bare"))
    }

    assert rows - {"503 queue"} == set(CASES)
