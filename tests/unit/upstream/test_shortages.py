"""Which errors of a model server say that memory is short, and not that a queue is full or a request wrong."""

import json

import pytest

from support.fake_upstream import FakeUpstream
from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.for_deployment import ForDeployment
from tfs_proxy.upstream.shortages import means_shortage, refused_by_shortage

OOM = "OOM when allocating tensor with shape[2000,1024,256] and type float on /job:localhost/device:CPU:0"
BATCH_QUEUE = "The batch scheduling queue to which this task was submitted is full"


def body(text: str) -> bytes:
    return json.dumps({"error": text}).encode()


def test_the_model_servers_words_decide() -> None:
    """The same texts stand in errors of loads and of requests."""
    assert means_shortage(OOM)
    assert not means_shortage(f"RESOURCE_EXHAUSTED: {BATCH_QUEUE}")
    assert not means_shortage("Op type not registered 'Foo'")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (429, OOM),
        (429, "an allocator's words of tomorrow"),
        (500, "Dst tensor is not initialized."),
        (500, "Failed to allocate memory for the batch"),
        (500, "failed call to cuMemAlloc: CUDA_OUT_OF_MEMORY: out of memory"),
        (500, "MemoryError: Unable to allocate 8.00 GiB for an array with shape (1073741824,)"),
        (500, "can't start new thread"),
    ],
)
def test_what_a_model_server_says_of_a_shortage(status: int, text: str) -> None:
    """RESOURCE_EXHAUSTED means it whatever the words are, INTERNAL by its words alone."""
    assert refused_by_shortage(status, body(text))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (503, BATCH_QUEUE),
        (429, BATCH_QUEUE),
        (429, "Server Threadpool Exhausted"),
        (500, "Op type not registered 'Foo'"),
        (400, f"JSON Value: {OOM} is not of the expected type: float"),
        (404, "Servable not found for request: Latest(MemoryError)"),
    ],
)
def test_what_is_no_shortage(status: int, text: str) -> None:
    """A queue empties by itself, and words of a client's own request mean nothing."""
    assert not refused_by_shortage(status, body(text))


def test_a_body_without_an_error_has_no_words() -> None:
    """Its status alone decides."""
    assert refused_by_shortage(429, b"<html>")
    assert not refused_by_shortage(500, b"<html>")


class RefusingSignatures(FakeUpstream):
    """A model server that has no memory for its metadata."""

    def signature(self, target: Target) -> Signature:
        """Refuse."""
        raise UpstreamRefused(429, body(OOM))


def test_a_signature_that_cannot_be_read() -> None:
    """The model server is asked for it before the first tensors are sent."""
    deployment = Deployment("m", {"m": (1,)}, (), None, (), 1000, 1.0, loaded_as="m")
    with pytest.raises(UpstreamRefused) as refused:
        ForDeployment(RefusingSignatures(), deployment).signature(Target("m"))

    assert (refused.value.status, refused.value.body) == (507, body(OOM))
