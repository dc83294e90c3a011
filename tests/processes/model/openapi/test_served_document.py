"""The document of a real stack: whatever it gives as an example works when it is sent as it stands."""

from pathlib import Path

import pytest
from openapi_spec_validator import validate

from support.openapi import samples
from support.stack import serving

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("model", "types"),
    [
        (
            "half_plus_two",
            {
                "application/json",
                "application/jsonlines",
                "text/csv",
                "application/x-npy",
                "application/x-npz",
            },
        ),
        ("multi_io", {"application/json", "text/csv", "application/x-npz", "application/x-tfrecord"}),
        ("bytes", {"application/json", "image/png", "image/jpeg", "application/octet-stream"}),
        ("picture", {"application/json", "application/jsonlines", "image/png", "image/jpeg"}),
        ("picture_base64", {"application/json", "application/octet-stream"}),
        ("regress_classify", {"application/json", "text/csv"}),
        ("parsed", {"application/json", "application/octet-stream", "application/x-npy"}),
        ("classifier", {"application/json", "application/octet-stream"}),
    ],
)
def test_every_example_works(saved_models: Path, model: str, types: set[str]) -> None:
    """All models, one of them the default: 200 for each example, in every media type that is described."""
    with serving(str(saved_models / model), env={"TFS_PROXY_NGINX": "false"}) as stack:
        document = stack.ask("GET", "/openapi.json").json
        validate(document)
        sent = list(samples(document))
        answers = {
            (each.path, each.media_type): stack.ask(each.method, each.path, each.body, each.headers)
            for each in sent
        }

    invoked = {str(each.media_type) for each in sent if each.path == "/invocations"}
    assert types <= invoked
    assert {key: (got.status, got.body) for key, got in answers.items() if got.status != 200} == {}
