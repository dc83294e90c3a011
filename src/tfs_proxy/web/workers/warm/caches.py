"""Fills, when it is imported, the caches of the web framework that each worker would fill by itself.

`preload` imports it before the fork: the table of file types, and which classes are subclasses of others.
"""

import falcon


class _Resource:
    """Stands in for the application's own."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Nobody asks."""


falcon.App[falcon.Request, falcon.Response]().add_route("/a/{b}", _Resource())
