"""``tfs-proxy transform``: a batch transform job; its flags are named as CreateTransformJob's fields."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import fields

from tfs_proxy.commands.arguments import (
    SIGNATURE_HELP,
    add_access_arguments,
    interruptible,
    log_to_stderr,
)
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.transform.bad_records import BadLimit
from tfs_proxy.transform.job import CHOICES, MANIFEST, PRESENT, make_job, read_description
from tfs_proxy.transform.options import ENGINES, LOCAL, TransformOptions
from tfs_proxy.transform.transformer import FAIL, ON_ERROR
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ANYWHERE, LocalFiles

DESCRIPTION = """\
Run a SageMaker Batch Transform job on this machine.

JOB.json is what `aws sagemaker create-transform-job --cli-input-json` takes; flags override it. Without it,
the names of the objects say what flags leave out: the type, and that CSV and JSON lines are split into lines.
The model is the one that --model names, served for this run, or the one behind --endpoint. If the same
command runs again, it skips what is finished.
"""

MANIFEST_ENDING = ".manifest"
_JOB_FLAGS: Mapping[str, tuple[str, str, str]] = {
    "input": ("--input", "PATH", "file, folder, manifest or s3:// prefix to read"),
    "data_type": (
        "--s3-data-type", "", "default: S3Prefix; ManifestFile if the input ends in .manifest"
    ),
    "output": ("-o --output", "PATH", "folder or s3:// prefix to write NAME.out into"),
    "content_type": ("--content-type", "TYPE", "Content-Type of each request"),
    "split_type": ("--split-type", "", "how an object is divided into records (default: None)"),
    "strategy": ("--strategy", "", "records in a request (default: MultiRecord)"),
    "assemble_with": ("--assemble-with", "", "what follows each answer (default: None)"),
    "accept": ("--accept", "TYPE", "Accept of each request"),
    "compression": ("--compression", "", "compression of the input (default: None)"),
    "max_payload_mb": ("--max-payload-mb", "N", "MB in a request at most; 0 streams (default: 6)"),
    "max_concurrent": ("--max-concurrent", "N", "requests at once (default: as the container says, else 1)"),
    "input_filter": ("--input-filter", "JSONPATH", "part of each record to send (default: $)"),
    "output_filter": ("--output-filter", "JSONPATH", "part of each result to write (default: $)"),
    "join": ("--join", "", "Input puts each record next to its prediction (default: None)"),
    "csv_header": (
        "--csv-header", "", "whether a first line is a header, sent with each piece (default: auto)"
    ),
    "id_column": (
        "--id-column", "NAME", "column of the header that is not sent, and begins each line of the output"
    ),
    "signature": ("--signature", "NAME", SIGNATURE_HELP),
    "timeout_seconds": ("--timeout-seconds", "N", "s that a request may take (default: 600)"),
    "max_retries": ("--max-retries", "N", "further attempts after a failure that is not 4xx (default: 3)"),
}  # fmt: skip
_OPTIONS = [
    option for option in fields(TransformOptions) if option.name not in {"job", "environment", "files"}
]

BY_NAMES = ("content_type", "split_type", "assemble_with", "accept")
"""Fields that the names of the objects decide, if neither a flag nor JOB.json does."""
_NUMBERS = {"max_payload_mb", "max_concurrent", "timeout_seconds", "max_retries"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", nargs="?", metavar="JOB.json", help="a CreateTransformJob request; any other name is the input"
    )
    source = parser.add_argument_group("where the model comes from")
    source.add_argument("--model", help="model.tar.gz, folder or s3:// address to serve for this run")
    source.add_argument("--endpoint", metavar="URL", help="http(s)://HOST:PORT of a stack that runs")
    add_access_arguments(source)
    source.add_argument(
        "--served-as",
        metavar="ID",
        help="what --endpoint serves, so that a later run at another address knows what is finished "
        "(default: its address)",
    )
    source.add_argument(
        "--model-server", default="auto", metavar="auto|embedded|PATH", help="as for serve (default: auto)"
    )
    job = parser.add_argument_group("the job")
    for name, (flag, metavar, text) in _JOB_FLAGS.items():
        job.add_argument(
            *flag.split(),
            dest=name,
            help=text,
            type=int if name in _NUMBERS else str,
            **({"choices": CHOICES[name]} if name in CHOICES else {"metavar": metavar}),
        )
    _add_run_arguments(parser.add_argument_group("the run"))


def _add_run_arguments(run: "argparse._ArgumentGroup") -> None:
    run.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default=FAIL,
        help="a record that the server refuses fails its object, is replaced in the output, or left out; "
        "NAME.err names it (default: fail)",
    )
    run.add_argument(
        "--max-bad",
        metavar="N|P%",
        type=_bad_limit,
        help="how many records of an object, or what share, may be bad (default: any number)",
    )
    run.add_argument(
        "--no-resume", dest="resume", action="store_false", help="repeat what an earlier run finished"
    )
    run.add_argument("--summary", type=Path, metavar="FILE", help="write counts and latencies as JSON")
    run.add_argument(
        "--files",
        action="append",
        type=Path,
        metavar="FOLDER",
        help="input may be files of this machine only below FOLDER, also by a manifest or a link; can be "
        "repeated (default: anywhere)",
    )
    # For the jobs of `endpoint`, whose output is what SageMaker would write.
    run.add_argument("--sagemaker-output", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("--instance-index", type=int, default=0, metavar="I", help="which of N machines, from 0")
    run.add_argument(
        "--instance-count", type=int, default=1, metavar="N", help="machines that share the objects"
    )
    run.add_argument(
        "--engine",
        choices=ENGINES,
        default=LOCAL,
        help="ray spreads the objects over the nodes of a Ray cluster, each with a serving stack of its own; "
        "input, output and model must be in S3 or in folders that all nodes share; RAY_ADDRESS names the "
        "cluster, else one is started here (default: local)",
    )


def _bad_limit(text: str) -> BadLimit:
    try:
        return BadLimit.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is neither a number of records nor a share such as 5%"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """Run the job; 130 if a signal stops it."""
    from tfs_proxy.transform.run import run as run_job

    log_to_stderr("INFO")
    with interruptible("stopped; the same command continues from here"):
        return run_job(request_from(arguments, inherited_environment()))


def request_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> TransformOptions:
    """A serving stack inherits ``environment``. Raises SettingsError."""
    flags = {name: getattr(arguments, name) for name in _JOB_FLAGS}
    description: Mapping[str, Any] = {}
    if arguments.job and (arguments.job.endswith(".json") or arguments.job.startswith("/dev/")):
        description = read_description(Path(arguments.job))
    elif arguments.job and flags["input"]:
        raise SettingsError(f"There are two inputs, {arguments.job} and {flags['input']}: give one.")
    else:
        flags["input"] = flags["input"] or arguments.job
        flags["by_names"] = tuple(name for name in BY_NAMES if flags[name] is None)
    if flags["id_column"] is not None and flags["csv_header"] is None:
        flags["csv_header"] = PRESENT
    if flags["data_type"] is None and (flags["input"] or "").endswith(MANIFEST_ENDING):
        flags["data_type"] = MANIFEST
    named = {option.name: getattr(arguments, option.name) for option in _OPTIONS}
    files = LocalFiles.below(arguments.files) if arguments.files else ANYWHERE
    return TransformOptions(job=make_job(description, flags), environment=environment, files=files, **named)
