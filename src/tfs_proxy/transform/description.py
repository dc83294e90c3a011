"""Makes a `Job` of a CreateTransformJob request in JSON and of flags of the same names."""

import json
import logging
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.job import PATHS, Job

WITHOUT_EFFECT = ("DataCaptureConfig", "ExperimentConfig", "Tags", "TransformResources")
"""Parts of a request that only SageMaker itself has a use for."""

log = logging.getLogger(__name__)


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
    try:
        description = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"The job {path} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"The job {path} is not JSON: {error}.") from error
    if problems := _problems(description):
        raise SettingsError(f"The job {path} is not a CreateTransformJob request: {problems}")
    return dict(description)


def _problems(description: object) -> str:
    from botocore.session import get_session
    from botocore.validate import ParamValidator

    if not isinstance(description, dict):
        return "it must be an object."
    model = get_session().get_service_model("sagemaker").operation_model("CreateTransformJob")
    if model.input_shape is None:
        return "botocore does not know CreateTransformJob."
    report = ParamValidator().validate(description, model.input_shape)
    return "; ".join(report.generate_report().splitlines()) if report.has_errors() else ""


def _at(description: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    *parents, name = path
    return reduce(lambda part, parent: part.get(parent, {}), parents, description).get(name)
