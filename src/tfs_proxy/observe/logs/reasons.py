"""Reasons of refusals for the log: sentences without any text of a client.

Sentences of this package have a client's values in quotation marks, or marked by `errors.from_client`; the
model server quotes values as it likes, so that its sentences are cut before the first one.
"""

import re

from tfs_proxy.observe.request_record import current_request
from tfs_proxy.values.names import utf8
from tfs_proxy.wire.error_body import error_text

MOST_CHARACTERS = 300
LEFT_OUT = "…"
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|(?<!\w)\'(?:[^\'\\]|\\.|\'(?=\w))*(?:\'|$)', re.DOTALL)
_UNQUOTED = "|".join(f"(?<={words}: )" for words in (" key", "convert string", "found in signature"))
"""Words after which TensorFlow and its server repeat a client's text without quotation marks."""

_FIRST_VALUE = re.compile(
    rf"(?<=JSON Value)|[\"`{{\u2018-\u201f]|(?<!\w)'|'(?!\w)|{_UNQUOTED}|(?<![\[,])\?"  # and queries
)


def own_reason(sentence: str) -> str:
    """Replace each quoted value in a sentence of this package by ``…``."""
    return _bounded(_QUOTED.sub(LEFT_OUT, sentence))


def model_server_reason(sentence: str) -> str:
    """Cut a model server's sentence before the first value that it may have from a client."""
    before, *rest = _FIRST_VALUE.split(sentence, maxsplit=1)
    return _bounded(f"{before.rstrip(' [(')} {LEFT_OUT}" if rest else before)


def note_refusal(sentence: str) -> None:
    """Note the reason for which the current request is refused, in this package's words; "" adds nothing."""
    record = current_request()
    if record is not None and sentence:
        record.reason = own_reason(sentence)


def note_answer_of_model_server(body: bytes, *, refused: bool = True) -> None:
    """Note the reason for which the model server refuses the current request, if it does."""
    record = current_request()
    if record is not None and (refused or record.reason):  # false for nearly all requests
        record.reason = model_server_reason(error_text(body) or "") if refused else ""


def _bounded(text: str) -> str:
    text = " ".join(utf8(text).split())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + LEFT_OUT
