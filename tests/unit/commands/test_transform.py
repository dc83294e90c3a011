"""`tfs-proxy transform`: its flags become a job, and what can't be a job is refused in one sentence."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tfs_proxy.cli import command_parser
from tfs_proxy.commands.transform import request_from
from tfs_proxy.transform import run as transform_run
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.values.errors import SettingsError
from unit.conftest import Command

ENDPOINT = "http://127.0.0.1:1"
CSV = "--content-type text/csv --split-type Line"
REQUEST: Mapping[str, object] = {
    "TransformJobName": "j",
    "ModelName": "m",
    "MaxPayloadInMB": 3,
    "BatchStrategy": "SingleRecord",
    "Environment": {"A": "b"},
    "TransformInput": {
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/in"}},
        "SplitType": "Line",
    },
    "TransformOutput": {"S3OutputPath": "s3://bucket/out", "AssembleWith": "Line"},
    "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Flags of a job over a folder with one file; nothing listens at its endpoint."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a")
    return ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--endpoint", ENDPOINT]


def options_of(*words: str) -> TransformOptions:
    return request_from(command_parser("transform").parse_args(words), {"SAGEMAKER_X": "1"})


def test_the_least_that_a_job_needs() -> None:
    """Everything else is as CreateTransformJob leaves it."""
    options = options_of("--input", "in", "--output", "out", "--model", "m.tar.gz")
    assert (options.model, options.endpoint, options.model_server) == ("m.tar.gz", None, "auto")
    job = options.job
    assert (job.input, job.output, job.split_type, job.strategy, job.data_type) == (
        "in", "out", "None", None, "S3Prefix",
    )  # fmt: skip
    assert (options.on_error, options.resume, options.engine) == ("fail", True, "local")
    assert options.environment == {"SAGEMAKER_X": "1"}


def test_flags_override_the_json(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(REQUEST))
    job = options_of(str(path), "--endpoint", ENDPOINT, "--output", "here", "--max-concurrent", "2").job
    assert (job.input, job.output, job.split_type, job.max_payload_mb, job.max_concurrent) == (
        "s3://bucket/in", "here", "Line", 3, 2,
    )  # fmt: skip
    assert (job.strategy, job.assemble_with, job.environment) == ("SingleRecord", "Line", {"A": "b"})


def test_the_input_needs_no_flag() -> None:
    """A name that is no JSON is the input, which is given once."""
    assert options_of("people.csv", "-o", "out", "--endpoint", ENDPOINT).job.input == "people.csv"
    with pytest.raises(SettingsError, match="There are two inputs"):
        options_of("people.csv", "--input", "in", "-o", "out", "--endpoint", ENDPOINT)


@pytest.mark.parametrize(
    ("names", "flags", "job"),
    [
        ("a.csv b.CSV", "", "text/csv Line Line text/csv"),
        ("a.csv.gz", "--compression Gzip", "text/csv Line Line text/csv"),
        ("a.csv", "--accept application/json --split-type None", "text/csv None Line application/json"),
        ("a.csv", "--id-column id", "text/csv;header=present Line Line text/csv"),
        ("a.csv", "--csv-header present --content-type text/x", "text/x None None None"),
        ("a.jsonl", "", "application/jsonlines Line Line application/jsonlines"),
        ("captured.jsonl", "", "None None None None"),
        ("a.jpg b.jpeg", "", "image/jpeg None None None"),
        ("a.jpg b.png", "", "application/x-image None None None"),
        ("a.npy", "", "application/x-npy None None None"),
        ("a.tfrecord", "--split-type TFRecord", "application/x-tfrecord TFRecord None None"),
        ("a.csv b.jsonl", "", "None None None None"),
        ("a", "", "None None None None"),
    ],
)
def test_the_names_of_objects_say_what_flags_leave_out(
    tmp_path: Path, names: str, flags: str, job: str
) -> None:
    """Objects of several types, and captured requests, are sent as they were."""
    (tmp_path / "in").mkdir()
    for name in names.split():
        (tmp_path / "in" / name).write_text('{"captureData": {' if name.startswith("captured") else "1\n")
    words = [str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--endpoint", ENDPOINT, *flags.split()]
    found = transform_run.chosen(options_of(*words))[0].job
    fields = (found.content_type, found.split_type, found.assemble_with, found.accept)
    assert " ".join(str(each).replace(" ", "") for each in fields) == job


@pytest.mark.parametrize(
    "flags", ["--id-column id --csv-header absent", "--join Input --accept application/json"]
)
def test_the_names_of_objects_make_no_job_that_can_not_be(tmp_path: Path, flags: str) -> None:
    """What is wrong with a job is said once its types are known."""
    (tmp_path / "a.csv").write_text("1\n")
    words = [str(tmp_path / "a.csv"), "-o", str(tmp_path / "out"), "--endpoint", ENDPOINT, *flags.split()]
    with pytest.raises(SettingsError, match="needs"):
        transform_run.chosen(options_of(*words))


@pytest.mark.parametrize(
    ("flags", "data_type"), [([], "ManifestFile"), (["--s3-data-type", "S3Prefix"], "S3Prefix")]
)
def test_a_manifest_is_known_by_its_name(flags: list[str], data_type: str) -> None:
    words = ["--input", "a.manifest", "--output", "out", "--endpoint", ENDPOINT, *flags]
    assert options_of(*words).job.data_type == data_type


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--max-payload-mb 60 --max-concurrent 2", "is 120 MB: at most 100 MB are allowed"),
        ("--max-payload-mb 101", "MaxPayloadInMB can't be 101: it must be from 0 to 100"),
        ("--max-retries 4", "InvocationsMaxRetries can't be 4: it must be from 0 to 3"),
        ("--max-concurrent -1", "MaxConcurrentTransforms can't be -1: it must be 0 or more"),
        ("--timeout-seconds 0", "InvocationsTimeoutInSeconds can't be 0: it must be from 1 to 3600"),
        ("--instance-index 1", "--instance-index 1 must be from 0 to 0"),
        ("--model m.tar.gz", "Give either --model"),
        ("--input /nonexistent", "There is no input /nonexistent"),
        ("--input s3://", "s3:// is not an S3 address"),
        ("--input-filter id", "The filter id can't be used: it must begin with $"),
        ("--join Input", "Filters and joins need CSV"),
        (f"--join Input {CSV}", "AssembleWith"),
        (f"--output-filter ${'.abcdefg' * 8} {CSV}", "63"),
        ("--content-type text/csv\r\nX-Evil:1", "ContentType can't be 'text/csv"),
        ("--endpoint ftp://host", "--endpoint ftp://host can't be used: it must be http://HOST:PORT"),
        ("", "The endpoint can't be used: 127.0.0.1:1 can't be reached"),
        ("/nonexistent.json", "The job /nonexistent.json can't be read"),
    ],
)
def test_what_is_no_job_is_refused(
    words: list[str], flags: str, text: str, tmp_path: Path, run: Command
) -> None:
    """Exit status 2 and a sentence that names it; no output is written."""
    assert text in run("transform", *words, *flags.split(" ") if flags else (), ends=2).err
    assert not list(tmp_path.rglob("*.out")) + list(tmp_path.rglob("*.err"))


@pytest.mark.parametrize("missing", ["input", "output"])
def test_a_job_without_input_or_output(missing: str) -> None:
    """The flag to give is named."""
    other = "output" if missing == "input" else "input"
    with pytest.raises(SettingsError, match=f"give --{missing}"):
        options_of(f"--{other}", "x", "--endpoint", ENDPOINT)


def test_an_output_inside_the_input_is_refused(words: list[str], tmp_path: Path, run: Command) -> None:
    """The next run would take outputs for inputs."""
    assert "is inside the input" in run("transform", *words, "--output", tmp_path / "in" / "out", ends=2).err


@pytest.mark.parametrize("flag", ["summary", "output"])
def test_what_cannot_be_written_is_refused_first(
    words: list[str], tmp_path: Path, flag: str, run: Command
) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "below"
    assert f"The {flag} {below} can't be written" in run("transform", *words, f"--{flag}", below, ends=2).err
