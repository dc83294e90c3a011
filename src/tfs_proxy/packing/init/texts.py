"""A signature -> the texts of a script, its test and its README: the files in templates/, filled in."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template

from tfs_proxy.packing.init.example_request import ExampleRequest
from tfs_proxy.payload import media_types as media
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import ARRAY_TYPES

TEMPLATES = files(__package__) / "templates"


def script_text(signature: Signature) -> str:
    """code/inference.py: both functions name the model's tensors, with dtypes and shapes."""
    return _filled(
        "inference.py.txt",
        inputs="\n".join(_items("inputs", signature.inputs, indent=8)),
        outputs="\n".join(_items("outputs", signature.outputs, indent=12)),
    )


def script_test_text(signature: Signature, request: ExampleRequest) -> str:
    """tests/test_inference.py: the signature stands in it, so that it needs no model."""
    return _filled(
        "test_inference.py.txt",
        inputs="\n".join(_specs(signature.inputs)),
        outputs="\n".join(_specs(signature.outputs)),
        request=request.file_name,
        content_type=request.content_type,
        accept=request.accept,
    )


def readme_text(model: str, request: ExampleRequest, *, has_model: bool) -> str:
    """README.md: what the files are, and the commands."""
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
    """code/requirements.txt: comments alone."""
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
    """The dtype that an array of it has, and its shape."""
    dtype = ARRAY_TYPES.get(spec.dtype)
    shown = spec.dtype if dtype is None else "bytes" if dtype.kind == "O" else dtype.name
    return f"{shown}, any shape" if spec.shape is None else f"{shown}, shape {spec.shape}"


def python_string(text: str) -> str:
    """A Python literal of ``text``: in ASCII, and in double quotes if there is no quote in it."""
    literal = ascii(text)
    return literal if "'" in text or '"' in text else f'"{literal[1:-1]}"'
