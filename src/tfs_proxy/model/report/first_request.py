"""Suggestion of a curl command at start-up, which the model should answer."""

import ast
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.graph_inputs import GraphInputs, known_inputs
from tfs_proxy.model.report.served import Served, sample_inputs, sample_sizes, sample_value
from tfs_proxy.model.report.startup import ModelReport
from tfs_proxy.model.script_syntax import media_types_in, read_ast_names, reads_own_form
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, default_signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import AUTHORIZATION, CUSTOM_ATTRIBUTES
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
    """A curl command: its arguments in shell syntax, the path, and the command piped into it.

    ``signature`` is the default one, if it is not ``serving_default``.
    """

    arguments: str
    path: str = INVOCATIONS.path
    piped: str = ""
    signature: str = ""

    def command(self, url: str) -> str:
        before = f"{self.piped} | " if self.piped else ""
        return f"{before}{' '.join(filter(None, ['curl', self.arguments, shlex.quote(url + self.path)]))}"


def ready_line(reach: str, command: str, keys: str | None = None) -> str:
    """Last line of a start: address, callers and the suggested ``command``; `command_in` reads it.

    A request needs one of the file ``keys``, whose first one the shell reads as it sends it.
    """
    if keys is not None:
        key = f"$(awk '$1 !~ /^#/ && NF {{print $2; exit}}' {shlex.quote(keys)})"
        command = command.replace("curl ", f'curl -H "{AUTHORIZATION}: Bearer {key}" ', 1)
    return f"ready: {reach}{TRY}{command}"


def command_in(line: str, url: str) -> str | None:
    """Find the command in a ready line of a server at ``url``; None if ``line`` is not a ready line."""
    match = READY_LINE.search(line)
    return match["command"].replace(match["url"], url) if match else None


def first_request(served: Served, models: Sequence[ModelReport], *, rest_api: bool) -> FirstRequest:
    """Make a request for ``served``, from the default model's signature or the script's text."""
    named = next((model.signatures for model in models if model.name == served.default_model), None) or {}
    signature = default_signature(named)
    ast_names = read_ast_names(served.layout.script)
    request = None if ast_names is None else _for_script(served, ast_names.tree, signature)
    if ast_names is None and signature is not None:
        request = _for_model(served, signature)
    if request is None:
        return FirstRequest(
            "", f"/v1/models/{quote(served.default_model, safe='')}/metadata" if rest_api else "/ping"
        )
    if signature is None or signature.name == DEFAULT_SIGNATURE:
        return request
    return replace(request, signature=signature.name)


def _for_script(served: Served, tree: ast.Module | None, signature: Signature | None) -> FirstRequest:
    for content_type, ending in EXAMPLE_ENDINGS.items():
        example = served.layout.root / f"request.{ending}"  # that `tfs-proxy init` has written
        if example.is_file():
            return _sent(content_type, "--data-binary", f"@{example}")
    content_type = next(iter(media_types_in(tree)), media.JSON)
    if signature is None or reads_own_form(tree):
        return _sent(content_type)
    write = {media.JSON: _json, media.CSV: _csv_row}.get(content_type)
    words = () if write is None else write(signature, _use_of_strings(served, signature))
    return _sent(content_type, *words)


def _for_model(served: Served, signature: Signature) -> FirstRequest | None:
    graph = _use_of_strings(served, signature)
    if graph.decodes_pictures and not graph.parsing:
        if graph.from_base64:
            return FirstRequest(f"-H {shlex.quote(f'Content-Type: {media.JSON}')} -d '{AS_JSON_TEXT}'")
        return _sent(media.IMAGE)
    words = _json(signature, graph)
    return _sent(media.JSON, *words) if words else _npy(signature)


def _use_of_strings(served: Served, signature: Signature) -> GraphInputs:
    """Use that the default model's newest graph makes of an only input, if that is of strings."""
    is_text = [spec.dtype for spec in signature.inputs.values()] == ["DT_STRING"]
    folder = served.graph_folders.get(served.default_model)
    return known_inputs(folder if is_text or signature.method != PREDICT_METHOD else None)


def picture_request(picture: Path) -> FirstRequest:
    """Make a request with this PNG file."""
    return _sent(media.PNG, "--data-binary", f"@{picture}")


def _sent(content_type: str, *body: str) -> FirstRequest:
    """Make a request with a body as curl takes it; by default a file, and the user replaces FILE."""
    words = body or ("--data-binary", "@FILE")
    return FirstRequest(shlex.join(["-H", f"Content-Type: {content_type}", *words]))


def _json(signature: Signature, graph: GraphInputs) -> tuple[str, ...]:
    """Words of curl with one record in TF Serving's JSON; () if none is known, or it is too long."""
    specs = signature.inputs
    method = signature.method.rpartition("/")[2]
    sample: Mapping[str, Any] | None = None
    attributes: tuple[str, ...] = ()
    if graph.parsing:
        # Imported for such models alone: numpy takes 80 ms of start-up.
        from tfs_proxy.model.openapi import examples

        features = examples.sample_features(signature, graph)
        if features is not None and signature.method == PREDICT_METHOD:
            sample = {"instances": [examples.json_string(examples.example_of(features))]}
        elif features is not None:
            attributes = ("-H", f"{CUSTOM_ATTRIBUTES}: tfs-method={method}")
            sample = {"examples": [examples.feature_values(features)]}
    elif specs and all(
        spec.dtype in {*NPY_TYPES, "DT_STRING"} and math.prod(sample_sizes(spec)) <= LONGEST_BODY
        for spec in specs.values()
    ):
        sample = sample_inputs(signature)
    body = json.dumps(sample)
    return (*attributes, "-d", body) if sample and len(body) <= LONGEST_BODY else ()


def _csv_row(signature: Signature, _: GraphInputs) -> tuple[str, ...]:
    """Words of curl with one row if the only input takes single values or short vectors; else ()."""
    specs = list(signature.inputs.values())
    if len(specs) != 1 or len(sample_sizes(specs[0])) not in {1, 2}:
        return ()
    row = ",".join([str(sample_value((), specs[0].dtype))] * math.prod(sample_sizes(specs[0])[1:]))
    return ("-d", row) if len(row) <= LONGEST_BODY else ()


def _npy(signature: Signature) -> FirstRequest | None:
    """Make zeros in the only input's shape, generated by the shell: they are too many for a line of JSON."""
    specs = list(signature.inputs.values())
    descr = NPY_TYPES.get(specs[0].dtype) if len(specs) == 1 else None
    if descr is None:
        return None
    sizes = sample_sizes(specs[0])
    shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    low = (len(header) + 1) % 256
    high = (len(header) + 1) // 256
    head = rf'printf "\223NUMPY\001\000\{low:03o}\{high:03o}{header}\n"'
    zeros = f"head -c {math.prod(sizes) * int(descr[2:])} /dev/zero"
    arguments = shlex.join(["-H", f"Content-Type: {media.NPY}"]) + " --data-binary @-"
    return FirstRequest(arguments, piped=f"{{ {head}; {zeros}; }}")
