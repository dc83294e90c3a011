"""Transform jobs: their queue, their states, their logs, and AWS's calls for all of these."""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from botocore.model import StructureShape
from msgspec import Struct, field

from tfs_proxy.run.process import ChildProcess
from tfs_proxy.tools.endpoint.aws_api import (
    CONTROL_PLANE,
    IN_USE,
    NOT_FOUND,
    AwsError,
    operation_model,
    refused,
)
from tfs_proxy.tools.endpoint.catalogue import Catalogue, listed
from tfs_proxy.tools.endpoint.job_request import JobRequest
from tfs_proxy.tools.endpoint.job_run import ENGINE, HOP, JobRun
from tfs_proxy.tools.endpoint.operations import ACCOUNT, JOB, REGION, OperationRequest, arn
from tfs_proxy.values.errors import StopServing
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

IN_PROGRESS = "InProgress"
COMPLETED = "Completed"
FAILED = "Failed"
STOPPING = "Stopping"
STOPPED = "Stopped"

LONGEST_REASON = 1024
"""Characters of a FailureReason (botocore's model)."""

OPERATION = "CreateTransformJob"

log = logging.getLogger(__name__)


class TransformJob:
    """A job and its state: ``status`` is AWS's TransformJobStatus, and times are in seconds since 1970."""

    def __init__(self, request: JobRequest) -> None:
        self.name = request.name
        self.request = request
        self.status = IN_PROGRESS
        self.failure_reason = ""
        self.changed = request.created
        self.started: float | None = None
        self.ended: float | None = None
        self.work: JobRun | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, new_run: Callable[[JobRequest], JobRun], slots: asyncio.Semaphore) -> None:
        """Queues the job for one of the ``slots``."""
        self._task = asyncio.create_task(self._run(new_run, slots))
        self._task.add_done_callback(lambda task: self._end(STOPPED) if task.cancelled() else None)

    async def _run(self, new_run: Callable[[JobRequest], JobRun], slots: asyncio.Semaphore) -> None:
        if slots.locked():
            log.info("transform job %s waits for the others: --jobs says how many run at once", self.name)
        try:
            async with slots:
                self.started = time.time()
                self._change(IN_PROGRESS)
                self.work = new_run(self.request)
                await self.work.run()
            self._end(COMPLETED)
        except StopServing as error:
            self._end(FAILED, str(error))
        except Exception:
            log.exception("transform job %s failed", self.name)
            self._end(FAILED, "The endpoint failed; its log has the reason.")

    def stop(self) -> None:
        """Lets the job end soon; does nothing to one that has ended."""
        if self.status == IN_PROGRESS and self._task is not None:
            self._change(STOPPING)
            self._task.cancel()

    async def wait(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})

    def _end(self, status: str, reason: str = "") -> None:
        self.ended = time.time()
        self._change(status, reason)

    def _change(self, status: str, reason: str = "") -> None:
        self.status = status
        self.failure_reason = reason[:LONGEST_REASON]
        self.changed = time.time()
        level = logging.ERROR if status == FAILED else logging.INFO
        log.log(level, "transform job %s: %s%s", self.name, status, f": {reason}" if reason else "")

    def described(self) -> dict[str, Any]:
        """The members of DescribeTransformJob."""
        times = {"TransformStartTime": self.started, "TransformEndTime": self.ended}
        answer = {**self.request.parameters, **self.summary(), **times}
        shape = operation_model(CONTROL_PLANE, "DescribeTransformJob").output_shape
        members = shape.members if isinstance(shape, StructureShape) else {}
        return {name: answer[name] for name in members if answer.get(name) is not None}

    def summary(self) -> dict[str, Any]:
        """The members of one of ListTransformJobs."""
        answer = {
            "TransformJobName": self.name,
            "TransformJobArn": arn(JOB, self.name),
            "CreationTime": self.request.created,
            "TransformEndTime": self.ended,
            "LastModifiedTime": self.changed,
            "TransformJobStatus": self.status,
            "FailureReason": self.failure_reason or None,
        }
        return {name: value for name, value in answer.items() if value is not None}


class TransformJobs:
    """All jobs by name, of which ``at_once`` run; ``new_run`` makes the work of one."""

    def __init__(self, catalogue: Catalogue, new_run: Callable[[JobRequest], JobRun], at_once: int) -> None:
        self._catalogue = catalogue
        self._new_run = new_run
        self._slots = asyncio.Semaphore(at_once)
        self._jobs: dict[str, TransformJob] = {}
        self.calls: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            OPERATION: self._create,
            "DescribeTransformJob": lambda parameters: self._known(parameters).described(),
            "ListTransformJobs": self._list,
            "StopTransformJob": self._stop,
        }

    def start_all(self) -> None:
        """Starts the jobs that the catalogue has and that are not started yet."""
        for name, request in self._catalogue.jobs.items():
            if name not in self._jobs:
                job = self._jobs[name] = TransformJob(request)
                job.start(self._new_run, self._slots)

    async def hop(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a request of a job's engine; None if it is none."""
        match = HOP.fullmatch(request.path)
        job = self._jobs.get(match[1]) if match else None
        if job is None or job.work is None or job.ended is not None:
            return None
        return await job.work.hop(request)

    def children(self) -> Iterator[ChildProcess]:
        for job in self._jobs.values():
            if job.work is not None and job.ended is None:
                yield from job.work.children()

    async def stop(self) -> None:
        """Stops all jobs, and returns once they have ended."""
        for job in self._jobs.values():
            job.stop()
        await asyncio.gather(*(job.wait() for job in self._jobs.values()))

    def _create(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        name = parameters["TransformJobName"]
        if name in self._jobs:
            taken = f"a job with this name already exists ({arn(JOB, name)})"
            raise AwsError(IN_USE, f"Job name must be unique within an AWS account and region, and {taken}.")
        self._catalogue.create(OperationRequest(OPERATION, parameters, OPERATION, Path.cwd()))
        self.start_all()
        return {"TransformJobArn": arn(JOB, name)}

    def _stop(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        job = self._known(parameters)
        if job.status != IN_PROGRESS:
            raise refused(f"The transform job {job.name} can't be stopped: its status is {job.status}.")
        job.stop()
        return {}

    def _known(self, parameters: Mapping[str, Any]) -> TransformJob:
        name = parameters["TransformJobName"]
        if name not in self._jobs:
            raise AwsError(NOT_FOUND, f"Could not find transform job {name}.")
        return self._jobs[name]

    def _list(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return listed(
            "TransformJobSummaries", JOB, [job.summary() for job in self._jobs.values()], parameters
        )


GROUP = "/aws/sagemaker/TransformJobs"
NO_LOG = "ResourceNotFoundException"
INSTANCE = "i-local"
MOST_LINES = 5000
MOST_STREAMS = 50
MOST_EVENTS = 1000

Event = Mapping[str, Any]


class LogStream(Struct):
    """The last lines of one process; ``count`` is that of all, dropped ones too."""

    name: str
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    count: int = 0

    def add(self, line: str) -> None:
        now = int(1000 * time.time())
        self.events.append({"timestamp": now, "ingestionTime": now, "message": line})
        self.count += 1

    def page(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """The members of GetLogEvents; a token is the number of the next line. Raises AwsError."""
        first = self.count - len(self.events)
        most = parameters.get("limit", MOST_EVENTS)
        begin = first if parameters.get("startFromHead", False) else max(first, self.count - most)
        token = parameters.get("nextToken")
        if token is not None:
            if not token[2:].isdecimal():
                raise refused(f"nextToken {token} is none that GetLogEvents has ended with.")
            begin = max(first, int(token[2:]))
        earliest = parameters.get("startTime", 0)
        latest = parameters.get("endTime", float("inf"))
        events = list(itertools.islice(self.events, begin - first, begin - first + most))
        return {
            "events": [each for each in events if earliest <= each["timestamp"] < latest],
            "nextForwardToken": f"f/{begin + len(events)}",
            "nextBackwardToken": f"b/{begin}",
        }


class LogStreams:
    """The streams of all ``jobs``, as CloudWatch names them."""

    def __init__(self, jobs: Container[str]) -> None:
        self._jobs = jobs
        self._streams: dict[str, LogStream] = {}
        self.calls: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "DescribeLogStreams": self._describe,
            "GetLogEvents": self._events,
        }

    def hear(self, process: str, line: str) -> None:
        """Keeps a line of a job's process, whose name is that of the job, or ends with that of its part."""
        job, _, part = process.partition("/")
        if job not in self._jobs:
            return
        name = f"{job}/{INSTANCE}"
        if part:
            name += "/data-log" if part == ENGINE else f"/{part}"
        self._streams.setdefault(name, LogStream(name)).add(line)

    def _describe(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._refuse_unknown(parameters)
        prefix = parameters.get("logStreamNamePrefix", "")
        last = parameters.get("nextToken", "")
        names = sorted(name for name in self._streams if name.startswith(prefix) and name > last)
        most = parameters.get("limit", MOST_STREAMS)
        answer: dict[str, Any] = {"logStreams": [_described(self._streams[name]) for name in names[:most]]}
        return {**answer, "nextToken": names[most - 1]} if len(names) > most else answer

    def _events(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._refuse_unknown(parameters)
        name = parameters["logStreamName"]
        if name not in self._streams:
            raise AwsError(NO_LOG, f"The log stream {name} does not exist.")
        return self._streams[name].page(parameters)

    @staticmethod
    def _refuse_unknown(parameters: Mapping[str, Any]) -> None:
        group = parameters.get("logGroupName", GROUP)
        if group != GROUP:
            raise AwsError(NO_LOG, f"There is only {GROUP} here, and no {group}.")


def _described(stream: LogStream) -> Mapping[str, Any]:
    first = stream.events[0]["timestamp"]
    last = stream.events[-1]["timestamp"]
    return {
        "logStreamName": stream.name,
        "arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{GROUP}:log-stream:{stream.name}",
        "firstEventTimestamp": first,
        "lastEventTimestamp": last,
    }
