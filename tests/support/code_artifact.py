"""A stub of the two calls of AWS's CodeArtifact, with the index behind a password that they lead to."""

import base64
import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.http_servers import Quiet
from support.transform_command import S3_SETTINGS

ARN = "arn:aws:codeartifact:eu-west-1:123456789012:repository/ours/shared.pypi"
TOKEN = "eyJ2ZXIiOjEsImlzdSI6MX0.dG9rZW4-_w.c2VjcmV0"
_ALLOWED = f"Basic {base64.b64encode(f'aws:{TOKEN}'.encode()).decode()}"


class CodeArtifact(ThreadingHTTPServer):
    """Serves files of ``packages`` / NAME to who has the password; with a ``refusal``, AWS answers it."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(root)))
        address = f"http://127.0.0.1:{self.server_port}"
        answer = {"authorizationToken": TOKEN, "repositoryEndpoint": f"{address}/pypi/shared.pypi/"}
        (root / "v1/repository").mkdir(parents=True)
        for call in ("authorization-token", "repository/endpoint"):
            (root / "v1" / call).write_text(json.dumps(answer))
        self.packages = root / "pypi/shared.pypi/simple"
        self.variables = {
            **S3_SETTINGS,
            "CA_REPOSITORY_ARN": ARN,
            "AWS_ENDPOINT_URL_CODEARTIFACT": address,
        }
        self.refusal = ""
        self.asked: list[str] = []
        """AWS's calls."""

        self.shown: list[bytes] = []
        """Command lines that had the password while something was asked for."""


class _Handler(Quiet, SimpleHTTPRequestHandler):
    server: CodeArtifact

    def do_GET(self) -> None:
        self.body()
        lines = (file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline"))
        self.server.shown += [line for line in lines if TOKEN.encode() in line]
        of_aws = self.path.startswith("/v1/")
        if of_aws:
            self.server.asked.append(self.path)
        if of_aws and self.server.refusal:
            self.answer(403, b"", {"x-amzn-ErrorType": self.server.refusal})
        elif not of_aws and self.headers["Authorization"] != _ALLOWED:
            self.answer(401, b"", {"WWW-Authenticate": "Basic"})
        else:
            super().do_GET()

    do_POST = do_GET  # noqa: N815
