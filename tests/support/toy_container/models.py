"""The toy's models of a multi-model endpoint."""

import threading
import time
from pathlib import Path
from typing import Any

LOAD_SECONDS = 0.1
BLOCKED_SECONDS = 3.0


class ToyModels:
    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._urls: dict[str, str] = {}
        self.loading = threading.Lock()

    def has(self, name: str) -> bool:
        return name in self._urls

    def load(self, request: Any) -> tuple[int, Any]:
        name, url = request["model_name"], request["url"]
        if name in self._urls and self._fault != "load-twice":
            return 409, {"error": "it is loaded"}
        if not Path(url).exists() and self._fault != "load-anything":
            return 404, {"error": "there is no such folder"}
        with self.loading:
            time.sleep(BLOCKED_SECONDS if self._fault == "load-blocks" else LOAD_SECONDS)
            self._urls[name] = url
        return 200, {}

    def unload(self, path: str) -> tuple[int, Any]:
        name = path.rpartition("/")[2]
        if name not in self._urls:
            return 404, {"error": "it is not loaded"}
        if self._fault != "stays-listed":
            del self._urls[name]
        return 200, {}

    def get(self, path: str) -> tuple[int, Any]:
        name = path.removeprefix("/models").strip("/")
        if not name and self._fault == "list-of-names":
            return 200, {"models": [{"name": each} for each in self._urls]}
        if not name:
            return 200, {"models": [_described(each, url) for each, url in self._urls.items()]}
        if name not in self._urls and self._fault != "get-is-200":
            return 404, {"error": "it is not loaded"}
        return 200, _described(name, self._urls.get(name, ""))


def _described(name: str, url: str) -> dict[str, str]:
    return {"modelName": name, "modelUrl": url}
