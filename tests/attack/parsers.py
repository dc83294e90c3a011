"""Every parser that reads bytes from outside, as a function of bytes, with what it may refuse them by."""

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

from google.protobuf.message import DecodeError

from attack import corpus, front_parsers
from support.archives import SAVED_MODEL
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.registry import (
    FORMATS,
    OUTPUT_TYPES,
    decode,
    decode_array,
    decode_examples,
    negotiate,
    parse_media_type,
)
from tfs_proxy.data.serving_json.requests import named_signature, read_metadata, read_outputs, with_signature
from tfs_proxy.embedded.core.servable import Tensor
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.model_config import from_flags, read_options
from tfs_proxy.embedded.rest import handlers as example_body
from tfs_proxy.embedded.rest.handlers import decode_predict
from tfs_proxy.embedded.rest.requests import is_uri, match
from tfs_proxy.model.discover import discover
from tfs_proxy.model.extract import extract
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.settings.settings import Settings
from tfs_proxy.transform.batches import SPLITS, Split
from tfs_proxy.transform.jsonpath import JsonPath, Missing
from tfs_proxy.values.attributes import parse_target
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire import protos
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.http_answer import BrokenAnswer, NoAnswer
from tfs_proxy.wire.http_answer import read_response as read_http
from tfs_proxy.wire.media_types import CSV, JSON, JSON_LINES, NPY, NPZ, PNG, RECORDIO, TF_EXAMPLE, TF_RECORD
from tfs_proxy.wire.packed_body import decoded_body
from tfs_proxy.wire.protobuf_reader import LENGTH, MalformedProtobuf, read_fields
from tfs_proxy.wire.protos.predict import read_response
from tfs_proxy.wire.protos.tensors import to_array

LIMIT_BYTES = 16 * 1024 * 1024
MOST_NESTED = 20
_SPECS = {
    "x": TensorSpec("x", "DT_FLOAT", (None, 2)),
    "b": TensorSpec("b", "DT_INT64", (None,)),
    "text": TensorSpec("text", "DT_STRING", (None,)),
    "flag": TensorSpec("flag", "DT_BOOL", None),
    "half": TensorSpec("half", "DT_BFLOAT16", None),
    "complex": TensorSpec("complex", "DT_COMPLEX64", (None,)),
}
_INPUTS = (("x",), ("b",), ("text",), ("flag",), ("half",), ("x", "b", "text"), ("complex",), ())
SIGNATURES = tuple(
    Signature(
        "s",
        PREDICT_METHOD,
        {name: _SPECS[name] for name in names},
        {"y": _SPECS["x"], "text": _SPECS["text"]},
    )
    for names in _INPUTS
)
TENSORS = {
    name: Tensor(name, f"{name}:0", DataType[spec.dtype])
    for name, spec in _SPECS.items()
    if name != "complex"
}


@dataclass(frozen=True, slots=True)
class Parser:
    """``run`` reads bytes, and raises one of ``refusals`` if they are not what it reads; ``seeds`` are."""

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (TfsProxyError,)


def _payload(name: str, frame: Callable[[bytes], bytes] | None = None) -> Callable[[bytes], object]:
    """All conversions of one content type; the first byte picks the signature, and whether ``frame`` is put on."""
    row = FORMATS[name]
    kind = parse_media_type(name)
    conversions: list[Callable[[bytes, Signature], object]] = []
    if row.decode:
        conversions.append(lambda body, signature: decode(body, kind, signature, MemoryBudget(LIMIT_BYTES)))
    if row.decode_examples:
        conversions.append(lambda body, _: decode_examples(body, kind, MemoryBudget(LIMIT_BYTES)))
    if row.decode_array:
        conversions.append(lambda body, _: decode_array(body, name))

    def run(data: bytes) -> object:
        choice, body = (data[0], data[1:]) if data else (0, b"")
        which, signature = divmod(choice, len(SIGNATURES))
        which, framed = divmod(which, 2)
        if frame and framed:
            body = frame(body)
        return conversions[which % len(conversions)](body, SIGNATURES[signature])

    return run


def _fields(data: bytes) -> None:
    """Fields within fields, as readers of messages go down."""
    levels = [memoryview(data)]
    for _ in range(MOST_NESTED):
        levels = [
            value for level in levels[:MOST_NESTED] for _, kind, value in _ignoring(level) if kind == LENGTH
        ]


def _ignoring(message: memoryview) -> list[tuple[int, int, memoryview]]:
    try:
        return list(read_fields(message))
    except MalformedProtobuf:
        return []


def _serving_json(data: bytes) -> None:
    for read in (named_signature, lambda body: with_signature(body, "s"), read_metadata):
        _refused_by(TfsProxyError, read, data)
    for signature in SIGNATURES[:2]:
        _refused_by(TfsProxyError, partial(read_outputs, signature=signature), data)


def _refused_by(refusal: type[Exception], read: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(refusal):
        read(data)


def _embedded_predict(data: bytes) -> object:
    choice, body = (data[0], data[1:]) if data else (0, b"")
    names = _INPUTS[choice % 6]
    return decode_predict(body, lambda _: {name: TENSORS[name] for name in names}, MemoryBudget())


def _route(data: bytes) -> object:
    method, _, path = data.decode("latin-1").partition(" ")
    return is_uri(path) and match(method, path)


def _tensor(data: bytes) -> object:
    return to_array(protos.TensorProto.FromString(data))


def _config(data: bytes) -> None:
    path = _folder() / "config"
    path.write_bytes(data)
    _refused_by(TfsProxyError, lambda _: from_flags(ModelServerFlags(model_config_file=str(path))), data)
    read_options(str(path))


def _saved_model(data: bytes) -> object:
    folder = _folder() / "saved_model"
    folder.mkdir(exist_ok=True)
    (folder / "saved_model.pb").write_bytes(data)
    return read_saved_model(folder)


def _archive(data: bytes) -> None:
    """Unpack, look for models, read them; nothing may lie outside the folder."""
    archive, target = _folder() / "model.tar.gz", _folder() / "unpacked" / "here"
    target.parent.mkdir(exist_ok=True)
    archive.write_bytes(data)
    try:
        with patch("tfs_proxy.model.extract.MAX_ARCHIVE_BYTES", LIMIT_BYTES):
            extract(archive, target)
        for model in discover(target):
            for version in model.versions.values():
                read_saved_model(version)
    finally:
        shutil.rmtree(target, ignore_errors=True)
        if [*target.parent.iterdir()]:
            raise AssertionError(f"left outside: {[*target.parent.iterdir()]}")


@cache
def _folder() -> Path:
    """A folder of this process, below the temporary one that whoever starts it removes."""
    return Path(tempfile.mkdtemp(prefix="attack-"))


def _settings(data: bytes) -> object:
    lines = [line.partition("=") for line in data.decode("latin-1").split("\n")]
    return Settings.from_env({name: value for name, _, value in lines if name})


def _http_answer(data: bytes) -> object:
    choice, rest = (data[0] or 1, data[1:]) if data else (1, b"")
    stream = io.BytesIO(rest)
    return read_http(lambda: stream.read(choice))


def _split(data: bytes) -> None:
    for split in SPLITS.values():
        _refused_by(TfsProxyError, partial(_count, split), data)


def _count(split: Split, data: bytes) -> int:
    return sum(1 for _ in split(io.BytesIO(data), 1000))


def _jsonpath(data: bytes) -> object:
    path, _, document = data.decode("utf-8", "replace").partition("\0")
    return JsonPath(path)(json.loads(document or "{}"))


PARSERS: Mapping[str, Parser] = {
    "JSON": Parser(_payload(JSON), corpus.JSON),
    "JSON lines": Parser(_payload(JSON_LINES), corpus.JSON),
    "CSV": Parser(_payload(CSV), (*corpus.BODIES, b"1,2\n3,4\n", b'"a""b",c\r\n')),
    "npy": Parser(_payload(NPY), (corpus.npy(), corpus.npy(2), corpus.npy(3))),
    "npz": Parser(_payload(NPZ, corpus.zipped), (*corpus.NPZ, corpus.npy())),
    "TFRecord": Parser(_payload(TF_RECORD, tfrecord_frame), (*corpus.TFRECORDS, corpus.example())),
    "RecordIO-protobuf": Parser(_payload(RECORDIO, recordio_frame), (*corpus.RECORDIO, corpus.recordio())),
    "tf.Example": Parser(_payload(TF_EXAMPLE), (corpus.example(),)),
    "image": Parser(_payload(PNG), (corpus.PNG_HEAD,)),
    "model server's JSON": Parser(_serving_json, (corpus.OUTPUTS, corpus.METADATA, *corpus.GOLDEN)),
    "REST predict": Parser(_embedded_predict, corpus.JSON, (ServingError,)),
    "REST classify": Parser(
        lambda body: example_body.decode_examples(body, MemoryBudget()), corpus.GOLDEN, (ServingError,)
    ),
    "REST path": Parser(
        _route,
        (b"POST /v1/models/m/versions/1:predict", b"GET /v1/models/m/labels/a/metadata"),
        (ServingError,),
    ),
    "protobuf fields": Parser(_fields, (corpus.example(), corpus.RESPONSE, SAVED_MODEL)),
    "PredictResponse": Parser(read_response, (corpus.RESPONSE,), (ValueError, DecodeError)),
    "TensorProto": Parser(_tensor, corpus.TENSORS, (ValueError, DecodeError)),
    "saved_model.pb": Parser(_saved_model, (SAVED_MODEL,)),
    "archive": Parser(_archive, corpus.TARS),
    "gzip": Parser(lambda data: decoded_body(data, "gzip", LIMIT_BYTES), corpus.GZIP),
    "Custom-Attributes": Parser(lambda data: parse_target(data.decode("latin-1"), "m"), (corpus.ATTRIBUTES,)),
    "media types": Parser(
        lambda data: (
            parse_media_type(data.decode("latin-1")),
            negotiate(data.decode("latin-1"), OUTPUT_TYPES),
        ),
        (b'text/csv; charset=utf-8; a="b"', b"*/*;q=0.5, text/csv"),
    ),
    "config files": Parser(_config, (corpus.CONFIG, corpus.BATCHING)),
    "settings": Parser(
        _settings,
        (
            b"SAGEMAKER_GUNICORN_WORKERS=2\nSAGEMAKER_SAFE_PORT_RANGE=1000-2000",
            b"SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN=0.5",
        ),
    ),
    "HTTP answer": Parser(_http_answer, (corpus.ANSWER,), (BrokenAnswer, NoAnswer)),
    "record splits": Parser(_split, (*corpus.TFRECORDS, *corpus.RECORDIO, b"a\nb\r\n")),
    "JSONPath": Parser(
        _jsonpath,
        (
            b'$.a[0,-1]\0{"a": [1, 2]}',
            b"$['b','c']\0{\"b\": 1, \"c\": 2}",
            b"$[1:2]\0[1, 2, 3]",
            b'$.*\0{"a": 1}',
        ),
        (TfsProxyError, Missing, ValueError),
    ),
    "ordinary HTTP requests": Parser(front_parsers.plain_head, front_parsers.HEADS, ()),
    "other HTTP requests": Parser(
        front_parsers.gunicorn_head, front_parsers.HEADS, front_parsers.REFUSED_HEADS
    ),
    "chunks": Parser(front_parsers.chunks, front_parsers.CHUNKS),
    "workers' states": Parser(front_parsers.worker_state, front_parsers.STATES),
    "memory ledger": Parser(lambda data: front_parsers.ledger(_folder(), data), front_parsers.SLOTS),
    "pipeline": Parser(front_parsers.pipeline, front_parsers.PIPELINES),
}
