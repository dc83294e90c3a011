"""``tfs-proxy serve``: serves a model archive, many of them, or several in a row, over HTTP."""

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import add_serving_arguments, exit_on_stop_signals, listen
from tfs_proxy.settings.settings import OF_THE_ADDRESS, Settings, inherited_environment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable
from tfs_proxy.wire.header_names import TARGET_MODEL

if TYPE_CHECKING:
    from tfs_proxy.run.host.sockets import Listeners
    from tfs_proxy.run.pipeline.stage import StageOrder

DESCRIPTION = """\
Serve a TensorFlow model archive at /invocations, as Amazon SageMaker does.

MODEL is a model.tar.gz, a folder or the address of either (s3://, gs://, az://; an archive at https://); or
a .keras or .h5 file, which is laid out first, as `tfs-proxy pack` does. The default is SAGEMAKER_MODEL_URI,
or /opt/ml/model if that is not set. All other settings come from the environment: `tfs-proxy settings` lists
them.

Several of them are an inference pipeline, as SageMaker's PipelineModel is: each is a stage, with a serving
stack of its own. The body and the Content-Type of its answer are the next stage's request; the client's
Accept goes to the last. All share this environment; --env sets a variable for one stage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="model.tar.gz, folder, address in a store or model file; 2 to 15 are a pipeline",
    )
    parser.add_argument(
        "--multi-model",
        metavar="FOLDER",
        help="serve every archive below this folder or prefix (s3://, gs://, az://): a request names one in "
        f"{TARGET_MODEL}, and the first one loads it",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="load what changes in code/, models or the archive while the old one serves; "
        "TFS_PROXY_RELOAD=true",
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="N:NAME=VALUE", help="a variable for stage N alone"
    )
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    exit_on_stop_signals()
    stages = stages_of(arguments)
    settings, listeners = listen(arguments.host, arguments.port)
    settings = settings.with_values(reload=settings.reload or arguments.reload)
    if settings.multi_model or arguments.multi_model is not None:
        return _serve_many(settings, listeners, arguments)
    if stages:
        return _serve_in_a_row(settings, listeners, stages, arguments.model_server)
    import asyncio

    from tfs_proxy.run.archive_stacks import serve
    from tfs_proxy.run.opening import ServeRequest

    model = arguments.models[0] if arguments.models else None
    request = ServeRequest(model, arguments.model_server, inherited_environment(), lay_out=_laid_out)
    return asyncio.run(serve(settings, listeners, request))


def stages_of(arguments: argparse.Namespace) -> "Sequence[StageOrder]":
    """The stages of a pipeline; none for one archive. Raises SettingsError for what can't be one."""
    archives: Sequence[str] = arguments.models
    if len(archives) <= 1:
        if arguments.env:
            raise SettingsError(f"--env {arguments.env[0]} is for a stage of a pipeline: serve A B.")
        return ()
    from tfs_proxy.run.pipeline.stage import MOST, StageOrder

    if len(archives) > MOST:
        raise SettingsError(f"a pipeline has 2 to {MOST} stages, not {len(archives)}.")
    if arguments.reload:
        raise SettingsError(
            "--reload follows one archive. In a pipeline, --env N:TFS_PROXY_RELOAD=true makes stage N do so."
        )
    stage_count = len(archives)
    variables: dict[str, dict[str, str]] = {str(number): {} for number in range(1, stage_count + 1)}
    for text in arguments.env:
        number, _, assignment = text.partition(":")
        name, equals, value = assignment.partition("=")
        if not (number in variables and name and equals):
            raise SettingsError(
                f"--env {text} can't be used: it must be N:NAME=VALUE, with N from 1 to {stage_count}."
            )
        if name in OF_THE_ADDRESS:
            raise SettingsError(
                f"--env {number}:{name} can't be used: it is about the address of the whole pipeline, and no "
                f"client calls stage {number}. Set it without --env."
            )
        variables[number][name] = value
    return [StageOrder(*each) for each in zip(archives, variables.values(), strict=True)]


def _serve_in_a_row(
    settings: Settings, listeners: "Listeners", stages: "Sequence[StageOrder]", model_server: str
) -> int:
    import asyncio

    from tfs_proxy.run.pipeline.row import serve_in_a_row

    return asyncio.run(serve_in_a_row(settings, listeners, stages, model_server, inherited_environment()))


def _serve_many(settings: Settings, listeners: "Listeners", arguments: argparse.Namespace) -> int:
    import asyncio

    from tfs_proxy.run.many_models.serve import serve_many
    from tfs_proxy.run.opening import ServeRequest

    refuse_archives(arguments.models)
    if settings.reload:
        raise SettingsError(
            "--reload (TFS_PROXY_RELOAD) can't be used in multi-model mode, which loads models anew by "
            "DELETE and POST to /models. Serve one archive, or leave it out."
        )
    request = ServeRequest(None, arguments.model_server, inherited_environment(), lay_out=_laid_out)
    return asyncio.run(serve_many(settings, listeners, request, arguments.multi_model))


def _laid_out(
    model: str | None, workspace: Workspace, settings: Settings, cancelled: threading.Event
) -> str | None:
    from tfs_proxy.tools.pack.lay_out import laid_out

    return laid_out(model, workspace, settings, cancelled)


def refuse_archives(models: Sequence[str]) -> None:
    """Raises SettingsError if multi-model mode gets archives."""
    if models:
        raise SettingsError(
            f"{printable(models[0])} can't be served in multi-model mode, which gets its models by POST to "
            "/models, or from the folder behind --multi-model. Leave it out."
        )
