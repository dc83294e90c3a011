"""The stages of a request as the header ``Server-Timing``, for clients that ask for it."""

import time

from tfs_proxy.observe.request_record import STAGES, WAIT, RequestRecord

SERVER_TIMING = "Server-Timing"


def server_timing(record: RequestRecord) -> str:
    """The stages that the request has passed so far, in milliseconds, and how long it took until now."""
    timed = [(name, seconds) for name, seconds in zip(STAGES, record.seconds, strict=True) if seconds]
    timed.append(("total", record.seconds[WAIT] + time.perf_counter() - record.began))
    return ", ".join(f"{name};dur={1000 * seconds:.2f}" for name, seconds in timed)
