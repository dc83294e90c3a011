"""Triton's clients on an endpoint: `triton.py PROTOCOL ADDRESS SCENARIO...` prints what each scenario saw, as JSON.

PROTOCOL is http, http.aio, grpc or grpc.aio. What a scenario raises is printed in its place, so that the others
are seen.
"""

import asyncio
import json
import sys

import triton_inferences  # noqa: F401
from triton_client import SCENARIOS, Client


async def main(protocol, address, *names):
    client = Client(protocol, address)
    seen = {}
    for name in names:
        try:
            seen[name] = await SCENARIOS[name](client)
        except Exception as error:  # noqa: BLE001
            seen[name] = {"raised": f"{type(error).__name__}: {error}"}
    await client.call("close")
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
