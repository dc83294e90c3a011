"""Predict on a servable, between the servers and TensorFlow: what REST and gRPC share."""

from collections.abc import Collection, Mapping, Sequence

from tfs_proxy.embedded.core.servable import (
    DEFAULT_SIGNATURE,
    Array,
    LoadedServable,
    Runner,
    ServableSignature,
)
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.protos.tensors import to_array
from tfs_proxy.wire.grpc_codes import GrpcCode


def signature_of(servable: LoadedServable, name: str) -> ServableSignature:
    """A signature by name, "" for the default one. Raises ServingError as predict does."""
    signature = servable.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise ServingError(
            GrpcCode.FAILED_PRECONDITION, f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.'
        )
    check_method(signature)
    return signature


def check_method(signature: ServableSignature) -> None:
    """Raises ServingError (INTERNAL, as TF Serving) if methods are checked and this one is unknown."""
    if signature.unfit:
        raise ServingError(GrpcCode.INTERNAL, signature.unfit)


def check_inputs(signature: ServableSignature, names: Collection[str]) -> None:
    """Raises ServingError unless these names are the signature's, defaults counted in."""
    wanted = signature.inputs.keys()
    sent = set(names)
    if sent == wanted:
        return
    defaults = signature.message.defaults.keys()
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not defaults):
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_set(sent)}) != len({_set(wanted)}). Sent extra: {_set(sent - wanted)}. "
            f"Missing but required: {_set(wanted - sent)}."
        )
    for alias in sorted(wanted - sent - defaults):
        raise invalid(
            f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not found in request "
            f"and no default value provided. Inputs expected to be in the request {_set(sent)}, "
            f"or default input alias set: {','.join(sorted(defaults))}"
        )
    if sent - wanted:
        raise invalid(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(sent & wanted))}, "
            f"request input: {','.join(sorted(sent))}"
        )


def with_defaults(signature: ServableSignature, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The given arrays, and the signature's defaults for inputs that are not among them.

    Raises ServingError as `check_inputs` does.
    """
    if arrays.keys() == signature.inputs.keys():
        return arrays
    check_inputs(signature, arrays.keys())
    defaults = {alias: to_array(tensor) for alias, tensor in signature.message.defaults.items()}
    return {**defaults, **arrays}


def chosen_outputs(signature: ServableSignature, output_filter: Sequence[str]) -> tuple[str, ...]:
    """The aliases to answer with, sorted: those asked for, or all. Raises ServingError for a bad filter."""
    seen = set()
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{_set(signature.outputs)}."
            )
        if alias in seen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        seen.add(alias)
    return tuple(sorted(seen)) or signature.aliases


def outputs_of(runner: Runner, aliases: Sequence[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run, and name what comes out. Raises ServingError."""
    return dict(zip(aliases, runner.run(arrays), strict=True))


def _set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
