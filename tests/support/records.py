"""tf.Examples and SageMaker's records, as a client serializes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfs_proxy.wire.protos import Example, RecordIORecord


def example(**features: Sequence[Any]) -> bytes:
    """A tf.Example, whose lists have the kind of their first values."""
    message = Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        if values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return message.SerializeToString()


def record(**features: Mapping[str, Any]) -> bytes:
    """A record without its frame; the fields of a feature are those of its tensor, float32 without a ``kind``."""
    message = RecordIORecord()
    for name, given in features.items():
        fields = dict(given)
        value = message.features[name]
        tensor = getattr(value, fields.pop("kind", "float32_tensor"))
        tensor.SetInParent()
        for field, values in fields.items():
            getattr(tensor, field).extend(values)
    return message.SerializeToString()
