"""How many processes and threads there will be, in one line of the start-up report."""

from tfs_proxy.deployment import Deployment
from tfs_proxy.layout import recorded_requests
from tfs_proxy.settings import Settings

WORKERS_VARIABLE = "SAGEMAKER_GUNICORN_WORKERS"


def starts_on_demand(settings: Settings) -> bool:
    """Whether workers start once requests need them; whoever sets their number gets all of them."""
    is_one_of_many = settings.loaded_as is not None
    have_own_sockets = settings.nginx and settings.gunicorn_worker_class == "gthread" and not is_one_of_many
    is_chosen = WORKERS_VARIABLE in settings.given or settings.reload
    has_limit = settings.adaptive_limit_seconds is not None  # it is learnt for all workers at once
    is_several = settings.gunicorn_workers > 1 and settings.gunicorn_threads > 1
    return have_own_sockets and is_several and not has_limit and not is_chosen


def workers_at_first(settings: Settings, deployment: Deployment) -> int | None:
    """How many workers there are before any request; None if they do not start on demand.

    None are there if nginx can answer plain JSON alone, unless recorded requests are to warm one up. The
    first request for a worker takes 0.1 s more then, and a run without one 27 MB less.
    """
    if not starts_on_demand(settings):
        return None
    every_request_needs_one = (
        deployment.script or deployment.default_accept or deployment.capture or deployment.traces
    )
    warms_up = recorded_requests(deployment.graph_folders.get(deployment.default_model))
    return 1 if every_request_needs_one or warms_up else 0


def capacity(settings: Settings, *, models: bool, on_demand: bool) -> str:
    """Workers, model servers, their threads and batches; only workers if there are no ``models``.

    If workers start ``on_demand``, there may be fewer.
    """
    threads = (
        f" of {settings.gunicorn_threads} threads" if settings.gunicorn_worker_class == "gthread" else ""
    )
    most = "up to " if on_demand else ""
    workers = (
        f"{most}{_count(settings.gunicorn_workers, 'worker')} ({settings.gunicorn_worker_class}){threads}, "
        f"{_why_so_many(settings)}"
    )
    if not models:
        return workers
    servers = _count(settings.instance_count, "model server")
    intra = settings.intra_op_parallelism or "auto"
    inter = settings.inter_op_parallelism or settings.machine.tensorflow_threads or "auto"
    if settings.inter_op_reason:
        inter = f"{inter} ({settings.inter_op_reason})"
    return f"{workers}; {servers}, intra-op {intra}, inter-op {inter}, {_batching(settings)}"


def _why_so_many(settings: Settings) -> str:
    if WORKERS_VARIABLE in settings.given:
        return f"set by {WORKERS_VARIABLE}"
    return settings.machine.workers.reason


def _batching(settings: Settings) -> str:
    if not settings.enable_batching:
        return "no batching"
    return (
        f"batches of up to {settings.max_batch_size} records after {settings.batch_timeout_micros} µs, "
        f"{settings.num_batch_threads} at a time, {settings.max_enqueued_batches} waiting"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
