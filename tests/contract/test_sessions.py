"""Sticky sessions: opened, found by every worker, closed, refused; and their state behind killed workers."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from contract.doors import COMMAND, ONE, Answer, Running, environment, pack, serving, until
from contract.stacks import EMBEDDED

pytestmark = pytest.mark.tensorflow

HEADER, NEW, CLOSED = (f"x-amzn-sagemaker-{name}session-id" for name in ("", "new-", "closed-"))
OPENED = re.compile(r"([0-9a-f]{32}); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
KILLS = 10
ON = {"SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "true"}
SCRIPT = """
import json
import os

import tfs_proxy


def handler(data, context):
    asked, session = json.loads(data.read() or "{}"), context.session
    headers = {"X-Amzn-SageMaker-New-Session-Id": asked["own"]} if "own" in asked else {}
    if session is None:
        found = {"session": None, "header": context.headers.get("X-Amzn-SageMaker-Session-Id")}
        return tfs_proxy.Response(json.dumps(found), headers=headers)
    if "set" in asked:
        session.update(asked["set"])
    if "fill" in asked:
        session[asked["key"]] = b"x" * asked["fill"]
    if "fail" in asked:
        raise tfs_proxy.HTTPError(422, "as asked")
    if "bad" in asked:
        session["window"] = {1, 2}
    found = {key: len(value) if isinstance(value, bytes) else value for key, value in session.items()}
    return tfs_proxy.Response(json.dumps({"state": found, "pid": os.getpid()}), headers=headers)
"""


def send(running: Running, session: str = "NEW_SESSION", **asked: object) -> Answer:
    """A request of a session, to the script."""
    return running.invoke(json.dumps(asked), **{HEADER: session})


def act(running: Running, session: str, kind: str) -> Answer:
    """A request that opens or closes a session by its body."""
    return running.invoke(json.dumps({"requestType": kind}), **{HEADER: session})


def opened(answer: Answer) -> str:
    """The id in an answer that opened a session."""
    assert answer.status == 200, answer
    match = OPENED.fullmatch(answer.headers[NEW])
    assert match is not None, answer.headers
    return match[1]


@pytest.fixture(scope="module")
def script(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """half_plus_two behind a script that keeps what it is told."""
    target = tmp_path_factory.mktemp("sessions") / "model.tar.gz"
    return pack(target, {"code/inference.py": SCRIPT}, {"m": saved_models / "half_plus_two"})


@pytest.fixture(scope="module")
def running(script: Path) -> Iterator[Running]:
    """Four workers with sessions."""
    with serving("serve", str(script), *EMBEDDED, env={**ON, "SAGEMAKER_GUNICORN_WORKERS": "4"}) as running:
        yield running


@pytest.fixture(scope="module", params=[{}, {"TFS_PROXY_NGINX": "false"}], ids=["nginx", "bare"])
def model(request: pytest.FixtureRequest, saved_models: Path) -> Iterator[Running]:
    """A model without a script, with sessions."""
    folder = str(saved_models / "half_plus_two")
    with serving("serve", folder, *EMBEDDED, env={**ON, **request.param}) as running:
        yield running


def test_a_model_alone_keeps_the_contract_of_sessions(model: Running) -> None:
    """Sessions are opened and closed with and without a body, and the model answers between."""
    alone, with_request = (
        act(model, "NEW_SESSION", "NEW_SESSION"),
        model.invoke(ONE, **{HEADER: "NEW_SESSION"}),
    )
    session = opened(alone)
    opened(model.invoke(b"", **{HEADER: "NEW_SESSION"}))
    opened(
        model.ask(
            "POST", "/invocations", iter([b'{"requestType": ', b'"NEW_SESSION"}']), {HEADER: "NEW_SESSION"}
        )
    )

    assert with_request.json == {"predictions": [2.5]}
    assert opened(with_request) != session
    assert model.invoke(ONE, **{HEADER: session}).json == {"predictions": [2.5]}
    assert model.invoke(b"x" * 1000, "text/csv", **{HEADER: session}).status == 400
    closed = act(model, session, "CLOSE")
    assert (closed.status, closed.headers[CLOSED]) == (200, session)
    assert NEW not in closed.headers
    assert [model.invoke(ONE, **{HEADER: session}).status, act(model, session, "CLOSE").status] == [400, 400]


@pytest.mark.parametrize(
    "named", ["a" * 32, "../../etc/passwd", "x", "new_session", "a" * 300, "é" * 32, "%00"]
)
def test_an_id_that_was_not_given_out_is_a_400(model: Running, named: str) -> None:
    """Unknown and malformed ones; the error says so, and how to open a session."""
    for body in (ONE, '{"requestType": "CLOSE"}'):
        answer = model.ask("POST", "/invocations", body, {HEADER: named.encode().decode("latin-1")})
        assert answer.status == 400
        assert "NEW_SESSION" in answer.json["error"]


def test_a_large_request_of_an_unknown_session_reads_its_400(model: Running) -> None:
    """Its body is dropped, so that the client that still sends it sees why."""
    answer = model.invoke(b" " * 20_000_000, **{HEADER: "f" * 32})
    assert (answer.status, "no such session" in answer.json["error"]) == (400, True)


def test_an_act_must_fit_its_header(model: Running) -> None:
    """There is nothing to close in a new session, and an open one opens no other."""
    session = opened(act(model, "NEW_SESSION", "NEW_SESSION"))

    assert act(model, "NEW_SESSION", "CLOSE").status == 400
    assert act(model, session, "NEW_SESSION").status == 400
    assert act(model, session, "CLOSE").status == 200


def test_every_worker_finds_the_state_of_every_session(running: Running) -> None:
    """Of 8 sessions, each with 40 requests to 4 workers, none misses what the one before has set."""
    sessions = [opened(send(running, set={"count": 0, "name": number})) for number in range(8)]
    pids, missed = set(), []

    def converse(number: int, session: str) -> None:
        for count in range(1, 41):
            answer = send(running, session, set={"count": count})
            pids.add(answer.json["pid"])
            if answer.json["state"] != {"count": count, "name": number}:
                missed.append(answer)

    threads = [threading.Thread(target=converse, args=each) for each in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert missed == []
    assert len(pids) > 1


def test_the_last_of_two_writes_counts(running: Running) -> None:
    """Two at once leave one of their values, whole, and other keys as they are."""
    session = opened(send(running, set={"kept": "yes"}))
    values = ["a" * 50_000, "b" * 50_000]
    threads = [
        threading.Thread(target=send, args=(running, session), kwargs={"set": {"key": value}})
        for value in values * 10
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    state = send(running, session).json["state"]
    assert state["kept"] == "yes"
    assert state["key"] in values


def test_state_is_bytes_and_json(running: Running) -> None:
    """Each kind comes back as it was; a value of another type is an error that names its key."""
    session = opened(send(running))
    values = {"none": None, "list": [1, 2.5, "é"], "dict": {"a": {"b": True}}, "text": ""}

    assert send(running, session, set=values, fill=3, key="bytes").json["state"] == {**values, "bytes": 3}
    refused = send(running, session, bad=True)
    assert refused.status == 500
    assert "window" in running.log


def test_a_session_of_a_request_that_fails_is_not_opened(running: Running) -> None:
    """The client would never learn its id; one that the script sets itself wins."""
    failed, own = send(running, fail=True), send(running, own="mine; Expires=2030-01-01T00:00:00Z")

    assert (failed.status, NEW in failed.headers) == (422, False)
    assert own.headers[NEW] == "mine; Expires=2030-01-01T00:00:00Z"


def test_a_session_ends(script: Path) -> None:
    """Once its seconds are over, its id is unknown, and the metric counts it no more."""
    with serving(
        "serve", str(script), *EMBEDDED, env={**ON, "SAGEMAKER_SESSIONS_EXPIRATION": "2"}
    ) as running:
        session = opened(send(running))
        assert "tfs_proxy_sessions 1" in running.ask("GET", "/metrics").body.decode()
        until(lambda: send(running, session).status == 400, "the session is over")
        assert "tfs_proxy_sessions 0" in running.ask("GET", "/metrics").body.decode()


def test_a_full_session_and_a_full_store_are_424(script: Path, tmp_path: Path) -> None:
    """The error says which limit it is; sessions that are open go on, and closing one makes room."""
    env = {
        **ON,
        "TFS_PROXY_SESSIONS_MAX_MB": "1",
        "SAGEMAKER_SESSIONS_PATH": str(tmp_path / "kept"),
    }
    with serving("serve", str(script), *EMBEDDED, env=env) as running:
        first = opened(send(running, fill=20_000, key="a"))
        over = send(running, first, fill=20_000, key="b")
        assert (over.status, "32 KB of one session" in over.json["error"]) == (424, True)
        statuses = Counter(send(running, fill=30_000, key="a").status for _ in range(36))
        assert statuses == {200: 32, 424: 4}
        full = act(running, "NEW_SESSION", "NEW_SESSION")
        assert (full.status, "TFS_PROXY_SESSIONS_MAX_MB" in full.json["error"]) == (424, True)
        assert send(running, first).json["state"] == {"a": 20_000}
        assert act(running, first, "CLOSE").status == 200
        assert send(running).status == 200
        assert [oct(path.stat().st_mode & 0o777) for path in (tmp_path / "kept").glob("*/sessions.db*")] == [
            "0o600"
        ] * 3
    assert list((tmp_path / "kept").iterdir()) == []


class Writer(threading.Thread):
    """A client that writes to one session until ``over``, and reads it back: what was answered must be there."""

    def __init__(self, running: Running, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.running, self.over = running, over
        self.session = opened(send(running, set={"count": 0, "text": ""}))
        self.writes = self.lost = self.broken = self.cut = 0
        self.pid = 0

    def run(self) -> None:
        """Write and read, also while a worker dies: then an answer may be missing."""
        sent = answered = 0
        while not self.over.is_set():
            sent += 1
            text = f"{sent} " * 5_000
            with suppress(OSError, HTTPException):
                answer = send(self.running, self.session, set={"count": sent, "text": text})
                self.cut += answer.status != 200
                if answer.status == 200:
                    self.writes, answered = self.writes + 1, sent
                reply = send(self.running, self.session)
                if reply.status == 200:
                    state, self.pid = reply.json["state"], reply.json["pid"]
                    written = int(state["text"].split(maxsplit=1)[0])
                    self.lost += min(state["count"], written) < answered
                    # A worker sets one key after the other, and several in a row may die in between.
                    whole = state["text"] == f"{written} " * 5_000
                    self.broken += not (whole and written <= state["count"] <= sent)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"SAGEMAKER_SESSIONS_PATH": "/etc/passwd"}, "SAGEMAKER_SESSIONS_PATH"),
        ({"TFS_PROXY_SESSIONS_MAX_MB": "1000000", "TFS_PROXY_HOME": "/dev/shm"}, "TFS_PROXY_SESSIONS_MAX_MB"),
        ({"SAGEMAKER_SESSIONS_EXPIRATION": "0"}, "SAGEMAKER_SESSIONS_EXPIRATION"),
    ],
)
def test_a_store_that_can_not_be_ends_the_start(script: Path, settings: dict[str, str], named: str) -> None:
    """A sentence names the setting to change."""
    done = subprocess.run(
        [COMMAND, "serve", str(script), "--port", "0"],
        check=False,
        env=environment({**ON, **settings}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert named in done.stderr


def test_killed_workers_lose_no_state(script: Path) -> None:
    """What was answered is there after each kill, in every session, and each value is whole."""
    env = {**ON, "SAGEMAKER_GUNICORN_WORKERS": "4"}
    over, killed = threading.Event(), set[int]()
    with serving("serve", str(script), *EMBEDDED, env=env) as running:
        writers = [Writer(running, over) for _ in range(8)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            until(lambda: {writer.pid for writer in writers} - killed - {0}, "another worker answers")
            pid = max({writer.pid for writer in writers} - killed)
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        over.set()
        for writer in writers:
            writer.join()

    counts = {
        name: sum(getattr(writer, name) for writer in writers) for name in ("writes", "cut", "lost", "broken")
    }
    print(counts)
    assert (counts["lost"], counts["broken"]) == (0, 0)
    assert counts["writes"] > KILLS


def test_a_session_belongs_to_one_of_many_models(saved_models: Path, script: Path, tmp_path: Path) -> None:
    """Models with a script and without one, in the workers of all models or their own, know no other's sessions."""
    pack(tmp_path / "plain.tar.gz", {}, {"half_plus_two": saved_models / "half_plus_two"})
    shutil.copy(script, tmp_path / "script.tar.gz")
    with serving("serve", "--multi-model", str(tmp_path), *EMBEDDED, env=ON) as running:

        def ask(model: str, session: str, body: str = ONE) -> Answer:
            return running.invoke(
                body, **{HEADER: session, "X-Amzn-SageMaker-Target-Model": f"{model}.tar.gz"}
            )

        plain, scripts = (opened(ask(model, "NEW_SESSION")) for model in ("plain", "script"))
        assert ask("plain", plain).json == {"predictions": [2.5]}
        assert running.ask("POST", "/models/plain/invoke", ONE, {HEADER: plain}).status == 200
        assert running.ask("POST", "/models/plain/invoke", ONE, {HEADER: scripts}).status == 400
        assert ask("script", scripts, '{"set": {"a": 1}}').json["state"] == {"a": 1}
        assert [ask("plain", scripts).status, ask("script", plain).status] == [400, 400]
        assert ask("plain", plain, '{"requestType": "CLOSE"}').headers[CLOSED] == plain
        assert ask("plain", plain).status == 400
        assert "tfs_proxy_sessions 1" in running.ask("GET", "/metrics").body.decode()


def test_sessions_outlive_a_reload_of_the_script(script: Path, tmp_path: Path) -> None:
    """New workers with new code know the state; gevent's workers do, too."""
    folder = tmp_path / "model"
    with tarfile.open(script) as archive:
        archive.extractall(folder, filter="data")
    env = {**ON, "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}
    with serving("serve", str(folder), "--reload", *EMBEDDED, env=env) as running:
        session = opened(send(running, set={"a": 1}))
        code = folder / "code" / "inference.py"
        code.write_text(SCRIPT.replace('"pid": os.getpid()', '"pid": "new"'))
        until(lambda: send(running, session).json["pid"] == "new", "the new code answers")
        assert send(running, session).json["state"] == {"a": 1}


def test_without_the_setting_nothing_is_refused(script: Path) -> None:
    """Headers reach the script as they are, and answers have only those that it sets."""
    with serving("serve", str(script), *EMBEDDED) as running:
        for named in ("NEW_SESSION", "anything", "a" * 300):
            answer, own = send(running, named), send(running, named, own="mine; Expires=2030-01-01T00:00:00Z")
            assert answer.json == {"session": None, "header": named}
            assert NEW not in answer.headers
            assert own.headers[NEW] == "mine; Expires=2030-01-01T00:00:00Z"
        assert act(running, "NEW_SESSION", "NEW_SESSION").json["header"] == "NEW_SESSION"
