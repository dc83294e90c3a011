"""The values that requests to the control plane become: models, configs, variants, components."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

REGION, ACCOUNT = "local", "000000000000"
"""What stands in the names (ARNs) of what is here."""

SERIAL, DIRECT = "Serial", "Direct"
LEAST_OUTSTANDING, RANDOM = "LEAST_OUTSTANDING_REQUESTS", "RANDOM"
STARTUP_SECONDS = 480.0
"""How long a container may take until it answers /ping with 200 (docs/reference/sagemaker.md)."""


class ContainerDefinition(Struct, frozen=True):
    """One container of a model, as AWS's type of that name.

    ``name`` is its ContainerHostname, or one by its place. ``archive`` is where its model is: an ``s3://``
    address or an absolute path, None if it needs none; with ``many_models``, what all of them are below.
    """

    name: str
    image: str | None
    archive: str | None
    many_models: bool
    caches_models: bool
    environment: Mapping[str, str]


class HostedModel(Struct, frozen=True):
    """A model, which CreateModel makes: its containers in order, and how requests go through several."""

    name: str
    containers: tuple[ContainerDefinition, ...]
    mode: str = SERIAL


class Variant(Struct, frozen=True):
    """A variant of an endpoint, which is a number of equal instances of one model.

    ``model`` is None if inference components bring the models. ``weight`` is its share of requests.
    """

    name: str
    model: str | None
    instance_count: int
    weight: float
    routing: str
    startup_seconds: float


class EndpointConfig(Struct, frozen=True):
    """What an endpoint is made of; ``parameters`` are those of its request, with all the rest."""

    name: str
    variants: tuple[Variant, ...]
    shadows: tuple[Variant, ...]
    parameters: Mapping[str, Any]
    folder: Path

    @property
    def all_variants(self) -> Sequence[Variant]:
        """Those that answer, and those that only get copies."""
        return (*self.variants, *self.shadows)


class InferenceComponent(Struct, frozen=True):
    """A model on the instances of a variant that has none itself; it is asked for by its name."""

    name: str
    endpoint: str
    variant: str
    model: HostedModel
    copies: int
    startup_seconds: float
