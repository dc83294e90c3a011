"""Reads what data capture has written, as any JSON reader does."""

import base64
import json
from pathlib import Path
from typing import Any


def captured_files(root: Path) -> list[Path]:
    """All files below a target, the oldest first."""
    return sorted(root.rglob("*.jsonl"))


def captured(root: Path) -> list[dict[str, Any]]:
    """All records below a target."""
    return [json.loads(line) for file in captured_files(root) for line in file.read_text().splitlines()]


def written(root: Path) -> int:
    """How many records have been written whole; the last one may be under way."""
    return sum(file.read_bytes().count(b"\n") for file in captured_files(root))


def body_of(record: dict[str, Any], side: str = "endpointInput") -> bytes:
    """The body that one side of a record holds."""
    data = record["captureData"][side]
    return base64.b64decode(data["data"]) if data["encoding"] == "BASE64" else data["data"].encode()
