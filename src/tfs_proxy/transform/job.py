"""One transform job as values, checked against SageMaker's limits (docs/reference/sagemaker.md)."""

import json
import logging
from collections.abc import Mapping
from functools import reduce
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tfs_proxy.data.registry import parse_media_type
from tfs_proxy.transform.jsonpath import JsonPath
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.media_types import CSV, JSON, JSON_LINES

log = logging.getLogger(__name__)

MAX_PRODUCT_MB = 100
DEFAULT_PAYLOAD_MB = 6
DEFAULT_CONCURRENT = 1
MAX_RETRIES = 3

NONE = "None"
LINE = "Line"
RECORDIO = "RecordIO"
TFRECORD = "TFRecord"
SINGLE = "SingleRecord"
MULTI = "MultiRecord"
GZIP = "Gzip"
S3_PREFIX = "S3Prefix"
MANIFEST = "ManifestFile"
INPUT = "Input"
AUTO = "auto"
PRESENT = "present"
ABSENT = "absent"

PATHS: Mapping[str, tuple[str, ...]] = {
    "name": ("TransformJobName",),
    "input": ("TransformInput", "DataSource", "S3DataSource", "S3Uri"),
    "data_type": ("TransformInput", "DataSource", "S3DataSource", "S3DataType"),
    "content_type": ("TransformInput", "ContentType"),
    "compression": ("TransformInput", "CompressionType"),
    "split_type": ("TransformInput", "SplitType"),
    "output": ("TransformOutput", "S3OutputPath"),
    "accept": ("TransformOutput", "Accept"),
    "assemble_with": ("TransformOutput", "AssembleWith"),
    "strategy": ("BatchStrategy",),
    "max_payload_mb": ("MaxPayloadInMB",),
    "max_concurrent": ("MaxConcurrentTransforms",),
    "environment": ("Environment",),
    "input_filter": ("DataProcessing", "InputFilter"),
    "output_filter": ("DataProcessing", "OutputFilter"),
    "join": ("DataProcessing", "JoinSource"),
    "timeout_seconds": ("ModelClientConfig", "InvocationsTimeoutInSeconds"),
    "max_retries": ("ModelClientConfig", "InvocationsMaxRetries"),
}
"""The path of each field of a job in the request."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "data_type": (S3_PREFIX, MANIFEST),
    "split_type": (NONE, LINE, RECORDIO, TFRECORD),
    "strategy": (MULTI, SINGLE),
    "assemble_with": (NONE, LINE),
    "compression": (NONE, GZIP),
    "join": (NONE, INPUT),
    "csv_header": (AUTO, PRESENT, ABSENT),
}
"""The allowed values of fields; csv_header is no field of CreateTransformJob, the others are."""

LIMITS: Mapping[str, tuple[int, float]] = {
    "max_payload_mb": (0, 100),
    "max_concurrent": (0, inf),
    "timeout_seconds": (1, 3600),
    "max_retries": (0, MAX_RETRIES),
}
"""The least and the highest value of numbers, as in CreateTransformJob."""

WITHOUT_EFFECT = ("DataCaptureConfig", "ExperimentConfig", "Tags", "TransformResources")
"""Parts of a request that only SageMaker itself has a use for."""


class Job(Struct, frozen=True, kw_only=True):
    """One job. Raises SettingsError if SageMaker would refuse it.

    `PATHS` has the member of CreateTransformJob for each field.
    """

    input: str
    """Address of the objects, ``s3://`` or a local path."""

    output: str
    """Address of the outputs, ``s3://`` or a local path."""

    name: str = "transform"
    """Name of the job."""

    data_type: str = S3_PREFIX
    """Kind of input: S3Prefix, or ManifestFile for a list of objects."""

    content_type: str | None = None
    """Content-Type of each request; None for none."""

    compression: str = NONE
    """Compression of the objects: None or Gzip."""

    split_type: str = NONE
    """Way in which an object is divided into records: None, Line, RecordIO or TFRecord."""

    accept: str | None = None
    """Accept of each request; None for none."""

    assemble_with: str = NONE
    """End of each answer in the output: None, or Line for a line end."""

    strategy: str | None = None
    """Records in a request, SingleRecord or MultiRecord; None for the container's choice."""

    max_payload_mb: int | None = None
    """Most MB in a request, 0 for bodies of any size; None for the container's choice."""

    max_concurrent: int | None = None
    """Most requests at once; None, or 0, for the container's choice."""

    input_filter: str = "$"
    """JSONPath of the part of each record that is sent."""

    output_filter: str = "$"
    """JSONPath of the part of each result that is written."""

    join: str = NONE
    """Input if each record is written beside its prediction, else None."""

    timeout_seconds: int = 600
    """Time that a request may take."""

    max_retries: int = MAX_RETRIES
    """Number of further tries after a failure that is not 4xx."""

    csv_header: str = AUTO
    """State of an object's first line: "present" if it is a header, "absent", or "auto"."""

    id_column: str | None = None
    """Column of the header that is not sent, and begins each line of the output; None for none."""

    signature: str | None = None
    """Signature that requests name; None for the model's default."""

    by_names: tuple[str, ...] = ()
    """Names of the fields that the objects' names will decide."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the serving stack."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed and not (name == "strategy" and value is None):
                raise SettingsError(
                    f"{PATHS.get(name, [name])[-1]} can't be {value}: it must be {' or '.join(allowed)}."
                )
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                limits = f"{low} or more" if high == inf else f"from {low} to {high}"
                raise SettingsError(f"{PATHS[name][-1]} can't be {value}: it must be {limits}.")
        sent = (("ContentType", self.content_type), ("Accept", self.accept), ("--signature", self.signature))
        for name, value in sent:
            if value is not None and not (value.isascii() and value.isprintable()):
                raise SettingsError(f"{name} can't be {value!r}: a header may hold printable ASCII only.")
        if self.max_payload_mb and self.max_concurrent:
            product = self.max_payload_mb * self.max_concurrent
            if product > MAX_PRODUCT_MB:
                raise SettingsError(
                    f"MaxPayloadInMB {self.max_payload_mb} times MaxConcurrentTransforms "
                    f"{self.max_concurrent} is {product} MB: at most {MAX_PRODUCT_MB} MB are allowed."
                )
        if not self.by_names:
            self._check_processing()

    @property
    def processes(self) -> bool:
        return self.input_filter != "$" or self.output_filter != "$" or self.joins

    @property
    def joins(self) -> bool:
        return self.join == INPUT or self.id_column is not None

    @property
    def record_type(self) -> str:
        """The format of records for filters and joins: CSV, JSON_LINES, JSON, or "" for any other."""
        return _record_type(self.content_type, self.split_type)

    @property
    def answer_type(self) -> str:
        """The format of answers; without Accept that of the input is assumed."""
        return _record_type(self.accept or self.content_type, self.split_type)

    def _check_processing(self) -> None:
        for path in (self.input_filter, self.output_filter):
            JsonPath(path)
        if not self.processes:
            return
        if not self.record_type or (not self.answer_type and self.output_filter != "$"):
            raise SettingsError(
                f"Filters and joins need CSV, JSON lines or JSON with SplitType {LINE} (JSON also {NONE}), "
                f"not ContentType {self.content_type} with SplitType {self.split_type}."
            )
        if self.id_column is not None and (self.record_type, self.csv_header) != (CSV, PRESENT):
            given = f"ContentType {self.content_type} with --csv-header {self.csv_header}"
            raise SettingsError(f"--id-column needs CSV with a header, not {given}.")
        if self.joins:
            accept = self.accept or self.content_type
            if parse_media_type(accept).type != parse_media_type(self.content_type).type:
                raise SettingsError(
                    f"A join needs Accept and ContentType to be equal, not {accept} and {self.content_type}."
                )
            if self.split_type != self.assemble_with:
                raise SettingsError(
                    f"A join needs SplitType and AssembleWith to be equal, not {self.split_type} and "
                    f"{self.assemble_with}."
                )


class CsvHeader(Struct, frozen=True):
    """The header that an object may begin with: filtered, it is ``names``, any for (). It has `id_column`."""

    names: tuple[str, ...] = ()
    delimiter: str = ","
    input_filter: str = "$"
    id_column: str | None = None


class ExecutionPlan(Struct, frozen=True):
    """Plan to send records: as the job says, else as the container offers, else by SageMaker's defaults."""

    strategy: str
    """Records in a request: SingleRecord or MultiRecord."""

    payload_bytes: int | None
    """Most bytes in a request; None to stream bodies of any size (MaxPayloadInMB 0)."""

    concurrent: int
    """Most requests at once."""

    header: CsvHeader | None = None
    """Header that is sent with each piece of its object; None without one."""

    titles: tuple[str, ...] = ()
    """Titles of the answers' columns; () if they are not known."""

    @classmethod
    def resolve(cls, job: Job, parameters: Mapping[str, object]) -> "ExecutionPlan":
        """Combine ``job`` with the answer of ``GET /execution-parameters``; {} if there is none."""
        payload_mb = _first(job.max_payload_mb, parameters.get("MaxPayloadInMB"), DEFAULT_PAYLOAD_MB)
        concurrent = _first(
            job.max_concurrent or None, parameters.get("MaxConcurrentTransforms"), DEFAULT_CONCURRENT
        )
        container_strategy = {"SINGLE_RECORD": SINGLE, "MULTI_RECORD": MULTI}.get(
            str(parameters.get("BatchStrategy"))
        )
        if job.max_concurrent is None and payload_mb:
            concurrent = min(concurrent, max(1, MAX_PRODUCT_MB // payload_mb))
        return cls(
            strategy=job.strategy or container_strategy or MULTI,
            payload_bytes=payload_mb * MEGABYTE or None,
            concurrent=max(1, concurrent),
        )


def _first(requested: int | None, offered: object, default: int) -> int:
    if requested is not None:
        return requested
    return offered if isinstance(offered, int) and offered >= 0 else default


def _record_type(content_type: str | None, split_type: str) -> str:
    media_type = parse_media_type(content_type).type if content_type else ""
    if split_type == LINE:
        return {CSV: CSV, JSON: JSON_LINES, JSON_LINES: JSON_LINES}.get(media_type, "")
    return JSON if media_type == JSON and split_type == NONE else ""


def make_job(description: Mapping[str, Any], flags: Mapping[str, Any]) -> Job:
    """Make a job of a request ({} for none) and of flags, which take precedence. Raises SettingsError."""
    fields = {name: value for name, path in PATHS.items() if (value := _at(description, path)) is not None}
    fields |= {name: value for name, value in flags.items() if value is not None}
    for name in ("input", "output"):
        if not fields.get(name):
            raise SettingsError(f"The job has no {name}: give --{name}, or a JSON file with one.")
    for part in WITHOUT_EFFECT:
        if part in description and part != "Tags":
            log.info("%s has no effect here", part)
    return Job(**fields)


def read_description(path: Path) -> dict[str, Any]:
    """Read the JSON that ``aws sagemaker create-transform-job --cli-input-json`` takes.

    Validates it against botocore's model of the call. Raises SettingsError.
    """
    from botocore.session import get_session
    from botocore.validate import ParamValidator

    try:
        description = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"The job {path} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"The job {path} is not JSON: {error}.") from error
    shape = get_session().get_service_model("sagemaker").operation_model("CreateTransformJob").input_shape
    problems = "it must be an object."
    if isinstance(description, dict) and shape is not None:
        report = ParamValidator().validate(description, shape).generate_report()
        problems = "; ".join(report.splitlines())
    if problems:
        raise SettingsError(f"The job {path} is not a CreateTransformJob request: {problems}")
    return dict(description)


def _at(description: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    *parents, name = path
    return reduce(lambda part, parent: part.get(parent, {}), parents, description).get(name)
