"""The rest of the group ``start-stop``: a container that can't serve, since its model folder is empty."""

import time
from http import HTTPStatus

from tfs_proxy.tools.conform.busy import said
from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.checks.start_stop import BETWEEN_SECONDS
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import RawRequest, ask_once
from tfs_proxy.tools.conform.starts import PING_SECONDS, log_end

GROUP = CheckGroup("start-stop", RuleSource.PING, Occasion.EMPTY_MODEL)
EMPTY_SECONDS = 60.0
"""Seconds to watch it: a container that finds no model says so soon."""


@GROUP.must(
    "With an empty model folder, a container that ends by itself ends with a status that is not 0.",
)
def empty_model_exit_status(judging: Judging) -> str | None:
    status = _end_of_empty(judging)
    if status is None:
        raise NotRun("it did not end by itself")
    if status == 0:
        raise Violation(
            expected="a status that is not 0",
            got=f"0{log_end(judging.container)}",
            mend="An exit status of 0 says that all is well: the platform shows no reason.",
        )
    return f"status {status}"


@GROUP.should(
    "With an empty model folder, a container that can't serve ends rather than waits.",
)
def empty_model_gives_up(judging: Judging) -> str | None:
    if _end_of_empty(judging) is None and not _serves_without_model(judging):
        raise Violation(
            expected="its end, with a status and a reason in the log",
            got="it runs on and answers no good request",
            mend="End if the model can't be loaded: a transform job waits 30 minutes for ping.",
        )
    return None


@GROUP.should(
    "With an empty model folder, ping is not 200 while a good request fails.",
)
def empty_model_not_healthy(judging: Judging) -> str | None:
    if _end_of_empty(judging) is not None:
        return "it ended"
    ping = said(lambda: ask_once(judging.container.address, RawRequest(), PING_SECONDS))
    if isinstance(ping, str) or ping.status != HTTPStatus.OK or _serves_without_model(judging):
        return None
    raise Violation(
        expected="another status than 200 from ping",
        got="200, and an error for the good request",
        mend="Let ping answer 503 until the model is loaded.",
    )


def _end_of_empty(judging: Judging) -> int | None:
    """The exit status, or None if it goes on: until it is ready, or for as long as a start may take."""
    container = judging.container
    deadline = container.started + min(judging.options.start_seconds, EMPTY_SECONDS)
    while (status := container.exit_status()) is None and time.monotonic() < deadline:
        reply = said(lambda: ask_once(container.address, RawRequest(), PING_SECONDS))
        if not isinstance(reply, str) and reply.status == HTTPStatus.OK:
            return None
        time.sleep(BETWEEN_SECONDS)
    return status


def _serves_without_model(judging: Judging) -> bool:
    if judging.known.good is None:
        raise NotRun("no good request is known: use --requests")
    request, container = judging.request(judging.known.good), judging.container
    reply = said(lambda: ask_once(container.address, request, judging.options.answer_seconds))
    return not isinstance(reply, str) and reply.is_good
