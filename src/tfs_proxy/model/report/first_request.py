"""Suggestion of a curl command at start-up, which the model should answer."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from tfs_proxy.model.graph_inputs import BASE64_OP
from tfs_proxy.model.graph_nodes import PICTURE_OPS, ops_in
from tfs_proxy.model.report.served import Served, sample_inputs, sample_sizes, sample_value
from tfs_proxy.model.report.startup import ModelReport
from tfs_proxy.model.script_syntax import media_types_in, read_ast_names, reads_own_form
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.routes import INVOCATIONS

TRY = "  try: "
READY_LINE = re.compile(rf"\bready: (?P<url>http://[^\s,]+).*?{TRY}(?P<command>.*)")
LONGEST_BODY = 400

NPY_TYPES: Mapping[str, str] = {
    "DT_HALF": "<f2",
    "DT_BFLOAT16": "<f4",
    "DT_FLOAT": "<f4",
    "DT_DOUBLE": "<f8",
    "DT_BOOL": "|b1",
    **{f"DT_{name}8": f"|{kind}1" for name, kind in (("INT", "i"), ("UINT", "u"))},
    **{f"DT_{name}{8 * size}": f"<{name[0].lower()}{size}" for name in ("INT", "UINT") for size in (2, 4, 8)},
}
EXAMPLE_ENDINGS = {media.JSON: "json", media.NPY: "npy", media.NPZ: "npz", media.IMAGE: "png"}
"""Endings of the file `request.ENDING` of `init`, by media type."""

# `wire.dtypes` has these too, but importing numpy takes 80 ms of start-up; a test compares them.
AS_JSON_TEXT = """{"instances": ["'$(basenc --base64url -w0 FILE)'"]}"""


class FirstRequest(Struct, frozen=True):
    """A curl command: its arguments in shell syntax, the path, and the command piped into it."""

    arguments: str
    path: str = INVOCATIONS.path
    piped: str = ""

    def command(self, url: str) -> str:
        before = f"{self.piped} | " if self.piped else ""
        return f"{before}{' '.join(filter(None, ['curl', self.arguments, shlex.quote(url + self.path)]))}"


def ready_line(reach: str, command: str) -> str:
    """Last line of a start: address, callers and the suggested ``command``; `command_in` reads it."""
    return f"ready: {reach}{TRY}{command}"


def command_in(line: str, url: str) -> str | None:
    """Find the command in a ready line of a server at ``url``; None if ``line`` is not a ready line."""
    match = READY_LINE.search(line)
    return match["command"].replace(match["url"], url) if match else None


def first_request(served: Served, models: Sequence[ModelReport], *, rest_api: bool) -> FirstRequest:
    """Make a request for ``served``, from the default model's signature or the script's text."""
    named = next((model.signatures for model in models if model.name == served.default_model), None) or {}
    signature = named.get(DEFAULT_SIGNATURE) or next(iter(named.values()), None)
    ast_names = read_ast_names(served.layout.script)
    if ast_names is not None:
        for content_type, ending in EXAMPLE_ENDINGS.items():
            example = served.layout.root / f"request.{ending}"  # that `tfs-proxy init` has written
            if example.is_file():
                return _sent(content_type, "--data-binary", f"@{example}")
        content_type = next(iter(media_types_in(ast_names.tree)), media.JSON)
        if signature is None or reads_own_form(ast_names.tree):
            return _sent(content_type)
        body = {media.JSON: _json, media.CSV: _csv_row}.get(content_type, lambda _: None)(signature)
        return _sent(content_type, "-d", body) if body else _sent(content_type)
    known = _for_model(served, signature) if signature is not None else None
    if known is not None:
        return known
    return FirstRequest(
        "", f"/v1/models/{quote(served.default_model, safe='')}/metadata" if rest_api else "/ping"
    )


def _for_model(served: Served, signature: Signature) -> FirstRequest | None:
    if [spec.dtype for spec in signature.inputs.values()] == ["DT_STRING"] and _has_op(served, PICTURE_OPS):
        if _has_op(served, (BASE64_OP,)):
            return FirstRequest(f"-H {shlex.quote(f'Content-Type: {media.JSON}')} -d '{AS_JSON_TEXT}'")
        return _sent(media.IMAGE)
    body = _json(signature)
    if body is not None:
        return _sent(media.JSON, "-d", body)
    return _npy(signature) if signature.name == DEFAULT_SIGNATURE else None


def _sent(content_type: str, *body: str) -> FirstRequest:
    """Make a request with a body as curl takes it; by default a file, and the user replaces FILE."""
    words = body or ("--data-binary", "@FILE")
    return FirstRequest(shlex.join(["-H", f"Content-Type: {content_type}", *words]))


def _json(signature: Signature) -> str | None:
    """Write TF Serving's JSON with one record; None if JSON lacks the types, or the body is too long."""
    specs = signature.inputs
    if not specs or any(spec.dtype not in {*NPY_TYPES, "DT_STRING"} for spec in specs.values()):
        return None
    if any(math.prod(sample_sizes(spec)) > LONGEST_BODY for spec in specs.values()):
        return None
    named = {} if signature.name == DEFAULT_SIGNATURE else {"signature_name": signature.name}
    body = json.dumps({**named, **sample_inputs(signature)})
    return body if len(body) <= LONGEST_BODY else None


def _csv_row(signature: Signature) -> str | None:
    """Write one row if the only input takes single values or short vectors; else None."""
    specs = list(signature.inputs.values())
    if len(specs) != 1 or len(sample_sizes(specs[0])) not in {1, 2}:
        return None
    row = ",".join([str(sample_value((), specs[0].dtype))] * math.prod(sample_sizes(specs[0])[1:]))
    return row if len(row) <= LONGEST_BODY else None


def _npy(signature: Signature) -> FirstRequest | None:
    """Make zeros in the only input's shape, generated by the shell: they are too many for a line of JSON."""
    specs = list(signature.inputs.values())
    descr = NPY_TYPES.get(specs[0].dtype) if len(specs) == 1 else None
    if descr is None:
        return None
    sizes = sample_sizes(specs[0])
    shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    low, high = (len(header) + 1) % 256, (len(header) + 1) // 256
    head = rf'printf "\223NUMPY\001\000\{low:03o}\{high:03o}{header}\n"'
    zeros = f"head -c {math.prod(sizes) * int(descr[2:])} /dev/zero"
    arguments = shlex.join(["-H", f"Content-Type: {media.NPY}"]) + " --data-binary @-"
    return FirstRequest(arguments, piped=f"{{ {head}; {zeros}; }}")


def _has_op(served: Served, ops: Iterable[str]) -> bool:
    """True if the default model's newest graph seems to have one of ``ops``."""
    model = next(model for model in served.models if model.name == served.default_model)
    return bool(ops_in(model.versions[max(model.versions)], ops))
