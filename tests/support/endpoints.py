"""Starts the real `tfs-proxy endpoint` for tests, and clients of boto3 for it."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from support.stack import Stack


def variant(name: str, model: str, **more: object) -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        **more,
    }


def described(
    models: Mapping[str, Mapping[str, Any]], variants: Sequence[Mapping[str, Any]], **config: object
) -> dict[str, Any]:
    """A CONFIG.json with the endpoint ``shop``: ``models`` have the members of CreateModel by name."""
    return {
        "CreateModel": [{"ModelName": name, **model} for name, model in models.items()],
        "CreateEndpointConfig": {
            "EndpointConfigName": "first",
            "ProductionVariants": list(variants),
            **config,
        },
        "CreateEndpoint": {"EndpointName": "shop", "EndpointConfigName": "first"},
    }


def of_image(address: str, **more: object) -> dict[str, Any]:
    """A model with one container that runs at an address."""
    return {"PrimaryContainer": {"Image": address, **more}}


def refusal(call: Any, **members: object) -> tuple[str, str]:
    """The code and the message of the error with which a call of a client is refused."""
    with pytest.raises(ClientError) as raised:
        call(**members)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


class Endpoint(Stack):
    """A running `tfs-proxy endpoint`."""

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        files: Path | None = Path("/"),
        launcher: Sequence[str] = (),
    ) -> None:
        """Requests may name files below ``files``, or what is the default."""
        allowed = [] if files is None else ["--files", str(files)]
        super().__init__(*words, *allowed, env=env, command="endpoint", workers=None, launcher=launcher)

    @property
    def runtime(self) -> Any:
        """A client of sagemaker-runtime, which tries each call once."""
        return self._client("sagemaker-runtime")

    @property
    def control_plane(self) -> Any:
        return self._client("sagemaker")

    @property
    def logs(self) -> Any:
        """A client of CloudWatch Logs."""
        return self._client("logs")

    def invoke_endpoint(self, body: bytes | str = b"abc", **members: str) -> Any:
        """InvokeEndpoint of ``shop``."""
        return self.runtime.invoke_endpoint(EndpointName="shop", Body=body, **members)

    def _client(self, service: str) -> Any:
        return botocore.session.get_session().create_client(
            service,
            endpoint_url=f"http://{self.host}:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="nobody",
            aws_secret_access_key="nothing",
            config=Config(retries={"total_max_attempts": 1}, read_timeout=90),
        )


@contextlib.contextmanager
def running_endpoint(
    folder: Path, content: Mapping[str, Any], *words: str, files: Path = Path("/")
) -> Iterator[Endpoint]:
    """An endpoint that is in service, by a CONFIG.json in ``folder``; stopped at the end."""
    config = folder / "config.json"
    config.write_text(json.dumps(content))
    with contextlib.closing(Endpoint(str(config), *words, files=files)) as endpoint:
        endpoint.wait_ready()
        yield endpoint
