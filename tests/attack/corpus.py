"""Valid inputs that fuzzers begin with, by parser."""

import gzip
import io
import json
import struct
import tarfile
import zipfile

import numpy as np

from attack.fronts import BODY
from support.archives import SAVED_MODEL
from support.model_fixtures import ROOT
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.formats.npy import write_npz
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec, response_bytes
from tfs_proxy.wire.protos.tensors import to_bytes

BODIES = tuple(
    row["body"].encode() for row in json.loads((ROOT / "tests" / "corpus" / "bodies.json").read_text())
)
GOLDEN = tuple(
    (row["body"] or "").encode() for row in json.loads((ROOT / "tests" / "golden" / "rest.json").read_text())
)
ARRAY = np.arange(6, dtype=np.float32).reshape(3, 2)
PNG_HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0"
RESPONSE = response_bytes(model_spec("m", 1), {"y": ARRAY, "text": np.array([b"a", b"b"], object)})
CONFIG = b'model_config_list { config { name: "m" base_path: "/m" model_platform: "tensorflow" model_version_policy { specific { versions: 1 } } version_labels { key: "a" value: 1 } } }'
BATCHING = b"max_batch_size { value: 8 } batch_timeout_micros { value: 0 } allowed_batch_sizes: 4 allowed_batch_sizes: 8"
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
OUTPUTS = b'{"predictions": [1.0, NaN], "outputs": {"y": [1], "text": [{"b64": "YQ=="}]}}'
METADATA = b'{"model_spec": {"version": "1"}, "metadata": {"signature_def": {"signature_def": {"s": {"method_name": "p", "inputs": {"x": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}], "unknown_rank": false}}}, "outputs": {}}}}}}'
ATTRIBUTES = b"tfs-model-name=m,tfs-model-version=1,tfs-signature-name=s,tfs-method=predict,a=b=c"


def example() -> bytes:
    message = protos.Example()
    message.features.feature["x"].float_list.value.extend([1.0, 2.0])
    message.features.feature["b"].int64_list.value.extend([1, 2])
    message.features.feature["text"].bytes_list.value.append(b"word")
    return bytes(message.SerializeToString())


def npy(version: int = 1) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, ARRAY, (version, 0))
    return file.getvalue()


def recordio() -> bytes:
    """A record of SageMaker's RecordIO-protobuf: keys 1, 2 of a sparse float32 tensor of shape 4."""
    keys, shape = b"\x01\x02", b"\x04"
    tensor = b"\x0a\x08" + struct.pack("<2f", 1, 2) + b"\x12\x02" + keys + b"\x1a\x01" + shape
    value = b"\x12" + bytes([len(tensor)]) + tensor
    entry = b"\x0a\x06values\x12" + bytes([len(value)]) + value
    return b"\x0a" + bytes([len(entry)]) + entry


def zipped(content: bytes) -> bytes:
    """A zip with right checksums around one member `x.npy`, whatever it holds."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", content)
    return file.getvalue()


def tar(*names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(SAVED_MODEL)
            archive.addfile(member, io.BytesIO(SAVED_MODEL))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, names[0]
        archive.addfile(link)
    return file.getvalue()


JSON = (*BODIES, *GOLDEN, BODY)
NPZ = (write_npz({"x": ARRAY}), zipped(npy()))
TFRECORDS = (tfrecord_frame(example()), tfrecord_frame(b"") * 2)
RECORDIO = (recordio_frame(recordio()), recordio_frame(b"a") * 2)
TENSORS = tuple(
    to_bytes(array) for array in (ARRAY, np.array([b"a"], object), np.array([True]), np.ones(3, np.float16))
)
GZIP = (gzip.compress(BODY), gzip.compress(b"a") + gzip.compress(b""))
TARS = (tar("m/1/saved_model.pb"), tar("a" * 150 + "/1/saved_model.pb", "code/inference.py"))
