"""Measures goodput under 1, 2 and 4 times the load that a stack carries, with and without a limit of the wait.

A script sleeps, so that it does not matter what else the machine does. Clients come evenly, whatever the
answers, and hang up after ``--patience`` seconds: goodput is what they get in time. ``--write`` makes the picture.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from picture import Bar, Sheet, svg
from stack import serve

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "assets" / "overload.svg"
CALL_SECONDS, THREADS = 0.1, 4
CAPACITY = THREADS / CALL_SECONDS
TIMES = (1, 2, 4)
SCRIPT = f"""
import time

def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept):
    time.sleep({CALL_SECONDS})
    return "[]", "application/json"
"""
REQUEST = (
    b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\nConnection: close\r\n\r\n[]"
)


async def ask(url: str, patience: float) -> str:
    """The status of one answer; nothing if it does not come in time."""
    where = urlsplit(url)
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(REQUEST)
            head = await reader.readline()
            return head.split()[1].decode()
    except (OSError, TimeoutError, IndexError):
        return ""
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def load(url: str, rate: float, seconds: float, patience: float) -> Counter[str]:
    """Send requests at a rate; the answers, of which the first quarter does not count."""
    calls, began = [], time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(began + number / rate - time.monotonic())
        calls.append(asyncio.create_task(ask(url, patience)))
    return Counter((await asyncio.gather(*calls))[len(calls) // 4 :])


def goodput(folder: Path, times: int, limit: float | None, given: argparse.Namespace) -> float:
    """Answers in time, per second, of a stack of its own."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": str(THREADS)}
    if limit is not None:
        env["TFS_PROXY_MAX_WAIT_SECONDS"] = str(limit)
    with serve(folder, "embedded", env) as stack:
        asyncio.run(load(stack.url, CAPACITY / 2, 1, given.patience))
        answers = asyncio.run(load(stack.url, times * CAPACITY, given.seconds, given.patience))
    rate: float = answers["200"] / (given.seconds * 3 / 4)
    shown = ", ".join(f"{count} {status or 'hung up'}" for status, count in answers.most_common())
    print(f"{times} times the load, limit {limit}: {rate:.1f} in time a second ({shown})", file=sys.stderr)
    return rate


def main() -> None:
    """Measure, print, and make the picture if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--patience", type=float, default=2, help="seconds after which a client hangs up")
    parser.add_argument("--limit", type=float, default=1.5, help="TFS_PROXY_MAX_WAIT_SECONDS")
    parser.add_argument("--write", action="store_true", help="write the picture into the documentation")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "inference.py").write_text(SCRIPT)
        named = {f"TFS_PROXY_MAX_WAIT_SECONDS={given.limit:g}": given.limit, "without": None}
        groups = [
            (
                f"{times * CAPACITY:g} requests a second, {times} times what it carries",
                [(name, goodput(folder, times, limit, given)) for name, limit in named.items()],
            )
            for times in TIMES
        ]
    for heading, rates in groups:
        print(heading, *(f"{name}: {rate:.1f}" for name, rate in rates), sep="\n  ")
    if given.write:
        title = f"Answers in time, of clients that wait {given.patience:g} s"
        sheet = Sheet(label=290, longest=270)
        sheet.bars(
            [
                (heading, [Bar(name, rate, f"{rate:.1f} requests/s") for name, rate in rates])
                for heading, rates in groups
            ],
            CAPACITY,
        )
        PICTURE.write_text(svg(title, 720, sheet.y + sheet.x, sheet.parts))


if __name__ == "__main__":
    main()
