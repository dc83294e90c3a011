"""Transform jobs by boto3's calls: their states, what reaches the containers, and what they leave behind."""

import contextlib
import datetime as dt
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.endpoints import Endpoint, refusal
from support.multi_model import script_model
from support.transform_command import outputs, posts, release, stand_in
from support.transform_jobs import completed, ended_job, job_request, written
from support.waiting import wait_until

SECONDS = 60.0
ENVIRONMENT_SCRIPT = """
import json
import os


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    names = ("MINE", "OF_MODEL", "SAGEMAKER_BATCH", "SAGEMAKER_BATCH_STRATEGY", "SAGEMAKER_MAX_PAYLOAD_IN_MB",
             "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS")
    return json.dumps({name: os.environ.get(name) for name in names}), "application/json"
"""


WITHOUT_HEADER = """
def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    return data.partition("\\n")[2], "text/csv"
"""


SLOW_SCRIPT = """
import time


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    time.sleep(0.3)
    return data, "text/csv"
"""


@pytest.fixture
def echo() -> Iterator[str]:
    with stand_in({"EXECUTION_PARAMETERS": "{}"}) as address:
        yield address


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with contextlib.closing(Endpoint()) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def client(endpoint: Endpoint, echo: str) -> Any:
    """A client of an endpoint that has the model ``m`` and no endpoint."""
    client = endpoint.control_plane
    client.create_model(ModelName="m", PrimaryContainer={"Image": echo})
    return client


def create_script_model(endpoint: Endpoint, folder: Path, script: str, **more: object) -> None:
    """The model ``m``, which is a script."""
    archive = script_model(folder / "model.tar.gz", script)
    endpoint.control_plane.create_model(
        ModelName="m", PrimaryContainer={"ModelDataUrl": str(archive), **more}
    )


def status_of(client: Any, name: str) -> str:
    return str(client.describe_transform_job(TransformJobName=name)["TransformJobStatus"])


@pytest.mark.usefixtures("client")
def test_job_writes_what_its_model_answers(endpoint: Endpoint, tmp_path: Path) -> None:
    """Without any endpoint; the description has every member of the request, and its times."""
    asked = job_request(
        "first",
        written(tmp_path / "in", a="1\n2\n").as_uri(),
        tmp_path / "out",
        ExperimentConfig={"TrialComponentDisplayName": "t"},
        Tags=[{"Key": "a", "Value": "b"}],
    )

    seen = completed(endpoint, asked)

    assert outputs(tmp_path / "out") == {"a.csv.out": b"1\n2\n"}
    assert {name: seen.get(name) for name in asked} == {**asked, "Tags": None}  # as AWS: ListTags has them
    assert seen["CreationTime"] <= seen["TransformStartTime"] <= seen["TransformEndTime"]


def test_failure_reason_has_the_container_s_own_words(
    endpoint: Endpoint, client: Any, tmp_path: Path
) -> None:
    """A bad record fails its object and so the job, as `tfs-proxy transform` says it; other objects are done."""
    source = written(tmp_path / "in", a="1\n2\n", b="1\nBAD\n")

    client.create_transform_job(**job_request("bad", source, tmp_path / "out", BatchStrategy="SingleRecord"))

    seen = ended_job(endpoint, "bad")
    reason = "b.csv, record 2 in line 2: status 400: this is bad"
    assert (seen["TransformJobStatus"], seen["FailureReason"]) == ("Failed", reason)
    assert f"[bad/transform] tfs-proxy: {reason}" in endpoint.log
    left = outputs(tmp_path / "out")
    assert (sorted(left), left["a.csv.out"]) == (["a.csv.out", "b.csv.err"], b"12")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("serve", "The container primary has ended with SIGKILL."),
        ("transform", "tfs-proxy transform was ended by SIGKILL."),
    ],
)
def test_job_whose_processes_are_killed_fails_and_the_next_goes_on(
    endpoint: Endpoint, program: str, reason: str, tmp_path: Path
) -> None:
    """Its finished objects stay, none is half there, and the processes of the job are gone."""
    create_script_model(endpoint, tmp_path, SLOW_SCRIPT)
    source = written(tmp_path / "in", **{f"f{number}": f"{number}\n" for number in range(9)})
    asked = job_request("killed", source, tmp_path / "out")
    endpoint.control_plane.create_transform_job(**asked)
    wait_until(
        lambda: outputs(tmp_path / "out"), SECONDS, "an object is finished", details=lambda: endpoint.log
    )

    os.kill(child_of(endpoint, program), signal.SIGKILL)

    seen = ended_job(endpoint, "killed")
    assert seen["TransformJobStatus"] == "Failed"
    assert seen["FailureReason"].startswith(reason)
    wait_until(lambda: not child_of(endpoint, "serve"), SECONDS, "the job's container is gone")
    completed(endpoint, {**asked, "TransformJobName": "next"})
    expected = {f"f{number}.csv.out": f"{number}\n".encode() for number in range(9)}
    assert {name: text for name, text in outputs(tmp_path / "out").items() if name in expected} == expected
    assert re.search(r"[1-9] finished before, 0 failed", endpoint.log)


def child_of(endpoint: Endpoint, command: str) -> int:
    """The process id of a child of the endpoint that runs this command of ours; 0 if none does."""
    for child in psutil.Process(endpoint.process.pid).children():
        with contextlib.suppress(psutil.Error):
            if command in child.cmdline():
                return child.pid
    return 0


def test_jobs_wait_for_each_other_and_can_be_stopped(
    endpoint: Endpoint, client: Any, echo: str, tmp_path: Path
) -> None:
    """One runs at a time; the next is InProgress without a start, as on AWS. A stopped one leaves no output."""
    source = written(tmp_path / "in", a="HELD\n")
    for name in ("running", "queued", "last"):
        client.create_transform_job(**job_request(name, source, tmp_path / name))
    wait_until(lambda: posts(echo) == 1, SECONDS, "the first job has sent its record")
    queued = client.describe_transform_job(TransformJobName="queued")
    assert (queued["TransformJobStatus"], "TransformStartTime" in queued) == ("InProgress", False)

    client.stop_transform_job(TransformJobName="queued")
    wait_until(lambda: status_of(client, "queued") == "Stopped", SECONDS, "the queued job is stopped")
    assert "TransformStartTime" not in client.describe_transform_job(TransformJobName="queued")

    client.stop_transform_job(TransformJobName="running")
    assert status_of(client, "running") == "Stopping"
    release(echo)
    assert ended_job(endpoint, "running")["TransformJobStatus"] == "Stopped"
    assert not (tmp_path / "running" / "a.csv.out").exists()
    assert ended_job(endpoint, "last")["TransformJobStatus"] == "Completed", endpoint.log
    assert "is Completed" in refusal(client.stop_transform_job, TransformJobName="last")[1]


def test_requests_that_aws_refuses(client: Any, echo: str, tmp_path: Path) -> None:
    """With AWS's codes and the names of its members."""
    asked = job_request("once", written(tmp_path / "in", a="1\n"), tmp_path / "out")
    client.create_transform_job(**asked)
    containers = [{"Image": echo, "ContainerHostname": name} for name in ("a", "b")]
    direct = {"Containers": containers, "InferenceExecutionConfig": {"Mode": "Direct"}}
    client.create_model(ModelName="direct", **direct)
    client.create_model(ModelName="many", PrimaryContainer={"Image": echo, "Mode": "MultiModel"})

    assert refusal(client.create_transform_job, **asked)[0] == "ResourceInUse"
    for call in (client.describe_transform_job, client.stop_transform_job):
        assert refusal(call, TransformJobName="none")[0] == "ResourceNotFound"
    for members, words in (
        ({"ModelName": "none"}, "ModelName none is unknown"),
        ({"ModelName": "direct"}, "Direct"),
        ({"ModelName": "many"}, "many models"),
        ({"MaxPayloadInMB": 50, "MaxConcurrentTransforms": 4}, "at most 100 MB"),
        ({"MaxPayloadInMB": 101}, "MaxPayloadInMB can't be 101"),
        ({"Environment": {f"V{n}": "" for n in range(17)}}, "Environment has 17 entries"),
        ({"DataProcessing": {"JoinSource": "Input"}}, "A join needs SplitType and AssembleWith"),
        ({"TransformInput": {**asked["TransformInput"], "SplitType": "Lines"}}, "SplitType"),
        ({"TransformOutput": {"S3OutputPath": "https://a/b"}}, "S3OutputPath https://a/b"),
    ):
        code, message = refusal(client.create_transform_job, **{**asked, "TransformJobName": "x", **members})
        assert (code, words in message) == ("ValidationException", True), message
    message = refusal(
        client.create_training_job,
        TrainingJobName="t",
        RoleArn="r" * 20,
        OutputDataConfig={"S3OutputPath": "s3://b"},
        ResourceConfig={"VolumeSizeInGB": 1},
        StoppingCondition={},
    )[1]
    assert "CreateTrainingJob is not answered here" in message
    assert "CreateTransformJob" in message


def test_list_filters_and_sorts(endpoint: Endpoint, client: Any, tmp_path: Path) -> None:
    source = written(tmp_path / "in", a="1\n")
    for name in ("one", "two", "three"):
        client.create_transform_job(**job_request(name, source, tmp_path / name))
    assert ended_job(endpoint, "three")["TransformJobStatus"] == "Completed"

    def names(**members: object) -> list[str]:
        listed = client.list_transform_jobs(**members)["TransformJobSummaries"]
        return [each["TransformJobName"] for each in listed]

    assert names() == ["three", "two", "one"]
    assert names(SortBy="Name", SortOrder="Ascending") == ["one", "three", "two"]
    assert names(NameContains="T") == ["three", "two"]
    assert names(StatusEquals="Failed") == []
    now = dt.datetime.now(dt.UTC)
    hour = dt.timedelta(hours=1)
    assert names(CreationTimeAfter=now - hour, LastModifiedTimeBefore=now + hour) == ["three", "two", "one"]
    assert names(CreationTimeAfter=now + hour) == names(LastModifiedTimeBefore=now - hour) == []


@pytest.mark.usefixtures("client")
def test_log_of_a_job_is_read_page_by_page(endpoint: Endpoint, tmp_path: Path) -> None:
    """By CloudWatch's calls, as the SDKs do; this container runs already, so that only the engine has lines."""
    completed(endpoint, job_request("j", written(tmp_path / "in", a="1\n"), tmp_path / "out"))
    asked = {"logGroupName": "/aws/sagemaker/TransformJobs", "logStreamName": "j/i-local/data-log"}
    logs = endpoint.logs

    listed = logs.describe_log_streams(logGroupName=asked["logGroupName"], logStreamNamePrefix="j/")
    assert [each["logStreamName"] for each in listed["logStreams"]] == [asked["logStreamName"]]
    whole = [each["message"] for each in logs.get_log_events(**asked, startFromHead=True)["events"]]
    first = logs.get_log_events(**asked, startFromHead=True, limit=2)
    rest = logs.get_log_events(**asked, nextToken=first["nextForwardToken"])
    assert [each["message"] for page in (first, rest) for each in page["events"]] == whole
    assert "1 object(s) done" in whole[-1]
    assert logs.get_log_events(**asked, nextToken=rest["nextForwardToken"])["events"] == []
    assert logs.get_log_events(**asked, limit=1)["events"][0]["message"] == whole[-1]
    nothing = {**asked, "logStreamName": "none"}
    assert refusal(logs.get_log_events, **nothing)[0] == "ResourceNotFoundException"
    assert refusal(logs.get_log_events, **asked, nextToken="f/x")[0] == "ValidationException"


def test_container_gets_the_variables_of_a_batch_job(endpoint: Endpoint, tmp_path: Path) -> None:
    """And those of the job's Environment, which win over the model's."""
    variables = {"MINE": "model's", "OF_MODEL": "yes"}
    create_script_model(endpoint, tmp_path, ENVIRONMENT_SCRIPT, Environment=variables)
    source = written(tmp_path / "in", a="1\n")

    more = {"BatchStrategy": "SingleRecord", "MaxPayloadInMB": 2, "Environment": {"MINE": "job's"}}
    completed(endpoint, job_request("j", source, tmp_path / "out", **more))

    assert json.loads((tmp_path / "out" / "a.csv.out").read_bytes()) == {
        "MINE": "job's",
        "OF_MODEL": "yes",
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": None,
    }


def test_joined_output_is_what_sagemaker_writes(endpoint: Endpoint, tmp_path: Path) -> None:
    """Without the header that `tfs-proxy transform` gives it."""
    create_script_model(endpoint, tmp_path, WITHOUT_HEADER)
    output = {"S3OutputPath": str(tmp_path / "out"), "Accept": "text/csv", "AssembleWith": "Line"}
    asked = job_request(
        "j",
        written(tmp_path / "in", a="id\n7\n"),
        tmp_path / "out",
        TransformInput={"ContentType": "text/csv; header=present"},
        DataProcessing={"JoinSource": "Input"},
    )

    completed(endpoint, asked | {"TransformOutput": output})

    assert outputs(tmp_path / "out") == {"a.csv.out": b"7,7\n"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_second_run_goes_on_where_the_first_was_ended(
    echo: str, tmp_path: Path, number: signal.Signals
) -> None:
    """By a file with the model and the job; what is finished is not sent again, and nothing is half there."""
    written(tmp_path / "in", a="1\n", b="HELD\n")
    config = tmp_path / "config.json"
    model = {"ModelName": "m", "PrimaryContainer": {"Image": echo}}
    config.write_text(json.dumps({"CreateModel": model, "CreateTransformJob": job_request("j", "in", "out")}))
    with contextlib.closing(Endpoint(str(config))) as first:
        wait_until(lambda: posts(echo) == 2, SECONDS, "both records are sent", details=lambda: first.log)
        first.process.send_signal(number)
        if number == signal.SIGTERM:
            first.wait_for_log("stopped; the same command continues from here")
            release(echo)
        first.wait()
        assert ("transform job j: Stopped" in first.log) == (number == signal.SIGTERM)
    assert outputs(tmp_path / "out").get("a.csv.out") == b"1\n"
    release(echo)
    before = posts(echo)

    with contextlib.closing(Endpoint(str(config))) as second:
        second.wait_ready()
        assert ended_job(second, "j")["TransformJobStatus"] == "Completed", second.log
    assert posts(echo) - before == 1
    assert outputs(tmp_path / "out") == {"a.csv.out": b"1\n", "b.csv.out": b"HELD\n"}
