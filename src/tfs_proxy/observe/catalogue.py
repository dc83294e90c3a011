"""Catalogue of the metrics that `/metrics` can show, in the order of the reference page.

Names follow OpenTelemetry's semantic conventions if there is one, and begin with ``tfs_proxy_`` otherwise.
Every label takes values from a bounded set, never the text of a client.
"""

from functools import partial

from tfs_proxy.observe.metric import MetricDescription, MetricKind

METRICS: list[MetricDescription] = []


def _described(kind: MetricKind, name: str, labels: str, help_text: str) -> MetricDescription:
    METRICS.append(MetricDescription(name, kind, help_text, tuple(labels.split())))
    return METRICS[-1]


_counter, _gauge, _histogram = (partial(_described, kind) for kind in MetricKind)

# fmt: off
BUILD_INFO = _gauge("tfs_proxy_build_info", "version python",
    "Always 1; the labels name the versions that run.")
READY = _gauge("tfs_proxy_ready", "",
    "1 if GET /ping answers 200, which means that requests are served, else 0.")
PHASE = _gauge("tfs_proxy_phase", "phase",
    "1 for the phase that the run is in: starting, serving or stopping.")
STARTUP_SECONDS = _gauge("tfs_proxy_startup_seconds", "step",
    "Seconds that the start spent in each of its steps, so far if it is in it now.")
UPDATE_REFUSED = _gauge("tfs_proxy_update_refused", "",
    "With --reload: 1 while the newest change can't be used and what was there before serves.")
PROCESS_UP = _gauge("tfs_proxy_process_up", "process",
    "1 if the process runs, 0 if it has ended and is started again.")
PROCESS_RESTARTS = _counter("tfs_proxy_process_restarts_total", "process reason",
    "How often a process ended by itself, by the signal or exit status that it ended with.")
PROCESS_MEMORY = _gauge("tfs_proxy_process_resident_memory_bytes", "process",
    "Memory that the process and its own children hold; what they share counts for each.")
PROCESS_CPU = _counter("tfs_proxy_process_cpu_seconds_total", "process",
    "Processor time that the process and its own children have used.")
PROCESS_FILES = _gauge("tfs_proxy_process_open_files", "process",
    "Files and connections that the process and its own children have open.")
MEMORY_LIMIT = _gauge("tfs_proxy_memory_limit_bytes", "",
    "Memory that all processes may use together: the container's limit, or all of the machine's.")
WORKERS = _gauge("tfs_proxy_workers", "",
    "Workers that run the script or convert requests, and send heartbeats.")
WORKERS_CONFIGURED = _gauge("tfs_proxy_workers_configured", "",
    "Workers that there should be now (SAGEMAKER_GUNICORN_WORKERS).")
WORKERS_STUCK = _gauge("tfs_proxy_workers_stuck", "",
    "Workers with a call of the script that is over its deadline.")
WORKER_STARTS = _counter("tfs_proxy_worker_starts_total", "",
    "Workers that began to load the application, those that replace others included.")
WORKER_THREADS = _gauge("tfs_proxy_worker_threads", "",
    "Requests that all workers together can answer at a time.")
WORKER_THREADS_BUSY = _gauge("tfs_proxy_worker_threads_busy", "",
    "Threads of the workers that answer a request now; with gevent, requests.")
WORKER_THREADS_STUCK = _gauge("tfs_proxy_worker_threads_stuck", "",
    "Threads of the workers with a call of the script that is over its deadline.")
SCRIPT_HEALTHY = _gauge("tfs_proxy_script_healthy", "model",
    "0 if the script's health(context) failed twice in a row, else 1; missing without such a function.")
MODEL_STATE = _gauge("tfs_proxy_model_state", "model version server state",
    "1 for the state that a model server reports for the model, such as LOADING or AVAILABLE.")
MODEL_LOAD_SECONDS = _gauge("tfs_proxy_model_load_seconds", "model version server",
    "Seconds from the model server's start, or its last death, until the model was available.")
LOADED_MODELS = _gauge("tfs_proxy_models", "state",
    "Models that are loaded at run time, by state: loading, ready, unloading or failed.")
MODEL_LOADS = _counter("tfs_proxy_model_loads_total", "outcome",
    "Loads of models at run time, by outcome, such as loaded, not_servable or no_resources.")
MODEL_LOADS_SECONDS = _counter("tfs_proxy_model_loads_seconds_total", "",
    "Seconds that the loads at run time that went well took together.")
MODEL_RESTARTS = _counter("tfs_proxy_model_restarts_total", "model",
    "How often all processes of a model that was loaded at run time were started again.")
MODEL_SERVER_METRICS_AGE = _gauge("tfs_proxy_model_server_metrics_age_seconds", "server",
    "How old the model server's own metrics here are: a busy one is shown as it last answered.")
GPU_UTILIZATION = _gauge("hw_gpu_utilization_ratio", "hw_id hw_name",
    "Share of the last moments, up to a second, in which the GPU computed.")
GPU_MEMORY_USAGE = _gauge("hw_gpu_memory_usage_bytes", "hw_id hw_name",
    "Memory of the GPU that is in use; TensorFlow takes nearly all as it starts.")
GPU_MEMORY_LIMIT = _gauge("hw_gpu_memory_limit_bytes", "hw_id hw_name", "Memory that the GPU has.")
REQUEST_DURATION = _histogram(
    "http_server_request_duration_seconds", "http_route http_request_method http_response_status_code",
    "Seconds from a request's first byte to the last of its answer; each counts once, refused ones too.")
REQUESTS_IN_FLIGHT = _gauge("tfs_proxy_requests_in_flight", "",
    "Requests that have begun and not ended, those that wait for a worker included.")
MODEL_REQUESTS = _counter("tfs_proxy_model_requests_total", "model version outcome",
    "Requests for a model by how they ended; version is latest if the request names none.")
MODEL_REQUEST_DURATION = _histogram("tfs_proxy_model_request_duration_seconds", "model version",
    "Seconds from the first byte of a request for the model to the last of its answer.")
REQUEST_BYTES = _counter("tfs_proxy_request_bytes_total", "model version",
    "Bytes of requests for the model, their heads included; only bodies if there is no nginx.")
RESPONSE_BYTES = _counter("tfs_proxy_response_bytes_total", "model version",
    "Bytes of answers to them, their heads included; only bodies if there is no nginx.")
STAGE_DURATION = _histogram("tfs_proxy_stage_duration_seconds", "stage model",
    "Seconds that a request spent in a stage, such as input_handler; not of requests that nginx sends past "
    "the workers.")
STAGE_ERRORS = _counter("tfs_proxy_stage_errors_total", "stage model",
    "Requests that failed, by the stage of their first error, or other if it arose in none, such as for an "
    "unknown path; not of requests that nginx refuses itself or sends past the workers.")
REQUEST_RECORDS = _histogram("tfs_proxy_request_records", "model",
    "Records in a request, as far as a worker counts them.")
PROBE_REQUESTS = _counter("tfs_proxy_probe_requests_total", "path status",
    "Requests to /ping, /live, /metrics, /v2/health, health and reflection of gRPC, not among the others.")
GRPC_REQUESTS = _counter("tfs_proxy_grpc_requests_total", "http_route grpc_status",
    "Calls of the gRPC API by the gRPC status of their answer; 0 is OK.")
UNREADABLE_LINES = _counter("tfs_proxy_unreadable_request_lines_total", "",
    "Requests that could not be counted because their line in the request log can't be read: a fault here.")
CAPTURE_RECORDS = _counter("tfs_proxy_capture_records_total", "outcome",
    "Requests chosen for data capture: written, or dropped since the folder is slow or full.")
PIPELINE_STAGE_UP = _gauge("tfs_proxy_pipeline_stage_up", "stage",
    "1 if this stage of the pipeline answers /metrics; all that it says has the label stage, too.")
# fmt: on
