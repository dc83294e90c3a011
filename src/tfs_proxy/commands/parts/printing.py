"""Standard output of commands that print and end."""

import signal


def print_for_a_pipe(text: str) -> None:
    """Print a text; if its reader has gone, as in ``| head -1``, the process ends without a word."""
    previous = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        print(text, flush=True)
    finally:
        signal.signal(signal.SIGPIPE, previous)
