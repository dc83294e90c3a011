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
    for each in catalog.statuses(name, version):
        line = answer.model_version_status.add(version=each.version, state=int(each.state))
        line.status.error_code = int(each.code)  # type: ignore[assignment]
        line.status.error_message = each.message
        line.status.SetInParent()
    return answer


def spec_of(servable: LoadedServable, signature: str = "") -> ModelSpec:
    """The ModelSpec of an answer: the version that it came from."""
    spec = ModelSpec(name=servable.name, signature_name=signature)
    spec.version.value = servable.version
    return spec


def signatures(servable: LoadedServable) -> SignatureDefMap:
    """Every signature of a servable."""
    found = SignatureDefMap()
    for name, signature in servable.signatures.items():
        found.signature_def[name].CopyFrom(signature.message)
    return found


def metadata(servable: LoadedServable) -> GetModelMetadataResponse:
    """The answer of GetModelMetadata."""
    answer = GetModelMetadataResponse(model_spec=spec_of(servable))
    answer.metadata[SIGNATURE_DEF].Pack(signatures(servable))
    return answer
