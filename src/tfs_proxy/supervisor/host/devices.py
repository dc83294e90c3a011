"""Which devices the model servers use, read from their logs, so that an unused GPU is noticed."""

import logging
import re

log = logging.getLogger(__name__)

CREATED = re.compile(
    r"Created device \S*device:(?P<device>GPU:\d+) with (?P<megabytes>\d+) MB memory.*?name: (?P<name>[^,]+),"
)
"""What TensorFlow logs for each GPU that it takes, when the first model is loaded."""


class Devices:
    """GPUs by model server, as logged so far."""

    def __init__(self) -> None:
        self._gpus: dict[str, dict[str, str]] = {}

    def hear(self, server: str, line: str) -> None:
        """Note a GPU if ``line``, which a model server has printed, names one."""
        if created := CREATED.search(line):
            name = f"{created['device']} ({created['name']}, {created['megabytes']} MB)"
            self._gpus.setdefault(server, {})[created["device"]] = name

    def log(self, server: str, gpus: int) -> None:
        """Log what ``server`` runs on, and warn if it leaves the driver's ``gpus`` unused."""
        log.info("%s", self.report(server))
        overlooked = self.overlooked(server, gpus)
        if overlooked:
            log.warning("%s", overlooked)

    def report(self, server: str) -> str:
        """The sentence that names what ``server`` runs on."""
        devices = self._gpus.get(server)
        return f"{server} runs on {', '.join(devices.values()) if devices else 'the CPU'}"

    def overlooked(self, server: str, gpus: int) -> str | None:
        """A warning if the driver shows GPUs that ``server`` does not use."""
        if not gpus or server in self._gpus:
            return None
        return (
            f"the driver shows {gpus} GPU(s), but {server} uses none: its log says which CUDA library "
            "is missing or does not fit the driver"
        )
