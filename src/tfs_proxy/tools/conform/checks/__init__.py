"""The checks, one module for each group; `ALL` has them in the order in which they are listed."""

from tfs_proxy.tools.conform.check import Check
from tfs_proxy.tools.conform.checks import (
    batch,
    errors,
    headers,
    invocations,
    metrics,
    multi_model,
    ping,
    pipeline,
    start_stop,
    websockets,
)

GROUPS = (
    start_stop.GROUP,
    ping.GROUP,
    invocations.GROUP,
    headers.GROUP,
    errors.GROUP,
    websockets.GROUP,  # that of `streaming`, with both halves
    batch.GROUP,
    pipeline.GROUP,
    multi_model.GROUP,
    metrics.GROUP,
)
ALL: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.checks)
