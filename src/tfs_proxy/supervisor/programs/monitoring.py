"""What has a model server show its own metrics: a config file that names the path at which it does.

The official server's REST port is open on all addresses, and `tfs-proxy tensorflow-serving` publishes it. So
the path is one that nobody can guess, unless the user's own config names another.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.report.serving_flags import ServingFlags

FLAG = "monitoring_config_file"
DEFAULT_PATH = "/monitoring/prometheus/metrics"


class Monitoring(Struct, frozen=True):
    """``path`` is where the model servers show their metrics, None if they do not.

    ``config`` is the text of the file to be written for them, None if the user gives one.
    """

    path: str | None
    config: str | None


NO_MONITORING = Monitoring(None, None)


def monitoring_for(words: Sequence[str]) -> Monitoring:
    """The monitoring of a model server that gets the user's flags ``words``."""
    own_file = ServingFlags(tuple(words)).value(FLAG)
    if own_file:
        return Monitoring(_path_in(own_file), None)
    path = f"/monitoring/{secrets.token_hex(16)}"
    return Monitoring(path, f'prometheus_config {{ enable: true path: "{path}" }}\n')


def _path_in(config_file: str) -> str | None:
    """The path that the user's file names; None if it shows no metrics, or can't be read here."""
    # PERF: only such a file needs protobuf here, which costs 50 ms of a start.
    from google.protobuf import text_format

    from tfs_proxy.protos import POOL, MonitoringConfig

    try:
        text = Path(config_file).read_text(encoding="utf-8")
        config = text_format.Parse(text, MonitoringConfig(), descriptor_pool=POOL, allow_unknown_field=True)
    except (OSError, UnicodeDecodeError, text_format.ParseError):
        return None  # the model server reports what is wrong with it
    path = config.prometheus_config.path or DEFAULT_PATH
    return path if config.prometheus_config.enable and path.startswith("/") else None
