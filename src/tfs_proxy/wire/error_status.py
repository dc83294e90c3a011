"""Exceptions -> HTTP statuses: the one table, for workers and the supervisor's own HTTP."""

from collections.abc import Mapping
from typing import Final

from tfs_proxy.values.errors import (
    AlreadyLoaded,
    AnswerTooLarge,
    ArchiveError,
    BadInput,
    ClientStalled,
    DiscoveryError,
    LoadFailed,
    ModelLoadError,
    ModelNotReady,
    NoArchive,
    NotAcceptable,
    NotEnoughResources,
    Overloaded,
    PayloadTooLarge,
    RequirementsError,
    ScriptFailure,
    ScriptLoadError,
    ScriptTimeout,
    SessionFailure,
    SettingsError,
    StartTimeout,
    TfsProxyError,
    UnknownModel,
    UnknownSession,
    UnsupportedMediaType,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)

CLIENT_GONE: Final = 499
"""nginx's status of a request whose client has gone."""

STATUS: Mapping[type[TfsProxyError], int] = {
    BadInput: 400,
    ArchiveError: 400,
    DiscoveryError: 400,
    SettingsError: 400,
    RequirementsError: 400,
    ScriptLoadError: 400,
    ModelLoadError: 400,
    UnknownSession: 400,
    NoArchive: 404,
    UnknownModel: 404,
    NotAcceptable: 406,
    ClientStalled: 408,
    AlreadyLoaded: 409,
    PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    SessionFailure: 424,
    ScriptFailure: 500,
    LoadFailed: 500,
    AnswerTooLarge: 502,
    Overloaded: 503,
    UpstreamUnavailable: 503,
    ModelNotReady: 503,
    StartTimeout: 503,
    ScriptTimeout: 504,
    UpstreamTimeout: 504,
    NotEnoughResources: 507,
}
"""HTTP statuses by error; those that end a run of one model answer requests that load one of many."""


def status_of_error(error: TfsProxyError) -> int:
    """HTTP status of an error: the model server's own, or that of the nearest class in `STATUS`; else 500."""
    if isinstance(error, UpstreamRefused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
