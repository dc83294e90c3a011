"""A container that runs already, at an http:// address; it is neither started nor stopped."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from tfs_proxy.conform.capability import Capability
from tfs_proxy.conform.raw_http import NoReply, RawConnection
from tfs_proxy.conform.target.target import RunningContainer, StartOrder
from tfs_proxy.errors import SettingsError

HTTP_PORT = 80


class AddressTarget:
    """``http://HOST:PORT``."""

    capabilities: frozenset[Capability] = frozenset()
    can_start = False

    def __init__(self, url: str) -> None:
        """Raises SettingsError if ``url`` is not an address of HTTP without a path."""
        self.name = url
        try:
            parts = urlsplit(url)
            self.address = (parts.hostname or "", parts.port or HTTP_PORT)
        except ValueError:
            raise SettingsError(f"{url} is not an address: it must be http://HOST:PORT.") from None
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"} or parts.query:
            raise SettingsError(f"{url} can't be judged: it must be http://HOST:PORT, without a path.")

    def refuse_unreachable(self) -> None:
        """Raises SettingsError if nothing listens there."""
        try:
            RawConnection(self.address).close()
        except NoReply as error:
            raise SettingsError(f"nothing listens at {self.name}: {error}.") from None

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:  # noqa: ARG002 - nothing is started
        """The container at the address."""
        yield _Elsewhere(self.address)

    def model_url(self, order: StartOrder, name: str) -> str:
        """Nothing is loaded: there is no folder that both have."""
        raise NotImplementedError

    def image(self) -> Mapping[str, object] | None:
        """Unknown."""
        return None


class _Elsewhere:
    """Nothing is known of it but its address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.accepts_itself = True
        self.started = time.monotonic()

    def exit_status(self) -> int | None:
        return None

    def log(self) -> bytes:
        return b""

    def terminate(self) -> None:
        raise NotImplementedError

    def listening(self) -> frozenset[int] | None:
        return None
