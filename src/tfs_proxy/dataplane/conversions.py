"""What a request gets without a script: body -> model server -> body, with no HTTP inside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tfs_proxy.batch import Batch, Examples, Outputs
from tfs_proxy.deployment import Instance
from tfs_proxy.errors import BadInput, UpstreamRefused
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.decode import (
    DECODERS,
    DEFAULT_LIMIT_BYTES,
    as_utf8,
    decode,
    decode_examples,
    unsupported,
)
from tfs_proxy.payload.encode import OUTPUT_TYPES, encode, encode_values
from tfs_proxy.payload.formats.json_answer import json_of_outputs
from tfs_proxy.payload.formats.json_records import (
    COLUMN,
    EXAMPLES,
    PREDICT,
    ROW,
    decode_documents,
    examples_of,
    records_of,
    serving_form,
)
from tfs_proxy.payload.media_types import MediaType
from tfs_proxy.serving_json.columns import batch_of
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK, documents
from tfs_proxy.serving_json.messages import SIGNATURE_NAME, read_answer
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.interface import OK, Answer, Upstream
from tfs_proxy.wire.dtypes import has_json
from tfs_proxy.wire.error_body import error_body, error_text

NOT_TAKEN = {400, 501}
"""What TF Serving answers to JSON that it can't take: 501 for types that its JSON has not."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes to the client: a status, a body and its media type."""

    status: int
    body: bytes
    content_type: str = media.JSON


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A body that is TF Serving's JSON already: ``body`` goes to the model server as it is.

    ``form`` is what it says, parsed.
    """

    body: bytes
    form: Mapping[str, Any]

    @property
    def records(self) -> int:
        """How many records it holds."""
        for key in (ROW, EXAMPLES):
            if type(self.form.get(key)) is list:
                return len(self.form[key])
        value = self.form.get(COLUMN)
        columns = value.values() if type(value) is dict else [value]
        return max((len(column) for column in columns if type(column) is list), default=1)


Input = Batch | Examples | Passthrough
"""What a body becomes on its way to the model server."""


def default_input(
    body: bytes,
    content_type: str | None,
    signature: Signature,
    *,
    method: str = PREDICT,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Input:
    """Read a request's body as the default does: arrays for predict, features for classify and regress.

    TF Serving's own JSON comes back as `Passthrough`. ``content_type`` is the raw header, None means
    JSON; ``limit_bytes`` is what the body may unpack to. The arrays may be written to. Raises BadInput
    saying where the body is wrong, UnsupportedMediaType, and PayloadTooLarge.
    """
    read = _read(body, media.parse_media_type(content_type), lambda: signature, method, limit_bytes)
    if isinstance(read, Batch):
        # An npy body's array shares the body's memory, which can't be written to.
        own = {name: array if array.flags.writeable else array.copy() for name, array in read.inputs.items()}
        return replace(read, inputs=own)
    return read


def default_output(
    given: Outputs | Answer,
    accept: str | None,
    signature: Signature,
    *,
    records: int | None = None,
    method: str = PREDICT,
) -> tuple[bytes, str]:
    """Write arrays by output name, or what the model server answered, as the default does.

    Returns the body and its media type, chosen by ``accept``, the raw header; JSON, the default, is
    TF Serving's. ``records`` is how many records the request had (None: as many as the outputs have);
    ``signature`` gives an answer's outputs their types. Raises NotAcceptable where the outputs are not
    that many, or Accept can't be met, UpstreamRefused with an answer that is an error.
    """
    wanted = media.negotiate(accept, OUTPUT_TYPES)
    if not isinstance(given, Answer):
        return (json_of_outputs(given) if wanted == media.JSON else encode(given, records, wanted)), wanted
    if not given.ok:
        raise UpstreamRefused(given.status, given.body)
    return _written(given, wanted, lambda: signature, method, records), wanted


def answer(
    upstream: Upstream,
    target: Target,
    body: bytes,
    content_type: str | None,
    accept: str | None,
    instance: Instance | None = None,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Reply:
    """Answer a request as the default does where there is no script, in a form that Accept takes.

    TF Serving's own JSON is passed on untouched (but for a byte order mark or a foreign charset);
    every other body is decoded by the signature. An error of the model server comes back with its
    status. Raises RequestError; UnsupportedMediaType and NotAcceptable before the model server is
    asked, NotAcceptable also where its outputs are not one record per input record.
    """
    wanted = media.negotiate(accept, OUTPUT_TYPES)
    try:
        asked = ask(upstream, target, body, content_type, instance, limit_bytes=limit_bytes, wanted=wanted)
        return _reply(upstream, asked, wanted)
    except UpstreamRefused as refused:
        return _error(refused.status, refused.body)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model server answered, to how many records, and the target whose outputs these are."""

    answer: Answer
    target: Target
    records: int


def ask(
    upstream: Upstream,
    target: Target,
    body: bytes,
    content_type: str | None,
    instance: Instance | None = None,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    wanted: str | None = None,
) -> Asked:
    """Ask the model server what a body says, as `answer` does, and leave its answer as it is.

    ``wanted`` is the media type that the answer will be written as, where that is known. Raises
    RequestError; UpstreamRefused where the signature is needed and can't be had.
    """
    media_type = media.parse_media_type(content_type)
    if media_type.type not in DECODERS:
        raise unsupported(media_type)
    read = _read(body, media_type, lambda: upstream.signature(target), target.method, limit_bytes)
    if isinstance(read, Passthrough):
        return _forward(upstream, target, read, instance)
    predict = upstream.predict_json if wanted == media.JSON else upstream.predict
    return Asked(predict(target, read, instance=instance), target, read.records)


def answer_batch(
    upstream: Upstream, target: Target, batch: Batch, accept: str | None, instance: Instance | None = None
) -> Reply:
    """Answer records that are decoded already, as `answer` does; raises as it does."""
    wanted = media.negotiate(accept, OUTPUT_TYPES)
    predict = upstream.predict_json if wanted == media.JSON else upstream.predict
    given = predict(target, batch, instance=instance)
    return _reply(upstream, Asked(given, target, batch.records), wanted)


Ask = Callable[[], Signature]
"""Gives the signature; asked only where it is needed, since a model server may have to be asked."""


def _read(body: bytes, media_type: MediaType, signature: Ask, method: str, limit_bytes: int) -> Input:
    if media_type.type == media.JSON:
        text = as_utf8(body, media_type).removeprefix(BYTE_ORDER_MARK)
        # PERF: TF Serving's form starts with a brace; lists, often large, are parsed just once.
        if text.lstrip().startswith(b"{"):
            return _objects(text, signature, method)
    if method == PREDICT:
        return decode(body, media_type, signature(), limit_bytes)
    return decode_examples(body, media_type, limit_bytes)


def _objects(text: bytes, signature: Ask, method: str) -> Input:
    """JSON that starts with an object: TF Serving's form, or records."""
    found = documents(text)
    form = serving_form(found, method)
    if form is not None:
        return Passthrough(text, form)
    if method != PREDICT:
        return examples_of(records_of(found))
    return decode_documents(found, signature())


def _written(given: Answer, wanted: str, signature: Ask, method: str, records: int | None) -> bytes:
    if wanted == media.JSON:
        return given.body
    if method == PREDICT:
        return encode(given.outputs(signature()), records, wanted)
    return encode_values(read_answer(given.body).get("results", []), records, wanted)


def _forward(upstream: Upstream, target: Target, read: Passthrough, instance: Instance | None) -> Asked:
    """Ask TF Serving's JSON."""
    given = upstream.forward(target, read.body, instance=instance)
    named = replace(target, signature=read.form.get(SIGNATURE_NAME) or target.signature)
    record = _as_batch(upstream, named, read.form) if given.status in NOT_TAKEN else None
    if record is not None:
        second = upstream.predict(named, record, instance=instance)
        if second.ok:
            return Asked(second, named, record.records)
    return Asked(given, named, read.records)


def _as_batch(upstream: Upstream, target: Target, form: Mapping[str, Any]) -> Batch | None:
    """A refused body as records, where TF Serving's JSON can't carry what the model takes or gives.

    The whole body is one record if the model has an input called ``instances`` or ``inputs``; the rows
    of a model with types that its JSON lacks (half, bfloat16, uint16) can go as tensors.
    """
    if target.method != PREDICT:
        return None
    try:
        signature = upstream.signature(target)
        if any(key in form and key in signature.inputs for key in (ROW, COLUMN)):
            return decode_documents([form], signature)
        if has_json(signature) or COLUMN in form or type(form.get(ROW)) is not list:
            return None
        return batch_of(form[ROW], signature)
    except (BadInput, UpstreamRefused):
        return None


def _reply(upstream: Upstream, asked: Asked, wanted: str) -> Reply:
    given, target = asked.answer, asked.target
    if not given.ok:
        return _error(given.status, given.body)
    body = _written(given, wanted, lambda: upstream.signature(target), target.method, asked.records)
    # An answer of tensors has a status of its own in JSON alone: it may have no such form.
    return Reply(given.status if wanted == media.JSON else OK, body, wanted)


def _error(status: int, body: bytes) -> Reply:
    """A model server's error as it is, if it is strict JSON with an ``error``; else the same in such JSON."""
    text = error_text(body)
    if text is not None and _is_json(body):
        return Reply(status, body)
    said = f"The model server answered with status {status}." if text is None else text
    return Reply(status, error_body(said))


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True
