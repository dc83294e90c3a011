"""Write the dashboards of deploy/: Grafana's for /metrics, CloudWatch's for the names of SageMaker.

python scripts/dashboards.py
"""

import json
from pathlib import Path
from typing import Any

import cloudwatch_dashboard
import grafana_dashboard

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def main() -> None:
    """Write all dashboards."""
    for name, dashboard in dashboards().items():
        (DEPLOY / name).write_text(text_of(dashboard))


def dashboards() -> dict[str, Any]:
    """Each dashboard by its file's name."""
    return {
        "grafana/tfs-proxy.json": grafana_dashboard.dashboard(),
        "cloudwatch/sagemaker-endpoint.json": cloudwatch_dashboard.dashboard(),
    }


def text_of(dashboard: Any) -> str:
    """A dashboard as it is in its file."""
    return json.dumps(dashboard, indent=2) + "\n"


if __name__ == "__main__":
    main()
