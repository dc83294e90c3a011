"""The model server's answer as ``output_handler`` sees it: AWS's ``requests.Response``, with arrays."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from http.client import responses
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from tfs_proxy.errors import UpstreamRefused
from tfs_proxy.script.header_map import HeaderMap
from tfs_proxy.signature import Signature
from tfs_proxy.upstream.interface import OK, ModelAnswer

if TYPE_CHECKING:
    from requests import Response
else:
    # PERF: importing requests takes 50 ms and 5 MB, and most scripts look at little of a response.
    Response = object

_ERRORS = 400
"""The first status that is an error."""

_ITER_BYTES = 128
"""What requests reads at a time if a response is iterated over."""


class ModelResponse(Response):
    """What a ``requests.Response`` is, over a `ModelAnswer` whose body is made when it is first read.

    ``isinstance`` takes it for one. What scripts seldom ask for is answered by a real one, made for the
    occasion. ``outputs`` has the tensors by output name, read once; JSON is neither written nor parsed for
    them if the model server gave tensors.
    """

    def __init__(self, answer: ModelAnswer, signature: Callable[[], Signature]) -> None:
        self._answer = answer
        self._signature = signature
        self._is_read = False
        self._status: int | None = None
        self._reason: str | None = None
        self._outputs: dict[str, npt.NDArray[Any]] | None = None
        self.url = answer.url
        self.encoding = "utf-8"

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            """What ``isinstance`` goes by: nobody can ask for a class of requests before it is imported."""
            module = sys.modules.get("requests")
            return getattr(module, "Response", ModelResponse)

        def __getattr__(self, name: str) -> Any:
            """What there is of a ``requests.Response`` beyond this class."""
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self._plain(), name)

    def _plain(self) -> Response:
        """A ``requests.Response`` with all of this one; the body is read."""
        import requests
        from requests.structures import CaseInsensitiveDict

        plain = requests.Response()
        plain._content = self.content  # noqa: SLF001 - as requests' own adapters make one
        plain._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001
        plain.status_code, plain.reason = self.status_code, self.reason
        plain.headers = CaseInsensitiveDict(self.headers)
        plain.url, plain.encoding, plain.raw = self.url, self.encoding, self.raw
        return plain

    @cached_property
    def headers(self) -> HeaderMap:  # type: ignore[override]
        """The model server's headers."""
        return HeaderMap(self._answer.headers)

    @property
    def status_code(self) -> int:
        """The model server's status.

        Tensors may have no form in TF Serving's JSON: that is known, and the status 400, when the
        body has been asked for. A script may set another.
        """
        if self._status is not None:
            return self._status
        return self._answer.status if self._is_read or not self._answer.ok else OK

    @status_code.setter
    def status_code(self, status: int) -> None:
        self._status = status

    @property
    def ok(self) -> bool:
        """Whether the status is that of a success."""
        return self.status_code < _ERRORS

    @property
    def reason(self) -> str:
        """The status in words, or what a script has set."""
        return responses.get(self.status_code, "") if self._reason is None else self._reason

    @reason.setter
    def reason(self, reason: str) -> None:
        self._reason = reason

    def raise_for_status(self) -> None:
        """Raise requests' HTTPError if the status is that of an error."""
        if not self.ok:
            self._plain().raise_for_status()

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
        self._is_read = True
        return self._answer.body

    @property
    def text(self) -> str:
        """The body as text in ``encoding``; requests guesses if a script has set None or an unknown one."""
        try:
            return self.content.decode(self.encoding, "replace")  # type: ignore[arg-type]  # None is a TypeError
        except (LookupError, TypeError):
            return self._plain().text

    def json(self, **options: Any) -> Any:
        """The body's value; raises requests' JSONDecodeError if it is not JSON."""
        try:
            return json.loads(self.text, **options)
        except ValueError:
            return self._plain().json(**options)

    @cached_property
    def raw(self) -> Any:  # type: ignore[override]
        """The body as a file."""
        return io.BytesIO(self._answer.body)

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._plain().iter_content(_ITER_BYTES))

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""
