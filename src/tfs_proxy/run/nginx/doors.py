"""Doors of a run at nginx, by what it does with them: rows of `wire.routes`, and the files of the page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tfs_proxy.model.console import file_names
from tfs_proxy.settings.settings import Settings
from tfs_proxy.wire import routes
from tfs_proxy.wire.guard import MANAGEMENT
from tfs_proxy.wire.routes import Caller, Route

ANSWERS_PAGES = {"--rest_api_enable_cors_support", "--rest_api_enable_cors_support=true"}
"""The model server's flag for preflights and answers to web pages, as it may be written."""


def values(kind: int, settings: Settings, *, rest_api: bool, grpc_models: bool) -> Mapping[str, Any]:
    """Values for the templates, under ``own_doors``; ``kind`` is a column of `Route.answered_by`."""
    open_inference = settings.publishes_open_inference
    is_open = {
        routes.CONSOLE.path: settings.console,
        "/v1/": rest_api,
        "/v2": open_inference,
        routes.OPEN_INFERENCE: open_inference,
        "/tensorflow.": grpc_models,
        routes.REFLECTION: open_inference or grpc_models,
    }
    closed = tuple(path for path in is_open if not is_open[path])
    found = [
        route
        for route in routes.TABLE
        if route.caller not in routes.OF_RUN and route.answered_by[kind] and not route.path.startswith(closed)
    ]
    methods: dict[str, list[str]] = {}
    for route in filter(attrgetter("sentence"), found):
        methods.setdefault(route.regex("[^/]+"), []).extend(route.methods)
    if routes.CONSOLE in found:
        page = (routes.CONSOLE.path.format(name=name) for name in file_names())
        found += [replace(routes.CONSOLE, path=path) for path in page]
    return {
        # They need no key, and each has one path.
        "free": [route for route in found if route.caller in routes.KEYLESS and route.is_exact],
        # Questions to the supervisor, whose body nobody reads.
        "asked": [
            route
            for route in found
            if route.answered_by[kind] == routes.SUPERVISOR
            and route.methods == routes.GET
            and not re.fullmatch(MANAGEMENT, route.path)
        ],
        "calls": [route for route in found if not route.sentence and route.caller is Caller.KEY],
        # Methods of each path, by its pattern.
        "allowed": {path: ", ".join(names) for path, names in methods.items()},
        # True if the model server answers OPTIONS without a key, too.
        "preflights": rest_api and not ANSWERS_PAGES.isdisjoint(settings.extra_args),
    }


def pattern(doors: Iterable[Route]) -> str:
    """Pattern of exactly these doors: nginx's server, method and path."""
    return "|".join(
        f"{'http' if door.sentence else 'grpc'} (?:{'|'.join(door.methods)}) {door.regex()}" for door in doors
    )
