"""The good request's body made long, without another meaning if its format has room for that."""

from tfs_proxy.conform.requests_file import KnownRequest

JSON_TYPES = frozenset({"application/json", "application/jsonlines", "application/jsonl"})


def padded(request: KnownRequest, length: int) -> tuple[bytes, bool]:
    """A body of at least ``length`` bytes, and whether it means the same as the request's.

    Spaces before JSON mean nothing. Any other body is repeated, which may be another request, or a bad one.
    """
    body = request.body
    if len(body) >= length:
        return body, True
    if request.media_type in JSON_TYPES or request.media_type.endswith("+json"):
        return b" " * (length - len(body)) + body, True
    return (body or b"\n") * (length // max(len(body), 1) + 1), False
