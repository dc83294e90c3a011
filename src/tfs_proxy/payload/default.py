"""What a request gets without a script: body -> model server -> body, with no HTTP inside."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import BadInput, UpstreamRefused
from tfs_proxy.payload import media
from tfs_proxy.payload.batch import Batch, Examples
from tfs_proxy.payload.decode import DECODERS, as_utf8, decode, decode_examples, unsupported
from tfs_proxy.payload.encode import OUTPUT_TYPES, encode, encode_values
from tfs_proxy.payload.json_documents import BYTE_ORDER_MARK, documents
from tfs_proxy.payload.json_records import (
    COLUMN,
    EXAMPLES,
    PREDICT,
    ROW,
    decode_documents,
    examples_of,
    records_of,
    serving_form,
)
from tfs_proxy.signature import Target
from tfs_proxy.upstream.base import OK, Answer, Upstream
from tfs_proxy.upstream.serving_json import SIGNATURE_NAME, read_answer

BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes to the client: a status, a body and its media type."""

    status: int
    body: bytes
    content_type: str = media.JSON


def answer(
    upstream: Upstream,
    target: Target,
    body: bytes,
    content_type: str | None,
    accept: str | None,
    instance: Instance | None = None,
) -> Reply:
    """Answer a request as the default does where there is no script, in a form that Accept takes.

    TF Serving's own JSON is passed on untouched (but for a byte order mark or a foreign charset);
    every other body is decoded by the signature. An error of the model server comes back with its
    status. Raises RequestError; UnsupportedMediaType and NotAcceptable before the model server is
    asked, NotAcceptable also where its outputs are not one record per input record.
    """
    media_type = media.parse_media_type(content_type)
    exchange = _Exchange(upstream, target, media.negotiate(accept, OUTPUT_TYPES), instance)
    if media_type.type not in DECODERS:
        raise unsupported(media_type)
    try:
        if media_type.type == media.JSON:
            text = as_utf8(body, media_type).removeprefix(BYTE_ORDER_MARK)
            # PERF: TF Serving's form starts with a brace; lists, often large, are parsed just once.
            if text.lstrip().startswith(b"{"):
                return exchange.objects(text)
        if target.method == PREDICT:
            return exchange.records(decode(body, media_type, upstream.signature(target)))
        return exchange.records(decode_examples(body, media_type))
    except UpstreamRefused as refused:
        return _error(refused.status, refused.body)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request on its way: whom it is for, and in which media type it is answered."""

    upstream: Upstream
    target: Target
    wanted: str
    instance: Instance | None

    def objects(self, text: bytes) -> Reply:
        """Answer JSON that starts with an object: TF Serving's form, or records."""
        found = documents(text)
        form = serving_form(found, self.target.method)
        if form is not None:
            return self._forward(text, form)
        if self.target.method != PREDICT:
            return self.records(examples_of(records_of(found)))
        return self.records(decode_documents(found, self.upstream.signature(self.target)))

    def records(self, batch: Batch | Examples) -> Reply:
        """Answer decoded records."""
        given = self.upstream.predict(self.target, batch, instance=self.instance)
        return self._reply(given, self.target, batch.records)

    def _forward(self, text: bytes, form: Mapping[str, Any]) -> Reply:
        given = self.upstream.forward(self.target, text, instance=self.instance)
        record = self._as_record(form) if given.status == BAD_REQUEST else None
        if record is not None:
            second = self.upstream.predict(self.target, record, instance=self.instance)
            if second.ok:
                return self._reply(second, self.target, record.records)
        named = form.get(SIGNATURE_NAME) or self.target.signature
        return self._reply(given, replace(self.target, signature=named), _records_in(form))

    def _as_record(self, form: Mapping[str, Any]) -> Batch | None:
        """A refused body as one record, if the model has an input called ``instances`` or ``inputs``."""
        if self.target.method != PREDICT:
            return None
        try:
            signature = self.upstream.signature(self.target)
            if not any(key in form and key in signature.inputs for key in (ROW, COLUMN)):
                return None
            return decode_documents([form], signature)
        except (BadInput, UpstreamRefused):
            return None

    def _reply(self, given: Answer, target: Target, records: int) -> Reply:
        if not given.ok:
            return _error(given.status, given.body)
        if self.wanted == media.JSON:
            return Reply(given.status, given.body)
        if target.method == PREDICT:
            outputs = given.outputs(self.upstream.signature(target))
            return Reply(OK, encode(outputs, records, self.wanted), self.wanted)
        results = read_answer(given.body).get("results", [])
        return Reply(OK, encode_values(results, records, self.wanted), self.wanted)


def _records_in(form: Mapping[str, Any]) -> int:
    """How many records a body in TF Serving's form holds."""
    for key in (ROW, EXAMPLES):
        if type(form.get(key)) is list:
            return len(form[key])
    value = form.get(COLUMN)
    columns = value.values() if type(value) is dict else [value]
    return max((len(column) for column in columns if type(column) is list), default=1)


def _error(status: int, body: bytes) -> Reply:
    """A model server's error as it is, if it is JSON with an ``error``; else a sentence in its place."""
    try:
        error = orjson.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        error = None
    if isinstance(error, str):
        return Reply(status, body)
    return Reply(status, orjson.dumps({"error": _error_text(status, body)}))


def _error_text(status: int, body: bytes) -> str:
    """The text of an error that is no strict JSON: TF Serving may write raw line ends in one."""
    try:
        error = json.loads(body.decode(errors="replace"), strict=False)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        error = None
    return error if isinstance(error, str) else f"The model server answered with status {status}."
