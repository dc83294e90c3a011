"""``tfs-proxy ask``: sends a file to a container, prints the answer, and how long repeated requests took."""

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import (
    add_access_arguments,
    add_attribute_arguments,
    at_least_one,
    body_of,
    interruptible,
)
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable
from tfs_proxy.wire import media_types as media

if TYPE_CHECKING:
    from tfs_proxy.tools.client import Reply

DESCRIPTION = """\
Send FILE to the container at URL and print the answer; with --repeat, print how long the requests took.

URL is http://HOST:PORT, or the whole address of invocations, such as http://HOST:PORT/models/NAME/invoke.
Requests that the server did not take up (no connection, 429, 503) are sent again, but not with --repeat.

Exit status: 0 if all were answered; 1 if one was refused or failed; 2 if the file or the URL can't be used.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="http(s)://HOST:PORT of a container")
    parser.add_argument("file", type=Path, metavar="FILE", help="body of the request; - reads standard input")
    parser.add_argument("--content-type", metavar="TYPE", help="default: by the ending of FILE")
    parser.add_argument("--accept", metavar="TYPE", help="the type of the answer (default: the server's)")
    add_attribute_arguments(parser)
    add_access_arguments(parser)
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for an answer (default: 60)"
    )
    parser.add_argument(
        "--repeat", type=at_least_one, default=1, metavar="N", help="send it so many times, and print a table"
    )
    parser.add_argument(
        "--concurrency", type=at_least_one, default=1, metavar="N", help="requests at once (default: 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.tools.client import Client, ClientError

    known = arguments.content_type or media.of_file(arguments.file.name)
    if known is None:
        raise SettingsError(f"The ending of {arguments.file} does not say what it is: give --content-type.")
    body = body_of(arguments.file)
    content_type = str(known)
    repeats = arguments.repeat > 1 or arguments.concurrency > 1
    attributes = ",".join(arguments.custom_attributes)
    headers = {"custom_attributes": attributes} if attributes else {}
    try:
        client = Client(
            arguments.url,
            ca=arguments.ca,
            key=arguments.key,
            timeout_seconds=arguments.timeout,
            retries=0 if repeats else 3,
            connections=arguments.concurrency,
        )
    except ValueError as error:
        raise SettingsError(f"{error}.") from None
    with client, interruptible():

        def send() -> "Reply":
            return client.invoke(body, content_type, accept=arguments.accept, **headers)

        if repeats:
            return _measure(send, max(arguments.repeat, arguments.concurrency), arguments.concurrency)
        try:
            _print_answer(send())
        except ClientError as error:
            print(f"tfs-proxy: {error}", file=sys.stderr)
            return 1
    return 0


def _print_answer(reply: "Reply") -> None:
    """Writes the bytes of the answer; a terminal gets text without control characters, for arrays, too."""
    from tfs_proxy.tools.client import arrays_of

    kind = reply.content_type.partition(";")[0]
    if sys.stdout.isatty() and kind in {media.NPY, media.NPZ}:
        for name, array in arrays_of(reply).items():
            print(f"{printable(name) or 'output'}: {array.dtype}{list(array.shape)}\n{array}")
        return
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(reply.body)
        return
    # Escapes of a terminal could write to its clipboard, or paint over what is above.
    for line in reply.body.decode(errors="backslashreplace").expandtabs().splitlines():
        sys.stdout.buffer.write(printable(line).encode() + b"\n")


def _measure(send: "Callable[[], Reply]", times: int, concurrency: int) -> int:
    """Sends ``times`` requests, prints their table, and returns the exit status."""
    from tfs_proxy.tools.client import ClientError

    left = iter(range(times))
    stopped = threading.Event()
    results = []

    def send_on() -> None:
        for _number in left:
            if stopped.is_set():
                return
            before = time.perf_counter()
            error = ""
            try:
                send()
            except ClientError as refused:
                error = str(refused)
            results.append((time.perf_counter() - before, error))

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as threads:
        try:
            for sending in [threads.submit(send_on) for _ in range(concurrency)]:
                sending.result()
        finally:
            stopped.set()
    seconds = time.perf_counter() - started
    print(*_table([taken for taken, error in results if not error], times, concurrency, seconds), sep="\n")
    failures = Counter(error for _, error in results if error)
    for error, count in failures.most_common(5):
        print(f"tfs-proxy: {count} failed: {error}", file=sys.stderr)
    return 1 if failures else 0


def _table(answered: list[float], times: int, concurrency: int, seconds: float) -> Iterator[str]:
    """Lines for people: ``answered`` and ``seconds`` are durations in seconds."""
    yield f"{len(answered)} of {times} requests answered in {seconds:.2f} s, {concurrency} at once"
    if not answered:
        return
    yield f"{len(answered) / seconds:10.1f} requests/s"
    in_order = sorted(answered)
    for percent, name in ((50, "p50"), (90, "p90"), (99, "p99"), (100, "longest")):
        place = min(percent * len(in_order) // 100, len(in_order) - 1)
        yield f"{in_order[place] * 1000:10.1f} ms  {name}"
