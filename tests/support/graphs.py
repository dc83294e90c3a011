"""Nodes of a SavedModel's graph as bytes, for what reads them without tensorflow."""

from tfs_proxy.wire.protobuf_writer import field


def node(name: str, op: str, *inputs: str, **attributes: bytes) -> bytes:
    """A NodeDef; its attributes are AttrValues by name."""
    fed = b"".join(field(3, each.encode()) for each in inputs)
    named = b"".join(field(5, field(1, key.encode()) + field(2, value)) for key, value in attributes.items())
    return field(1, name.encode()) + field(2, op.encode()) + fed + named
