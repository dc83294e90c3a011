"""Splitting and packing: what is sent is what the object held, in order, within the limit."""

import gzip
import io
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.data.formats.csv_records import HEADER_HINT
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.transform.batches import (
    SPLITS,
    MiniBatch,
    batches_of,
    open_content,
    pack,
    without_place,
)
from tfs_proxy.transform.job import (
    GZIP,
    LINE,
    MULTI,
    RECORDIO,
    SINGLE,
    TFRECORD,
    CsvHeader,
    ExecutionPlan,
    Job,
)
from tfs_proxy.transform.run_statistics import ObjectFailed, StorageError
from tfs_proxy.values.errors import PayloadTooLarge

FRAMES: dict[str, Callable[[bytes], bytes]] = {
    TFRECORD: tfrecord_frame,
    RECORDIO: recordio_frame,
    LINE: lambda payload: payload + b"\n",
}
TEXTS = st.binary(min_size=1, max_size=30).map(lambda data: b"x" + data.replace(b"\n", b"."))


def batches(data: bytes, split_type: str, strategy: str, limit: int | None) -> list[MiniBatch]:
    return list(pack(SPLITS[split_type](io.BytesIO(data), limit), strategy, limit, "name"))


@given(st.lists(TEXTS, max_size=20), st.sampled_from(sorted(FRAMES)), st.integers(48, 200))
def test_multi_record_keeps_the_wrapping(payloads: list[bytes], split_type: str, limit: int) -> None:
    """Bodies put together are the object, none is over the limit, and none could have taken one more."""
    data = b"".join(FRAMES[split_type](payload) for payload in payloads)
    made = batches(data, split_type, MULTI, limit)
    assert b"".join(batch.body for batch in made) == data
    assert all(len(batch.body) <= limit for batch in made)
    for batch, following in pairwise(made):
        assert len(batch.body) + len(following.records()[0]) > limit
    assert sum(len(batch) for batch in made) == len(payloads)


@given(st.lists(TEXTS, max_size=20), st.sampled_from(sorted(FRAMES)))
def test_single_record_strips_the_wrapping(payloads: list[bytes], split_type: str) -> None:
    """Each body is one payload; its number and its place in the object are known."""
    frames = [FRAMES[split_type](payload) for payload in payloads]
    made = batches(b"".join(frames), split_type, SINGLE, None)
    assert [batch.body for batch in made] == payloads
    assert [batch.first for batch in made] == list(range(1, len(payloads) + 1))
    assert [batch.offsets[0] for batch in made] == [sum(map(len, frames[:at])) for at in range(len(frames))]


def test_records_over_the_limit() -> None:
    """A line is refused before it is read whole, a TFRecord where its frame does not fit."""
    with pytest.raises(PayloadTooLarge, match="over the limit of 5 bytes"):
        batches(b"a\nlonger than that\n", LINE, MULTI, 5)
    with pytest.raises(ObjectFailed, match="record 1 at byte 0: the record has 26 bytes to send"):
        batches(tfrecord_frame(b"0123456789"), TFRECORD, MULTI, 12)
    assert [batch.body for batch in batches(tfrecord_frame(b"0123456789"), TFRECORD, SINGLE, 12)]


@pytest.mark.parametrize("data", [gzip.compress(b"a" * 1000)[:-9], b"no gzip at all"], ids=["cut", "plain"])
def test_broken_gzip(data: bytes) -> None:
    """Truncated data and data that are not gzip raise an error that says so."""
    job = Job(input="i", output="o", compression=GZIP)
    with pytest.raises(StorageError, match="gzip"), open_content(io.BytesIO(data), job) as stream:  # type: ignore[arg-type]
        stream.read()


@pytest.mark.parametrize(
    ("header", "first", "is_header"),
    [
        (CsvHeader(("a", "b")), b'\xef\xbb\xbf"b", a,a\r\n', True),
        (CsvHeader(("a", "b"), ";"), b"a;b\n", True),
        (CsvHeader(("a", "b")), b"a,b,c\n", False),
        (CsvHeader(("a", "b"), input_filter="$[1:]"), b"id,a,b\n", True),
        (CsvHeader(("a", "b"), input_filter="$[5]"), b"a,b\n", False),
        (CsvHeader(("a", "b")), b'"a,b\n', False),
        (CsvHeader(("text",)), b"some text\n", False),
        (CsvHeader(), b"anything\n", True),
        (None, b"a,b\n", False),
    ],
)
def test_a_header_is_in_each_batch(header: CsvHeader | None, first: bytes, *, is_header: bool) -> None:
    plan = ExecutionPlan(MULTI, len(first) + 4, 1, header)
    made = list(batches_of(io.BytesIO(first + b"1,2\n3,4\n"), LINE, plan, "a"))
    assert [batch.csv_header for batch in made] == [first if is_header else b""] * len(made)
    records = [record for batch in made for record in batch.records()]
    assert records == [*([] if is_header else [first]), b"1,2\n", b"3,4\n"]
    assert (made[-1].first, made[-1].offsets[-1]) == (len(records), len(first) + 4)


@pytest.mark.parametrize(
    ("lines", "warns"),
    [
        (b"a,b,c d\n1,2,3\n", ", or --id-column 'c d' if that column is not for the model"),
        (b"My_ID,u,v\n1,2,3\n", ", or --id-column My_ID if that column is not for the model"),
        (b"u,v\n1,2\n", ""),
        (b"u,v\nx,y\n", None),
        (b"1,v\n1,2\n", None),
    ],
)
def test_a_first_line_that_looks_like_a_header(
    caplog: pytest.LogCaptureFixture, lines: bytes, warns: str | None
) -> None:
    plan = ExecutionPlan(MULTI, 100, 1, CsvHeader(("a", "b")))
    (batch,) = batches_of(io.BytesIO(lines), LINE, plan, "x.csv")
    assert batch.body == lines
    sentence = f"x.csv: line 1 is sent as a record: give --csv-header present if it is a header{warns}"
    assert [record.getMessage() for record in caplog.records] == [sentence] * (warns is not None)


def test_a_bad_row_is_no_header() -> None:
    """A row that is sent alone is the first of its request, wherever the object has it."""
    assert without_place(f"Row 1, column 1: bad.{HEADER_HINT}", 1) == "the record, column 1: bad."
