"""Texts of a new script's files, and an example request for its model."""

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

from msgspec import Struct

from tfs_proxy import testing
from tfs_proxy.data.shapes import has_records
from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.model.openapi.examples import ANY_STRING, example_bodies, sample_string
from tfs_proxy.model.report.first_request import EXAMPLE_ENDINGS
from tfs_proxy.model.report.served import sample_sizes, sample_value
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import ARRAY_TYPES, DTYPES, Kind

LONGEST_JSON = 20_000
"""Bytes of JSON that people still read; larger arrays go into a file in numpy's format."""

ANSWERS = (media.JSON, media.NPZ)


class ExampleRequest(Struct, frozen=True):
    """A body with one record, its media type, and the media type to ask for."""

    body: bytes
    content_type: str
    accept: str

    @property
    def file_name(self) -> str:
        return f"request.{EXAMPLE_ENDINGS[self.content_type]}"


def example_request(
    script: Path, signature: Signature, settings: Settings, graph: GraphInputs
) -> ExampleRequest:
    """The first candidate that the script answers, with a fake model server.

    Raises DiscoveryError if there is none.
    """
    with testing.load(script, signatures=signature, settings=settings) as loaded:
        for request in _candidates(signature, graph):
            if loaded.post(request.body, request.content_type, request.accept).status == HTTPStatus.OK:
                return request
    types = ", ".join(spec.dtype for spec in (*signature.inputs.values(), *signature.outputs.values()))
    raise DiscoveryError(
        f"No example request can be made for the signature {signature.name} ({types}): "
        "run init without --model, and write the conversion into inference.py."
    )


def _candidates(signature: Signature, graph: GraphInputs) -> Iterator[ExampleRequest]:
    """Yields a picture if the graph decodes one; else JSON, unless numpy's formats are far shorter."""
    bodies = example_bodies(signature, sample_string(signature, graph) or ANY_STRING)
    strings = [spec.dtype for spec in signature.inputs.values()] == ["DT_STRING"]
    wanted = [media.IMAGE] if graph.decodes_pictures and strings else []
    if len(bodies.get(media.JSON, b"")) <= LONGEST_JSON:
        wanted.append(media.JSON)
    for content_type in dict.fromkeys([*wanted, media.NPY, media.NPZ, media.JSON]):
        if content_type in bodies:
            for accept in ANSWERS:
                yield ExampleRequest(bodies[content_type], content_type, accept)
    record = {
        name: sample_value(sample_sizes(spec)[1:], spec.dtype) for name, spec in signature.inputs.items()
    }
    yield ExampleRequest(json.dumps([record]).encode(), media.JSON, media.JSON)


TEMPLATES = files(__package__) / "templates"


def script_text(signature: Signature) -> str:
    """code/inference.py: both functions name the model's tensors with dtypes and shapes."""
    return _filled(
        "inference.py.txt",
        inputs="\n".join(_items("inputs", signature.inputs, indent=8)),
        outputs="\n".join(_items("outputs", signature.outputs, indent=12)),
    )


PYTHON = {Kind.FLOAT: "float", Kind.INTEGER: "int", Kind.BOOL: "bool", Kind.STRING: "str"}


def typed_script_text(signature: Signature) -> str:
    """code/inference.py with a class of a record and one of an answer.

    Raises DiscoveryError for inputs and outputs that a class can't have.
    """
    return _filled(
        "typed.py.txt",
        inputs="\n".join(map(_member, signature.inputs.values())),
        outputs="\n".join(map(_member, signature.outputs.values())),
        arrays=", ".join(f'"{name}": [record.{name} for record in records]' for name in signature.inputs),
        columns=", ".join(f'outputs["{name}"]' for name in signature.outputs),
    )


def _member(spec: TensorSpec) -> str:
    kind, _ = DTYPES.get(spec.dtype, (None, None))
    if kind not in PYTHON or not spec.name.isidentifier() or iskeyword(spec.name) or not has_records(spec):
        raise DiscoveryError(f"--typed can't write a class with {spec.name} ({_described(spec)}).")
    depth = len(spec.shape or (1, 1)) - 1
    return f"    {spec.name}: {'list[' * depth}{PYTHON[kind]}{']' * depth}"


def script_test_text(signature: Signature, request: ExampleRequest) -> str:
    """tests/test_inference.py: it contains the signature, so that it needs no model."""
    return _filled(
        "test_inference.py.txt",
        inputs="\n".join(_specs(signature.inputs)),
        outputs="\n".join(_specs(signature.outputs)),
        request=request.file_name,
        content_type=request.content_type,
        accept=request.accept,
    )


def readme_text(model: str, request: ExampleRequest, *, has_model: bool) -> str:
    return _filled(
        "README.md.txt",
        model=model,
        model_note="" if has_model else "; put it here",
        request=request.file_name,
        content_type=request.content_type,
        accept=request.accept,
        output="" if request.accept == media.JSON else " -o answer.npz",
    )


def requirements_text() -> str:
    return _template("requirements.txt")


def _filled(name: str, **values: str) -> str:
    return Template(_template(name)).substitute(values)


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text()


def _items(mapping: str, specs: Mapping[str, TensorSpec], indent: int) -> Iterable[str]:
    for name, spec in specs.items():
        literal = python_string(name)
        yield f"{' ' * indent}{literal}: {mapping}[{literal}],  # {_described(spec)}"


def _specs(specs: Mapping[str, TensorSpec]) -> Iterable[str]:
    for name, spec in specs.items():
        literal = python_string(name)
        yield f"        {literal}: TensorSpec("
        yield f"            name={literal},"
        yield f'            dtype="{spec.dtype}",'
        yield f"            shape={spec.shape},"
        yield "        ),"


def _described(spec: TensorSpec) -> str:
    dtype = ARRAY_TYPES.get(spec.dtype)
    shown = spec.dtype
    if dtype is not None:
        shown = "bytes" if dtype.kind == "O" else dtype.name
    return f"{shown}, any shape" if spec.shape is None else f"{shown}, shape {spec.shape}"


def python_string(text: str) -> str:
    """A Python literal of ``text`` in ASCII, in double quotes if it contains none."""
    literal = ascii(text)
    return literal if "'" in text or '"' in text else f'"{literal[1:-1]}"'
