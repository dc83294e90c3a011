"""TensorShapeProto without protobuf's Python: what SavedModels and answers say of shapes."""

from tfs_proxy.wire.protobuf_reader import numbers, views

_DIM, _UNKNOWN_RANK = 2, 3
_SIZE = 1


def shape_of(message: memoryview | None) -> tuple[int | None, ...] | None:
    """The sizes of a serialized TensorShapeProto, None for one that is not known; None if the rank is not.

    No message at all means an unknown rank, too; a scalar's has no dimensions. Raises MalformedProtobuf.
    """
    if message is None or numbers(message).get(_UNKNOWN_RANK):
        return None
    sizes = [numbers(dimension).get(_SIZE, 0) for number, dimension in views(message) if number == _DIM]
    return tuple(None if size < 0 else size for size in sizes)
