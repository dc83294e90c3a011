"""The limit of an answer: whatever way it takes to have no end, no more than the limit is read of it."""

from collections.abc import Callable
from time import process_time

import pytest

from support.endless import ENDLESS, endless_server
from support.running import LOOPBACK
from tfs_proxy.serving.upstream.interface import TensorAnswer
from tfs_proxy.values.errors import AnswerTooLarge, UpstreamError
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.http_client import ConnectionPool
from tfs_proxy.wire.protos import PredictResponse, TensorProto
from tfs_proxy.worker.translator.inference_messages import AskedModel, TranslatedRequest, infer_answer

MEGABYTE = 1 << 20


@pytest.mark.parametrize("way", ENDLESS)
def test_an_answer_that_never_ends_is_refused_at_the_limit(way: str) -> None:
    """It is a 502."""
    with endless_server(way) as port:
        pool = ConnectionPool(LOOPBACK, port, 20, server="It", most_bytes=MEGABYTE)
        with pytest.raises(
            AnswerTooLarge, match=r"It's answer is over 1 MB\. TFS_PROXY_MAX_ANSWER_MB"
        ) as raised:
            pool.request("POST", "/", b"{}", {})
    assert status_of_error(raised.value) == 502


def translated(message: bytes) -> bytes:
    return infer_answer(message, TranslatedRequest(AskedModel("m"), b"", "", (), {}))


@pytest.mark.parametrize("read", [TensorAnswer.read, translated])
@pytest.mark.parametrize(
    ("sizes", "values", "refusal"),
    [
        ([1, 60_000_000], {"float_val": [1.0]}, "over 1 MB"),
        ([1, 200_000], {"float_val": [1.0]}, "over 1 MB"),  # twice
        ([10_000_000], {"dtype": "DT_STRING", "string_val": [b"a"]}, "over 1 MB"),
        ([1_000_000], {"dtype": "DT_STRING", "tensor_content": bytes(1_000_000)}, "over 1 MB"),
        ([400_000], {"dtype": "DT_BFLOAT16", "half_val": [1]}, "over 1 MB"),
        *(
            ([2**40] * rank, values, "can't be read: (an array|a shape) has")
            for rank in (65, 300, 300_000)
            for values in ({"float_val": [1.0]}, {"tensor_content": b"1234"}, {"int_val": [1]})
        ),
    ],
)
def test_sizes_are_checked_before_anything_is_made(
    read: Callable[[bytes], object],
    sizes: list[int],
    values: dict[str, object],
    refusal: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of all outputs of an answer together, of which few values may stand for many."""
    monkeypatch.setenv("TFS_PROXY_MAX_ANSWER_MB", "1")
    shape = {"dim": [{"size": size} for size in sizes]}
    tensor = TensorProto(**{"dtype": "DT_FLOAT", "tensor_shape": shape, **values})  # type: ignore[arg-type]
    message, began = PredictResponse(outputs={"y": tensor, "z": tensor}).SerializeToString(), process_time()
    with pytest.raises(UpstreamError, match=refusal):
        read(message)
    assert process_time() - began < 1


def test_lists_without_a_value_have_the_limit() -> None:
    tensor = TensorProto(dtype="DT_FLOAT", tensor_shape={"dim": [{"size": 2**31}, {"size": 0}]})
    with pytest.raises(AnswerTooLarge):
        TensorAnswer.read(PredictResponse(outputs={"y": tensor}).SerializeToString())
