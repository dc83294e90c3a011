"""How many processes and threads there will be, in one line of the start-up report."""

from tfs_proxy.settings import Settings

WORKERS_VARIABLE = "SAGEMAKER_GUNICORN_WORKERS"


def capacity(settings: Settings, *, models: bool) -> str:
    """Workers, model servers, their threads and batches; only workers if there are no ``models``."""
    threads = (
        f" of {settings.gunicorn_threads} threads" if settings.gunicorn_worker_class == "gthread" else ""
    )
    workers = (
        f"{_count(settings.gunicorn_workers, 'worker')} ({settings.gunicorn_worker_class}){threads}, "
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
