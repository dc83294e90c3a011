"""Subject of a document: models with their signatures, the script's functions, and what is published."""

from collections.abc import Mapping
from enum import Enum
from urllib.parse import quote

from msgspec import Struct, field

from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature


class Conversion(Enum):
    """Readers of requests' bodies, or writers of answers', at ``/invocations``."""

    BY_SIGNATURE = "the default conversion by the model's signature"
    OF_ARRAYS = "the default conversion of arrays, without a signature"
    BY_SCRIPT = "the script"


class ScriptBodies(Struct, frozen=True):
    """Reader and writer of bodies, the script's description, and the media types that its text names."""

    reads: Conversion = Conversion.BY_SCRIPT
    writes: Conversion = Conversion.BY_SCRIPT
    description: Description = field(default_factory=Description)
    mentions: tuple[str, ...] = ()


class DescribedModel(Struct, frozen=True):
    """One served model: its versions, ascending, and the newest one's signatures by name.

    ``versions`` are empty if the model server itself follows the model's folder; ``labels`` stand for some.
    ``graph`` tells the contents of its strings.
    """

    name: str
    versions: tuple[int, ...]
    signatures: Mapping[str, Signature]
    labels: tuple[str, ...] = ()
    graph: GraphInputs = field(default_factory=GraphInputs)

    @property
    def path_name(self) -> str:
        return quote(self.name, safe="")

    @property
    def default_signature(self) -> Signature | None:
        """Signature of a request that names none; the only one if it has another name."""
        if DEFAULT_SIGNATURE in self.signatures:
            return self.signatures[DEFAULT_SIGNATURE]
        return next(iter(self.signatures.values())) if len(self.signatures) == 1 else None


class AnyModel(DescribedModel, frozen=True):
    """Any model, whose name is a path parameter."""

    name: str = "model"
    versions: tuple[int, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)

    @property
    def path_name(self) -> str:
        return "{model}"


class Service(Struct, frozen=True):
    """Interface of a run for its clients.

    ``script`` is None without one. ``rest_api`` says that TF Serving's API is published, ``open_inference``
    who answers inferences of the Open Inference Protocol: model, script or off. ``console`` says that a
    browser gets a page at ``/``. ``default_accept`` is the answer's type for clients that name none.
    """

    models: tuple[DescribedModel, ...]
    default_model: str
    script: ScriptBodies | None = None
    rest_api: bool = False
    open_inference: str = "off"
    console: bool = False
    default_accept: str | None = None
    max_payload_bytes: int = 0

    @property
    def default(self) -> DescribedModel | None:
        """Model that ``/invocations`` asks unless a request names another; None for a script model."""
        return next((model for model in self.models if model.name == self.default_model), None)

    @property
    def reads(self) -> Conversion:
        return Conversion.BY_SIGNATURE if self.script is None else self.script.reads

    @property
    def writes(self) -> Conversion:
        return Conversion.BY_SIGNATURE if self.script is None else self.script.writes
