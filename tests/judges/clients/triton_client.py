"""Triton's four clients behind one face, and the list of scenarios that they play."""

import importlib
import inspect

from triton_arrays import SIGNATURES, described
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Client:
    """One of Triton's four clients, awaited whether it is asynchronous or not."""

    def __init__(self, protocol, address, **options):
        self.protocol, self.address = protocol, address
        self.module = importlib.import_module(f"tritonclient.{protocol}")
        self.client = self.module.InferenceServerClient(address, **options)

    @property
    def is_http(self):
        return self.protocol.startswith("http")

    async def call(self, name, *words, **more):
        answer = getattr(self.client, name)(*words, **more)
        return await answer if inspect.isawaitable(answer) else answer

    async def told(self, name, *words):
        """An answer that is a document, whichever protocol it came over."""
        return await self.call(name, *words, **({} if self.is_http else {"as_json": True}))

    def tensor(self, name, array, binary=True):
        given = self.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        return given.set_data_from_numpy(array, **({"binary_data": binary} if self.is_http else {}))

    def output(self, name, binary=True, **more):
        return self.module.InferRequestedOutput(
            name, **({"binary_data": binary} if self.is_http else {}), **more
        )

    async def echoed(self, array, sent_binary=True, answered_binary=True, **more):
        """The array that the model gives back, as it was and as it came."""
        signature = SIGNATURES[np_to_triton_dtype(array.dtype)]
        result = await self.call(
            "infer",
            "echo",
            [self.tensor("x", array, sent_binary)],
            outputs=[self.output("y", answered_binary)],
            parameters={"signature": signature},
            **more,
        )
        return {"sent": described(array), "received": described(result.as_numpy("y"))}

    async def refused(self, name, *words, **more):
        try:
            answer = await self.call(name, *words, **more)
        except InferenceServerException as error:
            return {"status": error.status(), "message": error.message()}
        return {"answered": str(answer)}
