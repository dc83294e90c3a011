"""`tfs-proxy transform` on local folders, against a stand-in for the serving stack."""

import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest

from support.transform_command import outputs, posts, release, stand_in, transform, tune
from support.waiting import wait_until
from tfs_proxy.data.formats.framing import tfrecord_frame


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with stand_in() as address:
        yield address


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def run_flags(data: Path, out: Path, address: str, **flags: str) -> list[str]:
    words = ["--input", str(data), "--output", str(out), "--endpoint", address]
    for name, value in flags.items():
        words += ["--" + name.replace("_", "-"), value]
    return words


def test_whole_objects(data: Path, tmp_path: Path, echo: str) -> None:
    """Each file is a request and an output of its name, subfolders, odd names and empty ones included."""
    files = {"a.bin": b"one", "sub/deep/b c%20ü'\"?#.bin": b"two", "empty": b"", "sub/.hidden": b"x"}
    for name, content in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    done = transform(*run_flags(data, tmp_path / "out", echo))
    assert done.status == 0, done.log
    assert outputs(tmp_path / "out") == {name + ".out": content for name, content in files.items()}
    assert done.summary["objects"] == {"all": 4, "done": 4, "already_done": 0, "failed": 0}


def test_order_is_kept(data: Path, tmp_path: Path, echo: str) -> None:
    lines = b"".join(b"%d%s\n" % (number, b" SLOW" if number % 50 == 0 else b"") for number in range(300))
    (data / "a").write_bytes(lines)
    flags = run_flags(
        data,
        tmp_path / "out",
        echo,
        split_type="Line",
        assemble_with="Line",
        strategy="SingleRecord",
        max_concurrent="8",
    )
    done = transform(*flags)
    assert done.status == 0, done.log
    assert outputs(tmp_path / "out") == {"a.out": lines}
    assert done.summary["records"] == 300
    assert done.summary["requests"] == 300


def test_two_runs_at_once(data: Path, tmp_path: Path) -> None:
    (data / "a").write_bytes(b"one\nHELD\n")
    with stand_in() as address:
        flags = run_flags(data, tmp_path / "out", address, split_type="Line", strategy="SingleRecord")
        first = Popen([sys.executable, "-m", "tfs_proxy.cli", "transform", *flags], stderr=DEVNULL)
        until_it_writes(first, tmp_path / "out")
        second = transform(*flags)
        release(address)
        assert first.wait(120) == 0
    assert (second.status, "Another run is writing" in second.log) == (2, True)


def until_it_writes(run: "Popen[bytes]", out: Path) -> None:
    wait_until(lambda: run.poll() is not None or list(out.rglob("growing-*/*")), 120, "an output has begun")
    assert run.poll() is None


@pytest.mark.parametrize("on_error", ["fail", "placeholder", "sidecar"])
def test_bad_records(data: Path, tmp_path: Path, echo: str, on_error: str) -> None:
    lines = [b"%d\n" % number for number in range(100)]
    lines[37] = b"BAD 37\n"
    lines[80] = b"BAD 80\n"
    (data / "a").write_bytes(b"".join(lines))
    done = transform(*run_flags(data, tmp_path / "out", echo, split_type="Line", on_error=on_error))
    written = outputs(tmp_path / "out")
    errors = [json.loads(line) for line in written["a.err"].splitlines()]
    assert (errors[0]["record"], errors[0]["offset"], errors[0]["status"]) == (
        38,
        sum(map(len, lines[:37])),
        400,
    )
    assert "this is bad" in errors[0]["error"]
    if on_error == "fail":
        assert (done.status, sorted(written), len(errors)) == (1, ["a.err"], 1)
        return
    assert (done.status, [error["record"] for error in errors]) == (0, [38, 81])
    assert done.summary["bad_records"] == 2
    if on_error == "placeholder":
        lines[37] = lines[80] = b"ERROR\n"
    else:
        assert base64.b64decode(errors[1]["data_base64"]) == b"BAD 80\n"
        del lines[80], lines[37]
    assert written["a.out"] == b"".join(lines)


def test_a_run_of_which_nothing_succeeds_ends_soon(data: Path, tmp_path: Path, echo: str) -> None:
    """After fifty failures alike it says which, unless any number may be bad; one that succeeds lets it go on."""
    (data / "a").write_bytes(b"".join(b"BAD %d\n" % number for number in range(200)))
    flags = run_flags(data, tmp_path / "out", echo, split_type="Line", on_error="placeholder")
    before = posts(echo)
    done = transform(*flags)
    assert (done.status, outputs(tmp_path / "out"), posts(echo) - before < 120) == (1, {}, True), done.log
    assert "first 50 records that were sent alone failed alike" in done.log.splitlines()[-1]
    assert "a, record 1 at byte 0: status 400" in done.log.splitlines()[-1]
    assert transform(*flags, "--max-bad", "100%").status == 0
    (data / "a").write_bytes(b"good\n" + (data / "a").read_bytes())
    done = transform(*flags, "--strategy", "SingleRecord")
    assert (done.status, done.summary["bad_records"]) == (0, 200)
    assert "WARNING" in done.log.splitlines()[-1]
    assert "200 of 201 records are bad" in done.log.splitlines()[-1]


@pytest.mark.parametrize(("limit", "status"), [("1", 1), ("2", 0), ("3.9%", 1), ("4%", 0)])
def test_an_object_of_too_many_bad_records_fails(
    data: Path, tmp_path: Path, echo: str, limit: str, status: int
) -> None:
    (data / "a").write_bytes(b"good\n" * 25 + b"BAD\n" + b"good\n" * 23 + b"BAD\n")
    (data / "b").write_bytes(b"good\n")
    done = transform(
        *run_flags(data, tmp_path / "out", echo, split_type="Line", on_error="sidecar", max_bad=limit)
    )
    written = outputs(tmp_path / "out")
    assert (done.status, "a.out" in written, "b.out" in written) == (status, status == 0, True), done.log
    assert (f"and --max-bad {limit} allows no more" in written["a.err"].decode()) == (status == 1)


def test_a_mini_batch_that_takes_too_long_is_halved_at_once(data: Path, tmp_path: Path) -> None:
    (data / "a").write_bytes(b"HELD\ngood\n")
    with stand_in() as address:
        done = transform(
            *run_flags(
                data, tmp_path / "out", address,
                split_type="Line", on_error="placeholder", timeout_seconds="1", max_retries="1",
            )
        )  # fmt: skip
        assert (done.status, posts(address)) == (0, 4), done.log
    assert outputs(tmp_path / "out")["a.out"] == b"ERROR\ngood\n"


def test_only_server_errors_are_tried_again(data: Path, tmp_path: Path, echo: str) -> None:
    (data / "a").write_bytes(f"BUSY {tmp_path}".encode())
    before = posts(echo)
    assert transform(*run_flags(data, tmp_path / "out", echo)).status == 0
    assert posts(echo) - before == 2
    (data / "a").write_bytes(b"BAD")
    before = posts(echo)
    assert transform(*run_flags(data, tmp_path / "out", echo)).status == 1
    assert posts(echo) - before == 1
    (data / "a").write_bytes(f"BUSY {tmp_path} again".encode())
    done = transform(*run_flags(data, tmp_path / "out", echo, max_retries="0"))
    assert (done.status, done.summary["failures"][0]["status"]) == (1, 503)


def test_finished_objects_are_not_sent_again(data: Path, tmp_path: Path, echo: str) -> None:
    """Only what is new or changed is; another job at the same place does all again."""
    for name in "abc":
        (data / name).write_text(name)
    flags = run_flags(data, tmp_path / "out", echo, max_concurrent="2")
    assert transform(*flags).status == 0
    (data / "b").write_text("changed")
    (data / "d").write_text("new")
    before = posts(echo)
    done = transform(*flags)
    assert done.summary["objects"] == {"all": 4, "done": 2, "already_done": 2, "failed": 0}
    assert posts(echo) - before == 2
    assert outputs(tmp_path / "out")["b.out"] == b"changed"
    assert transform(*flags, "--accept", "text/csv").summary["objects"]["done"] == 4
    assert transform(*flags, "--no-resume").summary["objects"]["done"] == 4


def test_an_object_that_fails_has_no_output(data: Path, tmp_path: Path, echo: str) -> None:
    """An output that an earlier run made of other content does not stay beside the error file."""
    (data / "a").write_text("good")
    flags = run_flags(data, tmp_path / "out", echo)
    assert transform(*flags).status == 0
    (data / "a").write_text("BAD now")
    assert transform(*flags).status == 1
    assert outputs(tmp_path / "out").keys() == {"a.err"}
    (data / "a").write_text("good again")
    assert transform(*flags).status == 0
    assert outputs(tmp_path / "out") == {"a.out": b"good again"}


def test_an_object_over_the_limit(data: Path, tmp_path: Path, echo: str) -> None:
    (data / "large").write_bytes(bytes(1024 * 1024 + 1))
    (data / "small").write_bytes(b"x")
    before = posts(echo)
    done = transform(*run_flags(data, tmp_path / "out", echo, max_payload_mb="1"))
    assert done.status == 1
    assert "1 object(s) are larger than MaxPayloadInMB allows" in done.log
    assert posts(echo) - before == 1
    assert outputs(tmp_path / "out").keys() == {"small.out", "large.err"}


def test_what_the_container_says_counts(data: Path, tmp_path: Path) -> None:
    (data / "a").write_bytes(b"1\n2\n3\n")
    parameters = {"MaxConcurrentTransforms": 3, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 2}
    with stand_in({"EXECUTION_PARAMETERS": json.dumps(parameters)}) as address:
        done = transform(*run_flags(data, tmp_path / "out", address, split_type="Line"))
    assert "3 request(s) at once, SingleRecord, payload 2 MB" in done.log
    assert done.summary["requests"] == 3


def test_an_endpoint_that_names_no_inputs(data: Path, tmp_path: Path, echo: str) -> None:
    (data / "a").write_bytes(b"a,b\n1,2\n")
    flags = run_flags(data, tmp_path / "out", echo, split_type="Line", content_type="text/csv")
    done = transform(*flags)
    assert (done.summary["records"], "--csv-header present" in done.log) == (2, True), done.log
    assert transform(*flags, "--csv-header", "present").summary["records"] == 1


def interrupted(flags: list[str], number: signal.Signals, wait: "Callable[[Popen[bytes]], object]") -> None:
    process = Popen([sys.executable, "-m", "tfs_proxy.cli", "transform", *flags], stderr=DEVNULL)
    wait(process)
    process.send_signal(number)
    process.wait(120)


def until_one_is_noted(run: "Popen[bytes]", out: Path) -> None:
    """Wait until an output is there and noted as done.

    A note follows its output, and a run with two requests at once has three threads that write: where
    there are four outputs, at least one is noted.
    """
    wait_until(lambda: run.poll() is not None or len(outputs(out)) >= 4, 120, "four outputs are there")
    assert run.poll() is None


def test_killed_and_started_again(data: Path, tmp_path: Path, echo: str) -> None:
    """kill -9 at any moment loses and doubles nothing; `make prove-transform` does this 20 times."""
    kills = int(os.environ.get("TRANSFORM_KILLS", "3"))
    expected = {}
    for file in range(12):
        lines = b"".join(
            b"%d-%d%s\n" % (file, line, b" SLOW" if line % 100 == 7 else b"") for line in range(200)
        )
        (data / f"{file}").write_bytes(lines)
        expected[f"{file}.out"] = lines
    flags = run_flags(
        data, tmp_path / "out", echo, split_type="Line", strategy="SingleRecord", assemble_with="Line",
        max_concurrent="2",
    )  # fmt: skip
    chance = random.Random(20)
    for kill in range(kills):
        if kill:
            interrupted(flags, signal.SIGKILL, lambda _: time.sleep(chance.uniform(0.2, 1.5)))
        else:
            interrupted(flags, signal.SIGKILL, lambda run: until_one_is_noted(run, tmp_path / "out"))
        for name, content in outputs(tmp_path / "out").items():
            assert content == expected[name], f"{name} was not written whole"
    done = transform(*flags)
    assert done.status == 0, done.log
    assert outputs(tmp_path / "out") == expected
    assert done.summary["objects"]["already_done"] > 0


def test_stopped_in_order(data: Path, tmp_path: Path, echo: str) -> None:
    (data / "a").write_bytes(b"SLOW 1\n" * 1000)
    flags = run_flags(data, tmp_path / "out", echo, split_type="Line", strategy="SingleRecord")
    interrupted(flags, signal.SIGTERM, lambda run: until_it_writes(run, tmp_path / "out"))
    assert outputs(tmp_path / "out") == {}
    assert not list((tmp_path / "out").rglob("growing-*/*"))


def test_memory_is_bounded_by_the_payload(data: Path, tmp_path: Path) -> None:
    """A large object does not lie in memory: `make prove-transform` shows it on 2 GB."""
    megabytes = int(os.environ.get("TRANSFORM_OBJECT_MB", "200"))
    frame = tfrecord_frame(random.Random(3).randbytes(1 << 20))
    with (data / "large").open("wb") as file:
        for _ in range(megabytes):
            file.write(frame)
    program = (
        "import re, sys\nfrom tfs_proxy.cli import main\nstatus = main(sys.argv[1:])\n"
        # Not getrusage: its maximum counts what the process had before exec, which is pytest's.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
        "print(int(peak[1]) // 1024)\nsys.exit(status)\n"
    )
    with stand_in({"FIXED_ANSWER": "ok"}) as address:
        flags = run_flags(
            data, tmp_path / "out", address, split_type="TFRecord", max_concurrent="4", max_payload_mb="4"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "transform", *flags], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)
    assert int(done.stdout.strip().splitlines()[-1]) < 60 + 4 * 4 * 4


def test_tune(data: Path, tmp_path: Path, echo: str) -> None:
    """It prints values to use, and writes nothing; slow answers ask for more at once."""
    (data / "a").write_bytes(b"".join(b"%d SLOW\n" % number for number in range(50)))
    words = run_flags(
        data, tmp_path / "out", echo, split_type="Line", strategy="SingleRecord", max_payload_mb="30"
    )
    done = tune(*words)
    assert done.status == 0, done.log
    assert json.loads(done.advice.partition("\n")[2]) == {
        "MaxConcurrentTransforms": 2
    }  # 30 MB allow three, so two is the last tried
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("record", "flags", "words"),
    [
        (
            "BAD",
            {},
            "The server refuses every record, so there is nothing to tune: sample, record 1 at byte 0",
        ),
        (
            '{"a": 1}',
            {"content_type": "application/json", "output_filter": "$.nothing"},
            "There is nothing to tune: sample, record 1 at byte 0: the answer can't be used",
        ),
    ],
)
def test_tune_with_answers_of_no_use(
    data: Path, tmp_path: Path, echo: str, record: str, flags: dict[str, str], words: str
) -> None:
    """Refusals are no throughput, and an answer that a filter can't read is no traceback."""
    (data / "a").write_text(f"{record}\n" * 3)
    words_of_run = run_flags(
        data, tmp_path / "out", echo, split_type="Line", strategy="SingleRecord", **flags
    )
    done = tune(*words_of_run)
    assert (done.status, words in done.log, "Traceback" in done.log) == (2, True, False), done.log


def test_tune_counts_good_answers_only(data: Path, tmp_path: Path, echo: str) -> None:
    (data / "a").write_text("1 SLOW\n" + "BAD\n" * 40)
    words = run_flags(
        data, tmp_path / "out", echo, split_type="Line", strategy="SingleRecord", max_payload_mb="100"
    )
    done = tune(*words)
    assert done.status == 0, done.log
    measured = re.search(
        r"1 at once: ([0-9.]+) records/s \((\d+) more were refused, the first: (.*)\)", done.log
    )
    assert measured is not None, done.log
    assert float(measured[1]) * 20 < int(measured[2])  # 40 refused for each good one, in more than a second
    assert "sample, record 2 at byte 7: status 400" in measured[3]


def test_tune_of_a_script_that_breaks_soon_says_so(data: Path, tmp_path: Path, echo: str) -> None:
    """A 5xx is not tried again where rates are measured: a hundred bad records would take many minutes."""
    (data / "a").write_text("BROKEN\n" * 100)
    done = tune(*run_flags(data, tmp_path / "out", echo, split_type="Line"))
    assert done.status == 2, done.log
    assert "The server refuses every record, so there is nothing to tune" in done.log
    assert "ValueError: this breaks the script" in done.log
