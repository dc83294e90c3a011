"""InvokeEndpointAsync: a request waits in the queue; the client learns where its answer will be."""

import json
from http import HTTPStatus

from tfs_proxy.endpoint.asynchronous.request import ASYNC
from tfs_proxy.endpoint.calls.errors import UNAVAILABLE, AwsError, refused
from tfs_proxy.endpoint.calls.headers import header_name
from tfs_proxy.endpoint.companions import Companions
from tfs_proxy.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.errors import Overloaded
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class AsyncInvoker:
    """Takes requests for the queues of endpoints with AsyncInferenceConfig."""

    def __init__(self, companions: Companions) -> None:
        self._companions = companions

    async def invoke(self, endpoint: HostedEndpoint, request: HttpRequest) -> HttpResponse:
        """202 with the id, and both locations as headers; raises AwsError."""
        queue = self._companions.of(endpoint).queue
        if queue is None:
            raise refused(f"Endpoint {endpoint.name} is not asynchronous: it has no AsyncInferenceConfig.")
        endpoint.group_for({})
        try:
            accepted = queue.accept(request)
        except Overloaded as error:
            raise AwsError(UNAVAILABLE, str(error)) from error
        locations = {"OutputLocation": accepted.output, "FailureLocation": accepted.failure}
        headers = {
            header_name(ASYNC, "out", member): address
            for member, address in locations.items()
            if address is not None
        }
        body = json.dumps({"InferenceId": accepted.inference_id}).encode()
        return HttpResponse(HTTPStatus.ACCEPTED, body, headers)
