"""Calls of TF Serving's gRPC API from arrays to arrays, and what they are refused with."""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from support.predict_messages import request_bytes, response_arrays
from tfs_proxy.wire.protos.predict import model_spec

PREDICT = "/tensorflow.serving.PredictionService/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
SECONDS = 60.0


def predict(channel: grpc.Channel, x: Any, model: str = "half_plus_two", **spec: Any) -> dict[str, Any]:
    """PredictionService.Predict, from arrays to arrays."""
    message = request_bytes(model_spec(model, **spec), {"x": np.asarray(x)})
    return response_arrays(channel.unary_unary(PREDICT)(message, timeout=SECONDS))


def hold(channel: grpc.Channel, mark: str, model: str = "gate", seconds: float = SECONDS) -> dict[str, Any]:
    """Predict of the model that waits at a gate."""
    message = request_bytes(model_spec(model), {"mark": np.array([mark.encode()], object)})
    return response_arrays(channel.unary_unary(PREDICT)(message, timeout=seconds))


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """Code and text of the error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code().name, error.details()


def ones(count: int) -> Any:
    """An array of ``count`` floats."""
    return np.ones(count, np.float32)
