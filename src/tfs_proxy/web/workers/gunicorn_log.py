"""gunicorn's own log, without the lines that only say what it does."""

from typing import Any

from gunicorn.glogging import Logger


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Logs at ``debug`` what gunicorn logs at ``info``: which workers start and end, where it listens."""

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """A step of gunicorn's."""
        self.debug(msg, *args, **kwargs)
