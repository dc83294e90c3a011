"""What a user's script may say besides its answer: public as ``tfs_proxy.HTTPError``, so light to import."""

from tfs_proxy.errors import RequestError

STATUSES = range(400, 600)


class HTTPError(RequestError):
    """Raise it in inference.py to answer a request with ``status`` and ``{"error": message}``.

    ``status`` is from 400 to 599: 4xx where the client is to change its request, 5xx where it may
    try again. Raises ValueError for any other.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = int(status)
        self.message = str(message)
        if self.status not in STATUSES:
            raise ValueError(f"HTTPError({self.status}, ...): an error's status is from 400 to 599")
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type["HTTPError"], tuple[int, str]]:
        return type(self), (self.status, self.message)
