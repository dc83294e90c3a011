"""The formats whose records are protobuf messages, as `registry` calls them.

PERF: `tf_example` and `recordio_protobuf` are imported with the first such body: protobuf's messages take a
worker 3 MB and 30 ms.
"""

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.signature import Signature


def decode_example(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """See `tf_example`."""
    from tfs_proxy.payload.formats import tf_example

    return tf_example.decode_example(body, signature, budget)


def decode_tfrecords(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """See `tf_example`."""
    from tfs_proxy.payload.formats import tf_example

    return tf_example.decode_tfrecords(body, signature, budget)


def decode_recordio(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """See `recordio_protobuf`."""
    from tfs_proxy.payload.formats import recordio_protobuf

    return recordio_protobuf.decode_recordio(body, signature, budget)


def examples_of_example(body: bytes, budget: MemoryBudget) -> Examples:
    """See `tf_example`."""
    from tfs_proxy.payload.formats import tf_example

    return tf_example.examples_of_example(body, budget)


def examples_of_tfrecords(body: bytes, budget: MemoryBudget) -> Examples:
    """See `tf_example`."""
    from tfs_proxy.payload.formats import tf_example

    return tf_example.examples_of_tfrecords(body, budget)


def examples_of_recordio(body: bytes, budget: MemoryBudget) -> Examples:
    """See `recordio_protobuf`."""
    from tfs_proxy.payload.formats import recordio_protobuf

    return recordio_protobuf.examples_of_recordio(body, budget)
