"""The engine of one machine: order, isolation of failed objects and records, what is sent, and how a run ends."""

import gzip
import io
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.transform_doubles import FakeSender, MemoryTarget
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.transform.files import InputObject
from tfs_proxy.transform.job import ExecutionPlan, Job
from tfs_proxy.transform.local_engine import LocalEngine
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import RunStatistics, Workload
from tfs_proxy.transform.sender import Refused

WAIT_SECONDS = 30


class MemoryOptions(TransformOptions, frozen=True, kw_only=True):
    """Options of a job whose objects are in memory."""

    contents: Mapping[str, bytes] = {}

    def open_object(self, item: InputObject) -> io.RawIOBase:
        return RawContent(self.contents[item.name])


class RawContent(io.RawIOBase):
    """An object's bytes as a raw stream."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._content.readinto(buffer)


class Run:
    """A job over ``contents`` that has ended; ``error`` is what it raised."""

    def __init__(
        self,
        contents: Mapping[str, bytes],
        sender: FakeSender,
        concurrent: int = 4,
        payload_bytes: int | None = 1 << 20,
        on_error: str = "fail",
        **job: Any,
    ) -> None:
        self.target = MemoryTarget()
        self.statistics = RunStatistics(Workload(len(contents), sum(map(len, contents.values()))))
        job = {"split_type": "Line", "assemble_with": "Line", "strategy": "SingleRecord"} | job
        options = MemoryOptions(
            job=Job(input="/in", output="/out", **job), endpoint="http://server", on_error=on_error
        )
        type(options).contents = contents
        plan = ExecutionPlan(job["strategy"], payload_bytes, concurrent)
        engine = LocalEngine(options, plan, sender, self._start_output)
        items = [InputObject(name, name, len(content), "1") for name, content in contents.items()]
        self.error: BaseException | None = None
        try:
            engine.run(items)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            self.error = error

    @property
    def outputs(self) -> dict[str, bytes]:
        return self.target.objects

    def failure(self, name: str) -> dict[str, Any]:
        """The last line of an error file."""
        return dict(json.loads(self.outputs[f"{name}.err"].splitlines()[-1]))

    def _start_output(self, item: InputObject, release: Callable[[], None]) -> OrderedOutput:
        return OrderedOutput(item, self.target, "fingerprint", self.statistics, release)


def upper(body: bytes) -> bytes:
    return body.upper()


LINES = st.lists(st.text("abc", min_size=1, max_size=4).map(str.encode), max_size=12)


@given(st.dictionaries(st.sampled_from("stuvw"), LINES), st.integers(1, 8), st.integers(4, 30), st.booleans())
def test_outputs_are_in_the_order_of_the_input(
    objects: dict[str, list[bytes]], concurrent: int, limit: int, multi: bool
) -> None:
    contents = {name: b"".join(line + b"\n" for line in lines) for name, lines in objects.items()}
    strategy = "MultiRecord" if multi else "SingleRecord"
    run = Run(contents, FakeSender(upper), concurrent, payload_bytes=limit + 1, strategy=strategy)
    assert run.outputs == {f"{name}.out": content.upper() for name, content in contents.items()}
    assert run.statistics.counts["records"] == sum(map(len, objects.values()))


def test_an_early_answer_waits_for_a_late_one() -> None:
    """The first record is answered only after the third has been: the output has the input's order."""
    third_is_answered = threading.Event()

    def respond(body: bytes) -> bytes:
        if body == b"1":
            assert third_is_answered.wait(WAIT_SECONDS)
        if body.startswith(b"3"):
            third_is_answered.set()
        return b"answer " + body

    run = Run({"a": b"1\n2\n3\n"}, FakeSender(respond), concurrent=2)
    assert run.outputs == {"a.out": b"answer 1\nanswer 2\nanswer 3\n"}


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=5), st.integers(1, 4))
def test_a_bad_record_fails_its_object_only(are_bad: list[list[bool]], concurrent: int) -> None:
    """Every object without a bad record has its output, every other an error file that names the first."""
    contents = {
        f"{number}": b"".join(b"bad\n" if bad else b"good\n" for bad in records)
        for number, records in enumerate(are_bad)
    }
    run = Run(contents, FakeSender(), concurrent)
    for number, records in enumerate(are_bad):
        if any(records):
            assert f"{number}.out" not in run.outputs
            assert run.failure(f"{number}")["record"] == records.index(True) + 1
        else:
            assert run.outputs[f"{number}.out"] == b"GOOD\n" * len(records)
    failed = sum(map(any, are_bad))
    assert (run.statistics.counts["failed"], run.statistics.counts["objects"]) == (
        failed, len(are_bad) - failed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("split_type", "frame"), [("TFRecord", tfrecord_frame), ("RecordIO", recordio_frame)]
)
@pytest.mark.parametrize("strategy", ["SingleRecord", "MultiRecord"])
def test_gzip_input_is_unpacked_and_split(
    split_type: str, frame: Callable[[bytes], bytes], strategy: str
) -> None:
    """SingleRecord sends payloads, MultiRecord whole frames."""
    sender, frames = FakeSender(lambda body: body), [frame(b"one"), frame(b"two")]
    run = Run(
        {"a": gzip.compress(b"".join(frames))}, sender, 1,
        split_type=split_type, strategy=strategy, compression="Gzip", assemble_with="None",
    )  # fmt: skip
    expected = [b"one", b"two"] if strategy == "SingleRecord" else [b"".join(frames)]
    assert sender.bodies == expected
    assert run.outputs == {"a.out": b"".join(expected)}


def test_a_damaged_object_fails_alone() -> None:
    good = tfrecord_frame(b"one")
    contents = {"a": good, "b": good + tfrecord_frame(b"two")[:-1] + b"?", "c": good, "d": good + b"cut"}
    run = Run(contents, FakeSender(upper), split_type="TFRecord", assemble_with="None")
    assert run.outputs.keys() == {"a.out", "b.err", "c.out", "d.err"}
    assert (run.failure("b")["record"], run.failure("b")["offset"]) == (2, len(good))
    assert run.failure("d")["offset"] == len(good)


def test_an_object_of_any_size_is_streamed_without_a_limit() -> None:
    """MaxPayloadInMB 0 makes one request of it, lines or not."""
    sender = FakeSender(upper)
    run = Run({"a": b"one\ntwo\n"}, sender, payload_bytes=None, strategy="MultiRecord")
    assert (sender.bodies, run.outputs) == ([b"one\ntwo\n"], {"a.out": b"ONE\nTWO\n"})


def test_a_record_over_the_limit_is_named() -> None:
    """Blank lines before it count as bytes but not as records."""
    run = Run({"a": b"1\n\n\n" + b"2" * 20 + b"\n3\n"}, FakeSender(), payload_bytes=10)
    assert (run.failure("a")["record"], run.failure("a")["offset"]) == (2, 4)
    assert "over the limit of 10 bytes" in run.failure("a")["error"]


def test_no_more_of_a_failed_object_is_sent() -> None:
    sender = FakeSender(lambda _body: (_ for _ in ()).throw(Refused(400, "no")))
    run = Run({"a": b"x\n" * 1000}, sender, concurrent=1)
    assert run.failure("a")["record"] == 1
    assert len(sender.bodies) < 10


@pytest.mark.parametrize(
    ("status", "is_final"), [(None, False), (400, True), (499, True), (500, False), (503, False)]
)
def test_only_a_clients_mistake_is_sent_once(status: int | None, is_final: bool) -> None:
    assert Refused(status, "no").is_final == is_final
