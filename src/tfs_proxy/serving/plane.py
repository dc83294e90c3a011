"""Data plane: a model's answer to a request's records or tensors, with no HTTP inside."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any

import numpy.typing as npt
import orjson
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.arrays import writable
from tfs_proxy.data.formats.json_records import Documents, decode_documents
from tfs_proxy.data.formats.outputs import columns_of_outputs
from tfs_proxy.data.registry import ALIASES, OUTPUT_TYPES, decode, encode, encode_values, negotiate
from tfs_proxy.data.serving_json.answer_text import NO_ROWS
from tfs_proxy.data.serving_json.documents import documents, in_one_line
from tfs_proxy.data.serving_json.requests import (
    COLUMN,
    PREDICT,
    ROW,
    column_body,
    decode_serving_form,
    read_answer,
    targeted,
    with_base64,
)
from tfs_proxy.data.shapes import listed
from tfs_proxy.observe.request_record import CONVERT, note_decoded, note_records, stage
from tfs_proxy.serving.bodies import LINES, Body, BodyDecoder, ServingForm, as_batch
from tfs_proxy.serving.upstream.interface import ModelAnswer, Records, TensorAnswer, Upstream
from tfs_proxy.values.batch import Batch, Examples, Outputs
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput, UpstreamRefused
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import has_json
from tfs_proxy.wire.error_body import error_body, error_text
from tfs_proxy.wire.protos.predict import Predicted

NOT_TAKEN = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED}
"""Statuses of TF Serving for JSON that it can't take: 501 for types that its JSON does not have."""


class EncodedAnswer(Struct, frozen=True):
    """Answer to the client: a status, a body and its media type."""

    status: int
    body: bytes
    content_type: str = media.JSON


class Form(Enum):
    """Form of an answer's JSON: written here from tensors, or passed on as the model server wrote it."""

    ROWS = "rows"
    COLUMNS = "columns"
    PASSED_ON = "as it is"


class CallOutcome(Struct, frozen=True):
    """Answer of a model server to one request, and all that its conversion needs."""

    answer: ModelAnswer
    """Status, headers and JSON of the model server."""

    method: str
    """Method of TF Serving that was asked."""

    signature: Callable[[], Signature]
    """Function that finds the signature, for answers of which it is needed."""

    records: int | None
    """Number of records of the request; None if they were not counted."""

    form: Form | Documents = Form.ROWS
    """Form of the answer's JSON, or the JSON lines that were sent if they are not all records."""


class DataPlane:
    """Decodes by the signature, asks the model server, encodes; one per worker, used by all its threads.

    Every method that asks a model raises UpstreamUnavailable and UpstreamTimeout if the model server can't be
    reached.
    """

    def __init__(
        self,
        upstream: Upstream,
        csv_columns: Mapping[str, str] | None = None,
        *,
        one_line: bool = False,
    ) -> None:
        """Wire the parts; with ``one_line``, JSON of `answer` is one line."""
        self._upstream = upstream
        self.choose = upstream.choose
        self.signature = upstream.signature
        self.signatures_of = upstream.signatures_of
        self._one_line = one_line
        self._bodies = BodyDecoder(self.signature, csv_columns or {})

    def decode(self, target: Target, body: Body) -> Batch:
        """Decode a body to arrays by input name, which may be written to.

        Raises BadInput that says where the body is wrong, UnsupportedMediaType, and PayloadTooLarge.
        """
        signature = self.signature(target)
        with stage(CONVERT):
            opened = self._bodies.open_form(target, body)
            batch = (
                opened
                if isinstance(opened, Batch)
                else decode(opened.data, self._bodies.media_type(target, opened), signature, opened.budget)
            )
        note_records(batch.records)
        return writable(batch)

    def encode(self, outputs: Outputs, accept: str | None, records: int | None = None) -> tuple[bytes, str]:
        """Encode arrays by output name as ``accept``, the raw header, asks; returns body and media type.

        JSON, the default, is TF Serving's. ``records`` is how many records the request had (None: as many
        as the outputs have). Raises NotAcceptable if the outputs are not that many, or Accept can't be met.
        """
        media_type = negotiate(accept, OUTPUT_TYPES)
        with stage(CONVERT):
            return encode(outputs, records, media_type), media_type

    def predict(
        self, target: Target, inputs: Any, caller: str, timeout_seconds: float | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Ask for arrays by output name with the inputs that `as_batch` takes; errors name ``caller``.

        Raises ScriptFailure if ``inputs`` don't fit the signature, UpstreamRefused for an error of the
        model server.
        """
        signature = self.signature(target)
        batch = as_batch(inputs, signature, caller)
        note_records(batch.records)
        answer = self._upstream.predict(target, batch, timeout_seconds=timeout_seconds)
        if not answer.ok:
            raise UpstreamRefused(answer.status, answer.body)
        return dict(answer.outputs(signature))

    def answer(
        self,
        target: Target,
        request: Body | bytes | Batch,
        accept: str | None,
        instance: Instance | None = None,
    ) -> EncodedAnswer:
        """Answer a request in a form that ``accept``, the raw header, takes.

        Bytes are TF Serving's JSON as a script writes it. Such JSON is passed on untouched (except for a
        byte order mark or another charset); every other body is decoded by the signature. An error of the
        model server comes back with its status. Raises RequestError; UnsupportedMediaType and NotAcceptable
        before the model server is asked, NotAcceptable also if its outputs are not one record per input
        record.
        """
        media_type = negotiate(accept, OUTPUT_TYPES)
        if isinstance(request, bytes):
            request = Body(request, media.JSON)
        try:
            outcome = self._call(target, request, instance, media_type)
            with stage(CONVERT):
                answer = _encoded(outcome, media_type)
        except UpstreamRefused as refused:
            answer = _error(refused.status, refused.body)
        if answer.content_type != media.JSON or not self._one_line:
            return answer
        return replace(answer, body=in_one_line(answer.body))

    def call(
        self, target: Target, request: Body | bytes | Batch, instance: Instance | None = None
    ) -> CallOutcome:
        """Ask the model server as `answer` does, and leave its answer as it is; raises RequestError.

        A script's output in TF Serving's JSON goes out unread.
        """
        if isinstance(request, bytes):
            answer = self._upstream.predict(target, request, instance=instance)
            data = request
            return CallOutcome(
                answer, target.method, lambda: self.signature(targeted(target, data)), None, Form.PASSED_ON
            )
        try:
            return self._call(target, request, instance)
        except UpstreamRefused as refused:
            return self._outcome(ModelAnswer.refused(refused), target, None)

    def _call(
        self,
        target: Target,
        request: Body | Batch,
        instance: Instance | None,
        media_type: str | None = None,
    ) -> CallOutcome:
        """Ask the model server as the request's form needs; ``media_type`` is the answer's, if known."""
        with stage(CONVERT):
            records = request if isinstance(request, Batch) else self._bodies.read(target, request)
        note_records(records.records)
        if isinstance(records, Batch):
            note_decoded({name: (array.dtype.name, array.shape) for name, array in records.inputs.items()})
        match records:
            case ServingForm():
                return self._forward(target, records, instance)
            case Documents():
                return self._ask_documents(target, records, instance)
            case Examples():
                form = Form.PASSED_ON
            case _:
                form = Form.ROWS
        answer = self._ask(target, records, instance, as_json=media_type == media.JSON)
        return self._outcome(answer, target, records.records, form)

    def _ask_documents(self, target: Target, records: Documents, instance: Instance | None) -> CallOutcome:
        """Send all documents at once; if that is refused, the error names the first that is."""
        ask = partial(self._upstream.predict, target, instance=instance)
        answer = ask(records)
        if not answer.ok and answer.status == HTTPStatus.BAD_REQUEST and len(records.parts) > 1:
            refused = _first_refused(records, ask)
            if refused is not None:
                raise refused
        return self._outcome(answer, target, records.records, records)

    def _outcome(
        self, answer: ModelAnswer, target: Target, records: int | None, form: Form | Documents = Form.ROWS
    ) -> CallOutcome:
        return CallOutcome(answer, target.method, lambda: self.signature(target), records, form)

    def _ask(
        self, target: Target, records: Records, instance: Instance | None, *, as_json: bool = False
    ) -> ModelAnswer:
        """Send records; the answer to a bare one is one record, too.

        Tensors are asked for after all if outputs that are wanted ``as_json`` have no rows.
        """
        is_bare = isinstance(records, Batch) and records.is_bare
        answer = self._upstream.predict(target, records, instance=instance, as_json=as_json and not is_bare)
        if is_bare and answer.ok:
            outputs = {name: array[None] for name, array in answer.outputs(self.signature(target)).items()}
            return TensorAnswer(Predicted(outputs, answer.version), answer.url)
        if as_json and _has_no_rows(answer):
            return self._ask(target, records, instance)
        return answer

    def _forward(self, target: Target, body: ServingForm, instance: Instance | None) -> CallOutcome:
        """Send TF Serving's JSON; if it is refused, send it once more decoded by the signature."""
        answer = self._upstream.predict(target, body.data, instance=instance)
        named = replace(target, signature=body.signature or target.signature)
        passed_on = self._outcome(answer, named, body.records, Form.PASSED_ON)
        again = self._by_signature(named, body.data, answer) if answer.status in NOT_TAKEN else None
        if again is None:
            return passed_on
        second = self._ask(named, again, instance)
        if not second.ok and second.status != HTTPStatus.INSUFFICIENT_STORAGE:
            return passed_on
        if isinstance(again, bytes):
            return replace(passed_on, answer=second)
        by_column = body.by_column and COLUMN not in self.signature(named).inputs
        return self._outcome(second, named, again.records, Form.COLUMNS if by_column else Form.ROWS)

    def _by_signature(self, target: Target, data: bytes, refusal: ModelAnswer) -> Batch | bytes | None:
        """Decode a refused body by the signature; None if that is the same, or nothing fits.

        The whole body is one record if the model has an input called ``instances`` or ``inputs``; values of
        types that TF Serving's JSON lacks (half, bfloat16, uint16) can go as tensors, as can
        rows whose outputs are none; and values become lists of one where the signature has those.
        """
        if target.method != PREDICT:
            return None
        try:
            signature = self.signature(target)
            (form,) = documents(data)
        except (BadInput, UpstreamRefused):
            return None
        is_json = has_json(signature)
        try:
            if any(key in form and key in signature.inputs for key in (ROW, COLUMN)):
                return decode_documents([form], signature)
            given = decode_serving_form(form, signature)
            batch = listed(given, signature)
            has_own_names = any(signature.alias(name) != name for name in _names(form))
            if batch is given and is_json and not _has_no_rows(refusal) and not has_own_names:
                return None
            return column_body(batch.inputs, target.signature) if COLUMN in form and is_json else batch
        except BadInput:
            if is_json:
                return None
            raise  # The model server's refusal only speaks of the type.


def _encoded(outcome: CallOutcome, media_type: str) -> EncodedAnswer:
    """Encode an answer in the way of its form; the error of a model server is passed on."""
    answer = outcome.answer
    if not answer.ok:
        # TF Serving's 501 is the client's mistake here: a body that its JSON can't express.
        status = HTTPStatus.BAD_REQUEST if answer.status in NOT_TAKEN else answer.status
        return _error(status, answer.body)
    is_json = media_type == media.JSON
    answered = media_type
    match outcome.form:
        case Documents() as sent if is_json or ALIASES.get(media_type, media_type) in LINES:
            body = _converted(outcome, media.JSON, sent.write)
            answered = media.JSON_LINES if is_json else media_type
        case Form.COLUMNS if is_json:
            body = _converted(outcome, media_type, columns_of_outputs)
        case Form.PASSED_ON if is_json:
            body = answer.body if _is_valid(answer) else with_base64(answer.body)
        case Form.ROWS if is_json and _is_valid(answer):
            body = answer.body
        case _:
            body = _converted(outcome, media_type)
    return EncodedAnswer(HTTPStatus.OK, body, answered)


def _converted(
    outcome: CallOutcome, media_type: str, write: Callable[[Outputs], bytes] | None = None
) -> bytes:
    """Write tensors, or results of classify and regress, as ``media_type``; ``write`` has an own way."""
    answer = outcome.answer
    if outcome.method == PREDICT:
        return encode(answer.outputs(outcome.signature()), outcome.records, media_type, write)
    return encode_values(read_answer(answer.body).get("results", []), outcome.records, media_type)


def _first_refused(records: Documents, ask: Callable[[Batch], ModelAnswer]) -> UpstreamRefused | None:
    """Find the error of the first document that is refused, by halving; None if alone it is not."""
    others = range(1, len(records.parts))
    taken = bisect_left(others, 1, key=lambda count: not ask(records.first(count)).ok)
    refusal = ask(records.parts[taken])
    if refusal.ok:
        return None
    return UpstreamRefused(refusal.status, error_body(f"Document {taken + 1}: {error_text(refusal.body)}"))


def _names(form: Mapping[str, Any]) -> Iterator[str]:
    """The names of inputs in TF Serving's form."""
    values = form.get(ROW, form.get(COLUMN))
    for record in values if isinstance(values, list) else [values]:
        if isinstance(record, dict):
            yield from record


def _has_no_rows(answer: ModelAnswer) -> bool:
    """True if the model answered, and TF Serving could not write its outputs as one row for each record."""
    return answer.status == HTTPStatus.BAD_REQUEST and NO_ROWS in (error_text(answer.body) or "")


def _is_valid(answer: ModelAnswer) -> bool:
    """True if outputs have rows, and their JSON is valid: TF Serving writes strings that are not UTF-8."""
    with suppress(UnicodeDecodeError):
        return answer.status == HTTPStatus.OK and (answer.body.isascii() or bool(answer.body.decode()))
    return False


def _error(status: int, body: bytes) -> EncodedAnswer:
    """Pass on a model server's error if it is strict JSON with an ``error``; else write such JSON."""
    text = error_text(body)
    if text is not None:
        with suppress(orjson.JSONDecodeError):
            orjson.loads(body)
            return EncodedAnswer(status, body)
    sentence = f"The model server answered with status {status}." if text is None else text
    return EncodedAnswer(status, error_body(sentence))
