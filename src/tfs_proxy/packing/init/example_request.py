"""A signature -> an example request that the script answers; `starter` writes it beside the script."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct

from tfs_proxy import testing
from tfs_proxy.archive.graphs.graph_inputs import GraphInputs
from tfs_proxy.errors import DiscoveryError
from tfs_proxy.openapi.examples import example_bodies
from tfs_proxy.openapi.sample_records import ANY_STRING, sample_string
from tfs_proxy.payload import media_types as media
from tfs_proxy.report.first_request import EXAMPLE_ENDINGS
from tfs_proxy.settings import Settings
from tfs_proxy.signature import Signature

LONGEST_JSON = 20_000
"""Bytes of JSON that people still read; larger arrays go into a file of numpy's."""

ANSWERS = (media.JSON, media.NPZ)


class ExampleRequest(Struct, frozen=True):
    """A body of one record, its media type, and the one to ask for."""

    body: bytes
    content_type: str
    accept: str

    @property
    def file_name(self) -> str:
        """The name of a file with this body."""
        return f"request.{EXAMPLE_ENDINGS[self.content_type]}"


def example_request(
    script: Path, signature: Signature, settings: Settings, graph: GraphInputs
) -> ExampleRequest:
    """The first request of `_candidates` that the script answers, with a fake model server behind it.

    Raises DiscoveryError if there is none.
    """
    with testing.load(script, signatures=signature, settings=settings) as loaded:
        for request in _candidates(signature, graph):
            if loaded.post(request.body, request.content_type, request.accept).status == HTTPStatus.OK:
                return request
    types = ", ".join(spec.dtype for spec in (*signature.inputs.values(), *signature.outputs.values()))
    raise DiscoveryError(
        f"No example request can be made for the signature {signature.name} ({types}): "
        "run init without --model, and write the conversion into inference.py."
    )


def _candidates(signature: Signature, graph: GraphInputs) -> Iterator[ExampleRequest]:
    """A picture if the graph decodes one; else JSON, unless numpy's formats are shorter by far."""
    bodies = example_bodies(signature, sample_string(signature, graph) or ANY_STRING)
    strings = [spec.dtype for spec in signature.inputs.values()] == ["DT_STRING"]
    wanted = [media.IMAGE] if graph.decodes_pictures and strings else []
    if len(bodies.get(media.JSON, b"")) <= LONGEST_JSON:
        wanted.append(media.JSON)
    for content_type in dict.fromkeys([*wanted, media.NPY, media.NPZ, media.JSON]):
        if content_type in bodies:
            for accept in ANSWERS:
                yield ExampleRequest(bodies[content_type], content_type, accept)
