"""The signals that end a run in order."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP unless it is ignored, which is what ``nohup`` asks for."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def reason(number: signal.Signals) -> str:
    """The beginning of the log line about the stop."""
    if number is signal.SIGHUP:
        return "SIGHUP: nothing is reloaded; stopping as on SIGTERM"
    return f"{number.name}: stopping"
