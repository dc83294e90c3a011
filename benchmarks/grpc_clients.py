"""CPU milliseconds that a call of Predict takes in the client's process: ours against grpcio's, in turns.

The server is grpcio's, in a process of its own, and answers with the request's own bytes.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tfs_proxy.wire.connect import connect_unix_patiently
from tfs_proxy.wire.grpc_client import GrpcPool

METHOD = "/benchmark.Echo/Echo"
SECONDS = 30.0
MESSAGES = {"tiny": 60, "JPEG": 106_000, "f224 array": 602_112}
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Call = Callable[[bytes], object]


def serve(path: str, ready: Any) -> None:
    """Echo until the process is ended."""
    import grpc

    server = grpc.server(futures.ThreadPoolExecutor(16), options=UNLIMITED)
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(lambda message, _context: message)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("benchmark.Echo", handlers)])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    ready.set()
    server.wait_for_termination()


@contextmanager
def server() -> Iterator[Path]:
    """The path of its unix socket."""
    spawned = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path, ready = Path(folder) / "s", spawned.Event()
        process = spawned.Process(target=serve, args=(str(path), ready))
        process.start()
        try:
            ready.wait(SECONDS)
            yield path
        finally:
            process.kill()
            process.join()


def milliseconds(call: Call, message: bytes, threads: int, seconds: float) -> float:
    """CPU time of this process for one call, of ``threads`` that call for ``seconds``."""
    calls = [0] * threads
    end = time.monotonic() + seconds

    def ask(number: int) -> None:
        while time.monotonic() < end:
            call(message)
            calls[number] += 1

    began = time.process_time()
    asking = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return (time.process_time() - began) * 1000 / sum(calls)


def main() -> None:
    """Measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    arguments = parser.parse_args()
    print("| message | threads | grpcio CPU ms | ours | ratio |\n|---|---|---|---|---|")
    with server() as path:
        import grpc

        channel = grpc.insecure_channel(f"unix:{path}", options=UNLIMITED)
        method = channel.unary_unary(METHOD)
        pool = GrpcPool(partial(connect_unix_patiently, path), "localhost")
        clients: tuple[Call, Call] = (
            lambda message: method(message, timeout=SECONDS),
            lambda message: pool.call(METHOD, [message], SECONDS),
        )
        for name, size in MESSAGES.items():
            for threads in (1, 8):
                rounds = [
                    [milliseconds(call, bytes(size), threads, arguments.seconds) for call in clients]
                    for _ in range(arguments.rounds)
                ]
                theirs, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
                print(f"| {name} | {threads} | {theirs:.3f} | {ours:.3f} | {ours / theirs:.2f} |", flush=True)
        pool.close()
        channel.close()


if __name__ == "__main__":
    main()
