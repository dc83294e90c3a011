"""tf.Example, TFRecord, recordio-protobuf and raw bytes: records to arrays, and to features."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.records import example, record
from support.signatures import Shape, floats, signature_of
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.registry import decode, decode_examples, parse_media_type
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, RequestError
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import CLASSIFY_METHOD
from tfs_proxy.wire.protos import RecordIORecord

EXAMPLE, RECORDS, RECORDIO = map(
    parse_media_type,
    ("application/x-tfexample", "application/x-tfrecord", "application/x-recordio-protobuf"),
)

TWO = signature_of(a=("DT_FLOAT", (None, 2)), s=("DT_STRING", (None,)))
ONE_STRING = signature_of(s=("DT_STRING", (None,)))


def test_a_model_of_serialized_examples_gets_them() -> None:
    """One input of strings takes the records as they are."""
    one, two = example(f=[1]), example(f=[2])
    assert decode(one, EXAMPLE, ONE_STRING).inputs["s"].tolist() == [one]
    body = tfrecord_frame(one) + tfrecord_frame(two)
    assert decode(body, RECORDS, ONE_STRING).inputs["s"].tolist() == [one, two]
    lists = signature_of(s=("DT_STRING", (None, 1)))
    assert decode(body, RECORDS, lists).inputs["s"].tolist() == [[one], [two]]


@pytest.mark.parametrize(
    ("dtype", "shape", "values", "want"),
    [
        ("DT_FLOAT", (None,), [1], [1.0]),
        ("DT_FLOAT", (None, 1), [1.5], [[1.5]]),
        ("DT_INT32", (None, None), [1, 2, 3], [[1, 2, 3]]),
        ("DT_FLOAT", (None, 2, None), [1.0, 2.0, 3.0, 4.0], [[[1, 2], [3, 4]]]),
        ("DT_FLOAT", None, [1.0], [1.0]),
        ("DT_FLOAT", None, [1.0, 2.0], [[1.0, 2.0]]),
    ],
)
def test_features_take_the_input_s_shape(
    dtype: str, shape: Shape, values: list[Any], want: list[Any]
) -> None:
    """A flat list of values is shaped as the signature says; one open dimension follows from the size."""
    batch = decode(example(x=values), EXAMPLE, signature_of(x=(dtype, shape)))
    assert batch.inputs["x"].tolist() == want


@pytest.mark.parametrize(
    ("features", "dtype", "shape", "says"),
    [
        ({"y": [1]}, "DT_FLOAT", (None,), 'Record 1 has no feature "x"; it has y'),
        ({"x": [1.0]}, "DT_INT64", (None,), 'feature "x", is float32, but DT_INT64'),
        ({"x": [300]}, "DT_INT8", (None,), "300, which is out of the range"),
        ({"x": [b"a"]}, "DT_FLOAT", (None,), "is strings"),
        ({"x": [1, 2]}, "DT_FLOAT", (None,), "2 values, but the model takes one value"),
        ({"x": [1, 2, 3]}, "DT_FLOAT", (None, 2, None), r"3 values, but the model takes \[2, \?\]"),
        ({"x": [1, 2]}, "DT_FLOAT", (None, None, None), "leaves it open"),
        ({"x": []}, "DT_FLOAT", (None,), "0 values"),
    ],
)
def test_features_that_do_not_fit(features: Any, dtype: str, shape: Shape, says: str) -> None:
    """A 400 names record and feature."""
    with pytest.raises(BadInput, match=says):
        decode(example(**features), EXAMPLE, signature_of(x=(dtype, shape)))


def test_records_of_different_shapes() -> None:
    """Records that differ in an open dimension can't be one batch: a 400 says which."""
    body = tfrecord_frame(example(x=[1])) + tfrecord_frame(example(x=[1, 2]))
    with pytest.raises(BadInput, match=r"Record 2.*\(2,\), but record 1 has \(1,\)"):
        decode(body, RECORDS, floats(None, None))


def test_classify_takes_features_by_name() -> None:
    """tf.Examples become TF Serving's examples; empty features are left out."""
    one = example(a=[1.5], b=[b"\xff"], c=[3, 4], d=[])
    want = {"a": [1.5], "b": [{"b64": "/w=="}], "c": [3, 4]}
    assert decode_examples(one, EXAMPLE).features == (want,)
    assert decode_examples(tfrecord_frame(one) * 2, RECORDS).features == (want, want)
    framed = recordio_frame(record(a={"values": [1.5]}, b={"kind": "bytes", "value": [b"\xff"]}))
    assert decode_examples(framed, RECORDIO).features == ({"a": [1.5], "b": [{"b64": "/w=="}]},)


def test_no_examples() -> None:
    for body, media_type, says in (
        (b"\xff", EXAMPLE, "Record 1 is not a serialized tf.Example"),
        (tfrecord_frame(example()) + tfrecord_frame(b"\xff"), RECORDS, "Record 2 is no"),
        (b"", RECORDS, "no records"),
        (b"", RECORDIO, "no records"),
    ):
        with pytest.raises(BadInput, match=says):
            decode(body, media_type, TWO)
        with pytest.raises(BadInput, match=says):
            decode_examples(body, media_type)


def test_recordio_tensors_of_each_type() -> None:
    """Floats, doubles, integers and bytes go to the inputs of their names."""
    signature = signature_of(
        f=("DT_FLOAT", (None, 2)),
        d=("DT_DOUBLE", (None,)),
        i=("DT_INT32", (None, 2)),
        s=("DT_STRING", (None,)),
    )
    one = record(
        f={"values": [1, 2]},
        d={"kind": "float64_tensor", "values": [0.1]},
        i={"kind": "int32_tensor", "values": [-1, 5], "shape": [2]},
        s={"kind": "bytes", "value": [b"\xff"]},
    )
    batch = decode(recordio_frame(one) * 2, RECORDIO, signature)
    assert {name: array.tolist() for name, array in batch.inputs.items()} == {
        "f": [[1, 2]] * 2,
        "d": [0.1] * 2,
        "i": [[-1, 5]] * 2,
        "s": [b"\xff"] * 2,
    }


def test_recordio_values_feature_and_lonerecord() -> None:
    """``values`` goes to an only input of any name; a record without framing is one record."""
    signature = floats(None, 3)
    one = record(values={"values": [1, 2, 3]})
    for body in (recordio_frame(one), one):
        assert decode(body, RECORDIO, signature).inputs["x"].tolist() == [[1, 2, 3]]


def test_recordio_sparse_tensors_are_filled() -> None:
    """Keys say where values stand in the declared shape, whose size is looked at first."""
    signature = floats(None, 5)
    sparse = {"values": [7, 8], "keys": [4, 1], "shape": [5]}
    body = recordio_frame(record(values=sparse))
    assert decode(body, RECORDIO, signature).inputs["x"].tolist() == [[0, 8, 0, 0, 7]]
    huge = recordio_frame(record(values={**sparse, "shape": [2**40]}))
    with pytest.raises(PayloadTooLarge, match="are there"):
        decode(huge, RECORDIO, signature)
    with pytest.raises(PayloadTooLarge, match="are there"):
        decode(body * 10, RECORDIO, signature, MemoryBudget(3100))
    wrongs: tuple[dict[str, list[int]], ...] = ({"keys": [9, 1]}, {"keys": [1]}, {"shape": []})
    for wrong in wrongs:
        with pytest.raises(BadInput, match="sparse"):
            decode(recordio_frame(record(values={**sparse, **wrong})), RECORDIO, signature)


def test_recordio_shapes() -> None:
    """A tensor's own shape holds where the model takes it; another order of axes is a 400, not a mix-up."""
    tensor = {"values": range(6), "shape": [2, 3]}
    body = recordio_frame(record(x=tensor))
    assert decode(body, RECORDIO, floats()).inputs["x"].shape == (1, 2, 3)
    assert decode(body, RECORDIO, floats(None, 2, None)).inputs["x"].shape == (
        1,
        2,
        3,
    )
    with pytest.raises(BadInput, match=r"shape \[2, 3\], but the model takes \[3, 2\]\. If the model"):
        decode(body, RECORDIO, floats(None, 3, 2))
    with pytest.raises(BadInput, match="6 values, but its shape"):
        decode(recordio_frame(record(x={**tensor, "shape": [7]})), RECORDIO, floats())
    one = record(x={"values": [1], "shape": [1] * 33})
    assert decode(recordio_frame(one), RECORDIO, floats()).inputs["x"].ndim == 34


def test_recordio_shapes_that_no_array_has() -> None:
    """Sizes beside a 0 count for numpy, too, in one record and in all of them together."""
    for shape, records in (([0, 2**62, 2**62], 1), ([0, 2**58], 4), ([1] * 65, 1)):
        body = recordio_frame(record(x={"shape": shape})) * records
        with pytest.raises(BadInput, match="a shape that no array has"):
            decode(body, RECORDIO, floats())


def test_a_feature_s_name_that_is_no_text() -> None:
    """A record with such a name is refused, as a tf.Example is."""
    body = recordio_frame(record(x={"values": [1]}).replace(b"\x0a\x01x", b"\x0a\x01\xff"))
    with pytest.raises(BadInput, match="Record 1 has a feature whose name is not UTF-8"):
        decode(body, RECORDIO, floats())


def test_recordio_that_is_none() -> None:
    signature = floats()
    empty = RecordIORecord()
    empty.features["x"].SetInParent()
    for body, says in (
        (b"\xff\xff", "as a whole it is not a SageMaker Record"),
        (recordio_frame(record(x={"values": [1]})) + recordio_frame(b"\xff"), "Record 2, at byte 24"),
        (recordio_frame(empty.SerializeToString()), 'feature "x", has no value'),
    ):
        with pytest.raises(BadInput, match=says):
            decode(body, RECORDIO, signature)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.sampled_from([RECORDS, RECORDIO]))
def test_records_of_any_bytes_decode_or_are_refused(payloads: list[bytes], media_type: Any) -> None:
    """Well-framed records of random bytes raise nothing but a RequestError."""
    frame = recordio_frame if media_type is RECORDIO else tfrecord_frame
    body = b"".join(map(frame, payloads))
    for signature in (TWO, ONE_STRING):
        with suppress(RequestError):
            assert decode(body, media_type, signature).records == len(payloads)
        with suppress(RequestError):
            assert decode_examples(body, media_type).records == len(payloads)


def test_a_feature_of_the_input_s_name_is_what_it_takes() -> None:
    """An image in a feature called as the input goes to the input, but never for a classify signature."""
    body = example(s=[b"jpeg"], label=[1])
    assert decode(body, EXAMPLE, ONE_STRING).inputs["s"].tolist() == [b"jpeg"]
    assert decode(tfrecord_frame(body), RECORDS, ONE_STRING).inputs["s"].tolist() == [b"jpeg"]
    parsing = signature_of(CLASSIFY_METHOD, s=("DT_STRING", (None,)))
    assert decode(body, EXAMPLE, parsing).inputs["s"].tolist() == [body]
