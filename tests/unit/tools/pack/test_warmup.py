"""The requests that `pack --warmup` makes from a signature, and the batch sizes that the settings allow."""

import pytest

from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.warmup import MOST_RECORDS, RecordedRequest, batch_sizes, file_of, sample_batches
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target, TensorSpec

TABLE = Signature(
    "serving_default",
    PREDICT_METHOD,
    {
        "x": TensorSpec("x", "DT_FLOAT", (None, None, 3)),
        "place": TensorSpec("place", "DT_INT64", (None,)),
        "word": TensorSpec("word", "DT_STRING", (None, 1)),
        "rate": TensorSpec("rate", "DT_HALF", ()),
    },
    {"y": TensorSpec("y", "DT_FLOAT", (None,))},
)


def test_a_batch_has_the_signatures_types_and_sizes() -> None:
    """The first axis is the batch; other sizes that are left open are 1."""
    one, two = sample_batches(TABLE, GraphInputs(), (1, 2))

    assert {name: (array.dtype.name, array.shape) for name, array in two.inputs.items()} == {
        "x": ("float32", (2, 1, 3)),
        "place": ("int64", (2,)),
        "word": ("object", (2, 1)),
        "rate": ("float16", ()),
    }
    assert one.inputs["x"].shape == (1, 1, 3)


def test_a_model_of_pictures_of_one_size_needs_requests() -> None:
    """The graph does not tell which size: a made-up picture would keep the version from loading."""
    picture = Signature(
        "serving_default", PREDICT_METHOD, {"image": TensorSpec("image", "DT_STRING", (None,))}, {}
    )

    with pytest.raises(SettingsError, match="--request"):
        list(sample_batches(picture, GraphInputs(decodes_pictures=True), (1,)))


def test_a_request_is_bounded() -> None:
    with pytest.raises(SettingsError, match="The input x of shape"):
        list(sample_batches(TABLE, GraphInputs(), (10**9,)))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (1,)),
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "3"}, (1, 2, 3)),
        (
            {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "100"},
            (1, 2, 4, 8, 16, 32, 64, 100),
        ),
    ],
)
def test_batch_sizes_are_those_of_the_settings(environ: dict[str, str], expected: tuple[int, ...]) -> None:
    assert batch_sizes(Settings.from_env(environ)) == expected


def test_more_requests_than_a_model_server_takes_are_refused() -> None:
    many = [RecordedRequest(Target("m"), Batch({}, 1), "a request")] * (MOST_RECORDS + 1)
    with pytest.raises(SettingsError, match="1001 requests are too many"):
        file_of(many, {"serving_default": TABLE})
