"""Pooled connections for ``requests.post(context.rest_uri, ...)`` in a user's script.

As it is, ``requests.post`` makes a session and opens a connection for every call, which costs more than
all the rest of a small request. Installed, calls to our instances of the model server go over the pool
of `rest`, and come back as the ``requests.Response`` that they would have come back as. Everything else
goes the way it always goes: other addresses and methods, ``stream=True``, bodies that are files or
generators, and options beyond params, data, json, headers and timeout.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from http.client import responses
from io import BytesIO
from typing import Any

import requests
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.sessions import merge_setting
from requests.structures import CaseInsensitiveDict
from requests.utils import default_headers, get_encoding_from_headers
from urllib3 import HTTPResponse

from tfs_proxy.observe.request_record import require_client
from tfs_proxy.serving.upstream.rest import RestUpstream
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import AnswerTooLarge, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.http_messages import HttpResponse

_METHODS = {"GET", "POST"}
_OPTIONS = {"params", "data", "json", "headers", "timeout"}
_KEPT = "keep-alive"
_LEFT_TO_REQUESTS = {"host", "transfer-encoding", "expect"}
_SCHEME = "http://"
_LONGEST_SECONDS = 86_400.0
"""Time for the answer to a call without a limit of its own."""

_DEFAULT_HEADERS = default_headers()


class PooledRequests:
    """Calls of `requests` to our instances, over the connections of ``rest``; made after the fork."""

    def __init__(self, instances: Sequence[Instance], rest: RestUpstream) -> None:
        self._rest = rest
        self._instances = {
            f"{host}:{instance.rest_port}": instance
            for instance in instances
            for host in ("localhost", instance.host)
        }

    def install(self) -> None:
        """Take over `requests` in this process: its functions, and sessions without adapters of their own."""
        plain_request = requests.api.request
        plain_adapter = Session.get_adapter

        def request(method: str | bytes, url: str | bytes, **options: Any) -> Response:
            return self._short_way(method, url, options) or plain_request(method, url, **options)

        def get_adapter(session: Session, url: str | bytes) -> BaseAdapter:
            adapter = plain_adapter(session, url)  # type: ignore[arg-type]  # its stubs are stricter
            if type(adapter) is HTTPAdapter and self._instance(url) is not None:
                return _PoolAdapter(self, adapter)
            return adapter

        requests.api.request = requests.request = request
        Session.get_adapter = get_adapter  # type: ignore[assignment,method-assign]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install for the length of a block."""
        plain_request = requests.api.request
        plain_adapter = Session.get_adapter
        self.install()
        try:
            yield
        finally:
            requests.api.request = requests.request = plain_request
            Session.get_adapter = plain_adapter  # type: ignore[method-assign]

    def send(self, prepared: PreparedRequest, timeout: Any) -> Response | None:
        """Answer a prepared request; None if it is none of ours, or an odd one.

        The timeout between two reads is that for the whole answer here. Raises exceptions of `requests`:
        ConnectionError, ReadTimeout.
        """
        instance = self._instance(prepared.url)
        seconds = _seconds(timeout)
        headers = _plain_headers(prepared.headers, _host(prepared.url))
        body = prepared.body
        if instance is None or seconds is None or headers is None or prepared.method not in _METHODS:
            return None
        if not isinstance(body, (str, bytes, type(None))):
            return None
        content = body.encode() if isinstance(body, str) else body
        if content is None and prepared.method == "POST":
            content = b""
        began = time.perf_counter()
        require_client()
        try:
            reply = self._rest.relay(instance, prepared.method, prepared.path_url, content, headers, seconds)
        except UpstreamTimeout as error:
            raise requests.exceptions.ReadTimeout(error, request=prepared) from error
        except (UpstreamUnavailable, AnswerTooLarge) as error:
            raise requests.exceptions.ConnectionError(error, request=prepared) from error
        return _response(reply, prepared, time.perf_counter() - began)

    def _short_way(
        self, method: str | bytes, url: str | bytes, options: Mapping[str, Any]
    ) -> Response | None:
        """Answer as ``requests.request`` would, without a session; None if it should itself."""
        if not isinstance(method, str) or method.upper() not in _METHODS or self._instance(url) is None:
            return None
        # NOTE: requests.get and post pass data, json and params along even if they are None.
        if any(value is not None for name, value in options.items() if name not in _OPTIONS):
            return None
        prepared = PreparedRequest()
        prepared.prepare(
            method=method.upper(),
            url=url,
            headers=merge_setting(  # type: ignore[no-untyped-call]
                options.get("headers"), _DEFAULT_HEADERS, dict_class=CaseInsensitiveDict
            ),
            data=options.get("data") or {},
            json=options.get("json"),
            params=options.get("params") or {},
        )
        return self.send(prepared, options.get("timeout"))

    def _instance(self, url: object) -> Instance | None:
        """Instance at a URL; None for other URLs."""
        if not isinstance(url, str) or not url.startswith(_SCHEME):
            return None
        return self._instances.get(_host(url))


class _PoolAdapter(BaseAdapter):
    """Adapter of a session for our instances; others' requests go to the session's own adapter."""

    def __init__(self, pool: PooledRequests, plain: HTTPAdapter) -> None:
        super().__init__()
        self._pool = pool
        self._plain = plain

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Answer one prepared request."""
        response = None if stream else self._pool.send(request, timeout)
        if response is not None:
            return response
        return self._plain.send(request, stream, timeout, verify, cert, proxies)

    def close(self) -> None:
        """Do nothing: the pool outlives sessions."""


def _host(url: str | None) -> str:
    """Name and port in an http URL, unchanged."""
    return (url or "")[len(_SCHEME) :].partition("/")[0]


def _seconds(timeout: Any) -> float | None:
    """Seconds for the answer, from the timeout of `requests`; None for what it would refuse."""
    pair = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if len(pair) != 2 or any(type(seconds) not in {int, float, type(None)} for seconds in pair):  # noqa: PLR2004
        return None
    if any(seconds is not None and seconds <= 0 for seconds in pair):
        return None
    return _LONGEST_SECONDS if pair[1] is None else min(pair[1], _LONGEST_SECONDS)


def _plain_headers(headers: Mapping[str, Any], host: str) -> Mapping[str, str] | None:
    """Headers as text; None if one of them changes how a request is sent."""
    plain = {"Host": host}
    for name, value in headers.items():
        lower = name.lower()
        if lower in _LEFT_TO_REQUESTS or (lower == "connection" and value != _KEPT):
            return None
        if lower != "content-length":
            plain[name] = value.decode("latin-1") if isinstance(value, bytes) else value
    return plain


def _response(reply: HttpResponse, prepared: PreparedRequest, seconds: float) -> Response:
    """Build the answer as `requests` does, its content read."""
    response = Response()
    response.status_code = reply.status
    response.headers = CaseInsensitiveDict(reply.headers)
    response.encoding = get_encoding_from_headers(response.headers)
    response.reason = responses.get(reply.status, "")
    response.url = prepared.url or ""
    response.request = prepared
    response.elapsed = timedelta(seconds=seconds)
    # NOTE: the body has been taken out of its chunks: urllib3 must not look for any.
    framing = {"transfer-encoding", "content-length"}
    response.raw = HTTPResponse(
        BytesIO(reply.body),
        headers={name: value for name, value in reply.headers.items() if name.lower() not in framing},
        status=reply.status,
        reason=response.reason,
        preload_content=False,
    )
    # Read at once, as requests does unless it streams; if it is compressed this unpacks it.
    _ = response.content
    return response
