"""Exceptions -> HTTP statuses: the one table, for workers and the supervisor's own HTTP."""

from collections.abc import Mapping
from typing import Final

from tfs_proxy.values import errors
from tfs_proxy.values.errors import TfsProxyError

CLIENT_GONE: Final = 499
"""nginx's status of a request whose client has gone."""

_KINDS: Mapping[int, tuple[type[TfsProxyError], ...]] = {
    400: (
        errors.BadInput,
        errors.ArchiveError,
        errors.DiscoveryError,
        errors.SettingsError,
        errors.RequirementsError,
        errors.ScriptLoadError,
        errors.ModelLoadError,
    ),
    404: (errors.NoArchive, errors.UnknownModel),
    406: (errors.NotAcceptable,),
    408: (errors.ClientStalled,),
    409: (errors.AlreadyLoaded,),
    413: (errors.PayloadTooLarge,),
    415: (errors.UnsupportedMediaType,),
    CLIENT_GONE: (errors.ClientGone,),
    500: (errors.ScriptFailure, errors.LoadFailed),
    502: (errors.AnswerTooLarge,),
    503: (errors.Overloaded, errors.UpstreamUnavailable, errors.ModelNotReady, errors.StartTimeout),
    504: (errors.ScriptTimeout, errors.UpstreamTimeout),
    507: (errors.NotEnoughResources,),
}
"""Errors by HTTP status; those that end a run of one model answer requests that load one of many."""

STATUS: Mapping[type[TfsProxyError], int] = {
    kind: status for status, kinds in _KINDS.items() for kind in kinds
}


def status_of_error(error: TfsProxyError) -> int:
    """HTTP status of an error: the model server's own, or that of the nearest class in `_KINDS`; else 500."""
    if isinstance(error, errors.UpstreamRefused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
