"""AWS's client of InvokeEndpointWithBidirectionalStream, unchanged, against `tfs-proxy endpoint --stream-port`."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.endpoints import described, of_image, running_endpoint, variant
from support.judges import Judge
from support.ports import free_port
from support.websocket_container import NO_STREAMS, websocket_container

CLOSED, BROKEN = "The container closed the stream with 1011: the script failed", "broke without a close"
SUBJECT = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")


def case(*parts: tuple[str, str | None, str | None], reads: int = 1, **members: str) -> dict[str, Any]:
    return {"parts": parts, "reads": reads, "members": members}


CASES = {
    "text": case(("hello", "UTF8", None)),
    "binary": case(("\0\1", None, None)),
    "fragments": case(("he", "UTF8", "PARTIAL"), ("", None, "PARTIAL"), ("llo", None, "COMPLETE")),
    "pieces": case(("in pieces", "UTF8", None), reads=3),
    "path": case(("path", "UTF8", None), model_invocation_path="a/b", model_query_string="c=1&d=2"),
    "closed": case(("close with 1000", "UTF8", None), reads=-1),
    "failed": case(("close with 1011", "UTF8", None), reads=-1),
    "broken": case(("break off", "UTF8", None), reads=-1),
    "wrong part": case(("x", "JPEG", None), reads=-1),
    "empty": case(reads=0),
    "refused": case(model_invocation_path=NO_STREAMS[1:]),
    "no endpoint": case(endpoint_name="nowhere"),
    "no variant": case(target_variant="nobody"),
}
SEEN: dict[str, dict[str, Any]] = {
    "text": {"answers": [["hello", "UTF8", "COMPLETE"]], "variant": "all"},
    "binary": {"answers": [["\0\1", "BINARY", "COMPLETE"]], "variant": "all"},
    "fragments": {"answers": [["hello", "UTF8", "COMPLETE"]], "variant": "all"},
    "pieces": {
        "answers": [["one ", "UTF8", "PARTIAL"], ["two", "UTF8", "PARTIAL"], ["", "UTF8", "COMPLETE"]],
        "variant": "all",
    },
    "path": {"answers": [["/a/b?c=1&d=2", "UTF8", "COMPLETE"]], "variant": "all"},
    "closed": {"answers": [], "variant": "all"},
    "failed": {"error": "ModelStreamError", "error_code": "1011", "text": CLOSED},
    "broken": {"error": "ModelStreamError", "error_code": "StreamBroken", "text": BROKEN},
    "wrong part": {"error": "UnmodeledEventError", "code": "InputValidationError", "text": "UTF8, BINARY"},
    "empty": {"answers": [], "variant": "all"},
    "refused": {"error": "ModelError", "original_status_code": 404, "original_message": "no streams here"},
    "no endpoint": {"error": "InputValidationError", "text": "nowhere"},
    "no variant": {"error": "InputValidationError", "text": "nobody"},
}


@pytest.fixture(scope="module")
def seen(judges: Callable[[str], Judge], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    judge, folder = judges("bidirectional"), tmp_path_factory.mktemp("endpoint")
    certificate, key, port = str(folder / "cert.pem"), str(folder / "key.pem"), str(free_port())
    words = ("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1", *SUBJECT)
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with websocket_container() as address:
        config = described({"echo": of_image(address)}, [variant("all", "echo")])
        stream = ("--stream-port", port, "--stream-certificate", certificate, "--stream-key", key)
        with running_endpoint(folder, config, *stream) as endpoint:
            saw = judge.saw("bidirectional", f"https://localhost:{port}", certificate, json.dumps(CASES))
            assert "Traceback" not in endpoint.log
    return saw


@pytest.mark.parametrize("way", ["alone", "together"])
@pytest.mark.parametrize("name", CASES)
def test_the_client_sees(seen: dict[str, Any], name: str, way: str) -> None:
    """Each part as one frame, both ways, and each error by its name, on one connection."""
    got = seen[way][name]
    for member, value in SEEN[name].items():
        assert value in got[member] if member == "text" else got[member] == value, got
