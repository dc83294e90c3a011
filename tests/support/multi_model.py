"""Starts `tfs-proxy serve` in multi-model mode for tests; loads, lists, invokes and unloads its models."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from support.archives import pack
from support.running import START_SECONDS, Answer
from support.stack import Stack

MODE = {"SAGEMAKER_MULTI_MODEL": "true"}
LONG_SECONDS = 120.0
"""For requests that wait for a model; nothing but a failure takes so long."""


class MultiModelStack(Stack):
    """A running `tfs-proxy serve` for many models: those of SageMaker's calls, or those below a folder."""

    def __init__(
        self, *words: str, env: Mapping[str, str] | None = None, launcher: Sequence[str] = ()
    ) -> None:
        mode = {} if "--multi-model" in words else {**MODE, "TFS_PROXY_MODEL_FOLDERS": "/"}
        super().__init__(*words, env={**mode, **(env or {})}, launcher=launcher)

    def load(self, name: str, path: Path | str) -> Answer:
        """POST /models."""
        body = json.dumps({"model_name": name, "url": str(path)})
        return self.ask("POST", "/models", body, {"Content-Type": "application/json"}, LONG_SECONDS)

    def loaded(self, name: str, path: Path | str) -> None:
        """Load a model, which must go well."""
        answer = self.load(name, path)
        assert (answer.status, answer.json) == (200, {"message": f"model {name} is loaded"}), self.log

    def unload(self, name: str) -> Answer:
        """DELETE /models/NAME."""
        return self.ask("DELETE", f"/models/{name}", timeout=LONG_SECONDS)

    def described(self, name: str) -> Answer:
        """GET /models/NAME."""
        return self.ask("GET", f"/models/{name}")

    def invoke_model(self, name: str, body: bytes | str, content_type: str = "text/plain") -> Answer:
        """POST /models/NAME/invoke."""
        headers = {"Content-Type": content_type}
        return self.ask("POST", f"/models/{name}/invoke", body, headers, LONG_SECONDS)

    def target(self, path: str, body: bytes | str) -> Answer:
        """POST /invocations to the archive at ``path``, as boto3's TargetModel."""
        headers = {"Content-Type": "text/plain", "X-Amzn-SageMaker-Target-Model": path}
        return self.ask("POST", "/invocations", body, headers, LONG_SECONDS)

    def answers(self, name: str, body: str) -> bool:
        """Whether a model answers a request with 200."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.invoke_model(name, body).status == 200
        return False

    def model_servers(self) -> list[int]:
        """The process ids of the model servers, embedded or official, whichever is on PATH."""
        children = self.children()
        return [*children.get("embedded", []), *children.get("model_server", [])]

    def urls(self) -> dict[str, str]:
        """All models of GET /models, page by page, by name."""
        found: dict[str, str] = {}
        query = ""
        while True:
            page = self.ask("GET", f"/models{query}").json
            found |= {model["modelName"]: model["modelUrl"] for model in page["models"]}
            if "nextPageToken" not in page:
                return found
            query = f"?{urlencode({'next_page_token': page['nextPageToken']})}"


@contextlib.contextmanager
def serving_many(
    *words: str, env: Mapping[str, str] | None = None, launcher: Sequence[str] = ()
) -> Iterator[MultiModelStack]:
    """A stack without a model that is ready, stopped at the end."""
    stack = MultiModelStack(*words, env=env, launcher=launcher)
    try:
        stack.wait_ready(START_SECONDS)
        yield stack
    finally:
        stack.close()


def script_model(target: Path, script: str, **more: str | bytes) -> Path:
    """An archive whose script is the model, so that no model server is started for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return pack(target, {"code/inference.py": script, **more})


def saying(word: str) -> str:
    """A script model that answers every request with ``word`` and the id of its process."""
    return f"""
import os


def model_fn(model_dir):
    return {word!r}


def transform_fn(model, data, content_type, accept):
    return f"{{model}} {{os.getpid()}}", "text/plain"
"""
