"""The examples of a document are what the conversion, the protocol and the graph take."""

import pytest

from support.openapi import samples
from support.openapi_documents import CLASSIFY, NUMBERS, TEXT, document, request_types
from tfs_proxy.model.graph_inputs import GraphInputs, ParsingNode
from tfs_proxy.values.signature import TensorSpec


def bodies(graph: GraphInputs) -> dict[str, bytes]:
    """Bodies of /invocations by type, for a model of one string."""
    sent = samples(document(TEXT, graph=graph))
    return {str(sample.media_type): sample.body or b"" for sample in sent if sample.path == "/invocations"}


def test_pictures_of_one_size() -> None:
    """No example is given that might not work; the types are described all the same."""
    graph = GraphInputs(decodes_pictures=True)
    described = document(TEXT, graph=graph)

    assert bodies(graph) == {}
    assert {"image/png", "application/json"} <= request_types(described).keys()
    assert not [sample for sample in samples(described) if sample.path.endswith(("/infer", ":predict"))]


FEATURES = {"age": TensorSpec("age", "DT_INT64", ()), "size": TensorSpec("size", "DT_FLOAT", (2, None))}
PARSING = GraphInputs(parsing=(ParsingNode("tf_example", FEATURES),))


@pytest.mark.parametrize(("graph", "examples"), [(PARSING, 2), (GraphInputs(), 0)])
def test_features(graph: GraphInputs, examples: int) -> None:
    """classify has an example for each path if the graph tells its features, otherwise none."""
    sent = list(samples(document(NUMBERS, CLASSIFY, graph=graph)))
    classified = [sample.body for sample in sent if sample.path.endswith(":classify")]

    expected = b'{"signature_name": "labels", "examples": [{"age": [1], "size": [1.0, 1.0]}]}'
    assert classified == [expected] * examples
