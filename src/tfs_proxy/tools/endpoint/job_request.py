"""A CreateTransformJob request as values: the job, its model with a batch's variables, the engine's file."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.tools.endpoint.operations import DIRECT, HostedModel, OperationRequest, located
from tfs_proxy.transform.job import WITHOUT_EFFECT, Job, make_job
from tfs_proxy.transform.leftovers import model_digest
from tfs_proxy.transform.options import job_environment
from tfs_proxy.values.errors import SettingsError

RESOURCES = "TransformResources"
"""A member without effect that the engine's file must have, too."""


class JobRequest(Struct, frozen=True):
    """A job and the model that does it, as they were when the job was created."""

    name: str
    """Name of the job."""

    job: Job
    """Job for the engine, with addresses of this machine."""

    model: HostedModel
    """Model that does it."""

    parameters: Mapping[str, Any]
    """Members of its request."""

    created: float
    """Time of its creation in seconds since 1970."""

    @property
    def batch_model(self) -> HostedModel:
        """The model, whose containers get the variables of a batch job and those of the job."""
        variables = job_environment(self.job)
        containers = tuple(
            replace(each, environment={**each.environment, **variables}) for each in self.model.containers
        )
        return replace(self.model, containers=containers)

    def engine_file(self) -> str:
        """The JSON that `tfs-proxy transform` reads, with the addresses as this machine has them."""
        left_out = {*WITHOUT_EFFECT, "Environment"} - {RESOURCES}  # containers have the environment
        members = {name: value for name, value in self.parameters.items() if name not in left_out}
        source = members["TransformInput"]["DataSource"]["S3DataSource"]
        members["TransformInput"] = {
            **members["TransformInput"],
            "DataSource": {"S3DataSource": {**source, "S3Uri": self.job.input}},
        }
        members["TransformOutput"] = {**members["TransformOutput"], "S3OutputPath": self.job.output}
        return json.dumps(members)

    def served_as(self, programs: Mapping[str, str]) -> str:
        """Identifies what answers: archives, variables, and ``programs``, which identify each container's.

        Reads all archives. Raises SettingsError if one is not there.
        """
        parts = [
            [
                each.name,
                programs[each.name],
                each.archive and model_digest(each.archive),
                sorted({**each.environment, **self.job.environment}.items()),
            ]
            for each in self.model.containers
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def job_of(request: OperationRequest) -> Job:
    """The job of a request; ``file://`` addresses and relative paths become absolute paths.

    Raises SettingsError if SageMaker would refuse it, beyond what its service model says.
    """
    parameters = {name: part for name, part in request.parameters.items() if name not in WITHOUT_EFFECT}
    job = make_job(parameters, {})
    return replace(
        job,
        input=located(job.input, request.folder, "S3Uri"),
        output=located(job.output, request.folder, "S3OutputPath"),
    )


def conflicts_of_job(
    request: OperationRequest, models: Mapping[str, HostedModel], created: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Faults beyond AWS's service model; ``created`` has the requests that made the ``models``."""
    name = request.parameters["ModelName"]
    model = models.get(name)
    if model is None:
        yield f"ModelName {name} is unknown: CreateModel has not made it"
        return
    if model.mode == DIRECT:
        yield f"ModelName {name} has the mode {DIRECT}: a transform job takes Serial"
    if any(container.many_models for container in model.containers):
        yield f"ModelName {name} has a container with many models, which a transform job can't use"
    containers = created[name].get("Containers") or [created[name]["PrimaryContainer"]]
    sources = (each.get("ModelDataSource", {}).get("S3DataSource", {}) for each in containers)
    if any(source.get("CompressionType") == "None" for source in sources):
        yield f"ModelName {name} has an uncompressed ModelDataSource, which a transform job can't use"
    try:
        job_of(request)
    except SettingsError as error:
        yield str(error).rstrip(".")


def job_request(request: OperationRequest, models: Mapping[str, HostedModel], created: float) -> JobRequest:
    return JobRequest(
        request.name, job_of(request), models[request.parameters["ModelName"]], request.parameters, created
    )
