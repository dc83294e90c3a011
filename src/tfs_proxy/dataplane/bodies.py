"""Bodies of requests -> what a model server is sent: arrays, examples, or TF Serving's JSON as it is."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.errors import NotJson
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats.json_records import (
    batch_of_lines,
    decode_documents,
    examples_of,
    records_in,
    records_of,
)
from tfs_proxy.payload.media_types import MediaType
from tfs_proxy.payload.registry import as_utf8, decode, decode_examples, parse_media_type, readable
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK, documents
from tfs_proxy.serving_json.requests import COLUMN, PREDICT, SIGNATURE_NAME, serving_form
from tfs_proxy.signature import Signature, Target

LINES = frozenset({media.JSON_LINES, media.JSONS})


class Body(Struct, frozen=True):
    """Records as a client sends them: ``content_type`` is the raw header, None means JSON."""

    data: bytes
    content_type: str | None = None
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """What the body may become."""


class ServingForm(Struct, frozen=True):
    """A body that is TF Serving's JSON already; its values are not kept while the model server works."""

    data: bytes
    signature: str | None
    records: int
    by_column: bool


class BodyDecoder:
    """Decodes bodies by what ``signature`` gives; ``csv_columns`` has the order of columns by model."""

    def __init__(self, signature: Callable[[Target], Signature], csv_columns: Mapping[str, str]) -> None:
        self._signature = signature
        self._csv_columns = csv_columns

    def read(self, target: Target, body: Body) -> Batch | Examples | ServingForm:
        """The records of a body; raises BadInput, UnsupportedMediaType and PayloadTooLarge."""
        try:
            return self._by_type(target, body)
        except NotJson as error:
            if body.content_type:
                raise
            hint = "There is no Content-Type, which means JSON: send the body's, such as image/jpeg."
            raise NotJson(f"{error} {hint}") from None

    def _by_type(self, target: Target, body: Body) -> Batch | Examples | ServingForm:
        kind = self.media_type(target, body)
        readable(kind)
        if kind.type in {media.JSON, *LINES}:
            text = as_utf8(body.data, kind).removeprefix(BYTE_ORDER_MARK)
            # PERF: TF Serving's form starts with a brace; lists, often large, are parsed just once.
            if text.lstrip().startswith(b"{"):
                return self._read_objects(target, text, body.budget, by_line=kind.type in LINES)
        return self._decoded(target, body, kind)

    def media_type(self, target: Target, body: Body) -> MediaType:
        """The body's type; that of CSV with the order of columns, unless it names another."""
        kind = parse_media_type(body.content_type)
        columns = self._csv_columns.get(target.model) if kind.type == media.CSV else None
        return kind if columns is None else replace(kind, parameters={"columns": columns, **kind.parameters})

    def _decoded(self, target: Target, body: Body, kind: MediaType) -> Batch | Examples:
        if target.method == PREDICT:
            return decode(body.data, kind, self._signature(target), body.budget)
        return decode_examples(body.data, kind, body.budget)

    def _read_objects(
        self, target: Target, text: bytes, budget: MemoryBudget, *, by_line: bool
    ) -> Batch | Examples | ServingForm:
        """JSON that starts with an object: TF Serving's form, or records."""
        values = documents(text, budget)
        form = serving_form(values, target.method)
        if form is not None:
            name = form.get(SIGNATURE_NAME)
            # The model server refuses anything but text, in words of its own.
            name = name if isinstance(name, str) else None
            return ServingForm(text, name, records_in(form), COLUMN in form)
        if target.method != PREDICT:
            return examples_of(records_of(values))
        return (batch_of_lines if by_line else decode_documents)(values, self._signature(target))
