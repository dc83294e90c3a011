"""--on-error: which records of a refused batch are found to be bad, and what happens to them."""

import base64
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.transform_doubles import FakeSender
from tfs_proxy.transform.batches import MiniBatch, lines, pack
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run_statistics import ObjectFailed
from tfs_proxy.transform.transformer import PLACEHOLDER, SIDECAR, Transformer


def batch_of(texts: list[bytes]) -> MiniBatch:
    content = io.BytesIO(b"".join(text + b"\n" for text in texts))
    (batch,) = pack(lines(content), "MultiRecord", None, "a")
    return batch


def transformer(
    sender: FakeSender, on_error: str, *, input_filter: str = "$", join: str = "None"
) -> Transformer:
    job = Job(
        input="i", output="o", split_type="Line", assemble_with="Line", content_type="text/csv",
        input_filter=input_filter, join=join,
    )  # fmt: skip
    return Transformer(job, sender, on_error)


def texts_of(is_bad: list[bool]) -> list[bytes]:
    return [b"%s%d" % (b"bad" if bad else b"good", number) for number, bad in enumerate(is_bad)]


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_exactly_the_bad_records_are_found(is_bad: list[bool]) -> None:
    texts = texts_of(is_bad)
    outcome = transformer(FakeSender(), PLACEHOLDER)(batch_of(texts), "a")
    bad = [index for index, flag in enumerate(is_bad) if flag]
    assert [(record.record, record.offset) for record in outcome.bad] == [
        (index + 1, sum(len(text) + 1 for text in texts[:index])) for index in bad
    ]
    expected = [b"ERROR" if flag else text.upper() for text, flag in zip(texts, is_bad, strict=True)]
    assert outcome.text == b"".join(text + b"\n" for text in expected)
    assert outcome.records == len(texts)
    assert len(outcome.errors.splitlines()) == len(bad)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_sidecar_has_what_the_output_leaves_out(is_bad: list[bool]) -> None:
    """Output and error file together hold every record once, in order."""
    texts = texts_of(is_bad)
    outcome = transformer(FakeSender(), SIDECAR)(batch_of(texts), "a")
    left_out = [
        base64.b64decode(json.loads(line)["data_base64"]).strip() for line in outcome.errors.splitlines()
    ]
    assert left_out == [text for text in texts if text.startswith(b"bad")]
    assert outcome.text.split() == [text.upper() for text in texts if text.startswith(b"good")]


def test_a_record_that_a_filter_does_not_fit() -> None:
    sender = FakeSender()
    outcome = transformer(sender, PLACEHOLDER, input_filter="$[1]")(batch_of([b"1,2", b"3", b"4,5"]), "a")
    assert [(record.record, record.status) for record in outcome.bad] == [(2, None)]
    assert outcome.text.split() == [b"2", b"ERROR", b"5"]


def test_an_answer_that_a_join_cannot_use() -> None:
    sender = FakeSender(lambda _body: b"only one answer\n")
    with pytest.raises(ObjectFailed, match="the answer can't be used"):
        transformer(sender, SIDECAR, join="Input")(batch_of([b"1", b"2"]), "a")
    assert len(sender.bodies) == 1


def test_one_bad_record_costs_few_requests() -> None:
    """Halving 64 records finds it with two requests for each of six halvings."""
    sender = FakeSender()
    texts = texts_of([number == 41 for number in range(64)])
    transformer(sender, SIDECAR)(batch_of(texts), "a")
    assert len(sender.bodies) == 1 + 2 * 6
