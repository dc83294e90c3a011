"""What calls that a request makes carry of its trace: nothing as long as traces are off."""

from collections.abc import Callable, Mapping

from tfs_proxy.wire.header_names import TRACEPARENT

NO_HEADERS: Mapping[str, str] = {}


class Outgoing:
    """The headers of the present span for a call that is made within it; one per process.

    ``inject`` gives them, once traces are on.
    """

    inject: Callable[[], Mapping[str, str]] | None = None

    def headers(self) -> Mapping[str, str]:
        """``traceparent``, and ``tracestate`` if there is one."""
        return NO_HEADERS if self.inject is None else self.inject()


OUTGOING = Outgoing()


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """``headers`` with those of the present span, unless the caller names a trace itself."""
    trace = OUTGOING.headers()
    if not trace or any(name.lower() == TRACEPARENT for name in headers):
        return headers
    return {**headers, **trace}
