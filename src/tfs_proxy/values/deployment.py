"""Description of one run as plain values: the supervisor makes it, workers get it from the control API."""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path, PurePath

from msgspec import Struct, convert, field, to_builtins

from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES

BY_MODEL = "model"
BY_SCRIPT = "script"
OFF = "off"
"""Values of `Doors.open_inference`: the model answers, a script does, or nobody."""


class Instance(Struct, frozen=True):
    """One running model server: its REST and gRPC addresses belong together."""

    index: int
    """Number of the instance, from 0."""

    rest_port: int
    """Port of its REST API."""

    grpc_port: int
    """Port of its gRPC API."""

    grpc_socket: str
    """Path of the unix socket on which it answers gRPC, too."""

    host: str = "127.0.0.1"
    """Address of both ports."""


class TransformLimits(Struct, frozen=True):
    """Requests that a batch transform job should send at once, and their size; SageMaker's defaults."""

    concurrent: int = 1
    payload_mb: int = 6


class BodyLimits(Struct, frozen=True):
    """Most bytes of a body as it comes, and of the decoded bodies of all requests at a time.

    If one ``takes_any_size``, bodies that the script reads in parts have no limit.
    """

    payload_bytes: int
    decoded_bytes: int = DEFAULT_DECODED_BYTES
    takes_any_size: bool = False


class TimeLimits(Struct, frozen=True):
    """Seconds for a model server's call, for a script's answer, to load both, and to wait for a worker."""

    request_seconds: float
    script_seconds: float = 65.0
    load_seconds: float = 300.0
    wait_seconds: float = math.inf


class Doors(Struct, frozen=True):
    """Paths besides ``/invocations``: the model server's REST API, ``/v2``, and the page to try the models.

    ``open_inference`` says who answers inferences of the Open Inference Protocol: model, script or off.
    """

    rest_api: bool = False
    open_inference: str = "model"
    console: bool = False


class GuardOptions(Struct, frozen=True):
    """Web pages that may call, further names of this server, and whether it listens to this machine alone."""

    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    is_local: bool = False


class TraceSampling(Struct, frozen=True):
    """Choice of requests to trace: this ``share`` of those that nobody has decided about.

    ``parents`` says what counts for a request that belongs to a trace: "followed" is its flag, "examined" the
    sampler's own look at its id, "ignored" the share.
    """

    share: float = 1.0
    parents: str = "followed"


class CaptureOptions(Struct, frozen=True):
    """Folder for captured requests, the percent of them, and whether there is one for each of many models."""

    folder: str
    percent: float
    of_many: bool = False


class Observation(Struct, frozen=True):
    """Records that are kept of requests: traces, captured bodies, lines of the log.

    ``counts_requests`` tells workers to count requests, since there is no nginx to do so; ``access_log`` says
    which ones they log, or give their stages of to nginx.
    """

    counts_requests: bool = False
    access_log: str = "off"
    traces: TraceSampling | None = None
    capture: CaptureOptions | None = None


class ServedModel(Struct, frozen=True):
    """One model as the model server gets it: versions lie below ``base_path``, in ascending order."""

    name: str
    base_path: Path
    versions: tuple[int, ...]


class Deployment(Struct, frozen=True):
    """Models, versions, instances and limits of one run: all that its workers get to know."""

    default_model: str
    """Name of the model for requests that name none."""

    models: Mapping[str, tuple[int, ...]]
    """Version numbers, ascending, by model name; empty ones if the model server itself follows the folder."""

    instances: tuple[Instance, ...]
    """Model servers, any of which answers for each model; none if the script is the model."""

    script: str | None
    """Path of the user's inference.py; None if there is none."""

    import_paths: tuple[str, ...]
    """Folders that the script's imports may come from; the first wins."""

    bodies: BodyLimits
    """Limits of bodies, in bytes."""

    times: TimeLimits
    """Limits of calls, loads and waits, in seconds."""

    doors: Doors = Doors()
    """Paths that are answered besides ``/invocations``."""

    guard: GuardOptions = GuardOptions()
    """Web pages and names of this server that requests may come with."""

    observation: Observation = Observation()
    """Records that are kept of requests."""

    transforms: TransformLimits = TransformLimits()
    """Number and size of requests that suit a batch transform job."""

    default_accept: str | None = None
    """Type of the answer for clients that send no Accept; None for JSON."""

    script_model: str | None = None
    """Folder of an archive whose script is the model itself: then there are no models and no instances."""

    inner_names: Mapping[str, str] = field(default_factory=dict)
    """Names in ``models`` by the names that requests use; if there are any, requests reach no other model."""

    many_models: str | None = None
    """Folder of the workspaces of many models, by name, if workers serve all of them; then ``models`` is
    empty."""

    loaded_as: str | None = None
    """Name of an archive that was loaded at run time: nginx names the model of each request."""

    version_labels: tuple[str, ...] = ()
    """Labels that the settings give to versions."""

    graph_folders: Mapping[str, str] = field(default_factory=dict)
    """Folder of the newest version by model name, as far as it is known where that lies."""

    csv_columns: Mapping[str, str] = field(default_factory=dict)
    """Inputs in the order of the columns of CSV without a header, between commas, by model name."""

    model_dir: str = ""
    """Folder of the archive, in which a script looks for its own files."""

    is_batch: bool = False
    """True in a batch transform job."""

    def served_name(self, name: str) -> str:
        """Name in the model server of the model that a request for this deployment calls ``name``."""
        return self.inner_names.get(name, name)

    @property
    def script_folder(self) -> str:
        """Folder of the script and its modules; empty without a script."""
        return "" if self.script is None else str(PurePath(self.script).parent)

    @property
    def publishes_rest(self) -> bool:
        """True if TF Serving's REST API is published, and there is one."""
        return self.doors.rest_api and bool(self.instances)

    def to_json(self) -> bytes:
        return json.dumps(to_builtins(self)).encode()

    @classmethod
    def from_json(cls, body: bytes) -> "Deployment":
        return convert(json.loads(body), cls)


class BootFailure(Struct, frozen=True):
    """Reason why a worker can't load the application: during the start, the supervisor ends it.

    ``text`` is a sentence, ``report`` a traceback or "".
    """

    text: str
    report: str = ""


class WorkerPhase(StrEnum):
    """Progress of a worker: it has begun, it loads the application, it serves, or it can't load it."""

    BEGINS = "begins"
    LOADS = "loads"
    SERVES = "serves"
    FAILED = "failed"


ReportedStages = tuple[tuple[tuple[str, str, tuple[int, ...], float], ...], ...]
"""Histograms of the requests since the last report: stage, model, counts up to each bound, and their sum."""


class WorkerState(Struct, frozen=True, omit_defaults=True):
    """A worker's state, as it tells the supervisor whenever it changes, and every few seconds."""

    pid: int
    """Process id of the worker."""

    phase: WorkerPhase
    """Progress of the worker."""

    line: str = ""
    """Line of the script at which it loads or hangs; "" if that is not known."""

    hangs: bool = False
    """True if calls of the script are over their deadline, so that the worker should be replaced."""

    full: bool = False
    """True if no thread is left for other requests."""

    stuck: int = 0
    """Number of threads that are lost to calls that hang."""

    answered: bool = False
    """True if a call of the script has come back since the last report."""

    failure: BootFailure | None = None
    """Reason why the application can't be loaded; None if it can."""

    problem: str = ""
    """Phrase on a file that can't be written, without which counts and kills are not known; "" if all can."""

    captured: int = 0
    """Number of calls so far that were written into files of data capture."""

    uncaptured: int = 0
    """Number of calls so far that data capture has dropped."""

    stages: ReportedStages = ()
    """Times of the requests since the last report, as `observe.stage_counts` makes them."""

    health: str | None = None
    """Reason of the script why it can't serve, "" if it can, None if it has said nothing since the last
    report."""


class WorkerOrder(StrEnum):
    """The supervisor's answer to a worker's state: accept nothing yet, serve, or end after what has begun.

    To ask is to serve, and to call the script's ``health(context)`` now.
    """

    WAIT = "wait"
    SERVE = "serve"
    ASK = "ask"
    LEAVE = "leave"
