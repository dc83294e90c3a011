"""The model server's answer as ``output_handler`` sees it: AWS's ``requests.Response``, with arrays."""

import io
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property
from http.client import responses
from typing import Any

import numpy.typing as npt
import requests
from requests.cookies import RequestsCookieJar
from requests.structures import CaseInsensitiveDict

from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.signature import Signature
from tfs_proxy.upstream.interface import OK, ModelAnswer


class ModelResponse(requests.Response):
    """A ``requests.Response`` over a `ModelAnswer`, whose body is made when it is first read.

    ``outputs`` has the tensors by output name, read once; JSON is neither written nor parsed for
    them if the model server gave tensors.
    """

    def __init__(self, answer: ModelAnswer, signature: Callable[[], Signature]) -> None:
        # PERF: not super().__init__(), which makes a cookie jar and more that few scripts look at.
        self._content: Any = False
        self._content_consumed = False
        self._next = None
        self.history = []
        self.elapsed = timedelta(0)
        self.request = None  # type: ignore[assignment]  # as requests leaves it
        self._answer = answer
        self._signature = signature
        self._outputs: dict[str, npt.NDArray[Any]] | None = None
        self._body_file: io.BytesIO | None = None
        self.url = answer.url
        self.encoding = "utf-8"

    @cached_property
    def headers(self) -> "CaseInsensitiveDict[str]":  # type: ignore[override]
        """The model server's headers."""
        return CaseInsensitiveDict(self._answer.headers)

    @cached_property
    def cookies(self) -> RequestsCookieJar:  # type: ignore[override]
        """None: a model server sets no cookies."""
        return RequestsCookieJar()

    @property
    def status_code(self) -> int:
        """The model server's status.

        Tensors may have no form in TF Serving's JSON: that is known, and the status 400, when the
        body has been asked for.
        """
        return self._answer.status if self._content_consumed or not self._answer.ok else OK

    @status_code.setter
    def status_code(self, _: Any) -> None:
        """Requests clears it as it makes a response."""

    @property
    def reason(self) -> str:
        """The status in words."""
        return responses.get(self.status_code, "")

    @reason.setter
    def reason(self, _: Any) -> None:
        """Requests clears it as it makes a response."""

    @property
    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays by output name; strings are object arrays of ``bytes``.

        Raises UpstreamRefused if the model server answered with an error: left uncaught, it goes
        out as it is, with its status.
        """
        if self._outputs is None:
            if not self._answer.ok:
                raise UpstreamRefused(self._answer.status, self._answer.body)
            self._outputs = dict(self._answer.outputs(self._signature()))
        return self._outputs

    @property
    def content(self) -> bytes:
        """The body: TF Serving's JSON."""
        # Read at once, as requests.post does: content, text and iter_content may follow in any order.
        self._content = self._answer.body
        self._content_consumed = True
        return self._answer.body

    def iter_content(self, chunk_size: int | None = 1, decode_unicode: bool = False) -> Iterator[Any]:
        """The body in pieces, as requests gives it."""
        _ = self.content
        return iter(super().iter_content(chunk_size, decode_unicode))

    @property
    def raw(self) -> Any:
        """The body as a file."""
        if self._body_file is None:
            self._body_file = io.BytesIO(self._answer.body)
        return self._body_file

    @raw.setter
    def raw(self, _: Any) -> None:
        """Requests clears it as it makes a response."""

    def close(self) -> None:
        """Nothing is open."""
