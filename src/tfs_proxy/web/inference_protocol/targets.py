"""What a request of the protocol is for: model and version of its path, signature of its parameters."""

import re

from msgspec.structs import replace

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UnknownModel
from tfs_proxy.names import HIGHEST_VERSION, LABEL, VERSION, printable
from tfs_proxy.open_inference.infer_request import InferRequest
from tfs_proxy.signature import Target

ONLY_VERSION = 1
"""The version of a script that is the model itself."""

_SHOWN_CHARACTERS = 100


def target_of(deployment: Deployment, model: str, version: str | None) -> Target:
    """The model that a path names, and its version or a version label; raises UnknownModel if it has none."""
    served_name = deployment.served_name(model)
    if served_name not in deployment.models and served_name != _script_model(deployment):
        raise UnknownModel(f"There is no model {printable(model)[:_SHOWN_CHARACTERS]}.")
    if version is None:
        return Target(served_name)
    if re.fullmatch(VERSION, version, re.ASCII) and int(version) <= HIGHEST_VERSION:
        return Target(served_name, version=int(version))
    if re.fullmatch(LABEL, version, re.ASCII):
        return Target(served_name, label=version)
    raise UnknownModel(f"{printable(version)[:_SHOWN_CHARACTERS]} is neither a version nor a version label.")


def targeted_signature(target: Target, request: InferRequest) -> Target:
    """The target with the signature that a request names; raises BadInput if that is not a string."""
    return target if request.signature is None else replace(target, signature=request.signature)


def _script_model(deployment: Deployment) -> str | None:
    """The name of a script that is the model itself."""
    return None if deployment.script_model is None else deployment.default_model
