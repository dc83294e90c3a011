"""However many sets of outputs requests ask for, few calls of the model are kept."""

from collections.abc import Sequence
from itertools import chain, combinations, permutations

import numpy as np

from tfs_proxy import protos
from tfs_proxy.embedded.core.predict import predict
from tfs_proxy.embedded.core.servable import Array, LoadedServable, PreparedCall
from tfs_proxy.memory import MemoryBudget

NAMES = [f"y{number}" for number in range(8)]


class Counting:
    """A backend that gives each output its own number, and counts its calls."""

    waits = False

    def __init__(self) -> None:
        self.prepared = 0

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """A call that answers with numbers."""
        assert feeds
        self.prepared += 1

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            assert arrays
            return [np.array([float(name[1])], np.float32) for name in fetches]

        return call

    def close(self) -> None:
        """Nothing to close."""


def test_filters_of_outputs_do_not_grow_a_server_for_ever() -> None:
    """The order asked for makes no call of its own, and of many sets some are picked from all outputs."""
    signature = protos.SignatureDef()
    signature.inputs["x"].CopyFrom(protos.TensorInfo(name="x:0", dtype="DT_FLOAT"))
    for name in NAMES:
        signature.outputs[name].CopyFrom(protos.TensorInfo(name=f"t{name[1]}:0", dtype="DT_FLOAT"))
    backend = Counting()
    servable = LoadedServable("m", 1, {"serving_default": signature}, backend)

    def ask(*aliases: str) -> None:
        request = protos.PredictRequest(output_filter=aliases)
        tensor = protos.TensorProto(dtype="DT_FLOAT", float_val=[1.0])
        tensor.tensor_shape.dim.add(size=1)
        request.inputs["x"].CopyFrom(tensor)
        outputs = protos.PredictResponse.FromString(predict(servable, request, MemoryBudget())).outputs
        assert {name: [*output.float_val] for name, output in outputs.items()} == {
            name: [float(name[1])] for name in aliases or NAMES
        }

    ask()
    for aliases in permutations(NAMES[:4]):
        ask(*aliases)
    assert backend.prepared == 2
    for aliases in chain.from_iterable(combinations(NAMES, size) for size in range(1, 9)):
        ask(*aliases)
    assert backend.prepared <= 65
