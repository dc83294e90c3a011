"""CloudWatch's two calls by which the SDKs print the log of a transform job while they wait for it."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any

from msgspec import Struct, field

from tfs_proxy.tools.endpoint.aws_api import AwsError, refused
from tfs_proxy.tools.endpoint.operations import ACCOUNT, REGION

GROUP = "/aws/sagemaker/TransformJobs"
INSTANCE = "i-local"
ENGINE = "transform"
"""End of the name of a job's engine; its lines are in the stream that AWS calls data-log."""

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
        earliest, latest = parameters.get("startTime", 0), parameters.get("endTime", float("inf"))
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
        name = f"{job}/{INSTANCE}" + (f"/{'data-log' if part == ENGINE else part}" if part else "")
        self._streams.setdefault(name, LogStream(name)).add(line)

    def _describe(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._refuse_unknown(parameters)
        prefix, last = parameters.get("logStreamNamePrefix", ""), parameters.get("nextToken", "")
        names = sorted(name for name in self._streams if name.startswith(prefix) and name > last)
        most = parameters.get("limit", MOST_STREAMS)
        answer: dict[str, Any] = {"logStreams": [_described(self._streams[name]) for name in names[:most]]}
        return {**answer, "nextToken": names[most - 1]} if len(names) > most else answer

    def _events(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._refuse_unknown(parameters)
        name = parameters["logStreamName"]
        if name not in self._streams:
            raise AwsError("ResourceNotFoundException", f"The log stream {name} does not exist.")
        return self._streams[name].page(parameters)

    @staticmethod
    def _refuse_unknown(parameters: Mapping[str, Any]) -> None:
        group = parameters.get("logGroupName", GROUP)
        if group != GROUP:
            raise AwsError("ResourceNotFoundException", f"There is only {GROUP} here, and no {group}.")


def _described(stream: LogStream) -> Mapping[str, Any]:
    first, last = stream.events[0]["timestamp"], stream.events[-1]["timestamp"]
    return {
        "logStreamName": stream.name,
        "arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{GROUP}:log-stream:{stream.name}",
        "firstEventTimestamp": first,
        "lastEventTimestamp": last,
    }
