"""``tfs-proxy serve``: serves one model archive over HTTP."""

import argparse
import threading
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import add_serving_arguments, exit_on_stop_signals, listen
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable
from tfs_proxy.wire.header_names import TARGET_MODEL

if TYPE_CHECKING:
    from tfs_proxy.run.host.sockets import Listeners

DESCRIPTION = """\
Serve a TensorFlow model archive at /invocations, as Amazon SageMaker does.

MODEL is a model.tar.gz, a folder or an s3:// address of either; or a .keras or .h5 file, which is
laid out first, as `tfs-proxy pack` does. The default is SAGEMAKER_MODEL_URI, or
/opt/ml/model if that is not set. All other settings come from the environment: `tfs-proxy settings` lists
them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="model.tar.gz, folder, s3:// address or model file"
    )
    parser.add_argument(
        "--multi-model",
        metavar="FOLDER",
        help="serve every archive below this folder or s3:// address: a request names one in "
        f"{TARGET_MODEL}, and the first one loads it",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="for development: load a changed code/, model or archive at once, while the old one serves; "
        "TFS_PROXY_RELOAD=true",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="look each second for new versions and archives, and serve them once they are ready; "
        "TFS_PROXY_WATCH=true",
    )
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    exit_on_stop_signals()
    settings, listeners = listen(arguments.host, arguments.port)
    settings = settings.with_values(
        reload=settings.reload or arguments.reload, watch=settings.watch or arguments.watch
    )
    if settings.multi_model or arguments.multi_model is not None:
        return _serve_many(settings, listeners, arguments)
    import asyncio

    from tfs_proxy.run.archive_stacks import serve
    from tfs_proxy.run.opening import ServeRequest

    environ = inherited_environment()
    request = ServeRequest(arguments.model, arguments.model_server, environ, lay_out=_laid_out)
    return asyncio.run(serve(settings, listeners, request))


def _serve_many(settings: Settings, listeners: "Listeners", arguments: argparse.Namespace) -> int:
    import asyncio

    from tfs_proxy.run.many_models.models import serve_many
    from tfs_proxy.run.opening import ServeRequest

    refuse_one_model(arguments.model)
    refuse_following(settings)
    request = ServeRequest(None, arguments.model_server, inherited_environment(), lay_out=_laid_out)
    return asyncio.run(serve_many(settings, listeners, request, arguments.multi_model))


def _laid_out(
    model: str | None, workspace: Workspace, settings: Settings, cancelled: threading.Event
) -> str | None:
    from tfs_proxy.tools.pack.model_kinds import laid_out

    return laid_out(model, workspace, settings, cancelled)


def refuse_one_model(model: str | None) -> None:
    """Raises SettingsError if multi-model mode gets one archive."""
    if model is not None:
        raise SettingsError(
            f"{printable(model)} can't be served in multi-model mode, which gets its models by POST to "
            "/models, or from the folder behind --multi-model. Leave it out."
        )


def refuse_following(settings: Settings) -> None:
    """Raises SettingsError if multi-model mode should follow changes."""
    if settings.follows_changes:
        flag = "--reload (TFS_PROXY_RELOAD)" if settings.reload else "--watch (TFS_PROXY_WATCH)"
        raise SettingsError(
            f"{flag} can't be used in multi-model mode, which loads models anew by DELETE and POST to "
            "/models. Serve one archive, or leave it out."
        )
