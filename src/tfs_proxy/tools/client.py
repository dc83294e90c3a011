"""Client of a container: sends arrays or bodies to its /invocations, and raises what it refuses."""

import io
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import urllib3
from msgspec import Struct

from tfs_proxy.data.formats.untyped import sent_body
from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.values.names import printable
from tfs_proxy.wire.connect import trusting
from tfs_proxy.wire.error_body import answer_too_large, error_text
from tfs_proxy.wire.header_names import bearer
from tfs_proxy.wire.media_types import CSV, JSON, NPY, NPZ
from tfs_proxy.wire.routes import INVOCATIONS, PING

Array = npt.NDArray[Any]

NOT_PROCESSED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Answers that a server gives before it takes a request up, so that it can be sent again."""

UNTRUSTED = ("self-signed certificate", "self signed certificate", "issuer certificate")
"""Words of OpenSSL for a certificate that no CA here has signed."""

PAUSE_SECONDS = 0.25
LONGEST_RETRY_AFTER_SECONDS = 60
SHOWN_CHARACTERS = 2048


class ClientError(TfsProxyError):
    """A request without a good answer; ``status`` is that of the answer, None if there was none.

    An answer that leads to another address (3xx) is this class itself: nothing is sent there.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class NotAnswered(ClientError):
    """No whole answer arrived: nothing listens there, the connection broke, or the time was up."""


class RequestRefused(ClientError):
    """The server says that the request is wrong (4xx)."""


class ServerFailed(ClientError):
    """The server says that it failed (5xx)."""


class Reply(Struct, frozen=True):
    """A good answer; the names of ``headers`` are in lower case."""

    body: bytes
    content_type: str
    headers: Mapping[str, str]


class Client:
    """Sends requests to the container at ``url``: http://HOST:PORT, or the whole address of its invocations.

    At https:// its certificate must be of a CA in the PEM file ``ca``; None stands for the system's. ``key``
    is one of the server's TFS_PROXY_API_KEYS. ``timeout_seconds`` is the longest wait for a connection, and
    between two parts of an answer. A request that was not taken up (no connection, 429, 503) is sent again up
    to ``retries`` times, after the answer's Retry-After of at most a minute, else after growing pauses. An
    answer may have ``max_answer_bytes``; None stands for TFS_PROXY_MAX_ANSWER_MB. Threads can share a client,
    which keeps ``connections`` open.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        key: str | None = None,
        timeout_seconds: float = 60.0,
        retries: int = 3,
        connections: int = 8,
        max_answer_bytes: int | None = None,
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a server: it must be http://HOST:PORT")
        self._headers = bearer(key)
        path = parts.path.rstrip("/") or INVOCATIONS.path
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._address = f"{self._server}{path}" + (f"?{parts.query}" if parts.query else "")
        self._most_bytes = most_answer_bytes() if max_answer_bytes is None else max_answer_bytes
        tls = None if ca is None else trusting(ca)
        self._pool = urllib3.PoolManager(maxsize=connections, timeout=timeout_seconds, ssl_context=tls)
        self._retry = urllib3.Retry(
            total=retries,
            read=False,
            redirect=False,
            backoff_factor=PAUSE_SECONDS,
            backoff_jitter=PAUSE_SECONDS,
            retry_after_max=LONGEST_RETRY_AFTER_SECONDS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self._pool.clear()

    def is_ready(self) -> bool:
        """True if /ping answers 200; it is asked once."""
        try:
            answer = self._pool.request(
                "GET", f"{self._server}{PING.path}", retries=False, preload_content=False
            )
        except urllib3.exceptions.HTTPError:
            return False
        answer.close()
        return answer.status == HTTPStatus.OK

    def predict(self, arrays: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Array | dict[str, Array]:
        """Sends a batch, ``[records, ...]``: one array, or one for each input of the model by its name.

        Strings may be objects, as pandas has them. A DataFrame has a column for each input by its name, or
        those of the only one. Returns arrays by output name; a model of one output that got one array answers
        one array. Raises ClientError, and ValueError for arrays of other objects.
        """
        if hasattr(arrays, "to_csv") and hasattr(arrays, "columns"):
            return arrays_of(self.invoke(_table(arrays), f"{CSV}; header=present", accept=NPZ))
        body = io.BytesIO()
        named = isinstance(arrays, Mapping)
        if isinstance(arrays, Mapping):
            np.savez(body, allow_pickle=False, **{name: _portable(each) for name, each in arrays.items()})
        else:
            np.save(body, _portable(arrays), allow_pickle=False)
        reply = self.invoke(body.getvalue(), NPZ if named else NPY, accept=NPZ)
        outputs = arrays_of(reply)
        return outputs if named or len(outputs) != 1 else next(iter(outputs.values()))

    def invoke(
        self, body: object, content_type: str = JSON, *, accept: str | None = None, **headers: str
    ) -> Reply:
        """Sends bytes and text as they are, and a dict, a list or an object of a class as JSON.

        Further ``headers`` are SageMaker's: ``custom_attributes`` is X-Amzn-SageMaker-Custom-Attributes.

        Raises ClientError, and TypeError for a body that JSON can't carry.
        """
        data = sent_body(body, content_type)
        sent = {**self._headers, "Content-Type": content_type} | ({"Accept": accept} if accept else {})
        sent |= {_header_name(name): value for name, value in headers.items()}
        retry = self._retry
        answer, content = self._ask(data, sent, retry)
        while answer.status in NOT_PROCESSED and retry.total:
            retry = retry.increment(response=answer)
            retry.sleep(answer)
            answer, content = self._ask(data, sent, retry)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            kind = {3: ClientError, 4: RequestRefused}.get(answer.status // 100, ServerFailed)
            raise kind(f"{answer.status}: {_sentence(answer, content)}", answer.status)
        received = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(content, received.get("content-type", ""), received)

    def _ask(
        self, body: bytes, headers: Mapping[str, str], retry: urllib3.Retry
    ) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """An answer of any status with its whole content. Raises NotAnswered."""
        content = bytearray()
        try:
            answer = self._pool.request(
                "POST", self._address, body=body, headers=headers, retries=retry, preload_content=False
            )
            for part in answer.stream():
                content += part
                if len(content) > self._most_bytes:
                    answer.close()
                    raise NotAnswered(answer_too_large(self._address, self._most_bytes))
        except urllib3.exceptions.HTTPError as error:
            raise NotAnswered(f"{self._address}: {_reason(error)}") from error
        return answer, bytes(content)


def _table(frame: Any) -> bytes:
    """Write a DataFrame as CSV; raises ValueError for a value that is neither a number nor a string."""
    for name in frame.columns:
        values = () if frame[name].dtype.kind in "biuf" else frame[name]
        for row, value in enumerate(values):
            if not isinstance(value, str | int):
                raise ValueError(  # noqa: TRY004 - as for arrays of such values
                    f"column {name!r}, row {row} is {value!r}: columns hold numbers or str"
                )
    text: str = frame.to_csv(index=False, na_rep="NaN")
    return text.encode()


def _portable(values: npt.ArrayLike) -> Array:
    """Make an array that npy holds; strings that are objects become strings of one width."""
    array = np.asarray(values)
    if array.dtype.kind not in "OT":
        return array
    flat = array.ravel().tolist()
    for position, value in enumerate(flat):
        if not isinstance(value, str | bytes) or value[-1:] in {"\0", b"\0"}:
            held = "an array of objects holds str or bytes that end in no zero byte"
            raise ValueError(f"element {position} is {value!r}: {held}")
    if all(isinstance(value, str) for value in flat):
        return np.array(flat, np.str_).reshape(array.shape)
    texts = [value.encode() if isinstance(value, str) else value for value in flat]
    return np.array(texts, np.bytes_).reshape(array.shape)


def arrays_of(reply: Reply) -> dict[str, Array]:
    """Arrays by output name of an answer in npz or npy, or in TensorFlow Serving's JSON, as scripts write it.

    An array without a name has the name "". Raises ClientError for anything else.
    """
    kind = reply.content_type.partition(";")[0].strip().lower()
    try:
        if kind == NPZ:
            with np.load(io.BytesIO(reply.body), allow_pickle=False) as outputs:
                return dict(outputs)
        if kind == NPY:
            return {"": np.load(io.BytesIO(reply.body), allow_pickle=False)}
        if kind == JSON:
            return _arrays_of_json(json.loads(reply.body))
    except ValueError as error:
        raise ClientError(f"The answer is not what its Content-Type {kind} says: {error}") from error
    raise ClientError(
        f"The answer is of type {kind or '(none)'}, which has no arrays: call invoke() for its bytes."
    )


def _arrays_of_json(document: Any) -> dict[str, Array]:
    outputs = document.get("outputs") if isinstance(document, dict) else None
    if isinstance(outputs, dict):
        return {name: np.asarray(values) for name, values in outputs.items()}
    rows = document.get("predictions", outputs or document) if isinstance(document, dict) else document
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        return {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
    return {"": np.asarray(rows)}


def _header_name(name: str) -> str:
    return "X-Amzn-SageMaker-" + name.replace("_", "-").title()


def _sentence(answer: urllib3.BaseHTTPResponse, content: bytes) -> str:
    """The server's own sentence, or the beginning of its answer, on one line without control characters."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        elsewhere = answer.headers.get("Location", "(no Location)")
        text = f"this is not the address of invocations, it leads to {elsewhere}"
    else:
        text = error_text(content) or content.decode(errors="replace")
    return printable(" ".join(text.split())[:SHOWN_CHARACTERS]) or "the answer is empty"


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    text = printable(str(cause).rpartition(": ")[2]) or type(cause).__name__
    if isinstance(cause, urllib3.exceptions.NewConnectionError):
        return f"{text}. Is the server started, and is this its address?"
    if any(words in text for words in UNTRUSTED):
        return f"{text}. Trust the PEM file of its CA: --ca FILE, or ca of Client."
    return text
