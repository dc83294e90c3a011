"""The group ``start-stop``: from ``docker run IMAGE serve`` to the end after SIGTERM."""

import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import cast

from tfs_proxy.tools.conform.busy import said
from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.occasions import MAX_ENTRIES, snapshot
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest, ask_once
from tfs_proxy.tools.conform.target import PING_SECONDS, StartFailed, log_end, wait_for_end

GROUP = CheckGroup("start-stop", RuleSource.START_AND_STOP)
PINGS, BETWEEN_SECONDS = 10, 0.1
STOPPED = frozenset({0, 143})
SHELLS = frozenset({"sh", "bash", "dash", "ash"})
BEGUN_SECONDS = 0.3
EARLY_SECONDS = 0.2


@GROUP.must("The container that is started with `serve` keeps running, and listens.")
def starts(judging: Judging) -> None:
    judging.need_start()
    try:
        _ = judging.start
    except StartFailed as error:
        raise Violation(
            expected="a process that listens",
            got=str(error),
            mend="Its log says more: is `serve` understood?",
        ) from None


@GROUP.should("How long after the start the port opens; it is reported, not judged.", RuleSource.INVOCATIONS)
def port_opens(judging: Judging) -> str:
    judging.need_start()
    start = judging.start
    if not start.container.accepts_itself:
        raise NotRun("Docker's proxy opens the port before the container does")
    return f"{start.open_seconds:.2f} s after the start"


@GROUP.must("GET /ping answers 200 within the start-up window (--start-timeout).", RuleSource.PING)
def ready_in_time(judging: Judging) -> str:
    judging.need_start()
    start = judging.start
    if start.ready_seconds is None:
        raise Violation(
            expected=f"200 of ping within {judging.options.start_seconds:.0f} s",
            got=start.ping or "no answer",
        )
    return f"{start.ready_seconds:.2f} s after the start"


@GROUP.must("Once it is ready, ping goes on to answer 200.", RuleSource.PING)
def stays_ready(judging: Judging) -> None:
    for _ in range(PINGS):
        judging.ping()
        time.sleep(BETWEEN_SECONDS)


@GROUP.should("ENTRYPOINT of the image is in exec form, so that `serve` and SIGTERM arrive.")
def exec_form(judging: Judging) -> str:
    entrypoint = _entrypoint(judging)
    if len(entrypoint) > 1 and PurePosixPath(entrypoint[0]).name in SHELLS and entrypoint[1] == "-c":
        raise Violation(
            expected='ENTRYPOINT ["program", "argument"]',
            got=" ".join(entrypoint),
            mend="The shell is process 1 here: it drops `serve`, and does not pass SIGTERM on.",
        )
    return " ".join(entrypoint) or "none: `serve` is the program"


@GROUP.should("ENTRYPOINT of the image is not tini, which takes `serve` for its own.")
def no_tini(judging: Judging) -> None:
    entrypoint = _entrypoint(judging)
    if entrypoint and PurePosixPath(entrypoint[0]).name in {"tini", "tini-static"}:
        raise Violation(expected="another entry point", got=" ".join(entrypoint))


@GROUP.must(
    "It starts and answers with a model folder that is read-only, and changes nothing in it.",
    RuleSource.MODEL,
    Occasion.READ_ONLY,
)
def read_only_model(judging: Judging) -> None:
    _ = judging.container
    folder = judging.order.model
    before = snapshot(folder) if folder else {}
    _expect_answers(judging, "with a read-only model folder")
    after = snapshot(folder) if folder else {}
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if changed:
        raise Violation(
            expected="a model folder that stays as it is",
            got=f"{len(changed)} files that were written or removed, such as {changed[0]}",
            mend="Write to /tmp instead.",
        )


@GROUP.must("It starts with an environment of 100 entries, 32 KB together.", occasion=Occasion.ENVIRONMENT)
def environment_of_100(judging: Judging) -> None:
    _expect_answers(judging, f"with {MAX_ENTRIES} variables")


@GROUP.should("Its log is on stdout or stderr.")
def logs(judging: Judging) -> str:
    judging.need_start()
    written = len(judging.start.container.log())
    if not written:
        raise Violation(
            expected="lines on stdout or stderr, which go to CloudWatch",
            got="nothing so far",
            mend="Log to the streams, not to files.",
        )
    return f"{written} bytes so far"


@GROUP.should("Pings, one every five seconds, do not fill the log.")
def pings_not_logged(judging: Judging) -> None:
    judging.need_start()
    container = judging.start.container
    before = container.log().count(b"\n")
    for _ in range(PINGS):
        judging.ping()
        time.sleep(BETWEEN_SECONDS)
    lines = container.log().count(b"\n") - before
    if lines >= PINGS:
        raise Violation(
            expected=f"no line for each of {PINGS} pings",
            got=f"{lines} lines",
            mend="Leave /ping out of the access log: there are 17,000 of them a day.",
        )


@GROUP.should("SIGTERM while it starts ends it within 30 s.", occasion=Occasion.STARTING)
def sigterm_while_starting(judging: Judging) -> str:
    container = judging.container
    time.sleep(EARLY_SECONDS)
    container.terminate()
    began = time.monotonic()
    if wait_for_end(container, judging.options.stop_seconds) is None:
        raise Violation(expected="its end within 30 s", got=f"it still runs{log_end(container)}")
    return f"{time.monotonic() - began:.1f} s after SIGTERM"


@GROUP.should("A request in flight at SIGTERM is answered.", occasion=Occasion.STOPPING)
def sigterm_drains(judging: Judging) -> str:
    replies: list[RawReply | str] = []
    request = judging.request(judging.known.slow or judging.good)
    container, seconds = judging.start.container, judging.options.answer_seconds
    client = threading.Thread(
        target=lambda: replies.append(said(lambda: ask_once(container.address, request, seconds)))
    )
    client.start()
    client.join(BEGUN_SECONDS)
    was_in_flight = client.is_alive()
    _terminate_once(judging)
    client.join()
    reply = replies[0]
    if isinstance(reply, str) or not reply.is_good:
        raise Violation(
            expected="an answer to the request that it had when SIGTERM came",
            got=reply if isinstance(reply, str) else reply.shown(),
            mend="On SIGTERM stop to accept, answer what is there, then end: 30 s are left.",
        )
    return (
        "answered" if was_in_flight else "it was answered before SIGTERM: give a slow request to judge this"
    )


@GROUP.must("It ends within 30 s of SIGTERM.", occasion=Occasion.STOPPING)
def sigterm_exits(judging: Judging) -> str:
    _ = judging.start
    seconds, status = _end(judging)
    if status is None:
        raise Violation(
            expected="its end within 30 s of SIGTERM",
            got="it still runs, and SageMaker would kill it",
            mend="Process 1 has no default handler of signals: install one; use ENTRYPOINT in exec form.",
        )
    return f"{seconds:.1f} s after SIGTERM"


@GROUP.should("The exit status after SIGTERM is 0 or 143.", occasion=Occasion.STOPPING)
def sigterm_exit_status(judging: Judging) -> str:
    _ = judging.start
    _, status = _end(judging)
    if status is None:
        raise NotRun("it did not end")
    if status not in STOPPED:
        raise Violation(expected="0, or 143 for SIGTERM", got=f"{status}{log_end(judging.container)}")
    return f"{status}"


def _expect_answers(judging: Judging, how: str) -> None:
    """Raises Violation unless it starts, is ready and answers the good request, if one is known."""
    judging.expect_ready(how)
    if judging.known.good:
        expect_good(judging.post(judging.known.good))


def _entrypoint(judging: Judging) -> Sequence[str]:
    image = judging.target.image()
    if image is None:
        raise NotRun("there is no image to look into: use --image")
    return cast("Sequence[str]", image.get("Entrypoint") or ())


def _terminate_once(judging: Judging) -> None:
    if judging.observed.terminated is None:
        judging.observed.terminated = time.monotonic()
        judging.container.terminate()


def _end(judging: Judging) -> tuple[float, int | None]:
    """Sends SIGTERM if none was sent; returns the seconds until the end, and the exit status."""
    _terminate_once(judging)
    began = judging.observed.terminated or time.monotonic()
    status = wait_for_end(judging.container, began + judging.options.stop_seconds - time.monotonic())
    return time.monotonic() - began, status


EMPTY_SECONDS = 60.0
"""Seconds to watch it: a container that finds no model says so soon."""


@GROUP.must(
    "With an empty model folder, a container that ends by itself ends with a status that is not 0.",
    RuleSource.PING,
    Occasion.EMPTY_MODEL,
)
def empty_model_exit_status(judging: Judging) -> str:
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
    RuleSource.PING,
    Occasion.EMPTY_MODEL,
)
def empty_model_gives_up(judging: Judging) -> None:
    if _end_of_empty(judging) is None and not _serves_without_model(judging):
        raise Violation(
            expected="its end, with a status and a reason in the log",
            got="it runs on and answers no good request",
            mend="End if the model can't be loaded: a transform job waits 30 minutes for ping.",
        )


@GROUP.should(
    "With an empty model folder, ping is not 200 while a good request fails.",
    RuleSource.PING,
    Occasion.EMPTY_MODEL,
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
