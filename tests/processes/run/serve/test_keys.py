"""Keys of callers, at every door of a run behind nginx."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.archives import NEEDS_NGINX, stand_in_program, stand_in_words
from support.collector import Collector, collector
from support.multi_model import MultiModelStack, script_model
from support.ports import free_port
from support.stack import Stack, ended, serving
from support.waiting import wait_until
from tfs_proxy.tools.client import Client, RequestRefused

pytestmark = NEEDS_NGINX

ANN, BOB, ROOT = "aN" * 16, "bO" * 20 + "+/=._-", "rO" * 16
FILE = f"# callers\n\nann {ANN}\n  bob-2\t{BOB}  \r\n"
BEARER, API_KEY = {"Authorization": f"Bearer {ANN}"}, {"X-Api-Key": BOB}
SCRIPT = """
import json


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept, context=None):
    return json.dumps(data.decode() if isinstance(data, bytes) else data), "application/json"


def handler(data, context):
    return json.dumps({"headers": dict(context.headers)}), "application/json"
"""
REFUSED = {
    "no key": {},
    "an unknown key": {"X-Api-Key": "x" * 32},
    "another case": {"X-Api-Key": ANN.swapcase()},
    "a part of a key": {"X-Api-Key": ANN[:-1]},
    "a key without its scheme": {"Authorization": ANN},
    "another scheme": {"Authorization": f"Basic {ANN}"},
    "two keys in one header": {"X-Api-Key": f"{ANN}, {BOB}"},
    "a good and a bad one": {**BEARER, "X-Api-Key": "x" * 32},
    "a bad and a good one": {**API_KEY, "Authorization": "Bearer " + "x" * 32},
    "an entry of the map": {"X-Api-Key": f"admin ann {ANN}", "Authorization": f"admin ann Bearer {ANN}"},
    "what a map says of no key": {"X-Api-Key": "?", "Authorization": "?"},
    "words of a map": {"X-Api-Key": "default", "Authorization": "volatile"},
    "a pattern": {"X-Api-Key": "~.*", "Authorization": "Bearer .*"},
    "variables": {"X-Api-Key": "$caller", "Authorization": "Bearer ${http_host}"},
    "nothing": {"X-Api-Key": "", "Authorization": ""},
    "ten thousand": {"X-Api-Key": "a" * 10_000},
    "private headers": {"X-Tfs-Proxy-Caller": "ann", "X-Accel-Redirect": "@python"},
    "another path": {"X-Original-URL": "/ping", "X-Rewrite-URL": "/ping", "X-Forwarded-Prefix": "/ping"},
    "another method": {"X-HTTP-Method-Override": "OPTIONS"},
    "another host": {"X-Forwarded-Host": "localhost", "X-Forwarded-For": "127.0.0.1"},
}
RAW = {
    "twice": f"X-Api-Key: {ANN[:-1]}\r\nx-api-key: ann",
    "a space before the colon": f"X-Api-Key : {ANN}",
    "folded": f"X-Api-Key:\r\n {ANN.swapcase()}",
    "line ends": f"X-Api-Key: x\nadmin ann {ANN}",
    "a carriage return": f"X-Api-Key: x\radmin ann {ANN}",
    "zeros": f"X-Api-Key: {ANN}\0",
}
OPEN = ["/ping", "/", "/console/console.css"]


class Keyed(Stack):
    """A run with the keys of `FILE` and a model of the stand-in's in ``folder``, traced to ``collector``."""

    def __init__(self, folder: Path, collector: Collector, script: str | None = None, **env: str) -> None:
        self.folder, self.collector, self.extra = folder, collector, free_port()
        (folder / "keys").write_text(FILE)
        keyed = {"TFS_PROXY_API_KEYS": f"{folder / 'keys'}", "TFS_PROXY_EXTRA_PORTS": f"{self.extra}"}
        super().__init__(*stand_in_words(folder, script), env={**keyed, **env})


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Keyed, Keyed]]:
    """A script that answers with the headers it sees, traced and captured; and a model that nginx asks itself."""
    with collector() as spans, contextlib.ExitStack() as stacks:
        folder = tmp_path_factory.mktemp("script")
        env = {"TFS_PROXY_ACCESS_LOG": "all", "TFS_PROXY_GRPC_PORT": "0", **spans.env}
        script = Keyed(folder, spans, SCRIPT, TFS_PROXY_CAPTURE=f"{folder / 'captured'}", **env)
        stacks.callback(script.close)
        plain = Keyed(tmp_path_factory.mktemp("plain"), spans)
        stacks.callback(plain.close)
        script.wait_ready()
        plain.wait_ready()
        yield script, plain


@pytest.fixture
def script(keyed: tuple[Keyed, Keyed]) -> Keyed:
    return keyed[0]


@pytest.fixture
def plain(keyed: tuple[Keyed, Keyed]) -> Keyed:
    return keyed[1]


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_key_is_a_401(script: Keyed, plain: Keyed, case: str) -> None:
    """At the port, another port, and on the way past the workers alike."""
    for stack, port in ((script, script.port), (script, script.extra), (plain, plain.port)):
        answer = stack.ask("POST", "/invocations", '{"instances": [1.0]}', REFUSED[case], port=port)

        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["error"].startswith("a key is needed: ")
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("case", RAW)
def test_no_odd_header_is_a_key(script: Keyed, case: str) -> None:
    """Whatever nginx makes of it."""
    head = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n{RAW[case]}\r\n\r\n"
    assert script.raw(head.encode() + b"{}").split()[1] in {b"400", b"401"}


def test_a_key_is_for_one_request_of_a_connection(script: Keyed) -> None:
    statuses = []
    with contextlib.closing(HTTPConnection(script.host, script.port)) as link:
        for headers in (API_KEY, {}):
            link.request("POST", "/invocations", "{}", headers)
            with link.getresponse() as answer:
                statuses.append(answer.status)
                answer.read()
    assert statuses == [200, 401]


@pytest.mark.parametrize("path", OPEN)
def test_probes_and_the_page_need_none(script: Keyed, path: str) -> None:
    """A key that does not hold is no obstacle there; a large body is, and no 401 waits for one."""
    assert script.ask("GET", path, headers={"Accept": "text/html"}).status == 200
    assert script.ask("GET", path + "?a=b", headers={"X-Api-Key": "x"}).status == 200
    assert script.ask("OPTIONS", "/invocations").status == 200
    for line in (f"GET {path}", "POST /invocations"):
        large = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000000\r\n\r\n"
        assert script.raw(large.encode()).split()[1] == b"401"


def test_nobody_behind_nginx_sees_a_key(script: Keyed, plain: Keyed) -> None:
    """Neither script and model server nor captured requests; the log and the trace have the name."""
    for headers, name in ((BEARER, "ann"), (API_KEY, "bob-2"), ({**BEARER, **API_KEY}, "ann")):
        forged = {"X-Tfs-Proxy-Caller": "root", "X-Request-Id": f"of-{name}"}
        seen = script.ask("POST", "/invocations", "{}", {**headers, **forged}).json["headers"]
        assert not {"authorization", "x-api-key", "x-tfs-proxy-caller"}.intersection(map(str.lower, seen))
        script.wait_for_log(f"[of-{name}]")
        assert any(f"[of-{name}]" in line and f" caller={name} " in line for line in script.messages)
    wait_until(
        lambda: (
            {"ann", "bob-2"} <= {span.attributes.get("tfs_proxy.caller") for span in script.collector.spans}
        ),
        30,
        "the traces have the names",
    )
    answer = plain.ask(
        "POST", "/invocations", '{"instances": [1.0]}', {**BEARER, "Content-Type": "application/json"}
    )
    assert answer.status == 200
    captured = "".join(path.read_text() for path in (script.folder / "captured").rglob("*.jsonl"))
    for text in (script.log, plain.log, str(script.collector.spans), captured, answer.body.decode()):
        assert not any(key in text for key in (ANN, BOB))
    (path,) = plain.home.rglob("nginx.conf")
    assert (stat.S_IMODE(path.stat().st_mode), ANN in path.read_text()) == (0o600, True)


def test_calls_of_grpc_need_a_key(script: Keyed) -> None:
    """A foreign key is status 16."""

    def code(method: str, *metadata: tuple[str, str]) -> str:
        with grpc.insecure_channel(script.grpc) as channel:
            call: Any = channel.unary_unary(f"/{method}")
            try:
                call(b"", metadata=metadata, timeout=30)
            except grpc.RpcError as error:
                failed: Any = error
                return str(failed.code().name)
            return "OK"

    live = "inference.GRPCInferenceService/ServerLive"
    assert code(live) == code(live, ("x-api-key", ANN.lower())) == "UNAUTHENTICATED"
    assert code(live, ("authorization", f"Bearer {ANN}")) == code(live, ("x-api-key", BOB)) == "OK"
    assert code(live, ("x-api-key", BOB), ("authorization", "Bearer x")) == "UNAUTHENTICATED"


@pytest.fixture(scope="module", params=["both", "admin"])
def many(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MultiModelStack, Path, bool]]:
    """Many models with keys for loads, and with or without keys for all else."""
    folder, is_keyed = tmp_path_factory.mktemp("many"), request.param == "both"
    script_model(folder / "models" / "a.tar.gz", SCRIPT)
    (folder / "keys").write_text(FILE)
    (folder / "admins").write_text(f"root {ROOT}")
    env = {"TFS_PROXY_ADMIN_KEYS": str(folder / "admins")}
    if is_keyed:
        env["TFS_PROXY_API_KEYS"] = str(folder / "keys")
    words = ("--multi-model", f"{folder / 'models'}", "--model-server", stand_in_program(folder))
    stack = MultiModelStack(*words, env=env)
    try:
        stack.wait_ready()
        yield stack, folder / "models" / "a.tar.gz", is_keyed
    finally:
        stack.close()


def test_loads_and_unloads_need_an_admins_key(many: tuple[MultiModelStack, Path, bool]) -> None:
    """Who has one may do all; a key for all else loads by a request for a model alone."""
    stack, archive, is_keyed = many
    load, root, ann = json.dumps({"model_name": "m", "url": f"{archive}"}), {"X-Api-Key": ROOT}, BEARER
    kind = {"Content-Type": "application/json", "X-Amzn-SageMaker-Target-Model": "a.tar.gz"}

    def status(method: str, path: str, headers: Mapping[str, str] = {}, body: str | None = None) -> int:
        return stack.ask(method, path, body, {**kind, **headers}, 60).status

    for path in ("/models/a/invoke", "/invocations", "/v1/models/a", "/v2/models/a"):
        assert status("OPTIONS", path) == 200
        status("OPTIONS", path, root)
    assert stack.ask("GET", "/models", headers=root).json == {"models": []}
    for method, path in (
        ("POST", "/models"),
        ("POST", "/%6dodels"),
        ("DELETE", "/models/m"),
        ("PUT", "/models/m"),
    ):
        assert status(method, path, body=load) == 401
        assert status(method, path, ann, load) == (403 if is_keyed else 401)
        assert status(method, path, {**ann, **root}, load) == (403 if is_keyed else 401)
    assert status("POST", "/models", root, load) == 200
    assert status("GET", "/models/m", root) == 200
    for path in ("/models", "/models/m", "/console/facts.json"):
        assert status("GET", path) == (401 if is_keyed else 200)
    assert status("POST", "/models/a/invoke", body="{}") == (401 if is_keyed else 200)
    assert status("POST", "/models/a/invoke", ann, body="{}") == 200
    assert ROOT not in stack.ask("POST", "/models/m/invoke", "{}", root).body.decode()
    assert status("DELETE", "/models/m", {"Authorization": f"Bearer {ROOT}"}) == 200


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"TFS_PROXY_NGINX": "false"}, "TFS_PROXY_API_KEYS needs nginx"),
        ({"SAGEMAKER_BATCH": "true"}, "TFS_PROXY_API_KEYS can't be used with SAGEMAKER_BATCH"),
        ({"SAGEMAKER_SAFE_PORT_RANGE": "20000-20100"}, "can't be used with SAGEMAKER_SAFE_PORT_RANGE"),
        ({"TFS_PROXY_API_KEYS": "/dev/null"}, "TFS_PROXY_API_KEYS=/dev/null can't be used: it is not a file"),
        ({"TFS_PROXY_API_KEYS": ANN}, "TFS_PROXY_API_KEYS can't be used: it names a file, and there is none"),
        ({"TFS_PROXY_ADMIN_KEYS": " "}, "TFS_PROXY_ADMIN_KEYS is spaces alone: it names a file"),
        (
            {"TFS_PROXY_ADMIN_KEYS": "keys"},
            "TFS_PROXY_ADMIN_KEYS=keys can't be used: line 3 has the name of line 3",
        ),
        ({}, "TFS_PROXY_API_KEYS can't be used with tensorflow-serving"),
    ],
)
def test_keys_that_nobody_could_send_end_the_start(
    tmp_path: Path, more: Mapping[str, str], sentence: str
) -> None:
    """Without nginx, where SageMaker calls, and for a model server on ports of its own; a second file has others."""
    (tmp_path / "keys").write_text(FILE)
    keys = str(tmp_path / "keys")
    env = {
        "TFS_PROXY_API_KEYS": keys,
        **{name: keys if each == "keys" else each for name, each in more.items()},
    }
    words = (str(script_model(tmp_path / "model.tar.gz", SCRIPT)),) if more else ()
    status, log = ended(*words, env=env, command="serve" if more else "tensorflow-serving")

    assert status == 2
    assert sentence.replace("=keys", f"={keys}") in log
    assert ANN not in log


def test_a_pipeline_asks_once(tmp_path: Path) -> None:
    """Its stages are called without a key; its ready line says that it asks, its own line has the caller's name."""
    (tmp_path / "keys").write_text(FILE)
    archive = str(script_model(tmp_path / "model.tar.gz", SCRIPT))
    env = {"TFS_PROXY_API_KEYS": str(tmp_path / "keys"), "TFS_PROXY_ACCESS_LOG": "all"}
    with serving(archive, archive, env=env) as stack:
        assert [stack.ask("POST", "/invocations", "{}").status, stack.ask("GET", "/metrics").status] == [
            401
        ] * 2
        answer = stack.ask("POST", "/invocations", "{}", BEARER)
        assert (answer.status, ANN in answer.body.decode()) == (200, False)
        stack.wait_for_log(" caller=ann ")
        stack.wait_for_log(", with a key  try: curl ")
        assert ANN not in stack.log


def test_programs_send_their_key(plain: Keyed, tmp_path: Path) -> None:
    """Client, ask and transform; a file keeps it out of the list of processes. A model served for a job needs none."""
    (tmp_path / "key").write_text(f"{ANN}\n")
    (tmp_path / "one.json").write_text('{"instances": [1.0]}')
    address = f"http://127.0.0.1:{plain.port}"

    def said(*words: str) -> str:
        argv = [sys.executable, "-m", "tfs_proxy.cli", *words]
        env = {**os.environ, "TFS_PROXY_API_KEYS": str(plain.folder / "keys")}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    with Client(address, key=BOB) as client, Client(address) as nobody:
        assert b"predictions" in client.invoke(b'{"instances": [1.0]}', "application/json").body
        with pytest.raises(RequestRefused, match="401: a key is needed"):
            nobody.invoke(b"{}", "application/json")
    with pytest.raises(ValueError, match="a key is characters of ASCII without spaces"):
        Client(address, key="a\nb")
    assert said("ask", address, f"{tmp_path / 'one.json'}", "--key", f"@{tmp_path / 'key'}").startswith("0 ")
    assert said("ask", address, f"{tmp_path / 'one.json'}").startswith("1 tfs-proxy: 401: a key is needed")
    assert said("ask", address, f"{tmp_path / 'one.json'}", "--key", f"@{plain.folder / 'keys'}")[0] == "0"
    assert said("ask", address, f"{tmp_path / 'one.json'}", "--key", f"ann {ANN}").startswith("0 ")
    assert "nothing can't be read" in said("ask", address, "-", "--key", "@nothing")
    job = ("transform", "--input", f"{tmp_path / 'one.json'}", "-o", f"{tmp_path / 'out'}")
    assert said(*job, "--endpoint", address, "--key", ANN).startswith("0 ")
    assert "a key is needed" in said(*job, "--no-resume", "--endpoint", address)
    assert said(*job, "--no-resume", "--model", *stand_in_words(tmp_path)).startswith("0 ")


def test_changed_keys_hold_without_a_restart(tmp_path: Path) -> None:
    """Credentials of a task's role are no SageMaker; what can't be used is logged, and changes nothing."""
    keys = tmp_path / "keys"
    keys.write_text(FILE)
    env = {"TFS_PROXY_API_KEYS": str(keys), "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/none"}
    stack = Stack(str(script_model(tmp_path / "model.tar.gz", SCRIPT)), env=env)

    def status(headers: Mapping[str, str]) -> int:
        return stack.ask("POST", "/invocations", "{}", headers).status

    try:
        stack.wait_ready()
        stack.wait_for_log(", with a key  try: curl ")
        keys.write_text("ann short")
        stack.wait_for_log("line 1 has a key of 5 characters")
        assert status(BEARER) == status(API_KEY) == 200
        (tmp_path / "new").write_text(f"bob {BOB}")
        (tmp_path / "new").replace(keys)
        wait_until(lambda: status(BEARER) == 401, 30, "the key that is gone holds no more")
        assert status(API_KEY) == 200
    finally:
        stack.close()
