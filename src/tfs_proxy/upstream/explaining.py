"""Between web and the model servers: says what a signature and the run tell about a request that was refused.

The model server speaks of its graph's ops (``Matrix size-incompatible``), while a client knows inputs by
name. Its own words follow. Nothing is done for a request that it answers.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy.typing as npt

from tfs_proxy.batch import BYTES, Batch, Examples
from tfs_proxy.errors import BadInput, UpstreamError, WrongType
from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.payload.shapes import misfits
from tfs_proxy.serving_json.documents import documents
from tfs_proxy.serving_json.messages import targeted
from tfs_proxy.serving_json.requests import PREDICT, decode_serving_form, serving_form
from tfs_proxy.signature import Signature, Target
from tfs_proxy.upstream.around import Around
from tfs_proxy.upstream.interface import JSON_HEADERS, ModelAnswer, Records, Upstream
from tfs_proxy.wire.error_body import error_body, error_text

BAD_REQUEST, NOT_FOUND = 400, 404
_BASE64 = (b"/9j/", b"iVBORw0KGgo", b"R0lGOD", b"UklGR", b"data:image/")
"""The beginnings of JPEG, PNG, GIF and WebP in base64, and of what a browser makes of them."""

_PICTURES = ((b"\xff\xd8\xff", b"\xff\xd9"), (b"\x89PNG", b"IEND"))
"""The beginnings of JPEG and PNG, and what is near their ends."""

_TAIL_BYTES = 1024
_GRAPH = re.compile(r"\{\{\w+ [^}]*\}\}\s*|\s*\[\[\{\{.*", re.DOTALL)
"""The functions and nodes of a graph in TensorFlow's errors."""


class Explaining(Around):
    """Explains what is refused by ``upstream``, for the models whose names are ``models``."""

    def __init__(self, upstream: Upstream, models: Collection[str]) -> None:
        super().__init__(upstream)
        self._models = models

    def _refusal(self, answer: ModelAnswer, target: Target, sent: Records | None) -> ModelAnswer:
        if answer.status == BAD_REQUEST and sent is not None:
            explanation = self._what_does_not_fit(target, sent)
        else:
            explanation = self._unknown_model(answer.status, target)
        words = error_text(answer.body)
        if explanation is None or words is None:
            return answer
        note_refusal(explanation.reason)
        said = "" if str(explanation) in words else f" The model server says: {_GRAPH.sub('', words)}"
        body = error_body(f"{explanation}{said}")
        return ModelAnswer(answer.status, body, JSON_HEADERS, answer.url)

    def _unknown_model(self, status: int, target: Target) -> BadInput | None:
        """The names that there are, if the model server has no such model."""
        if status != NOT_FOUND or target.model in self._models:
            return None
        return BadInput(
            f'There is no model "{target.model}". Models here: {", ".join(sorted(self._models)) or "none"}.'
        )

    def _what_does_not_fit(self, target: Target, sent: Records) -> BadInput | None:
        """The values or shapes that the signature does not take; None if that is not known."""
        if target.method != PREDICT or isinstance(sent, Examples):
            return None
        try:
            signature = self._upstream.signature(
                targeted(target, sent) if isinstance(sent, bytes) else target
            )
        except BadInput as error:
            return error
        except UpstreamError:
            return None
        try:
            inputs = _inputs(sent, signature)
            odd = list(misfits(inputs, signature).values()) or list(_odd_pictures(inputs))
            return BadInput(" ".join(odd)) if odd else None
        except WrongType as error:
            return error
        except BadInput:
            return None


def _odd_pictures(inputs: Mapping[str, npt.NDArray[Any]]) -> Iterator[str]:
    """What a client may not see of the strings of its first pictures that are none."""
    for name, array in inputs.items():
        for number, value in enumerate(array.flat if array.dtype == BYTES else (), 1):
            if value.startswith(_BASE64):
                yield f'String {number} of the input "{name}" is base64 as text: send it as {{"b64": "..."}}.'
                return
            for begin, end in _PICTURES:
                if value.startswith(begin) and end not in value[-_TAIL_BYTES:]:
                    yield f'String {number} of the input "{name}" is a picture that is cut off.'
                    return


def _inputs(sent: Batch | bytes, signature: Signature) -> Mapping[str, npt.NDArray[Any]]:
    """Arrays by input name of what was sent; raises BadInput if it says none."""
    if isinstance(sent, Batch):
        return sent.inputs
    form = serving_form(documents(sent), PREDICT)
    return {} if form is None else decode_serving_form(form, signature).inputs
