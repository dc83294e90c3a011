"""Packages of this program in the overlay of a script's packages: taken out of it, or named.

The workers import them from the overlay first, so that the freeze of another program could end them all.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

TENSORFLOW = "tensorflow"
KEPT: Mapping[str, str] = {
    "gunicorn": "the workers are made of its inner classes",
    "falcon": "its major versions differ in what an application calls",
    "msgspec": "it is not at version 1 yet, and the workers use what is new in it",
    "orjson": "the workers use what is new in it",
    "pysimdjson": "its major versions differ in what a document is",
    "gevent": "gunicorn refuses old versions of it",
    "greenlet": "gevent is compiled for its version",
    "setproctitle": "gunicorn imports it, and versions for older Pythons fail then",
}
"""Distributions that workers import, and that promise nothing to programs written for another version: why.

Others keep to what they had: numpy, protobuf, grpcio, requests, urllib3, Pillow, boto3, pybase64,
google-crc32c and OpenTelemetry's may be replaced.
"""

_log = logging.getLogger(__name__)


def keep_own(overlay: Path, site_packages: Path, provided: str) -> tuple[str, ...]:
    """Takes `KEPT` out of the overlay; warns of what else is replaced, and returns its names and versions.

    ``provided`` is the distribution that has TensorFlow here, if it has another name; else "".
    """
    required = (line for us in metadata.distributions(name="tfs-proxy") for line in us.requires or ())
    own = {project_name(line) for line in required if "extra ==" not in line}
    replaced = []
    for package in list(metadata.distributions(path=[str(site_packages)])):
        name = project_name(package.name)
        here = next((each.version for each in metadata.distributions(name=name)), None)
        if name in KEPT and package.files and here:
            if here != package.version:
                _log.warning(
                    "%s %s of code/requirements.txt is taken out again for %s, which is here, since %s",
                    name,
                    package.version,
                    here,
                    KEPT[name],
                )
            # Files of its RECORD that are in the overlay, and folders that are empty then.
            paths = [Path(str(package.locate_file(file))) for file in package.files]
            inside = [path for path in paths if path.parent.resolve().is_relative_to(overlay.resolve())]
            for path in inside:
                path.unlink(missing_ok=True)
            for folder in sorted({folder for path in inside for folder in path.parents}, reverse=True):
                with suppress(OSError):
                    folder.rmdir()
        elif name == TENSORFLOW and provided and package.version not in provided.split():
            _log.warning(
                "code/requirements.txt puts tensorflow %s in the workers, in addition to %s, which is here: "
                "without the pin, nothing is installed for it",
                package.version,
                provided,
            )
        elif name in own:
            replaced.append(f"{name} {package.version}")
            _log.warning(
                "code/requirements.txt replaces %s, which this program uses too, by %s in the workers",
                name,
                package.version,
            )
    return tuple(replaced)


def project_name(requirement: str) -> str:
    """The name at the beginning, normalised as on PyPI."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""
