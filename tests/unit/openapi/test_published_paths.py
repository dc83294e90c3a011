"""Which paths a document has: many models, the page, the limit of bodies."""

from openapi_spec_validator import validate

from support.openapi_documents import NUMBERS, document
from tfs_proxy.openapi.document import document_of_many
from tfs_proxy.openapi.service import AnyModel, Service

MANY = Service((AnyModel(),), "model", rest_api=True, open_inference="script")


def test_a_target_model() -> None:
    """A request may name an archive in a header, and what comes back is the business of its script."""
    operation = document_of_many(MANY, target_model=True)["paths"]["/invocations"]["post"]

    assert operation["parameters"][0]["name"] == "X-Amzn-SageMaker-Target-Model"
    assert operation["parameters"][0]["required"]
    assert {"404", "507", "default"} <= operation["responses"].keys()


def test_the_page() -> None:
    """HTML stands at / only if there is a page."""
    for console in (True, False):
        described = document(NUMBERS, console=console)["paths"]["/"]["get"]["responses"]["200"]["content"]
        assert ("text/html" in described) is console


def test_the_limit_of_bodies() -> None:
    """What is too large says how large a body may be; the type of the default answer is named, too."""
    described = document(NUMBERS, max_payload_bytes=6_291_456, default_accept="text/csv")

    assert "6,291,456 bytes" in described["components"]["responses"]["413"]["description"]
    answered = described["paths"]["/invocations"]["post"]["responses"]["200"]
    assert answered["description"].endswith("Without Accept it is text/csv.")


def test_a_multi_model_endpoint() -> None:
    """Its document is valid and names no model."""
    described = document_of_many(MANY, target_model=False)

    validate(described)
    assert not {"/invocations", "/execution-parameters"} & described["paths"].keys()
    assert {"/models", "/models/{name}", "/models/{name}/invoke"} <= described["paths"].keys()
    assert {"/v1/models/{model}:predict", "/v2/models/{model}/infer"} <= described["paths"].keys()
    assert "/v2/repository/models/{model}/load" in described["paths"]
