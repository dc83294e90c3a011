"""SageMaker's runtime API on this machine: what boto3 sends to an endpoint goes to a running stack."""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from support.running import Running

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "of-nobody",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PASSED_ON = ("Content-Type", "Accept", "X-Amzn-SageMaker-Custom-Attributes", "X-Amzn-SageMaker-Target-Model")
SECONDS = 60.0


@contextmanager
def sagemaker_endpoint(running: Running, name: str) -> Iterator[Mapping[str, str]]:
    """The environment in which boto3 finds the endpoint ``name``, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        """InvokeEndpoint as the platform does it: body and headers to /invocations, the answer back."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != f"/endpoints/{name}/invocations":
                self.send_error(404)
                return
            headers = {field: self.headers[field] for field in PASSED_ON if field in self.headers}
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=SECONDS)
            connection.request("POST", "/invocations", body, headers)
            with connection.getresponse() as answer:
                self.send_response(answer.status)
                answered = answer.read()
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(answered)))
                self.end_headers()
                self.wfile.write(answered)
            connection.close()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            yield {**CREDENTIALS, "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url}
        finally:
            server.shutdown()
            serving.join()
