"""AWS's own client of bidirectional streams: what it sees of the endpoint at a URL, by a certificate that it trusts."""

import asyncio
import json
import sys
from typing import Any

from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from aws_sdk_sagemaker_runtime_http2.models import (
    InvokeEndpointWithBidirectionalStreamInput,
    RequestPayloadPart,
    RequestStreamEventPayloadPart,
)
from awscrt.io import ClientTlsContext, TlsContextOptions
from smithy_http.aio.crt import AWSCRTHTTPClient

url, certificate, cases = sys.argv[1:]


class TrustingClient(AWSCRTHTTPClient):
    """Trusts one certificate; the client has no option for that."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        trust = TlsContextOptions()
        trust.override_default_trust_store_from_path(None, certificate)
        self._tls_ctx = ClientTlsContext(trust)

    def __deepcopy__(self, _memo: Any) -> "TrustingClient":
        return self


async def seen(client: AsyncSageMakerRuntimeHTTP2Client, case: dict[str, Any]) -> dict[str, Any]:
    """The parts that came back until there are as many as `reads`, and the error that ended the stream."""
    answers: list[Any] = []
    members = {"endpoint_name": "shop", **case.get("members", {})}
    try:
        stream = await client.invoke_endpoint_with_bidirectional_stream(
            InvokeEndpointWithBidirectionalStreamInput(**members)
        )
        for text, data_type, state in case["parts"]:
            part = RequestPayloadPart(bytes_=text.encode(), data_type=data_type, completion_state=state)
            await stream.input_stream.send(RequestStreamEventPayloadPart(part))
        output, events = await stream.await_output()
        if case["reads"] == 0:
            await stream.input_stream.close()
        async for event in events:
            part = event.value
            answers.append([(part.bytes_ or b"").decode(), part.data_type, part.completion_state])
            if len(answers) == case["reads"]:
                await stream.input_stream.close()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        known = ("code", "error_code", "original_status_code", "original_message")
        codes = {name: value for name in known if (value := getattr(error, name, None)) is not None}
        return {"answers": answers, "error": type(error).__name__, "text": str(error), **codes}
    return {"answers": answers, "variant": output.invoked_production_variant}


async def main() -> None:
    """Prints what each case saw, by its name; all of them one after the other, then all at once."""
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri=url,
        region="us-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        transport=TrustingClient(),
    )
    client = AsyncSageMakerRuntimeHTTP2Client(config)
    wanted = json.loads(cases)
    alone = {name: await seen(client, case) for name, case in wanted.items()}
    together = await asyncio.gather(*(seen(client, case) for case in wanted.values()))
    print(json.dumps({"alone": alone, "together": dict(zip(wanted, together, strict=True))}), flush=True)


asyncio.run(main())
