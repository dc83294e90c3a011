"""Job descriptions: what the platform takes, what it refuses, and who decides what is left open."""

import json
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.transform.files import InputObject
from tfs_proxy.transform.job import ExecutionPlan, Job, make_job, read_description
from tfs_proxy.transform.leftovers import shard
from tfs_proxy.transform.options import stack_environment
from tfs_proxy.transform.s3 import relative_name
from tfs_proxy.values.errors import SettingsError

SEED: dict[str, Any] = {
    "TransformJobName": "tfrecords",
    "ModelName": "a-label",
    "MaxConcurrentTransforms": 100,
    "MaxPayloadInMB": 1,
    "BatchStrategy": "SingleRecord",
    "Environment": {"SAGEMAKER_TFS_ENABLE_BATCHING": "true"},
    "TransformInput": {
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/tfrecord"}},
        "ContentType": "application/x-tfexample",
        "SplitType": "TFRecord",
    },
    "TransformOutput": {"S3OutputPath": "s3://bucket/out", "AssembleWith": "Line"},
    "TransformResources": {"InstanceType": "ml.p3.2xlarge", "InstanceCount": 2},
}


def job(**fields: Any) -> Job:
    return Job(**{"input": "in", "output": "out", **fields})


def test_the_json_of_the_aws_command_line(tmp_path: Path) -> None:
    """All of a CreateTransformJob request is read; flags win over it."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(SEED))
    made = make_job(read_description(path), {"max_concurrent": 4, "accept": None})
    assert (made.input, made.output) == ("s3://bucket/tfrecord", "s3://bucket/out")
    assert (made.split_type, made.strategy, made.assemble_with) == ("TFRecord", "SingleRecord", "Line")
    assert (made.max_payload_mb, made.max_concurrent) == (1, 4)
    assert made.environment == {"SAGEMAKER_TFS_ENABLE_BATCHING": "true"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MaxPayloadInMb": 1}, "MaxPayloadInMb"),
        ({"TransformJobName": 5}, "TransformJobName"),
        ({"TransformOutput": {}}, "S3OutputPath"),
    ],
)
def test_what_the_api_would_refuse(tmp_path: Path, change: dict[str, object], words: str) -> None:
    """botocore's model of the call finds unknown, mistyped and missing fields."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**SEED, **change}))
    with pytest.raises(SettingsError, match=words):
        read_description(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_payload_mb": 20, "max_concurrent": 6}, "120 MB"),
        ({"max_payload_mb": 101}, "from 0 to 100"),
        ({"timeout_seconds": 0}, "from 1 to 3600"),
        ({"content_type": "text/csv\r\nX-Evil: 1"}, "ContentType can't be 'text/csv"),
        ({"accept": "tëxt/csv"}, "Accept can't be 'tëxt/csv'"),
        ({"max_retries": 4}, "from 0 to 3"),
        ({"split_type": "Csv"}, "SplitType can't be Csv"),
        ({"input_filter": "$.a", "content_type": "image/png"}, "Filters and joins"),
        ({"input_filter": "a", "content_type": "text/csv", "split_type": "Line"}, "begin with"),
        ({"output_filter": "$" + ".abcdefg" * 8, "content_type": "text/csv"}, "63"),
        (
            {"join": "Input", "content_type": "text/csv", "split_type": "Line", "accept": "application/json"},
            "Accept",
        ),
        ({"join": "Input", "content_type": "text/csv", "split_type": "Line"}, "AssembleWith"),
    ],
)
def test_limits_of_the_platform(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        job(**fields)


def test_who_decides() -> None:
    """The job, else the container, else the platform's defaults."""
    offered = {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 3}
    assert ExecutionPlan.resolve(job(), {}) == ExecutionPlan("MultiRecord", 6 << 20, 1)
    assert ExecutionPlan.resolve(job(), offered) == ExecutionPlan("SingleRecord", 3 << 20, 8)
    whole_job = job(max_concurrent=2, max_payload_mb=1, strategy="MultiRecord")
    assert ExecutionPlan.resolve(whole_job, offered) == ExecutionPlan("MultiRecord", 1 << 20, 2)
    assert ExecutionPlan.resolve(job(max_payload_mb=0), {}).payload_bytes is None
    assert ExecutionPlan.resolve(job(max_payload_mb=50), offered).concurrent == 2
    assert ExecutionPlan.resolve(job(), {"MaxConcurrentTransforms": "many"}).concurrent == 1


@pytest.mark.parametrize(
    ("key", "prefix", "name"),
    [
        ("in/a.csv", "in/", "a.csv"),
        ("in/sub/a.csv", "in", "sub/a.csv"),
        ("in/a.csv", "in/a.csv", "a.csv"),
        ("in/a1.csv", "in/a", "a1.csv"),
        ("a.csv", "", "a.csv"),
        ("a.csv", "a", "a.csv"),
    ],
)
def test_names_under_a_prefix(key: str, prefix: str, name: str) -> None:
    """The path below the prefix, and the whole name where the prefix ends inside it."""
    assert relative_name(key, prefix) == name


def test_shards() -> None:
    """Every object belongs to exactly one machine."""
    items = [InputObject(f"/{number}", str(number), 1, "") for number in range(10)]
    parts = [shard(items, index, 3) for index in range(3)]
    assert sorted(item.name for part in parts for item in part) == [item.name for item in items]
    assert max(map(len, parts)) - min(map(len, parts)) == 1


def test_the_environment_of_the_stack() -> None:
    """The platform's variables are set only as far as the job asks ; gRPC is for others."""
    assert stack_environment({"A": "b", "TFS_PROXY_GRPC_PORT": "8500"}, job()) == {
        "A": "b",
        "SAGEMAKER_BATCH": "true",
    }
    variables = stack_environment({}, job(max_payload_mb=0, max_concurrent=2, strategy="SingleRecord"))
    assert variables["SAGEMAKER_MAX_PAYLOAD_IN_MB"] == "0"
    assert variables["SAGEMAKER_BATCH_STRATEGY"] == "SINGLE_RECORD"
