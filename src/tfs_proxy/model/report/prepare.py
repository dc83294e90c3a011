"""Blocking part of start-up: fetches and opens the archive, finds models, writes the report."""

import threading
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.model.discover import base_paths, refuse_unreadable, unreadable
from tfs_proxy.model.fetch import fetch
from tfs_proxy.model.graph_ops import graph_size
from tfs_proxy.model.report.first_request import FirstRequest, first_request
from tfs_proxy.model.report.served import Served, look_into
from tfs_proxy.model.report.serving_flags import ServingFlags
from tfs_proxy.model.report.startup import describe
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import ServedModel
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, ScriptLoadError, SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable

CALLERS_THREAD: Final = -1
MOST_NODES: Final = 1000
MOST_WEIGHT_BYTES: Final = 4 * 1024 * 1024


def with_graph_threads(settings: Settings, served: Served) -> Settings:
    """Sets inter-op threads for the served graphs, unless the user has set them.

    Only if all graphs are small. Batches gain from the pool, whether the model server or a batch job makes
    them. Raises DiscoveryError if a saved_model.pb is damaged.
    """
    chosen_or_batches = (
        settings.inter_op_parallelism is not None or settings.enable_batching or settings.batch
    )
    if chosen_or_batches or settings.loaded_as is not None or not served.models:
        return settings
    threads, reason = _chosen(path for model in served.models for path in model.versions.values())
    return settings.with_values(inter_op_parallelism=threads, inter_op_reason=reason)


def _chosen(folders: Iterable[Path]) -> tuple[int | None, str]:
    """Inter-op threads, None for the default; and the reason as a phrase."""
    nodes = 0
    weight_bytes = 0
    for folder in folders:
        size = graph_size(folder, MOST_NODES)
        if size is None:
            return None, "a graph in text form is not measured"
        if size.nodes > MOST_NODES:
            return None, f"a graph has more than {MOST_NODES} nodes"
        if size.weight_bytes > MOST_WEIGHT_BYTES:
            return None, f"a graph has {size.weight_bytes / 1e6:.1f} MB of weights"
        if size.heavy:
            return None, "a graph convolves or decodes pictures"
        nodes = max(nodes, size.nodes)
        weight_bytes = max(weight_bytes, size.weight_bytes)
    return CALLERS_THREAD, (
        f"a graph of {nodes} nodes and {weight_bytes / 1e6:.1f} MB runs on its request's thread"
    )


class Prepared(Struct, frozen=True):
    """Opened archive: its contents, and its models as the model server reads them."""

    settings: Settings
    """Settings of the run, sized for these models."""

    served: Served
    """Contents of the archive."""

    models: tuple[ServedModel, ...]
    """Models with the folders in which the model server finds them."""

    report: tuple[str, ...]
    """Lines to show at the start."""

    warnings: tuple[str, ...]
    """Lines to show as warnings."""

    script_fault: str | None
    """Sentence that says why the script can't be used; None if it can."""

    first_request: FirstRequest
    """Request that the model should answer."""

    flags: ServingFlags | None = None
    """Flags of the model server if they, and not an archive, say what to serve; else None."""

    one_line: str = ""
    """Report in one line, for a list of archives."""

    load_faults: tuple[str, ...] = ()
    """Those of the ``model_faults`` that keep `serve` from starting."""

    model_faults: tuple[str, ...] = ()
    """Warnings about models that can answer no request."""

    def refuse_unusable_script(self) -> None:
        """Raises ScriptLoadError if the report found that the script can't be used."""
        if self.script_fault is not None:
            raise ScriptLoadError(self.script_fault)


def prepare(
    model: str | None,
    settings: Settings,
    workspace: Workspace,
    environ: Mapping[str, str],
    cancelled: threading.Event | None = None,
) -> Prepared:
    """Opens ``model`` and finds its models or script.

    Raises ArchiveError, DiscoveryError, SettingsError, or ScriptLoadError for a script that is
    not valid Python; CancelledError once another thread has set ``cancelled``.
    """
    refuse_multi_model(settings)
    check_worker_class(settings)
    try:
        root = fetch(model, workspace, cancelled)
        served = look_into(root, settings)
        refuse_unreadable(path for model in served.models for path in model.files())
        settings = settings.sized_for(sum(model.bytes_on_disk for model in served.models))
        settings = with_graph_threads(settings, served)
        bases = base_paths(served.models, workspace.root / "models")
        report = describe(served, settings, environ)
    except (ArchiveError, DiscoveryError, ScriptLoadError) as error:
        raise type(error)(printable(without_workspace(str(error), workspace))) from error
    except PermissionError as error:
        raise ArchiveError(printable(unreadable(Path(error.filename), error))) from error
    models = tuple(
        ServedModel(model.name, bases[model.name], tuple(sorted(model.versions))) for model in served.models
    )
    versions = {version for model in models for version in model.versions}
    # Labels of a run with many archives are for those that have such versions.
    for label, version in settings.version_labels.items() if settings.loaded_as is None else ():
        if version not in versions:
            existing = ", ".join(map(str, sorted(versions))) or "none, because there is no model"
            raise SettingsError(
                f"SAGEMAKER_TFS_VERSION_LABELS={label}={version} can't be used: "
                f"no model has version {version}; existing versions: {existing}."
            )
    return Prepared(
        settings=settings,
        served=served,
        models=models,
        report=tuple(report.lines()),
        one_line=report.one_line(),
        warnings=tuple(report.warning_lines()),
        script_fault=report.script_fault,
        load_faults=tuple(printable(fault) for fault in report.load_faults),
        model_faults=tuple(printable(fault) for fault in report.model_faults),
        first_request=first_request(served, report.models, rest_api=settings.rest_api),
    )


def without_workspace(text: str, workspace: Workspace) -> str:
    """Name files in ``text`` as in the archive, since the workspace is removed at the end."""
    for folder in (workspace.model, workspace.root / "download"):
        text = text.replace(f"{folder}/", "").replace(str(folder), "the archive")
    return text


def refuse_multi_model(settings: Settings) -> None:
    """Raises SettingsError if multi-model mode is requested."""
    if settings.multi_model:
        raise SettingsError(
            "SAGEMAKER_MULTI_MODEL=true can't be used here: `tfs-proxy serve` alone serves many models."
        )


def check_worker_class(settings: Settings) -> None:
    """Raises SettingsError if the worker class needs a library that is not installed."""
    if settings.gunicorn_worker_class == "gevent" and find_spec("gevent") is None:
        raise SettingsError(
            "SAGEMAKER_GUNICORN_WORKER_CLASS=gevent can't be used: gevent is not installed. "
            "Install it (pip install gevent), or take gthread."
        )
