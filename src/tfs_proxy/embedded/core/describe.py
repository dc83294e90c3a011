"""Model status and metadata as messages: what REST and gRPC answer about models."""

from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.protos import GetModelMetadataResponse, GetModelStatusResponse, ModelSpec, SignatureDefMap

SIGNATURE_DEF = "signature_def"
"""The only metadata field there is."""


def status(catalog: Catalog, name: str, version: int | None = None) -> GetModelStatusResponse:
    """The state of a model's versions. Raises ServingError if there is none.

    A request by label gets all versions, too: TF Serving looks only at a version's number.
    """
    answer = GetModelStatusResponse()
    for version_status in catalog.statuses(name, version):
        line = answer.model_version_status.add(
            version=version_status.version, state=int(version_status.state)
        )
        line.status.error_code = int(version_status.code)  # type: ignore[assignment]
        line.status.error_message = version_status.message
        line.status.SetInParent()
    return answer


def spec_of(servable: LoadedServable, signature: str = "") -> ModelSpec:
    """The ModelSpec of an answer: the version that it came from."""
    spec = ModelSpec(name=servable.name, signature_name=signature)
    spec.version.value = servable.version
    return spec


def signatures(servable: LoadedServable) -> SignatureDefMap:
    """Every signature of a servable."""
    message = SignatureDefMap()
    for name, signature in servable.signatures.items():
        message.signature_def[name].CopyFrom(signature.message)
    return message


def metadata(servable: LoadedServable) -> GetModelMetadataResponse:
    """The answer of GetModelMetadata."""
    answer = GetModelMetadataResponse(model_spec=spec_of(servable))
    answer.metadata[SIGNATURE_DEF].Pack(signatures(servable))
    return answer
