"""What a Keras model's configuration would run or read is found before Keras sees it."""

from typing import Any

import pytest

from tfs_proxy.tools.export.keras_files import custom_classes, what_runs


def model(*layers: Any) -> Any:
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "sequential", "layers": list(layers)},
        "registered_name": None,
    }


def layer(
    kind: str, module: str | None = "keras.layers", registered: str | None = None, **config: Any
) -> Any:
    return {
        "module": module,
        "class_name": kind,
        "config": {"name": "one", **config},
        "registered_name": registered,
    }


def function(module: str | None, name: str) -> Any:
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (model(layer("Lambda")), r"layer one \(Lambda\) is a Lambda layer"),
        ({"class_name": "Lambda", "config": {"function": ["4wEAAA==", None, None]}}, "is a Lambda layer"),
        (
            model(layer("Dense", activation={"class_name": "__lambda__", "config": {"value": "4wEA"}})),
            r"layer one \(Dense\) has a Python lambda",
        ),
        (
            model(layer("Dense", activation=function("keras.utils", "get_file"))),
            r"names the function keras\.utils\.get_file",
        ),
        (model(layer("Dense", activation=function("keras.src.utils.io_utils", "x"))), "names the function"),
        (model(layer("Dense", activation=function("keras.saving", "load_model"))), "names the function"),
        (model(layer("TFSMLayer", filepath="/srv/other")), "loads another SavedModel"),
        (model(layer("TorchModuleWrapper", module="gASV")), "unpickles"),
        (
            model(layer("StringLookup", vocabulary="/etc/passwd")),
            r"layer one \(StringLookup\) reads its vocabulary from the file /etc/passwd",
        ),
        (model(layer("TimeDistributed", layer=layer("Lambda"))), "is a Lambda layer"),
    ],
)
def test_what_runs(config: Any, reason: str) -> None:
    """Code in the file, functions that fetch and unpack, and files of this machine, however deep."""
    import re

    assert re.search(reason, what_runs(config) or "nothing")


@pytest.mark.parametrize(
    "config",
    [
        model(layer("Dense", activation="relu")),
        model(layer("Dense", activation=function("builtins", "relu"))),
        model(layer("Dense", activation=function("keras.activations", "gelu"))),
        model(layer("Dense", activation=function("keras.src.activations.activations", "gelu"))),
        model(layer("StringLookup", vocabulary=["a", "b"])),
        model(layer("Dense", kernel_initializer=layer("GlorotUniform", "keras.initializers"))),
        model(layer("Add", "keras.src.ops.numpy")),
        {"class_name": 7, "config": [None, 1.5, "x"]},
    ],
)
def test_what_does_not(config: Any) -> None:
    assert what_runs(config) is None
    assert list(custom_classes(config)) == []


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (model(layer("Twice", "mine.layers", "mine>Twice")), "mine>Twice"),
        (model(layer("Twice", "mine.layers")), "mine.layers.Twice"),
        ({"class_name": "Custom>Twice", "config": {}}, "Custom>Twice"),
        (model(layer("Dense", activation=function("mine", "swish"))), "mine.swish"),
    ],
)
def test_custom_classes(config: Any, name: str) -> None:
    assert list(custom_classes(config)) == [name]


def test_deep_and_wide() -> None:
    config: Any = layer("Lambda")
    for _ in range(50_000):
        config = [config]

    assert what_runs(config) is not None
