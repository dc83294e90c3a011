"""Forms, multipart/form-data: their parts, read by falcon's parser, and the records that they hold."""

import io
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from tfs_proxy.data.serving_json.columns import batch_of
from tfs_proxy.data.serving_json.documents import documents
from tfs_proxy.data.shapes import fitted
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire import media_types as media

MOST_PARTS = 1000
"""Most parts of a form, each of which may have 8 KB of headers."""


class FormPart(Struct, frozen=True):
    """Part of a form: a field, or a file."""

    name: str
    """Name of the field."""

    data: bytes
    """Bytes of the field or file."""

    filename: str | None = None
    """Name of the file as the client wrote it; None for a field."""

    content_type: str = media.TEXT
    """Type of the contents; of a part without one that of the file's ending, else text/plain."""

    has_type: bool = True
    """True if the part came with a Content-Type of its own."""

    @property
    def text(self) -> str:
        """The value of a field. Raises BadInput (400) if it is not UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise BadInput(f"The part {media.shown(self.name)} of the form is not UTF-8.") from None


def is_form(content_type: str | None) -> bool:
    """True for the Content-Type of a form."""
    return media.bare(content_type) == media.MULTIPART


def parts_of(body: bytes, content_type: str, budget: MemoryBudget) -> Sequence[FormPart]:
    """Read the parts of a form, in their order.

    Raises BadInput that names the part at which it can't be read, or that is one too many.
    """
    # Imported with the first form, since not every process that decodes bodies has falcon.
    from falcon import HTTPError
    from falcon.media import MultipartFormHandler

    budget.take(len(body), "The form")
    handler = MultipartFormHandler()
    handler.parse_options.max_body_part_buffer_size = len(body)
    handler.parse_options.max_body_part_count = MOST_PARTS
    parts: list[FormPart] = []
    try:
        for part in handler.deserialize(io.BytesIO(body), content_type, len(body)):
            # falcon shows text/plain where there is none.
            has_type = b"content-type" in part._headers  # noqa: SLF001
            guess = None if has_type else media.of_file(part.filename or "")
            kind = guess or part.content_type
            parts.append(FormPart(part.name or "", part.get_data(), part.filename, kind, has_type))
    except (HTTPError, ValueError) as error:
        number = f"part {len(parts) + 1}" if parts else "its beginning"
        why = from_client(getattr(error, "description", error))
        if len(parts) == MOST_PARTS:
            raise BadInput(f"The form has over {MOST_PARTS} parts: send fewer in a request.") from None
        raise BadInput(f"The form can't be read, at {number}: {why}.") from None
    return parts


def by_name(parts: Sequence[FormPart]) -> Mapping[str, list[FormPart]]:
    """Parts of a form by their names."""
    named: dict[str, list[FormPart]] = {}
    for part in parts:
        named.setdefault(part.name, []).append(part)
    return named


def batch_of_form(parts: Sequence[FormPart], signature: Signature, budget: MemoryBudget) -> Batch:
    """Make a batch of fields and files by input name; the nth part of each name is of the nth record.

    Raises BadInput, naming part and record, for names that are unknown or missing and for values that are no
    JSON, and PayloadTooLarge.
    """
    columns = [
        [
            (name, _value(part, number, signature.inputs.get(name), budget))
            for number, part in enumerate(named, 1)
        ]
        for name, named in signature.by_alias(by_name(parts)).items()
    ]
    records = [dict(filter(None, record)) for record in zip_longest(*columns)]
    return fitted(batch_of(records, signature), signature)


def _value(part: FormPart, number: int, spec: TensorSpec | None, budget: MemoryBudget) -> Any:
    """Value of an input: bytes as they are for one of strings, JSON for any other."""
    if spec is None or (spec.dtype == "DT_STRING" and media.bare(part.content_type) != media.JSON):
        return part.data
    try:
        (value,) = documents(part.data, budget)
    except (BadInput, ValueError):
        name = media.shown(part.name)
        text = media.shown(part.data[:100].decode(errors="replace"))
        raise BadInput(
            f"The part {name} of record {number} is {text}, and no JSON value such as 0.5 or [1, 2].",
            (number - 1, part.name),
        ) from None
    return value
