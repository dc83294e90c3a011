"""Memory that the fields of a serialized message take: counted on the wire format, before it is parsed.

The figures are those of protobuf's parser in C on 64 bits, rounded up.
"""

from collections.abc import Mapping
from functools import cache
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from msgspec import Struct

from tfs_proxy.wire.protobuf_reader import FIXED32, FIXED64, LENGTH, VARINT, MalformedProtobuf, varint_at

_MESSAGE_BYTES = 40
_FIELD_BYTES = 8
_TEXT_FIELD_BYTES = 16
_MAP_ENTRY_BYTES = 64
"""Size of a map's entry without its value."""
_LISTED_TEXT_BYTES = _UNKNOWN_BYTES = 40
_GROWTH = 2
"""Factor for lists of numbers, which move to a larger place as they grow."""
_FIXED_BYTES = {FIXED32: 4, FIXED64: 8}
_DEEPEST = 100
"""Deepest nesting of messages that protobuf reads."""
_WIDE = 8
_NARROW = 4
_FLAG = 1
_SHORTEST_FIELD = 2
_MORE = 0x80
_LAST_BYTES = bytes(range(_MORE))
"""The bytes that end a varint."""
_SOME_FIELDS = 100_000
"""Most fields to count, which takes longer than parsing; the rest of a message counts as the densest."""

_NUMBER_BYTES = {
    FieldDescriptor.CPPTYPE_BOOL: _FLAG,
    FieldDescriptor.CPPTYPE_INT32: _NARROW,
    FieldDescriptor.CPPTYPE_UINT32: _NARROW,
    FieldDescriptor.CPPTYPE_ENUM: _NARROW,
    FieldDescriptor.CPPTYPE_INT64: _WIDE,
    FieldDescriptor.CPPTYPE_UINT64: _WIDE,
}
"""Numbers that may take fewer bytes on the wire than in memory; floats never do."""


class _FieldCost(Struct, frozen=True):
    """Memory of a field each time that it comes, and of each number in it if it is a packed list."""

    size_bytes: int
    number_bytes: int = 0
    message: Descriptor | None = None


_UNKNOWN = _FieldCost(_UNKNOWN_BYTES)
_Costs = Mapping[int, _FieldCost]
"""Costs by tag: the field's number and its kind on the wire."""


def parsed_bytes(kind: type[Message], message: bytes, most_bytes: int) -> int:
    """Upper bound of the bytes that a message's fields take, without their texts.

    Counting ends beyond ``most_bytes``, and where the message is malformed: the parser ends there, too.
    """
    descriptor = cast("Descriptor", kind.DESCRIPTOR)
    count = _Count(message, most_bytes, _SOME_FIELDS)
    if count.whole(descriptor):
        return count.size_bytes
    largest_bytes = count.size_bytes + count.left_bytes * _densest(descriptor) // _SHORTEST_FIELD
    if count.size_bytes > most_bytes or largest_bytes <= most_bytes:
        return largest_bytes
    count = _Count(message, most_bytes, len(message))
    count.whole(descriptor)
    return count.size_bytes


class _Enough(Exception):
    """The limit of bytes or of fields is reached."""


class _Count:
    """Count of bytes that stops above ``most_bytes``, or after ``most_fields``."""

    def __init__(self, message: bytes, most_bytes: int, most_fields: int) -> None:
        self._message = message
        self._view = memoryview(message)
        self._most_bytes = most_bytes
        self._fields_left = most_fields
        self._at = 0
        self.size_bytes = 0

    @property
    def left_bytes(self) -> int:
        """Bytes that were not looked at."""
        return len(self._message) - self._at

    def whole(self, kind: Descriptor) -> bool:
        """Count; True if it came to an end."""
        try:
            self._go(len(self._message), _costs(kind), 0)
        except (IndexError, MalformedProtobuf):
            return True
        except _Enough:
            return False
        return True

    def _go(self, end: int, costs: _Costs, depth: int) -> None:
        at = self._at
        message = self._message
        while at < end:
            tag = message[at]
            at += 1
            if tag >= _MORE:
                tag, at = varint_at(self._view, at - 1)
            cost = costs.get(tag, _UNKNOWN)
            self.size_bytes += cost.size_bytes
            kind = tag & 7
            if kind == LENGTH:
                size = self._message[at]
                at += 1
                if size >= _MORE:
                    size, at = varint_at(self._view, at - 1)
                after = at + size
                if after > end or depth > _DEEPEST:
                    raise MalformedProtobuf("a field is longer than the message that holds it")
                if cost.message is not None and size:
                    self._at = at
                    self._go(after, _costs(cost.message), depth + 1)
                elif cost.number_bytes:
                    others = self._message[at:after].translate(None, _LAST_BYTES)
                    self.size_bytes += (size - len(others)) * cost.number_bytes
                at = after
            elif kind == VARINT:
                _, at = varint_at(self._view, at)
            else:
                at += _FIXED_BYTES.get(kind, 0)
            self._fields_left -= 1
            if self._fields_left < 0 or self.size_bytes > self._most_bytes:
                self._at = at
                raise _Enough
        self._at = at


@cache
def _costs(message: Descriptor) -> _Costs:
    costs = {}
    is_entry = message.GetOptions().map_entry
    for field in message.fields:
        tag = field.number << 3
        number_bytes = _NUMBER_BYTES.get(field.cpp_type, 0)
        if field.message_type is not None:
            size_bytes = 0 if is_entry else _message_bytes(field.message_type)
            costs[tag | LENGTH] = _FieldCost(size_bytes, message=field.message_type)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            costs[tag | LENGTH] = _FieldCost(_text_bytes(field, is_entry=is_entry))
        elif field.is_repeated:
            listed_bytes = _GROWTH * number_bytes
            costs[tag | LENGTH] = _FieldCost(0, listed_bytes)
            costs.update({tag | kind: _FieldCost(listed_bytes) for kind in (VARINT, FIXED32, FIXED64)})
        else:
            costs.update({tag | kind: _FieldCost(0) for kind in (VARINT, FIXED32, FIXED64)})
    return costs


def _text_bytes(field: FieldDescriptor, *, is_entry: bool) -> int:
    """Memory of a text without itself and its message; the key of an entry, a place in the map."""
    if is_entry:
        return _MAP_ENTRY_BYTES
    return _LISTED_TEXT_BYTES if field.is_repeated else 0


def _message_bytes(message: Descriptor) -> int:
    """Memory of a message without any field; of an entry of a map, its value."""
    if message.GetOptions().map_entry:
        values = (field.message_type for field in message.fields if field.message_type is not None)
        return sum(map(_message_bytes, values))
    texts = sum(field.cpp_type == FieldDescriptor.CPPTYPE_STRING for field in message.fields)
    return _MESSAGE_BYTES + _FIELD_BYTES * (len(message.fields) - texts) + _TEXT_FIELD_BYTES * texts


@cache
def _densest(message: Descriptor) -> int:
    """Upper bound of the memory of the two bytes of the shortest field, in a message or in one inside it."""
    reached = {message.full_name: message}
    pending = [message]
    while pending:
        inner = [field.message_type for field in pending.pop().fields if field.message_type is not None]
        pending += [below for below in inner if below.full_name not in reached]
        reached.update({below.full_name: below for below in inner})
    costs = [cost for below in reached.values() for cost in _costs(below).values()]
    return max(max(cost.size_bytes, _SHORTEST_FIELD * cost.number_bytes, _UNKNOWN_BYTES) for cost in costs)
