"""`tfs-proxy transform` on local folders, against a stand-in for the serving stack."""

import base64
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from support.endless import endless_server
from support.transform_command import Done, outputs, posts, release, stand_in, transform
from support.waiting import wait_until
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.transform.files import STATE_FOLDER

ALONE = {"split_type": "Line", "strategy": "SingleRecord"}


class Job:
    """A job from one folder to another, which the server at ``address`` answers."""

    def __init__(self, folder: Path, address: str) -> None:
        self.data, self.out, self.address = folder / "in", folder / "out", address
        self.data.mkdir(exist_ok=True)

    def put(self, content: bytes | str, name: str = "a") -> None:
        (self.data / name).parent.mkdir(parents=True, exist_ok=True)
        (self.data / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def words(self, **flags: str) -> list[str]:
        words = ["--input", str(self.data), "--output", str(self.out), "--endpoint", self.address]
        for name, value in flags.items():
            words += ["--" + name.replace("_", "-"), value]
        return words

    def run(self, *more: str, **flags: str) -> Done:
        return transform(*self.words(**flags), *more)

    def sent(self, *more: str, **flags: str) -> tuple[Done, int]:
        """The same, and how many requests it has taken."""
        before = posts(self.address)
        return self.run(*more, **flags), posts(self.address) - before

    @property
    def outputs(self) -> dict[str, bytes]:
        return outputs(self.out)

    def command(self, **flags: str) -> list[str]:
        return [sys.executable, "-m", "tfs_proxy.cli", "transform", *self.words(**flags)]

    def begun(self, **flags: str) -> "Popen[bytes]":
        return Popen(self.command(**flags), stderr=DEVNULL)


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with stand_in() as address:
        yield address


@pytest.fixture
def job(tmp_path: Path, echo: str) -> Job:
    return Job(tmp_path, echo)


def test_whole_objects(job: Job) -> None:
    """Each file is a request and an output of its name, subfolders, odd names and empty ones included.

    Names that begin with a dot are those of other programs.
    """
    files = {
        "a.bin": b"one",
        "sub/deep/b c%20ü'\"?#.bin": b"two",
        "empty": b"",
        "sub/x": b"x",
        "\udcff": b"no UTF-8",
    }
    for name, content in {**files, "sub/.DS_Store": b"BAD", ".ipynb_checkpoints/a.bin": b"BAD"}.items():
        job.put(content, name)
    done = job.run()
    assert "no input: .DS_Store" in done.log
    assert done.status == 0, done.log
    assert "no Content-Type is sent, which means JSON" in done.log
    assert job.outputs == {name + ".out": content for name, content in files.items()}
    assert done.summary["objects"] == {"all": 5, "done": 5, "already_done": 0, "failed": 0}


def test_two_runs_at_once(tmp_path: Path) -> None:
    with stand_in() as address:
        job = Job(tmp_path, address)
        job.put(b"one\nHELD\n")
        first = job.begun(**ALONE)
        until_it_writes(first, job)
        second = job.run(**ALONE)
        release(address)
        assert first.wait(120) == 0
    assert (second.status, "Another run is writing" in second.log) == (2, True)


def until_it_writes(run: "Popen[bytes]", job: Job) -> None:
    wait_until(
        lambda: run.poll() is not None or list(job.out.rglob("growing-*/*")), 120, "an output has begun"
    )
    assert run.poll() is None


@pytest.mark.parametrize("on_error", ["fail", "placeholder", "sidecar"])
def test_bad_records(job: Job, on_error: str) -> None:
    lines = [b"%d\n" % number for number in range(100)]
    lines[37], lines[80] = b"BAD 37\n", b"BAD 80\n"
    job.put(b"".join(lines))
    done = job.run(split_type="Line", on_error=on_error)
    written = job.outputs
    errors = [json.loads(line) for line in written["a.err"].splitlines()]
    place = {"record": 38, "offset": sum(map(len, lines[:37])), "status": 400}
    assert place.items() <= errors[0].items()
    assert "this is bad" in errors[0]["error"]
    if on_error == "fail":
        assert (done.status, sorted(written), len(errors)) == (1, ["a.err"], 1)
        assert "--on-error placeholder or sidecar" in done.log.splitlines()[-1]
        return
    assert (done.status, [error["record"] for error in errors]) == (0, [38, 81])
    assert (done.summary["bad_records"], done.summary["requests"] < 30) == (
        2,
        True,
    )  # it halves what is refused
    if on_error == "placeholder":
        lines[37] = lines[80] = b"ERROR\n"
    else:
        assert base64.b64decode(errors[1]["data_base64"]) == b"BAD 80\n"
        del lines[80], lines[37]
    assert written["a.out"] == b"".join(lines)


@pytest.mark.parametrize(
    ("word", "status", "sentence"),
    [
        ("EMPTY", 204, "the answer has no body"),
        ("PART", 206, "only a part"),
        ("MOVED", 302, "http://login.example/"),
        ("PAGE", 200, "text/html"),
        ("PACKED", 200, "Content-Encoding gzip"),
    ],
)
def test_an_answer_without_the_rows_is_a_failure(job: Job, word: str, status: int, sentence: str) -> None:
    """An empty or partial answer, a redirection, a login page and an encoding are no predictions, whatever their status."""
    job.put(f"1\n{word}\n3\n", "a.csv")
    done = job.run(split_type="Line", assemble_with="Line", content_type="text/csv", on_error="placeholder")
    assert job.outputs["a.csv.out"] == b"1\nERROR\n3\n"
    (failure,) = done.summary["failures"]
    assert (failure["record"], failure["status"], sentence in failure["error"]) == (2, status, True), failure
    assert job.run(split_type="Line", content_type="text/csv").status == 1


@pytest.mark.parametrize("split", ["None", "Line", "TFRecord", "RecordIO"])
def test_gzip_data_without_the_flag_are_named(job: Job, split: str) -> None:
    """Whatever would read them; whole objects of a type that only a script knows are sent."""
    job.put(gzip.compress(b"1") + gzip.compress(b"\n"), "a.csv")
    done = job.run(split_type=split, content_type="text/csv")
    assert (done.status, list(job.outputs)) == (1, ["a.csv.err"]), done.log
    assert done.summary["failures"][0]["error"].startswith("it is gzip data: give --compression Gzip")
    assert job.run(content_type="application/x-mine").status == 0
    assert job.run(split_type="None", content_type="text/csv", compression="Gzip").status == 0
    assert job.outputs == {"a.csv.out": b"1\n"}


def test_examples_in_frames_name_the_cure(job: Job) -> None:
    """MultiRecord sends TFRecord's frames, which are no tf.Example."""
    job.put(tfrecord_frame(b"BAD"))
    flags = {"split_type": "TFRecord", "content_type": "application/x-tfexample"}
    multi, single = job.run(**flags), job.run("--strategy", "SingleRecord", **flags)
    assert "give --strategy SingleRecord or --content-type application/x-tfrecord)" in multi.log
    assert "--content-type" not in single.log


def test_a_failure_names_line_and_record_once(job: Job) -> None:
    """Blank lines are lines, but no records; the server's sentence is no JSON in the JSON."""
    job.put("1\n\n2\nBAD\n", "a.csv")
    done = job.run(split_type="Line", on_error="placeholder", accept="application/json", assemble_with="Line")
    place = {"line": 4, "record": 3, "offset": 5, "status": 400, "error": "this is bad"}
    assert json.loads(job.outputs["a.csv.err"]) == {"object": "a.csv", **place}
    assert job.outputs["a.csv.out"].endswith(b'{"error":"this is bad"}\n')
    assert "a.csv, record 3 in line 4: status 400: this is bad\n" in done.log
    job.put("1\n\n" + "2" * 1_100_000, "a.csv")
    reason = "a.csv, record 2 in line 3: the record is over the limit of 1048576 bytes: raise MaxPayloadInMB"
    assert reason in job.run(split_type="Line", max_payload_mb="1").log


def test_answers_that_never_end_fail_their_records(tmp_path: Path) -> None:
    """Neither they nor the pages that a run asks for are read on; nothing is sent again."""
    with endless_server() as port:
        job = Job(tmp_path, f"http://127.0.0.1:{port}")
        job.put("1\n2\n")
        words = job.words(split_type="Line", content_type="text/csv")
        done = transform(*words, env={"TFS_PROXY_MAX_ANSWER_MB": "1"})
    assert done.status == 1
    assert "answer is over 1 MB. TFS_PROXY_MAX_ANSWER_MB sets the limit" in done.log


def test_a_page_that_was_asked_for_is_an_answer(job: Job) -> None:
    job.put("PAGE")
    assert (job.run(accept="text/html").status, job.outputs) == (0, {"a.out": b"PAGE"})


@pytest.mark.parametrize("kind", ["text/csv", "application/jsonlines"])
def test_answers_of_fewer_rows_are_a_warning_with_both_numbers(job: Job, kind: str) -> None:
    """Where rows are filtered or joined, the object fails; answers in another type are not counted."""
    job.put("".join("[1]\n" if number % 40 else '["LOST"]\n' for number in range(100)), "a")
    job.put('"BAD"\n[1]\n', "b")
    flags = {"split_type": "Line", "assemble_with": "Line", "content_type": kind, "on_error": "sidecar"}
    done = job.run(accept=kind, **flags)
    assert (done.status, len(job.outputs["a.out"].splitlines())) == (0, 97), done.log
    last = done.log.splitlines()[-1]
    assert "WARNING: 1 of 102 records are bad" in last
    assert "; 100 records got 97 rows, in 1 object(s)" in last
    assert "a: 100 records got 97 rows" in done.log
    assert " rows" not in job.run(accept="text/plain", **flags).log
    for processing in ({"output_filter": "$[0]"}, {"join": "Input"}, {"input_filter": "$[0:]"}):
        done = job.run(accept=kind, **flags, **processing)
        assert (done.status, "100 record(s) got 97 answer(s)" in done.log) == (1, True), done.log


def test_a_job_that_fails_from_its_first_record_on_is_not_told_to_go_on(job: Job) -> None:
    """Then the job is wrong, such as its content type, and not a record."""
    job.put(b"BAD 1\nBAD 2\n")
    done = job.run(split_type="Line", on_error="fail")
    assert (done.status, "--on-error" in done.log) == (1, False), done.log


def test_a_run_of_which_nothing_succeeds_ends_soon(job: Job) -> None:
    """After fifty failures alike it says which, unless any number may be bad; one that succeeds lets it go on."""
    bad = b"".join(b"BAD %d\n" % number for number in range(200))
    job.put(bad)
    flags = {"split_type": "Line", "on_error": "placeholder"}
    done, sent = job.sent(**flags)
    assert (done.status, job.outputs, sent < 120) == (1, {}, True), done.log
    assert "first 50 records that were sent alone failed alike" in done.log.splitlines()[-1]
    assert "a, record 1 in line 1: status 400" in done.log.splitlines()[-1]
    assert job.run("--max-bad", "100%", **flags).status == 0
    job.put(b"good\n" + bad)
    done = job.run("--strategy", "SingleRecord", **flags)
    assert (done.status, done.summary["bad_records"]) == (0, 200)
    assert "WARNING" in done.log.splitlines()[-1]
    assert "200 of 201 records are bad" in done.log.splitlines()[-1]


@pytest.mark.parametrize(("limit", "status"), [("1", 1), ("2", 0), ("3.9%", 1), ("4%", 0)])
def test_an_object_of_too_many_bad_records_fails(job: Job, limit: str, status: int) -> None:
    job.put(b"good\n" * 25 + b"BAD\n" + b"good\n" * 23 + b"BAD\n")
    job.put(b"good\n", "b")
    done, written = job.run(split_type="Line", on_error="sidecar", max_bad=limit), job.outputs
    assert (done.status, "a.out" in written, "b.out" in written) == (status, status == 0, True), done.log
    assert (f"and --max-bad {limit} allows no more" in written["a.err"].decode()) == (status == 1)


def test_a_mini_batch_that_takes_too_long_is_halved_at_once(tmp_path: Path) -> None:
    with stand_in() as address:
        job = Job(tmp_path, address)
        job.put(b"HELD\ngood\n")
        done = job.run(split_type="Line", on_error="placeholder", timeout_seconds="1", max_retries="1")
        assert (done.status, posts(address)) == (0, 4), done.log
    assert job.outputs["a.out"] == b"ERROR\ngood\n"


def test_only_server_errors_are_tried_again(job: Job, tmp_path: Path) -> None:
    for content, status, requests in ((f"BUSY {tmp_path}", 0, 2), ("BAD", 1, 1)):
        job.put(content)
        done, sent = job.sent()
        assert (done.status, sent) == (status, requests), done.log
    job.put(f"BUSY {tmp_path} again")
    done = job.run(max_retries="0")
    assert (done.status, done.summary["failures"][0]["status"]) == (1, 503)


def test_finished_objects_are_not_sent_again(job: Job) -> None:
    """Only what is new or changed is; another job at the same place does all again.

    Half a line that a killed run has left among its notes changes nothing.
    """
    for name in "abc":
        job.put(name, name)
    assert job.run(max_concurrent="2").status == 0
    (notes,) = (job.out / STATE_FOLDER).glob("finished-*.jsonl")
    notes.write_bytes(notes.read_bytes() + b'{"fingerprint": "finger')
    job.put("changed", "b")
    job.put("new", "d")
    done, sent = job.sent(max_concurrent="2")
    assert done.summary["objects"] == {"all": 4, "done": 2, "already_done": 2, "failed": 0}
    assert sent == 2
    assert job.outputs["b.out"] == b"changed"
    assert job.run(max_concurrent="2").summary["objects"]["already_done"] == 4
    assert job.run("--accept", "text/csv", max_concurrent="2").summary["objects"]["done"] == 4
    assert job.run("--no-resume", max_concurrent="2").summary["objects"]["done"] == 4


def test_machines_share_a_job(job: Job) -> None:
    """Each does its part, and a run over all of them finds nothing left to do."""
    for name in "abcd":
        job.put(name, name)
    parts = [job.run(instance_index=number, instance_count="2").summary["objects"] for number in "01"]
    assert [part["done"] for part in parts] == [2, 2]
    assert job.outputs == {f"{name}.out": name.encode() for name in "abcd"}
    assert job.run().summary["objects"]["already_done"] == 4


def test_an_object_that_fails_has_no_output(job: Job) -> None:
    """An output that an earlier run made of other content does not stay beside the error file."""
    for content, status, names in (
        ("good", 0, ["a.out"]),
        ("BAD now", 1, ["a.err"]),
        ("again", 0, ["a.out"]),
    ):
        job.put(content)
        assert job.run().status == status
        assert list(job.outputs) == names
    assert job.outputs == {"a.out": b"again"}


def test_a_damaged_object_fails_alone(job: Job) -> None:
    """Its error has the place of the record; a wrong checksum and an end in the middle are damage."""
    good = tfrecord_frame(b"one")
    contents = {"a": good, "b": good + tfrecord_frame(b"two")[:-1] + b"?", "c": good, "d": good + b"cut"}
    for name, content in contents.items():
        job.put(content, name)
    assert job.run(split_type="TFRecord", strategy="SingleRecord").status == 1
    written = job.outputs
    assert written.keys() == {"a.out", "b.err", "c.out", "d.err"}
    for name in ("b", "d"):
        error = json.loads(written[f"{name}.err"])
        assert (error["record"], error["offset"]) == (2, len(good))


def test_the_earliest_failure_of_an_object_is_reported(job: Job) -> None:
    """A later record fails at once, the first after another try; little more of the object is sent."""
    job.put("BROKEN\n" + "BAD\n" * 500)
    done, sent = job.sent(**ALONE, max_concurrent="2", max_retries="1")
    assert (done.status, sent < 20) == (1, True), done.log
    (error,) = job.outputs["a.err"].splitlines()
    assert (json.loads(error)["record"], json.loads(error)["status"]) == (1, 500)


def test_a_full_disk_fails_the_object_that_fills_it(job: Job) -> None:
    """Nothing of it is left, and the others are written."""
    for name, size in (("large", 300_000), ("small", 1)):
        job.put(b"x" * size, name)
    words = ["prlimit", "--fsize=200000", *job.command()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "large.out" in done.stderr) == (1, True), done.stderr
    assert job.outputs.keys() == {"small.out", "large.err"}
    assert not list(job.out.rglob("growing-*/*"))


def test_an_object_over_the_limit(job: Job) -> None:
    job.put(bytes(1024 * 1024 + 1), "large")
    job.put(b"x", "small")
    done, sent = job.sent(max_payload_mb="1")
    assert (done.status, sent) == (1, 1)
    assert "1 object(s) are larger than MaxPayloadInMB allows" in done.log
    assert job.outputs.keys() == {"small.out", "large.err"}


def test_what_the_container_says_counts(tmp_path: Path) -> None:
    parameters = {"MaxConcurrentTransforms": 3, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 2}
    with stand_in({"EXECUTION_PARAMETERS": json.dumps(parameters)}) as address:
        job = Job(tmp_path, address)
        job.put(b"1\n2\n3\n")
        done = job.run(split_type="Line")
    assert "3 request(s) at once, SingleRecord, payload 2 MB" in done.log
    assert done.summary["requests"] == 3


def test_an_endpoint_that_names_no_inputs(job: Job) -> None:
    job.put(b"a,b\n1,2\n")
    done = job.run(split_type="Line", content_type="text/csv")
    assert (done.summary["records"], "--csv-header present" in done.log) == (2, True), done.log
    done = job.run(split_type="Line", content_type="text/csv", csv_header="present")
    assert done.summary["records"] == 1


def until_one_is_noted(run: "Popen[bytes]", job: Job) -> None:
    """Wait until an output is there and noted as done.

    A note follows its output, and a run with two requests at once has three threads that write: where
    there are four outputs, at least one is noted.
    """
    wait_until(lambda: run.poll() is not None or len(job.outputs) >= 4, 120, "four outputs are there")
    assert run.poll() is None


def test_killed_and_started_again(job: Job) -> None:
    """kill -9 at any moment loses and doubles nothing; `make prove-transform` does this 20 times."""
    expected = {}
    for file in range(12):
        lines = b"".join(
            b"%d-%d%s\n" % (file, line, b" SLOW" if line % 100 == 7 else b"") for line in range(200)
        )
        job.put(lines, f"{file}")
        expected[f"{file}.out"] = lines
    flags = {**ALONE, "assemble_with": "Line", "max_concurrent": "2"}
    chance = random.Random(20)
    for kill in range(int(os.environ.get("TRANSFORM_KILLS", "3"))):
        run = job.begun(**flags)
        if kill:
            time.sleep(chance.uniform(0.2, 1.5))
        else:
            until_one_is_noted(run, job)
        run.kill()
        run.wait(120)
        for name, content in job.outputs.items():
            assert content == expected[name], f"{name} was not written whole"
    done = job.run(**flags)
    assert done.status == 0, done.log
    assert job.outputs == expected
    assert done.summary["objects"]["already_done"] > 0


def test_stopped_in_order(job: Job) -> None:
    """SIGTERM as Ctrl-C: 130, nothing half written, and the log says how to continue."""
    job.put(b"SLOW 1\n" * 1000)
    run = Popen(job.command(**ALONE), stderr=PIPE)
    until_it_writes(run, job)
    run.terminate()
    _, log = run.communicate(timeout=120)
    assert (run.returncode, b"the same command continues from here" in log) == (130, True)
    assert job.outputs == {}
    assert not list(job.out.rglob("growing-*/*"))


MEASURED = (
    "import re, sys\nfrom tfs_proxy.cli import main\nstatus = main(sys.argv[1:])\n"
    # Not getrusage: its maximum counts what the process had before exec, which is pytest's.
    "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
    "print(int(peak[1]) // 1024)\nsys.exit(status)\n"
)


def test_memory_is_bounded_by_the_payload(tmp_path: Path) -> None:
    """A large object does not lie in memory: `make prove-transform` shows it on 2 GB."""
    frame = tfrecord_frame(random.Random(3).randbytes(1 << 20))
    with stand_in({"FIXED_ANSWER": "ok"}) as address:
        job = Job(tmp_path, address)
        with (job.data / "large").open("wb") as file:
            for _ in range(int(os.environ.get("TRANSFORM_OBJECT_MB", "200"))):
                file.write(frame)
        words = job.words(split_type="TFRecord", max_concurrent="4", max_payload_mb="4")
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "transform", *words], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)
    assert int(done.stdout.strip().splitlines()[-1]) < 60 + 4 * 4 * 4
