"""The catalogue of metrics: what `/metrics` can show, in the order of the reference page.

Names follow OpenTelemetry's semantic conventions if there is one, and begin with ``tfs_proxy_`` otherwise.
Every label takes values from a bounded set, never the text of a client.
"""

from tfs_proxy.observe.metric import MetricDescription, MetricKind

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

BUILD_INFO = MetricDescription(
    "tfs_proxy_build_info", _GAUGE, "Always 1; the labels name the versions that run.", ("version", "python")
)
READY = MetricDescription(
    "tfs_proxy_ready", _GAUGE, "1 if GET /ping answers 200, which means that requests are served, else 0."
)
PHASE = MetricDescription(
    "tfs_proxy_phase",
    _GAUGE,
    "1 for the phase that the run is in: starting, serving or stopping.",
    ("phase",),
)
STARTUP_SECONDS = MetricDescription(
    "tfs_proxy_startup_seconds",
    _GAUGE,
    "Seconds that the start spent in each of its steps, so far if it is in it now.",
    ("step",),
)
PROCESS_UP = MetricDescription(
    "tfs_proxy_process_up",
    _GAUGE,
    "1 if the process runs, 0 if it has ended and is started again.",
    ("process",),
)
PROCESS_RESTARTS = MetricDescription(
    "tfs_proxy_process_restarts_total",
    _COUNTER,
    "How often a process ended by itself, by the signal or exit status that it ended with.",
    ("process", "reason"),
)
PROCESS_MEMORY = MetricDescription(
    "tfs_proxy_process_resident_memory_bytes",
    _GAUGE,
    "Memory that the process and its own children hold; what they share counts for each.",
    ("process",),
)
PROCESS_CPU = MetricDescription(
    "tfs_proxy_process_cpu_seconds_total",
    _COUNTER,
    "Processor time that the process and its own children have used.",
    ("process",),
)
PROCESS_FILES = MetricDescription(
    "tfs_proxy_process_open_files",
    _GAUGE,
    "Files and connections that the process and its own children have open.",
    ("process",),
)
MEMORY_LIMIT = MetricDescription(
    "tfs_proxy_memory_limit_bytes",
    _GAUGE,
    "Memory that all processes may use together: the container's limit, or all of the machine's.",
)
WORKERS = MetricDescription(
    "tfs_proxy_workers", _GAUGE, "Workers that run the script or convert requests, and send heartbeats."
)
WORKERS_CONFIGURED = MetricDescription(
    "tfs_proxy_workers_configured",
    _GAUGE,
    "Workers that there should be now (SAGEMAKER_GUNICORN_WORKERS; fewer until they are needed).",
)
WORKERS_STUCK = MetricDescription(
    "tfs_proxy_workers_stuck", _GAUGE, "Workers with a call of the script that is over its deadline."
)
WORKER_STARTS = MetricDescription(
    "tfs_proxy_worker_starts_total",
    _COUNTER,
    "Workers that began to load the application, those that replace others included.",
)
MODEL_STATE = MetricDescription(
    "tfs_proxy_model_state",
    _GAUGE,
    "1 for the state that a model server reports for the model, such as LOADING or AVAILABLE.",
    ("model", "version", "server", "state"),
)
MODEL_LOAD_SECONDS = MetricDescription(
    "tfs_proxy_model_load_seconds",
    _GAUGE,
    "Seconds from the model server's start, or its last death, until the model was available.",
    ("model", "version", "server"),
)
LOADED_MODELS = MetricDescription(
    "tfs_proxy_models",
    _GAUGE,
    "Models that are loaded at run time, by state: loading, ready, unloading or failed.",
    ("state",),
)
MODEL_LOADS = MetricDescription(
    "tfs_proxy_model_loads_total",
    _COUNTER,
    "Loads of models at run time, by outcome, such as loaded, not_servable or no_resources.",
    ("outcome",),
)
MODEL_LOADS_SECONDS = MetricDescription(
    "tfs_proxy_model_loads_seconds_total",
    _COUNTER,
    "Seconds that the loads at run time that went well took together.",
)
MODEL_RESTARTS = MetricDescription(
    "tfs_proxy_model_restarts_total",
    _COUNTER,
    "How often all processes of a model that was loaded at run time were started again.",
    ("model",),
)
WORKER_THREADS = MetricDescription(
    "tfs_proxy_worker_threads", _GAUGE, "Requests that all workers together can answer at a time."
)
WORKER_THREADS_BUSY = MetricDescription(
    "tfs_proxy_worker_threads_busy",
    _GAUGE,
    "Threads of the workers that answer a request now; with gevent or tornado, requests.",
)
WORKER_THREADS_STUCK = MetricDescription(
    "tfs_proxy_worker_threads_stuck",
    _GAUGE,
    "Threads of the workers with a call of the script that is over its deadline.",
)
ADAPTIVE_LIMIT = MetricDescription(
    "tfs_proxy_adaptive_limit_requests",
    _GAUGE,
    "Inferences that all workers together may answer at a time by TFS_PROXY_ADAPTIVE_LIMIT; none without it.",
)
MODEL_SERVER_METRICS_AGE = MetricDescription(
    "tfs_proxy_model_server_metrics_age_seconds",
    _GAUGE,
    "How old the model server's own metrics here are: a busy one is shown as it last answered.",
    ("server",),
)
GPU_UTILIZATION = MetricDescription(
    "hw_gpu_utilization_ratio",
    _GAUGE,
    "Share of the last moments, up to a second, in which the GPU computed.",
    ("hw_id", "hw_name"),
)
GPU_MEMORY_USAGE = MetricDescription(
    "hw_gpu_memory_usage_bytes",
    _GAUGE,
    "Memory of the GPU that is in use; TensorFlow takes nearly all as it starts.",
    ("hw_id", "hw_name"),
)
GPU_MEMORY_LIMIT = MetricDescription(
    "hw_gpu_memory_limit_bytes", _GAUGE, "Memory that the GPU has.", ("hw_id", "hw_name")
)
MODEL_GPU_SHARE = MetricDescription(
    "tfs_proxy_model_gpu_share_ratio",
    _GAUGE,
    "Share of the memory of its GPU, or slice of one, that the server of this model may take.",
    ("model", "hw_id"),
)
REQUEST_DURATION = MetricDescription(
    "http_server_request_duration_seconds",
    MetricKind.HISTOGRAM,
    "Seconds from a request's first byte to the last of its answer; each counts once, refused ones too.",
    ("http_route", "http_request_method", "http_response_status_code"),
)
REQUESTS_IN_FLIGHT = MetricDescription(
    "tfs_proxy_requests_in_flight",
    _GAUGE,
    "Requests that have begun and not ended, those that wait for a worker included.",
)
MODEL_REQUESTS = MetricDescription(
    "tfs_proxy_model_requests_total",
    _COUNTER,
    "Requests for a model by how they ended; version is latest if the request names none.",
    ("model", "version", "outcome"),
)
MODEL_REQUEST_DURATION = MetricDescription(
    "tfs_proxy_model_request_duration_seconds",
    MetricKind.HISTOGRAM,
    "Seconds from the first byte of a request for the model to the last of its answer.",
    ("model", "version"),
)
REQUEST_BYTES = MetricDescription(
    "tfs_proxy_request_bytes_total",
    _COUNTER,
    "Bytes of requests for the model, their heads included; only bodies if there is no nginx.",
    ("model", "version"),
)
RESPONSE_BYTES = MetricDescription(
    "tfs_proxy_response_bytes_total",
    _COUNTER,
    "Bytes of answers to them, their heads included; only bodies if there is no nginx.",
    ("model", "version"),
)
STAGE_DURATION = MetricDescription(
    "tfs_proxy_stage_duration_seconds",
    MetricKind.HISTOGRAM,
    "Seconds that a request spent in a stage, such as input_handler; not of requests that nginx sends past "
    "the workers.",
    ("stage", "model"),
)
STAGE_ERRORS = MetricDescription(
    "tfs_proxy_stage_errors_total",
    _COUNTER,
    "Requests that failed, by the stage of their first error, or other if it arose in none, such as for an "
    "unknown path; not of requests that nginx refuses itself or sends past the workers.",
    ("stage", "model"),
)
REQUEST_RECORDS = MetricDescription(
    "tfs_proxy_request_records",
    MetricKind.HISTOGRAM,
    "Records in a request, as far as a worker counts them.",
    ("model",),
)
PROBE_REQUESTS = MetricDescription(
    "tfs_proxy_probe_requests_total",
    _COUNTER,
    "Requests to /ping, /metrics and /v2/health, health and reflection of gRPC, all not among the others.",
    ("path", "status"),
)
GRPC_REQUESTS = MetricDescription(
    "tfs_proxy_grpc_requests_total",
    _COUNTER,
    "Calls of the gRPC API by the gRPC status of their answer; 0 is OK.",
    ("http_route", "grpc_status"),
)
UNREADABLE_LINES = MetricDescription(
    "tfs_proxy_unreadable_request_lines_total",
    _COUNTER,
    "Requests that could not be counted because their line in the request log can't be read: a fault here.",
)
CAPTURE_RECORDS = MetricDescription(
    "tfs_proxy_capture_records_total",
    _COUNTER,
    "Requests chosen for data capture: written, dropped since the target is slow or refuses, or too_large.",
    ("outcome",),
)
PIPELINE_STAGE_UP = MetricDescription(
    "tfs_proxy_pipeline_stage_up",
    _GAUGE,
    "1 if this stage of the pipeline answers /metrics; all that it says has the label stage, too.",
    ("stage",),
)

METRICS = (
    BUILD_INFO,
    READY,
    PHASE,
    STARTUP_SECONDS,
    PROCESS_UP,
    PROCESS_RESTARTS,
    PROCESS_MEMORY,
    PROCESS_CPU,
    PROCESS_FILES,
    MEMORY_LIMIT,
    WORKERS,
    WORKERS_CONFIGURED,
    WORKERS_STUCK,
    WORKER_STARTS,
    WORKER_THREADS,
    WORKER_THREADS_BUSY,
    WORKER_THREADS_STUCK,
    ADAPTIVE_LIMIT,
    MODEL_STATE,
    MODEL_LOAD_SECONDS,
    LOADED_MODELS,
    MODEL_LOADS,
    MODEL_LOADS_SECONDS,
    MODEL_RESTARTS,
    MODEL_SERVER_METRICS_AGE,
    GPU_UTILIZATION,
    GPU_MEMORY_USAGE,
    GPU_MEMORY_LIMIT,
    MODEL_GPU_SHARE,
    REQUEST_DURATION,
    REQUESTS_IN_FLIGHT,
    MODEL_REQUESTS,
    MODEL_REQUEST_DURATION,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    STAGE_DURATION,
    STAGE_ERRORS,
    REQUEST_RECORDS,
    PROBE_REQUESTS,
    GRPC_REQUESTS,
    UNREADABLE_LINES,
    CAPTURE_RECORDS,
    PIPELINE_STAGE_UP,
)
"""All of them."""
