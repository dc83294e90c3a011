"""Write the pages of docs/reference/ that come from the code: settings, commands, metrics, routes, values.

python scripts/docs_reference.py
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from chart_values import values_page
from settings_table import tables

from tfs_proxy.observe.catalogue import METRICS
from tfs_proxy.wire.routes import TABLE, Route

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
CHART = ROOT / "deploy" / "chart"
COMMANDS = {
    "demo": "A first answer without a model of your own: [install](../start/install.md).",
    "serve": "Serve an archive, [many](../how-to/multi-model.md), or a [pipeline](../how-to/pipelines.md).",
    "check": "Say what would be served, and try a script on a request.",
    "ask": "Send a file to a container: [how to](../how-to/ask.md).",
    "pack": "Write a checked archive of a trained model: [how to](../how-to/pack.md).",
    "init": "Begin a script: [how to](../how-to/scripts.md#begin-one).",
    "transform": "Run a batch transform job: [how to](../how-to/batch-transform.md).",
    "endpoint": "Serve SageMaker's endpoints on this machine: [how to](../how-to/endpoint.md).",
    "settings": "List the environment variables, as [Settings](settings.md) has them.",
    "model-server": "The [embedded model server](embedded.md), one of the commands [of the images]"
    "(../how-to/docker.md#choose-a-model), with the flags of `tensorflow_model_server`.",
}
GENERATED = "<!-- Written by scripts/docs_reference.py (make docs-reference): change the code instead. -->\n"
HELP_COLUMNS = "100"


def main() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    return {
        "settings.md": settings_page(),
        "commands.md": commands_page(),
        "metrics.md": metrics_page(),
        "http.md": http_page(),
        "chart.md": chart_page(),
    }


def settings_page() -> str:
    """All settings, in the groups and the order of the code."""
    return f"""{GENERATED}
# Settings

All environment variables. `--port`, `--host` and MODEL on the command line come first; everything else is
read from the environment.
Names and meanings of `SAGEMAKER_*` are those of AWS's TensorFlow container; the last column has AWS's default
if it differs.

{tables()}

## OpenTelemetry

The standard `OTEL_*` variables switch traces on and configure them:
[Trace requests](../how-to/traces.md#the-variables).

## Cores

The number of workers follows from cores and memory.
"Cores" are those that the process may run on, or the CPU limit rounded up if that is less (cgroup v1 or v2,
the smallest on the way up). There is a worker for each, or as many as memory holds if that is fewer:
(memory limit - what always runs - 2 x the models' size) / 150 MB. What always runs is 100 MB, and with models
their server, 365 MB (310 MB if it is the official one, which counts alike). A limit of processes and threads
(`pids.max`, `docker run --pids-limit`) bounds workers and threads, too. The start-up report says which of
them decided.
"""


def commands_page() -> str:
    """The help of each command, as it prints it."""
    sections = [f"## {name}\n\n{text}\n\n```text\n{help_of(name)}\n```\n" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            GENERATED,
            "# Commands\n",
            f"```text\n{help_of()}\n```\n",
            *sections,
        ]
    )


def metrics_page() -> str:
    """Every metric of the catalogue."""
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.help} |"
        for metric in METRICS
    ]
    table = "\n".join(["| name | kind | labels | meaning |", "|---|---|---|---|", *rows])
    return f"""{GENERATED}
# Metrics

`GET /metrics` answers these on the serving port, in Prometheus's text format or in OpenMetrics. A label never
takes a client's text: what is not known here shares one value, `other` for a path and `_OTHER` for a method.

The model servers' own metrics come with them, with the number of each in the label `server`,
under names that OpenMetrics allows: `:tensorflow:serving:request_count` is
`tensorflow_serving_request_count_total` here. So do
[those of a script](../how-to/monitor.md#metrics-of-your-own).

{table}
"""


def chart_page() -> str:
    """All values of the chart, from the comments of its values.yaml."""
    return f"{GENERATED}\n{values_page((CHART / 'values.yaml').read_text())}"


def http_page() -> str:
    """The page as it is, with the table of all routes anew."""
    page = (REFERENCE / "http.md").read_text()
    before, begin, rest = page.partition("<!-- routes: written by make docs-reference -->\n")
    head = "| request | who | one archive | many models | pipeline | answer |\n|---|---|---|---|---|---|\n"
    rows = [f"{route_row(each)}\n" for each in TABLE if each.sentence]
    return "".join([before, begin, head, *rows, *rest.partition("<!-- end of routes -->")[1:]])


def route_row(route: Route) -> str:
    """A route with its names in capitals."""
    path = re.sub(r"\{(\w+)\}", lambda name: "NAME" if name[1] == "model" else name[1].upper(), route.path)
    methods = ", ".join(method for method in route.methods if method != "HEAD")
    cells = (f"`{methods} {path}`", route.caller.value, *route.answered_by, route.sentence)
    return f"| {' | '.join(cells)} |"


def help_of(*command: str) -> str:
    """What `tfs-proxy COMMAND --help` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tfs_proxy.cli", *command, "--help"],
        env={**os.environ, "COLUMNS": HELP_COLUMNS},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
