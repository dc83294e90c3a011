"""Makes the control API of a run of many models: what answers for them, for the page and for the protocol."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tfs_proxy.multimodel.api import ModelsApi
from tfs_proxy.multimodel.console import ConsoleApi
from tfs_proxy.multimodel.description import DescriptionApi
from tfs_proxy.multimodel.model_stacks import ModelStacks
from tfs_proxy.multimodel.on_demand import OnDemandModels
from tfs_proxy.multimodel.registry import ModelRegistry
from tfs_proxy.multimodel.repository import LoadedModels
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.control_api import ControlApi, Measure, served_models
from tfs_proxy.supervisor.health.readiness import Readiness
from tfs_proxy.supervisor.open_inference.api import OpenInferenceApi
from tfs_proxy.supervisor.open_inference.statistics import InferenceTimes
from tfs_proxy.wire.routes import Route


def make_control_api(
    settings: Settings,
    readiness: Readiness,
    measure: Measure,
    times: Callable[[], InferenceTimes],
    registry: ModelRegistry,
    stacks: ModelStacks,
    on_demand: OnDemandModels | None,
    grpc_router: Path,
    log_routes: Sequence[Route],
) -> ControlApi:
    """The control API, not open yet; ``measure`` is what it answers to scrapes, ``times`` to statistics.

    Without ``on_demand``, only requests to load a model load one. The gRPC router listens on ``grpc_router``.
    """
    repository = LoadedModels(
        registry, stacks.versions, on_demand, settings.wait_time_seconds, is_published=settings.rest_api
    )
    protocol = OpenInferenceApi(readiness, repository, times, settings.version_labels, grpc_router)
    routes = (
        *log_routes,
        *DescriptionApi(settings, target_model=on_demand is not None).routes,
        *ModelsApi(registry, settings.request_timeout_seconds, on_demand, stacks.is_served).routes,
        *ConsoleApi(registry, stacks.versions, on_demand, settings).routes,
        *(protocol.routes if settings.publishes_open_inference else ()),
        served_models(repository.served),
    )
    return ControlApi(readiness, routes, measure=measure)
