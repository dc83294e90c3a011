"""How many threads a model server answers REST with, for `model_server`: pure.

TensorFlow Serving gives each thread a queue of its own and searches them one by one, so each request costs
more the more there are: with two cores, 0.126 ms a tiny request with 16 threads, 0.166 ms with 256.
"""

from typing import Final

from tfs_proxy.settings import Settings

THREADS_PER_CORE: Final = 4
"""TensorFlow Serving's own default; a thread also waits, for the pool that runs its graph."""

FEWEST: Final = 16
"""On few cores, so that some requests may read and write their JSON while others compute."""

MOST_WITH_BATCHING: Final = 1024


def rest_threads(settings: Settings, *, script: bool, models: int) -> int:
    """The threads of one model server that has so many ``models``.

    Each caller gets one if there is a ``script``, which sends as many calls at a time, or if there are
    several models: requests that wait for one must not hold up the others. Else more than the cores keep
    busy are of no use, unless requests wait to be batched. Never more than the control group allows.
    """
    if settings.rest_threads is not None:
        return settings.rest_threads
    return min(_wanted(settings, script=script, models=models), settings.machine.most_threads)


def _wanted(settings: Settings, *, script: bool, models: int) -> int:
    enough = max(FEWEST, THREADS_PER_CORE * settings.machine.cores)
    if script or models != 1:
        return max(enough, settings.gunicorn_workers * settings.gunicorn_threads)
    if settings.enable_batching:
        # One set of batches runs while the next one fills.
        return max(enough, min(2 * settings.max_batch_size * settings.num_batch_threads, MOST_WITH_BATCHING))
    return enough
