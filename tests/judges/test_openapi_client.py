"""openapi-python-client makes a client from a stack's document, and the client asks the stack."""

from pathlib import Path

import pytest

from support.archives import pack
from support.judges import Judge, judge
from support.stack import Stack, serving

pytestmark = pytest.mark.tensorflow

ASK_MODEL = """
from client import Client
from client.api.sage_maker import invoke
from client.api.tensor_flow_serving import predict_half
from client.models import PredictHalfServingDefaultInstances as Rows

client = Client("{url}")
print(predict_half.sync(client=client, body=Rows.from_dict({{"instances": [1.0, 2.0]}})).to_dict())
print(invoke.sync(client=client, body=[1.0, 2.0]).to_dict())
"""

SCRIPT = """
from dataclasses import dataclass

@dataclass
class Customer:
    age: float
    name: str = ""

@dataclass
class Score:
    score: float

def handler(customers: list[Customer], context) -> list[Score]:
    return [Score(customer.age / 2) for customer in customers]
"""

ASK_SCRIPT = """
from client import Client
from client.api.sage_maker import invoke
from client.models import Customer

print([score.score for score in invoke.sync(client=Client("{url}"), body=[Customer(age=40.0)])])
"""


def generated(stack: Stack, folder: Path) -> Judge:
    """Make the package ``client`` in ``folder`` from the stack's document."""
    document = folder / "openapi.json"
    document.write_bytes(stack.ask("GET", "/openapi.json").body)
    client = judge("openapi_client")
    words = ("--path", document, "--output-path", folder / "client", "--meta", "none")
    client.run("openapi-python-client", "generate", *words)
    return client


def asked(stack: Stack, folder: Path, program: str) -> list[str]:
    """Run a program with the generated client; returns the lines that it prints."""
    client = generated(stack, folder)
    said = client.run(
        "python",
        "-c",
        program.format(url=f"http://{stack.host}:{stack.port}"),
        env={"PYTHONPATH": str(folder)},
    )
    return said.splitlines()


def test_a_client_of_a_model(saved_models: Path, tmp_path: Path) -> None:
    """It asks TF Serving's API by rows, and /invocations by one record, a list of numbers."""
    archive = pack(tmp_path / "model.tar.gz", {}, {"half": saved_models / "half_plus_two"})
    with serving(str(archive)) as stack:
        assert asked(stack, tmp_path, ASK_MODEL) == [
            "{'predictions': [2.5, 3.0]}",
            "{'predictions': [[2.5, 3.0]]}",
        ]


def test_a_client_of_a_typed_script(saved_models: Path, tmp_path: Path) -> None:
    """It has the classes of its annotations."""
    folders = {"half": saved_models / "half_plus_two"}
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": SCRIPT}, folders)
    with serving(str(archive)) as stack:
        assert asked(stack, tmp_path, ASK_SCRIPT) == ["[20.0]"]
