"""What serialized messages become as fields, counted before they are parsed."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.wire.protobuf_writer import field
from tfs_proxy.wire.protos import ClassificationRequest, MultiInferenceRequest, PredictRequest, TensorProto
from tfs_proxy.wire.protos.sizes import parsed_bytes

ANY = 1 << 60
COUNT = 50_000
EMPTY = b"\x0a\x00"


def features(content: bytes) -> bytes:
    """A Classify of one example with these features."""
    return field(2, field(1, field(1, field(1, content))))


def tensor(content: bytes) -> bytes:
    return field(2, field(1, b"x") + field(2, content))


@pytest.mark.parametrize(
    ("kind", "message", "least_bytes"),
    [
        (ClassificationRequest, field(2, field(1, EMPTY * COUNT)), 45),
        (ClassificationRequest, field(2, field(2, EMPTY * COUNT)), 45),
        (ClassificationRequest, features(EMPTY * COUNT), 26),
        (ClassificationRequest, features(b"".join(field(1, field(1, b"%d" % n)) for n in range(COUNT))), 108),
        (ClassificationRequest, features(field(1, field(2, field(1, EMPTY * COUNT)))), 36),
        (ClassificationRequest, features(field(1, field(2, field(3, field(1, bytes(COUNT)))))), 16),
        (PredictRequest, b"\x12\x00" * COUNT, 176),
        (PredictRequest, b"\x1a\x00" * COUNT, 36),
        (PredictRequest, tensor(field(2, b"\x12\x00" * COUNT)), 47),
        (PredictRequest, tensor(b"\x42\x00" * COUNT), 36),
        (PredictRequest, tensor(b"\x72\x00" * COUNT), 103),
        (PredictRequest, tensor(b"\x7a\x00" * COUNT), 63),
        (PredictRequest, tensor(field(7, bytes(COUNT))), 8),
        (MultiInferenceRequest, EMPTY * COUNT, 59),
    ],
)
def test_what_costs_little_on_the_wire_is_counted(
    kind: type[Message], message: bytes, least_bytes: int
) -> None:
    """About what protobuf was measured to allocate for each, counted up to a limit or not."""
    kind.FromString(message)
    assert least_bytes * COUNT <= parsed_bytes(kind, message, ANY) < 3 * least_bytes * COUNT
    assert parsed_bytes(kind, message, least_bytes * COUNT // 2) > least_bytes * COUNT // 2


@pytest.mark.parametrize("number", [4, 5], ids=["tensor_content", "float_val"])
def test_memory_that_is_taken_over_costs_nothing_more(number: int) -> None:
    assert parsed_bytes(PredictRequest, tensor(field(number, b"\x0a\x00\x12\x00" * COUNT)), ANY) < 1000


def test_many_fields_are_counted_exactly_if_their_largest_sum_is_too_much() -> None:
    """A message that fits is not refused for what others of its length become."""
    message = tensor(b"\x2d\x00\x00\x80\x3f" * (4 * COUNT))
    assert parsed_bytes(PredictRequest, message, len(message)) < 1000
    assert parsed_bytes(PredictRequest, message, ANY) > len(message)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_are_counted_up_to_there(message: bytes) -> None:
    """The parser refuses them."""
    assert parsed_bytes(PredictRequest, message, ANY) >= 0
    assert parsed_bytes(ClassificationRequest, features(message), ANY) >= 0


def test_numbers_of_several_bytes_count_once() -> None:
    packed, listed = field(10, b"\xff\x7f" * COUNT), b"\x50\xff\x7f" * COUNT
    sizes = [parsed_bytes(TensorProto, message, ANY) for message in (packed, listed)]
    assert sizes == [16 * COUNT, 16 * COUNT]


def test_messages_in_messages_are_counted_as_deep_as_they_are_read() -> None:
    """A tensor of a variant of a tensor, a thousand times, is refused by the parser."""
    message = b""
    for _ in range(1000):
        message = field(15, field(3, message))
    assert 0 < parsed_bytes(TensorProto, message, ANY) < 1_000_000
