"""Upstream of one deployment: its own models, and refusals that say what a client can do.

The model server speaks of its graph's ops (``Matrix size-incompatible``), while a client knows inputs by
name. Its own words follow. A request that it answers passes unchanged.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TypeVar, Unpack

from msgspec.structs import replace

from tfs_proxy.data.serving_json.documents import documents
from tfs_proxy.data.serving_json.requests import PREDICT, decode_serving_form, serving_form, targeted
from tfs_proxy.data.shapes import misfits
from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.serving.upstream.interface import JSON_HEADERS, CallOptions, ModelAnswer, Records, Upstream
from tfs_proxy.serving.upstream.shortages import refused_by_shortage
from tfs_proxy.values.batch import BYTES, Batch, Examples
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import BadInput, UpstreamError, UpstreamRefused, WrongType
from tfs_proxy.values.layout import recorded_names
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.error_body import error_body, error_text

_BASE64 = (b"/9j/", b"iVBORw0KGgo", b"R0lGOD", b"UklGR", b"data:image/")
"""Beginnings of JPEG, PNG, GIF and WebP in base64, and of data URIs by browsers."""

_PICTURES = ((b"\xff\xd8\xff", b"\xff\xd9"), (b"\x89PNG", b"IEND"))
"""Beginnings of JPEG and PNG, and bytes near their ends."""

_TAIL_BYTES = 1024
Known = TypeVar("Known")
_GRAPH = re.compile(r"\{\{\w+ [^}]*\}\}\s*|\s*\[\[\{\{.*", re.DOTALL)
"""Pattern of the functions and nodes of a graph in TensorFlow's errors."""


class ForDeployment:
    """`Upstream` that wraps another, as requests for ``deployment`` may see it.

    A request reaches the models of its archive alone, by the names that they have there; others are 404.
    Refusals say why; if there are many models, errors by a shortage have the status 507.
    """

    def __init__(self, upstream: Upstream, deployment: Deployment) -> None:
        self._upstream = upstream
        self.choose = upstream.choose
        self.close = upstream.close
        self._deployment = deployment

    def signature(self, target: Target) -> Signature:
        signature = self._explained(self._upstream.signature, target)
        names = recorded_names(self._deployment.graph_folders.get(target.model))
        return replace(signature, own_names=names) if names else signature

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        return self._explained(self._upstream.signatures_of, target)

    def predict(self, target: Target, records: Records, **options: Unpack[CallOptions]) -> ModelAnswer:
        try:
            asked = self._asked(target)
        except UpstreamRefused as error:
            return self._refusal(ModelAnswer.refused(error), target, records)
        answer = self._upstream.predict(asked, records, **options)
        return answer if answer.ok else self._refusal(answer, target, records)

    def _explained(self, ask: Callable[[Target], Known], target: Target) -> Known:
        """Call ``ask``; a refusal gets the words of this class."""
        try:
            return ask(self._asked(target))
        except UpstreamRefused as error:
            refusal = self._refusal(ModelAnswer.refused(error), target, None)
            raise UpstreamRefused(refusal.status, refusal.body) from error

    def _asked(self, target: Target) -> Target:
        """Target as the model server knows it; raises UpstreamRefused for another archive's."""
        if not self._deployment.inner_names:
            return target
        name = self._deployment.served_name(target.model)
        if name not in self._deployment.models:
            body = error_body(f"Servable not found for request: Latest({name})")
            raise UpstreamRefused(HTTPStatus.NOT_FOUND, body)
        return target if name == target.model else replace(target, model=name)

    def _refusal(self, answer: ModelAnswer, target: Target, sent: Records | None) -> ModelAnswer:
        """Error for a client; ``sent`` is None if a signature was asked for."""
        if self._deployment.loaded_as is not None and refused_by_shortage(answer.status, answer.body):
            return ModelAnswer(HTTPStatus.INSUFFICIENT_STORAGE, answer.body, answer.headers, answer.url)
        if answer.status == HTTPStatus.BAD_REQUEST and sent is not None:
            explanation = self._misfit(target, sent)
        else:
            known = {*self._deployment.models, *self._deployment.inner_names}
            is_known = answer.status != HTTPStatus.NOT_FOUND or target.model in known
            here = ", ".join(sorted(known)) or "none"
            text = f'There is no model "{target.model}". Models here: {here}.'
            explanation = None if is_known else BadInput(text)
        words = error_text(answer.body)
        if explanation is None or words is None:
            return answer
        note_refusal(explanation.reason)
        said = "" if str(explanation) in words else f" The model server says: {_GRAPH.sub('', words)}"
        body = error_body(f"{explanation}{said}", explanation.details)
        return ModelAnswer(answer.status, body, JSON_HEADERS, answer.url)

    def _misfit(self, target: Target, sent: Records) -> BadInput | None:
        """Error about values or shapes that the signature does not take; None if none is known."""
        if target.method != PREDICT or isinstance(sent, Examples):
            return None
        try:
            named = targeted(target, sent) if isinstance(sent, bytes) else target
            signature = self._upstream.signature(self._asked(named))
        except BadInput as error:
            return error
        except UpstreamError:
            return None
        try:
            if isinstance(sent, Batch):
                batch = sent
            else:
                form = serving_form(documents(sent), PREDICT)
                batch = Batch({}, 0) if form is None else decode_serving_form(form, signature)
            odd = list(misfits(batch.inputs, signature).values()) or list(_odd_pictures(batch))
            return BadInput(" ".join(odd)) if odd else None
        except WrongType as error:
            return error
        except BadInput:
            return None


def _odd_pictures(batch: Batch) -> Iterator[str]:
    """Describe strings of the first inputs that should be pictures and are none."""
    for name, array in batch.inputs.items():
        for number, value in enumerate(array.ravel() if array.dtype == BYTES else (), 1):
            if value.startswith(_BASE64):
                yield (
                    f'String {number} of the input "{name}" is base64 as text: send it {batch.base64_form}.'
                )
                return
            for begin, end in _PICTURES:
                if value.startswith(begin) and end not in value[-_TAIL_BYTES:]:
                    yield f'String {number} of the input "{name}" is a picture that is cut off.'
                    return
