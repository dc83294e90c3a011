"""Builds the SavedModels that the recorded answers in tests/golden hold for: run as a script, once.

``python tests/support/models/build.py ROOT`` writes one folder per model below ROOT. It runs in a process of
its own, so that no test imports the whole of tensorflow.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DONE = ".complete"


def source_key() -> str:
    """A name for what this file builds: it changes when the file does."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def build_all(root: Path) -> Path:
    """Build every model below ``root``, unless it is there already; returns ``root``."""
    if (root / DONE).exists():
        return root
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    partial = root.with_name(f"{root.name}.{os.getpid()}")
    for build in BUILDERS:
        build(partial)
    (partial / DONE).touch()
    try:
        partial.rename(root)
    except OSError:  # another run's models are there, which it may serve by now
        if not (root / DONE).exists():
            raise
        shutil.rmtree(partial)
    return root


def save(
    folder: Path, signatures: Mapping[str, tuple[Callable[..., Any], list[Any]]], holder: Any = None
) -> None:
    """Save functions as a TF2 SavedModel, each under its signature name with its input specs."""
    import tensorflow as tf

    module = holder or tf.Module()
    traced = {}
    for name, (function, specs) in signatures.items():
        wrapped = tf.function(function, input_signature=specs)
        setattr(module, f"run_{name}", wrapped)
        traced[name] = wrapped
    tf.saved_model.save(module, str(folder), signatures=traced)


def save_one(root: Path, name: str, function: Callable[..., Any], specs: list[Any]) -> None:
    """Save a function as the only signature of the only version of a model."""
    save(root / name / "1", {"serving_default": (function, specs)})


def column(name: str, dtype: str = "float32") -> list[Any]:
    """The only input of a function: a value for each record."""
    import tensorflow as tf

    return [tf.TensorSpec([None], tf.as_dtype(dtype), name=name)]


def linear(root: Path) -> None:
    """half_plus_two, and `versions` whose second version adds three."""

    def two(x: Any) -> dict[str, Any]:
        return {"y": 0.5 * x + 2.0}

    save_one(root, "half_plus_two", two, column("x"))
    save_one(root, "versions", two, column("x"))
    save(root / "versions" / "2", {"serving_default": (lambda x: {"y": 0.5 * x + 3.0}, column("x"))})


def named_tensors(root: Path) -> None:
    """Models with several inputs and outputs, of several types and ranks."""
    import tensorflow as tf

    def mix(a: Any, b: Any) -> dict[str, Any]:
        total = a + tf.cast(b, tf.float32)[:, None]
        size = tf.where(tf.reduce_sum(total, 1) > 10.0, "big", "small")
        return {"sum": total, "label": size, "count": tf.cast(b, tf.int32) * 2}

    a = tf.TensorSpec([None, 3], tf.float32, name="a")
    b = tf.TensorSpec([None], tf.int64, name="b")
    save(
        root / "multi_io" / "1",
        {"serving_default": (mix, [a, b]), "norm": (lambda a: {"norm": tf.norm(a, axis=1)}, [a])},
    )

    def passed_on(i32: Any, i64: Any, u8: Any, flag: Any, f64: Any, f16: Any) -> dict[str, Any]:
        return {"i32": i32, "i64": i64, "u8": u8, "flag": tf.logical_not(flag), "f64": f64, "f16": f16}

    kinds = {
        "i32": tf.int32,
        "i64": tf.int64,
        "u8": tf.uint8,
        "flag": tf.bool,
        "f64": tf.float64,
        "f16": tf.float16,
    }
    specs = [tf.TensorSpec([None], kind, name=name) for name, kind in kinds.items()]
    save_one(root, "types", passed_on, specs)
    scalar = [tf.TensorSpec([], tf.float32, name=name) for name in "xy"]
    save_one(root, "scalar", lambda x, y: {"product": x * y}, scalar)


def bare(root: Path) -> None:
    """Inputs without a dimension that counts records, and with one of size 1 after it."""
    import tensorflow as tf

    def one(dtype: Any, *sizes: int | None) -> list[Any]:
        return [tf.TensorSpec(sizes, dtype, name="x")]

    def doubled(x: Any) -> dict[str, Any]:
        return {"y": x * 2}

    multiplied = tf.constant([[2.0]])
    save(
        root / "bare" / "1",
        {
            "serving_default": (doubled, one(tf.float32)),
            "three": (lambda x: {"y": x * 2, "total": tf.reduce_sum(x)}, one(tf.float32, 3)),
            "word": (lambda x: {"y": tf.strings.upper(x)}, one(tf.string)),
            "fixed": (doubled, one(tf.float32, 2, 2)),
            "one_each": (lambda x: {"y": tf.linalg.matmul(x, multiplied)}, one(tf.float32, None, 1)),
        },
    )


def arrays(root: Path) -> None:
    """Matrices, answers that JSON has no number for, and an output that does not follow the batch."""
    import tensorflow as tf

    m = [tf.TensorSpec([None, 2, 2], tf.float32, name="m")]
    save_one(root, "matrix", lambda m: {"det": tf.linalg.det(m), "t": tf.transpose(m, [0, 2, 1])}, m)
    save_one(root, "special", lambda x: {"inverse": 1.0 / x, "log": tf.math.log(x)}, column("x"))
    save_one(root, "mixed_batch", lambda x: {"per_row": x * 2, "total": tf.reduce_sum(x)}, column("x"))


def strings(root: Path) -> None:
    """Bytes in and out, and text."""
    import tensorflow as tf

    def look(image_bytes: Any) -> dict[str, Any]:
        return {"length": tf.strings.length(image_bytes), "echo_bytes": image_bytes}

    save(
        root / "bytes" / "1",
        {
            "serving_default": (look, column("image_bytes", "string")),
            "text": (lambda text: {"upper": tf.strings.upper(text)}, column("text", "string")),
        },
    )


def pictures(root: Path) -> None:
    """Pictures of any size, as they are and in web-safe base64; and pictures of one size alone."""
    import tensorflow as tf

    def decoded(string: Any) -> Any:
        picture = tf.io.decode_image(string, channels=3, expand_animations=False)
        return tf.image.convert_image_dtype(picture, tf.float32)

    def resized(string: Any) -> Any:
        return tf.image.resize(decoded(string), [8, 8])

    def mean(look: Callable[[Any], Any]) -> Callable[..., Any]:
        def run(image_bytes: Any) -> dict[str, Any]:
            return {"mean": tf.reduce_mean(tf.map_fn(look, image_bytes, tf.float32), [1, 2, 3])}

        return run

    for name, look in {
        "picture": resized,
        "picture_base64": lambda string: resized(tf.io.decode_base64(string)),
        "picture_of_one_size": lambda string: tf.reshape(decoded(string), [8, 8, 3]),
    }.items():
        save_one(root, name, mean(look), column("image_bytes", "string"))


def parsed(root: Path) -> None:
    """A TF2 signature for serialized tf.Examples, and a TF1 graph whose only signature is a classifier."""
    import tensorflow as tf

    wanted = {
        "age": tf.io.FixedLenFeature([], tf.int64),
        "sizes": tf.io.FixedLenFeature([2, 3], tf.float32),
        "word": tf.io.FixedLenFeature([1], tf.string),
        "more": tf.io.VarLenFeature(tf.string),
    }

    def run(examples: Any) -> dict[str, Any]:
        found = tf.io.parse_example(examples, wanted)
        return {"y": tf.reduce_sum(found["sizes"], [1, 2]) + tf.cast(found["age"], tf.float32)}

    save_one(root, "parsed", run, column("examples", "string"))
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="tf_example")
        found = v1.parse_example(serialized, wanted)
        scale = v1.get_variable("a", initializer=0.5)
        scores = scale * v1.reshape(found["sizes"], [-1, 6])
        session.run(v1.global_variables_initializer())
        signatures = {"serving_default": ("classify", {"inputs": serialized}, {"scores": scores})}
        save_tf1(session, root / "classifier" / "1", signatures)


def examples(root: Path) -> None:
    """A TF1 graph whose signatures take serialized tf.Examples: classify, regress, and a predict."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="tf_example")
        wanted = {
            "x": v1.FixedLenFeature([1], tf.float32),
            "x2": v1.FixedLenFeature([1], tf.float32, default_value=[0.0]),
        }
        features = v1.parse_example(serialized, wanted)
        slope = v1.get_variable("a", initializer=0.5)
        offset = v1.get_variable("b", initializer=2.0)
        y = slope * features["x"] + offset
        y3 = slope * features["x"] + offset + 1.0
        names = tf.tile(tf.constant([["low", "high"]]), [tf.shape(y)[0], 1])
        scores = tf.concat([10.0 - y, y], 1)
        session.run(v1.global_variables_initializer())
        signatures = {
            "regress_x_to_y": ("regress", {"inputs": serialized}, {"outputs": y}),
            "regress_x_to_y3": ("regress", {"inputs": serialized}, {"outputs": y3}),
            "classify_x_to_y": ("classify", {"inputs": serialized}, {"scores": y}),
            "classify_labels": ("classify", {"inputs": serialized}, {"classes": names, "scores": scores}),
            "serving_default": ("predict", {"x": features["x"]}, {"y": y}),
        }
        save_tf1(session, root / "regress_classify" / "1", signatures)


def shapeless(root: Path) -> None:
    """half_plus_three as AWS and TF Serving have it: no signature has shapes, and none says DT_STRING.

    What classify and regress are fed is a string, a serialized tf.Example, that is declared as DT_FLOAT.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, name="tf_example")
        features = v1.parse_example(serialized, {"x": v1.FixedLenFeature([1], tf.float32)})
        x = tf.identity(features["x"], name="x")
        y = v1.get_variable("a", initializer=0.5) * x + v1.get_variable("b", initializer=3.0)
        session.run(v1.global_variables_initializer())
        signatures = {
            "tensorflow/serving/regress": ("regress", {"inputs": serialized}, {"outputs": y}),
            "regress_x_to_y": ("regress", {"inputs": serialized}, {"outputs": y}),
            "classify_x_to_y": ("classify", {"inputs": serialized}, {"scores": y}),
            "serving_default": ("predict", {"x": x}, {"y": y}),
        }
        save_tf1(session, root / "half_plus_three" / "123", signatures, info=bare_float)


def bare_float(tensor: Any) -> Any:
    """A TensorInfo of DT_FLOAT without a shape, whatever the tensor is."""
    from tensorflow.core.framework.types_pb2 import DT_FLOAT
    from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

    return TensorInfo(name=tensor.name, dtype=DT_FLOAT)


def save_tf1(
    session: Any,
    folder: Path,
    signatures: Mapping[str, tuple[str, Any, Any]],
    info: Callable[[Any], Any] | None = None,
) -> None:
    """Save a session's graph as a TF1 SavedModel with signatures of (method, inputs, outputs).

    ``info`` describes a tensor of a signature; None means with the tensor's own type and shape.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    info = info or v1.saved_model.build_tensor_info
    defs = {
        name: v1.saved_model.signature_def_utils.build_signature_def(
            {key: info(tensor) for key, tensor in inputs.items()},
            {key: info(tensor) for key, tensor in outputs.items()},
            f"tensorflow/serving/{method}",
        )
        for name, (method, inputs, outputs) in signatures.items()
    }
    builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
    builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=defs)
    builder.save()


def gates(root: Path) -> None:
    """A model whose calls wait for a file (see tests/support/gates.py), and a quick signature beside."""
    import tensorflow as tf

    def wait(mark: Any) -> dict[str, Any]:
        opened = tf.strings.regex_replace(mark[0], "[^/]*$", "open")
        with tf.control_dependencies([tf.io.write_file(mark[0], "")]):
            turns = tf.while_loop(
                lambda _: tf.size(tf.io.matching_files(opened)) < 1, lambda turn: turn + 1, [tf.constant(0)]
            )[0]
        return {"y": tf.strings.length(mark) + 0 * turns}

    mark = column("mark", "string")
    length = (lambda mark: {"y": tf.strings.length(mark)}, mark)
    save(root / "gate" / "1", {"serving_default": (wait, mark), "length": length})


def waiting(root: Path) -> None:
    """A model that computes nothing for 0.3 s."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    def wait(x: Any) -> dict[str, Any]:
        # It is read twice: once for the element, and once for its end.
        slow = tf.data.Dataset.from_tensors(x).apply(testing.sleep(150_000))
        return {"y": slow.get_single_element() * 2.0}

    save_one(root, "waiting", wait, column("x"))


def allocating(root: Path) -> None:
    """A model that takes as many megabytes for each of its answers as a record says."""
    import tensorflow as tf

    def run(x: Any) -> dict[str, Any]:
        noise = tf.random.uniform([tf.reduce_max(x), 1024, 256])  # of 4 bytes each
        return {"y": tf.cast(x, tf.float32) + tf.reduce_min(noise)}

    save_one(root, "allocating", run, column("x", "int32"))


def untracked(root: Path) -> None:
    """A Keras 3 model that hangs on a tf.Module: it loads, and has lost its variables."""
    import keras  # type: ignore[import-untyped]
    import tensorflow as tf

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    module = tf.Module()
    module.model = model
    spec = [tf.TensorSpec([None, 3], tf.float32, name="x")]
    save(root / "untracked" / "1", {"serving_default": (lambda x: {"y": model(x)}, spec)}, module)


def echo(root: Path) -> None:
    """A signature for every type of tensor that gives back what it gets, named as TensorFlow names it."""
    import tensorflow as tf

    kinds = (
        "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string "
        "complex64 complex128 qint8"
    ).split()
    save(
        root / "echo" / "1",
        {
            name: (lambda x: {"y": tf.identity(x)}, [tf.TensorSpec(None, tf.as_dtype(name), name="x")])
            for name in kinds
        },
    )


def reshaping(root: Path) -> None:
    """A signature for texts and for numbers whose output has the shape that the request names."""
    import tensorflow as tf

    def run(x: Any, shape: Any) -> dict[str, Any]:
        return {"y": tf.reshape(x, shape)}

    shape = tf.TensorSpec([None], tf.int32, name="shape")
    kinds = (tf.string, tf.float32, tf.int64)
    save(
        root / "reshaping" / "1",
        {kind.name: (run, [tf.TensorSpec(None, kind, name="x"), shape]) for kind in kinds},
    )


BUILDERS = (
    linear,
    named_tensors,
    bare,
    arrays,
    strings,
    pictures,
    parsed,
    examples,
    shapeless,
    gates,
    waiting,
    allocating,
    untracked,
    echo,
    reshaping,
)


if __name__ == "__main__":
    build_all(Path(sys.argv[1]))
