"""`tfs-proxy transform` on S3: moto's server in a process of its own, and faults put in between."""

import contextlib
import http.client
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from support.http_servers import Quiet, listening
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


@dataclass(frozen=True)
class Job:
    """A job from one bucket to another, which ``echo`` answers."""

    s3: "S3Client"
    source: str
    target: str
    echo: str

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=self.source, Key=key, Body=body)

    def outputs(self) -> dict[str, bytes]:
        keys = [item["Key"] for item in self.s3.list_objects_v2(Bucket=self.target).get("Contents", [])]
        return {key: self.s3.get_object(Bucket=self.target, Key=key)["Body"].read() for key in keys}

    def run(self, *more: str, program: Sequence[str] = PROGRAM, **env: str) -> Done:
        places = ("--input", f"s3://{self.source}/data/", "--output", f"s3://{self.target}/results")
        return transform(*places, "--endpoint", self.echo, *more, env=env, program=program)


@pytest.fixture
def job(moto: str, echo: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Job:
    for name, value in S3_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto)
    number = zlib.crc32(request.node.name.encode())
    made = Job(boto3.client("s3"), f"in-{number}", f"out-{number}", echo)
    for bucket in (made.source, made.target):
        made.s3.create_bucket(Bucket=bucket)
    return made


def test_from_s3_to_s3(job: Job) -> None:
    """Keys keep their oddities, and what is finished is known from the outputs themselves."""
    for key in ODD_KEYS:
        job.put(f"data/{key}", key.encode())
    job.put("data/", b"")
    job.put("database/other", b"x")
    done = job.run("--max-concurrent", "4")
    assert done.status == 0, done.log
    assert job.outputs() == {f"results/{key}.out": key.encode() for key in ODD_KEYS}
    job.put("data/a b.csv", b"changed")
    before = posts(job.echo)
    again = job.run()
    assert again.summary["objects"]["already_done"] == len(ODD_KEYS) - 1
    assert posts(job.echo) - before == 1
    assert job.outputs()["results/a b.csv.out"] == b"changed"


def test_a_job_as_json(job: Job, tmp_path: Path) -> None:
    """The JSON of the AWS command line, a manifest in S3, and error files beside the outputs."""
    for key, body in (("a", b"1\nBAD\n3\n"), ("b", b"4\n"), ("c", b"5\n")):
        job.put(f"data/{key}", body)
    listed = json.dumps([{"prefix": f"s3://{job.source}/data/"}, "a", "b"])
    job.put("list.json", listed.encode())
    manifest = f"s3://{job.source}/list.json"
    asked = {
        "TransformJobName": "j",
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": manifest}},
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": f"s3://{job.target}/"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    (tmp_path / "job.json").write_text(json.dumps(asked))
    done = transform(str(tmp_path / "job.json"), "--endpoint", job.echo)
    written = job.outputs()
    assert (done.status, sorted(written)) == (1, ["a.err", "b.out"])
    assert json.loads(written["a.err"])["record"] == 2
    job.put("data/a", b"1\n2\n")
    assert transform(str(tmp_path / "job.json"), "--endpoint", job.echo, "--no-resume").status == 0
    assert job.outputs().keys() == {"a.out", "b.out"}


def test_keys_that_are_no_paths(job: Job, tmp_path: Path) -> None:
    """S3 to a folder: what would leave it is refused before any work; the rest is the same."""
    job.put("data/a b/ü.csv", b"x")
    words = ["--input", f"s3://{job.source}/data", "--output", str(tmp_path / "out"), "--endpoint", job.echo]
    assert transform(*words).status == 0
    assert outputs(tmp_path / "out") == {"a b/ü.csv.out": b"x\n"}
    job.put("data/../../up", b"x")
    done = transform(*words)
    assert (done.status, "can't be a local path" in done.log) == (2, True)


Fault = Callable[[Any], bool]


class Passing(Quiet):
    """Passes requests on to S3 at ``s3``, unless ``fault`` deals with one itself."""

    sent: bytes

    def __init__(self, s3: str, fault: Fault, *connection: Any) -> None:
        self.s3 = s3
        self.fault = fault
        super().__init__(*connection)

    def do_any(self) -> None:
        self.sent = self.body()
        if not self.fault(self):
            self.pass_on()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815

    def pass_on(self, cut: int | None = None) -> None:
        """Let S3 answer; with ``cut``, only so many bytes of its answer arrive."""
        upstream = http.client.HTTPConnection(self.s3, timeout=30)
        upstream.request(self.command, self.path, self.sent, dict(self.headers))
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


def between(job: Job, moto: str, fault: Fault, program: Sequence[str] = PROGRAM) -> Done:
    """Run a job of lines whose requests to S3 meet the faults."""
    with listening(partial(Passing, moto.removeprefix("http://"), fault)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        return job.run(*LINES, program=program, AWS_ENDPOINT_URL_S3=address, AWS_MAX_ATTEMPTS="2")


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


def test_a_large_output(job: Job, moto: str) -> None:
    job.put("data/large", LARGE)
    breaks: list[str | None] = []

    def fault(request: Any) -> bool:
        if request.command == "GET" and "/data/large" in request.path and len(breaks) < 3:
            breaks.append(request.headers.get("Range"))
            request.pass_on(cut=5_000_000)
            return True
        return False

    done = between(job, moto, fault)
    assert done.status == 0, done.log
    assert job.outputs() == {"results/large.out": LARGE}
    assert job.s3.head_object(Bucket=job.target, Key="results/large.out")["ETag"].endswith('-2"')
    assert len(breaks) == 3
    assert str(breaks[1]).startswith("bytes=")


def test_a_part_that_fails(job: Job, moto: str) -> None:
    """The upload is taken back, its object fails and no output is left; the others are done."""
    job.put("data/large", LARGE)
    job.put("data/small", b"1\n")

    def fault(request: Any) -> bool:
        if request.command == "PUT" and "partNumber=2" in request.path:
            request.send_response(500)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return True
        return False

    done = between(job, moto, fault)
    assert done.status == 1, done.log
    assert job.outputs().keys() == {"results/small.out", "results/large.err"}
    assert not job.s3.list_multipart_uploads(Bucket=job.target).get("Uploads")
    assert job.run(*LINES).summary["objects"] == {
        "all": 2,
        "done": 1,
        "already_done": 1,
        "failed": 0,
    }
    assert job.outputs() == {"results/large.out": LARGE, "results/small.out": b"1\n"}


def test_what_a_killed_run_left(job: Job) -> None:
    """Parts that it had sent are taken back by the next run, those of other keys are not."""
    job.put("data/a", b"1\n")
    for key in ("results/a.out", "results/a.err", "results/other.out"):
        job.s3.create_multipart_upload(Bucket=job.target, Key=key)
    assert job.run().status == 0
    left = job.s3.list_multipart_uploads(Bucket=job.target)["Uploads"]
    assert [upload["Key"] for upload in left] == ["results/other.out"]


def test_a_read_that_falls_silent(job: Job, moto: str) -> None:
    """It is asked for again, and fails its object if no answer ends."""
    for key in ("a", "once", "silent", "z"):
        job.put(f"data/{key}", b"1\n")
    seen = set[str]()

    def fault(request: Any) -> bool:
        path = request.path.partition("?")[0]
        if request.command != "GET" or not path.endswith(("/data/once", "/data/silent")) or path in seen:
            return False
        if path.endswith("/data/once"):
            seen.add(path)
        request.fall_silent()
        return True

    done = between(job, moto, fault, program=SHORT)
    assert done.status == 1, done.log
    assert sorted(job.outputs()) == [f"results/{key}" for key in ("a.out", "once.out", "silent.err", "z.out")]
    assert "silent: it can't be read from S3 at byte 0 (S3 stopped responding)" in done.log
    assert "Traceback" not in done.log
