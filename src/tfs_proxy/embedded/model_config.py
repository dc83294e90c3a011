"""Configuration files of the model server in protobuf's text form: models, and parameters of batching.

docs/reference/tensorflow-serving.md has the meaning of the batching parameters.
"""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message
from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import POOL, BatchingParameters, ModelConfig, ModelServerConfig

AnyMessage = TypeVar("AnyMessage", bound=Message)
_PLATFORM = "tensorflow"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_uri(path: str) -> bool:
    """True if a path begins with a scheme, as ``gs://`` does."""
    return _URI.match(path) is not None


class Policy(Struct, frozen=True):
    """Versions of a model that are wanted: the newest ``latest``, all of them, or those named."""

    latest: int = 1
    every: bool = False
    specific: tuple[int, ...] = ()

    def choose(self, present: list[int]) -> tuple[int, ...]:
        """The wanted ones among the versions that are there, ascending."""
        ordered = sorted(present)
        if self.every:
            return tuple(ordered)
        if self.specific:
            return tuple(version for version in ordered if version in self.specific)
        return tuple(ordered[-self.latest :])


class ModelSource(Struct, frozen=True):
    """One model: where its version folders are, which of them to serve, and their labels."""

    name: str
    base_path: str
    policy: Policy = Policy()
    labels: Mapping[str, int] = field(default_factory=dict)


def from_flags(flags: ModelServerFlags) -> tuple[ModelSource, ...]:
    """The models that the command line asks for.

    Raises SettingsError if it names none, or the config file can't be used.
    """
    if flags.model_config_file:
        try:
            return from_message(read_text(flags.model_config_file, ModelServerConfig()))
        except ServingError as error:
            raise SettingsError(f"{flags.model_config_file}: {error.text}") from error
    if not flags.model_base_path:
        raise SettingsError("Name a model: --model_base_path or --model_config_file.")
    path = flags.model_base_path
    if not is_uri(path):
        path = str(Path(path).absolute())
    return (ModelSource(flags.model_name, path),)


def again_from_file(path: str) -> tuple[ModelSource, ...]:
    """The models of a config file that is read again.

    Raises SettingsError if it can't be read, ServingError if it lists no models, since a file that is
    being written is empty for a moment.
    """
    config = read_text(path, ModelServerConfig())
    if config.WhichOneof("config") != "model_config_list":
        raise ServingError(
            GrpcCode.FAILED_PRECONDITION,
            "Cannot transition to requested config. It is only legal to transition from one ModelConfigList "
            "to another.",
        )
    return from_message(config)


def read_text(path: str, message: AnyMessage) -> AnyMessage:
    """A configuration file in protobuf's text form.

    Raises SettingsError if it can't be read or does not parse.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"Can't read {path}: {error}") from error
    try:
        return text_format.Parse(text, message, descriptor_pool=POOL)
    except text_format.ParseError as error:
        name = message.DESCRIPTOR.full_name
        raise SettingsError(
            f"Error parsing text-format {name}: {error} Invalid protobuf file: '{path}'"
        ) from error


def from_message(config: ModelServerConfig, *, default_platform: str = _PLATFORM) -> tuple[ModelSource, ...]:
    """The models of a ModelServerConfig. Raises ServingError in TF Serving's words if one can't be served."""
    if config.WhichOneof("config") == "custom_model_config":
        raise ServingError(
            GrpcCode.INVALID_ARGUMENT, "Missing custom_model_config_loader in ServerCore Options"
        )
    sources = [_source(model) for model in config.model_config_list.config]
    names = set()
    for source in sources:
        if source.name in names:
            raise invalid(f"Illegal to list model {source.name} multiple times in config list")
        names.add(source.name)
    for model in config.model_config_list.config:
        platform = model.model_platform or default_platform
        if not platform:
            raise invalid(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) "
                "nor ModelServerConfig::model_platform."
            )
        if platform != _PLATFORM:
            raise invalid(f"Model {model.name} requests unsupported platform {platform}")
    return tuple(sources)


def _source(config: ModelConfig) -> ModelSource:
    if not config.name:
        raise invalid("A model in the config list has no name")
    if not is_uri(config.base_path) and not posixpath.isabs(config.base_path):
        raise invalid(
            f"Expected model {config.name} to have an absolute path or URI; "
            f"got base_path()={config.base_path}"
        )
    wanted = config.model_version_policy
    choice = wanted.WhichOneof("policy_choice")
    if choice == "specific" and not wanted.specific.versions:
        raise invalid(f"Model {config.name} has a specific version policy that names no version")
    policy = Policy(
        latest=max(1, wanted.latest.num_versions),
        every=choice == "all",
        specific=tuple(wanted.specific.versions),
    )
    return ModelSource(config.name, config.base_path, policy, dict(config.version_labels))


OWN_FILE = "batching_params.pbtxt"
"""File in a version's folder, read if the flags allow it."""

_AT_LEAST = {
    "max_batch_size": 1,
    "batch_timeout_micros": 0,
    "max_enqueued_batches": 1,
    "num_batch_threads": 1,
}
_AT_MOST = 2**31 - 1
"""Limit of the batch op; TF Serving has 64 bits for these numbers."""


class BatchOptions(Struct, frozen=True):
    """Batching of a model's requests."""

    max_batch_size: int = 1000
    """Most records in a batch."""

    batch_timeout_micros: int = 0
    """Microseconds that a batch waits for more records."""

    max_enqueued_batches: int = 10
    """Batches that may wait; a request beyond them is refused."""

    num_batch_threads: int = 0
    """Batches that run at a time; 0 is one for each core."""

    allowed_batch_sizes: tuple[int, ...] = ()
    """Sizes, ascending, to one of which a batch is filled up; none for any size."""

    splits: bool = False
    """True if a request may be cut into several batches."""

    max_execution_batch_size: int = 0
    """Most records of a piece if requests are cut; 0 for ``max_batch_size``."""

    @property
    def op_batch_sizes(self) -> list[int]:
        """The batch op's allowed sizes; with splitting its last one is the size of the pieces."""
        if not self.splits:
            return list(self.allowed_batch_sizes)
        most = self.max_execution_batch_size or self.max_batch_size
        allowed = self.allowed_batch_sizes or range(1, most)
        return [*(size for size in allowed if size < most), most]


def read_options(path: str) -> BatchOptions:
    """The options of a batching parameters file; defaults if none is named.

    A number beyond `_AT_MOST` is taken as that one. Raises SettingsError if the file can't be read, or its
    numbers do not fit together.
    """
    message = read_text(path, BatchingParameters()) if path else BatchingParameters()
    values = {name: getattr(message, name).value for name in _AT_LEAST if message.HasField(name)}
    for name, value in values.items():
        if value < _AT_LEAST[name]:
            raise SettingsError(f"{path}: {name} must be {_AT_LEAST[name]} or more; was {value}")
    options = BatchOptions(
        **{name: min(value, _AT_MOST) for name, value in values.items()},
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        splits=message.enable_large_batch_splitting.value,
        max_execution_batch_size=message.max_execution_batch_size.value,
    )
    sizes = options.allowed_batch_sizes
    if list(sizes) != sorted(set(sizes)) or (sizes and sizes[0] < 1):
        raise SettingsError(f"{path}: allowed_batch_sizes entries must be monotonically increasing")
    if options.splits and options.max_execution_batch_size > options.max_batch_size:
        raise SettingsError(f"{path}: max_execution_batch_size is larger than max_batch_size.")
    lasts = {options.max_batch_size}
    if options.splits:
        lasts.add(options.max_execution_batch_size)
    if sizes and sizes[-1] not in lasts:
        raise SettingsError(
            f"{path}: Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
            f"{sizes[-1]}; expected {options.max_batch_size}"
        )
    return options


def own_options(folder: Path, shared: BatchOptions) -> BatchOptions | None:
    """The options of a version's own file, with the threads that are shared; None if it has no file.

    Such a version is not batched. Raises ServingError if the file can't be used.
    """
    path = folder / OWN_FILE
    if not path.exists():
        return None
    try:
        return replace(read_options(str(path)), num_batch_threads=shared.num_batch_threads)
    except SettingsError as error:
        raise invalid(str(error)) from error
