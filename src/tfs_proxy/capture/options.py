"""Settings -> what is captured, and which requests are."""

import random
import re
from collections.abc import Callable
from pathlib import Path

from tfs_proxy.deployment import CaptureOptions
from tfs_proxy.names import is_model_name
from tfs_proxy.settings import MEGABYTE, Settings

S3 = "s3://"
UNNAMED = "model"


def capture_options(settings: Settings, model: str) -> CaptureOptions | None:
    """What to capture, and where; None if nothing is. ``model`` names the folder if no setting does."""
    target = settings.capture_target
    if target is None or not settings.capture_percent:
        return None
    return CaptureOptions(
        target if target.startswith(S3) else str(Path(target).absolute()),
        settings.capture_name or _folder_name(model),
        settings.capture_percent,
        settings.capture_max_mb * MEGABYTE,
        keeps_input="input" in settings.capture_keeps,
        keeps_output="output" in settings.capture_keeps,
    )


def is_chosen(options: CaptureOptions, share: Callable[[], float] = random.random) -> bool:
    """Whether one more request is among those that are captured."""
    return 100 * share() < options.percent


def _folder_name(model: str) -> str:
    """``model`` as one folder: a flag may give a model any name."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", model)
    return name if is_model_name(name) else UNNAMED


def described(options: CaptureOptions) -> str:
    """A sentence for the log of a start: people's data are kept, so whoever runs this should know."""
    target = f"{options.target.rstrip('/')}/{options.name}"
    return f"capturing {options.percent:g} % of the requests to /invocations into {target}"
