"""`tfs-proxy transform` on S3: moto's server in a process of its own, and faults put in between."""

import contextlib
import http.client
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from support.transform_command import (
    PROGRAM,
    S3_SETTINGS,
    Done,
    outputs,
    posts,
    s3_server,
    stand_in,
    transform,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ODD_KEYS = ("a b.csv", "ü/%20+.csv", "x//y", "q?a=b&c#d", "'\"<&>", "../up", "deep/er/" + "k" * 200)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with stand_in() as address:
        yield address


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> "S3Client":
    for name, value in S3_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto)
    client = boto3.client("s3")
    for bucket in ("in", "out"):
        name = f"{bucket}-{zlib.crc32(request.node.name.encode())}"
        client.create_bucket(Bucket=name)
    return client


@pytest.fixture
def buckets(s3: "S3Client", request: pytest.FixtureRequest) -> tuple[str, str]:
    name = zlib.crc32(request.node.name.encode())
    return f"in-{name}", f"out-{name}"


def objects(s3: "S3Client", bucket: str) -> dict[str, bytes]:
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def run(
    buckets: tuple[str, str], echo: str, *more: str, program: Sequence[str] = PROGRAM, **env: str
) -> Done:
    places = ("--input", f"s3://{buckets[0]}/data/", "--output", f"s3://{buckets[1]}/results")
    return transform(*places, "--endpoint", echo, *more, env=env, program=program)


def test_from_s3_to_s3(s3: "S3Client", buckets: tuple[str, str], echo: str) -> None:
    """Keys keep their oddities, and what is finished is known from the outputs themselves."""
    for key in ODD_KEYS:
        s3.put_object(Bucket=buckets[0], Key=f"data/{key}", Body=key.encode())
    s3.put_object(Bucket=buckets[0], Key="data/", Body=b"")
    s3.put_object(Bucket=buckets[0], Key="database/other", Body=b"x")
    done = run(buckets, echo, "--max-concurrent", "4")
    assert done.status == 0, done.log
    assert objects(s3, buckets[1]) == {f"results/{key}.out": key.encode() for key in ODD_KEYS}
    s3.put_object(Bucket=buckets[0], Key="data/a b.csv", Body=b"changed")
    before = posts(echo)
    again = run(buckets, echo)
    assert again.summary["objects"]["already_done"] == len(ODD_KEYS) - 1
    assert posts(echo) - before == 1
    assert objects(s3, buckets[1])["results/a b.csv.out"] == b"changed"


def test_a_job_as_json(s3: "S3Client", buckets: tuple[str, str], echo: str, tmp_path: Path) -> None:
    """The JSON of the AWS command line, a manifest in S3, and error files beside the outputs."""
    for key, body in (("a", b"1\nBAD\n3\n"), ("b", b"4\n"), ("c", b"5\n")):
        s3.put_object(Bucket=buckets[0], Key=f"data/{key}", Body=body)
    listed = json.dumps([{"prefix": f"s3://{buckets[0]}/data/"}, "a", "b"])
    s3.put_object(Bucket=buckets[0], Key="list.json", Body=listed.encode())
    manifest = f"s3://{buckets[0]}/list.json"
    job = {
        "TransformJobName": "j",
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": manifest}},
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": f"s3://{buckets[1]}/"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = transform(str(tmp_path / "job.json"), "--endpoint", echo)
    written = objects(s3, buckets[1])
    assert (done.status, sorted(written)) == (1, ["a.err", "b.out"])
    assert json.loads(written["a.err"])["record"] == 2
    s3.put_object(Bucket=buckets[0], Key="data/a", Body=b"1\n2\n")
    assert transform(str(tmp_path / "job.json"), "--endpoint", echo, "--no-resume").status == 0
    assert objects(s3, buckets[1]).keys() == {"a.out", "b.out"}


def test_keys_that_are_no_paths(s3: "S3Client", buckets: tuple[str, str], echo: str, tmp_path: Path) -> None:
    """S3 to a folder: what would leave it is refused before any work; the rest is the same."""
    s3.put_object(Bucket=buckets[0], Key="data/a b/ü.csv", Body=b"x")
    words = ["--input", f"s3://{buckets[0]}/data", "--output", str(tmp_path / "out"), "--endpoint", echo]
    assert transform(*words).status == 0
    assert outputs(tmp_path / "out") == {"a b/ü.csv.out": b"x\n"}
    s3.put_object(Bucket=buckets[0], Key="data/../../up", Body=b"x")
    done = transform(*words)
    assert (done.status, "can't be a local path" in done.log) == (2, True)


Fault = Callable[[BaseHTTPRequestHandler], bool]


class Between(ThreadingHTTPServer):
    """Passes requests on to S3, unless ``fault`` deals with one itself."""

    daemon_threads = True

    def __init__(self, address: str, fault: Fault) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.s3 = address.removeprefix("http://")
        self.fault = fault


class Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Between
    body: bytes

    def do_any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.server.fault(self):
            self.pass_on()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815

    def pass_on(self, cut: int | None = None) -> None:
        """Let S3 answer; with ``cut``, only so many bytes of its answer arrive."""
        upstream = http.client.HTTPConnection(self.server.s3, timeout=30)
        upstream.request(self.command, self.path, self.body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "content-length", "date", "server"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content[:cut])
        self.close_connection = self.close_connection or cut is not None
        upstream.close()

    def fall_silent(self) -> None:
        """Send the head of an answer and nothing more, until the client is gone."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.connection.recv(1)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


def between(moto: str, fault: Fault, **run_with: Any) -> Done:
    with Between(moto, fault) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            return run(
                run_with["buckets"], run_with["echo"], *run_with["words"], AWS_ENDPOINT_URL_S3=address,
                AWS_MAX_ATTEMPTS="2", program=run_with.get("program", PROGRAM),
            )  # fmt: skip
        finally:
            server.shutdown()


LARGE = b"".join(b"%011d\n" % number for number in range(1_700_000))
_WITH_SHORT_WAITS = """
import sys
from tfs_proxy import cli
from tfs_proxy.wire import s3_client
s3_client.S3_TIMEOUT_SECONDS = 1.5
sys.exit(cli.main())
"""
SHORT = ("-c", _WITH_SHORT_WAITS)
"""Waits long enough for moto to answer what is to be answered: small objects, and lists of them."""
LINES = ("--split-type", "Line", "--max-payload-mb", "2", "--max-concurrent", "3")


def test_a_large_output(s3: "S3Client", moto: str, buckets: tuple[str, str], echo: str) -> None:
    s3.put_object(Bucket=buckets[0], Key="data/large", Body=LARGE)
    breaks: list[str | None] = []

    def fault(request: Any) -> bool:
        if request.command == "GET" and "/data/large" in request.path and len(breaks) < 3:
            breaks.append(request.headers.get("Range"))
            request.pass_on(cut=5_000_000)
            return True
        return False

    done = between(moto, fault, buckets=buckets, echo=echo, words=LINES)
    assert done.status == 0, done.log
    assert objects(s3, buckets[1]) == {"results/large.out": LARGE}
    assert s3.head_object(Bucket=buckets[1], Key="results/large.out")["ETag"].endswith('-2"')
    assert len(breaks) == 3
    assert str(breaks[1]).startswith("bytes=")


def test_a_part_that_fails(s3: "S3Client", moto: str, buckets: tuple[str, str], echo: str) -> None:
    """The upload is taken back, its object fails and no output is left; the others are done."""
    s3.put_object(Bucket=buckets[0], Key="data/large", Body=LARGE)
    s3.put_object(Bucket=buckets[0], Key="data/small", Body=b"1\n")

    def fault(request: Any) -> bool:
        if request.command == "PUT" and "partNumber=2" in request.path:
            request.send_response(500)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return True
        return False

    done = between(moto, fault, buckets=buckets, echo=echo, words=LINES)
    assert done.status == 1, done.log
    assert objects(s3, buckets[1]).keys() == {"results/small.out", "results/large.err"}
    assert not s3.list_multipart_uploads(Bucket=buckets[1]).get("Uploads")
    assert run(buckets, echo, *LINES).summary["objects"] == {
        "all": 2,
        "done": 1,
        "already_done": 1,
        "failed": 0,
    }
    assert objects(s3, buckets[1]) == {"results/large.out": LARGE, "results/small.out": b"1\n"}


def test_what_a_killed_run_left(s3: "S3Client", buckets: tuple[str, str], echo: str) -> None:
    """Parts that it had sent are taken back by the next run, those of other keys are not."""
    s3.put_object(Bucket=buckets[0], Key="data/a", Body=b"1\n")
    for key in ("results/a.out", "results/a.err", "results/other.out"):
        s3.create_multipart_upload(Bucket=buckets[1], Key=key)
    assert run(buckets, echo).status == 0
    left = s3.list_multipart_uploads(Bucket=buckets[1])["Uploads"]
    assert [upload["Key"] for upload in left] == ["results/other.out"]


def test_a_read_that_falls_silent(s3: "S3Client", moto: str, buckets: tuple[str, str], echo: str) -> None:
    """It is asked for again, and fails its object if no answer ends."""
    for key in ("a", "once", "silent", "z"):
        s3.put_object(Bucket=buckets[0], Key=f"data/{key}", Body=b"1\n")
    seen = set[str]()

    def fault(request: Any) -> bool:
        path = request.path.partition("?")[0]
        if request.command != "GET" or not path.endswith(("/data/once", "/data/silent")) or path in seen:
            return False
        if path.endswith("/data/once"):
            seen.add(path)
        request.fall_silent()
        return True

    done = between(moto, fault, buckets=buckets, echo=echo, words=LINES, program=SHORT)
    assert done.status == 1, done.log
    assert sorted(objects(s3, buckets[1])) == [
        f"results/{key}" for key in ("a.out", "once.out", "silent.err", "z.out")
    ]
    assert "silent: it can't be read from S3 at byte 0 (S3 stopped responding)" in done.log
    assert "Traceback" not in done.log
