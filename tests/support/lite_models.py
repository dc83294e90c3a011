"""Makes TensorFlow Lite files for tests, without tensorflow: tensors and signatures, and no operations."""

from collections.abc import Sequence

import flatbuffers


def lite_model(tensors: Sequence[str] = ("x", "y"), repeated: int = 1) -> bytes:
    """A model from its first tensor to its last, two columns of floats each.

    Its only subgraph names each tensor ``repeated`` times, as hostile files do.
    """
    builder = flatbuffers.Builder(256)
    made = [_tensor(builder, name) for name in tensors]
    listed = _vector(builder, [tensor for tensor in made for _ in range(repeated)])
    ends = [_numbers(builder, [0]), _numbers(builder, [len(made) * repeated - 1])]
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, listed, 0)
    for slot, numbers in enumerate(ends, start=1):
        builder.PrependUOffsetTRelativeSlot(slot, numbers, 0)
    subgraphs = _vector(builder, [builder.EndObject()])
    builder.StartObject(8)
    builder.PrependUint32Slot(0, 3, 0)
    builder.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _tensor(builder: flatbuffers.Builder, name: str) -> int:
    text, shape = builder.CreateString(name), _numbers(builder, [1, 2])
    known = _numbers(builder, [-1, 2])
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(0, shape, 0)
    builder.PrependUOffsetTRelativeSlot(3, text, 0)
    builder.PrependUOffsetTRelativeSlot(7, known, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _numbers(builder: flatbuffers.Builder, numbers: Sequence[int]) -> int:
    builder.StartVector(4, len(numbers), 4)
    for number in reversed(numbers):
        builder.PrependInt32(number)
    return int(builder.EndVector())
