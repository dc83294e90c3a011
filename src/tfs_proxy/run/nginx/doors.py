"""Doors of a run at nginx: those that need no key, and the methods of all paths."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from tfs_proxy.model.console import file_names
from tfs_proxy.settings.settings import Settings
from tfs_proxy.wire import routes
from tfs_proxy.wire.routes import Route

ANSWERS_PAGES = {"--rest_api_enable_cors_support", "--rest_api_enable_cors_support=true"}
"""The model server's flag for preflights and answers to web pages, as it may be written."""


class Doors(Struct, frozen=True):
    """Doors of one kind of run.

    ``free`` and ``page`` need no key, and the former no certificate either. The page is open since it asks
    for the key; its facts are not. ``allowed`` has the methods of each path, between commas, by its pattern.
    ``preflights`` is True if the model server answers OPTIONS without a key, too.
    """

    free: tuple[Route, ...]
    page: tuple[Route, ...]
    allowed: Mapping[str, str]
    preflights: bool


def doors_of(kind: int, settings: Settings, *, rest_api: bool) -> Doors:
    """Doors in a run of this ``kind``, a column of `Route.answered_by`."""
    is_open = {
        routes.CONSOLE.path: settings.console,
        "/v1/": rest_api,
        "/v2": settings.publishes_open_inference,
    }
    closed = tuple(path for path in is_open if not is_open[path])
    found = [
        route
        for route in routes.TABLE
        if route.sentence and route.answered_by[kind] and not route.path.startswith(closed)
    ]
    page = [route for route in found if route is routes.ROOT]
    if routes.CONSOLE in found:
        page += [Route(routes.CONSOLE.path.format(name=name), routes.GET, ()) for name in file_names()]
    methods: dict[str, list[str]] = {}
    for route in found:
        methods.setdefault(route.regex("[^/]+"), []).extend(route.methods)
    return Doors(
        free=tuple(route for route in routes.HEALTH_DOORS if route in found),
        page=tuple(page),
        allowed={path: ", ".join(names) for path, names in methods.items()},
        preflights=rest_api and not ANSWERS_PAGES.isdisjoint(settings.extra_args),
    )


def pattern(server: str, doors: Iterable[Route]) -> str:
    """Pattern of exactly these doors of a server: its name, method and path."""
    return "|".join(f"{server} (?:{'|'.join(door.methods)}) {re.escape(door.path)}" for door in doors)
