"""CloudWatch's calls for the log of a transform job."""

import pytest

from tfs_proxy.tools.endpoint.aws_api import AwsError
from tfs_proxy.tools.endpoint.log_streams import GROUP, MOST_LINES, LogStreams


def heard(**lines: int) -> LogStreams:
    """Streams of the job ``j``, whose processes have printed so many lines."""
    streams = LogStreams({"j"})
    for part, count in lines.items():
        for number in range(count):
            streams.hear(f"j/{part}", f"line {number}")
    return streams


def test_pages_go_on_where_the_last_ended() -> None:
    """A token stays good while nothing is added, and after old lines have been dropped."""
    streams = heard(primary=3)
    asked = {"logGroupName": GROUP, "logStreamName": "j/i-local/primary", "startFromHead": True}
    events = streams.calls["GetLogEvents"]

    page = events({**asked, "limit": 2})
    assert [each["message"] for each in page["events"]] == ["line 0", "line 1"]
    page = events({**asked, "nextToken": page["nextForwardToken"]})
    assert [each["message"] for each in page["events"]] == ["line 2"]
    page = events({**asked, "nextToken": page["nextForwardToken"]})
    assert page["events"] == []
    for _ in range(MOST_LINES + 5):
        streams.hear("j/primary", "more")
    assert (
        len(events({**asked, "nextToken": page["nextForwardToken"], "limit": 10_000})["events"]) == MOST_LINES
    )
    assert [each["message"] for each in events({**asked, "startFromHead": False, "limit": 1})["events"]] == [
        "more"
    ]


def test_streams_are_those_of_jobs_and_can_be_paged() -> None:
    streams = heard(primary=1, transform=1, second=1)
    streams.hear("variant/1", "of an endpoint")
    describe = streams.calls["DescribeLogStreams"]

    first = describe({"logGroupName": GROUP, "logStreamNamePrefix": "j/", "limit": 2})
    second = describe({"logGroupName": GROUP, "logStreamNamePrefix": "j/", "nextToken": first["nextToken"]})

    names = [each["logStreamName"] for page in (first, second) for each in page["logStreams"]]
    assert names == ["j/i-local/data-log", "j/i-local/primary", "j/i-local/second"]
    assert "nextToken" not in second


@pytest.mark.parametrize(
    "members",
    [
        {"logGroupName": "/aws/other", "logStreamName": "j/i-local/primary"},
        {"logGroupName": GROUP, "logStreamName": "none"},
        {"logGroupName": GROUP, "logStreamName": "j/i-local/primary", "nextToken": "f/x"},
    ],
)
def test_what_is_not_there_is_refused(members: dict[str, str]) -> None:
    with pytest.raises(AwsError):
        heard(primary=1).calls["GetLogEvents"](members)
